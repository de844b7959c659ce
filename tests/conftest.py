"""What holds for every test: one thread, the CPU, no window, Ctrl-C as usual, and a working directory of its own."""

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ON_A_GPU = "MARLTRAIN_GPU"
"""Environment variable with which tests see the GPUs of the machine; all others compute on the CPU."""

# Before anything imports torch, numba, pygame or matplotlib. Workers and other child processes inherit them.
os.environ.update(
    OMP_NUM_THREADS="1",
    TF_CPP_MIN_LOG_LEVEL="3",
    MPLBACKEND="Agg",
    SDL_VIDEODRIVER="dummy",
    PYGAME_HIDE_SUPPORT_PROMPT="1",
)
if not os.environ.get(ON_A_GPU):  # `make gpu-test` sets it
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = Path(__file__).parents[1]
LONGEST = ROOT / "tests" / "whole"
"""Folder of the longest tests."""
DRAWING = {
    "tests/house/test_docs.py",
    "tests/trainer/reporting/test_figures.py",
    "tests/trainer/reporting/test_plots.py",
    "tests/trainer/saving/test_given_back.py",
    "tests/trainer/saving/test_interrupts.py",
    "tests/trainer/saving/test_run_folder.py",
    "tests/trainer/test_decentralized.py",
    "tests/whole/test_full_disk.py",
    "tests/whole/test_pictures.py",
}
"""Files of tests whose runs draw their pictures."""
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

if find_spec("triton"):  # TensorFlow 2.21 and then Triton 3.8 in one process end it by a segmentation fault
    import_module("triton")

import pytest  # noqa: E402

from tests.absent import pytest_make_collect_report, pytest_runtest_makereport  # noqa: E402, F401
from tests.tiers import SHORT  # noqa: E402

# A shell starts what it runs in the background with Ctrl-C ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: a quarter of their imports' time is the collector's


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among the modules and tests, which live until the end."""
    gc.freeze()
    gc.set_threshold(20_000)  # graphs of functions and syntax trees have many objects
    gc.enable()


def uses_ray(item: pytest.Item) -> bool:
    """Return whether a test uses the cluster of this process."""
    return isinstance(item, pytest.Function) and "ray_cluster" in item.fixturenames


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the short tier, for `pytest -m short tests`; start with those of Ray, then the longest ones.

    Of several processes, the first one then runs all tests of Ray: each process would start a cluster of its own. A
    process gives no test away once it has two left: long ones at the end would leave the other processes idle.
    """
    items.sort(key=lambda item: (not uses_ray(item), LONGEST not in item.path.parents))
    short = {ROOT / entry for entry in SHORT}
    files = {path for path in {item.path for item in items} if not short.isdisjoint((path, *path.parents))}
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.short)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, so that `runs/` of a test never lands in the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a tenth of the time of short runs; power does not fail here


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures of runs, except in tests of them: that takes longer than training for a few steps."""
    if request.path.relative_to(ROOT).as_posix() not in DRAWING:
        from tests.trainer.running import without_pictures

        without_pictures(monkeypatch)


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the module `ray`, connected to one local cluster for all tests of this process."""
    import ray

    from marltrain.processes.ray_token import ensure_token_file

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file that an earlier session of tests has left readable
        ensure_token_file()  # Ray would write it so that all users can read it
    os.chdir(tmp_path_factory.mktemp("ray"))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for tries_left in (2, 1, 0):  # Ray gives a start up after 30 s, which a loaded machine may need
        try:
            ray.init(
                "local", num_cpus=3, resources={"rare": 1}, include_dashboard=False, log_to_driver=False,
                object_store_memory=100 * 2**20, _system_config={"worker_niceness": 0},
            )  # fmt: skip
            break
        except Exception as error:
            if not tries_left or "timed out during startup" not in str(error):
                raise
    yield ray
    ray.shutdown()
