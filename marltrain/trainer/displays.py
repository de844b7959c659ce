"""How `play` shows an episode: a window, text, a film, single pictures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.envs.python.adapter import Adapter
from marltrain.envs.registry import api_of
from marltrain.errors import EnvError
from marltrain.extras import required
from marltrain.files import replacing, writing
from marltrain.layout import Array

MP4 = ".mp4"
FILMS = (".gif", MP4)
"""Names of films end in one of these."""
HOLD = 1.0
"""Seconds for which the last frame of an episode is shown."""
Show = Callable[[Adapter, bool], None]
Write = Callable[[Array, bool], None]
"""Takes a picture [height, width, 3] uint8 and whether the episode ended."""


class Window:
    """Shows each frame for 1 / fps seconds, and prints frames that are text.

    draws: whether Gymnasium environments draw by themselves, as in render mode "human".
    """

    def __init__(self, fps: float, *, draws: bool) -> None:
        """Start without a frame."""
        self.seconds, self.due, self.draws = 1.0 / fps, 0.0, draws

    def __call__(self, adapter: Adapter, ended: bool) -> None:
        """Show the current frame."""
        shown = None if self.draws and api_of(adapter.env) == "gymnasium" else adapter.render()
        if isinstance(shown, str):
            print(shown, flush=True)
        time.sleep(max(0.0, self.due - time.perf_counter()))
        self.due = time.perf_counter() + (HOLD if ended else self.seconds)


def pictures(writers: Sequence[Write], delay: float) -> Show:
    """Return a function that renders a picture and passes it to all writers; delay: seconds of a pause after it."""

    def show(adapter: Adapter, ended: bool) -> None:
        picture = _picture(adapter.render())
        for write in writers:
            write(picture, ended)
        time.sleep(delay)

    return show


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


def _picture(frame: Any) -> Array:
    """Return a frame without its alpha channel; raises EnvError for other arrays."""
    picture = np.asarray(frame)
    if picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.dtype != np.uint8:
        raise EnvError(
            f"render() returned {type(frame).__name__} of shape {picture.shape} and dtype {picture.dtype}; a film "
            "needs pictures of shape [height, width, 3], uint8"
        )
    return picture[..., :3]


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
