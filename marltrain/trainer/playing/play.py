"""play: show, film or join episodes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.core.seeds import child_seed
from marltrain.core.settings import check_flags
from marltrain.core.spec import EnvSpec
from marltrain.envs.python.probe import probe
from marltrain.envs.registry import resolve
from marltrain.envs.twins import with_pictures, with_text
from marltrain.storage.files import path_of
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.playing.displays import FILMS, check_writer
from marltrain.trainer.playing.human_player import Person
from marltrain.trainer.playing.stage import show_episodes
from marltrain.trainer.seats.by_player import Agents, in_seats, without_seats
from marltrain.trainer.seats.in_use import at_work
from marltrain.trainer.seats.seats import Seating

if TYPE_CHECKING:
    from marltrain.policies.agents.agent import Agent

LOGGER = logging.getLogger("marltrain")


def play(
    env: Any,
    agents: Agents,
    *,
    env_args: Mapping[str, Any] | None = None,
    episodes: int = 1,
    out: str | Path | None = None,
    greedy: bool = True,
    seed: int = 0,
    fps: float | None = None,
    frames: str | Path | None = None,
    every: int = 1,
    delay: float | None = None,
    max_steps: int | None = None,
    human: str | Sequence[str] = (),
    keys: Mapping[str, int] | None = None,
    text: bool = False,
) -> Array:
    """Play episodes in a window, as text, or into files; return the returns, [episodes, players] float64.

    env, env_args: as for `DecentralizedTrainer`. The original of a native game is shown in its place where it draws
        pictures, with equal rules and arguments, as the log says.  agents: as for `DecentralizedTrainer.train`.
    out: path of the film, .gif or .mp4 (`pip install "marltrain[mp4]"`). None shows a window, or prints the text of
        environments without a window (render mode "ansi").
    greedy: agents do not explore.  seed: seed of the episodes.
    fps: frames per second; None: the environment's `render_fps`, else 2 for turn-based games and 10 for others.
    frames, every: folder for pictures, "<episode>-<env step>.png": every n-th one of an episode, and its last. No
        window is shown.
    delay: seconds for which a picture is shown in the window or film, in place of fps; with frames alone, seconds of a
        pause after each env step (none by default).
    max_steps: env steps after which an episode is cut.
    human: players whose Discrete actions a person chooses: by keys in a pygame window, or by numbers on the console
        where text is shown. Turn-based games wait for the person, others only on the console. Only legal actions are
        taken. Closing the window, the input, or "q" there, ends play; the returns are those of the finished episodes.
    keys: name of the key (as pygame names it: "a", "1", "left") -> action; None: 0 to 9, then a to z.
    text: show text, also of an environment that has pictures: the actions and rewards of each env step, and what the
        environment draws as text (render mode "ansi", native games, tictactoe_v3 and connect_four_v3 of PettingZoo). No
        display is needed. In a terminal, steps follow each other as pictures do; a person sets the pace. With out= or
        frames=, text is drawn as pictures.
    Raises ConfigError for a wrong argument and for a window without a display, EnvError for environments that do not
    support this kind of display.
    """
    check_flags("play", greedy=greedy, text=text)
    _check_numbers(episodes=episodes, fps=fps, every=every, delay=delay, max_steps=max_steps)
    people = (human,) if isinstance(human, str) else tuple(human)
    if people and not (out is None and frames is None):
        files = written("out= and frames=", "--out and --frames")
        raise ConfigError(f"human needs a window or a console: leave {files} out")
    if every != 1 and frames is None:
        raise ConfigError("every has a meaning only with frames")
    if keys and not people:
        raise ConfigError("keys have a meaning only with human=")
    folder = None if frames is None else path_of(frames, "frames", ConfigError)
    target, given = film_of(out), resolve(env, env_args)
    source = with_text(given) if text else with_pictures(given)
    if source.name != given.name:
        _tell_of_twin(given.name, source.name)
    with at_work(None, without_seats(agents), training=False):
        spec = probe(source)
        seated = _with_people(spec, in_seats(agents, spec), people, keys)
        actors = Actors(spec, Seating(spec, seated, seed, stack=False).learners, 1, "test")
        actors.cast.check_chosen()
        actors.explore(np.full(len(spec.players), not greedy))
        seeds = [child_seed(seed, "episode", "play", 0, k) for k in range(episodes)]
        return show_episodes(
            source, spec, actors, seeds, target=target, fps=fps, frames=folder, every=every, delay=delay,
            max_steps=max_steps, people=[agent for agent in seated if isinstance(agent, Person)], text=text,
        )  # fmt: skip


@cache
def _tell_of_twin(name: str, shown: str) -> None:
    """Log, once, that another environment of equal rules is shown."""
    LOGGER.warning("%s is shown, which has the rules, players and spaces of %s", shown, name)


def film_of(out: str | Path | None) -> Path | None:
    """Return the path of a film; raises ConfigError for another kind of file, or without the package it needs."""
    target = None if out is None else path_of(out, "out", ConfigError)
    if target is not None and target.suffix.lower() not in FILMS:
        raise ConfigError(f"out must end in {' or '.join(FILMS)}, got {str(out)!r}")
    if target is not None:
        check_writer(target.suffix)
    return target


def _check_numbers(*, episodes: int, fps: float | None, every: int, delay: float | None, max_steps: int | None) -> None:
    """Raise ConfigError for a number out of its range."""
    for name, value in (("episodes", episodes), ("every", every), ("max_steps", max_steps)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    if delay is not None and not delay >= 0:
        raise ConfigError(f"delay must be at least 0, got {delay}")
    if fps is not None and delay is not None:
        raise ConfigError("fps and delay say the same: give one of them")


def _with_people(
    spec: EnvSpec, agents: Sequence[Agent], people: Sequence[str], keys: Mapping[str, int] | None
) -> Sequence[Agent]:
    """Return the agents, with people in place of those of some players; raises ConfigError for an unknown player."""
    for name in people:
        if name not in spec.names:
            raise ConfigError(f"human: there is no player {name!r}.{did_you_mean(name, spec.names)} "
                              f"There are {', '.join(spec.names)}")  # fmt: skip
    if not people:
        return agents
    chosen = zip(spec.names, agents, strict=True)
    return [Person(name, keys, wait=spec.turn_based) if name in people else agent for name, agent in chosen]
