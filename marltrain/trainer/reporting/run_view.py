"""RunView: what a dashboard shows of a run, and its lines for a size of the screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marltrain.core.errors import SaveError, in_line
from marltrain.storage.checks import of_type
from marltrain.trainer.reporting.speed import Speed
from marltrain.trainer.reporting.text_charts import Line, bar, beside, box, curve, fitted, number

MOST_POINTS = 4096
"""Maximum number of points of a curve; beyond it every second point is dropped."""
KNOWN = 0.01
"""Share of the budget from which the time left is estimated."""
WIDE, TALL = 110, 32
"""Columns from which two curves stand side by side, and lines from which there is a third one."""
METRIC, TRAIN, TEST = "test/metric", "train/return/", "test/return/"
RATE, EPISODES, UPDATES = "train/env_steps_per_second", "train/episodes", "train/updates"
LOSS = "loss/total"
CURVES = ("metric", "returns", "loss")
"""Curves of a view."""


class Curve:
    """Points (env steps, value) of a number over the run, at most MOST_POINTS."""

    def __init__(self) -> None:
        """Start without a point."""
        self.steps: list[float] = []
        self.values: list[float] = []

    def add(self, env_steps: int, value: float) -> None:
        """Add a point."""
        if len(self.steps) >= MOST_POINTS:
            del self.steps[1::2], self.values[1::2]
        self.steps.append(env_steps)
        self.values.append(value)

    def cut(self, env_steps: int) -> None:
        """Remove the points from an env step on, which a resumed run makes again."""
        while self.steps and self.steps[-1] >= env_steps:
            self.steps.pop()
            self.values.pop()

    def state(self) -> list[list[float]]:
        """Return the env steps and the values."""
        return [list(self.steps), list(self.values)]

    def restore(self, state: Any) -> None:
        """Restore what `state` returned; raises SaveError for anything else."""
        steps, values = (of_type("points of a curve", part, list) for part in of_type("a curve", state, list))
        if len(steps) != len(values) or len(steps) > MOST_POINTS:
            raise SaveError(f"a curve holds {len(steps)} env steps and {len(values)} values, of at most {MOST_POINTS}")
        self.steps = [of_type("env steps", step, int, float) for step in steps]
        self.values = [of_type("a value", value, float) for value in values]

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the curve as lines."""
        return curve(self.steps, self.values, width, height)


