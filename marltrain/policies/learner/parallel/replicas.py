"""Replicas: child processes that compute the gradient steps of a learner, each on a part of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, error_text
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.randomness import drawn_seed
from marltrain.policies.backends.strategies import DataParallel, Member, Strategy
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.algorithm import Algorithm, Phase
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.parallel.processes import Processes, free_ports
from marltrain.policies.learner.parallel.replica import AlgorithmReplica, Replica, unpickled
from marltrain.policies.learner.trained_team import ALONE, Columns, TrainedTeam

if TYPE_CHECKING:
    from marltrain.policies.learner.parallel.ray_processes import RayProcesses

_ADVICE = (
    "If it ran out of memory, use fewer processes or a smaller network; without strategy= the agents learn in the "
    "trainer's own process"
)


class Replicas(GradientSteps):
    """The gradient passes of one learner in the processes of a strategy, which the first update starts.

    Each process holds a replica of the learner. The replicas are loaded from the learner at the start and after the
    learner has loaded an agent. After every update the learner copies the updated weights from a replica.
    """

    def __init__(self, strategy: Strategy, team: TrainedTeam) -> None:
        """Prepare the processes without starting them; raises ConfigError for an algorithm that cannot be pickled.

        team: agents alone.
        """
        algorithm, self.weights = team.algorithm, team.members[ALONE].weights
        made_of = type(algorithm), algorithm.settings, algorithm.layout, algorithm.action_space
        held = partial(AlgorithmReplica, made_of, team.num_agents)
        self.processes = Team(strategy, team.backend, held, f"{algorithm.name}: its class and settings")
        given = self.processes, algorithm, self.weights.custom
        super().__init__(team, [SharedGradientStep(n, phase, *given) for n, phase in enumerate(algorithm.phases)])

    def begin(self) -> None:
        """Start the processes, and load the weights if the replicas are outdated."""
        self.processes.start()
        if self.processes.outdated:
            self.processes.ask_all("assign", self.weights.trained(targets=True))
            self.processes.outdated = False

    def end(self) -> None:
        """Copy weights and moments from the first replica; all replicas have the same values."""
        if self.processes.moved:
            self.weights.assign(self.processes.ask([("trained",)])[0])
            self.processes.moved = False

    def update_targets(self, share: Array, of_team: float = 0.0) -> None:
        """Move the target networks of the replicas and of the learner by `share` [K]."""
        self.processes.ask_all("update_targets", share)
        super().update_targets(share)

    def outdated(self) -> None:
        """Load the replicas again before the next update."""
        self.processes.outdated = True

    def close(self) -> None:
        """End the processes, and the threads."""
        super().close()
        self.processes.close()


class Team:
    """The processes of a strategy, for one learner.

    outdated: whether the processes lack the learner's weights.  moved: whether the learner lacks their updates.
    """

    def __init__(self, strategy: Strategy, backend: Backend, held: Callable[..., Any], what: str) -> None:
        """Prepare the arguments of the processes; see `Replica.hold` for `held`, and `what` for the error.

        Raises ConfigError if `held` cannot be pickled.
        """
        self.strategy, self.backend = strategy, backend
        self.outdated, self.moved = True, False
        self.held = _by_value(backend, strategy, held, what)
        self._processes: Processes | RayProcesses | None = None

    def start(self) -> None:
        """Start the processes unless they are running; raises WorkerError if one fails."""
        if self._processes is not None:
            return
        backend, strategy = self.backend, self.strategy
        names = [f"{name} of {strategy}" for name in strategy.members()]
        ports, threads = free_ports(len(names)), max(1, backend.threads() // strategy.computing())
        members = [
            Member(strategy, i, ports, backend.name, str(backend.device), threads, self.held) for i in range(len(names))
        ]
        if isinstance(strategy, DataParallel) and strategy.address is not None:
            from marltrain.policies.learner.parallel.ray_processes import RayProcesses

            self._processes = RayProcesses(names, [_on_ray(m, strategy) for m in members], strategy, _ADVICE)
        else:
            self._processes = Processes(names, Replica, members, _ADVICE)

    def ask(self, orders: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send order i to member i and return the answers.

        If a member dies or fails, all processes are ended and WorkerError names the member.
        """
        if self._processes is None:
            raise RuntimeError("the processes are started by Replicas.begin")
        try:
            return self._processes.ask(orders)
        except BaseException:
            self.close()
            raise

    def ask_all(self, *order: Any) -> list[Any]:
        """Send the same order to every member that holds a learner."""
        return self.ask([order] * self.strategy.learning())

    def close(self) -> None:
        """End the processes; `start` starts them again."""
        if self._processes is not None:
            self._processes.close()
        self._processes, self.outdated, self.moved = None, True, False

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each running member."""
        return {} if self._processes is None else dict(zip(self.strategy.members(), self._processes.pids, strict=True))


class SharedGradientStep:
    """The gradient pass of one phase: `over_rows` runs in this process, the rest in the replicas."""

    def __init__(self, number: int, phase: Phase, team: Team, algorithm: Algorithm, custom: bool) -> None:
        """Store the phase and its index `number` in the algorithm.

        custom: whether a network is a user's model, which may draw random numbers.
        """
        self.number, self.phase, self.team, self.algorithm, self._custom = number, phase, team, algorithm, custom
        self.metrics: tuple[str, ...] = ()

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make one gradient pass for the agents where `due` [K] is True; see `GradientStep`."""
        team, batch = self.team, TensorBatch(**columns[ALONE])
        with team.backend.no_gradient():
            self.algorithm.over_rows(team.backend.ops, batch)
        arrays, data = (map_tree(team.backend.numpy, tree) for tree in (batch.columns, dict(numbers)))
        parts, seed = team.strategy.learning(), drawn_seed() if self._custom else None
        team.moved = True
        answers = team.ask(
            [("make", self.number, {ALONE: part_of(arrays, i, parts)}, data, due, seed) for i in range(parts)]
        )
        self.metrics, values = answers[0]
        return team.backend.tensor(values)


def part_of(columns: dict[str, Any], part: int, parts: int) -> dict[str, Any]:
    """Return part `part` of `parts` equal parts of rows [K, B, ...]; missing rows are copies with weight 0."""
    rows = columns["weight"].shape[1]
    width = -(-rows // parts)
    wanted = np.arange(part * width, (part + 1) * width)
    index = np.minimum(wanted, rows - 1)
    cut: dict[str, Any] = map_tree(lambda array: array[:, index], columns)
    cut["weight"] = cut["weight"] * (wanted < rows).astype(np.float32)
    return cut


def _on_ray(member: Member, strategy: DataParallel) -> Member:
    """Return the member with the device and the threads that the resources of its actor give."""
    given = strategy.resources or {}
    device = "cuda" if given.get("num_gpus", 0) > 0 else member.device
    return replace(member, device=device, threads=max(1, int(given.get("num_cpus", member.threads))))


def _by_value(backend: Backend, strategy: Strategy, held: Callable[..., Any], what: str) -> bytes:
    """Return a function as bytes, with the classes and functions of the user's script."""
    try:
        sent = backend.pickled(held)
        unpickled(sent)  # a user's class may fail only here
    except Exception as error:
        raise ConfigError(f"{what} cannot be sent to the processes of {strategy}: {error_text(error)}") from error
    return sent
