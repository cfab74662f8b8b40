"""Traces and tracers: the current trace of each thread, and the classes Trace and Tracer.

Every operation is processed by the innermost trace, which is stored in a slot of each thread; None
means eager evaluation. A trace recognizes its own tracers and treats everything else as constants.
`process` is called with the slot set to the trace itself, and sets the slot to `parent` while it
runs the rules of the operation. When a trace has ended, its tracers are rejected everywhere. This
module may import engine.avals, engine.errors, engine.fp_errors, engine.source and
engine.tracebacks.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from toile.engine import errors
from toile.engine.avals import Aval
from toile.engine.fp_errors import quiet_runner
from toile.engine.source import Source, here, user_source
from toile.engine.tracebacks import expect_error

if TYPE_CHECKING:
    import numpy as np

    from toile.engine.operation import Operation
    from toile.numpy.array_methods import ArrayMethods as _Methods
else:
    _Methods = object


class State(threading.local):
    """The trace of this thread, and other state that belongs to the thread."""

    trace: Trace | None = None
    # Named axes in scope, innermost last: (name, size).
    axes: tuple[tuple[Any, int], ...] = ()
    # Names of the scopes (`named_scope`, modules) that equations are created in.
    scope: tuple[str, ...] = ()
    # Runs a leaf function of an array library with floating-point errors ignored.
    quiet: Callable[..., Any]
    # Jitted functions are traced inline, as part of the function that calls them.
    inlines: bool = False
    # The source of the equations that a backward pass creates, in place of the user's frame.
    source: Source | None = None
    # What `toile.debug.step` reports operations to, and the forward operation (a mark on a tape)
    # whose backward pass is running.
    stepper: Any = None
    mark: Any = None
    # The number that was last read from a tracer, and the line that read it.
    read: tuple[Any, Source | None] | None = None
    # The operation whose derivative is being computed; True after the operation itself has run.
    deriving: Operation | bool | None = None
    # The line whose derivative a rule that was written by a user computes.
    derived: Source | None = None
    # While a function is exported: the platform, and a list of what has depended on it.
    exporting: tuple[str, list[str]] | None = None

    def __init__(self) -> None:
        self.quiet = quiet_runner()


state = State()


class Trace:
    """An interpreter of operations; each active `grad`, `vmap` or `jit` has its own trace.

    While a function is transformed, each operation is processed by the innermost trace. User code
    does not normally need this class.

    Args:
        parent: trace that interprets the operations that this trace itself performs; None if those
            operations are evaluated immediately.
    """

    __slots__ = ("parent", "alive", "staging", "locates", "__weakref__")
    staging: bool
    locates: bool  # the lines that operations come from are needed
    at_once: ClassVar[bool] = False  # operations run immediately, as without a trace
    owns_refs: ClassVar[bool] = True  # a new Ref belongs to this trace, not to its parent
    keeps_refs: ClassVar[bool] = False  # it keeps the values of Refs from outside (`state_of`)
    differentiates: ClassVar[bool] = False
    # For the error about a value of this trace that is stored in a Ref from outside.
    stored: ClassVar[tuple[str, str]] = ("a traced value on an untraced", "to the traced function")
    checks_calls: ClassVar[bool] = False  # `call` checks a call that runs as without a trace

    def __init__(self, parent: Trace | None):
        self.parent = parent
        self.alive = True
        self.staging = parent is not None and parent.staging
        self.locates = parent is not None and parent.locates

    @property
    def main(self) -> Trace:
        """The trace itself, which is shared by all tracers of one transformation."""
        return self

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        """Interpret one operation; this method is called while the trace is the current trace."""
        raise NotImplementedError

    def call(
        self, op: Operation, args: Sequence[Any], how: Callable[..., list[Any]], /
    ) -> list[Any]:
        """Call a compiled function with `how`, and check what the function reads and returns."""
        raise NotImplementedError

    def process_custom_jvp(self, call: Any, args: Sequence[Any], /) -> list[Any]:
        """Interpret a call to a function with a `custom_jvp` rule."""
        raise NotImplementedError

    def process_custom_vjp(self, call: Any, args: Sequence[Any], /) -> list[Any]:
        """Interpret a call to a function with a `custom_vjp` rule."""
        raise NotImplementedError

    def state_of(self, ref: Any, /) -> Any:
        """The value of a Ref from outside, in a trace that `keeps_refs`."""
        raise NotImplementedError

    def close(self) -> None:
        """End the trace; its tracers can no longer be used."""
        self.alive = False


class Array(_Methods):
    """An array; also the base class of tracers, which represent arrays in transformed functions.

    Arrays are created by functions such as `jnp.array` and `jnp.zeros`, and are immutable.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # attributes of concrete arrays; tracers have the first ones
        shape: tuple[int, ...]
        dtype: np.dtype[Any]
        ndim: int
        size: int
        weak_type: bool
        nbytes: int
        itemsize: int
        aval: Aval
        device: Any
        sharding: Any
        committed: bool
        is_fully_addressable: bool
        is_fully_replicated: bool
        addressable_shards: list[Any]
        global_shards: list[Any]

        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...
        def __dlpack__(self, **kwargs: Any) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
        def tolist(self) -> Any: ...
        def tobytes(self, order: str = "C") -> bytes: ...
        def devices(self) -> set[Any]: ...
        def addressable_data(self, index: int) -> Array: ...
        def block_until_ready(self) -> Array: ...
        def copy_to_host_async(self) -> None: ...
        def is_ready(self) -> bool: ...
        def is_deleted(self) -> bool: ...
        def delete(self) -> None: ...
        def on_device_size_in_bytes(self) -> int: ...
        def unsafe_buffer_pointer(self) -> int: ...

    def item(self, *args: int) -> Any:
        """Return the only element as a Python number; subclasses implement this method."""
        raise NotImplementedError(type(self).__name__)


