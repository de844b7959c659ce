"""Programs: agents and blocks of rows, with rows that remain; what is bound is checked."""

import numpy as np
import pytest

from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.table import Role, Section
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.program import BindingError, Program, aligned
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Tape
from tests.policies.tape.evaluate import evaluate

K, WIDTH, UNITS = 3, 5, 4
SIZE = WIDTH * UNITS + UNITS
ROLES: dict[str, Role] = {"x": "rows", "flag": "rows", "loss": "sum", "error": "rows"}


def of_rows(rows):
    """Return the recording of a loss of one agent: a sum over rows, and an error of each row."""
    tape = Tape()
    x, flag = tape.input("x", (1, rows, WIDTH)), tape.input("flag", (1, rows), "bytes")
    leaf = tape.node("weights", (), (1, SIZE), "float", ("net",))
    weight, bias = leaf[:, : WIDTH * UNITS].reshape(1, WIDTH, UNITS), leaf[:, WIDTH * UNITS :]
    scale = tape.input("scale", (1, 1))
    error = ops.sum(ops.square(ops.tanh(ops.linear(x, weight, bias))), -1) * scale
    error = ops.where(flag, error, 0.0)
    loss = ops.sum(error, 1)
    return Recording(tape, {"loss": loss, "error": error}, derive(loss, {"net": leaf}))


def table(block, rest, *, checks=False, roles=None):
    assembler = Assembler(ROLES if roles is None else roles, checks=checks)
    assemble(assembler, "block", of_rows(block))
    if rest:
        assemble(assembler, "rest", of_rows(rest))
    return assembler.table()


def arrays(rows, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((K, rows, WIDTH), np.float32), "flag": rng.random((K, rows)) < 0.7,
        "weights/net": rng.standard_normal((K, SIZE), np.float32), "scale": rng.random((K, 1), np.float32),
        "loss": np.full(K, 77, np.float32), "error": np.full((K, rows), 77, np.float32),
        "gradient/net": np.full((K, SIZE), 77, np.float32),
    }  # fmt: skip


def expected(given, k):
    """Return the outputs and the gradient of agent k, by `evaluate` on all rows at once."""
    rows = given["x"].shape[1]
    inputs = {name: given[name][k : k + 1] for name in ("x", "scale")}
    inputs["flag"] = given["flag"][k : k + 1].view(np.uint8)
    outputs, gradients = evaluate(of_rows(rows), inputs, {"net": given["weights/net"][k : k + 1]})
    return {**outputs, "gradient/net": gradients["net"]}


@pytest.mark.parametrize(("block", "blocks", "rest"), [(11, 1, 0), (4, 2, 3), (1, 11, 0), (5, 2, 1), (16, 0, 11)])
@pytest.mark.parametrize("checks", [False, True])
def test_agents_and_blocks_of_rows(block, blocks, rest, checks):
    given = arrays(11)
    execution = Program(table(block, rest, checks=checks)).execution(agents=K, blocks=blocks)
    execution.bind(given)
    for _ in range(2):  # sums start anew
        execution.run()
        for k in range(K):
            for name, value in expected(given, k).items():
                np.testing.assert_allclose(given[name][k], value[0], rtol=1e-5, atol=1e-5, err_msg=name)


def test_agents_that_are_not_due_stay_as_they_are():
    given = arrays(4)
    execution = Program(table(4, 0)).execution(agents=K)
    execution.bind(given)
    execution.run(np.array([True, False, True]))
    assert (given["error"][1] == 77).all() and (given["gradient/net"][1] == 77).all() and given["loss"][1] == 77
    assert not (given["error"][[0, 2]] == 77).any() and not (given["loss"][[0, 2]] == 77).any()


def test_executions_of_one_program_are_independent():
    program, runs = Program(table(4, 3)), []
    for seed in range(2):
        runs.append((arrays(7, seed), program.execution(agents=K, blocks=1)))
        runs[-1][1].bind(runs[-1][0])
    for _, execution in runs:
        execution.run()
    for given, _ in runs:
        np.testing.assert_allclose(given["loss"][2], expected(given, 2)["loss"][0], rtol=1e-5)


def test_rows_are_gathered_by_an_index():
    roles: dict[str, Role] = {**ROLES, "x": "gathered", "flag": "gathered"}
    given, index = arrays(20), np.random.default_rng(1).integers(0, 20, (K, 7))
    minibatch = {**given, **{name: np.stack([given[name][k][index[k]] for k in range(K)]) for name in ("x", "flag")}}
    given["error"] = np.zeros((K, 7), np.float32)
    execution = Program(table(4, 3, roles=roles)).execution(agents=K, blocks=1)
    execution.bind({**given, "index": index})
    execution.run()
    for k in range(K):
        for name, value in expected(minibatch, k).items():
            np.testing.assert_allclose(given[name][k], value[0], rtol=1e-5, atol=1e-5, err_msg=name)