@dataclass
class RunView:
    """State of a run, fed with the points of its loggers (`ScalarLogger`), and with its counts.

    title: environment and folder.  budgets: counts at which training ends, by the name of the counter.
    episodes, env_steps, updates, seconds: counts so far.  note: what happens now, such as a test.
    speed: estimates the time left.
    """

    title: str
    budgets: Mapping[str, int | None]
    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    note: str = ""
    latest: dict[str, float] = field(default_factory=dict)
    metric: Curve = field(default_factory=Curve)
    returns: Curve = field(default_factory=Curve)
    loss: Curve = field(default_factory=Curve)
    speed: Speed = field(default_factory=Speed)

    def __post_init__(self) -> None:
        """Make the title `printable`: a run's folder may come from somebody else."""
        self.title = in_line(self.title)

    def count(self, episodes: int, env_steps: int, updates: int, seconds: float) -> None:
        """Take the counts of the run at a time; seconds: duration of the run."""
        self.episodes, self.env_steps, self.updates, self.seconds = episodes, env_steps, updates, seconds
        self.speed.add(seconds, env_steps, updates, self.done)

    def add(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Add a point of a logger; names in its tags are made `printable`."""
        scalars = {in_line(tag): value for tag, value in scalars.items()}
        self.latest.update(scalars)
        self.env_steps = max(self.env_steps, env_steps)
        self.episodes = int(scalars.get(EPISODES, self.episodes))
        self.updates = int(scalars.get(UPDATES, self.updates))
        if METRIC in scalars:
            self.metric.add(env_steps, scalars[METRIC])
        for points, values in (
            (self.returns, [value for tag, value in scalars.items() if tag.startswith(TRAIN)]),
            (self.loss, [value for tag, value in scalars.items() if tag.endswith(f"/{LOSS}")]),
        ):
            if values:
                points.add(env_steps, sum(values) / len(values))

    def cut(self, env_steps: int) -> None:
        """Go back to the counts before an env step, from which a resumed run makes its points again."""
        self.env_steps, self.speed = env_steps - 1, Speed()
        for points in (self.metric, self.returns, self.loss):
            points.cut(env_steps)

    def state(self) -> dict[str, Any]:
        """Return the latest numbers and the curves, as JSON values."""
        return {"latest": dict(self.latest), **{name: getattr(self, name).state() for name in CURVES}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; raises SaveError for anything else."""
        latest = of_type("latest", state["latest"], dict)
        self.latest = {in_line(tag): of_type(tag, value, float, int) for tag, value in latest.items()}
        for name in CURVES:
            getattr(self, name).restore(state[name])

    @property
    def done(self) -> float | None:
        """Share of the budget that is closest to its end; None if no budget is known."""
        shares = [getattr(self, counter) / budget for counter, budget in self.budgets.items() if budget]
        return min(max(shares), 1.0) if shares else None

    def text(self) -> str:
        """Return the state in one line."""
        parts = [] if self.done is None else [f"{self.done:4.0%}"]
        parts.append(f"{self.episodes:,} episodes, {self.env_steps:,} env steps")
        if RATE in self.latest:
            parts.append(f"{self.latest[RATE]:,.0f}/s")
        if self.metric.values:
            parts.append(f"metric {self.metric.values[-1]:.4g} (best {max(self.metric.values):.4g})")
        parts += [f"{tag.removeprefix('train/')} {v:.4g}" for tag, v in self.latest.items() if tag.startswith(TRAIN)]
        if self.loss.values:
            parts.append(f"loss {self.loss.values[-1]:.3g}")
        return ", ".join([*parts, *([in_line(self.note)] if self.note else []), clock(self.seconds)])

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the dashboard as lines; width, height: size of the screen, from 40 x 12."""
        width, height = max(width, 40), max(height, 12)
        agents = self._measures(width - 4)
        low = min(len(agents) + 2, max(4, (height - 4) // 2))
        agents = _cut(agents, low - 2, "numbers")
        middle = height - 4 - low
        panels = self._panels(width, middle)
        return [*box(self.title, self._counts(width - 4), width, 4), *panels, *box("agents", agents, width, low)]

    def _counts(self, width: int) -> list[Line]:
        rate = f", {self.latest[RATE]:,.0f} env steps/s" if RATE in self.latest else ""
        text = f"{self.episodes:,} episodes, {self.env_steps:,} env steps{rate}"
        counts: Line = [(text, ""), (f"   {in_line(self.note)}", "yellow")]
        time = clock(self.seconds)
        if self.done is None:
            return [counts, [(time, "")]]
        seconds = self.speed.left(KNOWN)
        left = time if seconds is None else f"{time} < {clock(seconds)}"
        share = f"{self.done:4.0%} "
        room = max(4, width - len(share) - len(left) - 1)
        return [counts, [(share, "bold"), *bar(self.done, room), (f" {left}", "")]]

    def _panels(self, width: int, height: int) -> list[Line]:
        """Return the curves and the returns of the players, side by side."""
        players = self._players()
        right = min(max(34, max(width_of_names(players)) + 26), width // (3 if width >= WIDE else 2))
        best = f", best {max(self.metric.values):.4g}" if self.metric.values else ""
        last = f" {self.metric.values[-1]:.4g}" if self.metric.values else ""
        curves = [(f"metric{last}{best}", self.metric)]
        if width >= WIDE:
            curves.append(("return in training, mean of the players", self.returns))
        widths = [(width - right) // len(curves)] * len(curves)
        widths[0] += width - right - sum(widths)
        result = [
            box(title, points.lines(w - 4, height - 2), w, height)
            for (title, points), w in zip(curves, widths, strict=True)
        ]
        if height >= TALL // 2:
            half = height // 2
            table = [*box("returns", self._returns(right - 4, half - 2), right, half),
                     *box("loss, mean of the agents", self.loss.lines(right - 4, height - half - 2), right,
                          height - half)]  # fmt: skip
        else:
            table = box("returns", self._returns(right - 4, height - 2), right, height)
        return beside(*result, table)

    def _players(self) -> list[str]:
        tags = [tag.removeprefix(begin) for begin in (TRAIN, TEST) for tag in self.latest if tag.startswith(begin)]
        return list(dict.fromkeys(tags))

    def _returns(self, width: int, rows: int) -> list[Line]:
        """Return the table of players: their mean return in training and in the last test."""
        players, name = self._players(), max(7, width - 20)
        lines: list[Line] = [[(f"{'player':<{name}}{'train':>10}{'test':>10}", "dim")]]
        for player in players:
            values = [self.latest.get(begin + player) for begin in (TRAIN, TEST)]
            cells = "".join(f"{'' if value is None else number(value):>10}" for value in values)
            lines.append([(f"{player[: name - 1]:<{name}}{cells}", "")])
        return _cut(lines, rows, "players")

    def _measures(self, width: int) -> list[Line]:
        """Return the table of the agents' latest numbers: one line for each number, one column for each agent."""
        table: dict[str, dict[str, float]] = {}
        for tag, value in self.latest.items():
            agent, _, name = tag.partition("/")
            if agent not in ("train", "test"):
                table.setdefault(name, {})[agent] = value
        if not table:
            return [[("no update yet", "dim")]]
        agents = list(dict.fromkeys(agent for row in table.values() for agent in row))
        shown, more = max(1, (width - 28) // 12), ""
        if len(agents) > shown:
            shown = max(1, (width - 42) // 12)
            more = f" and {len(agents) - shown:,} more"
        head = "".join(f"{agent[:11]:>12}" for agent in agents[:shown])
        lines: list[Line] = [fitted([(f"{'':<28}{head}{more}", "dim")], width)]
        for name in sorted(table, key=lambda name: (not name.startswith("loss"), name)):
            cells = "".join(number(table[name][a], 12) if a in table[name] else " " * 12 for a in agents[:shown])
            lines.append([(f"{name[:27]:<28}{cells}", "")])
        return lines


def width_of_names(names: list[str]) -> list[int]:
    """Return the lengths of names, and 0."""
    return [0, *map(len, names)]


def _cut(lines: list[Line], rows: int, what: str) -> list[Line]:
    """Return at most `rows` lines; the last one then tells how many are left out."""
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], [(f"and {len(lines) - rows + 1:,} more {what}", "dim")]]


def clock(seconds: float) -> str:
    """Return a duration as "1:02:03" or "2:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
