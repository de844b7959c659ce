"""The environment whose episodes are shown, and the loop that shows them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from marltrain.core.errors import ConfigError, EnvError, MarlTrainError, SpecError, error_text
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.layers import metadata_of
from marltrain.envs.native.objects import native_object, render_modes_of
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.contract import Contract
from marltrain.envs.python.probe import adapter_of, closed
from marltrain.envs.registry import Source
from marltrain.trainer.playing.displays import (
    Frames,
    Scene,
    Show,
    Window,
    Write,
    film,
    pictures,
    rendered,
    without_display,
    without_window,
)
from marltrain.trainer.playing.human_player import Person, PlayEndedError
from marltrain.trainer.playing.text_displays import SceneText, Terminal, TextPicture

TEXT = "ansi"
"""Render mode in which `render` returns text."""


class Deciding(Protocol):
    """What plays the shown episodes: `decide` writes the actions for a Step of one environment into `actions`."""

    actions: tuple[Array, ...]

    def decide(self, step: Step) -> Any:
        """Write the next actions."""


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
    text: bool = False,
) -> Array:
    """Play an episode for each seed, in a window or into files; return the returns [episodes, players]. See `play`.

    people: those among the actors.  text: show text, also of an environment that has pictures.
    """
    if fps is not None and not fps > 0:
        raise ConfigError(f"fps must be greater than 0, got {fps}")
    in_files = target is not None or frames is not None
    with contextlib.ExitStack() as opened:
        if in_files:
            opened.enter_context(without_window())
        stage = Stage(source, spec, "text" if text else "pictures" if in_files else "window")
        opened.enter_context(closed(stage, source.name))
        words = SceneText(renders=stage.render_mode == TEXT, viewers=[person.name for person in people])
        for person in people:
            person.begin(console=stage.in_text, observes=not stage.draws_text, called=stage.action_names)
        given = 1 / delay if delay else fps
        rate = given or float(stage.metadata.get("render_fps") or (2 if spec.turn_based else 10))
        if in_files:
            writers: list[Write] = [] if target is None else [opened.enter_context(film(target, rate))]
            writers += [] if frames is None else [Frames(frames, every)]
            draw = TextPicture(words) if stage.in_text else rendered
            show = pictures(draw, writers, 0.0 if target is not None or delay is None else delay)
        elif stage.in_text:  # a person sets the pace, and a file is not watched
            show = Terminal(words, 1 / rate if given or (sys.stdout.isatty() and not people) else 0.0)
        else:
            show = Window(rate)
        returns = []
        with contextlib.suppress(PlayEndedError):
            for seed in seeds:
                returns.append(stage.episode(actors, show, seed, max_steps))
        return np.array(returns).reshape(-1, len(spec.players))


class Stage:
    """The environment that is shown; every episode uses a new object, since a reset may leave state behind.

    render_mode: that of its objects; None if it is shown as text and does not render any.
    in_text: whether it is shown as text.
    """

    MODES: ClassVar[Mapping[str, tuple[str, ...]]] = {"window": ("human", TEXT), "pictures": ("rgb_array", TEXT)}
    """Render modes for each kind of display besides "text", the preferred one first."""

    def __init__(self, source: Source, spec: EnvSpec, display: str) -> None:
        """Build the environment for a display: "text" or a key of MODES; raises EnvError if it does not support it."""
        self.source, self.spec = source, spec
        self.contract, self.step = Contract(spec), Step.empty(spec, 1)
        self.used, self.in_text = False, display == "text"
        self.render_mode: str | None = None
        if self.in_text:
            self.adapter = self._build()
            if self._native is None and TEXT in (self.metadata.get("render_modes") or ()):
                self.close()
                self.render_mode = TEXT
                self.adapter = self._build()
            return
        known: Any = None if source.game is None else render_modes_of(source.game)
        for mode in self.MODES[display]:
            if source.game is not None and mode not in known:
                continue
            self.render_mode = mode
            self.adapter = self._build()
            known = self.metadata.get("render_modes")
            if known is None or mode in known:
                self.in_text = mode == TEXT
                return
            self.close()
        wanted = " or ".join(map(repr, self.MODES[display]))
        raise EnvError(
            f"environment {source.name!r} has no render mode {wanted}; it has {', '.join(known) or 'none'}. "
            f"{_remedy(known)}"
        )

    @property
    def draws_text(self) -> bool:
        """Whether the environment draws its states as text."""
        return self.render_mode == TEXT or (self._native is not None and self._native.draws_text)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions of a native game; () without names."""
        return () if self._native is None else self._native.action_names

    @property
    def _native(self) -> Any:
        return native_object(self.adapter.env)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the environment."""
        return metadata_of(self.adapter.env)

    def episode(self, actors: Deciding, show: Show, seed: int, max_steps: int | None) -> Array:
        """Play one episode, at most `max_steps` env steps; return the undiscounted returns, [P] float64."""
        if self.used:
            self.close()
            self.adapter = self._build()
        self.used, step = True, self.step
        with self._told(f"seed {seed}, at its start"):
            self.adapter.reset(seed, step, 0)
            show(Scene(self.adapter, step, None, (), 0, False))
        returns, ended, moves = step.start_reward[:, 0].astype(np.float64), False, 0
        while not ended:
            actors.decide(step)
            if fault := self.contract.sent(actors.actions, step):
                raise EnvError(f"environment {self.source.name!r} (seed {seed}), step {moves}: {fault.message}")
            acted = tuple(p for p, (group, row) in enumerate(self.spec.place) if step.turn[group][row, 0])
            step.reward[...] = 0
            step.terminated[...] = step.truncated[...] = False
            with self._told(f"seed {seed}, step {moves}"):
                ended = self.adapter.step(actors.actions, step, 0) or moves + 1 == max_steps
                step.ended[0] = ended
                moves += 1
                show(Scene(self.adapter, step, actors.actions, acted, moves, ended))
            returns += step.reward[:, 0]
        return returns

    def first_picture(self) -> Array:
        """Return the picture of the start of an episode, [height, width, 3] uint8; raises EnvError without one."""
        self.used = True
        with self._told("at its start"):
            self.adapter.reset(0, self.step, 0)
            return rendered(Scene(self.adapter, self.step, None, (), 0, False))

    def close(self) -> None:
        """Close the environment."""
        self.adapter.close()

    def _build(self) -> Adapter:
        with self._told(f"built with render_mode={self.render_mode!r}"), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", ".*render_mode=.* that is not in the possible"
            )  # Gymnasium's; we check it
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
            hint = f". {without_display()}" if self.render_mode == "human" else ""
            raise EnvError(f"environment {self.source.name!r}, {where}: {error_text(error)}{hint}") from error


def _remedy(known: Sequence[str]) -> str:
    """Return advice on how to show an environment that supports only the render modes `known`."""
    if "rgb_array" in known:
        return "Film it: " + written("out='game.gif'", "--out game.gif")
    text = f"{written('text=True', '--text')} shows its actions and rewards, also in a film"
    if "human" in known:
        return f"It cannot be filmed: leave {written('out=', '--out')} out to watch it, or {text}"
    return f"It draws nothing: {text}"