def runs_at_once() -> bool:
    """Tell whether operations run immediately: there is no trace, or only one that checks values.

    Code that must agree with its behavior outside transformations asks this function. Shortcuts
    that skip the checks ask whether `state.trace` is None."""
    return state.trace is None or state.trace.at_once


@contextmanager
def current(trace: Trace | None) -> Iterator[None]:
    """Make `trace` the innermost trace for the duration of a block."""
    previous = state.trace
    state.trace = trace
    try:
        yield
    finally:
        state.trace = previous


@contextmanager
def opened(trace: Trace) -> Iterator[None]:
    """Make a new trace current for a block and end it afterward."""
    previous = state.trace
    state.trace = trace
    try:
        yield
    except RecursionError as error:
        error.args = (errors.recursion_text(getattr(trace, "name", "")),)
        expect_error()
        raise
    except Exception:  # of a function that is transformed
        expect_error()
        raise
    finally:
        state.trace = previous
        trace.close()


@contextmanager
def bound_axis(name: Any, size: int) -> Iterator[None]:
    """Put a named axis in scope; names must not repeat (use None for no name)."""
    previous = state.axes
    if name is not None:
        state.axes = (*previous, (name, size))
    try:
        yield
    finally:
        state.axes = previous


def axis_size(name: Any) -> int:
    """Size of the innermost axis called `name`."""
    for bound, size in reversed(state.axes):
        if bound == name:
            return size
    known = [n for n, _ in state.axes]
    raise NameError(
        f"unbound axis name: {name}. Needed a name bound by vmap, pmap or shard_map "
        f"(axis_name={name!r}), got {known or 'no named axis'} in scope{here()}"
    )


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Add `name` to the scope of the equations that are created in a block."""
    previous = state.scope
    state.scope = (*previous, name)
    try:
        yield
    finally:
        state.scope = previous


def turns(order: Iterable[int]) -> Iterator[int]:
    """Iterate over `order` in a Python loop; `toile.debug.step` shows the current iteration."""
    stepper = state.stepper
    if stepper is None:
        yield from order
        return
    for i in order:
        stepper.turns.append(i)
        try:
            yield i
        finally:
            if stepper.turns:
                stepper.turns.pop()


def current_source() -> Source | None:
    """Where the equation being created comes from."""
    found = state.source or user_source(2)
    if state.derived is None or found is None:
        return found
    return found.derivative(state.derived)


def computes_derivative(op: Operation) -> bool:
    """Whether an operation that is about to run or to be recorded belongs to the derivative of
    another one.

    The rule `jvp` of an operation performs the operation itself first; what follows computes its
    derivative."""
    deriving = state.deriving
    if deriving is op:
        state.deriving = True
        return False
    return deriving is not None


def source_of(op: Operation) -> Source | None:
    """Where an operation that is about to be recorded comes from."""
    found = current_source()
    return found.derivative() if computes_derivative(op) and found is not None else found


class Tracer(Array):
    """An array that represents an argument while a function is transformed or traced.

    A tracer has a shape and a dtype. In a jitted function, it has no values, so `if x > 0` and
    `int(x)` raise errors there.
    """

    __slots__ = ("_trace", "__weakref__")
    _trace: Trace

    @property
    def aval(self) -> Aval:
        """The shape and dtype as one object."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype adapts to the dtypes of other operands."""
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.dtype.itemsize

    def concrete(self) -> Any:
        """Return the concrete array that this tracer represents, or None if it has no values."""
        return None

    def describe(self) -> str:
        """Describe where the tracer comes from, for use in error messages."""
        return ""

    def traced_for(self) -> str:
        """Name, for error messages, the function and transformation that created the tracer."""
        return ""

    def created(self) -> str:
        """Name the line of code that created the tracer, for use in error messages."""
        return ""

    def _value(self, wanted: str) -> Any:
        value = self.concrete()
        if value is None:
            _check_form(self.aval, wanted)
            raise errors.conversion_error(self, wanted)
        return value

    def __bool__(self) -> bool:
        return bool(self._value("bool"))

    def __int__(self) -> int:
        return int(self._value("int"))

    def __float__(self) -> float:
        value = float(self._value("float"))
        state.read = value, user_source()
        return value

    def __complex__(self) -> complex:
        return complex(self._value("complex"))

    def __index__(self) -> int:
        return self._value("index").__index__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise errors.conversion_error(self, "array")

    def item(self, *args: Any) -> Any:
        """Return the element as a Python number, if the tracer has values."""
        value = self._value("item").item(*args)
        state.read = value, user_source()
        return value

    def tolist(self) -> Any:
        """Return the elements as nested lists, if the tracer has values."""
        return self._value("tolist").tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """Return the elements as bytes, if the tracer has values."""
        return self._value("tobytes").tobytes(order)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError(
                "len() of unsized object: needed an array of rank >= 1, got "
                f"{self.aval.str_short()} (use x.size, or x.reshape(-1)){here()}"
            )
        return shape[0]

    def block_until_ready(self) -> Tracer:
        """Return the tracer, because there is nothing to wait for."""
        return self

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __reduce__(self) -> Any:
        raise errors.conversion_error(self, "pickle")

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.aval.str_short()}>"

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"unsupported format string passed to {type(self).__name__}.__format__: got "
                f"{spec!r} for a traced array (use toile.debug.print){here()}"
            )
        return repr(self)

    # Attributes of concrete arrays only.
    @property
    def sharding(self) -> Any:
        """How the array is divided among devices, if the tracer has values."""
        value = self.concrete()
        if value is None:
            raise AttributeError(
                f"The 'sharding' attribute is not available on traced array with shape "
                f"{self.aval.str_short()} (toile.typeof(x) gives what is known about it){here()}"
            )
        return value.sharding

    def devices(self) -> Any:
        """Return the devices of the array, if the tracer has values."""
        return self._value("devices").devices()

    def delete(self) -> None:
        """Release the memory of the array, if the tracer has values."""
        self._value("delete").delete()

    def is_deleted(self) -> bool:
        """Test whether the memory was released, if the tracer has values."""
        return self._value("is_deleted").is_deleted()

    def unsafe_buffer_pointer(self) -> int:
        """Return the address of the elements in memory, if the tracer has values."""
        return self._value("unsafe_buffer_pointer").unsafe_buffer_pointer()


