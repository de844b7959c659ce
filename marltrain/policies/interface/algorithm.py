"""Base of algorithms: networks, acting, and phases with losses. The module imports no framework.

A custom algorithm subclasses `Algorithm`, and a subclass of `LearningAgent` uses it; `algorithms/` has two examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.batches.batch import Acted, ActInputs, Batch
from marltrain.policies.batches.row_draws import Draw
from marltrain.policies.batches.tensor_batch import TensorBatch, WholeBatch
from marltrain.policies.distributions.continuous import Continuous
from marltrain.policies.distributions.draws import Sampling
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.natural_gradient import NaturalGradient
from marltrain.policies.interface.recurrence import carries_of
from marltrain.policies.memory.config import MOST_STEPS
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.default_network import default_network
from marltrain.policies.networks.specs import NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops
from marltrain.policies.optimizers import OPTIMIZERS

Number = float | int | Schedule
MOST_ROWS, MOST_PASSES, FASTEST, MOST_DECAY = 2**24, 10_000, 10.0, 100.0
"""Limits that detect mistyped settings: rows of a batch, passes over a rollout or per env step, learning rate and
weight decay."""
OBSERVATION, STATE, NORMALIZE = "observation", "state", "normalize_observations"
"""Names of the statistics of observations and of global states, and of the setting that asks for them."""
REWARD, NORMALIZE_REWARDS = "sampled_reward", "normalize_rewards"
"""Names of the statistics of rewards that were read from a memory, and of the setting that asks for them."""
Networks = Mapping[str, Callable[..., Any]]
Loss = Callable[..., tuple[Any, dict[str, Any]]]
Targets = Callable[..., None]
RowError = Callable[[Any, Any], Any]
Turns = Callable[[np.random.Generator, int], Array]
"""(generator, K agents) -> [T, K] bool: the agents of a team that a phase trains in each of T turns."""


@dataclass(frozen=True)
class Phase:
    """One part of a gradient pass; phases run in order, and each uses the weights updated by the previous phase.

    Its functions get rows as a `TensorBatch`; see there for the columns that minibatches of a rollout omit.

    trains: names of the trained networks.
    loss: (ops, networks, batch, hyper) -> (loss [K], metrics {name: [K]}); hyper maps names to [K, 1]. Both results are
        sums of weighted rows (`weighted_mean`), because the rows may be split over devices. Of agents that learn
        together: (ops, team) -> (loss [1], metrics: name -> [1], or a list with [K] of each member).
    targets: (ops, networks, batch, hyper) -> None, or (ops, team) -> None; adds the targets of the loss to the rows,
        row by row, without gradients.
    every: run the phase only on every n-th gradient pass.
    draw: draws random numbers for the rows of each gradient pass, which the batch then holds by their names, such as
        the noise of sampled actions; see `row_draws.Draw`. The generators are those of the agents, so that both
        frameworks get the same numbers.
    row_error: (ops, batch) -> [K, B], sizes of the rows' errors, from which a prioritized memory makes priorities. It
        is called after `loss`, with the columns that `targets` and `loss` have added to the batch, and only with a
        prioritized memory.
    natural: solve for a natural gradient step within a trust region, instead of a step of the optimizer. Such a phase
        runs on all rows of a batch, once per update, before the phases that follow a gradient; `every` then counts
        updates.

    Only of agents that learn together:

    team_trains: names of the trained networks of the team.
    apart: each agent has a loss of its own: `loss` returns a list with [K] of each member in place of [1]. The gradient
        of each agent is clipped by its own norm, and an agent whose loss is not finite does not stop the others.
    turns: the agents learn one after another, see `Turns`; None: all at once. A turn has all passes over a rollout.
    """

    name: str
    trains: tuple[str, ...]
    loss: Loss
    targets: Targets | None = None
    every: int = 1
    draw: Draw | None = None
    row_error: RowError | None = None
    natural: NaturalGradient | None = None
    team_trains: tuple[str, ...] = ()
    apart: bool = False
    turns: Turns | None = None


def in_random_order(rng: np.random.Generator, agents: int) -> Array:
    """Return turns in which each agent learns once, in a random order, [K, K]; see `Turns`."""
    order: Array = np.eye(agents, dtype=bool)[rng.permutation(agents)]
    return order


@dataclass(frozen=True)
class CompiledForm:
    """Description of acting for compiled code: a network with one head and an action rule.

    network: name of the network.
    rule: "epsilon_greedy": the outputs are action values; noise "coin" and "choice", hyperparameter "epsilon" (see
      `exploration`).  "categorical": the outputs are logits; noise "sample", extra "log_prob" (see `distributions`).
      "gaussian": the outputs are the means of `distributions.Gaussian`; noise "sample", extras "log_prob" and "raw".
      None: `Algorithm.act` acts.
    actions: the scale and the bounds of the actions of the rule "gaussian".
    """

    network: str
    rule: str | None
    actions: Continuous | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every algorithm.

    For batch_size and update_freq, None means the trainer's argument if it is given, otherwise the algorithm's default
    (`Algorithm.update_freq`) if there is one, otherwise the trainer's default.

    The learner and the trainer look for these names among the fields of a subclass:

    update_freq, batch_size, epochs, minibatches, update_per_step, learning_starts, least_rows: the fields of
      `UpdateSchedule`, which hold when updates are made and from how many rows; a missing one has its
      default.
    gamma: the discount in the batches, a number for each agent.
    epsilon: reported as a metric, and read by acting of the kind "epsilon_greedy" (see `CompiledForm`).
    names that end in "network": a NetworkSpec, a model, a function that makes one, or None; checked as such.
    """

    reads_joint_actions: ClassVar[bool] = False
    """Whether the algorithm reads the actions of all players; `make_agents` then gives it `joint_action_size`."""

    learning_rate: float | Schedule = setting(
        3e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    gamma: float | Schedule = setting(
        0.99, search=Range(0.9, 0.9999, "complement"), doc="discount per decision", low=0, high=1, per_row=True
    )
    max_grad_norm: float | None = setting(0.5, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    batch_size: int | None = setting(None, doc="rows of a minibatch", low=1, high=MOST_ROWS, per_learner=True)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1, high=MOST_STEPS)
    network: Any = setting(None, doc="NetworkSpec or custom model (it is copied); None: MLP, or CNN for images")
    optimizer: str = setting("adam", doc="adam, adamw, adamax, rmsprop or sgd", choices=tuple(OPTIMIZERS))
    weight_decay: float | Schedule = setting(
        0.0, doc="decoupled weight decay (adamw), or L2 penalty in the gradient (the other optimizers)", low=0,
        high=MOST_DECAY, per_row=True,
    )  # fmt: skip
    momentum: float | Schedule = setting(0.0, doc="momentum of sgd", low=0, high=1, per_row=True,
                                         only=("optimizer", "sgd"))  # fmt: skip
    reward_model: Any = setting(
        None,
        saved=False,
        doc="function (observation, action, reward) -> rewards or RewardModel; None: the environment's rewards",
    )
    normalize_observations: bool = setting(
        False, doc="subtract the running mean of the observations' vector and divide by its standard deviation"
    )

    @classmethod
    def state_kind(cls, given: Mapping[str, Any]) -> str | None:
        """Return the kind of global state that agents with the given settings read, see `StateNeed`; None: no state.

        `make_agents` then gives them the setting `state_size`.
        """
        return None


class Algorithm:
    """Base class of algorithms: acting and learning over arrays with a leading axis K for K agents.

    Class attributes: `name`, `Settings` (a frozen dataclass), `on_policy`, `replays` (on-policy, but with a replay
    memory on demand), `corrects_lag` (on-policy, but learns from rollouts that were acted with earlier weights, see
    `Rollout.lag`), `optimizer_epsilon`, `update_freq` and `batch_size` (defaults where neither the agent nor the
    trainer is given a value; None: the trainer's), `reads_triplets` (losses read the columns of `TripletTransitions`),
    and flags for faster acting. `acts_in_numpy`: the class's own `act` uses only `ops` and its arguments, so that
    it can run in numpy without the framework's overhead, or be recorded once as a program. `noise_by_rows`: the class's
    own `noise` of a + b rows is the noise of a rows followed by that of b rows, so that it can be drawn for many acts
    at once. `noise_by_acts`: the class's own `noise` depends on its arguments only, so that it can be drawn ahead.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Any]] = Settings
    on_policy: ClassVar[bool]
    replays: ClassVar[bool] = False
    corrects_lag: ClassVar[bool] = False
    optimizer_epsilon: ClassVar[float] = 1e-8
    update_freq: ClassVar[int | None] = None
    batch_size: ClassVar[int | None] = None
    reads_triplets: ClassVar[bool] = False
    reads_arrays: ClassVar[bool] = True
    """Whether `prepare`, `prepare_team`, `adapted` or `row_errors` may read observations, legal actions, actions,
    extras or global states of the `batch` as arrays. False: as `tensors` only; on a GPU these columns are then
    gathered there, see `memory.wide_columns`, and are tensors in the batch, too. It holds for the methods that its
    class defines: a subclass that overrides one of them sets it again."""
    ends_update: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    """Function that ends updates over a rollout early; None: all gradient passes are made.

    It is called in each gradient pass, before the step, with the metrics of the losses and the hyperparameters, each
    name -> [K], and returns for which agents [K] the update ends: their step is not made. The other agents go on. It
    gets tensors, and after the pass the same values as arrays: comparisons and arithmetic work on both.
    """
    log_ratio: Callable[[Any, Networks, Any], Any] | None = None
    """Function of the policy's log-ratio: (ops, networks, batch) -> [K, B], log pi(a|s) - log mu(a|s) of each row, for
    the policy mu that acted; None: unknown. Callbacks may ask for the effective sample size; it is then called after an
    update, with the columns of `prepare`."""
    row_errors: Callable[[Any, Networks, WholeBatch, Mapping[str, Any]], Array] | None = None
    """Sizes of the errors of a rollout's rows after an update: (ops, networks, prepared batch, hyper) -> [K, B]. The
    memory of an on-policy algorithm (`Needs.replay`) makes priorities from them."""
    policy_numbers: Callable[[Any, Networks, ActInputs], dict[str, Any]] | None = None
    """Function of the numbers by which acts without exploration choose, with the arguments of `act`, where the noise is
    zero: "probabilities" [K, B, A] of a stochastic policy (those of several choices side by side), or "values"
    [K, B, A] of actions. Exported policies return them; None: they return actions only."""
    sampling: Sampling | None = None
    """How the noise of acts that sample the policy follows from uniform numbers, for exported policies; None for a
    deterministic policy."""
    units: Continuous | None = None
    """The scale and the bounds of actions of a Box, by which `to_units` converts them; None: they have the
    environment's units."""
    acts_in_numpy: ClassVar[bool] = False
    noise_by_rows: ClassVar[bool] = False
    noise_by_acts: ClassVar[bool] = False
    recurrent: tuple[str, ...] = ()
    """Names of the networks that may be recurrent. `act`, `prepare` and losses then give them carries, see
    `memory_of`, and `needs` is the result of `needs_of`."""
    default_network: ClassVar[Callable[[Layout], NetworkSpec]] = staticmethod(default_network)
    """Makes the network for `network=None`."""

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Store structural settings and spaces.

        Raises ConfigError for the normalization of images; subclasses raise SpecError for an unsupported action space.
        """
        self.settings, self.layout, self.action_space = settings, layout, action_space
        if getattr(settings, NORMALIZE, False) and layout.images:
            raise ConfigError(
                f"{self.name}: {NORMALIZE}=True normalizes vectors, and the observation{layout.images[0].where} is an "
                "image, whose pixels the network scales to [0, 1]: leave it out"
            )

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the networks by name, in the order in which weights are drawn."""
        raise missing(self, "networks")

    def compiled_form(self) -> CompiledForm | None:
        """Return the compiled form that may replace the class's own `act` and phases, or None.

        Subclasses do not inherit it, because they may act differently; a subclass defines its own.
        """
        return None

    def targets(self) -> tuple[str, ...]:
        """Return the names of the networks with a target network, which is named "target_<name>"."""
        return ()

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return the share by which target networks move after an agent's n-th update; 1 copies.

        updates: [..., K], the numbers n.  hyper: name -> [..., K], for K agents or several updates of each.
        """
        return np.zeros(updates.shape)

    def statistics(self) -> dict[str, int]:
        """Return the running statistics of each agent, name -> number of values, such as {"return": 1}.

        They are saved with the agent. `prepare` updates them, except those that the learner updates: "observation" and
        "state" of `normalize_observations` after each update, "sampled_reward" of `normalize_rewards` before it. Acting
        uses them unchanged.
        """
        kept = {OBSERVATION: self.layout.vector_size} if getattr(self.settings, NORMALIZE, False) else {}
        return {**kept, REWARD: 1} if getattr(self.settings, NORMALIZE_REWARDS, False) else kept

    @property
    def counted_actions(self) -> int:
        """Number of actions A whose choices by exploring seats are counted; 0: none.

        Acting gets the counts as `hyper["action_counts"]`, [K, A]. They are saved with the agent.
        """
        return 0

    def needs(self) -> Needs:
        """Return the data that the memory must store for the algorithm."""
        raise missing(self, "needs")

    @property
    def prioritized(self) -> bool:
        """Whether transitions are drawn by priorities; the phases then give the rows' errors."""
        needs = self.needs()
        return not needs.on_policy and needs.replay is not None and needs.replay.prioritized is not None

    def numbers(self) -> tuple[str, ...]:
        """Return the names of the hyperparameters: settings that may change in training and differ between agents."""
        return tuple(f.name for f in fields(self.settings) if f.metadata.get("per_row"))

    def rate_name(self, network: str) -> str:
        """Return the name of the setting that holds a network's learning rate."""
        return "learning_rate"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of one gradient pass."""
        raise missing(self, "phases")

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one act for all rows: arrays [K, rows, ...]."""
        raise missing(self, "noise")

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return the actions [K, B, ...], the next carry of an algorithm with a `carry`, and the extras."""
        raise missing(self, "act")

    def carry(self) -> Mapping[str, Column]:
        """Return the state that a player's acts carry from decision to decision: those of recurrent networks, by name.

        The trainer keeps it for each player and environment, sets it to zero when the player's part or the episode
        ends, and saves it in checkpoints. `agent.act` outside a run starts from zero.
        """
        return carries_of(self.networks())

    def to_units(self, action: Array) -> Array:
        """Convert the actions of `act` to the environment's units; see `units`."""
        return action if self.units is None else self.units.to_units(action)

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add columns computed from the whole rollout (values, advantages), without gradients, once per update.

        Use new column names: `reward`, `discount` and `extras` of the rollout do not reach the losses.
        """
        return tensors

    def adapted(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Mapping[str, Array]:
        """Return hyperparameters that change after an update, name -> [K]; without gradients.

        tensors: the result of `prepare`. The new values are saved with the agents, as all hyperparameters are.
        """
        return {}

    def over_rows(self, ops: Ops, batch: TensorBatch) -> None:
        """Compute values that need all rows of a gradient pass, such as normalized advantages, without networks.

        Statistics over rows belong here, because a loss may get only a part of the rows.
        """


def missing(algorithm: Algorithm, what: str) -> TypeError:
    """Return the error of an algorithm that does not define a method."""
    return TypeError(
        f"algorithm {type(algorithm).__name__} must define {what}; see marltrain.policies.interface.algorithm.Algorithm"
    )


def weighted_mean(ops: Ops, x: Any, weight: Any) -> Any:
    """Return the mean of x [K, B] over B, [K], for weights [K, B] with sum 1."""
    return ops.sum(x * weight, -1)


def absolute_error(ops: Ops, batch: Any) -> Any:
    """Return the size of `error` [K, B], which a loss has added to the batch; a `Phase.row_error`."""
    return ops.absolute(batch.error)
