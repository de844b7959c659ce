"""The monotonic mixing network of QMIX: Rashid et al. 2018 (arXiv:1803.11485, section 4.1)."""

from __future__ import annotations

from typing import Any

from marltrain.policies.algorithms.central_critic import INPUTS
from marltrain.policies.memory.needs import StateNeed
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition
from marltrain.policies.ops import Ops

MIXER = "mixer"
"""Name of the mixer among the networks of a team."""


class MonotonicMixer:
    """Mixes the values of a team's players by weights that a network makes from the global state.

    units: hidden units of the mixture.  skip: whether the sum of the values is added to it.
    """

    def __init__(self, settings: Any, *, gain: float = 1.0, skip: bool = False) -> None:
        """Read `mixing_units`, `hyper_units`, `mixer_input`, `team_size` and `state_size`.

        gain: gain of the initial weights of the network's last layer.  skip: add the sum of the values to the mixture.
        """
        self._settings, self._gain = settings, gain
        self.units, self.skip = settings.mixing_units, skip
        self.need = StateNeed(INPUTS[settings.mixer_input] or "state", settings.state_size or 0)

    def network(self) -> NetworkDefinition:
        """Return the network, which makes weights, biases and V(s) from the state; they have one hidden layer.

        The paper's layer is relu. With tanh, the weights stay bounded in states that training has not seen; otherwise
        they grow with the state, multiply the bootstrapped values, and these diverge.
        """
        settings = self._settings
        spec, head = MLP((settings.hyper_units,), "tanh"), Head(sum(self._widths), self._gain)
        return NetworkDefinition(spec, [head], None, vectors=(settings.state_size,))

    @property
    def _widths(self) -> list[int]:
        """Numbers of outputs: W1, b1, w2 and V(s)."""
        return [self._settings.team_size * self.units, self.units, self.units, 1]

    def mixed(self, ops: Ops, net: Any, values: Any, state: Any) -> Any:
        """Return |w2(s)| elu(|W1(s)| q + b1(s)) + V(s), [1, B], which increases in every value q_i of [1, B, N]."""
        first, bias, second, value = ops.split(net(state)[0], self._widths)
        weights = ops.unflatten(ops.absolute(first), self.units)  # [1, B, N, units]
        hidden = ops.elu(ops.sum(values[..., None] * weights, -2) + bias)
        mixture = ops.sum(hidden * ops.absolute(second), -1) + value[..., 0]
        return mixture + ops.sum(values, -1) if self.skip else mixture
