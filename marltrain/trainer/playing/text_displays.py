"""Episodes as text: actions, rewards, and the text that an environment draws; in a terminal, or as pictures."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import in_line
from marltrain.core.layout import Array
from marltrain.envs.native.objects import native_object
from marltrain.trainer.playing.displays import HOLD, Scene

COLUMNS, ROWS = 80, 24
"""Characters of a line, and lines of a picture of text at least."""
FONT_SIZE, MARGIN = 16, 12
"""Of a picture of text, in pixels."""
INK, PAPER = (230, 230, 230), (24, 24, 27)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What terminals take as colors and movements of the cursor."""


class SceneText:
    """Writes scenes as text.

    renders: whether the environment's `render` returns text (render mode "ansi").
    viewers: names of the people that read it, from whom secrets of other players are kept until the episode ends;
    () for spectators, who see everything.
    draws: whether the environment drew something in the last scene.
    """

    def __init__(self, *, renders: bool, viewers: Sequence[str] = ()) -> None:
        """Begin without a scene."""
        self.renders, self.viewers, self.draws = renders, tuple(viewers), False

    def __call__(self, scene: Scene) -> str:
        """Return the actions and rewards of the env step, and the text that the environment draws."""
        drawn = self._drawn(scene)
        self.draws = bool(drawn)
        if scene.actions is None:
            return drawn or "start"
        return f"\n{_told(scene)}\n{drawn}" if drawn else _told(scene)

    def _drawn(self, scene: Scene) -> str:
        native = native_object(scene.adapter.env)
        if native is not None:
            return native.text(self.viewers if self.viewers and not scene.ended else None)
        shown = scene.adapter.render() if self.renders else None
        return shown.rstrip("\n") if isinstance(shown, str) else ""


def _told(scene: Scene) -> str:
    """Return the actions and the rewards other than 0 of an env step, in lines of COLUMNS characters."""
    native, names = native_object(scene.adapter.env), scene.adapter.spec.names
    called = () if native is None else native.action_names
    taken = []
    for p in scene.acted:
        action = scene.adapter.action_of(p, scene.actions or (), 0)
        taken.append(f"{in_line(names[p])} {_action(action, called)}")
    rewards = [f"{in_line(names[p])} {reward:.4g}" for p, reward in enumerate(scene.step.reward[:, 0]) if reward]
    text = f"step {scene.moves}: {', '.join(taken)}" + (f"; rewards: {', '.join(rewards)}" if rewards else "")
    return textwrap.fill(text, COLUMNS - 1, subsequent_indent="  ")


def _action(action: Any, called: Sequence[str]) -> str:
    """Return an action as text; called: names of Discrete actions from 0, or ()."""
    if isinstance(action, int):
        return called[action] if action < len(called) else str(action)
    return f"[{' '.join(f'{value:.4g}' for value in np.asarray(action).reshape(-1))}]"


class Terminal:
    """Prints scenes as text; seconds: of a pause after each, HOLD at least after an episode's last; 0 for none."""

    def __init__(self, text: SceneText, seconds: float) -> None:
        """Take the writer of scenes."""
        self.text, self.seconds = text, seconds

    def __call__(self, scene: Scene) -> None:
        """Print a scene."""
        print(self.text(scene), flush=True)
        if self.seconds:
            time.sleep(max(HOLD, self.seconds) if scene.ended else self.seconds)


class TextPicture:
    """Draws scenes as pictures of light letters on a dark ground, all as large as that of the first scene.

    Of a text with more lines, as of an environment that draws none and only tells its actions, the last ones are shown.
    """

    def __init__(self, text: SceneText) -> None:
        """Take the writer of scenes."""
        from PIL import ImageFont

        self.text = text
        self.font = ImageFont.truetype(str(_font_file()), FONT_SIZE)
        self.lines: list[str] = []
        self.size: tuple[int, int] | None = None

    def __call__(self, scene: Scene) -> Array:
        """Return the picture of a scene, [height, width, 3] uint8."""
        from PIL import Image, ImageDraw

        lines = _ESCAPE.sub("", self.text(scene)).splitlines()
        self.lines = lines if self.text.draws or scene.moves == 0 else self.lines + lines
        line_height = round(FONT_SIZE * 1.3)
        if self.size is None:
            rows, columns = max(ROWS // 2, len(lines) + 3), max([COLUMNS, *map(len, lines)])
            width, height = columns * self.font.getlength("0"), rows * line_height
            self.size = 2 * round(width / 2) + 2 * MARGIN, 2 * round(height / 2) + 2 * MARGIN  # even, as films need
        self.lines = self.lines[-((self.size[1] - 2 * MARGIN) // line_height) :]
        picture = Image.new("RGB", self.size, PAPER)
        draw = ImageDraw.Draw(picture)
        for row, line in enumerate(self.lines):
            draw.text((MARGIN, MARGIN + row * line_height), line, INK, self.font)
        return np.asarray(picture)


def _font_file() -> Path:
    """Return the file of a font whose letters have equal widths."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
