"""Refs: arrays that can be changed in place, and how traces keep their values.

A Ref belongs to the trace in which it was created. If a function that is being staged reads or
writes a Ref from outside, the staging trace makes the Ref's value a hidden input of the Program
and keeps the current value (`ProgramTrace.state_of`); the value at the end becomes an additional
result, which the caller of the function stores in the Ref. Programs therefore contain no Refs.
Other traces (of vmap and of derivatives) read the value of an outer Ref as a constant, and may
store values that do not belong to them. This module may import the modules of the engine below
`program`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import CellType
from typing import Any, NamedTuple

from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.errors import UnexpectedTracerError
from toile.engine.source import Source, here, user_source
from toile.engine.trace import Array, Trace, Tracer, state


class AbstractRef:
    """The type of a Ref: the shape and dtype of the array that it contains.

    Args:
        inner_aval: shape and dtype of the array.
        memory_space: not used.
        kind: not used.
    """

    def __init__(self, inner_aval: Aval, memory_space: Any = None, kind: Any = None):
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.inner_aval.dtype

    @property
    def weak_type(self) -> bool:
        """False: the array keeps its dtype."""
        return False

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    def str_short(self, short_dtypes: bool = False) -> str:
        """Return the text of the type.

        Args:
            short_dtypes: whether to abbreviate the dtype.

        Returns:
            The text, such as "Ref{float32[3]}".
        """
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash(("ref", self.inner_aval))

    def __repr__(self) -> str:
        return self.str_short()


class Ref:
    """An array that can be changed in place, as created by `new_ref`.

    `ref[...]` reads the whole array, and `ref[index] = value` replaces elements, as in NumPy. A Ref
    may be an argument of a transformed function, or a variable that the function uses. A jitted
    function, a loop or a conditional then changes the Ref when it runs. A Ref cannot be returned
    from such a function.

    Args:
        value: initial array.
        kind: "no_grad_no_remat" for a Ref in which differentiated values are stored without their
            derivatives; None for any other Ref.
    """

    __slots__ = ("_value", "_trace", "_aval", "_made", "_kind", "__weakref__")
    _exist = False  # whether the process has created a Ref

    def __init__(self, value: Any, kind: str | None = None):
        trace = state.trace
        while trace is not None and (trace.at_once or not trace.owns_refs):
            trace = trace.parent
        self._value, self._trace = _own(value), trace
        self._aval: Aval = value.aval.strip_weak_type()
        self._kind = kind
        # Where it comes from: a line, or the name of an argument.
        self._made: Source | str | None = None
        Ref._exist = True
        if trace is not None and trace.staging:
            self._made = user_source()

    def _holder(self) -> Any:
        """What keeps the current value: the Ref itself, or its entry in a staging trace."""
        home, trace = self._trace, state.trace
        while trace is not home:
            if trace is None:
                raise UnexpectedTracerError(
                    f"Encountered an unexpected tracer: needed a Ref of the function that is "
                    f"running, got a {self._aval_text()} that was created in a transformed "
                    f"function that has ended (return its value, ref[...], instead){here()}")
            if trace.keeps_refs:
                return trace.state_of(self)
            trace = trace.parent
        return self

    def _read(self) -> Any:
        value = self._holder()._value
        if value is None:
            raise RuntimeError("Ref: needed a live reference, got one that was freed (create one "
                               f"with new_ref){here()}")
        return value

    def _write(self, value: Any, what: str = "a set/swap") -> None:
        """Replace the whole value by an array of the same shape and dtype."""
        holder = self._holder()
        if isinstance(value, Tracer):
            value = self._checked(value, what)
        holder._value = _own(value)

    def _checked(self, value: Any, what: str) -> Any:
        """The value, unless it belongs to a trace that the Ref outlives."""
        home, trace = self._trace, state.trace
        while trace is not None and trace is not home and not trace.keeps_refs:
            if isinstance(value, Tracer) and value._trace is trace:
                if trace.differentiates and self._kind == "no_grad_no_remat":
                    dual: Any = value
                    return self._checked(dual.primal, what)
                kind, place = trace.stored
                raise ValueError(
                    f"performing {what} operation with {kind} array reference of type "
                    f"{self._aval_text()}. Move the array reference to be an argument {place}? (or "
                    f"create it in that function){here()}")
            trace = trace.parent
        return value

    def _free(self) -> None:
        holder = self._holder()
        self._read()
        if holder is not self:
            raise freed_elsewhere()
        self._value = None

    def _aval_text(self) -> str:
        return self.aval.str_short()

    def _origin(self) -> str:
        """The end of an error message about a Ref that was returned."""
        if isinstance(self._made, str):
            return f"passed in as the argument {self._made}"
        return f"created on line {self._made or ''}"

    def __getitem__(self, index: Any) -> Any:
        value = self._read()
        return _own(value) if selects_all(index) else value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._write(_replaced(self._read(), index, value))

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """Add a value to the elements at an index.

        Args:
            x: value to add: a scalar, or an array with the shape that the index selects.
            idx: index, as in `ref[idx]`; `()` for all elements.
        """
        self._write(_increased(self._read(), idx, x), "an addupdate")

    @property
    def at(self) -> RefIndexer:
        """Part of the array as a reference: `ref.at[1:3][0]` is `ref[1:3][0]`."""
        return RefIndexer(self)

    @property
    def aval(self) -> AbstractRef:
        """The shape and dtype of the array, as an `AbstractRef`."""
        return AbstractRef(self._aval)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._aval.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._aval.size

    @property
    def weak_type(self) -> bool:
        """False: the array keeps its dtype."""
        return False

    @property
    def sharding(self) -> Any:
        """How the array is divided."""
        return self._read().sharding

    @property
    def committed(self) -> bool:
        """Whether the array was placed on a device explicitly."""
        return self._read().committed

    def unsafe_buffer_pointer(self) -> int:
        """Return the address of the elements in memory."""
        return self._read().unsafe_buffer_pointer()

    def __len__(self) -> int:
        if not self._aval.shape:
            raise TypeError(f"len() of unsized object: needed a Ref of rank >= 1, got "
                            f"{self._aval_text()} (use ref.size){here()}")
        return self._aval.shape[0]

    def __repr__(self) -> str:
        value = self._value
        if value is None:
            return f"Ref(freed, {self._aval.str_short()})"
        if isinstance(value, Tracer) or self._holder() is not self:
            return self._aval_text()
        return "Ref" + repr(value).removeprefix("Array")


class RefIndexer:
    """The attribute `at` of a Ref."""

    __slots__ = ("ref",)

    def __init__(self, ref: Ref | RefView):
        self.ref = ref

    def __getitem__(self, index: Any) -> RefView:
        return RefView(self.ref, index)


class RefView:
    """Part of the array in a Ref, selected by an index, which can be read and written."""

    __slots__ = ("ref", "index")

    def __init__(self, ref: Ref | RefView, index: Any):
        self.ref, self.index = ref, index

    def __getitem__(self, index: Any) -> Any:
        value = self.ref[self.index]
        return value if selects_all(index) else value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.ref[self.index] = _replaced(self.ref[self.index], index, value)

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """Add a value to the elements at an index."""
        self.ref[self.index] = _increased(self.ref[self.index], idx, x)

    @property
    def at(self) -> RefIndexer:
        """Part of this part."""
        return RefIndexer(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes of the part."""
        return self.ref[self.index].shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.ref.dtype


