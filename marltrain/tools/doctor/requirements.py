"""The packages that marltrain needs, and the extras, read from the metadata of its installation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any

PACKAGE = "marltrain"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Needed:
    """A package that a requirement names.

    requirement: as pip takes it, "ray>=2.52".
    module: what is imported; "" if neither the files of the distribution nor its name tell it.
    version: of the distribution; None if it is not installed.
    found: whether the distribution is there, or the module without it (another name, a folder of sources).
    fits: whether the version is one of the requirement's.
    others: other distributions that install the same files, as pygame and pygame-ce do.
    """

    requirement: str
    name: str
    module: str
    version: str | None
    found: bool
    fits: bool = True
    others: tuple[str, ...] = ()


class Requirements:
    """The requirements of an installed package and its extras."""

    def __init__(self, package: str = PACKAGE) -> None:
        """Read the metadata.

        Raises PackageNotFoundError if the package is not installed, as in a folder of sources, and ImportError if the
        package `packaging`, which reads requirements, cannot be imported.
        """
        from packaging.requirements import Requirement

        self._parse: Any = Requirement
        self.distribution = metadata.distribution(package)
        self.extras = tuple(self.distribution.metadata.get_all("Provides-Extra") or ())

    @cached_property
    def core(self) -> list[Needed]:
        """The packages that are always needed."""
        return list(self._needed(self.distribution, "", set()))

    def of(self, extra: str) -> list[Needed]:
        """Return the packages of an extra that the core does not need."""
        core = {needed.name for needed in self.core}
        return [needed for needed in self._needed(self.distribution, extra, set()) if needed.name not in core]

    def _needed(self, distribution: metadata.Distribution, extra: str, seen: set[tuple[str, str]]) -> Iterator[Needed]:
        """Yield the packages of an extra, or without one ("") those that are always needed.

        Also those of extras of other packages, such as gymnasium[box2d], and of extras that name others of their own.
        """
        for text in distribution.requires or ():
            requirement = self._parse(text)
            marker = requirement.marker
            if marker is None:
                if extra:
                    continue
            elif not marker.evaluate({"extra": extra}) or (extra and marker.evaluate({"extra": ""})):
                continue
            name = normal(requirement.name)
            if name != normal(distribution.metadata["Name"]) and (name, "") not in seen:
                seen.add((name, ""))
                yield self._package(requirement)
            yield from self._inner(requirement, name, seen)

    def _inner(self, requirement: Any, name: str, seen: set[tuple[str, str]]) -> Iterator[Needed]:
        """Yield the packages of the extras that a requirement names."""
        inner = _distribution(requirement.name)
        for extra in sorted(requirement.extras):
            if inner is not None and (name, extra) not in seen:
                seen.add((name, extra))
                yield from self._needed(inner, extra, seen)

    def _package(self, requirement: Any) -> Needed:
        distribution = _distribution(requirement.name)
        name, module = normal(requirement.name), module_of(requirement.name, distribution)
        version = None if distribution is None else version_in(distribution)
        fits = version in (None, UNKNOWN) or requirement.specifier.contains(version, prereleases=True)
        others = () if distribution is None else self._others(module, name)
        text = f"{requirement.name}{requirement.specifier}"
        found = distribution is not None or is_there(module)
        return Needed(text, name, module, version, found, fits, others)

    def _others(self, module: str, name: str) -> tuple[str, ...]:
        """Return the other distributions that install the same `__init__.py`; parts of one package do not."""
        first = PurePosixPath(module, "__init__.py")
        found = {other: _distribution(other) for other in self._providers.get(module, set()) - {name}}
        same = [other for other, one in found.items() if one is not None and first in map(_path, one.files or ())]
        return tuple(sorted(same))

    @cached_property
    def _providers(self) -> dict[str, set[str]]:
        """The names of the distributions that install each module."""
        found = metadata.packages_distributions()
        return {module: {normal(name) for name in names if name} for module, names in found.items()}


def normal(name: str) -> str:
    """Return the name of a distribution in small letters, with dashes."""
    return name.lower().replace("_", "-").replace(".", "-")


def version_in(distribution: metadata.Distribution) -> str:
    """Return the version in a distribution's metadata, which may be damaged: "unknown"."""
    found = distribution.metadata
    return str(found["Version"] or UNKNOWN) if "Version" in found else UNKNOWN


def module_of(name: str, distribution: metadata.Distribution | None) -> str:
    """Return the module that a distribution is for: that of its name, else the first of its modules.

    A distribution whose files are not listed is for the module of its name, or for an unknown one: "".
    """
    plain = normal(name).replace("-", "_")
    modules = sorted(_modules(distribution)) if distribution is not None else []
    near = [module for module in modules if module.lower() == plain]
    near += [module for module in modules if plain.startswith(module.lower())]
    if not modules and distribution is not None and not is_there(plain):
        return ""
    return (near or modules or [plain])[0]


def is_there(module: str) -> bool:
    """Return whether a top-level module can be found; it is not imported."""
    try:
        return find_spec(module) is not None
    except ValueError:  # imported without a specification
        return True


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _modules(distribution: metadata.Distribution) -> set[str]:
    """Return the public top-level modules among a distribution's files."""
    files = [_path(file) for file in distribution.files or ()]
    code = [file for file in files if file.suffix in (".py", ".so", ".pyd")]
    names = {file.parts[0].partition(".")[0] for file in code}
    return {name for name in names if name.isidentifier() and not name.startswith("_")}


def _path(file: metadata.PackagePath) -> PurePosixPath:
    return PurePosixPath(str(file))
