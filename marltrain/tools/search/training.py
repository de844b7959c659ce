"""Trainings of tools: their plan, their tests and their outcomes. `train_all` trains them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, SaveError, shown
from marltrain.core.layout import Array
from marltrain.core.settings import check_function
from marltrain.envs import Source, resolve
from marltrain.policies.agents.agent import Agent
from marltrain.storage.checks import counted, of_type
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.evaluating.selection import measured
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.preparing.resume import described_argument
from marltrain.trainer.reporting.functions import described_function
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.settings import RewardMetric

METRIC = "metric"
"""What trainings are scored by, unless it is a loss."""
LOSS, TOTAL = "loss", "loss/total"
"""Beginning of the names of losses among the metrics of updates, and the name of the total."""
TESTS = 10
"""Default number of tests of a training, besides the first."""
OF_TOOLS = {
    "callbacks": "the tools have none",
    "env_args": "give env_args beside it",
    "episodes_per_train": "give steps",
    "name": "trainings of tools have none",
    "progress": "trainings of tools show none",
    "reward_metric": "give reward_metric beside it",
    "run_dir": "trainings of tools write no files",
    "save_best_fn": "trainings of tools save no agents",
    "save_last_fn": "trainings of tools save no agents",
    "seed": "give the tool's own seed or seeds",
    "steps_per_train": "give steps",
    "stop_fn": "all trainings have equally many env steps",
    "test_fn": "many trainings are tested at once",
    "test_freq": "give test_freq_steps, env steps between tests",
    "train_fn": "many trainings go on at once; give the agents schedules",
    "updates_per_train": "give steps",
}
"""Arguments of the trainer that tools set, and what to give instead."""


class Reading(NamedTuple):
    """What a test measured: env steps so far, the metric, and the mean of each loss since the previous test."""

    env_steps: int
    metric: float
    losses: Mapping[str, float]


@dataclass(eq=False)
class Training:
    """The training of a candidate with a seed.

    candidate: its number.  make: makes its agents, one for each player.  agents: they, from the start of the training.
    readings: one for each test.  error: why the training ended early; "" if it did not.
    stopped: whether it was ended early, with or without an error.
    replaced: whether its agents have got other weights since the last test began: no rollout then holds a decision made
      with the earlier ones.
    """

    candidate: int
    seed: int
    make: Callable[[], list[Agent]]
    agents: list[Agent] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    error: str = ""
    stopped: bool = False
    replaced: bool = False

    def begin(self) -> None:
        """Make the agents and forget earlier readings."""
        self.agents, self.readings, self.error, self.stopped, self.replaced = self.make(), [], "", False, False

    def outcome(self) -> dict[str, Any]:
        """Return the readings, the error and whether it was stopped, as plain values."""
        readings = [[test.env_steps, test.metric, dict(test.losses)] for test in self.readings]
        return {"readings": readings, "error": self.error, "stopped": self.stopped}

    def take(self, outcome: Any) -> None:
        """Take over what `outcome` returned; raises SaveError for anything else."""
        if set(of_type("an outcome", outcome, dict)) != {"readings", "error", "stopped"}:
            raise SaveError(f"an outcome must hold readings, error and stopped, got {', '.join(outcome):.80}")
        self.error = of_type("error", outcome["error"], str)
        self.stopped = of_type("stopped", outcome["stopped"], bool)
        if self.error and not self.stopped:
            raise SaveError(f"a training with an error must be stopped, got the error {self.error!r:.80}")
        self.readings = []
        for test in of_type("readings", outcome["readings"], list):
            self.readings.append(_reading(test, after=self.readings[-1].env_steps if self.readings else -1))
        if not (self.readings or self.error):
            raise SaveError("a training without an error must have a reading, got none")


def _reading(value: Any, after: int) -> Reading:
    """Return a reading from [env steps, metric, losses]; raises SaveError for anything else.

    after: env steps of the reading before.
    """
    if len(of_type("a reading", value, list)) != len(Reading._fields):
        raise SaveError(f"a reading must hold {', '.join(Reading._fields)}, got {value!r:.80}")
    steps, metric, losses = value
    for name, number in {"metric": metric, **of_type("losses", losses, dict)}.items():
        if math.isnan(of_type(name, number, float)):
            raise SaveError(f"{name} of a reading must be a number, got nan")
    return Reading(counted("env_steps", steps, after + 1), metric, losses)


@dataclass(frozen=True)
class Plan:
    """What all trainings have in common.

    source: the environment.  steps: env steps of each training.  reward_metric: as in `DecentralizedTrainer`.
    settings: its other arguments.
    """

    source: Source
    steps: int
    reward_metric: RewardMetric = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, tool: str, env: Any, env_args: Mapping[str, Any] | None, steps: int, reward_metric: RewardMetric,
        trainer: Mapping[str, Any] | None, every: int | None = None,
    ) -> Plan:  # fmt: skip
        """Return the plan of a tool whose argument `trainer` holds further arguments of the trainer.

        every: env steps between tests; None: a tenth.  There are 20 episodes per test unless `trainer` says otherwise.
        Raises ConfigError for arguments that the trainer refuses or the tool sets itself, for trainings without tests,
        and for two numbers of env steps between tests.
        """
        if not isinstance(trainer, Mapping | None):
            raise ConfigError(f"{tool}: trainer must be a mapping from argument to value, got {shown(trainer)}")
        if reward_metric is not None:
            check_function("reward_metric", reward_metric, "rewards")
        arguments = dict(trainer or {})
        for name, remedy in OF_TOOLS.items():
            if name in arguments:
                raise ConfigError(f"{tool}: trainer={{{name!r}: {shown(arguments[name])}}} cannot be given: {remedy}")
        if every is not None and (other := arguments.get("test_freq_steps", every)) != every:
            raise ConfigError(
                f"{tool}: every={every} and trainer={{'test_freq_steps': {shown(other)}}} are both env steps between "
                "tests: leave one of them out"
            )
        settings = {"test_freq_steps": every or max(1, steps // TESTS), "episodes_per_test": 20, **arguments}
        if settings["test_freq_steps"] is None:
            raise ConfigError(f"{tool}: trainer={{'test_freq_steps': None}}: the metric needs tests; give env steps")
        result = cls(resolve(env, env_args), steps, reward_metric, settings)
        try:
            result.trainer(result.source, 0, Callback(), None)
        except ConfigError as error:
            raise ConfigError(f"{tool}: trainer: {error}") from error
        return result

    def trainer(self, source: Source, seed: int, callback: Callback, folder: Path | None) -> DecentralizedTrainer:
        """Return a trainer that writes checkpoints into a folder, after every test by env steps, and no other files."""
        result = DecentralizedTrainer(
            source, seed=seed, steps_per_train=self.steps, callbacks=[callback], run_dir=False, progress=False,
            reward_metric=lambda returns: 0.0, **self.settings,  # `metric` measures each training by itself
        )  # fmt: skip
        if folder is not None:
            checkpoint = Checkpoint(every_steps=result.settings.test_freq_steps, keep=1)
            result.setup = replace(
                result.setup, callbacks=(*result.setup.callbacks, checkpoint), checkpoint=checkpoint, run_dir=folder,
                only_checkpoints=True,
            )  # fmt: skip
        return result

    def about(self) -> dict[str, Any]:
        """Return what tells the trainings of two plans apart, as JSON values."""
        metric = self.reward_metric
        return {
            "env": self.source.name, "env_args": described_argument(dict(self.source.arguments)), "steps": self.steps,
            "reward_metric": None if metric is None else described_function(metric),
            "trainer": described_argument(dict(self.settings)),
        }  # fmt: skip

    def metric(self, returns: Array, learns: Sequence[bool]) -> float:
        """Return the metric of returns [episodes, players] of a test; learns: [players]."""
        if self.reward_metric is not None:
            return measured(self.reward_metric, returns)
        return float(returns[:, np.array(learns)].mean())


Watch = Callable[[Sequence[Training]], None]
"""Called after every test with the trainings under way.

