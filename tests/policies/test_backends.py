"""Both backends: gradients and clipping of each row by itself, tensors, foreign randomness kept apart, wrong use."""

from __future__ import annotations

import gc
import sys

import keras
import numpy as np
import pytest
import torch

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout
from marltrain.policies import backends
from marltrain.policies.backends import make_backend
from marltrain.policies.networks.specs import MLP, Head
from tests.policies.backends.both import BOTH, TENSORFLOW, TORCH, network, on_both
from tests.policies.some_batches import VECTOR

OBS = np.random.default_rng(0).standard_normal((3, 6, 5)).astype(np.float32)
ONES = np.ones(3, np.float32)


def two_networks(backend):
    return {name: network(backend, MLP(hidden=(4,)), Layout(VECTOR), (Head(2),), 3, name) for name in ("a", "b")}


def squares(backend, *, trains=("a", "b"), weight=ONES):
    """Return metrics and gradients of the mean squares of both networks' outputs, each row counted by `weight`."""

    def loss(nets, columns, hyper):
        square, mean = backend.ops.square, backend.ops.mean
        each = sum(mean(mean(square(net(columns["obs"])[0]), -1), -1) for net in nets.values())
        return each * hyper["weight"], {"twice": 2.0 * each}

    columns, hyper = {"obs": backend.tensor(OBS.copy())}, {"weight": backend.tensor(weight.copy())}
    metrics, grads = backend.gradients(loss, two_networks(backend), trains, columns, hyper)
    return {name: backend.numpy(value) for name, value in metrics.items()}, [backend.numpy(grad) for grad in grads]


@on_both
def test_a_rows_gradient_is_that_of_its_own_loss(backend):
    metrics, grads = squares(backend)
    net = two_networks(backend)["a"]
    both = [backend.numpy(result(backend.tensor(OBS.copy()))[0]) for result in two_networks(backend).values()]
    np.testing.assert_allclose(metrics["twice"], sum(2 * (out**2).mean((1, 2)) for out in both), rtol=1e-5)
    assert [grad.shape for grad in grads] == [backend.numpy(net.flat).shape] * 2
    for k in range(3):
        _, alone = squares(backend, weight=np.eye(3, dtype=np.float32)[k])
        for grad, own in zip(grads, alone, strict=True):
            assert not own[np.arange(3) != k].any()
            np.testing.assert_allclose(grad[k], own[k], rtol=1e-6)
            assert grad[k].any()


def test_gradients_are_equal_and_in_the_order_of_the_weights():
    """The last two values are the output's bias, whose gradient is that of the mean of squares: out / 6 rows."""
    (_, mine), (_, theirs) = (squares(backend) for backend in BOTH.values())
    for ours, grad in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(ours, grad, rtol=1e-5, atol=1e-7)
    (out,) = two_networks(TORCH)["a"](TORCH.tensor(OBS.copy()))
    np.testing.assert_allclose(mine[0][:, -2:], out.detach().numpy().sum(1) / 6, rtol=1e-5, atol=1e-7)


@on_both
def test_only_the_networks_that_are_trained_have_a_gradient_and_an_ignored_one_has_zero(backend):
    assert len(squares(backend, trains=("b",))[1]) == 1
    nets = two_networks(backend)
    columns = {"obs": backend.tensor(OBS.copy())}

    def loss(given, columns, hyper):
        return backend.ops.sum(backend.ops.sum(given["a"](columns["obs"])[0], -1), -1), {}

    _, (used, ignored) = backend.gradients(loss, nets, ("a", "b"), columns, {})
    assert backend.numpy(used).any()
    assert backend.numpy(ignored).shape == backend.numpy(nets["b"].flat).shape and not backend.numpy(ignored).any()


@on_both
def test_nothing_is_recorded_where_no_gradient_is_wanted(backend):
    nets = two_networks(backend)

    def loss(given, columns, hyper):
        with backend.no_gradient():
            aim = given["a"](columns["obs"])[0]
        gap = given["b"](columns["obs"])[0] - aim
        return backend.ops.sum(backend.ops.sum(backend.ops.square(gap), -1), -1), {}

    _, (aimed, moved) = backend.gradients(loss, nets, ("a", "b"), {"obs": backend.tensor(OBS.copy())}, {})
    assert not backend.numpy(aimed).any()
    assert backend.numpy(moved).any()


@on_both
def test_clipping_by_hand(backend):
    """Norms 3 and 4 are 5 together: at most 2.5 halves them; a limit above, or none, leaves them; zero stays zero."""
    grads = [np.array([[1, 2, 2]] * 3 + [[0, 0, 0]], np.float32), np.array([[4, 0]] * 3 + [[0, 0]], np.float32)]
    limits = backend.tensor(np.array([2.5, 6.0, np.inf, 1.0], np.float32))
    clipped, norms, factor = backend.clip([backend.tensor(grad.copy()) for grad in grads], limits)
    expected = np.array([[0.5], [1], [1], [1]], np.float32)
    np.testing.assert_allclose(backend.numpy(factor), expected[:, 0], rtol=1e-6)
    for grad, result in zip(grads, clipped, strict=True):
        np.testing.assert_allclose(backend.numpy(result), grad * expected, rtol=1e-6)
    assert [backend.numpy(norm).tolist() for norm in norms] == [[3, 3, 3, 0], [4, 4, 4, 0]]


