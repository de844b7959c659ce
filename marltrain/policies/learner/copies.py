"""ActingCopies: the networks that a learner acts with while another thread, or another process, makes its updates."""

from __future__ import annotations

import copy
from collections.abc import Callable

from marltrain.policies.backends.base import Network
from marltrain.policies.batches.normalization import LIMITS
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.weights import Weights
from marltrain.storage.checks import finite, within
from marltrain.storage.state import State


class ActingCopies:
    """Copies of a learner's networks and statistics for acting; none until `begin`.

    nets, statistics: name -> copy.
    wait: waits for the thread that updates the originals, or gets their state from another process; called before an
      agent is read or changed.
    """

    def __init__(self, actor: Actor, weights: Weights) -> None:
        """Store the actor and the trained weights; the actor acts with the trained networks."""
        self.actor, self.weights = actor, weights
        self.end()

    def begin(self, wait: Callable[[], object]) -> None:
        """Act with copies of the networks and statistics."""
        self.nets: dict[str, Network] = {name: net.copy() for name, net in self.weights.nets.items()}
        self.statistics = copy.deepcopy(self.weights.statistics)
        self.wait = wait
        self.actor.use(self.nets, self.statistics)

    def lend(self, wait: Callable[[], object], changed: Callable[[], object]) -> None:
        """Let another process make the updates; without copies.

        wait: see the class.  changed: called after an agent has been loaded or changed here.
        """
        self.wait, self._changed = wait, changed

    def sync(self) -> None:
        """Copy the current weights into the copies."""
        self._changed()
        for name, net in self.nets.items():
            net.assign(self.weights.nets[name].flat)
            net.discard_copies()
        for name, statistics in self.statistics.items():
            statistics.copy_from(self.weights.statistics[name])

    def end(self) -> None:
        """Act with the trained networks."""
        self.nets, self.statistics, self.wait, self._changed = {}, {}, _do_nothing, _do_nothing
        self.actor.use(self.weights.nets, self.weights.statistics)

    def state(self) -> State:
        """Return the weights and statistics of the copies."""
        arrays = {name: self.weights.backend.numpy(net.flat) for name, net in self.nets.items()}
        for name, statistics in self.statistics.items():
            arrays.update({f"statistics/{name}/{key}": value for key, value in statistics.values().items()})
        return State({}, arrays)

    def restore(self, state: State) -> None:
        """Restore the weights of the copies."""
        backend = self.weights.backend
        for name, net in self.nets.items():
            now = backend.numpy(net.flat)
            net.assign(backend.tensor(finite(state.place(name), state.array(name, now.dtype, now.shape))))
            net.discard_copies()
        for name, statistics in self.statistics.items():
            for key, value in statistics.values().items():
                place = f"statistics/{name}/{key}"
                value[...] = within(state.place(place), state.array(place, value.dtype, value.shape), *LIMITS[key])


def _do_nothing() -> None:
    """Do nothing: the networks are updated in this process alone."""