def selects_all(index: Any) -> bool:
    """Whether an index selects the whole array, with the same shape."""
    if index is Ellipsis:
        return True
    return index.__class__ is tuple and (not index or (len(index) == 1 and index[0] is Ellipsis))


def _own(value: Any) -> Any:
    """The same elements as an array object of its own, which nobody else can delete."""
    if value.__class__ is DeviceArray:
        return DeviceArray(value._data, value.weak_type)
    return value


def _replaced(whole: Any, index: Any, value: Any) -> Any:
    if selects_all(index):
        value = _fitting(value, whole, "swap", whole.shape)
        return value if value.shape == whole.shape else whole.at[...].set(value)
    return whole.at[index].set(_fitting(value, whole[index], "swap", whole.shape))


def _increased(whole: Any, index: Any, value: Any) -> Any:
    if selects_all(index):
        return whole + _fitting(value, whole, "addupdate", whole.shape)
    return whole.at[index].add(_fitting(value, whole[index], "addupdate", whole.shape))


def _fitting(new: Any, old: Any, what: str, shape: tuple[int, ...]) -> Any:
    """A new value in the dtype of the elements that it replaces."""
    new = new if isinstance(new, Array) else as_array(new)
    if new.dtype != old.dtype and not new.weak_type:
        raise ValueError(f"Invalid dtype for `{what}`. Ref dtype: {old.dtype}. Value dtype: "
                         f"{new.dtype}. (convert it with .astype){here()}")
    if new.shape != old.shape and new.shape != ():
        raise ValueError(f"Invalid shape for `{what}`. Ref shape: {shape}. Expected "
                         f"shape: {old.shape}. Value shape: {new.shape}.{here()}")
    return new.astype(old.dtype) if new.dtype != old.dtype or new.weak_type else new


