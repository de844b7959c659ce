"""play: show or film episodes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.config import check_flags
from marltrain.envs.python.adapter import Adapter, metadata_of
from marltrain.envs.python.contract import Contract
from marltrain.envs.python.probe import ADAPTERS, closed, probe
from marltrain.envs.registry import Source, api_of, resolve
from marltrain.errors import ConfigError, EnvError, MarlTrainError, error_text
from marltrain.files import path_of, replacing
from marltrain.layout import Array
from marltrain.random import child_seed
from marltrain.spec import EnvSpec, Step
from marltrain.trainer.claims import at_work
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.seats import Seating

if TYPE_CHECKING:
    from marltrain.policies.agents.agent import Agent

FILMS = (".gif", ".mp4")
HOLD = 1.0
"""Seconds for which the last frame of an episode is shown."""
Show = Callable[[Adapter, bool], None]


def play(
    env: Any,
    agents: Sequence[Agent],
    *,
    env_args: Mapping[str, Any] | None = None,
    episodes: int = 1,
    out: str | Path | None = None,
    greedy: bool = True,
    seed: int = 0,
    fps: float | None = None,
) -> Array:
    """Play whole episodes in a window, as text, or into a film; return the returns, [episodes, players] float64.

    env, env_args: as for `DecentralizedTrainer`.  agents: one agent per player.
    out: path of the film, .gif or .mp4. None shows a window, or prints the text of environments without a window
        (render mode "ansi").
    greedy: agents do not explore.  seed: seed of the episodes.
    fps: frames per second; None: the environment's `render_fps`, else 2 for turn-based games and 10 for others.
    Raises ConfigError for other paths, EnvError for environments that do not support this kind of display.
    """
    check_flags("play", greedy=greedy)
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    target, source = film_of(out), resolve(env, env_args)
    with at_work(None, agents, training=False):
        spec = probe(source)
        actors = Actors(spec, Seating(spec, agents, seed, stack=False).learners, 1, "test")
        actors.explore(np.full(len(spec.players), not greedy))
        seeds = [child_seed(seed, "episode", "play", 0, k) for k in range(episodes)]
        return show_episodes(source, spec, actors, seeds, target=target, fps=fps)


class Deciding(Protocol):
    """What plays the shown episodes: `decide` writes the actions for a Step of one environment into `actions`."""

    actions: tuple[Array, ...]

    def decide(self, step: Step) -> Any:
        """Write the next actions."""


def film_of(out: str | Path | None) -> Path | None:
    """Return the path of a film; raises ConfigError for another kind of file."""
    target = None if out is None else path_of(out, "out", ConfigError)
    if target is not None and target.suffix.lower() not in FILMS:
        raise ConfigError(f"out must end in {' or '.join(FILMS)}, got {str(out)!r}")
    return target


def show_episodes(
    source: Source, spec: EnvSpec, actors: Deciding, seeds: Sequence[int], *, target: Path | None, fps: float | None
) -> Array:
    """Play an episode for each seed, in a window or into a film; return the returns [episodes, players]. See `play`."""
    if fps is not None and not fps > 0:
        raise ConfigError(f"fps must be greater than 0, got {fps}")
    with contextlib.ExitStack() as opened:
        table = _Table(source, spec, ("human", "ansi") if target is None else ("rgb_array",))
        rate = fps or float(table.metadata.get("render_fps") or (2 if spec.turn_based else 10))
        if target is None:
            show: Show = _Window(rate, draws=table.render_mode == "human")
        else:
            opened.enter_context(_without_window())
            show = opened.enter_context(_film(target, rate))
        opened.enter_context(closed(table, source.name))
        return np.array([table.episode(actors, show, seed) for seed in seeds])


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

    def episode(self, actors: Deciding, show: Show, seed: int) -> Array:
        """Play one episode; return the players' undiscounted returns, [P] float64."""
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
                step.ended[0] = ended = self.adapter.step(actors.actions, step, 0)
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
            return ADAPTERS[api_of(env)](env, self.spec)

    @contextmanager
    def _told(self, where: str) -> Iterator[None]:
        try:
            yield
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


class _Window:
    """Shows each frame for 1 / fps seconds, and prints frames that are text.

    draws: whether Gymnasium environments draw by themselves, as in render mode "human".
    """

    def __init__(self, fps: float, *, draws: bool) -> None:
        self.seconds, self.due, self.draws = 1.0 / fps, 0.0, draws

    def __call__(self, adapter: Adapter, ended: bool) -> None:
        shown = None if self.draws and api_of(adapter.env) == "gymnasium" else adapter.render()
        if isinstance(shown, str):
            print(shown, flush=True)
        time.sleep(max(0.0, self.due - time.perf_counter()))
        self.due = time.perf_counter() + (HOLD if ended else self.seconds)


@contextmanager
def _film(path: Path, fps: float) -> Iterator[Show]:
    """Yield a function that adds the current frame to the film; the file appears at `path` when it is complete."""
    import imageio.v2

    with replacing(path) as beside:
        gif = path.suffix.lower() == ".gif"
        options: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if gif else {"fps": fps, "macro_block_size": 1}
        writer = imageio.v2.get_writer(beside, mode="I", **options)

        def show(adapter: Adapter, ended: bool) -> None:
            picture = _picture(adapter.render())
            for _ in range(max(1, round(HOLD * fps)) if ended else 1):
                writer.append_data(picture)

        with writer:
            yield show


def _picture(frame: Any) -> Array:
    """Return a frame cut to even height and width, as video codecs need; raises EnvError for other arrays."""
    picture = np.asarray(frame)
    if picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.dtype != np.uint8:
        raise EnvError(
            f"render() returned {type(frame).__name__} of shape {picture.shape} and dtype {picture.dtype}; a film "
            "needs pictures of shape [height, width, 3], uint8"
        )
    height, width = (side - side % 2 for side in picture.shape[:2])
    return np.ascontiguousarray(picture[:height, :width, :3])


@contextmanager
def _without_window() -> Iterator[None]:
    """Let pygame render without a display, unless the user has set SDL_VIDEODRIVER."""
    chosen = os.environ.get("SDL_VIDEODRIVER")
    os.environ["SDL_VIDEODRIVER"] = chosen or "dummy"
    try:
        yield
    finally:
        if chosen is None:
            del os.environ["SDL_VIDEODRIVER"]
