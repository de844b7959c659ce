"""Base of algorithms: networks, acting, and phases with losses. No framework is imported.

A user's own algorithm subclasses `Algorithm` and is held by a `LearningAgent`; see `algorithms/` for two to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from marltrain.config import setting
from marltrain.layout import Array, Layout, Space
from marltrain.policies.batch import Batch, Needs
from marltrain.policies.networks import Head
from marltrain.policies.schedules import Schedule

Number = float | int | Schedule
MOST_STEPS, MOST_ROWS, MOST_PASSES, FASTEST = 2**34, 2**24, 10_000, 10.0
"""Env steps that are kept, rows of a batch, passes over one rollout or for one env step, and a learning rate: what is
beyond these is a typing error."""
Networks = Mapping[str, Callable[..., Any]]
Loss = Callable[[Any, Networks, Any, Mapping[str, Any]], tuple[Any, dict[str, Any]]]
Targets = Callable[[Any, Networks, Any, Mapping[str, Any]], None]


class TensorBatch:
    """A batch in the framework's tensors: `obs, legal, action, reward, discount, weight`, and what was added to it.

    Every value is [K, B, ...], a mapping of such, or None. In a pass the weights of an agent's rows sum to 1, so that a
    weighted sum is a mean, and the sums over parts of the rows add up to it.

    The minibatches of a rollout hold `obs, legal, action, weight` and what `prepare` added. The rest of it (`reward`,
    `discount`, `extras`, `cut`, ...) is left out: what a loss needs of that, `prepare` adds under another name.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a column."""

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a column."""

    def __init__(self, **columns: Any) -> None:
        """Hold the columns as attributes; more may be set."""
        for name, value in columns.items():
            setattr(self, name, value)


@dataclass(frozen=True)
class Phase:
    """One part of an update, run in order; each sees the weights that the last one left.

    Its functions are given some rows as a `TensorBatch`, which says what those of a rollout are without.

    trains: names of the networks that it moves.
    loss: (ops, networks, batch, hyper) -> (loss [K], metrics {name: [K]}); hyper maps names to [K, 1]. Both are sums of
        weighted rows (`weighted_mean`), because the rows may be split over devices.
    targets: (ops, networks, batch, hyper) -> None: adds to the batch what the loss aims at, row by row, without
        gradients.
    every: run it on every n-th gradient pass only.
    """

    name: str
    trains: tuple[str, ...]
    loss: Loss
    targets: Targets | None = None
    every: int = 1


@dataclass(frozen=True)
class CompiledForm:
    """How an algorithm acts and learns, for compiled code: by the one head of a network, a rule and a loss.

    rule: "epsilon_greedy": actions are valued by it; noise "coin" and "choice", and the number "epsilon" (see
      `exploration`).  "categorical": it gives logits; noise "sample", extra "log_prob" (see `distributions`).
    loss: "q": one phase moves that network alone, which has a target: the Huber loss of r + discount * max Q_target.
      "double_q": the next action is chosen by the network itself.  "ppo": one phase trains that network and a critic of
      one output, in this order, by the loss and the settings of `algorithms.ppo`.  None: passes are the framework's.
    """

    network: str
    rule: str
    loss: str | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every algorithm can be told. None of batch_size, update_freq: the trainer's value."""

    learning_rate: float | Schedule = setting(3e-4, doc="step size of every network without one of its own", low=0,
                                              high=FASTEST, per_row=True)  # fmt: skip
    gamma: float | Schedule = setting(0.99, doc="discount a decision", low=0, high=1, per_row=True)
    max_grad_norm: float | None = setting(0.5, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    batch_size: int | None = setting(None, doc="rows of a minibatch", low=1, high=MOST_ROWS)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1, high=MOST_STEPS)
    network: Any = setting(None, doc="NetworkSpec, or a model of your own (it is copied); None: MLP, or CNN for images")
    optimizer: str = setting("adam", doc="rule that moves weights", choices=("adam", "rmsprop", "sgd"))


class Algorithm:
    """One agent's way to act and learn, over arrays with a leading axis K so that K agents run as one.

    Class attributes: `name`, `Settings` (a frozen dataclass), `on_policy`, `optimizer_epsilon`, and two that make acts
    faster. `acts_in_numpy`: the class's own `act` uses nothing but `ops`, so that it is spared the framework's overhead
    where it can be. `noise_by_rows`: its own `noise` of a + b rows is that of a rows followed by that of b, so that it
    can be drawn for many acts at once.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Any]] = Settings
    on_policy: ClassVar[bool]
    optimizer_epsilon: ClassVar[float] = 1e-8
    acts_in_numpy: ClassVar[bool] = False
    noise_by_rows: ClassVar[bool] = False

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Bind structural settings and spaces; raises SpecError for an action space it cannot serve."""
        self.settings, self.layout, self.action_space = settings, layout, action_space

    def networks(self) -> dict[str, tuple[Any, Sequence[Head]]]:
        """Return name -> (NetworkSpec or the user's model, heads), in the order in which weights are drawn."""
        raise _missing(self, "networks")

    def native(self) -> CompiledForm | None:
        """Return how compiled code may act and learn in place of its class's own `act` and phases, or None.

        It is asked of the very class that defines it: a subclass may act otherwise, and says so anew.
        """
        return None

    def targets(self) -> tuple[str, ...]:
        """Name the networks that have a slowly following copy, reachable as "target_<name>"."""
        return ()

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return by how much the targets follow after an agent's n-th update (`updates`); 1 copies.

        Numbers are [..., K]: of K agents, or of several updates of each.
        """
        return np.zeros(updates.shape)

    def needs(self) -> Needs:
        """Return what the memory must keep for it."""
        raise _missing(self, "needs")

    def numbers(self) -> tuple[str, ...]:
        """Return the names of the settings that may change and differ between agents."""
        return tuple(f.name for f in fields(self.settings) if f.metadata.get("per_row"))

    def rate_name(self, network: str) -> str:
        """Name the setting that holds a network's learning rate."""
        return "learning_rate"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of one gradient pass."""
        raise _missing(self, "phases")

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the randomness of one act for all rows: arrays [K, rows, ...]."""
        raise _missing(self, "noise")

    def act(
        self, ops: Any, nets: Networks, obs: Any, legal: Any, noise: Any, explore: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return (action, extras), [K, B, ...]; explore: [K, B] bool."""
        raise _missing(self, "act")

    def to_units(self, action: Array) -> Array:
        """Turn the network's actions into the environment's units (identity unless overridden)."""
        return action

    def prepare(
        self, ops: Any, nets: Networks, batch: Batch, tensors: TensorBatch, hyper: Mapping[str, Any]
    ) -> TensorBatch:
        """Add what a whole rollout has to give (values, advantages), without gradients, once per update.

        Under other names than a rollout has: its `reward`, `discount` and `extras` do not reach the losses.
        """
        return tensors

    def over_rows(self, ops: Any, batch: TensorBatch) -> None:
        """Put in place what a pass needs from all its rows together, such as normalised advantages; no networks here.

        The only place for statistics over rows: a loss may see a part of them.
        """


def _missing(algorithm: Algorithm, what: str) -> TypeError:
    return TypeError(
        f"algorithm {type(algorithm).__name__} must define {what}; see marltrain.policies.algorithms.base.Algorithm"
    )


def weighted_mean(ops: Any, x: Any, weight: Any) -> Any:
    """Return the mean of x [K, B] over B, for weights [K, B] that sum to 1 -> [K]."""
    return ops.sum(x * weight, -1)
