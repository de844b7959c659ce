"""Recorded networks have the outputs and the gradients of torch's, for every kind of layers."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from marltrain.core.layout import Layout, map_tree
from marltrain.core.seeds import generator
from marltrain.policies.learner.programs.recorded_step import DTYPES, arrays_in
from marltrain.policies.networks.specs import CNN, GRU, LSTM, MLP, Head, NetworkDefinition, Plan
from marltrain.policies.tape import ops
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.network import RecordedNetwork
from marltrain.policies.tape.recording import LayerGradient, Recording
from marltrain.policies.tape.symbols import Tape
from tests.policies.backends.both import TORCH
from tests.policies.some_batches import IMAGE, PICTURE_AND_VECTOR, VECTOR
from tests.policies.tape.evaluate import evaluate

AGENTS, ROWS = 2, 8
HEADS = [Head(3), Head(2, free=2, free_start=-0.5)]
LAYOUT, FRAMES = Layout(VECTOR), Layout(spaces.Box(0, 255, (2, 9, 8, 3), np.uint8), 2)
FIRST = Layout(spaces.Box(0, 255, (2, 3, 9, 8), np.uint8), 2)
CONVOLVED_GRU = GRU((6,), units=4, sequence_length=4, filters=((4, 3, 2),))
CONVOLVED = CNN((6,), filters=((4, 3, 2),))
UNEVEN = spaces.Box(np.arange(72, dtype=np.uint8).reshape(9, 8), np.uint8(255), (9, 8), np.uint8)
RNG = np.random.default_rng(0)
DEFINITIONS = {
    "tanh": NetworkDefinition(MLP((6, 5)), HEADS[:1], LAYOUT),
    "heads with layers": NetworkDefinition(MLP((6, 5), "relu"), HEADS, LAYOUT),
    "vectors": NetworkDefinition(MLP((6,), "silu"), HEADS[:1], LAYOUT, vectors=(2, 1)),
    "constants": NetworkDefinition(None, [Head(0, free=2), Head(0, free=1)], None),
    "ensemble": NetworkDefinition(MLP((6,), "gelu"), HEADS[:1], LAYOUT, members=2),
    "noisy": NetworkDefinition(MLP((6,), "elu"), HEADS[:1], LAYOUT, noisy=0.5),
    "gru": NetworkDefinition(GRU((6,), units=4, sequence_length=4), HEADS, LAYOUT),
    "lstm": NetworkDefinition(LSTM((), units=4, sequence_length=2), HEADS, LAYOUT, burn_in=1),
    "flattened images": NetworkDefinition(MLP((6,)), HEADS[:1], Layout(IMAGE)),
    "convolutions": NetworkDefinition(CNN((6,), filters=((4, 3, 2), (5, 2, 1))), HEADS, Layout(IMAGE)),
    "gray images": NetworkDefinition(CNN((6,), filters=((4, 4, 3),)), HEADS[:1], Layout(UNEVEN)),
    "frames": NetworkDefinition(CONVOLVED, HEADS[:1], FRAMES),
    "frames, channels first": NetworkDefinition(CONVOLVED, HEADS[:1], FIRST),
    "gray frames": NetworkDefinition(CONVOLVED, HEADS[:1], Layout(spaces.Box(0, 255, (3, 9, 8), np.uint8), 3)),
    "convolutions and a gru": NetworkDefinition(CONVOLVED_GRU, HEADS[:1], Layout(IMAGE)),
    "ensemble over images": NetworkDefinition(CONVOLVED, HEADS[:1], Layout(PICTURE_AND_VECTOR), members=2),
    "ensemble of grus": NetworkDefinition(GRU((), units=3, sequence_length=4), HEADS[:1], LAYOUT, members=2),
}  # fmt: skip


def some_like(array: np.ndarray) -> np.ndarray:
    """Return random numbers, or pixels, of the shape of an array."""
    if array.dtype == np.uint8:
        return RNG.integers(0, 256, array.shape, np.uint8)
    return RNG.standard_normal(array.shape, np.float32)


def inputs_of(definition: NetworkDefinition) -> list[Any]:
    """Return random inputs of a call, with the noise, or the carries and beginnings of sequences."""
    inputs = [map_tree(some_like, array) for array in definition.empty((AGENTS, ROWS))]
    if definition.noisy:
        inputs.append(RNG.standard_normal((AGENTS, ROWS, definition.noise_width), np.float32))
    if definition.carry_width:
        inputs.append(RNG.standard_normal((AGENTS, ROWS, definition.carry_width), np.float32))
        inputs.append(RNG.random((AGENTS, ROWS)) < 0.3)
    return inputs


def input_of(tape: Tape, part: Any, name: str) -> Any:
    """Return an input of a call on a tape."""
    if isinstance(part, dict):
        return {key: input_of(tape, array, f"{name}/{key}") for key, array in part.items()}
    return tape.input(name, part.shape, DTYPES[part.dtype])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_outputs_and_gradients_are_those_of_torch(name):
    definition = DEFINITIONS[name]
    net: Any = TORCH.network(definition, [generator(k, "weights") for k in range(AGENTS)], AGENTS)
    inputs = inputs_of(definition)
    expected = net(*(map_tree(torch.from_numpy, part) for part in inputs))
    factors = [RNG.standard_normal(tuple(out.shape)).astype(np.float32) for out in expected]
    total = sum((out * torch.from_numpy(factor)).sum() for out, factor in zip(expected, factors, strict=True))
    grad = net.joined(torch.autograd.grad(total, net.sources(), allow_unused=True))
    tape = Tape()
    recorded = RecordedNetwork(tape, "net", net.plan, AGENTS)
    arrays = {name: array for i, part in enumerate(inputs) for name, array in arrays_in(part, str(i)).items()}
    made = recorded(*(input_of(tape, part, str(i)) for i, part in enumerate(inputs)))
    sums = [ops.sum((out * tape.array(factor)).reshape(-1), 0) for out, factor in zip(made, factors, strict=True)]
    loss = ops.sum(ops.stack(sums, 0), 0)
    outputs = {str(i): out for i, out in enumerate(made)}
    recording = Recording(tape, outputs, derive(loss, {"net": recorded.leaf}))
    found, gradients = evaluate(recording, arrays, {"net": net.flat.numpy()})
    for i, out in enumerate(expected):
        np.testing.assert_allclose(found[str(i)], out.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradients["net"], grad.numpy(), rtol=1e-4, atol=2e-5)


def test_every_layer_is_one_contribution():
    tape = Tape()
    net = RecordedNetwork(tape, "q", Plan(DEFINITIONS["tanh"]), 3)
    (out,) = net(tape.input("x", (3, 4, 5)))
    found = derive(ops.square(out), {"q": net.leaf})
    shapes = [(part.network, part.weight.shape, part.bias.shape) for part in found if isinstance(part, LayerGradient)]
    assert shapes == [("q", (3, 5, 3), (3, 3)), ("q", (3, 6, 5), (3, 5)), ("q", (3, 5, 6), (3, 6))]
    assert net.leaf.shape == (3, 5 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3)


def test_no_gradient_flows_to_the_weights_of_a_call_without():
    tape = Tape()
    net = RecordedNetwork(tape, "q", Plan(DEFINITIONS["heads with layers"]), 1)
    x = tape.input("x", (1, 4, 5))
    with tape.no_gradient():
        fixed = net(x)
    free = net(x)
    assert all(out.detached for out in fixed) and not any(out.detached for out in free)
    assert [out.node for out in fixed] == [out.node for out in free]  # computed once
