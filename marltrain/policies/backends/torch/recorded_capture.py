"""A capture without a GPU: the operations of a call are recorded and repeated on the same tensors, with checks.

It has the rules of CUDA graphs, so that a CPU can test that functions may be captured, and that captured calls compute
what plain calls compute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from marltrain.core.layout import map_tree
from marltrain.policies.backends.torch.capture_protocol import Function, Graph
from marltrain.policies.backends.torch.captures import cannot_capture

aten = torch.ops.aten
HOST_READS = (Tensor.cpu, Tensor.numpy, Tensor.tolist, Tensor.__array__)
FROM_HOST = (aten.lift_fresh.default, aten.lift_fresh_copy.default)
"""Operations that make tensors from numbers of Python."""
BY_INDEX = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
"""Operations whose shapes depend on numbers only for indices of booleans."""
UNFIT = {
    torch.Tag.data_dependent_output: "reads a number of a tensor",
    torch.Tag.dynamic_output_shape: "gives a tensor whose shape depends on numbers",
    torch.Tag.nondeterministic_seeded: "draws random numbers",
}
JUNK = 0xFF
"""Value of the bytes of intermediate results between calls: NaN as a float32, -1 as an int64."""


class RecordedCapture:
    """Captures calls as lists of torch's operations, to be used with `places.cpu_as_gpu`.

    Every captured call is made twice, by the list and by the function. ConfigError is raised if results, weights or
    moments differ in a bit. The results of a call are overwritten when the next one starts.

    Copies are carried out at once, but as if they were under way until a mark behind them is waited for: results are
    not in the memory of the CPU before, and memory that is changed before raises RuntimeError.

    calls: number of captured calls that were carried out.
    """

    def __init__(self) -> None:
        """Start without captures."""
        self.calls = 0
        self.device, self.lock = torch.device("cpu"), threading.RLock()
        self._last: _Recording | None = None
        self._under_way: list[_Copy] = []
        self._finished = 0  # copies

    def warmed_up(self, function: Function, given: Sequence[Tensor]) -> Any:
        """See `Capture`."""
        return function(*given)

    def __call__(self, function: Function, fixed: Sequence[Tensor]) -> Graph:
        """See `Capture`; the present numbers of weights and moments are restored after the recorded call."""
        recording = _Recording(fixed)
        with _NoHostReads(), recording:
            kept = map_tree(Tensor.detach, function(*fixed))
        recording.undo()

        def start(given: Sequence[Any]) -> Any:
            self.calls += 1
            if self._last is not None:
                self._last.spoil()
            self._last = recording
            before = recording.changed()
            with torch.no_grad():
                recording.repeat()
            captured = _bytes_of(kept, recording.changed())
            for memory, numbers in before:
                memory.copy_(numbers)
            if _bytes_of(function(*map(_as_tensor, given)), recording.changed()) != captured:
                raise cannot_capture("the captured call computes other numbers than a call of the function")
            return kept

        return start

    def host(self, size: int) -> Tensor:
        """See `Capture`."""
        return torch.full((size,), JUNK, dtype=torch.uint8)

    def send(self, memory: Tensor, into: Tensor) -> None:
        """See `Capture`."""
        into.copy_(memory)
        self._begin(_Copy(memory, memory.clone(), fetches=False))

    def fetch(self, results: Tensor, memory: Tensor) -> None:
        """See `Capture`."""
        numbers = results.detach().clone()
        memory.fill_(JUNK)
        self._begin(_Copy(memory, numbers, fetches=True))

    def mark(self) -> _Mark:
        """See `Capture`."""
        return _Mark(self)

    def _begin(self, copy: _Copy) -> None:
        if any(other.memory.data_ptr() == copy.memory.data_ptr() for other in self._under_way):
            raise RuntimeError("memory of the CPU is used by two copies at the same time: wait for the first one")
        self._under_way.append(copy)

    def count(self) -> int:
        """Return the number of copies so far."""
        return self._finished + len(self._under_way)

    def finish(self, count: int) -> None:
        """End the first `count` copies; raises RuntimeError if memory that one of them reads was changed."""
        ended = max(0, count - self._finished)
        over, self._under_way = self._under_way[:ended], self._under_way[ended:]
        self._finished += len(over)
        for copy in over:
            if copy.fetches:
                copy.memory.copy_(copy.numbers)
            elif not torch.equal(copy.memory, copy.numbers):
                raise RuntimeError("memory of the CPU was changed before the end of a copy that reads it")


class _Copy(NamedTuple):
    """A copy under way between `memory` of the CPU and the device.  numbers: that are copied."""

    memory: Tensor
    numbers: Tensor
    fetches: bool


class _Mark:
    """The number of copies before the mark."""

    def __init__(self, capture: RecordedCapture) -> None:
        self._capture, self._count = capture, 0

    def record(self) -> None:
        self._count = self._capture.count()

    def synchronize(self) -> None:
        self._capture.finish(self._count)


@dataclass(frozen=True)
class _Outside:
    """A tensor that a recorded operation reads and no recorded operation has made: weights, moments, constants.

    like: a tensor without numbers, of its shape.
    """

    operation: str
    storage: StorageWeakRef
    address: int
    like: Tensor

    def tensor(self) -> Tensor:
        """Return the tensor; raises ConfigError if its memory is gone."""
        storage = _storage_of(self.storage)
        if storage.data_ptr() != self.address:
            raise cannot_capture(f"{self.operation} reads a tensor whose memory was moved after the capture")
        empty = torch.empty(0, dtype=self.like.dtype)
        return empty.set_(storage, self.like.storage_offset(), self.like.shape, self.like.stride())


class _Operation(NamedTuple):
    """A recorded call.  results: the tensors that it returned, None for those on the memory of its arguments."""

    call: Callable[..., Any]
    args: Any
    kwargs: Any
    results: list[Tensor | None]


class _Recording(TorchDispatchMode):
    """Records the operations of a call."""

    def __init__(self, fixed: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations: list[_Operation] = []
        self._own = {_storage(tensor): tensor for tensor in fixed}  # storages of arguments and results
        self._made: list[Tensor] = []
        self._before: dict[int, tuple[StorageWeakRef, Tensor]] = {}  # memory from outside that is changed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        _check(func, args)
        changed = _changed(func, args, kwargs)
        self._keep(changed)
        noted = [tree_map(lambda leaf: self._noted(func, leaf), tree) for tree in (args, kwargs)]
        out = func(*args, **kwargs)
        before = {_storage(tensor) for tensor in given}
        results = [None if _storage(tensor) in before else tensor.detach() for tensor in _tensors(out)]
        made = [tensor for tensor in results if tensor is not None]
        if made or changed:  # a view needs no operation
            self._operations.append(_Operation(func, noted[0], noted[1], results))
        self._own.update({_storage(tensor): tensor for tensor in made})
        self._made.extend(made)
        return out

    def _keep(self, tensors: Sequence[Tensor]) -> None:
        """Keep the numbers of tensors from outside that an operation changes."""
        for tensor in tensors:
            if (key := _storage(tensor)) not in self._own and key not in self._before:
                storage = tensor.untyped_storage()
                self._before[key] = StorageWeakRef(storage), _memory(storage).clone()

    def _noted(self, func: Any, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if _storage(leaf) in self._own:
            return leaf.detach()
        storage = leaf.untyped_storage()
        like = torch.empty(0, dtype=leaf.dtype, device="meta")
        like = like.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
        return _Outside(str(func), StorageWeakRef(storage), storage.data_ptr(), like)

    def undo(self) -> None:
        """Undo the changes of tensors from outside."""
        for reference, numbers in self._before.values():
            _memory(_storage_of(reference)).copy_(numbers)
        self.spoil()

    def changed(self) -> list[tuple[Tensor, Tensor]]:
        """Return the memory from outside that the operations change, and a copy of it."""
        present = [_memory(_storage_of(reference)) for reference, _ in self._before.values()]
        return [(memory, memory.clone()) for memory in present]

    def repeat(self) -> None:
        """Carry out the operations on their tensors."""
        for operation in self._operations:
            args, kwargs = tree_map(_present, (operation.args, operation.kwargs))
            for old, new in zip(operation.results, _tensors(operation.call(*args, **kwargs)), strict=True):
                if old is not None:
                    old.copy_(new)

    def spoil(self) -> None:
        """Overwrite the results of operations: another graph may use their memory between calls."""
        for tensor in self._made:
            _memory(tensor.untyped_storage()).fill_(JUNK)


class _NoHostReads(TorchFunctionMode):
    """Refuses the methods that copy the numbers of a tensor to the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_READS:
            raise cannot_capture(f"{func.__name__} copies a tensor to the CPU")
        return func(*args, **(kwargs or {}))


