"""Arguments and results in one buffer, and mistakes of lifetime: memory that is used while a copy is under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.torch.buffers import ALIGNED, Arguments, Fetch, Fetches, Layout, Packed
from marltrain.policies.backends.torch.captures import Captured, CapturedCall, Starting
from marltrain.policies.backends.torch.recorded_capture import JUNK, RecordedCapture

KINDS = [(np.dtype(bool), (3,)), (np.dtype(np.float32), (2, 2)), (np.dtype(np.int64), ()), (np.dtype(np.uint8), (0, 4))]


@pytest.mark.parametrize("aligned", [1, ALIGNED])
def test_arrays_and_tensors_of_a_layout_are_at_the_same_places(aligned):
    layout = Layout(KINDS, aligned)
    buffer = np.zeros(layout.size, np.uint8)
    for i, array in enumerate(layout.arrays(buffer)):
        assert (array.dtype, array.shape) == KINDS[i] and array.flags.aligned
        assert aligned == 1 or (array.ctypes.data - buffer.ctypes.data) % aligned == 0
        array[...] = i + 1
    tensors = layout.tensors(torch.from_numpy(buffer))
    assert [tensor.unique().tolist() for tensor in tensors] == [[True], [2.0], [3], []]
    assert layout.order[0] == 2  # the widest


def twice(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"x": x * 2.0, "none": None, "inner": {"y": y.t() + 1, "flag": y > 2}}


def started(capture: RecordedCapture) -> Starting:
    """Return the function after its capture."""
    function = Starting(twice, capture)
    for _ in range(2):
        function(*given(0)).result()
    return function


def given(i: int) -> tuple[Any, Any]:
    """Return an array and a tensor."""
    return np.full((2, 3), i, np.float32), torch.arange(6).view(2, 3) + i


def check(found: Any, i: int) -> None:
    assert found["none"] is None
    assert np.array_equal(found["x"], np.full((2, 3), 2.0 * i, np.float32))
    assert np.array_equal(found["inner"]["y"], np.arange(6).reshape(2, 3).T + i + 1)
    assert np.array_equal(found["inner"]["flag"], np.arange(6).reshape(2, 3) + i > 2)


def test_calls_that_are_started_one_after_another_are_read_in_any_order():
    capture = RecordedCapture()
    function = started(capture)
    calls = [function(*given(i)) for i in range(4)]
    for i in (2, 0, 3, 1):
        found = calls[i].result()
        check(found, i)
        found["x"][...] = -1.0  # results are the caller's own
    assert capture.calls == 5
    check(function(*given(5)).result(), 5)
    assert len(function._traces) == 1


def test_arguments_may_change_after_the_start():
    function = started(RecordedCapture())
    x, y = given(1)
    call = function(x, y)
    x[...] = 7.0
    function(x, y)
    y.fill_(9)
    check(call.result(), 1)


def test_a_function_without_captures_starts_as_well(monkeypatch):
    monkeypatch.setattr("marltrain.policies.backends.torch.captures.MOST_CAPTURES", 0)
    capture = RecordedCapture()
    check(started(capture)(*given(3)).result(), 3)
    assert capture.calls == 0


def test_a_function_without_results():
    assert Starting(lambda x: {"none": None}, RecordedCapture())(np.zeros(2)).result() == {"none": None}


# mistakes, which only a GPU would show by wrong numbers


def test_memory_that_is_read_before_its_mark_is_junk():
    call = started(RecordedCapture())(*given(1))
    assert (call._landing.array == JUNK).all()
    check(call.result(), 1)


def test_arguments_that_are_written_under_a_copy_are_found():
    capture = RecordedCapture()
    arguments = Arguments(given(0), capture)
    arguments.write(given(1))
    assert [tensor.unique().tolist() for tensor in arguments.fixed] == [[1.0], [1, 2, 3, 4, 5, 6]]
    source = arguments._sources[1]
    source.arrays[0][...] = 3.0
    with pytest.raises(RuntimeError, match="changed before the end"):
        source.mark.synchronize()


@pytest.mark.parametrize("waits", [True, False])
def test_arguments_wait_for_the_copy_before_the_last_one(waits):
    capture = RecordedCapture()
    arguments = Arguments(given(0), capture)
    if not waits:
        for source in arguments._sources:
            source.mark = capture.mark()
            source.mark.record = lambda: None  # type: ignore[method-assign]
    for i in range(2):
        arguments.write(given(i))
    if waits:
        arguments.write(given(2))
    else:
        with pytest.raises(RuntimeError, match="two copies at the same time"):
            arguments.write(given(2))


def test_memory_of_results_that_is_given_back_too_early_is_found():
    capture, packed = RecordedCapture(), Packed(lambda x: x + 1.0)
    fetches = Fetches(packed, capture)
    first = fetches.start(packed(torch.ones(2)))
    fetches._free.append(first._landing)
    with pytest.raises(RuntimeError, match="two copies at the same time"):
        fetches.start(packed(torch.ones(2)))


def test_results_that_are_kept_without_a_copy_are_overwritten():
    capture = RecordedCapture()
    captured = Captured(lambda x: x * 2.0, capture)
    captured(np.ones(2, np.float32))
    kept = [captured.bound(np.full(2, i, np.float32)) for i in (1.0, 2.0)]
    (call, first), (_, second) = kept
    assert isinstance(call, CapturedCall)
    mistaken = call.run(lambda results: results, *first)
    assert mistaken.tolist() == [2.0, 2.0]
    assert call(*second).tolist() == [4.0, 4.0]
    assert mistaken.tolist() != [2.0, 2.0]


def test_a_stale_argument_is_found(monkeypatch):
    function = started(RecordedCapture())
    monkeypatch.setattr(Arguments, "write", lambda self, given: None)
    with pytest.raises(ConfigError, match="other numbers"):
        function(*given(4))


def test_results_are_read_once_from_their_memory():
    call: Fetch = started(RecordedCapture())(*given(1))
    free = call._free
    call.result()
    call.result()
    assert len(free) == 1
