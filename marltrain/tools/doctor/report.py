"""What the doctor found, as text, as JSON values and as one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1
"""Version of the JSON values."""
WIDTH = 22
"""Columns of the names in the text."""
CORE, EXTRA, HERE = "core", "extra", "here"
"""What a finding concerns: a package or folder that training may need; a part of the package that training does not
need; this folder, in which training does not work."""


@dataclass(frozen=True)
class Fact:
    """A fact of a section.  value: for JSON.  text: for people; None: that of the value."""

    name: str
    value: Any
    text: str | None = None

    def __str__(self) -> str:
        """Return the text."""
        if self.text is not None:
            return self.text
        return "none" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Finding:
    """Something that does not work.  concerns: CORE, EXTRA or HERE."""

    concerns: str
    subject: str
    cause: str
    remedy: str

    def described(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "concerns"}


@dataclass(frozen=True)
class Section:
    """Facts about one subject, and findings among them."""

    title: str
    facts: Sequence[Fact]
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class Report:
    """All sections.  failure: why a short training does not work; None: it does.  subjects: facts of the line."""

    sections: Sequence[Section]
    failure: Finding | None
    subjects: Sequence[str]

    @property
    def problems(self) -> list[Finding]:
        """Findings that keep the main job from working: training of a native game in one process, with PyTorch.

        A finding of the core is a problem if the short training failed: it may be the cause.
        """
        found = [f for f in self._findings() if f.concerns == HERE or (f.concerns == CORE and self.failure)]
        return found if self.failure is None else [*found, self.failure]

    @property
    def warnings(self) -> list[Finding]:
        """All other findings."""
        problems = self.problems
        return [finding for finding in self._findings() if finding not in problems]

    def _findings(self) -> Iterator[Finding]:
        for section in self.sections:
            yield from section.findings

    def line(self) -> str:
        """Return the report in one line, without paths and names of people: for the report of a bug."""
        problems, warnings = self.problems, self.warnings
        counts = [f"{len(problems)} problem{'s' * (len(problems) != 1)}: {', '.join(f.subject for f in problems)}"]
        works = counts if problems else ["training works"]
        if warnings:
            works.append(f"warnings: {', '.join(finding.subject for finding in warnings)}")
        return " | ".join([*self.subjects, *works])

    def text(self) -> str:
        """Return the report for people; the last line is `line`."""
        lines: list[str] = []
        for section in self.sections:
            lines.append(section.title)
            lines += [f"  {fact.name:<{WIDTH}}{fact}" for fact in section.facts]
            lines.append("")
        for kind, findings in (("problem", self.problems), ("warning", self.warnings)):
            for finding in findings:
                lines += [f"{kind}: {finding.subject}: {finding.cause}", f"  remedy: {finding.remedy}"]
            lines += [""] * bool(findings)
        works = "a training of a native game works" if not self.problems else "training does not work here: see above"
        return "\n".join([*lines, works, "", "For the report of a bug:", self.line()])

    def described(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        sections = {
            section.title.replace(" ", "_"): {fact.name: fact.value for fact in section.facts}
            for section in self.sections
        }
        return {
            "format": FORMAT, "works": not self.problems, "line": self.line(),
            "problems": [finding.described() for finding in self.problems],
            "warnings": [finding.described() for finding in self.warnings],
            **sections,
        }  # fmt: skip
