"""The recorded operations have the shapes and types of the frameworks' ones, and refuse what does not fit."""

from typing import Any

import numpy as np
import pytest

from marltrain.policies.ops import FrameworkOps
from marltrain.policies.tape import ops
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import RecordError, Symbol, Tape
from tests.policies.tape.evaluate import evaluate
from tests.policies.tape.leaves import Leaves

CHECKED: FrameworkOps = ops  # type checkers compare the operations with the protocol
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("function", [
    lambda ops, x: ops.time_steps(x, 3)[1] * ops.time_steps(x, 3)[0],
    lambda ops, x: ops.joined_steps([ops.exp(step) for step in ops.time_steps(x, 2)]),
    lambda ops, x: ops.repeat_agents(x, 3) * ops.repeat_agents(ops.exp(x), 3),
    lambda ops, x: ops.unfold_agents(ops.repeat_agents(x, 3), 3)[:, 1],
    lambda ops, x: ops.fold_agents(ops.unfold_agents(x, 1)),
    lambda ops, x: ops.seats_apart(x, 3),
    lambda ops, x: ops.seats_apart(x, 1),
    lambda ops, x: ops.seats_joined(ops.seats_apart(ops.exp(x), 2), 2) * ops.seats_joined(x, 1),
    lambda ops, x: ops.players_last(x) * ops.players_last(ops.exp(x)),
    lambda ops, x: ops.players_last(x[..., 0]),
    lambda ops, x: ops.append_constants(x, x[:, 0]) * 2.0,
    lambda ops, x: ops.constants(x[:, 0]) + x,
    lambda ops, x: ops.flatten(ops.unflatten(x, 2)),
    lambda ops, x: ops.unflatten(x, 2)[..., 0],
    lambda ops, x: ops.stack(ops.unstack(x), 2),
    lambda ops, x: ops.concat(ops.split(x, [1, 3]), -1),
    lambda ops, x: ops.only(x, x[..., 0] > 0),
    lambda ops, x: x * ops.tensor_like(x, [1.0, 2.0, 3.0, 4.0]),
])  # fmt: skip
def test_axes_of_agents_seats_and_sequences(function):
    """For two agents, and for one, whose repetition needs no copy."""
    for agents in (2, 1):
        Leaves(RNG.standard_normal((agents, 6, 4))).check(lambda ops, x: function(ops, ops.tanh(x)))


def computed(*outputs: Symbol, **columns: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of symbols of columns alone."""
    recording = Recording(outputs[0].tape, {str(i): output for i, output in enumerate(outputs)}, ())
    return list(evaluate(recording, columns, {})[0].values())


def test_integers_and_booleans():
    tape = Tape()
    x, i, b = tape.input("x", (2, 3)), tape.input("i", (2,), "integer"), tape.input("b", (2,), "bytes")
    best = ops.argmax(x, -1)
    chosen = ops.where(b, i, best)
    both = ops.stack([i, best], -1)
    made = [best, chosen, ops.take(x, chosen), ops.one_hot(i, 3), ops.flag(best != i), ops.isfinite(x), both,
            ops.zeros_like(i), ops.ones_like(b), ops.take(both, i)]  # fmt: skip
    assert [each.dtype for each in made] == ["integer", "integer", "float", "float", "float", "boolean", "integer",
                                             "integer", "boolean", "integer"]  # fmt: skip
    numbers = np.array([[0, 2, 2], [np.inf, 1, 3]], np.float32)
    index, flags = np.array([1, 0]), np.array([True, False])
    expected = [[1, 0], [1, 0], [2, np.inf], [[0, 1, 0], [1, 0, 0]], [0, 0], [[1, 1, 1], [0, 1, 1]],
                [[1, 1], [0, 0]], [0, 0], [1, 1], [1, 0]]  # fmt: skip
    for one, result in zip(computed(*made, x=numbers, i=index, b=flags), expected, strict=True):
        np.testing.assert_array_equal(one, result)


@pytest.mark.parametrize(("use", "named"), [
    (lambda x, i, b: ops.take(x, x[..., 0]), "take.*float"),
    (lambda x, i, b: ops.one_hot(x, 3), "one_hot.*float"),
    (lambda x, i, b: ops.sum(i, 0), "sum.*integer"),
    (lambda x, i, b: ops.max(b, 0), "max.*boolean"),
    (lambda x, i, b: ops.log_softmax(i, 0), "log_softmax.*integer"),
    (lambda x, i, b: ops.exp(i), "exp.*integer"),
    (lambda x, i, b: ops.where(x[..., 0], i, i), "where.*float"),
    (lambda x, i, b: ops.where(b, x[..., 0], i), "where.*float.*integer"),
    (lambda x, i, b: ops.where(b, i, 0.5), "where.*integer.*float"),
    (lambda x, i, b: ops.concat([i, b], 0), "concat.*boolean.*integer"),
    (lambda x, i, b: ops.tensor_like(i, [1, 2]), "tensor_like.*integer"),
    (lambda x, i, b: ops.flag(i), "integer"),
    (lambda x, i, b: ops.scaled_image(x, 0.0, 1.0), "scaled_image.*float"),
    (lambda x, i, b: x.tape.input("u", (2, 3), "pixels") + 1.0, "add.*pixels"),
])  # fmt: skip
def test_other_types_are_refused(use, named):
    tape = Tape()
    with pytest.raises(RecordError, match=named):
        use(tape.input("x", (2, 3)), tape.input("i", (2,), "integer"), tape.input("b", (2,), "bytes"))


@pytest.mark.parametrize(("use", "named"), [
    (lambda x, i: ops.take(x, i[:1]), r"\(2,\).*\(1,\)"),
    (lambda x, i: ops.split(x, [1, 1]), r"\[1, 1\].*3"),
    (lambda x, i: ops.concat([x, x[:1]], 1), r"\(1, 3\)"),
    (lambda x, i: ops.sum(x, 2), "axis 2"),
    (lambda x, i: ops.linear(x[None], x[None], x[:1]), r"\(1, 2, 3\)"),
    (lambda x, i: ops.convolve(x[None, None, None], x[None, None, None], x[:1], 1, abs), "convolve.*(1, 3)"),
    (lambda x, i: x + x[:, :2], "broadcast"),
])  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(use, named):
    tape = Tape()
    with pytest.raises(ValueError, match=named):
        use(tape.input("x", (2, 3)), tape.input("i", (2,), "integer"))


def test_one_part_and_an_axis_of_size_one_need_no_operation():
    tape = Tape()
    x: Any = tape.input("x", (2, 1))
    for made in (ops.sum(x, 1), ops.max(x, 1), ops.logsumexp(x, -1), ops.concat([x], 0), ops.stop_gradient(x)):
        assert made.node is x.node
