"""The doctor: it asks child processes about packages and a short training, and looks at the system itself."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from marltrain.core.processor import usable_cores
from marltrain.core.version import __version__
from marltrain.tools.doctor.code import machine_code
from marltrain.tools.doctor.folders import folders
from marltrain.tools.doctor.machine import devices, installation, processor_section, python, shared_memory, window
from marltrain.tools.doctor.packages import Packages, core_section, extras_section, read_packages
from marltrain.tools.doctor.processes import Answer, Ask, ask
from marltrain.tools.doctor.ray import ray
from marltrain.tools.doctor.report import CORE, EXTRA, Fact, Finding, Report, Section

IMPORTING, TRAINING = 300.0, 600.0
"""Seconds within which an import, and the short training with its compilations, must end."""
AT_ONCE = 4
"""Maximum number of child processes at a time."""
FRAMEWORKS = "torch", "tensorflow"
IN_LINE = ("torch", "tensorflow", "numpy", "numba", "gymnasium", "pettingzoo", "tianshou", "ray")
"""Packages whose versions the line of the report names."""
UNINSTALLED = Answer({}, "not installed")
MP4 = ": films in .gif only"


def examine(ask: Ask = ask) -> Report:
    """Return the state of this installation; imports and a short training take seconds, up to a minute.

    ask: starts a child process; see `processes.ask`.
    """
    packages = read_packages()
    kept = machine_code()  # before a training repairs it
    modules = packages.modules()
    with ThreadPoolExecutor(min(AT_ONCE, usable_cores())) as pool:
        training = pool.submit(ask, TRAINING, "trained")
        sharing = pool.submit(ask, IMPORTING, "shared")
        imports = {module: pool.submit(ask, IMPORTING, "imported", module) for module in modules}
        answers = {module: answer.result() for module, answer in imports.items()}
        trained, shared = training.result(), sharing.result()
    frameworks = {name: answers[name] for name in FRAMEWORKS if name in answers}
    numba = answers.get("numba", UNINSTALLED)
    sections = [
        installation(), core_section(packages, answers), extras_section(packages, answers), devices(frameworks),
        processor_section(numba, frameworks), kept, folders(),
        shared_memory(shared, ray="ray" in answers), ray(packages, _versions(packages, answers).get("ray")),
        window(), _films(answers.get("imageio_ffmpeg", UNINSTALLED)), _training(trained),
    ]  # fmt: skip
    failure = Finding(CORE, "training", trained.failure, _remedy(sections)) if trained.failure else None
    return Report(sections, failure, _subjects(packages, answers))


def _training(trained: Answer) -> Section:
    """Return the section of the short training."""
    if trained.failure:
        return Section("training", [Fact("works", False, f"NO: {trained.failure}")])
    text = f"{trained.facts['env_steps']} env steps of {trained.facts['game']} in {trained.facts['seconds']} s"
    return Section("training", [Fact("works", True, f"yes: {text}"), Fact("seconds", trained.facts["seconds"])])


def _films(answer: Answer) -> Section:
    """Return the section of the program that writes films."""
    text = answer.failure or f"{answer.facts['ffmpeg']} in {answer.facts['program']}"
    return Section("films", [Fact("ffmpeg", answer.facts.get("ffmpeg"), text + MP4 * bool(answer.failure))])


def _remedy(sections: list[Section]) -> str:
    """Return the remedy for a training that failed."""
    causes = [finding.subject for section in sections for finding in section.findings if finding.concerns != EXTRA]
    if causes:
        return f"mend the above first: {', '.join(dict.fromkeys(causes))}"
    return "report it, with everything that `marltrain doctor` prints and the traceback of your own training"


def _versions(packages: Packages, answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return the versions of packages by module: of the distribution, else of the imported module."""
    found = {module: answer.facts["version"] for module, answer in answers.items() if answer.facts.get("version")}
    needs = [*packages.core, *(needed for needs in packages.extras.values() for needed in needs)]
    return found | {needed.module: needed.version for needed in needs if needed.version is not None}


def _subjects(packages: Packages, answers: Mapping[str, Answer]) -> list[str]:
    """Return the facts of the line: versions, system, processor, devices."""
    versions = _versions(packages, answers)
    broken = {name for name, answer in answers.items() if answer.failure}
    named = [
        f"{name} {versions.get(name, 'of unknown version')}{' BROKEN' * (name in broken)}" if name in answers else
        f"no {name}" for name in IN_LINE
    ]  # fmt: skip
    gpus = [gpu["device"] or gpu["name"] for name in FRAMEWORKS if name in answers
            for gpu in answers[name].facts.get("gpus", ())]  # fmt: skip
    devices = ", ".join(dict.fromkeys(gpus)) or "no GPU"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return [f"marltrain {__version__}", python(), system, f"{usable_cores()} cores, {devices}", ", ".join(named)]
