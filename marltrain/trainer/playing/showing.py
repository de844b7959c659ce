"""How an environment can be shown here: in a window, as a film, or as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marltrain.core.errors import MarlTrainError
from marltrain.envs.python.probe import closed, probe
from marltrain.envs.registry import resolve
from marltrain.envs.twins import with_pictures
from marltrain.trainer.playing.displays import has_display, without_window
from marltrain.trainer.playing.stage import Stage

WINDOW, FILMED, TEXT = "window", "film", "text"


def shown_best(env: Any, env_args: Mapping[str, Any]) -> str:
    """Return how `play` can show an environment here: WINDOW or FILMED if it draws pictures, or else TEXT.

    Every environment can be shown as text. One picture is drawn to find out, without a window; an environment that
    fails to draw it is shown as text. A window is named only where there is a display.
    """
    try:
        source = with_pictures(resolve(env, env_args))
        with without_window():
            stage = Stage(source, probe(source), "pictures")
            with closed(stage, source.name):
                if stage.in_text:
                    return TEXT
                stage.first_picture()
                modes = stage.metadata.get("render_modes") or ()
    except MarlTrainError:
        return TEXT
    return WINDOW if has_display() and "human" in modes else FILMED
