"""Captured calls: one capture for each shape, made at the second call; the results of a call stay."""

from __future__ import annotations

import gc
import inspect
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.torch import Backend, captures, ops
from marltrain.policies.backends.torch.buffers import by_dtype
from marltrain.policies.backends.torch.captures import Captured, CudaCapture
from marltrain.policies.backends.torch.networks import StackedNetwork
from marltrain.policies.backends.torch.places import cpu_as_gpu, instead, on_cpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture, _Recording
from marltrain.policies.networks.specs import Head, NetworkDefinition, Plan

CPU = torch.device("cpu")
PLAN = Plan(NetworkDefinition(None, (Head(0, free=2),), None))


class Traced:
    """y += x, and the number of its calls."""

    def __init__(self):
        self.y, self.calls = torch.zeros(3), 0

    def __call__(self, tree):
        self.calls += 1
        self.y += tree["x"].sum(0)
        return {"y": self.y * 1.0, "none": None}


def test_the_second_call_of_each_shape_is_captured():
    function, capture = Traced(), RecordedCapture()
    captured, results = Captured(function, capture), []
    for rows, made in ((1, 0), (2, 0), (1, 1), (1, 2), (2, 3)):
        results.append(captured({"x": torch.full((rows, 3), float(rows)), "none": None})["y"])
        assert capture.calls == made
    assert [result.tolist() for result in results] == [[n] * 3 for n in (1.0, 5.0, 6.0, 7.0, 11.0)]
    assert function.y.tolist() == [11.0] * 3


def test_further_shapes_are_computed_without_a_capture(monkeypatch):
    monkeypatch.setattr(captures, "MOST_CAPTURES", 1)
    function, capture = Traced(), RecordedCapture()
    captured = Captured(function, capture)
    for rows in (1, 2, 1, 2, 2):
        captured({"x": torch.ones(rows, 3)})
    assert capture.calls == 1
    assert function.y.tolist() == [8.0] * 3


def test_tensors_are_copied_together_with_those_of_their_dtype():
    tensors = [torch.zeros(1), torch.zeros(2, dtype=torch.int64), torch.zeros(3)]
    assert [(len(own), places) for own, places in by_dtype(dict(enumerate(tensors)))] == [(2, [0, 2]), (1, [1])]


def test_a_cpu_in_place_of_a_gpu():
    capture, array = RecordedCapture(), torch.zeros(2).numpy()
    assert on_cpu(CPU) and instead() is None
    with cpu_as_gpu(capture):
        assert not on_cpu(CPU) and instead() is capture
        backend, plain = Backend("cpu", jit_compile=True), Backend("cpu")
        tensor = backend.tensor(array)
        copy = backend.numpy(tensor)
        array += 1.0
        copy += 2.0
        assert tensor.tolist() == [0.0, 0.0]
        assert isinstance(backend.captured(Traced()), Captured) and not backend.runs_programs
        assert not isinstance(plain.captured(Traced()), Captured)
        numbers = ops.tensor_like(torch.zeros(1), [1.0, 2.0])
        assert ops.tensor_like(torch.zeros(1), [1.0, 2.0]) is numbers
    assert on_cpu(CPU) and instead() is None


@pytest.mark.parametrize("share", [[1.0, 0.0, 0.25], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_targets_move_without_a_number_that_is_read(share):
    """On a GPU, agents are not selected by numbers; target networks move as on a CPU."""

    def moved():
        one, two = (StackedNetwork(PLAN, 3, CPU) for _ in range(2))
        one.assign(torch.arange(6.0).view(3, 2))
        two.assign(torch.full((3, 2), 7.0))
        one.move_toward(two, torch.tensor(share))
        return one.flat.tolist()

    expected = moved()
    with cpu_as_gpu(RecordedCapture()):
        assert moved() == expected


class Cuda:
    """torch.cuda with the signatures of torch, whose graphs are recordings on a CPU."""

    def __init__(self, monkeypatch):
        self.events = []
        for name in ("Stream", "CUDAGraph", "current_stream", "graph_pool_handle", "stream", "device", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def Stream(self):  # noqa: N802
        return Stream("captures")

    def current_stream(self):
        return Stream("caller")

    def graph_pool_handle(self):
        return "pool"

    @contextmanager
    def device(self, device):
        yield

    @contextmanager
    def stream(self, stream):
        self.events.append(f"call on {stream.name}")
        yield

    def CUDAGraph(self):  # noqa: N802
        return SimpleNamespace(recording=None, replay=lambda: None)

    @contextmanager
    def graph(self, cuda_graph, *given, **options):
        asked = GRAPH.bind(None, cuda_graph, *given, **options).arguments
        self.events.append(f"capture on {asked['stream'].name} in {asked['pool']}")
        assert not gc.isenabled()
        recording = cuda_graph.recording = _Recording([])
        with recording:
            yield
        recording.undo()
        cuda_graph.replay = lambda: self._replay(recording)

    def _replay(self, recording):
        self.events.append("replay")
        with torch.no_grad():
            recording.repeat()


class Stream(SimpleNamespace):
    def __init__(self, name):
        super().__init__(name=name)

    def wait_stream(self, stream):
        assert stream.name != self.name


GRAPH = inspect.signature(torch.cuda.graph.__init__)


@pytest.mark.parametrize("collects", [True, False])
def test_a_cuda_graph_is_made_and_started_with_the_arguments_of_torch(collects, monkeypatch):
    (gc.enable if collects else gc.disable)()
    cuda, function = Cuda(monkeypatch), Traced()
    captured = Captured(function, CudaCapture(CPU))
    results = [captured({"x": torch.full((2, 3), float(i)), "none": None})["y"].tolist() for i in (1, 2, 3)]
    assert results == [[2.0] * 3, [6.0] * 3, [12.0] * 3]
    assert cuda.events == ["call on captures", "capture on captures in pool", "replay", "replay"]
    assert function.calls == 2
    assert gc.isenabled() == collects
    gc.enable()


def test_a_function_that_cuda_cannot_capture(monkeypatch):
    Cuda(monkeypatch)

    def fails(x):
        if (calls := len(seen)) > 0:
            raise RuntimeError("operation not permitted when stream is capturing")
        seen.append(calls)
        return x * 1.0

    seen: list[int] = []
    captured = Captured(fails, CudaCapture(CPU))
    captured(torch.ones(2))
    with pytest.raises(ConfigError, match="not permitted"):
        captured(torch.ones(2))