It may end one by `stopped = True`. It must set `replaced = True` for one whose agents it gives other weights.
"""


def score_of(training: Training, final: float, by: str = METRIC) -> float:
    """Return the score of a training, larger for better; -inf if it failed.

    final: the share of the tests, the last ones, one at least, whose mean is the score.  by: "metric", "loss" or the
    name of a loss, which is negated.  Raises ConfigError for a loss that was not measured.
    """
    if training.error:
        return -math.inf
    tests = training.readings[-max(1, round(final * len(training.readings))) :]
    if by == METRIC:
        return float(np.mean([test.metric for test in tests]))
    losses = [loss for test in tests if not math.isnan(loss := loss_of(test.losses, by))]
    if not losses:
        raise ConfigError(f"by={by!r}: no update was made between the tests that count: train for more env steps")
    return -float(np.mean(losses))


def failed_of(tool: str, trainings: Sequence[Training], names: Sequence[str]) -> list[Training]:
    """Return the trainings that failed; raises AgentError, naming the first one, if all did.

    names: of the candidates.
    """
    failed = [training for training in trainings if training.error]
    if len(failed) == len(trainings):
        first = f"candidate {names[failed[0].candidate]!r}, seed {failed[0].seed}"
        raise AgentError(f"{tool}: every training failed; the first one, of {first}: {failed[0].error}")
    return failed


def loss_of(losses: Mapping[str, float], name: str = LOSS) -> float:
    """Return a loss by name, or the total for "loss"; nan without losses. Raises ConfigError for an unknown name."""
    if not losses:
        return math.nan
    if name == LOSS:
        return losses.get(TOTAL, sum(losses.values()))
    if name not in losses:
        raise ConfigError(f"by={name!r}: the updates measure {', '.join(sorted(losses))}; {LOSS!r} is the total")
    return losses[name]
