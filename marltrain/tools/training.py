"""Many trainings at once: candidates and seeds on copies of an environment, agents of equal kind in one learner.

Every training equals a run of a `DecentralizedTrainer` of its seed alone, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from marltrain.envs import Source
from marltrain.envs.population import population_of
from marltrain.errors import ConfigError, error_text, shown, warn
from marltrain.layout import Array
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.algorithms.joint import JointAlgorithm
from marltrain.trainer.callbacks import Callback, Moment
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.evaluating.selection import measured
from marltrain.trainer.settings import RewardMetric
from marltrain.trainer.updating.scheduler import NotFiniteError, drop_rollouts

LOSS, TOTAL = "loss", "loss/total"
"""Beginning of the names of losses among the metrics of updates, and the name of the total."""
TESTS = 10
"""Default number of tests of a training, besides the first."""
OF_TOOLS = {
    "callbacks": "the tools have none",
    "env_args": "give env_args beside it",
    "name": "trainings of tools have none",
    "progress": "trainings of tools show none",
    "reward_metric": "give reward_metric beside it",
    "run_dir": "trainings of tools write no files",
    "seed": "give the tool's own seed or seeds",
    "steps_per_train": "give steps",
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
        cls, tool: str, source: Source, steps: int, reward_metric: RewardMetric, trainer: Mapping[str, Any] | None,
        every: int | None = None,
    ) -> Plan:  # fmt: skip
        """Return the plan of a tool whose argument `trainer` holds further arguments of the trainer.

        every: env steps between tests; None: a tenth.  There are 20 episodes per test unless `trainer` says otherwise.
        Raises ConfigError for arguments that the tool sets itself, for trainings without tests, and for two numbers of
        env steps between tests.
        """
        given = dict(trainer or {})
        for name, remedy in OF_TOOLS.items():
            if name in given:
                raise ConfigError(f"{tool}: trainer={{{name!r}: {shown(given[name])}}} cannot be given: {remedy}")
        if every is not None and given.get("test_freq_steps", every) != every:
            raise ConfigError(
                f"{tool}: every={every} and trainer={{'test_freq_steps': {shown(given['test_freq_steps'])}}} are both "
                "env steps between tests: leave one of them out"
            )
        settings = {"test_freq_steps": every or max(1, steps // TESTS), "episodes_per_test": 20, **given}
        if settings["test_freq_steps"] is None:
            raise ConfigError(f"{tool}: trainer={{'test_freq_steps': None}}: the metric needs tests; give env steps")
        return cls(source, steps, reward_metric, settings)

    def trainer(self, source: Source, seed: int, callback: Callback) -> DecentralizedTrainer:
        """Return a trainer that writes no files."""
        return DecentralizedTrainer(
            source, seed=seed, steps_per_train=self.steps, callbacks=[callback], run_dir=False, progress=False,
            reward_metric=lambda returns: 0.0, **self.settings,  # `metric` measures each training by itself
        )  # fmt: skip

    def metric(self, returns: Array, learns: Sequence[bool]) -> float:
        """Return the metric of returns [episodes, players] of a test; learns: [players]."""
        if self.reward_metric is not None:
            return measured(self.reward_metric, returns)
        return float(returns[:, np.array(learns)].mean())


Watch = Callable[[Sequence[Training]], None]
"""Called after every test with the trainings under way.

