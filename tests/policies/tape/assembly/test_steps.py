"""Whole gradient steps: clipping, optimizers and targets behind the rows, as torch makes them."""

import numpy as np
import pytest
import torch

from marltrain.policies.backends.torch.optimizers import Optimizer
from marltrain.policies.optimizers import OPTIMIZERS
from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.segments import AssemblyError
from marltrain.policies.tape.assembly.steps import (
    RULES,
    OptimizerNumbers,
    write_follow,
    write_norms,
    write_optimizer,
)
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.program import Program
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Tape

K, ROWS, N = 3, 7, 5
LIMIT = 0.8
NUMBERS = OptimizerNumbers("rate", "factor", "fine", going="going", decay="decay")


def loss_of(agents, rows):
    """Return the recording of the mean square error of linear functions of x without a bias."""
    tape = Tape()
    x, y = tape.input("x", (agents, rows, N)), tape.input("y", (agents, rows))
    leaf = tape.node("weights", (), (agents, N), "float", ("net",))
    loss = ops.sum(ops.square(ops.sum(x * leaf[:, None], -1) - y), 1)
    return Recording(tape, {"loss": loss}, derive(loss, {"net": leaf}))


def clipping(agents):
    """Return the recording of the factor by which a gradient is clipped, and of whether the step is fine."""
    tape = Tape()
    norm, loss = tape.input("norm", (agents,)), tape.input("loss", (agents,))
    factor = ops.minimum(LIMIT / (norm + 1e-6), tape.constant(1.0).broadcast((agents,)))
    return Recording(tape, {"factor": factor, "fine": ops.flag(ops.isfinite(loss + norm))}, ())


def table(rule, *, agents, block):
    assembler = Assembler({"x": "rows", "y": "rows", "loss": "sum", "norm": "own", "factor": "own", "fine": "own"},
                          by_agent=agents == 1)  # fmt: skip
    assemble(assembler, "block", loss_of(agents, block))
    if ROWS % block:
        assemble(assembler, "rest", loss_of(agents, ROWS % block))
    write_norms(assembler, "net", "norm")
    assemble(assembler, "after", clipping(agents))
    write_optimizer(assembler, "net", rule, 1e-5, NUMBERS)
    write_follow(assembler, "target", "net", "share")
    return assembler.table()


def arrays(rule):
    rng = np.random.default_rng(0)
    normal = {name: rng.standard_normal(shape, np.float32) for name, shape in
              {"x": (K, ROWS, N), "y": (K, ROWS), "weights/net": (K, N), "weights/target": (K, N)}.items()}  # fmt: skip
    moments = {f"{name}/net": rng.random((K, N), np.float32) for name in OPTIMIZERS[rule].moments}
    count = np.array([[0], [3], [9]], np.float32)
    columns = {"rate": [0.1, 0.2, 0.3], "decay": [0.0, 0.1, 0.2], "share": [0.0, 0.5, 1.0]}
    numbers = {name: np.array(values, np.float32)[:, None] for name, values in columns.items()}
    return {**normal, **moments, **numbers, "count/net": count, "going": np.ones((K, 1), np.float32),
            "loss": np.zeros(K, np.float32)}  # fmt: skip


def by_torch(given, rule):
    """Make the same step with torch and the project's optimizers."""
    tensors = {name: torch.from_numpy(array.copy()) for name, array in given.items()}
    leaf = tensors["weights/net"].clone().requires_grad_()
    loss = ((tensors["x"] * leaf[:, None]).sum(-1) - tensors["y"]).square().sum(1)
    (grad,) = torch.autograd.grad(loss.sum(), leaf)
    grad *= (LIMIT / (grad.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)

    class Network:
        flat, decays = tensors["weights/net"], True

    optimizer = Optimizer(rule, Network.flat, 1e-5)
    for name in OPTIMIZERS[rule].moments:
        optimizer.slots[name][...] = tensors[f"{name}/net"]
    optimizer.count[...] = tensors["count/net"]
    optimizer.step(Network, grad, tensors["rate"][:, 0], None, weight_decay=tensors["decay"])  # type: ignore[arg-type]
    target = torch.lerp(tensors["weights/target"], Network.flat, tensors["share"])
    slots = {f"{name}/net": slot for name, slot in optimizer.slots.items()}
    return {
        "weights/net": Network.flat,
        "weights/target": target,
        "count/net": optimizer.count,
        "loss": loss.detach(),
        **slots,
    }


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize(("agents", "block"), [(1, 7), (1, 3), (K, 7)])
def test_gradient_steps_are_those_of_torch(rule, agents, block):
    given = arrays(rule)
    expected = by_torch(given, rule)
    execution = Program(table(rule, agents=agents, block=block)).execution(agents=K // agents, blocks=ROWS // block)
    execution.bind(given)
    execution.run()
    for name, value in expected.items():
        np.testing.assert_allclose(given[name], value.numpy(), rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_moves_no_weights(number):
    given = arrays("adam")
    given["y"][1, 2] = number
    given["decay"][:] = 0
    before = given["weights/net"].copy()
    execution = Program(table("adam", agents=1, block=7)).execution(agents=K)
    execution.bind(given)
    execution.run()
    assert (given["weights/net"] != before).any(1).tolist() == [True, False, True]
    assert given["count/net"].ravel().tolist() == [1, 4, 10]
    assert np.isfinite(given["first/net"]).all() and not np.isfinite(given["loss"][1])


def test_an_agent_whose_update_has_ended_keeps_everything():
    given = arrays("adam")
    given["going"][1] = 0
    given["share"][1] = 0
    before = {name: array[1].copy() for name, array in given.items() if name != "loss"}
    execution = Program(table("adam", agents=1, block=7)).execution(agents=K)
    execution.bind(given)
    execution.run()
    for name, array in before.items():
        np.testing.assert_array_equal(given[name][1], array, err_msg=name)
    assert given["count/net"].ravel().tolist() == [1, 3, 10]


def test_every_optimizer_has_a_rule():
    assert {name: tuple(moment for moment in moments if moment) for name, (_, *moments) in RULES.items()} == {
        name: rule.moments for name, rule in OPTIMIZERS.items()
    }


def test_a_network_that_no_recording_reads_is_refused():
    assembler = Assembler({})
    assemble(assembler, "block", loss_of(1, 3))
    with pytest.raises(AssemblyError, match=r"'critic'.*weights/net"):
        write_norms(assembler, "critic", "norm")


def test_numbers_that_are_not_one_for_each_agent_are_refused():
    assembler = Assembler({})
    assemble(assembler, "block", loss_of(3, 3))
    assembler.segment("share", (2, 1), "float", "after")
    with pytest.raises(AssemblyError, match=r"'share'.*1 number or 3.*got 2"):
        write_follow(assembler, "target", "net", "share")
