"""Strategies that distribute the gradient steps of a learner over devices or processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.config import checked_arguments, setting, validate
from marltrain.errors import ConfigError, did_you_mean

MOST = 1024
"""Devices or processes of one machine that share a minibatch."""


@dataclass(frozen=True)
class Strategy:
    """How a learner's minibatches are shared out: replicas compute gradients of their rows, the sum is applied.

    backend: the framework that it belongs to.
    """

    backend: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the numbers; raises ConfigError."""
        validate(self, type(self).__name__)

    def members(self) -> tuple[str, ...]:
        """Name the processes that it starts; none: the learner's own process does everything."""
        return ()

    def learning(self) -> int:
        """Return how many of them, the first ones, are given rows and hold a learner."""
        return len(self.members())

    def computing(self) -> int:
        """Return how many of them compute at the same time."""
        return len(self.members())


@checked_arguments
@dataclass(frozen=True)
class MirroredStrategy(Strategy):
    """Devices of this process, by `tf.distribute.MirroredStrategy`: the first GPUs, or as many logical CPUs."""

    backend: ClassVar[str] = "tensorflow"
    replicas: int = setting(2, doc="devices that share a minibatch", low=1, high=MOST)


@dataclass(frozen=True)
class LiveStrategy(Strategy):
    """A user's own `tf.distribute.MirroredStrategy`: the devices that it names."""

    backend: ClassVar[str] = "tensorflow"
    given: Any = setting(doc="the object")


@checked_arguments
@dataclass(frozen=True)
class MultiWorkerMirroredStrategy(Strategy):
    """Worker processes that sum gradients among themselves, by `tf.distribute.MultiWorkerMirroredStrategy`."""

    backend: ClassVar[str] = "tensorflow"
    workers: int = setting(2, doc="processes that share a minibatch", low=1, high=MOST)

    def members(self) -> tuple[str, ...]:
        """Name the workers."""
        return tuple(f"worker {i}" for i in range(self.workers))


@checked_arguments
@dataclass(frozen=True)
class ParameterServerStrategy(Strategy):
    """Servers hold the weights, workers compute gradients, a chief sums and applies them, all in step.

    By `tf.distribute.ParameterServerStrategy` and its coordinator.
    """

    backend: ClassVar[str] = "tensorflow"
    workers: int = setting(2, doc="processes that share a minibatch", low=1, high=MOST)
    servers: int = setting(1, doc="processes that hold weights and moments", low=1, high=MOST)

    def members(self) -> tuple[str, ...]:
        """Name the chief, the workers and the servers."""
        helpers = [f"worker {i}" for i in range(self.workers)] + [f"server {i}" for i in range(self.servers)]
        return ("chief", *helpers)

    def learning(self) -> int:
        """Only the chief holds a learner; it gives the others their work."""
        return 1

    def computing(self) -> int:
        """The workers; the chief and the servers have little to do meanwhile."""
        return self.workers


@checked_arguments
@dataclass(frozen=True)
class DataParallel(Strategy):
    """Processes that sum gradients among themselves, by `torch.distributed` (gloo)."""

    backend: ClassVar[str] = "torch"
    processes: int = setting(2, doc="processes that share a minibatch", low=1, high=MOST)

    def members(self) -> tuple[str, ...]:
        """Name the processes."""
        return tuple(f"process {i}" for i in range(self.processes))


@dataclass(frozen=True)
class Member:
    """What one process of a strategy is told.

    index: its place in `strategy.members()`.  ports: a free one on the loopback device for each of them.
    backend, device, threads: what it computes with.  num_agents: K.
    algorithm: class, settings, layout and action space, by cloudpickle.
    """

    strategy: Strategy
    index: int
    ports: tuple[int, ...]
    backend: str
    device: str
    threads: int
    num_agents: int
    algorithm: bytes

    @property
    def learns(self) -> bool:
        """Whether it holds a learner; others lend themselves to those that do."""
        return self.index < self.strategy.learning()


STRATEGIES: dict[str, type[Strategy]] = {
    made.__name__: made
    for made in (DataParallel, MirroredStrategy, MultiWorkerMirroredStrategy, ParameterServerStrategy)
}


def chosen(given: Any, backend: str) -> Strategy | None:
    """Return the strategy that a user means.

    given: a strategy, the name of one, which means its defaults, a live `tf.distribute.MirroredStrategy`, or None.
    Raises ConfigError for anything else, and for a strategy of another backend.
    """
    if given is None:
        return None
    made = _known(given)
    if made.backend != backend:
        instead = [name for name, known in STRATEGIES.items() if known.backend == backend]
        raise ConfigError(
            f"strategy {made} is for backend {made.backend!r}, the agent is made with backend={backend!r}. "
            f"Use {' or '.join(instead)} here, or backend={made.backend!r}"
        )
    return made


def _known(given: Any) -> Strategy:
    if isinstance(given, Strategy):
        return given
    if isinstance(given, str) and given in STRATEGIES:
        return STRATEGIES[given]()
    if isinstance(given, str):
        raise ConfigError(
            f"no strategy is called {given!r}.{did_you_mean(given, STRATEGIES)} There are {', '.join(STRATEGIES)}"
        )
    module, name = type(given).__module__, type(given).__name__
    if module.startswith("tensorflow.") and name == "MirroredStrategy":
        return LiveStrategy(given)
    raise ConfigError(
        f"strategy must be one of {', '.join(STRATEGIES)}, the name of one, or a tf.distribute.MirroredStrategy, got "
        f"{given!r}.{_starts_itself(module, name)}"
    )


def _starts_itself(module: str, name: str) -> str:
    """Say what to write in place of an object that would connect the user's own process to a cluster."""
    meant = {
        "CollectiveAllReduce": "MultiWorkerMirroredStrategy(workers=2)",
        "ParameterServer": "ParameterServerStrategy(workers=2, servers=1)",
    }
    for part, instead in meant.items():
        if module.startswith("tensorflow.") and part in name:
            return f" marltrain starts the processes itself: write strategy=mt.{instead}"
    return ""
