"""Strategies that distribute the gradient steps of a learner over devices or processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.processes.ray_actors import ANSWER, check_resources

MOST = 1024
"""Maximum number of devices or processes of one machine that share a minibatch."""

LOOPBACK = "127.0.0.1"
JOINED = ("CollectiveAllReduceStrategy", "MultiWorkerMirroredStrategy")
"""Class names of `tf.distribute.MultiWorkerMirroredStrategy`."""


@dataclass(frozen=True)
class Strategy:
    """Base class of strategies: replicas compute gradients on parts of a minibatch, and the sum is applied.

    backend: the framework of the strategy.
    """

    backend: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the settings; raises ConfigError."""
        validate(self, type(self).__name__)

    @property
    def shares_variables(self) -> bool:
        """Whether replicas compute with the same variables, which a layer must not change in a call then."""
        return False

    def members(self) -> tuple[str, ...]:
        """Return the names of the started processes; empty if all work is in the learner's own process."""
        return ()

    def learning(self) -> int:
        """Return the number of processes that get rows and hold a learner; these are the first ones."""
        return len(self.members())

    def computing(self) -> int:
        """Return the number of processes that compute at the same time."""
        return len(self.members())


@checked_arguments
@dataclass(frozen=True)
class MirroredStrategy(Strategy):
    """Devices of this process with `tf.distribute.MirroredStrategy`: the first GPUs, or as many logical CPUs."""

    backend: ClassVar[str] = "tensorflow"
    replicas: int = setting(2, doc="devices that share a minibatch", low=1, high=MOST)

    @property
    def shares_variables(self) -> bool:
        """See `Strategy`."""
        return True


@dataclass(frozen=True)
class LiveStrategy(Strategy):
    """A strategy object of `tf.distribute` given by the user: the devices of this process, or a joined cluster."""

    backend: ClassVar[str] = "tensorflow"
    given: Any = setting(doc="the object")

    @property
    def shares_variables(self) -> bool:
        """See `Strategy`."""
        return type(self.given).__name__ not in JOINED


@checked_arguments
@dataclass(frozen=True)
class MultiWorkerMirroredStrategy(Strategy):
    """Worker processes that sum gradients with `tf.distribute.MultiWorkerMirroredStrategy`.

    With workers=None, this process is a worker itself, of the cluster that the variable TF_CONFIG describes. Each of
    its processes makes the same run, and computes a part of every gradient.
    """

    backend: ClassVar[str] = "tensorflow"
    workers: int | None = setting(2, doc="processes that share a minibatch; None: the cluster of TF_CONFIG", low=1,
                                  high=MOST)  # fmt: skip

    def members(self) -> tuple[str, ...]:
        """Return the names of the workers that are started."""
        return tuple(f"worker {i}" for i in range(self.workers or 0))


@checked_arguments
@dataclass(frozen=True)
class ParameterServerStrategy(Strategy):
    """Servers hold the weights, workers compute gradients, and a chief sums and applies them, synchronously.

    Uses `tf.distribute.ParameterServerStrategy` and its coordinator.
    """

    backend: ClassVar[str] = "tensorflow"
    workers: int = setting(2, doc="processes that share a minibatch", low=1, high=MOST)
    servers: int = setting(1, doc="processes that hold weights and moments", low=1, high=MOST)

    @property
    def shares_variables(self) -> bool:
        """See `Strategy`."""
        return True

    def members(self) -> tuple[str, ...]:
        """Return the names of the chief, the workers and the servers."""
        helpers = [f"worker {i}" for i in range(self.workers)] + [f"server {i}" for i in range(self.servers)]
        return ("chief", *helpers)

    def learning(self) -> int:
        """Return 1: only the chief holds a learner; it distributes the work."""
        return 1

    def computing(self) -> int:
        """Return the number of workers; chief and servers need little computing time."""
        return self.workers