def freed_elsewhere() -> ValueError:
    """The error for a traced function that releases a Ref of its caller."""
    return ValueError("free_ref: needed a reference made in this traced function, got one from "
                      f"outside (free it outside){here()}")


# ----------------------------------------------------------------- Refs of functions being traced


class RefState:
    """The value of an outer Ref in a staging trace."""

    __slots__ = ("_value", "first")

    def __init__(self, value: Any):
        self._value = self.first = value


def is_ref(x: Any) -> bool:
    """Whether an argument is a Ref, or the description of one (`ShapeDtypeStruct`)."""
    return x.__class__ is Ref or getattr(x, "is_ref", False) is True


def value_of(x: Any) -> Any:
    """The value of a Ref; any other value itself."""
    return x._read() if x.__class__ is Ref else x


def values_of(xs: Sequence[Any]) -> list[Any]:
    """The values of the Refs in a sequence, and the other elements themselves."""
    return [value_of(x) for x in xs]


def store(refs: Sequence[Ref], values: Sequence[Any]) -> None:
    """Give Refs the values that a traced function has computed for them."""
    for ref, value in zip(refs, values, strict=True):
        ref._write(value)


def staging_trace() -> Any:
    """The innermost trace that records a Program; None if there is none."""
    trace = state.trace
    while trace is not None and not trace.keeps_refs:
        trace = trace.parent
    return trace


def differentiating() -> bool:
    """Whether operations are differentiated before they are run or recorded."""
    trace: Trace | None = state.trace
    while trace is not None and not trace.keeps_refs:
        if trace.differentiates:
            return True
        trace = trace.parent
    return False


def mentions_ref(fun: Any) -> bool:
    """Whether a Python function uses a variable that is a Ref."""
    code = getattr(fun, "__code__", None)
    if code is None or not Ref._exist:
        return False
    scope = fun.__globals__
    held = [cell.cell_contents for cell in fun.__closure__ or () if cell != _EMPTY]
    return any(x.__class__ is Ref for x in (*held, *map(scope.get, code.co_names)))


_EMPTY = CellType()


def must_run_in_python() -> None:
    """Note that the Program being recorded cannot be differentiated, because a rule changes a Ref
    in the backward pass: the derivative needs the Python function."""
    trace = staging_trace()
    if trace is not None:
        trace.inline = True


def check_aliases(leaves: Sequence[Any], labels: Sequence[str], name: str, kind: str,
                  closed_over: Sequence[Any] = ()) -> None:
    """Raise an error if two arguments are the same Ref, or if the function also uses the Ref of an
    argument as a variable."""
    found: dict[int, str] = {}
    outer = {id(c) for c in closed_over if c.__class__ is Ref}
    for i, x in enumerate(leaves):
        if x.__class__ is not Ref:
            continue
        label = labels[i] if i < len(labels) else f"number {i}"
        if id(x) in found:
            raise ValueError(
                "only one reference to a mutable array may be passed as an argument to a function, "
                f"but when tracing {name} for {kind} the mutable array reference of type "
                f"{x._aval_text()} appeared at both {found[id(x)]} and {label}. (pass it once)"
                f"{here()}")
        if id(x) in outer:
            raise ValueError(
                f"when tracing {name} for {kind}, a mutable array reference of type "
                f"{x._aval_text()} was both closed over and passed as the argument {label} (use "
                f"one of the two){here()}")
        found[id(x)] = label


def refuse_returned(ref: Ref, name: str, kind: str, path: str = "") -> ValueError:
    """The error for a function that returns a Ref."""
    at = f" at output tree path result{path}" if path else ""
    told = f" traced for {kind}" if kind else ""
    return ValueError(
        f"function {name}{told} returned a mutable array reference of type {ref._aval_text()}{at}, "
        f"but mutable array references cannot be returned.\n\nThe returned mutable array was "
        f"{ref._origin()}. (return its value, ref[...]){here()}")


