import os
import sys

import pytest

from marltrain.tools.doctor import machine
from marltrain.tools.doctor.machine import devices, installation, processor_section, shared_memory, window
from marltrain.tools.doctor.processes import Answer
from tests.tools.doctor.fakes import distribution

GPU = {"name": "cuda:0", "device": "H100", "memory": 80 * 2**30}


def values(section):
    return {fact.name: fact.value for fact in section.facts}


def texts(section):
    return {fact.name: str(fact) for fact in section.facts}


def causes(section):
    return [finding.cause for finding in section.findings]


def test_code_of_another_version_than_the_installed_one(tmp_path, monkeypatch):
    assert not installation().findings
    distribution(tmp_path, "marltrain", "0.0.9")
    monkeypatch.syspath_prepend(tmp_path)
    (cause,) = causes(installation())
    assert "is version 0.1.0, and pip has installed version 0.0.9" in cause


def test_the_processor_and_its_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "quota", lambda: None)
    numba = Answer({"threads": 2, "vector": 8, "features": ["64bit", "avx", "avx2", "fma", "rdrnd"]})
    found = processor_section(numba, {"torch": Answer({"threads": 3}), "tensorflow": Answer({"threads": 0})})
    assert values(found)["features"] == ["avx", "avx2", "fma"] and values(found)["vectors"] == 8
    assert values(found)["threads"] == {"torch": 3, "tensorflow": 0, "numba": 2}
    assert texts(found)["threads"] == "torch 3, tensorflow as it decides, numba 2"
    assert (values(found)["OMP_NUM_THREADS"], texts(found)["MKL_NUM_THREADS"]) == ("3", "not set")
    assert texts(found)["cores"] == f"4 of {os.cpu_count()}" and not found.findings


@pytest.mark.parametrize(("share", "number", "cores"), [(None, 5, 4), (1.5, 4, 2), (0.2, 2, 1), (8.0, 5, 4)])
def test_more_threads_than_a_container_may_use(monkeypatch, share, number, cores):
    """4 cores are seen. A share of 1.5 is 2 cores, one of 0.2 is 1, and one of 8 limits nothing."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "quota", lambda: share)
    found = processor_section(Answer({}), {"torch": Answer({"threads": number})})
    (finding,) = found.findings
    assert f"{number} threads, and this process may use {cores} cores" in finding.cause
    assert finding.remedy.startswith(f"set OMP_NUM_THREADS={cores},")
    assert not processor_section(Answer({}), {"torch": Answer({"threads": cores})}).findings


def test_without_numba_and_frameworks():
    found = processor_section(Answer({}, "ImportError"), {"torch": Answer({}, "ImportError")})
    assert (values(found)["features"], values(found)["vectors"], values(found)["threads"]) == ([], None, {})


def test_devices(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "driver")
    frameworks = {"torch": Answer({"gpus": [GPU], "cuda": "12.8"}), "tensorflow": Answer({}, "ImportError")}
    found = devices(frameworks)
    assert texts(found)["torch"] == "cpu, cuda:0 (H100, 80.0 GiB) (built for CUDA 12.8)"
    assert texts(found)["tensorflow"] == "cannot be imported"
    without = {"torch": Answer({"gpus": [], "cuda": None})}
    assert texts(devices(without))["torch"] == "cpu" and not devices(without).findings
    (tmp_path / "driver").touch()
    assert causes(devices(frameworks)) == []
    assert causes(devices(without)) == [
        "this machine has a driver of NVIDIA, and torch finds no GPU (built without CUDA)"
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not devices(without).findings and texts(devices(without))["CUDA_VISIBLE_DEVICES"] == "''"


@pytest.mark.parametrize(("room", "ray", "count"), [(64, True, 1), (64, False, 0), (80, True, 0)])
def test_shared_memory_for_ray(tmp_path, monkeypatch, room, ray, count):
    """Docker gives 64 MiB; the smallest object store takes 80."""
    monkeypatch.setattr(machine, "SHARED", tmp_path)
    monkeypatch.setattr(machine, "free", lambda folder: room * 2**20)
    found = shared_memory(Answer({"bytes": 1}), ray=ray)
    assert len(found.findings) == count and values(found)["workers"] is True


def test_processes_that_cannot_share_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "SHARED", tmp_path / "none")
    found = shared_memory(Answer({}, "OSError: Function not implemented"), ray=True)
    (finding,) = found.findings
    assert "Function not implemented" in finding.cause and 'vector="dummy"' in finding.remedy
    assert values(found) == {"folder": None, "free": None, "workers": False}


@pytest.mark.parametrize(("name", "there"), [("DISPLAY", True), ("WAYLAND_DISPLAY", True), ("NOTHING", False)])
def test_a_display(monkeypatch, name, there):
    monkeypatch.setattr(sys, "platform", "linux")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, ":1")
    assert values(window())["display"] is there
    monkeypatch.setattr(sys, "platform", "darwin")
    assert values(window())["display"] is True
