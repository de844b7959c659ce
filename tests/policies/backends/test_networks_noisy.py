"""Noisy networks (Fortunato et al. 2017) by hand, in both frameworks and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.core.layout import Layout
from marltrain.core.seeds import generator
from marltrain.policies.compiled.network import is_known
from marltrain.policies.networks.specs import CNN, MLP, Head, NetworkDefinition, Plan
from tests.policies.backends.both import BOTH, TORCH, on_both
from tests.policies.some_batches import IMAGE, VECTOR, some_obs

RNG = np.random.default_rng(0)
TWO = [Head(1), Head(3)]
NOISY = NetworkDefinition(MLP(hidden=(7, 6)), TWO, Layout(VECTOR), noisy=0.5)
WIDTHS = [5, 7, 7, 6, 6, 1, 7, 6, 6, 3]  # hidden0, then hidden1 and the output layer of each head


def built(backend: Any, definition: NetworkDefinition, agents: int = 2) -> Any:
    return backend.network(definition, [generator(k, "weights") for k in range(agents)], agents)


def scattered(backend: Any, definition: NetworkDefinition) -> Any:
    """Two agents whose deviations are random numbers, too."""
    net, rng = built(backend, definition), np.random.default_rng(1)
    for k in range(2):
        net.load(k, {name: rng.standard_normal(w.shape, np.float32) for name, w in net.arrays(k).items()})
    return net


def outputs(backend: Any, net: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    with backend.no_gradient():
        return [backend.numpy(out) for out in net(*(backend.tensor(given) for given in inputs))]


def by_hand(w: Any, x: np.ndarray, noise: np.ndarray) -> list[np.ndarray]:
    """One row: each weight is mu + sigma * f(e_in) f(e_out), each bias mu + sigma * f(e_out) (eqs. 9 to 11)."""
    factors = iter(np.split(noise, np.cumsum(WIDTHS)[:-1]))

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        into, out = next(factors), next(factors)
        weight = w[f"{name}.weight"] + w[f"{name}.weight_sigma"] * np.outer(into, out)
        return x @ weight + w[f"{name}.bias"] + w[f"{name}.bias_sigma"] * out

    trunk = np.tanh(linear("hidden0", x))
    return [linear(f"head{h}", np.tanh(linear(f"head{h}.hidden", trunk))) for h in range(2)]


@on_both
def test_every_layer_has_factorized_noise(backend):
    net = scattered(backend, NOISY)
    assert net.plan.noise_widths == WIDTHS
    assert NOISY.noise_width == sum(WIDTHS) == 54
    obs, noise = (RNG.standard_normal((2, 3, width), np.float32) for width in (5, 54))
    outs = outputs(backend, net, obs, noise)
    for k in range(2):
        for row in range(3):
            for out, expected in zip(outs, by_hand(net.arrays(k), obs[k, row], noise[k, row]), strict=True):
                np.testing.assert_allclose(out[k, row], expected, rtol=1e-4, atol=1e-4)
    for out, numpys in zip(outs, net.in_numpy()(obs, noise), strict=True):
        np.testing.assert_allclose(out, numpys, rtol=1e-5, atol=1e-5)


def test_a_network_starts_with_the_means_of_one_without_noise_and_equal_deviations():
    noisy, plain = (built(TORCH, NetworkDefinition(NOISY.spec, TWO, NOISY.layout, noisy=n)) for n in (0.5, 0.0))
    for name, mean in plain.arrays(1).items():
        np.testing.assert_array_equal(noisy.arrays(1)[name], mean)
        fan_in = plain.arrays(1)[name.replace("bias", "weight")].shape[0]
        sigma = noisy.arrays(1)[f"{name}_sigma"]
        assert sigma.shape == mean.shape
        np.testing.assert_allclose(sigma, 0.5 / np.sqrt(fan_in), rtol=1e-6)
    obs = RNG.standard_normal((2, 4, 5), np.float32)
    for a, b in zip(outputs(TORCH, noisy, obs, np.zeros((2, 4, 54), np.float32)), outputs(TORCH, plain, obs),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(a, b)


def test_convolutions_have_no_noise_and_an_ensembles_members_have_the_same():
    image = NetworkDefinition(CNN(hidden=(6,), filters=((4, 3, 2),)), [Head(2)], Layout(IMAGE), members=3, noisy=0.5)
    plan = Plan(image)
    assert plan.noise_widths == [4 * 4 * 3, 6, 6, 2]  # 9 x 8 pixels under a kernel of 3 with stride 2
    obs, noise = some_obs(RNG, IMAGE, (2, 3)), RNG.standard_normal((2, 3, image.noise_width), np.float32)
    assert isinstance(obs, np.ndarray)
    first, second = (outputs(backend, built(backend, image), obs, noise)[0] for backend in BOTH.values())
    assert first.shape == (2, 3, 3, 2)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)
    quiet = outputs(TORCH, built(TORCH, image), obs, np.zeros_like(noise))[0]
    assert np.abs(first - quiet).min() > 0


@pytest.mark.parametrize("noisy", [0.0, 0.5])
def test_compiled_code_leaves_noisy_networks_out(noisy):
    assert is_known(built(TORCH, NetworkDefinition(MLP(), [Head(3)], Layout(VECTOR), noisy=noisy))) is (noisy == 0)
