"""play: show, film or join episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.config import check_flags
from marltrain.envs.layers import metadata_of
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.contract import Contract
from marltrain.envs.python.probe import adapter_of, closed, probe
from marltrain.envs.registry import Source, resolve
from marltrain.errors import ConfigError, EnvError, MarlTrainError, SpecError, did_you_mean, error_text
from marltrain.files import path_of
from marltrain.layout import Array
from marltrain.random import child_seed
from marltrain.spec import EnvSpec, Step
from marltrain.trainer.by_player import Agents, in_seats, without_seats
from marltrain.trainer.claims import at_work
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.displays import FILMS, Frames, Show, Window, Write, check_writer, film, pictures, without_window
from marltrain.trainer.people import Person, PlayEndedError
from marltrain.trainer.seats import Seating

if TYPE_CHECKING:
    from marltrain.policies.agents.agent import Agent


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
) -> Array:
    """Play episodes in a window, as text, or into files; return the returns, [episodes, players] float64.

    env, env_args: as for `DecentralizedTrainer`.  agents: as for `DecentralizedTrainer.train`.
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
        where the environment prints text. Turn-based games wait for the person. Only legal actions are taken. Closing
        the window, or the input, ends play; the returns are those of the finished episodes.
    keys: name of the key (as pygame names it: "a", "1", "left") -> action; None: 0 to 9, then a to z.
    Raises ConfigError for a wrong argument, EnvError for environments that do not support this kind of display.
    """
    check_flags("play", greedy=greedy)
    _check_numbers(episodes=episodes, fps=fps, every=every, delay=delay, max_steps=max_steps)
    people = (human,) if isinstance(human, str) else tuple(human)
    if people and not (out is None and frames is None):
        raise ConfigError("human needs a window or a console: leave out= and frames= out")
    if every != 1 and frames is None:
        raise ConfigError("every has a meaning only with frames")
    if keys and not people:
        raise ConfigError("keys have a meaning only with human=")
    folder = None if frames is None else path_of(frames, "frames", ConfigError)
    target, source = film_of(out), resolve(env, env_args)
    with at_work(None, without_seats(agents), training=False):
        spec = probe(source)
        seated = _with_people(spec, in_seats(agents, spec), people, keys)
        actors = Actors(spec, Seating(spec, seated, seed, stack=False).learners, 1, "test")
        actors.explore(np.full(len(spec.players), not greedy))
        seeds = [child_seed(seed, "episode", "play", 0, k) for k in range(episodes)]
        return show_episodes(
            source, spec, actors, seeds, target=target, fps=fps, frames=folder, every=every, delay=delay,
            max_steps=max_steps, people=[agent for agent in seated if isinstance(agent, Person)],
        )  # fmt: skip


class Deciding(Protocol):
    """What plays the shown episodes: `decide` writes the actions for a Step of one environment into `actions`."""

    actions: tuple[Array, ...]

    def decide(self, step: Step) -> Any:
        """Write the next actions."""


def film_of(out: str | Path | None) -> Path | None:
    """Return the path of a film; raises ConfigError for another kind of file, or without the package it needs."""
    target = None if out is None else path_of(out, "out", ConfigError)
    if target is not None and target.suffix.lower() not in FILMS:
        raise ConfigError(f"out must end in {' or '.join(FILMS)}, got {str(out)!r}")
    if target is not None:
        check_writer(target.suffix)
    return target


def show_episodes(
    source: Source,
    spec: EnvSpec,
    actors: Deciding,
    seeds: Sequence[int],
    *,
    target: Path | None,
    fps: float | None,
    frames: Path | None = None,
    every: int = 1,
    delay: float | None = None,
    max_steps: int | None = None,
    people: Sequence[Person] = (),
) -> Array:
    """Play an episode for each seed, in a window or into files; return the returns [episodes, players]. See `play`.

    people: those among the actors.
    """
    if fps is not None and not fps > 0:
        raise ConfigError(f"fps must be greater than 0, got {fps}")
    in_window = target is None and frames is None
    with contextlib.ExitStack() as opened:
        if not in_window:
            opened.enter_context(without_window())
        table = _Table(source, spec, ("human", "ansi") if in_window else ("rgb_array",))
        opened.enter_context(closed(table, source.name))
        for person in people:
            person.begin(console=table.render_mode == "ansi")
        given = 1 / delay if delay else fps
        rate = given or float(table.metadata.get("render_fps") or (2 if spec.turn_based else 10))
        if in_window:
            show: Show = Window(rate, draws=table.render_mode == "human")
        else:
            writers: list[Write] = [] if target is None else [opened.enter_context(film(target, rate))]
            writers += [] if frames is None else [Frames(frames, every)]
            show = pictures(writers, 0.0 if target is not None or delay is None else delay)
        returns = []
        with contextlib.suppress(PlayEndedError):
            for seed in seeds:
                returns.append(table.episode(actors, show, seed, max_steps))
        return np.array(returns).reshape(-1, len(spec.players))


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


class _Table:
    """The environment that is shown; every episode uses a new object, since a reset may leave state behind."""

    def __init__(self, source: Source, spec: EnvSpec, render_modes: Sequence[str]) -> None:
        """Build the environment with the first supported render mode; raises EnvError if none is supported."""
        self.source, self.spec = source, spec
        self.contract, self.step = Contract(spec), Step.empty(spec, 1)
        self.used = False
        known: Any = ()
        for self.render_mode in render_modes:
            self.adapter = self._build()
            known = self.metadata.get("render_modes")
            if known is None or self.render_mode in known:
                return
            self.close()
        wanted = " or ".join(map(repr, render_modes))
        raise EnvError(f"environment {source.name!r} has no render mode {wanted}; it has {', '.join(known) or 'none'}. "
                       f"{_remedy(known)}")  # fmt: skip

    @property
    def metadata(self) -> Mapping[str, Any]:
        return metadata_of(self.adapter.env)

    def episode(self, actors: Deciding, show: Show, seed: int, max_steps: int | None) -> Array:
        """Play one episode, at most `max_steps` env steps; return the undiscounted returns, [P] float64."""
        if self.used:
            self.close()
            self.adapter = self._build()
        self.used, step = True, self.step
        with self._told(f"seed {seed}, at its start"):
            self.adapter.reset(seed, step, 0)
            show(self.adapter, False)
        returns, ended, moves = step.start_reward[:, 0].astype(np.float64), False, 0
        while not ended:
            actors.decide(step)
            if fault := self.contract.sent(actors.actions, step):
                raise EnvError(f"environment {self.source.name!r} (seed {seed}), step {moves}: {fault.message}")
            step.reward[...] = 0
            step.terminated[...] = step.truncated[...] = False
            with self._told(f"seed {seed}, step {moves}"):
                ended = self.adapter.step(actors.actions, step, 0) or moves + 1 == max_steps
                step.ended[0] = ended
                show(self.adapter, ended)
            returns += step.reward[:, 0]
            moves += 1
        return returns

    def close(self) -> None:
        self.adapter.close()

    def _build(self) -> Adapter:
        with self._told(f"built with render_mode={self.render_mode!r}"):
            try:
                env = self.source.make(self.render_mode)
            except TypeError as error:
                if "render_mode" not in str(error):
                    raise
                raise EnvError(
                    f"environment {self.source.name!r} cannot be built with render_mode={self.render_mode!r}: {error}. "
                    "To be shown, its class takes render_mode, names its modes in metadata['render_modes'] and defines "
                    "render()"
                ) from error
            return adapter_of(env)(env, self.spec)

    @contextmanager
    def _told(self, where: str) -> Iterator[None]:
        try:
            yield
        except SpecError as error:
            raise EnvError(f"environment {self.source.name!r}, {where}: {error}") from error
        except MarlTrainError:
            raise
        except Exception as error:
            hint = "" if self.render_mode == "rgb_array" else ". Without a display, film it: out='game.gif'"
            raise EnvError(f"environment {self.source.name!r}, {where}: {error_text(error)}{hint}") from error


def _remedy(known: Sequence[str]) -> str:
    """Return advice on how to show an environment that supports only the render modes `known`."""
    if "rgb_array" in known:
        return "Film it: out='game.gif'"
    if {"human", "ansi"} & set(known):
        return "It cannot be filmed: leave out= out to watch it"
    return "It cannot be shown: its returns are what trainer.test() measures"
