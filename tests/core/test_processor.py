"""The processor, and the limits of containers as Linux writes them."""

import os

import pytest

from marltrain.core import processor as module
from marltrain.core.processor import processor, quota, usable_cores


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a function that writes files of control groups, and the groups of this process."""
    monkeypatch.setattr(module, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(module, "OWN_GROUP", tmp_path / "own")

    def write(own, **files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "groups" / name.replace("__", "/").replace("_of_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_a_processor_has_a_name_and_cores():
    assert processor()
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_a_quota_of_version_2(groups):
    groups("0::/\n", cpu_of_max="150000 100000\n")
    assert quota() == 1.5


def test_no_quota(groups):
    assert quota() is None
    groups("0::/\n", cpu_of_max="max 100000\n")
    assert quota() is None
    groups("1:cpu:/\n", cpu__cpu_of_cfs_quota_us="-1\n", cpu__cpu_of_cfs_period_us="100000\n")
    assert quota() is None


def test_the_least_of_the_groups_around_counts(groups):
    """By 2.5 cores for the own group, and 2 for the one around it."""
    groups("0::/pod/box\n", pod__box__cpu_of_max="250000 100000", pod__cpu_of_max="100000 50000")
    assert quota() == 2.0


def test_a_quota_of_version_1(groups):
    """Other controllers than that of the processor do not count."""
    groups(
        "4:cpu,cpuacct:/box\n3:cpuset:/\n2:memory:/box\n0::/\n",
        cpu__box__cpu_of_cfs_quota_us="75000\n", cpu__box__cpu_of_cfs_period_us="100000\n",
    )  # fmt: skip
    assert quota() == 0.75


def test_a_quota_that_cannot_be_read_is_none(groups):
    groups("0::/\n", cpu_of_max="100000\n")
    assert quota() is None
    groups("0::/\n", cpu_of_max="100000 0\n")
    assert quota() is None