It may end one by `stopped = True`. It must set `replaced = True` for one whose agents it gives other weights.
"""


def train_all(
    plan: Plan, trainings: Sequence[Training], watch: Watch = lambda trainings: None, *, alone: bool = True
) -> None:
    """Train all at once, those that cannot be trained so one after another.

    alone: if the trainings fail together, warn, and repeat each that was not stopped before alone; `Training.error`
      then holds the errors of those that fail, and `watch` sees their tests again. False: raise the error.
    Raises the errors of `Training.make` and of `watch`.
    """
    refusals: list[Exception] = []

    def watched(going: Sequence[Training]) -> None:
        try:
            watch(going)
        except Exception as error:
            refusals.append(error)
            raise

    for training in trainings:
        training.begin()
    together = [training for training in trainings if fits_population(training.agents)]
    if len(together) < 2:
        together = []
    apart = [training for training in trainings if training not in together]
    try:
        if together:
            _train_together(plan, together, watched)
    except Exception as error:  # one of them fails, and ends the others: alone, each fails for itself
        if refusals or not alone:
            raise
        repeated = [training for training in together if not training.stopped]
        warn(f"{len(together)} trainings failed together: {error_text(error)}. {len(repeated)} are repeated alone")
        for training in repeated:
            training.begin()
        apart = [training for training in trainings if training in apart or training in repeated]
    for training in apart:
        _train_alone(plan, training, watched)
        if refusals:
            raise refusals[0]


def fits_population(agents: Sequence[Agent]) -> bool:
    """Return whether agents can be trained on a copy of the environment among others.

    Agents that learn together, read global states or tell players apart by name need the environment itself.
    """
    learning = [agent for agent in agents if isinstance(agent, LearningAgent)]
    if any(agent.identity or isinstance(agent.algorithm, JointAlgorithm) for agent in learning):
        return False
    return len(learning) == sum(agent.learns for agent in agents) and not any(
        agent.algorithm.needs().state or agent.algorithm.needs().joint_actions for agent in learning
    )


def _train_together(plan: Plan, trainings: Sequence[Training], watch: Watch) -> None:
    """Train on copies of the environment; agent p of training n holds seat p * N + n."""
    source = population_of(plan.source, [training.seed for training in trainings])
    recorder = _Recorder(plan, trainings, watch)
    recorder.trainer = plan.trainer(source, trainings[0].seed, recorder)
    agents = [training.agents[p] for p in range(len(trainings[0].agents)) for training in trainings]
    learns = [agent.learns for agent in agents]
    recorder.trainer.train(agents, learns, plot=False, on_interrupt="raise")


def _train_alone(plan: Plan, training: Training, watch: Watch) -> None:
    """Train as an ordinary run; an error of the run becomes that of the training."""
    recorder = _Recorder(plan, [training], watch)
    recorder.trainer = plan.trainer(plan.source, training.seed, recorder)
    try:
        learns = [agent.learns for agent in training.agents]
        recorder.trainer.train(training.agents, learns, plot=False, on_interrupt="raise")
    except Exception as error:
        training.error, training.stopped = error_text(error), True


class _Recorder(Callback):
    """Records the tests of trainings, and ends trainings early."""

    only_watches = True  # it ends trainings, which changes nothing in those that go on

    def __init__(self, plan: Plan, trainings: Sequence[Training], watch: Watch) -> None:
        self.plan, self.trainings, self.watch = plan, trainings, watch
        self.trainer: DecentralizedTrainer
        self._sums: list[dict[str, list[float]]] = [{} for _ in trainings]
        self._places: dict[str, int] = {}

    def on_train_start(self, moment: Moment) -> None:
        """Find the training of every agent; let the others go on after a loss that is not finite."""
        context = self._run.context
        for seated in context.seating.learners:
            for label, players in zip(seated.labels, seated.players, strict=True):
                self._places[label] = int(players[0]) % len(self.trainings)
        if len(self.trainings) > 1:
            for scheduler in context.schedulers:
                labels = scheduler.seated.labels
                scheduler.on_not_finite = lambda error, labels=labels: self._diverged(error, labels)

    def on_update_end(self, moment: Moment) -> None:
        """Add up losses."""
        for label, metrics in moment.data["metrics"].items():
            sums = self._sums[self._places[label]]
            for name, value in metrics.items():
                if name.startswith(LOSS) and math.isfinite(value):
                    sums.setdefault(name, []).append(value)

    def on_test_end(self, moment: Moment) -> None:
        """Record a test of every training."""
        returns = moment.data["result"].returns
        returns = returns.reshape(len(returns), -1, len(self.trainings))
        for n, training in enumerate(self.trainings):
            if training.stopped:
                continue
            own = returns[:, :, n]
            metric = self.plan.metric(own[~np.isnan(own[:, 0])], [agent.learns for agent in training.agents])
            losses = {name: float(np.mean(values)) for name, values in self._sums[n].items()}
            training.readings.append(Reading(moment.env_steps, metric, losses))
            self._sums[n] = {}
        self.watch([training for training in self.trainings if not training.stopped])
        self._drop_replaced()
        self._end_stopped()

    @property
    def _run(self) -> Any:
        if self.trainer.run is None:
            raise RuntimeError("callbacks are called while a run is under way")
        return self.trainer.run

    def _diverged(self, error: NotFiniteError, labels: Sequence[str]) -> None:
        for row in error.rows.tolist():
            training = self.trainings[self._places[labels[row]]]
            training.error, training.stopped = error_text(error), True
        self._end_stopped()

    def _drop_replaced(self) -> None:
        """Drop the rollouts so far of the trainings whose agents have other weights now."""
        if not any(training.replaced for training in self.trainings):
            return
        for scheduler in self._run.context.schedulers:
            labels = scheduler.seated.labels
            drop_rollouts(scheduler, np.array([self.trainings[self._places[label]].replaced for label in labels]))
        for training in self.trainings:
            training.replaced = False

    def _end_stopped(self) -> None:
        """End the learning of the trainings that were stopped, and the run after the last of them."""
        going = np.array([not training.stopped for training in self.trainings])
        learns = np.array([agent.learns for agent in self._run.context.seating.agents])
        mask = learns & np.tile(going, len(learns) // len(going))
        if mask.any() and going.all():
            return
        if mask.any():
            self.trainer.learning_mask = mask
        else:
            self.trainer.stop("every training has ended")


def last_tests(readings: Sequence[Reading], final: float) -> Sequence[Reading]:
    """Return the last share `final` of the tests of a training, one at least."""
    return readings[-max(1, round(final * len(readings))) :]


def loss_of(losses: Mapping[str, float], name: str = LOSS) -> float:
    """Return a loss by name, or the total for "loss"; nan without losses. Raises ConfigError for an unknown name."""
    if not losses:
        return math.nan
    if name == LOSS:
        return losses.get(TOTAL, sum(losses.values()))
    if name not in losses:
        raise ConfigError(f"by={name!r}: the updates measure {', '.join(sorted(losses))}; {LOSS!r} is the total")
    return losses[name]
