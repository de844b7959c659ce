"""The sections about Python, the system, the processor and the memory that processes share."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from marltrain.core.processor import processor, quota, usable_cores
from marltrain.core.version import __version__
from marltrain.tools.doctor.processes import Answer
from marltrain.tools.doctor.report import EXTRA, Fact, Finding, Section
from marltrain.tools.doctor.requirements import PACKAGE, version_in
from marltrain.tools.doctor.writing import free, in_bytes

VECTORS = ("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "neon", "asimd", "sve")
"""Features of processors, by their names in LLVM, that compiled programs profit from."""
THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that set numbers of threads."""
SHARED = Path("/dev/shm")
DRIVER = Path("/proc/driver/nvidia/version")
"""File of a driver of NVIDIA on Linux."""
RAYS_LEAST = 80 * 2**20
"""Bytes of shared memory that the smallest object store of Ray takes."""


def installation() -> Section:
    """Return the section of marltrain, Python and the system."""
    folder = Path(__file__).parents[2]
    facts = [
        Fact(PACKAGE, __version__, f"{__version__} in {folder}"),
        Fact("python", platform.python_version(), f"{python()} in {sys.prefix}"),
        Fact("program", sys.executable),
        Fact("system", platform.platform()),
    ]
    return Section("installation", facts, _metadata(folder))


def python() -> str:
    """Return the implementation of Python and its version."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def _metadata(folder: Path) -> list[Finding]:
    """Return a finding where the installed metadata are of another version than the code that runs."""
    try:
        installed = version_in(metadata.distribution(PACKAGE))
    except metadata.PackageNotFoundError:  # a folder of sources: the section of packages tells it
        return []
    if installed == __version__:
        return []
    cause = f"the code in {folder} is version {__version__}, and pip has installed version {installed}"
    return [Finding(EXTRA, PACKAGE, cause, "install marltrain again, or remove the other folder from the path")]


def processor_section(numba: Answer, frameworks: Mapping[str, Answer]) -> Section:
    """Return the section of the processor, its features and the threads.

    numba: its facts.  frameworks: facts of those that are installed, by name.
    """
    cores, share = usable_cores(), quota()
    text = f"{cores} of {os.cpu_count()}" + (f", limited to the time of {share:g}" if share is not None else "")
    features = [name for name in VECTORS if name in numba.facts.get("features", ())]
    width = numba.facts.get("vector")
    threads = {name: answer.facts["threads"] for name, answer in frameworks.items() if "threads" in answer.facts}
    threads |= {"numba": numba.facts["threads"]} if "threads" in numba.facts else {}
    facts = [
        Fact("processor", processor()),
        Fact("cores", {"usable": cores, "all": os.cpu_count(), "quota": share}, text),
        Fact("features", features, ", ".join(features) or "unknown: Numba tells them"),
        Fact("vectors", width, f"{width} numbers (float32) in marltrain's compiled products" if width else "unknown"),
        *(Fact(name, os.environ.get(name), os.environ.get(name, "not set")) for name in THREADS),
        Fact("threads", threads, ", ".join(f"{name} {number or 'as it decides'}" for name, number in threads.items())),
    ]
    return Section("processor", facts, _too_many(threads, cores if share is None else min(cores, max(1, round(share)))))


def _too_many(threads: Mapping[str, int], cores: int) -> list[Finding]:
    """Return a finding where PyTorch would start more threads than this process may use cores."""
    number = threads.get("torch", 0)
    if number <= cores:
        return []
    cause = f"torch computes on {number} threads, and this process may use {cores} cores: threads wait for each other"
    return [Finding(EXTRA, "threads", cause, f"set OMP_NUM_THREADS={cores}, or 1 for small networks")]


def shared_memory(shared: Answer, *, ray: bool) -> Section:
    """Return the section of the memory that processes share.  shared: answer of a child.  ray: whether Ray is there."""
    there = SHARED.is_dir()
    room = free(SHARED) if there else None
    facts = [
        Fact("folder", str(SHARED) if there else None),
        Fact("free", room, in_bytes(room)),
        Fact("workers", not shared.failure, shared.failure or "can share memory"),
    ]
    findings = []
    if shared.failure:
        remedy = f'use vector="dummy", or give the system a {SHARED} that this user may write'
        findings.append(Finding(EXTRA, "workers", f"processes cannot share memory ({shared.failure})", remedy))
    if ray and room is not None and room < RAYS_LEAST:
        cause = f"{SHARED} has {in_bytes(room)} free, and Ray's smallest object store takes {in_bytes(RAYS_LEAST)}"
        findings.append(Finding(EXTRA, "shared memory", cause, "docker run --shm-size=2g, or free some of it"))
    return Section("shared memory", facts, findings)


def devices(frameworks: Mapping[str, Answer]) -> Section:
    """Return the section of the frameworks' devices."""
    facts, findings = [], []
    for name, answer in frameworks.items():
        if answer.failure:
            facts.append(Fact(name, None, "cannot be imported"))
            continue
        gpus = answer.facts.get("gpus", [])
        texts = [_gpu(gpu) for gpu in gpus]
        built = f" (built for CUDA {answer.facts['cuda']})" if answer.facts.get("cuda") else ""
        facts.append(Fact(name, {"cpu": True, "gpus": gpus}, ", ".join(["cpu", *texts]) + built))
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if not gpus and hidden is None and DRIVER.exists():
            cause = f"this machine has a driver of NVIDIA, and {name} finds no GPU{built or ' (built without CUDA)'}"
            remedy = f"install a build of {name} for the driver's version of CUDA"
            findings.append(Finding(EXTRA, f"GPU of {name}", cause, remedy))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    facts.append(Fact("CUDA_VISIBLE_DEVICES", hidden, "not set" if hidden is None else repr(hidden)))
    return Section("devices", facts, findings)


def _gpu(gpu: Mapping[str, Any]) -> str:
    details = [gpu["device"]] if gpu["device"] else []
    details += [in_bytes(gpu["memory"])] if gpu["memory"] else []
    return f"{gpu['name']} ({', '.join(details)})" if details else str(gpu["name"])


def window() -> Section:
    """Return the section of the display, on which windows of games appear."""
    shown = {name: os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")}
    there = not sys.platform.startswith("linux") or bool(shown["DISPLAY"] or shown["WAYLAND_DISPLAY"])
    text = "there is one" if there else "none: `marltrain play RUN --out film.gif` writes a film"
    facts = [Fact(name, value, "not set" if value is None else value) for name, value in shown.items()]
    return Section("window", [Fact("display", there, text), *facts])