class Staged(NamedTuple):
    """A Program, the values that its function closed over, and the Refs from outside that it uses.

    The Refs that it reads are among `consts`. The last results of the Program are the new values of
    the Refs in `written`. If `inline` is True, only the Python function can be differentiated."""

    program: Any
    consts: list[Any]
    written: list[Ref]
    inline: bool

    @property
    def reads_refs(self) -> bool:
        """Whether the Program depends on the value of a Ref."""
        return any(c.__class__ is Ref for c in self.consts)

    @property
    def uses_refs(self) -> bool:
        """Whether the Program reads or changes Refs from outside."""
        return bool(self.written) or self.inline or self.reads_refs


def refuse_changed(ref: Ref, name: str) -> NotImplementedError:
    """The error for a function that changes a Ref where this is not supported."""
    return NotImplementedError(
        f"Ref: needed a function that changes no Ref from outside, got {name}, which changes a "
        f"{ref._aval_text()} (pass the value in and return the new one; pass a Ref that a rule of "
        f"custom_vjp changes to the function with the rule){here()}")


class RefFunction:
    """A flat function of which some arguments are Refs: it accepts and returns their values.

    `places` are the positions of these arguments. The values of those that the function has
    changed (`changed`, or all of them) come after the `count` results of the function."""

    __slots__ = ("fun", "places", "labels", "always", "changed", "count")

    def __init__(self, fun: Any, places: Sequence[int], labels: Sequence[str] = (),
                 always: bool = False):
        self.fun, self.places, self.labels, self.always = fun, places, labels, always
        self.changed: list[int] = []
        self.count = 0

    def __call__(self, *leaves: Any) -> list[Any]:
        given = list(leaves)
        refs = {i: Ref(leaves[i]) for i in self.places}
        for i, ref in refs.items():
            given[i] = ref
            ref._made = self.labels[i] if i < len(self.labels) else f"number {i}"
        firsts = {i: ref._value for i, ref in refs.items()}
        outs = list(self.fun(*given))
        self.count = len(outs)
        if any(r._value is None for r in refs.values()):
            raise freed_elsewhere()
        self.changed = [i for i, r in refs.items() if self.always or r._value is not firsts[i]]
        return [*outs, *[refs[i]._read() for i in self.changed]]


class RefUse:
    """How a traced function uses Refs: those among its arguments, and those from outside.

    `places` are the positions of the Refs among the arguments; `changed` are those of which the
    Program returns new values after its `count` results; `written` are the Refs from outside whose
    new values come last. If `inline` is True, only the Python function can be differentiated."""

    __slots__ = ("places", "changed", "written", "count", "inline")

    def __init__(self, places: Sequence[int], changed: Sequence[int], written: Sequence[Ref],
                 count: int, inline: bool):
        self.places, self.changed, self.written = places, changed, written
        self.count, self.inline = count, inline

    def finished(self, leaves: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Store the new values of the Refs in them; returns the results of the function."""
        store([*[leaves[i] for i in self.changed], *self.written], outs[self.count:])
        return outs[: self.count]


def use_of_refs(made: Any, function: RefFunction | None) -> RefUse | None:
    """The Refs that a Program (`program.Staged`) uses; None if it uses none."""
    if function is None and not made.uses_refs:
        return None
    places, changed = ((), ()) if function is None else (function.places, function.changed)
    count = len(made.program.outputs) - len(changed) - len(made.written)
    return RefUse(places, changed, made.written, count, made.inline)


def value_avals(leaves: Sequence[Any]) -> list[Aval]:
    """The avals of arguments; for a Ref, that of its value."""
    avals: list[Any] = [aval_of(x) for x in leaves]
    return [a.inner_aval if a.__class__ is AbstractRef else a for a in avals]


def ref_function(
    fun: Any, leaves: Sequence[Any], labels: Sequence[str], name: str, kind: str = "jit"
) -> RefFunction | None:
    """The flat function of the values of arguments, if some of the arguments are Refs."""
    places = [i for i, x in enumerate(leaves) if is_ref(x)]
    if not places:
        return None
    check_aliases(leaves, labels, name, kind)
    return RefFunction(fun, places, labels)
