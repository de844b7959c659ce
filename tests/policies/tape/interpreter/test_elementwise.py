"""Operations on pairs and triples of numbers: NaN, infinities, ties and limits as torch has them; repeated numbers."""

import itertools

import numpy as np
import pytest
import torch

from tests.policies.tape.executed import carry_out

NUMBERS = np.array([-np.inf, -2.0, -0.5, 0.0, 0.5, 2.0, np.inf, np.nan], np.float32)
PAIRS = np.array(list(itertools.product(NUMBERS, NUMBERS)), np.float32).T.copy()
TRIPLES = np.array(list(itertools.product(NUMBERS, NUMBERS, NUMBERS)), np.float32).T.copy()


def of_vectors(operation, *given):
    """Return the result of an operation on vectors [N], which lie side by side."""
    size = len(given[0])
    fields = {f"{name}_column": 1 for name, _ in zip("abc", given, strict=False)}
    return carry_out(operation, np.full(size, 77, np.float32), dict(zip("abc", given, strict=False)), rows=1,
                     columns=size, **fields)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("add", torch.add),
        ("subtract", torch.subtract),
        ("multiply", torch.multiply),
        ("divide", torch.divide),
        ("maximum", torch.maximum),
        ("minimum", torch.minimum),
        ("less", torch.less),
        ("less_equal", torch.less_equal),
        ("equal", torch.eq),
        ("not_equal", torch.ne),
    ],
)
def test_pairs_are_those_of_torch(operation, expected):
    x, y = map(torch.from_numpy, PAIRS)
    np.testing.assert_array_equal(of_vectors(operation, *PAIRS), expected(x, y).numpy().astype(np.float32))


def test_limited_numbers_are_those_of_torch():
    x, low, high = map(torch.from_numpy, TRIPLES)
    np.testing.assert_array_equal(of_vectors("clip", *TRIPLES), torch.clamp(x, low, high).numpy())


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("absolute_gradient", torch.abs),
        ("relu_gradient", torch.relu),
        ("tanh_gradient", torch.tanh),
        ("sigmoid_gradient", torch.sigmoid),
        ("elu_gradient", torch.nn.functional.elu),
    ],
)
def test_gradients_are_those_of_torch(operation, function):
    x = np.array([-3.0, -0.5, 0.0, 0.5, 3.0], np.float32)
    g = np.array([2.0, -3.0, 5.0, 7.0, -11.0], np.float32)
    leaf = torch.from_numpy(x).requires_grad_()
    y = function(leaf)
    (expected,) = torch.autograd.grad(y, leaf, torch.from_numpy(g))
    given = x if operation == "absolute_gradient" else y.detach().numpy()
    np.testing.assert_allclose(of_vectors(operation, given, g), expected.numpy(), atol=1e-6)


def test_gradient_of_a_minimum():
    x, y, g = (np.array(v, np.float32) for v in ([1, 2, 3], [2, 2, 2], [5, 7, 11]))
    np.testing.assert_array_equal(of_vectors("minimum_gradient", x, y, g), [5, 3.5, 0])


def test_choices():
    c, x, y = (np.array(v, np.float32) for v in ([1, 0, 1], [2, 3, np.nan], [np.nan, 5, 7]))
    np.testing.assert_array_equal(of_vectors("where", c, x, y), [2, 5, np.nan])
    chosen = carry_out(
        "integer_where", np.zeros(3, np.int64), {"a": c, "b": np.array([2**40, 2, 3]), "c": np.array([4, 5, 6])},
        rows=1, columns=3, a_column=1, b_column=1, c_column=1,
    )  # fmt: skip
    assert chosen.tolist() == [2**40, 5, 3]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("equal", np.equal), ("not_equal", np.not_equal), ("less", np.less), ("less_equal", np.less_equal)],
)
def test_integers_that_no_float_can_tell_apart(operation, expected):
    x, y = np.array([2**40, 2**40, 2**40 + 1, -5]), np.array([2**40, 2**40 + 1, 2**40, 5])
    found = carry_out(f"integer_{operation}", np.zeros(4, np.float32), {"a": x, "b": y}, rows=1, columns=4,
                      a_column=1, b_column=1)  # fmt: skip
    np.testing.assert_array_equal(found, expected(x, y))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 7, 16, 37])
@pytest.mark.parametrize("steps", list(itertools.product((0, 1, 2), repeat=3)))
def test_every_combination_of_strides(rows, columns, steps):
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((rows, columns * max(step, 1)), np.float32)
             for name, step in zip("abc", steps, strict=True)}  # fmt: skip
    fields = {f"{name}_{axis}": size for name, step in zip("abc", steps, strict=True)
              for axis, size in (("row", columns * max(step, 1)), ("column", step))}  # fmt: skip
    a, b, c = (
        array[:, ::step][:, :columns] if step else array[:, :1]
        for array, step in zip(given.values(), steps, strict=True)
    )
    out = np.full((rows, columns + 2), 77, np.float32)
    sizes = {"rows": rows, "columns": columns, "out_row": columns + 2}

    found = carry_out("clip", out, given, **sizes, **fields)
    np.testing.assert_array_equal(found[:, :columns], np.broadcast_to(np.minimum(np.maximum(a, b), c), (rows, columns)))
    assert (found[:, columns:] == 77).all()
    pair = {name: given[name] for name in "ab"}
    found = carry_out("subtract", out, pair, **sizes, **{n: v for n, v in fields.items() if n[0] in "ab"})
    np.testing.assert_array_equal(found[:, :columns], np.broadcast_to(a - b, (rows, columns)))
    found = carry_out("absolute", out, {"a": given["a"]}, **sizes, **{n: v for n, v in fields.items() if n[0] == "a"})
    np.testing.assert_array_equal(found[:, :columns], np.broadcast_to(np.abs(a), (rows, columns)))
