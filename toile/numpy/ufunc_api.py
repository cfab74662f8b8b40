"""The methods of universal functions: reduce, accumulate, at, reduceat, outer.

The functions in `ufuncs` are plain functions with these methods as attributes, so that calling them
has no extra cost. `isinstance(add, ufunc)` is still True. Only a user's scalar functions are
wrapped in actual `ufunc` objects (`frompyfunc`). This module may import the engine, `lax`, `api`
and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from toile import lax
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.source import here
from toile.numpy import cumulative, reductions
from toile.numpy import ufuncs as _u
from toile.numpy import ufuncs_numeric as _n
from toile.numpy._axes import canonicalize_axes, canonicalize_axis
from toile.numpy._dtypes import BOOL, user_dtype
from toile.numpy._operands import as_array, check_arraylike, convert, no_out
from toile.numpy._promotion import broadcast_shapes, broadcast_to, select


def _to_front(x: Array, axis: int) -> Array:
    order = (axis, *(i for i in range(x.ndim) if i != axis))
    return x if axis == 0 else lax.transpose(x, order)


def _from_front(x: Array, axis: int) -> Array:
    return x if axis == 0 else lax.transpose(x, (*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))


class _Methods:
    """The methods of a ufunc, which all ufuncs share."""

    def __init__(self, call: Callable[..., Any], name: str, nin: int, identity: Any) -> None:
        self.call, self.name, self.nin, self.identity = call, name, nin, identity

    def _binary(self, method: str) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs: needed a function of two "
                             f"arguments, got {self.name}{here()}")
        if getattr(self.call, "nout", 1) != 1:
            raise ValueError(f"{method} only supported for functions returning a single value, got "
                             f"{self.name}{here()}")

    def _start(self, x: Any, dtype: Any) -> Array:
        """Convert elements to the dtype of the results, so that a carry keeps its dtype."""
        x = as_array(self.name, x)
        if dtype is not None:
            return convert(x, user_dtype(dtype, self.name))
        return self._truth(convert(x, x.dtype))

    def _truth(self, x: Array) -> Array:
        """Convert the elements to booleans if this is a logical function."""
        if x.dtype == BOOL or not self.name.startswith("logical_"):
            return x
        return lax.ne(x, lax.full_like(x, 0))

    def reduce(self, a: ArrayLike, axis: AxisLike = 0, dtype: DTypeLike | None = None,
               out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
               where: ArrayLike | None = None) -> Array:
        """Combine the elements along the given axes by applying the function to them in order.

        Args:
            a: array or number.
            axis: axis or axes to reduce; None to reduce all axes.
            dtype: dtype of the elements and of the result; None for the dtype of `a` (for `add` and
                `multiply`, the dtype that `sum` and `prod` use). Logical functions return booleans.
            out: not supported; must be None.
            keepdims: whether to keep the reduced axes with length 1.
            initial: value that is combined with the first element; None for the function's identity
                if it has one.
            where: boolean mask of the elements to include, which is broadcast to the shape of `a`;
                None to include all elements.

        Returns:
            An array with the remaining axes.

        Raises:
            ValueError: the function does not have two arguments and one result. If the function has
                no identity and `initial` is None, the error is also raised if an axis is empty,
                `where` is given, or `axis` is a tuple of several axes.
        """
        self._binary("reduce")
        no_out(f"{self.name}.reduce", out)
        if initial is None and self.identity is None and where is not None:
            raise ValueError(f"reduction operation {self.name!r} does not have an identity, so to "
                             "use a where mask one has to specify 'initial'." + here())
        a = self._start(a, dtype)
        axes = canonicalize_axes(axis, a.ndim)
        if len(axes) > 1 and self.identity is None and initial is None and axis is not None:
            raise ValueError(f"reduction operation {self.name} is not reorderable{here()}")
        kept = tuple(i for i in range(a.ndim) if i not in axes)
        shape = tuple(a.shape[i] for i in kept)
        rows = (math.prod(a.shape[i] for i in axes), *shape)
        flat = lax.reshape(lax.transpose(a, (*axes, *kept)), rows)
        mask = None
        if where is not None:
            mask = broadcast_to(reductions.checked_where(self.name, where), a.shape)
            mask = lax.reshape(lax.transpose(mask, (*axes, *kept)), rows)
        result = self._fold(flat, mask, initial)
        return lax.expand_dims(result, axes) if keepdims else result

    def _fold(self, rows: Any, mask: Any, initial: Any) -> Array:
        """Fold over the first axis."""
        first = self.identity if initial is None else initial
        if first is None:
            if rows.shape[0] == 0:
                raise ValueError(f"zero-size array to reduction operation {self.name} (give "
                                 f"`initial=`){here()}")
            carry = lax.index_in_dim(rows, 0, keepdims=False)
            rows = lax.slice_in_dim(rows, 1, rows.shape[0])
        else:
            carry = broadcast_to(convert(as_array(self.name, first), rows.dtype), rows.shape[1:])

        def step(carry: Any, row: Any) -> Any:
            row, keep = row if mask is not None else (row, None)
            new = convert(self.call(carry, row), carry.dtype)
            return (new if keep is None else select(keep, new, carry)), None

        return lax.scan(step, carry, rows if mask is None else (rows, mask))[0]

    def accumulate(self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None,
                   out: None = None) -> Array:
        """Compute all intermediate results of `reduce` along one axis.

        Args:
            a: array or number.
            axis: axis to combine along.
            dtype: dtype of the elements and of the result; None for the dtype of `a`.
            out: not supported; must be None.

        Returns:
            An array with the shape of `a`.
        """
        self._binary("accumulate")
        no_out(f"{self.name}.accumulate", out)
        if axis is None or isinstance(axis, tuple):
            raise ValueError("accumulate does not allow multiple axes" + here())
        a = self._start(a, dtype)
        axis = canonicalize_axis(axis, a.ndim)
        rows = _to_front(a, axis)
        if rows.shape[0] == 0:
            return a
        first = lax.index_in_dim(rows, 0, keepdims=False)

        def step(carry: Any, row: Any) -> Any:
            new = convert(self.call(carry, row), carry.dtype)
            return new, new

        rest = lax.scan(step, first, lax.slice_in_dim(rows, 1, rows.shape[0]))[1]
        return _from_front(lax.concatenate([lax.expand_dims(first, (0,)), rest], 0), axis)

    def reduceat(self, a: ArrayLike, indices: ArrayLike, axis: int = 0,
                 dtype: DTypeLike | None = None, out: None = None) -> Array:
        """Reduce slices along one axis, each from one index up to the next.

        The last slice ends at the end of the axis. If an index is not less than the next index,
        its slice consists of only the element at that index.

        Args:
            a: array or number.
            indices: start of each slice, as an integer array of rank 1.
            axis: axis to reduce.
            dtype: dtype of the elements and of the result; None for the dtype of `a`.
            out: not supported; must be None.

        Returns:
            An array with the shape of `a`, except that `axis` has one element for each index.
        """
        self._binary("reduceat")
        no_out(f"{self.name}.reduceat", out)
        a, begin = self._start(a, dtype), as_array(self.name, indices, 1)
        if begin.ndim != 1:
            raise ValueError(f"reduceat: needed indices of rank 1, got shape {begin.shape}{here()}")
        axis = canonicalize_axis(axis, a.ndim)
        rows = _to_front(a, axis)
        n, k = rows.shape[0], begin.shape[0]
        if not k:
            return _from_front(lax.slice_in_dim(rows, 0, 0), axis)
        if not n:
            raise IndexError(f"reduceat: index out of bounds for axis {axis} with size 0 (pass no "
                             f"indices for an empty axis){here()}")
        begin = convert(begin, np.dtype("int32"))
        end = lax.concatenate([lax.slice_in_dim(begin, 1, k), lax.full((1,), n, begin.dtype)], 0)
        numbers = lax.GatherDimensionNumbers(offset_dims=tuple(range(1, rows.ndim)),
                                             collapsed_slice_dims=(0,), start_index_map=(0,))
        start = lax.gather(rows, lax.expand_dims(begin, (1,)), numbers, (1, *rows.shape[1:]),
                           mode="clip")

        def step(carry: Any, item: Any) -> Any:
            i, row = item
            row = lax.broadcast(row, (k,))
            inside = lax.bitwise_and(lax.gt(i, begin), lax.lt(i, end))
            inside = lax.broadcast_in_dim(inside, carry.shape, (0,))
            return select(inside, convert(self.call(carry, row), carry.dtype), carry), None

        result = lax.scan(step, start, (lax.iota(begin.dtype, n), rows))[0]
        return _from_front(result, axis)

    def at(self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, /, *,
           inplace: bool = True) -> Array:
        """Apply the function at the given indices, once for each occurrence of an index.

        Args:
            a: array or number.
            indices: any index that `a[indices]` accepts.
            b: second operand, broadcast to the shape of `a[indices]`; None for functions of one
                argument.
            inplace: must be False, because arrays are immutable.

        Returns:
            A copy of `a` with new elements at `indices`.

        Raises:
            NotImplementedError: `inplace` is True, which is the default.
        """
        if inplace:
            raise NotImplementedError(f"{self.name}.at: arrays are immutable and are not updated "
                                      "in place (pass inplace=False and use the result: arr = "
                                      f"jnp.{self.name}.at(arr, ind, val, inplace=False)){here()}")
        given = as_array(self.name, a)
        if b is None:
            return given.at[indices].apply(lambda x: convert(self.call(x), given.dtype))
        a, b = self._truth(given), self._truth(as_array(self.name, b, 2))
        name = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max",
                "minimum": "min"}.get(self.name)
        if name is not None:
            return getattr(a.at[indices], name)(b)
        return self._at_in_turn(a, indices, b)

    def _at_in_turn(self, a: Array, indices: Any, b: Any) -> Array:
        """Apply the function to one element after another, as repeated indices require."""
        flat_place = lax.reshape(lax.iota(np.dtype("int32"), a.size), a.shape)[indices]
        b = lax.reshape(broadcast_to(b, flat_place.shape), (flat_place.size,))
        place = lax.reshape(flat_place, (flat_place.size,))

        def step(carry: Any, item: Any) -> Any:
            p, value = item
            old = lax.dynamic_index_in_dim(carry, p, keepdims=False)
            new = convert(self.call(old, value), carry.dtype)
            return lax.dynamic_update_index_in_dim(carry, new, p, 0), None

        flat = lax.scan(step, lax.reshape(a, (a.size,)), (place, b))[0]
        return lax.reshape(flat, a.shape)

    def outer(self, a: ArrayLike, b: ArrayLike, /) -> Array:
        """Apply the function to every pair of an element of `a` and an element of `b`.

        Args:
            a: array or number; its elements are the first operands.
            b: array or number; its elements are the second operands.

        Returns:
            An array of shape `a.shape + b.shape`.
        """
        self._binary("outer")
        a, b = as_array(self.name, a), as_array(self.name, b, 1)
        shape = (*a.shape, *b.shape)
        return self.call(lax.broadcast_in_dim(a, shape, tuple(range(a.ndim))),
                         lax.broadcast_in_dim(b, shape, tuple(range(a.ndim, len(shape)))))


class _UfuncMeta(type):
    """Makes functions of this package with these methods count as instances of `ufunc`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (
            callable(instance) and isinstance(getattr(instance, "_methods", None), _Methods)
        )


