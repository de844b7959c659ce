"""Symbols: tensors without numbers, whose operations are written down on a tape.

A symbol is a view of the result of an operation, so that moving, slicing, joining and repeating axes costs nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import numpy as np

from marltrain.core.errors import MarlTrainError
from marltrain.policies.tape.operations import OPERATIONS, DType
from marltrain.policies.tape.views import View, whole

Number = float | int | bool


class RecordError(MarlTrainError, TypeError):
    """An operation that a tape cannot record, such as one for which Python needs the numbers of a tensor."""


class Node:
    """One operation of a tape.

    op: a name of `operations.OPERATIONS`.  args: its arguments.  attrs: hashable constants.
    shape, dtype: those of the result.  index: place in the list of the tape.
    depends: whether a gradient may flow through the result to weights.
    """

    __slots__ = ("args", "attrs", "depends", "dtype", "index", "op", "shape", "tape")

    def __init__(
        self, tape: Tape, op: str, args: tuple[Symbol, ...], attrs: tuple[Any, ...], shape: tuple[int, ...],
        dtype: DType, index: int,
    ) -> None:  # fmt: skip
        """Store the parts; `Tape.node` makes nodes."""
        self.tape, self.op, self.args, self.attrs = tape, op, args, attrs
        self.shape, self.dtype, self.index = shape, dtype, index
        self.depends = dtype == "float" and (op == "weights" or any(arg.depends for arg in args))

    @property
    def size(self) -> int:
        """Number of numbers of the result."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        """Return the node as a line: `%3 = add(%1, %2) float[2, 5]`."""
        given = [*map(repr, self.args), *("..." if isinstance(each, bytes) else repr(each) for each in self.attrs)]
        return f"%{self.index} = {self.op}({', '.join(given)}) {self.dtype}{list(self.shape)}"


class Tape:
    """A list of operations, each after its arguments; equal operations are recorded once.

    frozen: whether new results are constants of the loss, see `no_gradient`.
    """

    def __init__(self) -> None:
        """Start an empty list."""
        self.nodes: list[Node] = []
        self.frozen = False
        self._known: dict[Any, Node] = {}

    def node(
        self, op: str, args: Sequence[Symbol], shape: Sequence[int], dtype: DType = "float", attrs: tuple[Any, ...] = ()
    ) -> Symbol:
        """Return the result of an operation, recorded unless an equal one has been.

        Without an argument that has a gradient, it is the operation of the arguments as they were before
        `stop_gradient`, and the result has no gradient.  Raises ValueError for an unknown operation.
        """
        if op not in OPERATIONS:
            raise ValueError(f"operation {op!r} is unknown: enter it in tape/operations.py")
        constant = dtype != "float" or (bool(args) and not any(arg.depends for arg in args))
        given = tuple(arg.attached() for arg in args) if constant else tuple(args)
        key = op, tuple(arg.key for arg in given), attrs, tuple(shape), dtype
        if (known := self._known.get(key)) is None:
            known = Node(self, op, given, attrs, tuple(shape), dtype, len(self.nodes))
            self.nodes.append(known)
            self._known[key] = known
        return Symbol(known, whole(known.shape), known.dtype, known.depends and (constant or self.frozen))

    @contextmanager
    def no_gradient(self) -> Iterator[None]:
        """Record results without gradients within, as `torch.no_grad` does."""
        before, self.frozen = self.frozen, True
        try:
            yield
        finally:
            self.frozen = before

    def input(self, name: str, shape: Sequence[int], dtype: DType = "float") -> Symbol:
        """Return a tensor that is given; the boolean one of given bytes."""
        given = self.node("input", (), shape, dtype, (name,))
        return self.node("from_bytes", (given,), shape, "boolean") if dtype == "bytes" else given

    def constant(self, number: Number) -> Symbol:
        """Return a constant, of shape (); its type is that of the number in Python."""
        if isinstance(number, bool):
            return self.node("constant", (), (), "boolean", (float(number),))
        return self.node("constant", (), (), "integer" if isinstance(number, int) else "float", (number,))

    def array(self, numbers: Any) -> Symbol:
        """Return constant numbers, float32."""
        made = np.asarray(numbers, np.float32)
        return self.node("array", (), made.shape, "float", (made.tobytes(),))

    def __repr__(self) -> str:
        """Return the list, a line for each operation."""
        return "\n".join(map(repr, self.nodes))


COMPARISONS = ("greater", "greater_equal", "equal", "not_equal")
ACCEPTED: dict[str, tuple[DType, ...]] = {
    **dict.fromkeys(COMPARISONS, ("float", "integer")),
    **dict.fromkeys(("equal", "not_equal"), ("float", "integer", "boolean")),
    **dict.fromkeys(("and", "or", "not"), ("boolean",)),
    **dict.fromkeys(("where", "copy"), ("float", "integer", "boolean")),
}
"""Types of arguments of the operations that accept other types than float."""
BOOLEAN = (*COMPARISONS, "and", "or", "not", "isfinite")
"""Operations with a boolean result."""
FOLDED: dict[str, Callable[..., float]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "negative": operator.neg, "square": lambda x: x * x, "exp": math.exp, "absolute": abs,
}  # fmt: skip
"""Operations that are carried out at once on constants."""


def _operation(op: str) -> tuple[Callable[[Symbol, Any], Symbol], Callable[[Symbol, Any], Symbol]]:
    """Return the methods that record op(self, other) and op(other, self)."""
    return lambda self, other: recorded(op, self, other), lambda self, other: recorded(op, other, self)


def _value_of(what: str) -> Callable[..., NoReturn]:
    """Return a method that raises RecordError, because Python asks for the numbers of a tensor."""

    def refuse(self: Symbol, *_: Any, **__: Any) -> NoReturn:
        raise RecordError(f"{what} needs the numbers of a tensor of shape {self.shape}, which a recorded loss lacks")

    return refuse


class Symbol:
    """A tensor without numbers: a view of the result of a node.

    node: the operation.  view: places among the numbers of its result.
    dtype: that of the node; "float" also for booleans that are read as 0.0 and 1.0.
    detached: whether it is a constant of the loss, through which no gradient flows.
    """

    __slots__ = ("detached", "dtype", "node", "view")
    __array_ufunc__ = None  # a number of numpy times a symbol asks the symbol
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, node: Node, view: View, dtype: DType, detached: bool = False) -> None:
        """Store the parts."""
        self.node, self.view, self.dtype, self.detached = node, view, dtype, detached

    @property
    def tape(self) -> Tape:
        """The tape of the node."""
        return self.node.tape

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.view.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.view.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.view.size

    @property
    def offset(self) -> int:
        """Place of the first entry among the numbers of the node."""
        return self.view.offset

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances of neighboring entries, in elements; 0 for repeated axes and those of size 1."""
        return self.view.strides

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two symbols of a tape with equal numbers, type and gradient."""
        return self.node.index, self.view, self.dtype, self.detached

    @property
    def is_whole(self) -> bool:
        """Whether the entries are all numbers of the node, in their order; the shape may be another."""
        return self.size == self.node.size and self.view == whole(self.shape)

    @property
    def depends(self) -> bool:
        """Whether a gradient may flow from the symbol to weights."""
        return self.node.depends and not self.detached

    @property
    def number(self) -> float | None:
        """The number of a constant; None for other symbols."""
        return self.node.attrs[0] if self.node.op == "constant" else None

    def __repr__(self) -> str:
        """Return the number of the node, and the view unless it is the whole result."""
        part = "" if self.is_whole and self.shape == self.node.shape else f"[{self.offset}:{self.shape}:{self.strides}]"
        return f"%{self.node.index}{part}{' detached' if self.detached else ''}"

    # views

    def viewed(self, view: View) -> Symbol:
        """Return another view of the same node."""
        return Symbol(self.node, view, self.dtype, self.detached)

    def detach(self) -> Symbol:
        """Return the symbol as a constant of the loss."""
        return Symbol(self.node, self.view, self.dtype, self.node.depends)

    def attached(self) -> Symbol:
        """Return the symbol with the gradient that `detach` took away."""
        return Symbol(self.node, self.view, self.dtype) if self.detached else self

    def as_float(self) -> Symbol:
        """Return booleans as the numbers 0.0 and 1.0."""
        if self.dtype not in ("float", "boolean"):
            raise RecordError(f"a tensor of dtype {self.dtype} cannot be read as float: expected float or boolean")
        return Symbol(self.node, self.view, "float", self.detached)

    def broadcast(self, shape: Sequence[int]) -> Symbol:
        """Return the entries repeated to a shape."""
        return self if self.shape == tuple(shape) else self.viewed(self.view.broadcast(shape))

    def expanded(self, axis: int) -> Symbol:
        """Return the symbol with a new axis of size 1 at a place of the result."""
        return self.viewed(self.view.expanded(axis))

    def moved(self, source: int, destination: int) -> Symbol:
        """Return the symbol with an axis moved to another place."""
        return self.viewed(self.view.moved(source, destination))

    def reshape(self, *shape: Any) -> Symbol:
        """Return the entries in their order with another shape, in which one size may be -1; copied if necessary."""
        sizes = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if -1 in sizes:
            sizes[sizes.index(-1)] = self.size // max(-math.prod(sizes), 1)
        if math.prod(sizes) != self.size:
            raise ValueError(f"{self.size} numbers of shape {self.shape} cannot have the shape {tuple(shape)}")
        if (view := self.view.reshaped(sizes)) is None:
            made = self.tape.node("copy", (self,), self.shape, self.dtype)
            return made.viewed(whole(sizes))
        return self.viewed(view)

    def __len__(self) -> int:
        """Return the size of the first axis."""
        return self.shape[0]

    def __getitem__(self, index: Any) -> Symbol:
        """Return a part, by numbers, slices, None and an Ellipsis."""
        places = index if isinstance(index, tuple) else (index,)
        for place in places:
            if isinstance(place, Symbol) or np.ndim(place):
                raise RecordError("a tensor as an index cannot be recorded: use ops.take or ops.where")
        return self.viewed(self.view.indexed(places))

    def __iter__(self) -> Iterator[Symbol]:
        """Yield the parts along the first axis."""
        return (self[i] for i in range(len(self)))

    # what needs numbers

    __bool__, __float__, __int__ = _value_of("bool"), _value_of("float"), _value_of("int")
    __index__, __complex__, __array__ = _value_of("an index"), _value_of("complex"), _value_of("numpy")
    item, numpy, tolist = _value_of("item"), _value_of("numpy"), _value_of("tolist")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> NoReturn:
        """Raise RecordError: torch is called in place of `ops`."""
        raise RecordError(f"torch's {getattr(function, '__name__', function)} cannot be recorded: use ops")

    # arithmetic

    __add__, __radd__ = _operation("add")
    __sub__, __rsub__ = _operation("subtract")
    __mul__, __rmul__ = _operation("multiply")
    __truediv__, __rtruediv__ = _operation("divide")
    __gt__, __lt__ = _operation("greater")
    __ge__, __le__ = _operation("greater_equal")
    __and__, __rand__ = _operation("and")
    __or__, __ror__ = _operation("or")

    def __eq__(self, other: Any) -> Any:
        """Record self == other."""
        return recorded("equal", self, other)

    def __ne__(self, other: Any) -> Any:
        """Record self != other."""
        return recorded("not_equal", self, other)

    def __invert__(self) -> Symbol:
        """Record not self, of booleans."""
        return recorded("not", self)

    def __neg__(self) -> Symbol:
        """Record -self."""
        return recorded("negative", self)

    def __abs__(self) -> Symbol:
        """Record the size."""
        return recorded("absolute", self)

    def __pow__(self, power: Any) -> Symbol:
        """Record a power: an integer, or 0.5; raises RecordError for others."""
        if isinstance(power, float) and power == 0.5:
            return recorded("sqrt", self)
        if not isinstance(power, int | float) or power != int(power):
            raise RecordError(f"the power {power!r} cannot be recorded: expected an integer or 0.5; use ops.exp")
        if power < 0:
            return 1.0 / self ** int(-power)
        if power == 0:
            return self.tape.constant(1.0).broadcast(self.shape)
        if power % 2:
            return self if power == 1 else self * self ** int(power - 1)
        return recorded("square", self ** (int(power) // 2))


def recorded(op: str, *given: Any) -> Symbol:
    """Return the result of an operation entry by entry, of symbols and numbers that are broadcast.

    Operations on constants are carried out at once, and x + 0, x - 0, x * 1 and x / 1 are x.
    Raises RecordError for types that do not fit: there are no silent conversions.
    """
    tape = next(x.tape for x in given if isinstance(x, Symbol))
    types = {x.dtype for x in given if isinstance(x, Symbol)}
    args = [x if isinstance(x, Symbol) else _constant(tape, op, x, types) for x in given]
    result = _result_type(op, [arg.dtype for arg in args])
    shape = np.broadcast_shapes(*(arg.shape for arg in args))
    if (short := _shortened(op, args)) is not None:
        return short.broadcast(shape)
    return tape.node(op, [arg.broadcast(shape) for arg in args], shape, result)


def _constant(tape: Tape, op: str, number: Any, types: set[DType]) -> Symbol:
    """Return a number as a symbol; an integer is a float, except beside integers."""
    if isinstance(number, np.generic):
        number = number.item()
    if not isinstance(number, int | float):
        raise RecordError(f"{op} of a tensor and {type(number).__name__} cannot be recorded: expected a number")
    return tape.constant(float(number) if type(number) is int and "integer" not in types else number)


def _result_type(op: str, types: list[DType]) -> DType:
    """Return the type of a result; raises RecordError for arguments of other types."""
    same = types[1:] if op == "where" else types
    fits = same[0] in ACCEPTED.get(op, ("float",)) and len(set(same)) == 1
    if fits and (op != "where" or types[0] == "boolean"):
        return same[0] if op in ("where", "copy") else "boolean" if op in BOOLEAN else "float"
    raise RecordError(f"{op} of {' and '.join(types)} tensors cannot be recorded; ops.flag makes booleans float")


def _shortened(op: str, args: list[Symbol]) -> Symbol | None:
    """Return the result of an operation that needs no computation; None if it needs one."""
    numbers = [arg.number for arg in args]
    if op in FOLDED and None not in numbers:
        return args[0].tape.constant(float(FOLDED[op](*numbers)))
    if len(args) == 2:
        if (op in ("add", "subtract") and numbers[1] == 0) or (op in ("multiply", "divide") and numbers[1] == 1):
            return args[0]
        if (op == "add" and numbers[0] == 0) or (op == "multiply" and numbers[0] == 1):
            return args[1]
    return None