def _check_form(aval: Aval, wanted: str) -> None:
    """Refuse conversions that are impossible for every array of this shape and dtype."""
    if wanted == "index" and (aval.shape or aval.dtype.kind not in "iu"):
        raise TypeError(
            "Only integer scalar arrays can be converted to a scalar index. Needed an integer of "
            f"shape (), got {aval.str_short()}{here()}"
        )
    if wanted in ("int", "float", "complex") and aval.shape:
        raise TypeError(
            f"Only scalar arrays can be converted to Python scalars; got arr.ndim={aval.ndim} "
            f"(needed shape () for {wanted}(), got {aval.str_short()}; use x.astype({wanted}), or "
            f"index it){here()}"
        )
    if wanted == "bool" and aval.size != 1:
        what = "an array with more than one element" if aval.size else "an empty array"
        raise ValueError(
            f"The truth value of {what} is ambiguous. Use a.any(), a.all() or a.size > 0 (needed "
            f"size 1, got {aval.str_short()}){here()}"
        )


def _references(x: object) -> int:
    """The references to `x`, among them those of this function and of the caller's caller."""
    return sys.getrefcount(x)


def _references_of_new() -> int:
    """The references to an object that only a caller of `check_leaks` holds."""
    def of(x: object) -> int:
        return _references(x)

    new = object()
    return of(new)


def check_leaks(trace: Trace) -> None:
    """Raise if a tracer of `trace`, which has ended, is still referenced (`checking_leaks`)."""
    if _references(trace) <= _references_of_new():
        return  # the search below visits all objects of the process
    for _ in range(2):
        held = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and x._trace is trace]
        if not held:
            return
        del held
        gc.collect()  # tracers that are only in cycles do not count
    held = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and x._trace is trace]
    if held:
        raise errors.leaked_trace(type(trace).__name__, held)


def check_alive(x: Tracer) -> None:
    """Refuse a tracer whose trace has ended."""
    if not x._trace.alive:
        raise errors.leaked_tracer(x)


def check_outside(x: Tracer, trace: Trace) -> None:
    """Refuse a tracer that `trace` cannot read: it has ended, or was made inside `trace`."""
    check_alive(x)
    outer: Trace | None = x._trace
    while outer is not None:
        if outer is trace:
            raise errors.inner_tracer(x)
        outer = outer.parent