class ufunc(metaclass=_UfuncMeta):
    """A function of scalars that is applied to arrays element by element.

    Arguments are broadcast against each other. A ufunc is called like a function and has the
    methods `reduce`, `accumulate`, `reduceat`, `at` and `outer`. Functions of this package such as
    `add` are plain functions that have the same methods, and `isinstance(jnp.add, jnp.ufunc)` is
    True.

    Args:
        func: function of `nin` scalars (arrays of rank 0) that returns `nout` scalars. The function
            is vectorized by `vmap`.
        nin: number of arguments.
        nout: number of results; if there are several, they are returned as a tuple.
        name: name of the function; None for the name of `func`.
        nargs: value of the attribute `nargs`; None for `nin`.
        identity: operand that leaves the other operand unchanged, such as 0 for addition;
            reductions start with this value. Pass None if the function has no such value.
        call: version of `func` for whole arrays, to call instead of `func`; None to vectorize
            `func`.
        reduce, accumulate, at, reduceat: functions to use as these methods; None for the general
            implementations.

    Differences:
        `out` and `where` are not supported in calls. In NumPy, `nargs` is the number of arguments
        plus the number of results.

    >>> add_twice = jnp.ufunc(lambda x, y: x + 2 * y, nin=2, nout=1)
    >>> add_twice(jnp.array([1, 2]), 10)
    Array([21, 22], dtype=int32)
    >>> add_twice.reduce(jnp.array([1, 2, 3]))
    Array(11, dtype=int32)
    """

    __name__: str

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *, name: str | None = None,
                 nargs: int | None = None, identity: ArrayLike | None = None,
                 call: Callable[..., Any] | None = None,
                 reduce: Callable[..., Array] | None = None,
                 accumulate: Callable[..., Array] | None = None,
                 at: Callable[..., Array] | None = None,
                 reduceat: Callable[..., Array] | None = None) -> None:
        self._func = func
        self.__name__ = name or str(getattr(func, "__name__", "ufunc"))
        self.__doc__ = func.__doc__
        self.nin, self.nout = operator.index(nin), operator.index(nout)
        self.nargs = self.nin if nargs is None else operator.index(nargs)
        self.identity = identity
        self._methods = _Methods(self, self.__name__, self.nin, identity)
        given = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}
        for method in _METHOD_NAMES:
            setattr(self, method, given.get(method) or getattr(self._methods, method))
        self._whole = call  # the same function of whole arrays, where the user has one

    def __call__(self, *args: ArrayLike, out: None = None, where: None = None) -> Any:
        if out is not None:
            raise NotImplementedError(f"out argument of {self}{here()}")
        if where is not None:
            raise NotImplementedError(f"where argument of {self}{here()}")
        check_arraylike(self.__name__, *args)
        arrays = [as_array(self.__name__, x) for x in args]
        if self._whole is not None:
            return self._whole(*arrays)
        shape = broadcast_shapes(*(x.shape for x in arrays))
        if not shape:
            return self._func(*arrays)
        flat = (math.prod(shape),)
        arrays = [lax.reshape(broadcast_to(x, shape), flat) for x in arrays]
        results = vmap(self._func)(*arrays)
        if self.nout == 1 and not isinstance(results, tuple):
            return lax.reshape(results, shape)
        return tuple(lax.reshape(r, shape) for r in results)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _READ_ONLY and name in vars(self):
            raise AttributeError(f"ufunc: needed {name} unchanged, got an assignment to it in "
                                 f"{self!r} (make another ufunc with frompyfunc){here()}")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self) -> int:
        return hash((self._func, self.__name__, self.identity, self.nin, self.nout))

    def __eq__(self, other: object) -> bool:
        return type(other) is ufunc and (
            (self._func, self.__name__, self.identity, self.nin, self.nout)
            == (other._func, other.__name__, other.identity, other.nin, other.nout)
        )


