"""LearningRateRangeTest: a sweep of the learning rate within one run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.checks import counted, of_type
from marltrain.tools.csv_cells import write_csv
from marltrain.tools.search.training import loss_of
from marltrain.trainer.adapting.numbers import Players, check_value, checked_players, chosen_agents, write
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.reporting.figures import not_worth_a_run
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.updating.scheduler import NotFiniteError

if TYPE_CHECKING:
    import pandas as pd

NUMBER = "learning_rate"
LEAST = 5
"""Number of updates before a loss may end the sweep."""
MEMORY = 0.9
"""Weight of earlier updates in the smoothed loss that may end the sweep."""
QUANTITIES = ("loss", "return")
COLUMNS = ("env_steps", NUMBER, *QUANTITIES)
TABLE, PICTURE = "range_test.csv", "range_test.png"
"""Files in the run's folder."""


@dataclass(frozen=True, kw_only=True)
class _Settings:
    low: float = setting(1e-6, doc="first learning rate", above=0)
    high: float = setting(1.0, doc="last learning rate", above=0, high=10)
    env_steps: int | None = setting(None, doc="env steps from low to high", low=1)
    stop_at: float | None = setting(4.0, doc="multiple of the smallest loss that ends the sweep", above=1)
    restore: bool = setting(True, doc="restore the agents at the end")

    def __post_init__(self) -> None:
        validate(self, "LearningRateRangeTest")
        if self.low >= self.high:
            raise ConfigError(f"LearningRateRangeTest: low must be below high, got {self.low:g} and {self.high:g}")