def _check(func: Any, args: Any) -> None:
    """Raise ConfigError for an operation that a CUDA graph cannot hold."""
    if func in FROM_HOST:
        raise cannot_capture(f"{func} makes a tensor from numbers of the CPU")
    if func in BY_INDEX:
        if any(index.dtype in (torch.bool, torch.uint8) for index in _tensors(args[1])):
            raise cannot_capture(f"{func} selects rows by booleans")
        return
    for tag, why in UNFIT.items():
        if tag in func.tags:
            raise cannot_capture(f"{func} {why}")


def _changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the arguments that an operation changes in place."""
    by_name = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    written = [each.name for each in func._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    return _tensors([by_name[name] for name in written if name in by_name])


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _storage_of(reference: StorageWeakRef) -> torch.UntypedStorage:
    """Return the memory that is referred to; raises ConfigError if it was released."""
    storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    if storage is None:
        raise cannot_capture("an operation reads or changes a tensor whose memory was released after the capture")
    return storage


def _memory(storage: torch.UntypedStorage) -> Tensor:
    """Return the bytes of memory, as a tensor on it."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _bytes_of(results: Any, changed: Sequence[tuple[Tensor, Tensor]]) -> list[bytes]:
    """Return the bytes of results and of changed memory."""
    tensors = [*_tensors(results), *(numbers for _, numbers in changed)]
    return [tensor.detach().contiguous().numpy().tobytes() for tensor in tensors]


def _present(leaf: Any) -> Any:
    return leaf.tensor() if isinstance(leaf, _Outside) else leaf


def _as_tensor(given: Any) -> Tensor:
    """Return a new tensor for an array, and a tensor itself."""
    return torch.from_numpy(np.array(given)) if isinstance(given, np.ndarray) else given