@checked_arguments
@dataclass(frozen=True)
class DataParallel(Strategy):
    """Processes that sum gradients with `torch.distributed` (gloo): children of this one, or actors of a Ray cluster.

    With an `address`, as in `DecentralizedTrainer`, they are Ray actors, on the nodes that have the `resources`.
    """

    backend: ClassVar[str] = "torch"
    processes: int = setting(2, doc="processes that share a minibatch", low=1, high=MOST)
    address: str | None = setting(None, doc="Ray cluster: host:port, auto, or local; None: no Ray")
    resources: Mapping[str, float] | None = setting(None, doc="what each Ray actor occupies")
    timeout: float = setting(ANSWER, doc="maximum seconds of an actor's answer", above=0)

    def __post_init__(self) -> None:
        """Check the settings; raises ConfigError."""
        super().__post_init__()
        check_resources(self.resources, "DataParallel: resources")
        if self.address is None and self.resources is not None:
            raise ConfigError(
                "DataParallel: resources are those of Ray actors: give the address of the cluster, too, such as "
                'address="auto", or leave resources out'
            )

    def __repr__(self) -> str:
        """Return the settings without those of Ray if there are none."""
        ray = "" if self.address is None else f", address={self.address!r}, resources={self.resources!r}"
        return f"DataParallel(processes={self.processes}{ray})"

    def members(self) -> tuple[str, ...]:
        """Return the names of the processes."""
        return tuple(f"process {i}" for i in range(self.processes))


@dataclass(frozen=True)
class Member:
    """Arguments of one process of a strategy.

    index: its index in `strategy.members()`.
    ports: one free port of the loopback device per member; of Ray actors, one of the first member.
    first, address: addresses of the first member and of this one.
    backend, device: names of its backend and device.  threads: its number of threads.
    held: what the member holds if it learns, see `Replica.hold`.
    """

    strategy: Strategy
    index: int
    ports: tuple[int, ...]
    backend: str
    device: str
    threads: int
    held: bytes
    first: str = LOOPBACK
    address: str = LOOPBACK

    @property
    def learns(self) -> bool:
        """Whether the member holds a learner; the other members assist those."""
        return self.index < self.strategy.learning()


STRATEGIES: dict[str, type[Strategy]] = {
    made.__name__: made
    for made in (DataParallel, MirroredStrategy, MultiWorkerMirroredStrategy, ParameterServerStrategy)
}


def parts_differ(what: str, couples: str, strategy: Strategy) -> str:
    """Return the error for a model whose rows depend on each other; couples: see `Trial`."""
    return (
        f"{what}: {couples}, and {strategy} splits the rows of a batch, so that the gradient would not be that of one "
        "device: normalize each row by itself (LayerNorm, GroupNorm) in place of the batch, or leave strategy= out"
    )


def chosen(given: Any, backend: str) -> Strategy | None:
    """Return the strategy for the argument `strategy=` of an agent.

    given: a strategy, its name for the default settings, a `tf.distribute.MirroredStrategy` object, or None.
    Raises ConfigError for any other value, and for a strategy of another backend.
    """
    if given is None:
        return None
    strategy = _known(given)
    if strategy.backend != backend:
        instead = [name for name, known in STRATEGIES.items() if known.backend == backend]
        raise ConfigError(
            f"strategy {strategy} is for backend {strategy.backend!r}, the agent is made with backend={backend!r}. "
            f"Use {' or '.join(instead)} here, or backend={strategy.backend!r}"
        )
    return strategy


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
    if module.startswith("tensorflow.") and name in ("MirroredStrategy", *JOINED):
        return LiveStrategy(given)
    raise ConfigError(
        f"strategy must be one of {', '.join(STRATEGIES)}, the name of one, or a MirroredStrategy or "
        "MultiWorkerMirroredStrategy of tf.distribute, got "
        f"{given!r}.{_starts_itself(module, name)}"
    )


def _starts_itself(module: str, name: str) -> str:
    """Return a hint for an object of a parameter server strategy, otherwise ""."""
    if module.startswith("tensorflow.") and "ParameterServer" in name:
        return " marltrain starts the processes itself: write strategy=mt.ParameterServerStrategy(workers=2, servers=1)"
    return ""
