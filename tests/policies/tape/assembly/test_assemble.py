"""Recordings carried out by the interpreter give what a plain evaluation by NumPy gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.assemble import WRITERS, assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.segments import AssemblyError
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.operations import OPERATIONS, SOURCES, DType
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Symbol, Tape
from tests.policies.tape.captured import arrays_of, recorded
from tests.policies.tape.evaluate import ELEMENTWISE, evaluate
from tests.policies.tape.executed import execute, table_of
from tests.policies.tape.test_recording import CASES, losses
from tests.policies.tape.test_rules import CONVOLVED

INTEGERS = ("greater", "greater_equal", "equal", "not_equal", "where", "copy")


def test_every_operation_has_a_writer():
    assert set(WRITERS) >= set(OPERATIONS) - set(SOURCES)


def agree(recording, inputs, weights=None, tolerance=2e-6):
    """Compare all outputs and gradients with those of `evaluate`; in check mode they are the same to the bit."""
    weights = weights or {}
    expected = evaluate(recording, inputs, weights)
    found, checked = (execute(recording, inputs, weights, checks=checks) for checks in (False, True))
    for plain, unused, exact in zip(found, checked, expected, strict=True):
        for name, value in exact.items():
            np.testing.assert_array_equal(plain[name], unused[name])
            size = max(1.0, np.abs(value[np.isfinite(value)]).max(initial=0.0))
            np.testing.assert_allclose(plain[name], value, rtol=tolerance, atol=tolerance * size, err_msg=name)


@st.composite
def views(draw, tape, rng, inputs, shape, dtype="float"):
    """Draw an input and a view of it of a shape: moved, sliced, repeated axes. The array is added to `inputs`."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in shape]
    repeats = [draw(st.sampled_from([False, False, False, True])) for _ in shape]
    kept = [(1 if repeats[axis] else shape[axis] * steps[axis]) for axis in order]
    name = f"x{len(inputs)}"
    made = rng.standard_normal(kept).astype(np.float32) if dtype == "float" else rng.integers(0, 3, kept)
    inputs[name] = (made > 0).astype(np.float32) if dtype == "boolean" else made
    symbol = tape.input(name, kept, dtype)
    order = list(order)
    for axis in range(len(shape)):
        place = order.index(axis)
        symbol = symbol.moved(place, axis)
        order.insert(axis, order.pop(place))
    index = tuple(slice(None) if repeat else slice(0, None, step) for repeat, step in zip(repeats, steps, strict=True))
    return symbol[index].broadcast(shape)


SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 17]), min_size=1, max_size=4).filter(lambda s: np.prod(s) < 1500)
ARGUMENTS = {"where": 3, "clip": 3, "minimum_gradient": 3}
PAIRS = ("add", "subtract", "multiply", "divide", "minimum", "maximum", "greater", "greater_equal", "equal",
         "not_equal", "and", "or", "absolute_gradient", "tanh_gradient", "sigmoid_gradient", "relu_gradient",
         "elu_gradient")  # fmt: skip
BOOLEAN = ("greater", "greater_equal", "equal", "not_equal", "isfinite", "and", "or", "not")
POSITIVE = ("log", "sqrt", "lgamma", "digamma", "trigamma")


@pytest.mark.parametrize("op", sorted(set(ELEMENTWISE) - {"from_bytes", "from_pixels"}))
@settings(max_examples=12, deadline=None)
@given(data=st.data(), shape=SHAPES, seed=st.integers(0, 99))
def test_operations_on_any_views(op, data, shape, seed):
    tape, inputs, rng = Tape(), dict[str, np.ndarray](), np.random.default_rng(seed)
    integers = op in INTEGERS and data.draw(st.booleans())
    count = ARGUMENTS.get(op, 2 if op in PAIRS else 1)
    kinds: list[DType] = ["integer" if integers else "boolean" if op in ("and", "or", "not") else "float"] * count
    if op == "where":
        kinds[0] = "boolean"
    args = [data.draw(views(tape, rng, inputs, shape, kind)) for kind in kinds]
    if op in POSITIVE:
        inputs = {name: np.abs(array) + np.float32(0.1) for name, array in inputs.items()}
    made = tape.node(op, args, shape, "boolean" if op in BOOLEAN else kinds[-1])
    agree(Recording(tape, {"made": made}, ()), inputs)


ALONG = {
    "sum": lambda x, axis: ops.sum(x, axis),
    "max": lambda x, axis: ops.max(x, axis),
    "argmax": lambda x, axis: ops.argmax(x, axis),
    "logsumexp": lambda x, axis: ops.logsumexp(x, axis),
    "log_softmax": lambda x, axis: ops.log_softmax(x, axis),
    "concat": lambda x, axis: ops.concat([x, x * 2.0, x], axis),
    "copy": lambda x, axis: x.moved(axis, 0).reshape(-1),
    "take": lambda x, axis: ops.take(x, ops.argmax(x * -1.0, -1)),
    "one_hot": lambda x, axis: ops.one_hot(ops.argmax(x, axis), x.shape[axis]),
    "put": lambda x, axis: x.tape.node("put", (ops.max(x, -1), ops.argmax(x, -1)), x.shape, "float", (x.shape[-1],)),
}


@pytest.mark.parametrize("op", ALONG)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), shape=SHAPES, seed=st.integers(0, 99))
def test_operations_along_any_axis(op, data, shape, seed):
    tape, inputs = Tape(), dict[str, np.ndarray]()
    x = data.draw(views(tape, np.random.default_rng(seed), inputs, shape))
    axis = data.draw(st.integers(0, len(shape) - 1))
    made = ALONG[op](x, axis)
    agree(Recording(tape, {"made": made, "moved": made.moved(0, -1) if made.ndim else made}, ()), inputs)


