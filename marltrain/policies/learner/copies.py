"""ActingCopies: the networks that a learner acts with while another thread updates the originals."""

from __future__ import annotations

from collections.abc import Callable

from marltrain.checks import finite
from marltrain.policies.backends.base import Network
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.weights import Weights
from marltrain.state import State


class ActingCopies:
    """Copies of a learner's networks for acting; none until `begin`.

    nets: name -> copy.  wait: waits for the thread that updates the originals; called before an agent is read or
    changed.
    """

    def __init__(self, actor: Actor, weights: Weights) -> None:
        """Store the actor and the trained weights; the actor acts with the trained networks."""
        self.actor, self.weights = actor, weights
        self.end()

    def begin(self, wait: Callable[[], object]) -> None:
        """Act with copies of the networks."""
        self.nets: dict[str, Network] = {name: net.copy() for name, net in self.weights.nets.items()}
        self.wait = wait
        self.actor.use(self.nets)

    def sync(self) -> None:
        """Copy the current weights into the copies."""
        for name, net in self.nets.items():
            net.assign(self.weights.nets[name].flat)
            net.discard_copies()

    def end(self) -> None:
        """Act with the trained networks."""
        self.nets, self.wait = {}, _no_thread
        self.actor.use(self.weights.nets)

    def state(self) -> State:
        """Return the weights of the copies."""
        return State({}, {name: self.weights.backend.numpy(net.flat) for name, net in self.nets.items()})

    def restore(self, state: State) -> None:
        """Restore the weights of the copies."""
        backend = self.weights.backend
        for name, net in self.nets.items():
            now = backend.numpy(net.flat)
            net.assign(backend.tensor(finite(state.place(name), state.array(name, now.dtype, now.shape))))
            net.discard_copies()


def _no_thread() -> None:
    """Do nothing: no thread updates the networks."""