class LearningRateRangeTest(Callback):
    """Raises the learning rate from `low` to `high` in the course of a run, geometrically in env steps.

    The learning rate range test (Smith 2017, arXiv:1506.01186, section 3.3): a good rate lies where the loss falls
    fastest, or where the returns of training episodes rise fastest. One run is one seed: `find_learning_rate` compares
    rates with intervals.

    The run's folder gets the table and the picture of the losses, range_test.csv and range_test.png.

    low, high: the range.  env_steps: length of the sweep; None: `steps_per_train` of the trainer.
    stop_at: the sweep ends when the loss exceeds this multiple of the smallest one (both smoothed), or is not finite;
      None: only if it is not finite.
    restore: restore the agents at the end of the run as they were at its start: weights, moments, rates, random
      numbers. The files in the run's folder are written before that. Checkpoints hold the agents of the start, too.
    players: names or shell patterns of the players whose agents are swept; None: all.
    Raises ConfigError for a wrong argument, and, when training starts, for agents whose rate follows a schedule.
    """

    @checked_arguments
    def __init__(
        self,
        low: float = 1e-6,
        high: float = 1.0,
        *,
        env_steps: int | None = None,
        stop_at: float | None = 4.0,
        restore: bool = True,
        players: Players = None,
    ) -> None:
        """Check the arguments."""
        self.settings = _Settings(low=low, high=high, env_steps=env_steps, stop_at=stop_at, restore=restore)
        self.players = checked_players("LearningRateRangeTest", players)
        self._agents: dict[str, LearningAgent] = {}
        self._before: dict[str, AgentState] = {}
        self._rows: list[dict[str, float]] = []
        self._returns: list[float] = []
        self._steps = 0
        self._mean, self._smallest = 0.0, math.inf  # of the smoothed loss

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Choose the agents; see `Callback`."""
        steps = settings.steps_per_train if self.settings.env_steps is None else self.settings.env_steps
        if steps is None:
            raise ConfigError("LearningRateRangeTest: give env_steps, or steps_per_train to the trainer")
        self._steps = steps
        self._agents = chosen_agents("LearningRateRangeTest", NUMBER, self.players, players)
        for agent in self._agents.values():
            check_value(agent, NUMBER, self.settings.high)

    def on_train_start(self, moment: Moment) -> None:
        """Keep the agents' states; a loss that is not finite ends the run without an error."""
        self._rows, self._returns = [], []
        self._mean, self._smallest = 0.0, math.inf
        self._before = {label: agent.state() for label, agent in self._agents.items()}
        run = getattr(moment.trainer, "run", None)
        for scheduler in () if run is None else run.context.schedulers:
            scheduler.on_not_finite = lambda error: self._diverged(moment, error)

    def on_episode_end(self, moment: Moment) -> None:
        """Keep the return of a training episode: the mean over players."""
        self._returns.append(float(np.mean(moment.data["returns"])))

    def on_update_start(self, moment: Moment) -> None:
        """Set the rate."""
        for agent in self._agents.values():
            write(agent, NUMBER, self.rate_at(moment.env_steps))

    def on_update_end(self, moment: Moment) -> None:
        """Record the update; end the sweep after the last rate, or when the loss diverges."""
        own = [metrics for label, metrics in moment.data["metrics"].items() if label in self._agents]
        losses = [loss_of({name: value for name, value in metrics.items() if name.startswith("loss")})
                  for metrics in own]  # fmt: skip
        if not losses:
            return
        mean = float(np.mean(self._returns)) if self._returns else float("nan")
        self._returns = []
        self._rows.append({"env_steps": moment.env_steps, NUMBER: self.rate_at(moment.env_steps),
                           "loss": float(np.mean(losses)), "return": mean})  # fmt: skip
        self._mean = MEMORY * self._mean + (1 - MEMORY) * self._rows[-1]["loss"]
        smoothed = self._mean / (1 - MEMORY ** len(self._rows))
        self._smallest = min(self._smallest, smoothed)
        stop_at = self.settings.stop_at
        if stop_at is not None and len(self._rows) > LEAST and smoothed > stop_at * self._smallest > 0:
            moment.stop(f"the loss exceeds {stop_at:g} times the smallest one")
        elif moment.env_steps >= self._steps:
            moment.stop("the sweep is complete")

    def on_train_end(self, moment: Moment) -> None:
        """Restore the agents, and write the sweep into the run's folder."""
        if self.settings.restore:
            for label, state in self._before.items():
                self._agents[label].restore(state)
        run = getattr(moment.trainer, "run", None)
        if run is not None and run.context.folder is not None and self._rows:
            write_csv(self.table, run.context.folder.path / TABLE)
            if self.table["loss"].notna().sum() >= LEAST:
                with not_worth_a_run(run.context.folder.path / PICTURE):
                    self.plot(run.context.folder.path / PICTURE)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows so far, the smoothed loss, and the agents as they were at the start of the run."""
        before = {label: {"info": one.info, "arrays": one.arrays} for label, one in self._before.items()}
        rows = [[row[name] for name in COLUMNS] for row in self._rows]
        return {"rows": rows, "returns": self._returns, "mean": self._mean, "smallest": self._smallest,
                "before": before}  # fmt: skip

    def accepts_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state is of the same agents."""
        return of_type("before", state["before"], dict).keys() == self._agents.keys()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises SaveError for other states of agents, or other rows."""
        self._rows = [_row(values) for values in of_type("rows", state["rows"], list)]
        self._returns = [of_type("a return", value, float) for value in of_type("returns", state["returns"], list)]
        self._mean, self._smallest = (of_type(name, state[name], float) for name in ("mean", "smallest"))
        for label, agent in self._agents.items():
            saved = of_type(label, state["before"][label], dict)
            self._before[label] = AgentState(
                of_type("info", saved["info"], dict), of_type("arrays", saved["arrays"], dict)
            )
            now = agent.state()
            try:
                agent.restore(self._before[label])  # shows now, rather than at the end, that it can be restored
            finally:
                agent.restore(now)

    def rate_at(self, env_steps: int) -> float:
        """Return the learning rate after some env steps."""
        low, high = self.settings.low, self.settings.high
        return float(low * (high / low) ** min(1.0, env_steps / self._steps))

    @property
    def table(self) -> pd.DataFrame:
        """A row for each update: `env_steps`, `learning_rate`, `loss`, `return` (of episodes since the row before)."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=list(COLUMNS))

    def suggestion(self, by: str = "loss", smooth: int = 5) -> float:
        """Return the rate at which the smoothed loss falls fastest, or the smoothed return rises fastest.

        by: "loss" or "return".  smooth: number of updates that a mean covers.
        Raises ConfigError for a wrong argument or with fewer than 3 updates.
        """
        rates, values = self.curve(by, smooth)
        slope = np.gradient(values, np.log(rates))
        return float(rates[slope.argmin() if by == "loss" else slope.argmax()])

    def curve(self, by: str, smooth: int = 1) -> tuple[Array, Array]:
        """Return the rates and the smoothed values of "loss" or "return", [updates] each, where there are values."""
        from marltrain.tools.finding.plots import moving_mean

        if by not in QUANTITIES or smooth < 1:
            raise ConfigError(f"by must be one of {', '.join(QUANTITIES)}, smooth at least 1, got {by!r}, {smooth}")
        known = self.table.dropna(subset=[by])
        if len(known) < 3:
            raise ConfigError(f"the sweep has {len(known)} updates with a {by}: train for more env steps")
        return known[NUMBER].to_numpy(float), moving_mean(known[by].to_numpy(float), smooth)

    def plot(
        self, path: str | Path, *, by: str = "loss", smooth: int = 5, skip_start: int = 0, skip_end: int = 0,
        limits: tuple[float, float] | None = None,
    ) -> Path:  # fmt: skip
        """Draw the loss or the return over the rates, and the rate of change; see `FindResult.plot`."""
        from marltrain.tools.finding.plots import draw_sweep  # loads matplotlib

        rates, values = self.curve(by, smooth)
        return draw_sweep(rates, values, path, by=by, skip=(skip_start, skip_end), limits=limits)

    def _diverged(self, moment: Moment, error: NotFiniteError) -> Any:
        moment.stop("a loss or a gradient is not finite")


def _row(values: Any) -> dict[str, float]:
    """Return a row of the table from a state; raises SaveError for anything else."""
    if len(of_type("a row", values, list)) != len(COLUMNS):
        raise SaveError(f"a row must hold {', '.join(COLUMNS)}, got {values!r:.80}")
    steps, *others = values
    return dict(
        zip(COLUMNS, [counted("env_steps", steps), *(of_type("a number", v, float) for v in others)], strict=True)
    )