@on_both
def test_clipping_is_torchs_own_for_each_row(backend):
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal((3, n)).astype(np.float32) for n in (5, 7)]
    limits = np.array([0.5, 1.5, 1e9], np.float32)
    clipped, _, _ = backend.clip([backend.tensor(grad.copy()) for grad in grads], backend.tensor(limits))
    for k in range(3):
        leaves = [torch.zeros(len(grad[k]), requires_grad=True) for grad in grads]
        for leaf, grad in zip(leaves, grads, strict=True):
            leaf.grad = torch.from_numpy(grad[k].copy())
        torch.nn.utils.clip_grad_norm_(leaves, float(limits[k]))
        for leaf, result in zip(leaves, clipped, strict=True):
            assert leaf.grad is not None
            np.testing.assert_allclose(backend.numpy(result)[k], leaf.grad.numpy(), rtol=1e-5)


@on_both
def test_rows_and_columns(backend):
    value = backend.tensor(np.arange(24).reshape(2, 4, 3))
    picked = backend.rows({"obs": {"x": value}, "y": value, "legal": None}, np.array([[3, 0], [1, 1]]), 4)
    assert picked["legal"] is None
    for rows in (picked["obs"]["x"], picked["y"]):
        assert backend.numpy(rows)[:, :, 0].tolist() == [[9, 0], [15, 15]]


@on_both
def test_rows_leave_nothing_for_the_garbage_collector(backend):
    """It comes late, and what waits for it keeps the memory around it from being given back."""
    columns, index = {"obs": {"x": backend.tensor(np.zeros((2, 4, 3)))}, "legal": None}, np.array([[3, 0], [1, 1]])
    backend.rows(columns, index, 4)
    gc.collect()
    gc.disable()
    try:
        backend.rows(columns, index, 4)
        assert gc.collect() == 0
    finally:
        gc.enable()


@on_both
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64", "float32"])
def test_arrays_become_tensors_and_come_back(backend, dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.flags.writeable = False
    tree = backend.tensor({"x": array, "y": {"z": array.T}, "none": None})
    assert tree["none"] is None
    for tensor, original in ((tree["x"], array), (tree["y"]["z"], array.T)):
        back = backend.numpy(tensor)
        assert back.dtype == original.dtype and np.array_equal(back, original)


@on_both
def test_foreign_generators_are_seeded_and_numpys_is_put_back(backend):
    def drawn(seed):
        with backend.seeded(np.random.default_rng(seed)):
            own = torch.rand(2).tolist() if backend is TORCH else keras.random.uniform((2,)).numpy().tolist()
            return own, np.random.random(2).tolist()

    np.random.seed(7)
    state = repr(np.random.get_state(legacy=False)), torch.get_rng_state()
    assert drawn(0) == drawn(0)
    assert drawn(0)[0] != drawn(1)[0]
    assert drawn(0)[1] != drawn(1)[1]
    with pytest.raises(ZeroDivisionError), backend.seeded(np.random.default_rng(0)):
        raise ZeroDivisionError
    assert repr(np.random.get_state(legacy=False)) == state[0]
    assert torch.equal(torch.get_rng_state(), state[1])


@on_both
def test_threads_are_those_of_the_environment_variable(backend):
    assert backend.threads() == 1


@pytest.mark.parametrize(
    ("name", "device", "words"),
    [
        ("torhc", "cpu", "Did you mean 'torch'"),
        ("keras", "cpu", "backend must be one of tensorflow, torch, got 'keras'"),
        ("torch", "abc", "device 'abc' cannot be used"),
        ("torch", "cuda:7", "device 'cuda:7' cannot be used"),
        ("tensorflow", "abc", "device 'abc' cannot be used: TensorFlow sees CPU:0"),
        ("tensorflow", "gpu:7", "device 'gpu:7' cannot be used: TensorFlow sees CPU:0"),
    ],
)
def test_what_is_no_backend(name, device, words):
    with pytest.raises(ConfigError) as caught:
        make_backend(name, device)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "line"), [("tensorflow", 'pip install "marltrain[tensorflow]"'), ("torch", "pip install torch")]
)
def test_a_framework_that_is_missing_is_told_with_the_line_that_installs_it(monkeypatch, name, line):
    monkeypatch.setitem(sys.modules, name, None)  # what an import of something absent comes to
    with pytest.raises(ConfigError) as caught:
        make_backend(name)
    assert str(caught.value) == f"backend {name!r} is not installed: {line}"


@pytest.mark.parametrize("error", [ImportError, OSError])
def test_a_framework_that_is_broken_names_the_doctor(monkeypatch, error):
    def broken(name):
        raise error("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(backends, "import_module", broken)
    with pytest.raises(ConfigError, match=r"'torch' cannot be imported: .*libgomp.so.1.*`marltrain doctor`"):
        make_backend("torch")


def test_each_knows_its_own_models():
    assert TORCH.is_module(torch.nn.Linear(1, 1)) and not TENSORFLOW.is_module(torch.nn.Linear(1, 1))
    assert TENSORFLOW.is_module(keras.Sequential()) and not TORCH.is_module(keras.Sequential())
    for makes in (keras.Sequential, torch.nn.Linear, lambda: None):  # called for a model of each agent
        assert TENSORFLOW.is_module(makes) and TORCH.is_module(makes)
    assert not TENSORFLOW.is_module(3) and not TORCH.is_module(MLP())


def test_triton_is_loaded_before_tensorflow(monkeypatch, tmp_path):
    """TensorFlow 2.21 and then Triton 3.8, of PyTorch, end the process by a segmentation fault."""
    (tmp_path / "triton.py").write_text("")
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    make_backend("torch")
    assert "triton" not in sys.modules
    make_backend("tensorflow")
    assert sys.modules.pop("triton").__file__ == str(tmp_path / "triton.py")
