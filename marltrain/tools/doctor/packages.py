"""The sections about the packages that marltrain needs and about its extras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from marltrain.core.errors import error_text
from marltrain.core.extras import EXTRAS, install
from marltrain.tools.doctor.processes import Answer, in_short
from marltrain.tools.doctor.report import CORE, EXTRA, Fact, Finding, Section
from marltrain.tools.doctor.requirements import PACKAGE, Needed, Requirements, is_there

MAIN = "numpy", "numba", "torch", "gymnasium", "pettingzoo"
"""Modules that are asked about where the metadata cannot be read."""


@dataclass(frozen=True)
class Packages:
    """The packages of an installation.

    core: those that are always needed.  extras: name -> its packages.
    failure: why the requirements are unknown, else "". The core is then `MAIN`, and extras have the modules of
        `marltrain.core.extras`.
    """

    core: Sequence[Needed]
    extras: Mapping[str, Sequence[Needed]]
    failure: str = ""

    def modules(self) -> list[str]:
        """Return the modules that are to be imported: those that are there, without parts of incomplete extras."""
        complete = [needs for needs in self.extras.values() if all(needed.found for needed in needs)]
        needs = [*self.core, *(needed for extra in complete for needed in extra)]
        return list(dict.fromkeys(needed.module for needed in needs if needed.found and needed.module))


def read_packages() -> Packages:
    """Return the packages that the metadata of marltrain name, and those of the extras for users."""
    by_module = {extra: [_by_module(module) for module in known.modules] for extra, known in EXTRAS.items()}
    try:
        found = Requirements()
        named = {extra: found.of(extra) for extra in EXTRAS if extra in found.extras}  # all, but in old metadata
        return Packages(found.core, by_module | named)
    except metadata.PackageNotFoundError:
        failure = f"{PACKAGE} is not installed"
    except Exception as error:  # metadata are files of other packages, and `packaging` may be broken, too
        failure = in_short(error_text(error))
    return Packages([_by_module(module) for module in MAIN], by_module, failure)


def _by_module(module: str) -> Needed:
    """Return a package of which only the module is known."""
    return Needed(module, module, module, None, is_there(module))


def core_section(packages: Packages, answers: Mapping[str, Answer]) -> Section:
    """Return the section of the packages that are always needed; answers: of the imports, by module."""
    facts = [_fact(needed, answers) for needed in packages.core]
    first = _first_with(packages, answers)
    findings = [finding for needed in packages.core for finding in _findings(needed, CORE, answers, first)]
    if packages.failure:
        facts.append(Fact("requirements", None, f"unknown: {packages.failure}"))
        remedy = f"install {PACKAGE} with pip (pip install -e FOLDER for a folder of sources), and `packaging`"
        findings.append(Finding(CORE, "requirements", f"they cannot be read: {packages.failure}", remedy))
    return Section("packages", facts, findings)


def extras_section(packages: Packages, answers: Mapping[str, Answer]) -> Section:
    """Return the section of the extras: what is installed, what is missing and what it brings."""
    facts, findings, first = [], [], _first_with(packages, answers)
    for extra, needs in packages.extras.items():
        missing = [needed.name for needed in needs if not needed.found]
        versions = {needed.name: _version(needed, answers) for needed in needs}
        brings = EXTRAS[extra].brings
        value = {"installed": not missing, "missing": missing, "brings": brings, "packages": versions}
        there = ", ".join(f"{name} {version or ''}".rstrip() for name, version in versions.items())
        facts.append(Fact(extra, value, f"missing: {brings}: {install(extra)}" if missing else there))
        findings += [f for needed in needs if needed.found for f in _findings(needed, EXTRA, answers, first)]
    return Section("extras", facts, list(dict.fromkeys(findings)))


def _version(needed: Needed, answers: Mapping[str, Answer]) -> str | None:
    """Return the version of a package; that of the module where no distribution tells it."""
    answer = answers.get(needed.module)
    return needed.version or (answer.facts.get("version") if answer else None)


def _fact(needed: Needed, answers: Mapping[str, Answer]) -> Fact:
    answer, version = answers.get(needed.module), _version(needed, answers)
    good = None if answer is None else not answer.failure
    state = ["MISSING"] if not needed.found else ["CANNOT BE IMPORTED"] if good is False else []
    data = [*([version] if version else []), *state, *([] if needed.fits else [f"needed: {needed.requirement}"])]
    return Fact(needed.name, {"version": version, "imported": good, "needed": needed.requirement}, ", ".join(data))


def _first_with(packages: Packages, answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return the reasons of failed imports -> the first package with this reason; `MAIN` comes before the others."""
    needs = [*packages.core, *(needed for needs in packages.extras.values() for needed in needs)]
    found: dict[str, str] = {}
    for needed in sorted(needs, key=lambda needed: needed.module not in MAIN):
        if needed.module in answers and answers[needed.module].failure:
            found.setdefault(answers[needed.module].failure, needed.name)
    return found


def _findings(
    needed: Needed, concerns: str, answers: Mapping[str, Answer], first: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what is wrong with a package: it is missing, of another version, or cannot be imported."""
    command = f'pip install "{needed.requirement}"'
    failure = answers[needed.module].failure if needed.module in answers else ""
    if not needed.found:
        yield Finding(concerns, needed.name, "is not installed", command)
    elif failure and (other := first[failure]) != needed.name:
        yield Finding(concerns, needed.name, f"cannot be imported, for the same reason as {other}", f"mend {other}")
    elif failure:
        again = f'pip install --force-reinstall --no-deps "{needed.requirement}"'
        yield Finding(concerns, needed.name, f"cannot be imported: {failure}", again)
    if not needed.fits:
        cause = f"version {needed.version} is installed, and marltrain needs {needed.requirement}"
        yield Finding(concerns, needed.name, cause, command)
    if needed.others and concerns == CORE:  # of extras, mlflow shares files with mlflow-skinny by intention
        cause = f"{needed.module} is installed by {', by '.join(needed.others)} too, and they overwrite each other"
        again = f'pip uninstall {" ".join(needed.others)}, then pip install --force-reinstall "{needed.requirement}"'
        yield Finding(concerns, needed.name, cause, again)
