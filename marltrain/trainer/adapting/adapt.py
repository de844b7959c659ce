"""Adapt: moves a number of agents between two bounds, driven by a quantity that the run measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.settings import checked_arguments, setting
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.learner.gradient_noise import GRADIENT_NOISE
from marltrain.policies.learner.learner import Learner
from marltrain.policies.learner.measurements import EFFECTIVE
from marltrain.storage.checks import counted, of_type
from marltrain.trainer.adapting.criterion import CriterionCallback, CriterionSettings
from marltrain.trainer.adapting.numbers import (
    Players,
    check_value,
    checked_players,
    chosen_agents,
    common_number,
    read,
    write,
)
from marltrain.trainer.adapting.quantities import MEASURED, PLATEAU, TD_ERROR, USUAL_TARGET, Quantity, drive
from marltrain.trainer.adapting.scale import SCALES, Scale
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.settings import TrainerSettings

UP, DOWN = "up", "down"
DIRECTIONS = {
    GRADIENT_NOISE: {"batch_size": UP, "beta": UP, "epsilon": UP, "learning_rate": DOWN, "tau": DOWN, "clip": DOWN,
                     "alpha": DOWN, "gamma": DOWN},
    EFFECTIVE: {"batch_size": DOWN, "beta": DOWN, "epsilon": DOWN, "learning_rate": UP, "tau": UP, "clip": UP,
                "alpha": DOWN, "gamma": UP, "window": UP},
    TD_ERROR: {"batch_size": UP, "beta": UP, "epsilon": UP, "learning_rate": DOWN, "tau": DOWN, "alpha": DOWN},
    PLATEAU: {"batch_size": UP, "epsilon": UP, "entropy_coef": UP, "learning_rate": DOWN, "tau": DOWN, "clip": DOWN},
}  # fmt: skip
"""Usual directions: whether a number rises or falls while a quantity is above its target."""


@dataclass(frozen=True, kw_only=True)
class _Settings(CriterionSettings):
    name: str = setting(doc="number to change")
    by: str = setting(doc="quantity that drives it")
    low: float = setting(doc="lower bound")
    high: float = setting(doc="upper bound")
    target: float | None = setting(None, doc="value of the quantity at which the number rests", above=0)
    direction: str | None = setting(None, doc="direction above the target", choices=(UP, DOWN))
    rate: float = setting(0.02, doc="largest part of the range in one change", above=0, high=1)
    every: int = setting(10, doc="updates between changes", low=1)
    smoothing: float = setting(0.95, doc="weight of the past in averages", low=0, high=0.999999)
    scale: str | None = setting(None, doc="scale of the range", choices=SCALES)
    network: str | None = setting(None, doc="network whose gradient noise counts")


@dataclass
class _Driven:
    """Some agents with one value of the number: an agent, or those of a learner for a number that they share.

    label: their names.  position: place of the value in the range, in [0, 1].  updates: updates since the last change.
    """

    label: str
    agents: dict[str, LearningAgent]
    quantity: Quantity
    position: float = 0.0
    updates: int = field(default=0)


class Adapt(CriterionCallback):
    """Moves a number of agents between two bounds, driven by a quantity q that the run measures.

    name: the number: a hyperparameter of the agents, such as "batch_size", "learning_rate", "epsilon", "tau", "gamma"
    or "clip", or a number of their memory, such as "alpha" or "beta" of `Prioritized`. The agents start with their own
    value, which must lie between the bounds.
    by: the quantity.
      "gradient_noise": the gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162) divided by the batch size;
      above 1, batches are smaller than the scale.
      "effective_sample_size": as a share of the number of rows (Kish 1965); on-policy, of the rows of an update with
      the ratios of the new to the old policy; off-policy, of the rows of the memory with their probabilities of being
      drawn. Uniform draws are refused.
      "td_error": a short average of the critic's loss divided by a long one; above 1, errors grow.
      "plateau": a mean over tests or episodes does not improve for `patience` of them; see `EarlyStopping`.
      Any other text: the metric of this name that updates report, such as "approx_kl", if it is positive.
    low, high: bounds of the number, which it never leaves.
    target: value of q at which the number rests; 1 for "gradient_noise" and "td_error", 0.5 for
    "effective_sample_size".
    direction: "up" or "down": how the number moves while q is above the target; below, it moves the other way.
    None: the usual direction of this number and quantity.
    rate: largest change, as a share of the range. A change is rate * log(q / target), for "effective_sample_size" the
    difference of log(q / (1 - q)) in place of the logarithm, limited to +- rate.
    every: number of updates between changes.  smoothing: weight of the past in the averages of q.
    scale: "linear" or "log": what the range is divided by; None: "log" if `high` is at least 10 times `low`.
    players: names or shell patterns of players whose agents are changed; None: all agents that have the number.
    network: the network whose gradient noise counts; None: the gradients of all networks together.
    patience, tests, episodes, min_delta: the criterion of "plateau". A plateau moves the number by `rate` in
    `direction`, an improvement by as much in the other one.

    A batch size takes only the values low, 2 low, 4 low, ... and high, so that compiled gradient passes are compiled
    for few sizes. Agents that are computed together have one batch size, and the average of their quantities drives it.
    The values are logged as "<name>/<agent>", those of q as "<name>_by_<by>/<agent>". In native games, updates are
    then made one at a time, which is slower (see `Callback.only_watches`).
    Raises ConfigError for a wrong argument, and in `train`, before training, if it does not fit the run.
    """

    Settings: ClassVar[type[_Settings]] = _Settings
    settings: _Settings

    @checked_arguments
    def __init__(
        self,
        name: str,
        *,
        by: str,
        low: float,
        high: float,
        target: float | None = None,
        direction: str | None = None,
        rate: float = 0.02,
        every: int = 10,
        smoothing: float = 0.95,
        scale: str | None = None,
        players: Players = None,
        network: str | None = None,
        patience: int | None = None,
        tests: int | None = None,
        episodes: int | None = None,
        min_delta: float = 0.0,
    ) -> None:
        """Check the arguments."""
        super().__init__(
            name=name, by=by, low=low, high=high, target=target, direction=direction, rate=rate, every=every,
            smoothing=smoothing, scale=scale, network=network, patience=patience, tests=tests, episodes=episodes,
            min_delta=min_delta,
        )  # fmt: skip
        self._check_criterion()
        self.scale = Scale(self.settings.low, self.settings.high, scale, sizes=name == "batch_size")
        self.target = target if target is not None or by == PLATEAU else self._usual_target()
        if by == EFFECTIVE and self.target is not None and self.target >= 1:
            raise ConfigError(f"Adapt: target must be less than 1 for a share of rows ({by}), got {self.target:g}")
        self._sign = 1.0 if (direction or self._usual_direction()) == UP else -1.0
        self.players = checked_players("Adapt", players)
        self._driven: list[_Driven] = []
        if by != PLATEAU:  # only the events that drive the number are overridden
            vars(self).pop("on_test_end" if self.over_tests else "on_episode_end")
            vars(self)["on_update_end"] = self._updated

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Choose the agents, check bounds and start values, and ask learners to measure; see `Callback`."""
        own = self.settings
        if own.by == PLATEAU:
            super().prepare(settings, players)
        chosen = chosen_agents("Adapt", own.name, self.players, players)
        groups: dict[Any, dict[str, LearningAgent]] = {}
        for label, agent in chosen.items():
            for bound in (own.low, own.high):
                check_value(agent, own.name, bound)
            key = id(agent.learner_) if common_number(agent, own.name) else label
            groups.setdefault(key, {})[label] = agent
            if own.by in MEASURED:
                agent.learner_.measured.ask(own.by)
        self._driven = [
            _Driven("+".join(agents), agents, Quantity(own.by, own.smoothing, own.network))
            for agents in groups.values()
        ]
        self._place(settings)

    def _place(self, settings: TrainerSettings) -> None:
        """Compute the places of the numbers' values; raises ConfigError for a value out of bounds."""
        own = self.settings
        for driven in self._driven:
            value = read(next(iter(driven.agents.values())), own.name, settings)
            if not own.low <= value <= own.high:
                raise ConfigError(
                    f"Adapt: {own.name} of {driven.label} is {value:g}, outside [{own.low:g}, {own.high:g}]: give "
                    "other bounds, or make the agent with a value between them"
                )
            driven.position = self.scale.position(value)

    def on_train_start(self, moment: Moment) -> None:
        """Start from the values that the agents have now: those of a resumed run have been restored since `prepare`."""
        super().on_train_start(moment)
        self._place(moment.trainer.settings)

    def largest_batches(self) -> list[tuple[Learner, int]]:
        """See `CriterionCallback`."""
        if self.settings.name != "batch_size":
            return []
        return [(next(iter(one.agents.values())).learner_, int(self.settings.high)) for one in self._driven]

    def judge(self, moment: Moment) -> None:
        """Move the number after a plateau, and back after an improvement."""
        waited, patience = self.criterion.waited, self.settings.patience or 1
        plateau = waited >= patience
        if self.criterion.mean is None or (waited and not plateau):
            return
        if plateau:
            self.criterion.restart()
        for driven in self._driven:
            self._move(moment, driven, self._sign if plateau else -self._sign)

    def state_dict(self) -> dict[str, Any]:
        """Return the criterion, and the place in the range and the averages of each agent."""
        driven = {
            one.label: {
                "position": one.position,
                "updates": one.updates,
                "averages": one.quantity.state(),
                "missed": one.quantity.missed,
            }
            for one in self._driven
        }
        return {**super().state_dict(), "name": self.settings.name, "by": self.settings.by, "driven": driven}

    def accepts_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state is of the same number and quantity, and of one of the agents at least."""
        same = (state["name"], state["by"]) == (self.settings.name, self.settings.by)
        shared = any(one.label in of_type("driven", state["driven"], dict) for one in self._driven)
        return same and shared and super().accepts_state(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, for the agents that it holds."""
        super().load_state_dict(state)
        saved = of_type("driven", state["driven"], dict)
        for one in self._driven:
            if one.label in saved:
                mine = of_type(one.label, saved[one.label], dict)
                if not 0 <= of_type("position", mine["position"], float) <= 1:
                    raise SaveError(f"position must be from 0 to 1, got {mine['position']}")
                one.position = mine["position"]
                one.updates = counted("updates", mine["updates"])
                one.quantity.restore(mine["averages"])
                one.quantity.missed = counted("missed", mine["missed"])

    def _updated(self, moment: Moment) -> None:
        """Add the metrics of an update, and change the number if a change is due."""
        metrics = moment.data["metrics"]
        for driven in self._driven:
            reported = [metrics[label] for label in driven.agents if label in metrics]
            if not reported:
                continue
            driven.quantity.add(reported, "Adapt")
            driven.updates += 1
            value = driven.quantity.value
            if driven.updates < self.settings.every or value is None or self.target is None:
                continue
            driven.updates = 0
            moment.log(f"{self.settings.name}_by_{self.settings.by}/{driven.label}", value)
            self._move(moment, driven, self._sign * drive(self.settings.by, value, self.target))

    def _move(self, moment: Moment, driven: _Driven, share: float) -> None:
        """Move the number of some agents by a share of `rate`, within the bounds, and log it."""
        driven.position = min(max(driven.position + self.settings.rate * share, 0.0), 1.0)
        value = self.scale.value(driven.position)
        for agent in driven.agents.values():
            write(agent, self.settings.name, value)
        moment.log(f"{self.settings.name}/{driven.label}", value)

    def _usual_target(self) -> float:
        target = USUAL_TARGET.get(self.settings.by)
        if target is None:
            raise ConfigError(f"Adapt: the metric {self.settings.by!r} has no usual target: give target=")
        return target

    def _usual_direction(self) -> str:
        name, by = self.settings.name, self.settings.by
        known = DIRECTIONS.get(by, {}).get(name)
        if known is None:
            raise ConfigError(
                f"Adapt: {name} by {by} has no usual direction: give direction='up' if it should rise while {by} is "
                "above its target, or direction='down'"
            )
        return known

    def _check_criterion(self) -> None:
        """Raise ConfigError for arguments that have no effect with `by`, and for a plateau without patience."""
        own = self.settings
        plateau = own.by == PLATEAU
        if plateau and own.patience is None:
            raise ConfigError('Adapt: by="plateau" needs patience=, the tests or episodes without improvement')
        without = {"target", "network"} if plateau else {"patience", "tests", "episodes"}
        if own.by != GRADIENT_NOISE:
            without.add("network")
        for name in sorted(without):
            if (value := getattr(own, name)) is not None:
                raise ConfigError(f"Adapt: {name}={value!r} has no effect with by={own.by!r}: leave it out")
