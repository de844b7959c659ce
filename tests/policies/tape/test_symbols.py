"""Symbols record operations once, with strict types, and refuse what needs numbers."""

import operator

import numpy as np
import pytest
import torch

from marltrain.policies.tape.symbols import RecordError, Symbol, Tape


@pytest.fixture
def tape() -> Tape:
    return Tape()


def test_equal_operations_are_recorded_once(tape):
    x, y = tape.input("x", (2, 3)), tape.input("y", (3,))
    first, again = (x + y) * 2.0, (x + y) * 2.0
    assert first.node is again.node
    assert [node.op for node in tape.nodes] == ["input", "input", "add", "constant", "multiply"]
    assert (y + x).node is not (x + y).node


def test_a_number_is_not_mistaken_for_an_equal_one_of_another_type(tape):
    assert tape.constant(1).node is not tape.constant(1.0).node
    assert tape.constant(True).dtype == "boolean"


def test_arguments_are_views_of_the_shape_of_the_result(tape):
    x, y = tape.input("x", (2, 3)), tape.input("y", (3,))
    node = (x - y).node
    assert [arg.shape for arg in node.args] == [(2, 3), (2, 3)]
    assert node.args[1].strides == (0, 1)


def test_operations_on_constants_are_carried_out(tape):
    x = tape.input("x", (2,))
    assert (tape.constant(3.0) / 2.0 - 1.0).number == 0.5
    for same in (x + 0.0, 0.0 + x, x * 1.0, 1.0 * x, x / 1.0, x - 0.0):
        assert same.node is x.node
    assert (x * 0.0).node.op == "multiply"  # NaN and infinities stay


@pytest.mark.parametrize(
    ("compare", "op", "swapped"),
    [(operator.gt, "greater", False), (operator.lt, "greater", True), (operator.ge, "greater_equal", False),
     (operator.le, "greater_equal", True), (operator.eq, "equal", False), (operator.ne, "not_equal", False)],
)  # fmt: skip
def test_comparisons_are_boolean(tape, compare, op, swapped):
    x, y = tape.input("x", (2,)), tape.input("y", (2,))
    made = compare(x, y)
    assert (made.dtype, made.node.op) == ("boolean", op)
    assert [arg.node for arg in made.node.args] == ([y.node, x.node] if swapped else [x.node, y.node])
    whole = tape.input("i", (2,), "integer")
    assert compare(whole, 3).node.args[0 if swapped else 1].dtype == "integer"


def test_types_do_not_mix(tape):
    x, i, b = tape.input("x", (2,)), tape.input("i", (2,), "integer"), tape.input("b", (2,), "bytes")
    assert (b.dtype, b.node.op, b.node.args[0].dtype) == ("boolean", "from_bytes", "bytes")
    wrong = [lambda: i == x, lambda: i == 2.0, lambda: i > 0.5, lambda: i + i, lambda: b * x, lambda: b & x,
             lambda: ~x, lambda: -b, lambda: i.as_float(), lambda: x == True]  # noqa: E712  # fmt: skip
    for make in wrong:
        with pytest.raises(RecordError, match=r"integer|boolean"):
            make()
    assert (b.as_float() * x).dtype == "float"
    assert (b.as_float()).node is b.node  # 0.0 and 1.0: nothing is computed
    assert ((b & ~b) | b).dtype == "boolean"


@pytest.mark.parametrize(
    ("use", "named"),
    [(bool, "bool"), (float, "float"), (int, "int"), (complex, "complex"), (operator.index, "index"),
     (np.asarray, "numpy"), (lambda x: x.item(), "item"), (lambda x: x.numpy(), "numpy"),
     (lambda x: x.tolist(), "tolist"), (torch.exp, "exp"), (lambda x: torch.maximum(x, x), "maximum"),
     (lambda x: x + "2", "add.*str"), (lambda x: x * np.ones(2), "multiply.*ndarray"), (lambda x: x[x], "index"),
     (lambda x: x[np.array([0, 1])], "index"), (lambda x: x ** x, "power"), (lambda x: x ** 1.5, "1.5")],
)  # fmt: skip
def test_what_needs_numbers_names_the_operation(tape, use, named):
    with pytest.raises(RecordError, match=named):
        use(tape.input("x", (2,)))


def test_numbers_of_numpy_are_numbers(tape):
    x = tape.input("x", (2,))
    made = np.float32(2) * x
    assert isinstance(made, Symbol) and made.node.args[0].number == 2.0


def test_detached_symbols_share_what_does_not_depend_on_weights(tape):
    x, w = tape.input("x", (3,)), tape.node("weights", (), (3,), "float", ("net",))
    assert not x.detach().detached  # a column has no gradient
    assert (x.detach() * 2.0).node is (x * 2.0).node
    y = w * 2.0
    cut = y.detach()
    assert cut.detached and cut.node is y.node and not cut.depends
    moved = cut + 1.0
    assert moved.node is (y + 1.0).node and moved.detached and not (y + 1.0).detached  # computed once
    assert (moved * y).node.args[0].detached is True
    assert (cut > 0.0).node is (y > 0.0).node
    assert not (y > 0.0).as_float().depends
    assert cut[0].detached and cut.reshape(1, 3).detached


def test_reshape_copies_only_where_strides_do_not_suffice(tape):
    x = tape.input("x", (2, 3, 4))
    joined = x.reshape((2, -1))
    assert joined.shape == (2, 12) and joined.node is x.node and joined.is_whole
    turned = x.moved(0, 1).reshape(-1, 4)
    assert turned.shape == (6, 4) and turned.node.op == "copy" and turned.is_whole
    assert not x[1:].is_whole and not x.moved(0, 1).is_whole
    with pytest.raises(ValueError, match="24"):
        x.reshape(5, 5)


def test_powers_are_products(tape):
    x = tape.input("x", (2,))
    assert (x**2).node.op == "square" and (x**0.5).node.op == "sqrt" and (x**1).node is x.node
    assert [node.op for node in (x**3).tape.nodes if node.op != "input"][-1] == "multiply"
    assert (x**-1).node.op == "divide"
    assert (x**0).number == 1.0 and (x**0).shape == (2,)


def test_unknown_operation_raises(tape):
    with pytest.raises(ValueError, match="convolve"):
        tape.node("convolve", (), (2,))
