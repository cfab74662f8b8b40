"""The methods, properties and operators of arrays, attached to the abstract Array type.

`install` copies the members of `ArrayMethods` to the Array type once, when toile is imported; type
checkers see `ArrayMethods` as a base class of the Array type. Operators accept arrays, NumPy arrays
and numbers. For anything else they return NotImplemented, so that Python tries the operator of the
other operand.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import source
from toile.engine.annotations import ArrayLike, AxisLike, DTypeLike
from toile.engine.dtypes import itemsize_bits
from toile.engine.locks import loading
from toile.engine.source import here
from toile.numpy import index_read, index_update
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import Array, as_array

__all__ = ["ArrayMethods", "install"]

_OPERANDS = (Array, np.ndarray, np.generic, int, float, complex)


# Operators.

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_ADVICE: tuple[tuple[Any, str], ...] = (
    ((list, tuple), "convert the sequence with toile.numpy.array"),
    (types.NoneType, "give it a value: a function that does not return one returns None"),
    (dict, "combine trees leaf by leaf with toile.tree.map"),
    (str, 'format the array into the text, as in f"{x}"'),
    (_FUNCTIONS, "call the function first"),
)


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _defines(other, method):
    """Whether the class of a value defines an operator itself, rather than inheriting it from a
    built-in class such as tuple."""
    owner = next((c for c in type(other).__mro__ if method in vars(c)), object)
    return owner.__module__ != "builtins"


def _foreign(name, symbol, x, other, swapped):
    """The result of an operator for an operand that is neither an array nor a number."""
    if not swapped and _defines(other, f"__{_MIRRORED.get(name, f'r{name}')}__"):
        return NotImplemented  # Python asks the other operand
    advice = next((advice for kind, advice in _ADVICE if isinstance(other, kind)), "")
    is_sequence = isinstance(other, (list, tuple))
    if not advice or not is_sequence and symbol in ("==", "!=") or (
            symbol == "*" and isinstance(other, str)):  # text is repeated
        return NotImplemented
    left, right = (other, x) if swapped else (x, other)
    kinds = f"'{type(left).__name__}' and '{type(right).__name__}'"
    said = f"unsupported operand type(s) for {symbol}: {kinds}"
    if symbol in ("<", "<=", ">", ">="):
        said = f"'{symbol}' not supported between instances of {kinds}"
    elif symbol == "+" and isinstance(left, str):
        said = f'can only concatenate str (not "{type(x).__name__}") to str'
    raise TypeError(f"{said}: needed arrays or numbers, got {source.describe(left)} and "
                    f"{source.describe(right)} ({advice}){here()}")


def _binary(name, symbol, function, swapped=False):
    if swapped:
        def method(self, other):
            if isinstance(other, _OPERANDS):
                return function(other, self)
            if getattr(other, "__jax_array__", None) is not None:
                return function(other.__jax_array__(), self)
            return _foreign(name, symbol, self, other, True)
    else:
        def method(self, other):
            if isinstance(other, _OPERANDS):
                return function(self, other)
            if getattr(other, "__jax_array__", None) is not None:
                return function(self, other.__jax_array__())
            return _foreign(name, symbol, self, other, False)
    return method


_BINARY = {
    "add": ("+", jnp.add), "sub": ("-", jnp.subtract), "mul": ("*", jnp.multiply),
    "truediv": ("/", jnp.true_divide), "floordiv": ("//", jnp.floor_divide),
    "mod": ("%", jnp.remainder), "divmod": ("divmod()", jnp.divmod), "pow": ("**", jnp.power),
    "matmul": ("@", jnp.matmul), "and": ("&", jnp.bitwise_and), "or": ("|", jnp.bitwise_or),
    "xor": ("^", jnp.bitwise_xor), "lshift": ("<<", jnp.left_shift),
    "rshift": (">>", jnp.right_shift),
}
_COMPARISONS = {
    "eq": ("==", jnp.equal), "ne": ("!=", jnp.not_equal), "lt": ("<", jnp.less),
    "le": ("<=", jnp.less_equal), "gt": (">", jnp.greater), "ge": (">=", jnp.greater_equal),
}


def _contains(self, value):
    if value is None or isinstance(value, str):
        raise TypeError(f"Array.__contains__: unsupported operand type {type(value)}: needed a "
                        f"number, got {source.describe(value)}{here()}")
    value = as_array("Array.__contains__", value)
    if self.ndim != 1:
        raise ValueError("Array.__contains__: search array must be one-dimensional, got "
                         f"{source.describe(self)} (search x.ravel()){here()}")
    if value.ndim:
        raise ValueError("Array.__contains__: query value must be a scalar, got "
                         f"{source.describe(value)} (use jnp.isin){here()}")
    return bool(jnp.any(jnp.equal(self, value)))


def _operators():
    out: dict[str, Any] = {"__array_priority__": 100}
    for name, (symbol, function) in _BINARY.items():
        out[f"__{name}__"] = _binary(name, symbol, function)
        out[f"__r{name}__"] = _binary(name, symbol, function, swapped=True)
    for name, (symbol, function) in _COMPARISONS.items():
        out[f"__{name}__"] = _binary(name, symbol, function)
    out["__neg__"] = lambda self: jnp.negative(self)
    out["__pos__"] = lambda self: jnp.positive(self)
    out["__abs__"] = lambda self: jnp.absolute(self)
    out["__invert__"] = lambda self: jnp.bitwise_not(self)
    out["__round__"] = _round
    out["__getitem__"] = index_read.getitem
    out["__setitem__"] = _refuse_assignment
    out["__delitem__"] = _refuse_deletion
    out["__iter__"] = _iterate
    out["__contains__"] = _contains
    return out


def _round(self, ndigits=None):
    if ndigits is not None:
        return jnp.round(self, ndigits)
    return jnp.astype(jnp.round(self), int)


def _iterate(self):
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array: needed an array of rank >= 1, got "
                        f"{self.aval.str_short()} (use x.reshape(-1) to give it an axis){here()}")
    return iter(jnp.unstack(self))


def _refuse_deletion(self, index):
    raise AttributeError("__delitem__: arrays are immutable and do not support item deletion: "
                         f"needed a new array, got del of items of {self.aval.str_short()} (write "
                         f"x = toile.numpy.delete(x, idx)){here()}")


def _refuse_assignment(self, index, value):
    raise TypeError("JAX arrays are immutable and do not support in-place item assignment: needed "
                    f"a new array, got an item assignment to {self.aval.str_short()} (write "
                    f"`x = x.at[idx].set(y)` instead of `x[idx] = y`){here()}")


# Methods.

def view(self: Any, dtype: DTypeLike | None = None, type: None = None) -> Array:
    """Reinterpret the bytes of the array as elements of another dtype.

    Args:
        dtype: dtype of the result; if None, the array is returned unchanged. A wider dtype makes
            the last axis shorter, and a narrower dtype makes it longer.
        type: must be None; other array types are not supported.

    >>> jnp.array([1.0, 2.0]).view("int32")
    Array([1065353216, 1073741824], dtype=int32)
    """
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported: needed a "
                                  f"dtype only, got {dtype!r} and {type!r} (for another shape, use "
                                  f"x.reshape){here()}")
    if dtype is None:
        return self
    return _viewed(self, user_dtype(dtype, "view"))


def _viewed(self: Any, dtype: Any) -> Any:
    have = self.dtype
    if have == dtype:
        return self
    if self.ndim == 0:
        if itemsize_bits(have) != itemsize_bits(dtype):
            raise ValueError("view() of a 0d array is only supported if the itemsize is "
                             "unchanged." + here())
        return lax.reshape(_viewed(lax.reshape(self, (1,)), dtype), ())
    if have == np.bool_:
        return _viewed(lax.convert_element_type(self, np.uint8), dtype)
    if have.kind == "c":
        pieces = [lax.expand_dims(part(self), (self.ndim,)) for part in (lax.real, lax.imag)]
        both = lax.concatenate(pieces, self.ndim)
        return _viewed(lax.reshape(both, (*self.shape[:-1], 2 * self.shape[-1])), dtype)
    if dtype.kind == "c":
        parts = _viewed(self, np.dtype(f"f{dtype.itemsize // 2}"))
        pairs = lax.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
        return lax.complex(pairs[..., 0], pairs[..., 1])
    if dtype == np.bool_:
        return lax.ne(_viewed(self, np.dtype(np.uint8)), lax.full((), 0, np.uint8))
    wide, narrow = itemsize_bits(have), itemsize_bits(dtype)
    if wide < narrow:
        ratio = narrow // wide
        if self.shape[-1] % ratio:
            raise ValueError("When changing to a larger dtype, its size must be a divisor of the "
                             "total size in bytes of the last axis of the array." + here())
        self = lax.reshape(self, (*self.shape[:-1], self.shape[-1] // ratio, ratio))
        return lax.bitcast_convert_type(self, dtype)
    out = lax.bitcast_convert_type(self, dtype)
    return out if wide == narrow else lax.reshape(
        out, (*self.shape[:-1], self.shape[-1] * (wide // narrow)))


class ArrayMethods:
    """The methods that arrays and tracers share: many functions of `toile.numpy`, and `x.at`."""

    __slots__ = ()

    if TYPE_CHECKING:  # installed by `_operators`
        def __add__(self, other: ArrayLike, /) -> Array: ...
        def __radd__(self, other: ArrayLike, /) -> Array: ...
        def __sub__(self, other: ArrayLike, /) -> Array: ...
        def __rsub__(self, other: ArrayLike, /) -> Array: ...
        def __mul__(self, other: ArrayLike, /) -> Array: ...
        def __rmul__(self, other: ArrayLike, /) -> Array: ...
        def __truediv__(self, other: ArrayLike, /) -> Array: ...
        def __rtruediv__(self, other: ArrayLike, /) -> Array: ...
        def __floordiv__(self, other: ArrayLike, /) -> Array: ...
        def __rfloordiv__(self, other: ArrayLike, /) -> Array: ...
        def __mod__(self, other: ArrayLike, /) -> Array: ...
        def __rmod__(self, other: ArrayLike, /) -> Array: ...
        def __pow__(self, other: ArrayLike, /) -> Array: ...
        def __rpow__(self, other: ArrayLike, /) -> Array: ...
        def __matmul__(self, other: ArrayLike, /) -> Array: ...
        def __rmatmul__(self, other: ArrayLike, /) -> Array: ...
        def __and__(self, other: ArrayLike, /) -> Array: ...
        def __rand__(self, other: ArrayLike, /) -> Array: ...
        def __or__(self, other: ArrayLike, /) -> Array: ...
        def __ror__(self, other: ArrayLike, /) -> Array: ...
        def __xor__(self, other: ArrayLike, /) -> Array: ...
        def __rxor__(self, other: ArrayLike, /) -> Array: ...
        def __lshift__(self, other: ArrayLike, /) -> Array: ...
        def __rlshift__(self, other: ArrayLike, /) -> Array: ...
        def __rshift__(self, other: ArrayLike, /) -> Array: ...
        def __rrshift__(self, other: ArrayLike, /) -> Array: ...
        def __lt__(self, other: ArrayLike, /) -> Array: ...
        def __le__(self, other: ArrayLike, /) -> Array: ...
        def __gt__(self, other: ArrayLike, /) -> Array: ...
        def __ge__(self, other: ArrayLike, /) -> Array: ...
        def __divmod__(self, other: ArrayLike, /) -> tuple[Array, Array]: ...
        def __rdivmod__(self, other: ArrayLike, /) -> tuple[Array, Array]: ...
        def __neg__(self) -> Array: ...
        def __pos__(self) -> Array: ...
        def __abs__(self) -> Array: ...
        def __invert__(self) -> Array: ...
        def __round__(self, ndigits: int | None = None) -> Array: ...
        def __getitem__(self, index: Any, /) -> Array: ...
        def __iter__(self) -> Iterator[Array]: ...
        def __contains__(self, value: ArrayLike, /) -> bool: ...
        def __eq__(self, other: object, /) -> Array: ...
        def __ne__(self, other: object, /) -> Array: ...

    all = jnp.all
    any = jnp.any
    argmax = jnp.argmax
    argmin = jnp.argmin
    argpartition = jnp.argpartition
    argsort = jnp.argsort
    choose = jnp.choose
    conj = jnp.conj
    conjugate = jnp.conjugate
    cumprod = jnp.cumprod
    cumsum = jnp.cumsum
    diagonal = jnp.diagonal
    max = jnp.max
    mean = jnp.mean
    min = jnp.min
    prod = jnp.prod
    ptp = jnp.ptp
    ravel = jnp.ravel
    repeat = jnp.repeat
    round = jnp.round
    searchsorted = jnp.searchsorted
    sort = jnp.sort
    squeeze = jnp.squeeze
    sum = jnp.sum
    swapaxes = jnp.swapaxes
    take = jnp.take
    trace = jnp.trace
    view = view

    def astype(self: Any, dtype: DTypeLike | None, copy: bool = False,
               device: Any = None) -> Array:
        """Convert the array to another dtype.

        Args:
            dtype: the dtype of the result.
            copy: whether to copy the array even if it already has this dtype.
            device: device or sharding to place the result on; if None, the array stays on its
                device.

        >>> jnp.array([1.7, -1.7]).astype("int32")
        Array([ 1, -1], dtype=int32)
        """
        return jnp.astype(self, dtype, copy=copy, device=device)

    def byteswap(self: Any) -> Array:
        """Reverse the order of the bytes in each element."""
        size = self.dtype.itemsize
        if size == 1:
            return self
        if self.dtype.kind == "c":  # each part is swapped
            return lax.complex(lax.real(self).byteswap(), lax.imag(self).byteswap())
        if not self.ndim:
            return lax.reshape(lax.reshape(self, (1,)).byteswap(), ())
        flat = view(self, np.uint8)
        grouped = lax.reshape(flat, (*self.shape, size))
        back = lax.reshape(lax.rev(grouped, (self.ndim,)), flat.shape)
        return view(back, self.dtype)

    def clip(self: Any, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
        """Limit the elements to an interval.

        Args:
            min: the lower bound; None for no lower bound.
            max: the upper bound; None for no upper bound.

        >>> jnp.array([-2, 0, 5]).clip(-1, 1)
        Array([-1,  0,  1], dtype=int32)
        """
        return jnp.clip(self, min, max)

    def compress(self: Any, condition: ArrayLike, axis: int | None = None, *,
                 out: None = None, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
        """Keep only those slices of the array for which a condition is true.

        Args:
            condition: booleans, one for each slice.
            axis: the axis to select along; None for the flattened array.
            out: not supported; must be None.
            size: number of slices in the result; required under `jit`. If `size` is None, every
                slice whose condition is true is kept.
            fill_value: value used to pad the result to `size`.

        >>> jnp.arange(4).compress(jnp.array([True, False, True, True]))
        Array([0, 2, 3], dtype=int32)
        """
        return jnp.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)

    def copy(self: Any) -> Array:
        """Copy the array."""
        return jnp.copy(self)

    clone = copy

    def dot(self: Any, b: ArrayLike, *, precision: Any = None,
            preferred_element_type: DTypeLike | None = None) -> Array:
        """Compute the dot product with another array: `jnp.dot(self, b)`.

        Args:
            b: the second operand; its second-to-last axis (or its only axis) is summed over.
            precision: precision of the multiplication; see `lax.Precision`.
            preferred_element_type: the dtype of the sums and of the result.
        """
        return jnp.dot(self, b, precision=precision,
                       preferred_element_type=preferred_element_type)

    def flatten(self: Any, order: str = "C", *, out_sharding: Any = None) -> Array:
        """Flatten the array to one dimension.

        Args:
            order: "C" to read the elements row by row, "F" to read them column by column.
            out_sharding: accepted for compatibility with JAX, and ignored.
        """
        return jnp.ravel(self, order)

    def nonzero(self: Any, *, fill_value: Any = None,
                size: int | None = None) -> tuple[Array, ...]:
        """Find the indices of the elements that are not zero, as one array for each axis.

        Args:
            fill_value: value used to pad the result to `size`.
            size: number of indices to return; required under `jit`. If `size` is None, all indices
                are returned.
        """
        return jnp.nonzero(self, size=size, fill_value=fill_value)

    def reshape(self: Any, *args: Any, order: str = "C", out_sharding: Any = None) -> Array:
        """Return the elements of the array in another shape.

        Args:
            *args: the shape, as one tuple or as several integers. One integer may be -1; the length
                of that axis is then computed from the other lengths.
            order: "C" to read and write row by row, "F" to do so column by column.
            out_sharding: accepted for compatibility with JAX, and ignored.

        >>> jnp.arange(6).reshape(2, -1)
        Array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
        """
        shape = args[0] if len(args) == 1 else args
        return jnp.reshape(self, shape, order)

    def std(self: Any, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
            ddof: int = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
            correction: float | None = None) -> Array:
        """Compute the standard deviation; see `jnp.std` for the arguments."""
        return jnp.std(self, axis, dtype, out, ddof, keepdims, where=where,
                       correction=correction)

    def to_device(self: Any, device: Any, *, stream: Any = None) -> Array:
        """Place the array on a device, or on the devices of a sharding.

        Args:
            device: a device or a sharding.
            stream: accepted for compatibility with the array API standard, and ignored.
        """
        return jnp.asarray(self, device=device)

    def transpose(self: Any, *args: SupportsIndex | Sequence[SupportsIndex] | None) -> Array:
        """Reorder the axes.

        Args:
            *args: the axes in their new order, as one tuple or as several integers; without
                arguments, the order of the axes is reversed.

        >>> jnp.zeros((2, 3, 4)).transpose(1, 0, 2).shape
        (3, 2, 4)
        """
        axes: Any
        if not args:
            axes = None
        elif len(args) == 1:
            axes = args[0]
            axes = axes if axes is None or np.iterable(axes) else (axes,)
        else:
            axes = args
        return jnp.transpose(self, axes)

    def var(self: Any, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
            ddof: int = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
            correction: float | None = None) -> Array:
        """Compute the variance; see `jnp.var` for the arguments."""
        return jnp.var(self, axis, dtype, out, ddof, keepdims, where=where,
                       correction=correction)

    def __array_namespace__(self, *, api_version: str | None = None) -> types.ModuleType:
        """Return the module with functions for these arrays: `toile.numpy`.

        Args:
            api_version: the required version of the array API standard; None for any version.
        """
        if api_version is not None and api_version != jnp.__array_api_version__:
            raise ValueError(f"{api_version=} is not available; available versions are: "
                             f"{[jnp.__array_api_version__]}{here()}")
        return jnp

    def _repr_html_(self: Any) -> str:
        with loading:
            from toile.displays.arrays import array_html

        return array_html(self)

    @property
    def T(self: Any) -> Array:
        """The array with its axes in reverse order."""
        return jnp.transpose(self)

    @property
    def mT(self: Any) -> Array:
        """The array with its last two axes swapped."""
        return jnp.matrix_transpose(self)

    @property
    def real(self: Any) -> Array:
        """The real part."""
        return jnp.real(self)

    @property
    def imag(self: Any) -> Array:
        """The imaginary part."""
        return jnp.imag(self)

    @property
    def at(self: Any) -> index_update.IndexUpdateHelper:
        """Functional updates: `x.at[idx].set(y)` returns a copy of `x` with `y` at `idx`."""
        return index_update.IndexUpdateHelper(self)

    @property
    def flat(self) -> Any:
        """Not available: use `flatten()`."""
        raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider "
                                  "arr.flatten() instead." + here())


_MEMBERS = {name: member for name, member in vars(ArrayMethods).items()
            if name not in ("__module__", "__doc__", "__slots__", "__qualname__",
                            "__firstlineno__", "__static_attributes__")}


def _name_for_errors():
    """Name the indexing calls, such as `x[idx]`, for error messages."""
    source.name_call(index_read.getitem, "x[idx]")
    for name, method in vars(index_update.IndexUpdateRef).items():
        if callable(method) and not name.startswith("_"):
            source.name_call(method, f"x.at[idx].{name}")


def install(array_type, tracer_type):
    """Attach operators, methods and properties to `array_type`, which tracers inherit from."""
    _name_for_errors()
    members = {**_operators(), **_MEMBERS}
    for target in dict.fromkeys((array_type, tracer_type)):
        if target is not array_type and issubclass(target, array_type):
            continue
        for name, member in members.items():
            setattr(target, name, member)
