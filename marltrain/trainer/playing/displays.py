"""How `play` shows an episode: a window, a film, single pictures. `text_displays` shows it as text."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, EnvError
from marltrain.core.extras import required
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.core.spec import Step
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.registry import api_of
from marltrain.storage.files import replacing, writing

MP4 = ".mp4"
FILMS = (".gif", MP4)
"""Names of films end in one of these."""
HOLD = 1.0
"""Seconds for which the last frame of an episode is shown."""
INVISIBLE = ("dummy", "offscreen")
"""Video drivers of SDL that show nothing."""


@dataclass(frozen=True)
class Scene:
    """An environment after its reset or an env step.

    actions: those of the env step; None after the reset.  acted: players that took one, indices in spec order.
    moves: env steps of the episode so far.
    """

    adapter: Adapter
    step: Step
    actions: tuple[Array, ...] | None
    acted: tuple[int, ...]
    moves: int
    ended: bool


Show = Callable[[Scene], None]
Write = Callable[[Array, bool], None]
"""Takes a picture [height, width, 3] uint8 and whether the episode ended."""


class Window:
    """Shows each frame for 1 / fps seconds, and prints frames that are text."""

    def __init__(self, fps: float) -> None:
        """Start without a frame."""
        self.seconds, self.due = 1.0 / fps, 0.0
        if _invisible_window():  # of an earlier call: some environments leave it open
            sys.modules["pygame"].display.quit()

    def __call__(self, scene: Scene) -> None:
        """Show the current frame; raises ConfigError if the environment draws into a window that is on no display."""
        env = scene.adapter.env
        shown = None if api_of(env) == "gymnasium" else scene.adapter.render()  # Gymnasium's draw by themselves
        if isinstance(shown, str):
            print(shown, flush=True)
        if _invisible_window():
            raise ConfigError(f"play: the window is on no display. {without_display()}")
        time.sleep(max(0.0, self.due - time.perf_counter()))
        self.due = time.perf_counter() + (HOLD if scene.ended else self.seconds)


def _invisible_window() -> bool:
    """Return whether pygame's window is on no display."""
    pygame = sys.modules.get("pygame")
    if pygame is None or not pygame.display.get_init():
        return False
    return pygame.display.get_surface() is not None and pygame.display.get_driver() in INVISIBLE


def has_display() -> bool:
    """Return whether windows appear on a display, as far as the environment variables tell."""
    driver = os.environ.get("SDL_VIDEODRIVER", "")
    if driver or sys.platform in ("darwin", "win32"):
        return driver not in INVISIBLE
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def check_display() -> None:
    """Raise ConfigError if a person's window would be on no display: its keys could not be pressed."""
    if not has_display():
        raise ConfigError(
            "human: a person plays by keys in a window, and there is no display (DISPLAY and WAYLAND_DISPLAY are not "
            f"set, or SDL_VIDEODRIVER is {' or '.join(INVISIBLE)}). {without_display()}"
        )


def without_display() -> str:
    """Return a sentence on what to do without a display."""
    return written(
        "Without a display, play in the terminal with text=True, or film the agents with out='game.gif'",
        "Without a display, play in the terminal with --text, or film the agents with --out game.gif",
    )


def pictures(draw: Callable[[Scene], Array], writers: Sequence[Write], delay: float) -> Show:
    """Return a function that passes a picture of each scene to all writers; delay: seconds of a pause after it."""

    def show(scene: Scene) -> None:
        picture = draw(scene)
        for write in writers:
            write(picture, scene.ended)
        time.sleep(delay)

    return show


def rendered(scene: Scene) -> Array:
    """Return the picture that an environment renders, without its alpha channel; raises EnvError for other arrays."""
    frame = scene.adapter.render()
    picture = np.asarray(frame)
    if picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.dtype != np.uint8:
        raise EnvError(
            f"render() returned {type(frame).__name__} of shape {picture.shape} and dtype {picture.dtype}; a film "
            "needs pictures of shape [height, width, 3], uint8"
        )
    return picture[..., :3]


def check_writer(suffix: str) -> None:
    """Raise ConfigError if films with this suffix, one of FILMS, need a package that is not installed."""
    if suffix.lower() == MP4:
        required("imageio_ffmpeg", "mp4", f"a film in {MP4}")


@contextmanager
def film(path: Path, fps: float) -> Iterator[Write]:
    """Yield a function that adds a picture to the film; the file appears at `path` when it is complete."""
    import imageio.v2

    with replacing(path) as beside:
        gif = path.suffix.lower() == ".gif"
        options: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if gif else {"fps": fps, "macro_block_size": 1}
        writer = imageio.v2.get_writer(beside, mode="I", **options)

        def write(picture: Array, ended: bool) -> None:
            height, width = (side - side % 2 for side in picture.shape[:2])  # even, as video codecs need
            even = np.ascontiguousarray(picture[:height, :width])
            for _ in range(max(1, round(HOLD * fps)) if ended else 1):
                writer.append_data(even)

        with writer:
            yield write


class Frames:
    """Writes every n-th picture of each episode, and its last, as "<episode>-<env step>.png" into a folder."""

    def __init__(self, folder: Path, every: int) -> None:
        """Create the folder; raises SaveError if it cannot be made."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.every = folder, every
        self.episode = self.step = 0

    def __call__(self, picture: Array, ended: bool) -> None:
        """Write the picture if it is due."""
        import imageio.v3

        if ended or self.step % self.every == 0:
            path = self.folder / f"{self.episode:03}-{self.step:06}.png"
            with writing(path):
                imageio.v3.imwrite(path, picture)
        self.episode, self.step = (self.episode + 1, 0) if ended else (self.episode, self.step + 1)


@contextmanager
def without_window() -> Iterator[None]:
    """Let pygame render without a display, unless the user has set SDL_VIDEODRIVER.

    The driver "dummy" would do everywhere, but with it highway-env draws nothing, so that its pictures are black.
    """
    chosen = os.environ.get("SDL_VIDEODRIVER")
    os.environ["SDL_VIDEODRIVER"] = chosen or "offscreen,dummy"
    try:
        yield
    finally:
        if chosen is None:
            del os.environ["SDL_VIDEODRIVER"]
