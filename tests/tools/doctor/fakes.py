"""Fakes: distributions in a folder of the search path, and answers in place of child processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marltrain.tools.doctor.processes import Answer, Ask

TRAINED = {"game": "marltrain/CartPole-v1", "env_steps": 64, "gradient_steps": 16, "seconds": 1.5}


def distribution(folder: Path, name: str, version: str | None, *lines: str, **files: str) -> None:
    """Write the metadata of an installed distribution, and its files: module="code"."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    head = [f"Name: {name}", *([] if version is None else [f"Version: {version}"])]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *head, *lines, ""]))
    names = [f"{module}/__init__.py" for module in files]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in names))
    for path, code in zip(names, files.values(), strict=True):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(code)


def asking(failures: Mapping[str, str] | None = None, **facts: Mapping[str, Any]) -> Ask:
    """Return a function as `processes.ask`.

    failures: module, "trained" or "shared" -> the reason.  facts: the same names -> facts of an answer.
    """
    reasons = failures or {}
    usual: Mapping[str, Mapping[str, Any]] = {
        "trained": TRAINED, "shared": {"bytes": 1}, "imageio_ffmpeg": {"ffmpeg": "9", "program": "/f"}, **facts,
    }  # fmt: skip

    def ask(limit: float, function: str, *arguments: str) -> Answer:
        name = arguments[0] if arguments else function
        return Answer({}, reasons[name]) if name in reasons else Answer(dict(usual.get(name, {"version": "1.2.3"})))

    return ask