def test_sources_and_outputs():
    tape = Tape()
    numbers, flags = tape.input("numbers", (2, 3), "integer"), tape.input("flags", (2, 3), "bytes")
    outputs = {
        "integer": ops.where(flags, numbers, 7), "same": numbers, "number": tape.constant(2.5), "flags again": flags,
        "array": tape.array([[1.0], [2.0]]).broadcast((2, 4)), "part": numbers[:, 1:],
    }  # fmt: skip
    given = {"numbers": np.array([[1, 2, 2**40], [4, 5, 6]]), "flags": np.array([[1, 0, 1], [0, 0, 1]], np.uint8)}
    agree(Recording(tape, outputs, ()), given)


@pytest.mark.parametrize(("kind", "op"), [("bytes", "from_bytes"), ("pixels", "from_pixels")])
def test_booleans_and_numbers_of_any_view_of_bytes(kind, op):
    tape, most = Tape(), 2 if kind == "bytes" else 256
    given = tape.node("input", (), (3, 4, 5), kind, ("given",))
    moved = given.moved(0, 2)[:, 1:, ::2]
    made = tape.node(op, (moved,), moved.shape, "boolean" if kind == "bytes" else "float")
    agree(
        Recording(tape, {"made": made}, ()), {"given": np.random.default_rng(0).integers(0, most, (3, 4, 5), np.uint8)}
    )


@pytest.mark.parametrize(("images", "kernel", "stride"), CONVOLVED)
def test_convolutions(images, kernel, stride):
    """Outputs and gradients; the images lie in memory as torch has them, or with the channels last."""
    outputs, down, along = kernel
    sizes = [images[2] * outputs * down * along, outputs, np.prod(images[1:])]
    tape = Tape()
    leaf = tape.node("weights", (), (images[0], int(sum(sizes))), "float", ("net",))
    pieces = ops.split(leaf, [int(size) for size in sizes])
    weight, bias = pieces[0].reshape(images[0], outputs, images[2], down, along), pieces[1]
    first = pieces[2].reshape(images)
    last = pieces[2].reshape(*images[:2], *images[3:], images[2]).moved(-1, 2)
    made = ops.convolve(first, weight, bias, stride, ops.tanh) * ops.convolve(last, weight, bias, stride, ops.relu)
    recording = Recording(tape, {"made": made}, derive(ops.square(made), {"net": leaf}))
    agree(recording, {}, {"net": np.random.default_rng(0).standard_normal(leaf.shape, np.float32)}, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_losses_of_all_algorithms(name):
    for loss in losses(name):
        inputs = arrays_of(loss.columns, "columns") | arrays_of(loss.hyper, "hyper")
        agree(recorded(loss), inputs, loss.weights, 1e-5)


def test_an_activation_is_computed_with_its_layer():
    tape = Tape()
    weights = tape.node("weights", (), (1, 12), "float", ("net",))
    x, w, b = tape.input("x", (1, 5, 3)), weights[:, :9].reshape(1, 3, 3), weights[:, 9:]
    hidden: Symbol = ops.linear(x, w, b)
    fused = Recording(tape, {"y": ops.tanh(hidden)}, ())
    assert len(table_of(fused).instructions) == 2  # the layer, and the copy to the output
    both = Recording(tape, {"y": ops.tanh(hidden), "before": hidden}, ())
    assert len(table_of(both).instructions) == 4
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((1, 5, 3), np.float32)}, {"net": rng.standard_normal((1, 12), np.float32)}
    agree(fused, *given)
    agree(both, *given)


def test_buffers_are_used_again_unless_checked():
    tape = Tape()
    x = tape.input("x", (1, 100))
    for _ in range(10):
        x = ops.exp(x * 0.1)
    recording = Recording(tape, {"y": x}, ())
    assert table_of(recording).arena == 2 * 448
    assert table_of(recording, checks=True).arena == 20 * 448


def test_a_shape_that_differs_between_sections_is_refused():
    assembler = Assembler({})
    first, second = (Recording(tape, {"y": tape.input("x", (1, size)) * 2.0}, ()) for tape, size in
                     ((Tape(), 3), (Tape(), 4)))  # fmt: skip
    assemble(assembler, "before", first)
    with pytest.raises(AssemblyError, match=r"'x'.*\(1, 3\).*\(1, 4\)"):
        assemble(assembler, "after", second)


def test_an_array_of_rows_has_them_in_axis_1():
    tape = Tape()
    with pytest.raises(AssemblyError, match=r"'x'.*axis 1.*\(3,\)"):
        assemble(Assembler({"x": "rows"}), "block", Recording(tape, {"y": tape.input("x", (3,)) * 2.0}, ()))


@pytest.mark.parametrize("name", ["relu", "negative", "square"])
def test_operations_that_another_computes_treat_all_numbers_as_torch_does(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -5.0, 1e-45, 3e38], np.float32)
    tape = Tape()
    made = -tape.input("x", x.shape) if name == "negative" else getattr(ops, name)(tape.input("x", x.shape))
    found, _ = execute(Recording(tape, {"y": made}, ()), {"x": x}, {})
    np.testing.assert_array_equal(found["y"], getattr(torch, name)(torch.from_numpy(x)).numpy())


def test_operands_are_copied_where_that_takes_fewer_instructions():
    tape, shape = Tape(), (20, 9, 10)
    x, y = tape.input("x", (20, 1, 1)).broadcast(shape), tape.input("y", (1, 1, 10)).broadcast(shape)
    recording = Recording(tape, {"z": x * y}, ())
    assert len(table_of(recording).instructions) == 4  # two copies, the product, and the copy to the output
    rng = np.random.default_rng(0)
    agree(recording, {"x": rng.random((20, 1, 1), np.float32), "y": rng.random((1, 1, 10), np.float32)})