def test_sections_pass_numbers_on_in_buffers_of_the_thread():
    """Before: the mean of all rows. Each block: rows minus the mean. After: the square of their sum."""
    assembler = Assembler({"x": "rows", "centered": "rows", "shifted": "own rows", "mean": "own", "sum": "sum"})
    rows, block = 6, 4
    tape = Tape()
    x = tape.input("x", (1, rows))
    assemble(assembler, "before", Recording(tape, {"mean": ops.mean(x, 1), "shifted": x + 1.0}, ()))
    sizes: dict[Section, int] = {"block": block, "rest": rows - block}
    for section, size in sizes.items():
        tape = Tape()
        centered = tape.input("shifted", (1, size)) - tape.input("mean", (1,))[:, None]
        assemble(assembler, section, Recording(tape, {"centered": centered, "sum": ops.sum(centered, 1)}, ()))
    tape = Tape()
    assemble(assembler, "after", Recording(tape, {"square": ops.square(tape.input("sum", (1,)))}, ()))
    execution = Program(assembler.table()).execution(agents=2, blocks=1)
    given = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "centered": np.zeros((2, 6), np.float32),
             "sum": np.zeros(2, np.float32), "square": np.zeros(2, np.float32)}  # fmt: skip
    execution.bind(given)
    execution.run()
    np.testing.assert_allclose(given["centered"], given["x"] + 1 - given["x"].mean(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(given["square"], [36, 36], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong", "texts"),
    [
        ("x", np.zeros((K, 4, WIDTH)), ["float32 [3, 4, 5]", "float64 [3, 4, 5]"]),
        ("x", np.zeros((K, 5, WIDTH), np.float32), ["float32 [3, 4, 5]", "float32 [3, 5, 5]"]),
        ("flag", np.zeros((K, 4), np.float32), ["bool [3, 4]", "float32 [3, 4]"]),
        ("weights/net", np.zeros((K, SIZE + 1), np.float32), [f"[3, {SIZE}]", f"[3, {SIZE + 1}]"]),
        ("scale", np.zeros(K, np.float32), ["[3, 1]", "[3]"]),
        ("scale", [[1.0]] * K, ["an array of float32", "list"]),
        ("x", np.zeros((K, WIDTH, 4), np.float32).swapaxes(1, 2), ["without gaps", "strides"]),
        ("x", np.zeros((K, 4, 2 * WIDTH), np.float32)[..., ::2], ["without gaps", "strides"]),
        ("loss", np.broadcast_to(np.float32(0), K), ["to write to", "read-only"]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, wrong, texts):
    execution = Program(table(4, 0)).execution(agents=K)
    with pytest.raises(BindingError) as caught:
        execution.bind({name: wrong})
    for text in [repr(name), *texts]:
        assert text in str(caught.value)


def test_an_address_that_is_not_aligned_is_refused():
    odd = np.zeros(4 * K + 1, np.uint8)[1:].view(np.float32).reshape(K, 1)
    with pytest.raises(BindingError, match=r"'scale'.*an address that 4 divides"):
        Program(table(4, 0)).execution(agents=K).bind({"scale": odd})


def test_rows_of_agents_may_lie_apart():
    given = arrays(4)
    wide = np.full((K, 9, WIDTH), np.nan, np.float32)
    wide[:, :4] = given["x"]
    execution = Program(table(4, 0)).execution(agents=K)
    execution.bind({**given, "x": wide[:, :4]})
    execution.run()
    np.testing.assert_allclose(given["loss"][2], expected(given, 2)["loss"][0], rtol=1e-5)


def test_a_name_that_the_program_does_not_have_is_refused():
    with pytest.raises(BindingError, match=r"'scales'.*scale"):
        Program(table(4, 0)).execution(agents=K).bind({"scales": np.zeros((K, 1), np.float32)})


def test_an_array_that_is_missing_is_named():
    given = arrays(4)
    del given["scale"]
    execution = Program(table(4, 0)).execution(agents=K)
    execution.bind(given)
    with pytest.raises(BindingError, match=r"\['scale'\]"):
        execution.run()


def test_a_table_of_a_team_computes_one_team():
    with pytest.raises(BindingError, match=r"expected 1 team.*got 2"):
        Program(Assembler({}, by_agent=False).table()).execution(agents=2)


def test_buffers_begin_at_cache_lines():
    for size in (1, 100):
        made = aligned(size)
        assert made.size == size and made.ctypes.data % 64 == 0


def test_instructions_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        table(4, 0).instructions[0, 0] = 1
