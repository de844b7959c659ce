"""Tests that need an optional package which is not installed, such as TensorFlow or Ray, are skipped with the reason.

A test is skipped if it ended because a package of `OPTIONAL` cannot be found. `make test` installs all of them, and
skips nothing.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib.util import find_spec

import pytest

OPTIONAL = (
    "Box2D", "ale_py", "chess", "cv2", "imageio_ffmpeg", "keras", "lbforaging", "minari", "mpe2", "mujoco", "onnx",
    "onnxruntime", "onnxscript", "optuna", "pymunk", "pyspiel", "ray", "rlcard", "rliable", "rware", "scipy",
    "tensorflow",
)  # fmt: skip
"""The packages of the extras in pyproject.toml, by the names of their modules."""
THIRD_PARTY = (
    "aenum", "gym", "gymnasium_robotics", "highway_env", "jaxmarl", "magent2", "minigrid", "mo_gymnasium",
    "multi_agent_ale_py", "multigrid", "shimmy", "supersuit", "tinyscaler", "vmas",
)  # fmt: skip
"""The packages of `make third-party`; only the long tier needs them."""
ABSENT = tuple(name for name in (*OPTIONAL, *THIRD_PARTY) if find_spec(name) is None)


def missing(error: BaseException) -> str | None:
    """Return the absent package that an error, or one of its causes, names; None if it has another reason."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        text = f"{found}"
        for name in ABSENT:
            if re.search(rf"No module named '{name}[.']|\b{name}\b.{{0,60}} is not installed", text, re.IGNORECASE):
                return name
        found = found.__cause__ or found.__context__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a test that needs an absent package as skipped."""
    report = yield
    name = None if call.excinfo is None or report.outcome != "failed" else missing(call.excinfo.value)
    if name is not None:
        report.outcome = "skipped"
        report.longrepr = (report.location[0], (report.location[1] or 0) + 1, f"Skipped: {name} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report a file that imports an absent package as skipped."""
    report = yield
    text = str(report.longrepr) if report.outcome == "failed" else ""
    name = missing(ImportError(text)) if text else None
    if name is not None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {name} is not installed")
    return report