_READ_ONLY = ("nargs", "nin", "nout", "identity", "_func")  # they enter the hash
_METHOD_NAMES = ("reduce", "accumulate", "at", "reduceat", "outer")


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *,
               identity: ArrayLike | None = None) -> ufunc:
    """Create a `ufunc` from a function of scalars.

    Args:
        func: function of `nin` scalars (arrays of rank 0) that returns `nout` scalars. The function
            is vectorized by `vmap`.
        nin: number of arguments.
        nout: number of results; if there are several, they are returned as a tuple.
        identity: operand that leaves the other operand unchanged, such as 0 for addition;
            reductions start with this value. Pass None if the function has no such value.

    Returns:
        A `ufunc`.

    Differences:
        Results have numeric dtypes; in NumPy, they have dtype object. `func` must work with traced
        values.

    >>> larger = jnp.frompyfunc(lambda x, y: jnp.where(x > y, x, y), 2, 1)
    >>> larger.outer(jnp.array([1, 5]), jnp.array([2, 3]))
    Array([[2, 3],
           [5, 5]], dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)


def _reduction(fold: Callable[..., Any]) -> Callable[..., Any]:
    """Make the method `reduce` from a function that takes all its arguments."""

    def method(a: ArrayLike, axis: AxisLike = 0, dtype: DTypeLike | None = None, out: None = None,
               keepdims: bool = False, initial: ArrayLike | None = None,
               where: ArrayLike | None = None) -> Array:
        return fold(a, axis, dtype, out, keepdims, initial, where)

    method.__doc__ = _Methods.reduce.__doc__
    return method


def _logical(reduce: Any) -> Callable[..., Any]:
    return _reduction(lambda a, axis, dtype, out, keepdims, initial, where:
                      reduce(a, axis, out, keepdims, where=where))


def _extreme(reduce: Any) -> Callable[..., Any]:
    def fold(a: Any, axis: Any, dtype: Any, *options: Any) -> Any:
        a = a if dtype is None else convert(as_array("reduce", a), user_dtype(dtype))
        return reduce(a, axis, *options)

    return _reduction(fold)


def _bits(reduce: Any, name: str, combine: Any) -> Callable[..., Any]:
    def fold(a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any,
             where: Any) -> Any:
        no_out(f"{name}.reduce", out)
        a = as_array(name, a)
        a = convert(a, a.dtype if dtype is None else user_dtype(dtype, name))
        if where is not None:
            identity = -1 if combine is lax.bitwise_and else 0
            identity = bool(identity) if a.dtype == BOOL else identity
            mask = broadcast_to(reductions.checked_where(name, where), a.shape)
            a = select(mask, a, identity)
        axes = canonicalize_axes(axis, a.ndim)
        result = reduce(a, axes)
        if initial is not None:
            result = combine(result, convert(as_array(name, initial), a.dtype))
        return lax.expand_dims(result, axes) if keepdims else result

    return _reduction(fold)


def _running(run: Any) -> Callable[..., Any]:
    def method(a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None,
               out: None = None) -> Array:
        return run(a, axis, dtype, out)

    method.__doc__ = _Methods.accumulate.__doc__
    return method


def _logaddexp_fold(a: Any, axis: Any, dtype: Any, out: None, keepdims: bool, initial: Any,
                    where: Any) -> Any:
    """Compute log(sum(exp(a))) over `axis`, relative to the largest element."""
    a = as_array("logaddexp", a)
    a = convert(a, a.dtype if dtype is None else user_dtype(dtype))
    top = reductions.max(a, axis, None, True, -math.inf, where)
    top = select(_u.isfinite(top), lax.stop_gradient(top), 0)
    powers = lax.exp(lax.sub(a, broadcast_to(top, a.shape)))
    total = reductions.sum(powers, axis, keepdims=True, where=where)
    result = lax.add(lax.log(total), top)
    if initial is not None:
        result = _n.logaddexp(result, initial)
    return result if keepdims else lax.squeeze(result, canonicalize_axes(axis, a.ndim))


_FAST: dict[str, dict[str, Callable[..., Any]]] = {
    "add": {
        "reduce": _reduction(reductions.sum), "accumulate": _running(cumulative.cumsum),
    },
    "multiply": {
        "reduce": _reduction(reductions.prod), "accumulate": _running(cumulative.cumprod),
    },
    "maximum": {"reduce": _extreme(reductions.max)},
    "minimum": {"reduce": _extreme(reductions.min)},
    "logical_and": {"reduce": _logical(reductions.all)},
    "logical_or": {"reduce": _logical(reductions.any)},
    "bitwise_and": {"reduce": _bits(lax.reduce_and, "bitwise_and", lax.bitwise_and)},
    "bitwise_or": {"reduce": _bits(lax.reduce_or, "bitwise_or", lax.bitwise_or)},
    "bitwise_xor": {"reduce": _bits(lax.reduce_xor, "bitwise_xor", lax.bitwise_xor)},
    "logaddexp": {"reduce": _reduction(_logaddexp_fold)},
}

_IDENTITIES: dict[str, Any] = {
    "add": 0, "multiply": 1, "subtract": None, "maximum": None, "minimum": None, "negative": None,
    "logical_and": True, "logical_or": False, "logical_xor": False, "bitwise_and": -1,
    "bitwise_or": 0, "bitwise_xor": 0, "logaddexp": -math.inf, "logaddexp2": -math.inf,
}


def _attach_methods() -> None:
    for name, identity in _IDENTITIES.items():
        function = getattr(_u, name, None) or getattr(_n, name)
        nin = 1 if name == "negative" else 2
        methods = _Methods(function, name, nin, identity)
        own = {m: getattr(methods, m) for m in _METHOD_NAMES} | _FAST.get(name, {})
        function.__dict__.update(own, _methods=methods, nin=nin, nout=1, nargs=nin,
                                 identity=identity)


_attach_methods()
