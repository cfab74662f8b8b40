"""Writing `x.at[index]`: functional updates, lowered to dynamic_update_slice or one scatter.

The entries come from index_read.parse_index. Indices made of integers and contiguous slices are
known to be in bounds and update one window; all other indices result in a scatter, which by default
ignores indices that are out of bounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from toile import lax
from toile.engine.annotations import ArrayLike, IndexLike
from toile.engine.source import describe, here
from toile.engine.suggestions import did_you_mean
from toile.numpy import _helpers as h
from toile.numpy import index_read, ufuncs, ufuncs_numeric
from toile.numpy._helpers import Array, arr, broadcast_to, raw_buffer, wrap_raw

_WINDOW_OPS = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "min": lax.min, "max": lax.max}
_SCATTERS = {"set": lax.scatter, "add": lax.scatter_add, "sub": lax.scatter_sub,
             "mul": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}
_CLAMPED = "the nearest element of {} was replaced", 'mode="clip"'


def _window(entries):
    """Return (start, size, reversed) for each axis if the entries select one window, else None."""
    out = []
    for e in entries:
        if e[0] == "int":
            out.append((e[2], 1, False))
        elif e[0] == "slice":
            _, _, start, size, step = e
            if step == 1 or size == 1:
                out.append((start, size, False))
            elif step == -1:
                out.append((start - size + 1, size, True))
            else:
                return None
        elif e[0] == "array":
            return None
    return out


def _layout(entries):
    """List the axes of an update in order; without index arrays, an integer only drops its axis."""
    has_arrays = any(e[0] == "array" for e in entries)
    return index_read.layout(entries if has_arrays else [e for e in entries if e[0] != "int"])


def _result_shape(entries, batch):
    """The shape of the result of reading the same entries, and the positions of new axes in it."""
    sizes = {e[1]: e[3] for e in entries if e[0] == "slice"}
    shape: list[Any] = []
    new = []
    for t in _layout(entries):
        if t == "new":
            new.append(len(shape))
            shape.append(1)
        elif t == "arrays":
            shape.extend(batch)
        else:
            shape.append(sizes[t])
    return tuple(shape), new


def _update_window(x, entries, window, y, op):
    """Replace one static window of x with op(window, y)."""
    shape, new = _result_shape(entries, ())
    full = tuple(size for _, size, _ in window)
    starts = [start for start, _, _ in window]
    covers = full == x.shape
    current = x if covers or op == "set" else lax.slice(
        x, starts, [s + n for s, n in zip(starts, full)])
    flipped = tuple(axis for axis, w in enumerate(window) if w[2])
    if callable(op):
        picked = lax.rev(current, flipped) if flipped else current
        y = arr(op(lax.reshape(picked, shape)))
        y = lax.convert_element_type(y, x.dtype)
    y = broadcast_to(y, shape)
    y = lax.reshape(y, full) if y.shape != full else y
    if flipped:
        y = lax.rev(y, flipped)
    if not callable(op) and op != "set":
        y = _WINDOW_OPS[op](current, y)
    if covers:
        return y
    if 0 in full:
        return x
    return lax.dynamic_update_slice(x, y, starts)


def _updates_layout(entries, slices, strided, adv):
    """Describe the axes of an update.

    Returns the batch shape, the position in it at which the index columns of each part start, the
    axes of the update that are windows, and the window axes that run backward.
    """
    batch: list[Any] = []
    where, windows, flipped, position = {}, [], [], 0
    for t in _layout(entries):
        if t == "arrays":
            where[t] = len(batch)
            batch.extend(adv)
            position += len(adv)
        elif t != "new":
            _, size, step = slices[t]
            if t in strided:
                where[t] = len(batch)
                batch.append(size)
            else:
                windows.append(position)
                if step < 0 and size > 1:
                    flipped.append(position)
            position += 1
    return tuple(batch), where, windows, flipped


def _index_column(x, entry, where, adv, wrap):
    """Return the index values of an entry and the batch axes they span, or None for a whole axis.

    Strided slices become index columns with a separate batch axis; contiguous slices stay windows
    with a start column.
    """
    kind, axis, *fields = entry
    if kind == "array":
        values, *told = fields
        end = where.get("arrays", 0) + len(adv)
        dims = tuple(range(end - values.ndim, end))
        return index_read.index_array(values, x.shape[axis], wrap, *told), dims
    if kind == "int":
        return np.asarray(fields[0], np.int32), ()
    start, size, step = fields
    if axis in where:
        places = np.arange(size, dtype=np.int32) * np.int32(step) + np.int32(start)
        return places, (where[axis],)
    if size == x.shape[axis]:
        return None
    low = start - (size - 1) if step < 0 and size > 1 else start
    return np.asarray(low, np.int32), ()


def _scatter_parts(x, entries, wrap):
    """Find the index columns, scattered axes, window axes and batch shape of a scatter."""
    adv = h.broadcast_shapes(*(tuple(e[2].shape) for e in entries if e[0] == "array"))
    slices = {e[1]: e[2:] for e in entries if e[0] == "slice"}
    strided = {a for a, (_, size, step) in slices.items() if abs(step) != 1 and size > 1}
    batch, where, windows, flipped = _updates_layout(entries, slices, strided, adv)
    columns, axes, inserted = [], [], []
    for e in entries:
        column = None if e[0] in index_read.NO_AXIS else _index_column(x, e, where, adv, wrap)
        if column is not None:
            columns.append(column)
            axes.append(e[1])
            if e[0] != "slice" or e[1] in strided:
                inserted.append(e[1])
    return columns, axes, inserted, windows, flipped, batch, adv


def _update_scatter(x, entries, y, op, mode, is_sorted, unique, wrap):
    """Scatter y into x at the entries."""
    columns, axes, inserted, windows, flipped, batch, adv = _scatter_parts(x, entries, wrap)
    shape, new = _result_shape(entries, adv)
    if 0 in shape or 0 in x.shape:
        return x
    indices = index_read.join_indices(columns, batch)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(windows), inserted_window_dims=tuple(sorted(inserted)),
        scatter_dims_to_operand_dims=tuple(axes))
    options = {"indices_are_sorted": is_sorted, "unique_indices": unique, "mode": mode}
    if callable(op):
        kept = tuple(n for k, n in enumerate(shape) if k not in new)
        return lax.scatter_apply(x, indices, op, numbers, update_shape=kept, **options)
    y = broadcast_to(y, shape)
    if new:
        y = lax.squeeze(y, tuple(new))
    if flipped:
        y = lax.rev(y, tuple(flipped))
    return _SCATTERS[op](x, indices, y, numbers, **options)


def update(x, idx, y, op, *, indices_are_sorted=False, unique_indices=False, mode=None,
           wrap_negative_indices=True):
    """Compute `x.at[idx].op(y)` in the dtype of `x`; `op` is a key of _SCATTERS or a function."""
    checked = mode is None
    mode = index_read.gather_mode(mode, lax.GatherScatterMode.FILL_OR_DROP)
    dtype, weak = x.dtype, h.is_weak(x)
    if not callable(op):
        y = y if isinstance(y, (Array, np.ndarray, int, float, complex, np.generic)) else arr(y)
        # uint32 has numbers that are not in int32; strict promotion lets booleans become integers.
        if (type(y) is int and dtype.kind == "u") or (type(y) is bool and dtype.kind in "iu"):
            y = lax._convert_element_type(y, dtype)
        if h.result_type(x, y) != dtype:
            warnings.warn(
                "scatter inputs have incompatible types: cannot safely cast value from dtype="
                f"{h.result_type(y)} to dtype={dtype} with jax_numpy_dtype_promotion=standard. In "
                "future releases this will result in an error.", FutureWarning, stacklevel=3)
        x, y = h.promote(x, y)
    entries, inserted = index_read.parse_index(x.shape, idx, True, wrap_negative_indices)
    if checked and not inserted:
        entries = index_read.with_checks(entries, x, wrap_negative_indices, "update",
                                         index_read.IGNORED)
    if inserted:
        x = lax.expand_dims(x, tuple(inserted))
    window = _window(entries)
    if window is not None:
        out = _update_window(x, entries, window, y, op)
    else:
        out = _update_scatter(x, entries, y, op, mode, indices_are_sorted, unique_indices,
                              wrap_negative_indices)
    if inserted:
        out = lax.squeeze(out, tuple(inserted))
    return h.with_dtype(out, dtype, weak)


_RAW_OPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
            "max": np.maximum}
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def _raw_value(y, data):
    """Convert `y` to a value that NumPy stores into `data` with the same result, or None."""
    kind = _KINDS.get(data.dtype.kind, -1)
    if type(y) is float:
        return y if kind >= 2 else None
    if type(y) is int:
        limit = 2 ** (8 * data.dtype.itemsize - 1)
        return y if kind >= 2 or (kind == 1 and -limit < y < limit and y >= 0) else None
    raw = raw_buffer(y)
    return raw if raw is not None and raw.dtype == data.dtype else None


def _write_view(out, key, value, op):
    """Write to the part of `out` that a basic index selects; return False if NumPy cannot."""
    if type(key) is not tuple:
        key = key if key is Ellipsis else (key, Ellipsis)
    elif Ellipsis not in key:
        key = (*key, Ellipsis)
    target = out[key]
    if type(value) is np.ndarray and value.ndim > target.ndim:
        return False
    if op == "set":
        target[...] = value
    else:
        _RAW_OPS[op](target, value, out=target)
    return True


def _write_indexed(out, key, value, op):
    """Write to the elements of `out` that index arrays select; return False if NumPy cannot."""
    if type(value) is np.ndarray and value.ndim and value.ndim > out[key].ndim:
        return False
    if op == "set":
        out[key] = value
    else:
        _RAW_OPS[op].at(out, key, value)     # repeated indices accumulate
    return True


def raw_update(x, idx, y, op):
    """Update a copy of the buffer with NumPy, or return None where NumPy cannot do it."""
    data = raw_buffer(x)
    if data is None or callable(op) or op != "set" and data.dtype.kind not in "fiuc":
        return None
    value = _raw_value(y, data)
    key = index_read.raw_index(idx)
    if value is None or (key is None and idx is not None):
        return None
    out = data.copy()
    write = _write_view if index_read.is_basic(key) else _write_indexed
    try:
        done = write(out, key, value, op)
    except (IndexError, ValueError, TypeError):
        return None                       # the general path reports the error
    return wrap_raw(out, x) if done else None


_METHODS = ("set", "add", "subtract", "multiply", "divide", "power", "min", "max", "apply", "get")
_OTHER_NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "truediv": "divide",
                "pow": "power", "minimum": "min", "maximum": "max", "update": "set",
                "assign": "set", "replace": "set", "fill": "set", "add_": "add"}


def _refused(symbol: str, use: str) -> Callable[[Any, Any], Any]:
    """An operator that raises an error, because `x.at[idx]` is not a value."""

    def refuse(self: Any, other: Any) -> Any:
        raise TypeError(f"unsupported operand type(s) for {symbol}: {type(self).__name__!r} and "
                        f"{type(other).__name__!r}: needed an array, got x.at[idx] of "
                        f"{describe(self.array)} (write x = x.at[idx].{use}(y) for a new array, or "
                        f"x[idx] to read){here()}")

    return refuse


class IndexUpdateRef:
    """The elements `x[idx]` of an array, with methods that return updated copies of the array.

    This is the type of `x.at[idx]`. Arrays are immutable, so `x[idx] = y` raises an error; write
    `x = x.at[idx].set(y)` instead. The index is anything that `x[idx]` accepts. If an index array
    refers to an element several times, `set` writes one of the values, and it is undefined which
    one; the other methods apply all updates.

    The methods have these options:

    - Pass `indices_are_sorted=True` to promise that index arrays are in increasing order, and
      `unique_indices=True` to promise that they refer to no element twice. Both options may make
      the operation faster; results are undefined if a promise is not kept.
    - `mode` determines how out-of-bounds indices are handled. By default, `get` reads the nearest
      element, the other methods ignore such indices, and an `OutOfBoundsWarning` is shown once for
      each line of code. With "fill" or "drop", `get` returns `fill_value` for such indices, and the
      other methods ignore them. With "clip", all methods replace such indices with the nearest
      valid index. Pass "promise_in_bounds" to promise that all indices are in bounds.
    - `wrap_negative_indices=False` treats negative indices as out of bounds; by default, they count
      from the end.
    - `out_sharding` is accepted for compatibility with JAX, and ignored.

    Args:
        array: the array `x`.
        index: the index, as in `x[idx]`.

    >>> x = jnp.arange(4)
    >>> x.at[jnp.array([0, 0, 3])].add(10)
    Array([20,  1,  2, 13], dtype=int32)
    >>> x.at[1:3].set(0)
    Array([0, 0, 0, 3], dtype=int32)
    """

    __slots__ = ("array", "index")

    __add__ = __radd__ = _refused("+", "add")
    __sub__ = __rsub__ = _refused("-", "subtract")
    __mul__ = __rmul__ = _refused("*", "multiply")
    __truediv__ = __rtruediv__ = _refused("/", "divide")
    __pow__ = __rpow__ = _refused("**", "power")

    def __init__(self, array: Any, index: IndexLike) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def in_errors(self) -> str:
        """Describe the array and the index for an error message.

        Returns:
            One line of text.
        """
        return f"{describe(self.array)} at [{describe(self.index)}]"

    if not TYPE_CHECKING:  # checkers refuse names that do not exist

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name.startswith("_"):
                raise AttributeError(text, name=name, obj=self)
            use = _OTHER_NAMES.get(name)
            hint = f" (use x.at[idx].{use}(y))" if use else did_you_mean(name, _METHODS)
            raise AttributeError(f"{text}{hint or f' (needed one of {_METHODS})'}{here()}")

    def _apply(self, op, values, indices_are_sorted, unique_indices, mode, wrap_negative_indices):
        if mode is None and wrap_negative_indices:
            out = raw_update(self.array, self.index, values, op)
            if out is not None:
                return out
        return update(self.array, self.index, values, op, indices_are_sorted=indices_are_sorted,
                      unique_indices=unique_indices, mode=mode,
                      wrap_negative_indices=wrap_negative_indices)

    def get(self, *, indices_are_sorted: bool = False, unique_indices: bool = False,
            mode: str | lax.GatherScatterMode | None = None, fill_value: ArrayLike | None = None,
            out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Read `x[idx]`, with options for indices that are out of bounds.

        Args:
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            fill_value: value to return for out-of-bounds indices. If a fill value is given, the
                default `mode` is "fill". The default fill value is NaN for floating and complex
                dtypes, the lowest integer for signed dtypes, the highest integer for unsigned
                dtypes, and True for booleans.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            An array with the shape of `x[idx]`.

        >>> jnp.arange(3).at[jnp.array([2, 5])].get(mode="fill", fill_value=-1)
        Array([ 2, -1], dtype=int32)
        """
        return index_read.get(self.array, self.index, indices_are_sorted=indices_are_sorted,
                            unique_indices=unique_indices, mode=mode, fill_value=fill_value,
                            wrap_negative_indices=wrap_negative_indices, clamp_integers=True)

    def set(self, values: ArrayLike, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
            out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Replace elements, as `x[idx] = values` does in NumPy.

        Values are converted to the dtype of `x`, with a FutureWarning if that dtype cannot
        represent them. The other methods convert values in the same way.

        Args:
            values: new elements, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.

        >>> jnp.zeros(3).at[1].set(5.0)
        Array([0., 5., 0.], dtype=float32)
        """
        return self._apply("set", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def add(self, values: ArrayLike, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
            out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Add values to elements, like `x[idx] += values`, once for each occurrence of an index.

        Args:
            values: numbers to add, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.
        """
        return self._apply("add", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def subtract(self, values: ArrayLike, *, indices_are_sorted: bool = False,
                 unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
                 out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Subtract values, like `x[idx] -= values`, once for each occurrence of an index.

        Args:
            values: numbers to subtract, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.
        """
        return self._apply("sub", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def multiply(self, values: ArrayLike, *, indices_are_sorted: bool = False,
                 unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
                 out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Multiply elements, like `x[idx] *= values`, once for each occurrence of an index.

        Args:
            values: factors, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.
        """
        return self._apply("mul", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    mul = multiply

    def min(self, values: ArrayLike, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
            out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Replace each element with the smaller of the element and a given value.

        Args:
            values: values to compare with, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.

        >>> jnp.array([5, 6, 7]).at[jnp.array([0, 2])].min(6)
        Array([5, 6, 6], dtype=int32)
        """
        return self._apply("min", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def max(self, values: ArrayLike, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
            out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Replace each element with the larger of the element and a given value.

        Args:
            values: values to compare with, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.
        """
        return self._apply("max", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def _factors(self, values, indices_are_sorted, unique_indices, mode, wrap_negative_indices):
        """Multiply ones by `values` at the index; `divide` and `power` use the products."""
        return update(lax.full_like(self.array, 1), self.index, values, "mul",
                      indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                      mode=mode, wrap_negative_indices=wrap_negative_indices)

    def divide(self, values: ArrayLike, *, indices_are_sorted: bool = False,
               unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
               out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Divide elements, like `x[idx] /= values`, once for each occurrence of an index.

        Args:
            values: divisors, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape of `x`; integers become floats.
        """
        return ufuncs.divide(self.array, self._factors(
            values, indices_are_sorted, unique_indices, mode, wrap_negative_indices))

    def power(self, values: ArrayLike, *, indices_are_sorted: bool = False,
              unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
              out_sharding: object = None, wrap_negative_indices: bool = True) -> Array:
        """Raise elements to powers, like `x[idx] **= values`, once for each occurrence of an index.

        Args:
            values: exponents, which are broadcast to the shape of `x[idx]`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            out_sharding, wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`.
        """
        return ufuncs_numeric.power(self.array, self._factors(
            values, indices_are_sorted, unique_indices, mode, wrap_negative_indices))

    def apply(self, func: Callable[[Array], ArrayLike], *, indices_are_sorted: bool = False,
              unique_indices: bool = False, mode: str | lax.GatherScatterMode | None = None,
              wrap_negative_indices: bool = True) -> Array:
        """Apply a function to elements, once for each occurrence of an index.

        Args:
            func: elementwise function, such as `jnp.sin`.
            indices_are_sorted, unique_indices, mode: see `IndexUpdateRef`.
            wrap_negative_indices: see `IndexUpdateRef`.

        Returns:
            A new array with the shape and dtype of `x`; results are converted to that dtype.

        >>> jnp.array([1.0, 4.0, 9.0]).at[1:].apply(jnp.sqrt)
        Array([1., 2., 3.], dtype=float32)
        """
        return update(self.array, self.index, None, lambda v: lax.convert_element_type(
            arr(func(v)), self.array.dtype), indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices, mode=mode,
            wrap_negative_indices=wrap_negative_indices)


class IndexUpdateHelper:
    """The type of `x.at`, which is indexed to select the elements to update.

    See `IndexUpdateRef` for the methods: `x.at[idx].set(y)`, `x.at[idx].add(y)` and others.

    Args:
        array: the array `x`.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: IndexLike) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __setitem__(self, index: IndexLike, value: Any) -> None:
        raise TypeError(f"{type(self).__name__!r} object does not support item assignment: needed "
                        f"a new array, got an assignment to items of {describe(self.array)} (write "
                        f"x = x.at[idx].set(y)){here()}")

    def __call__(self, *args: Any) -> None:
        raise TypeError(f"{type(self).__name__!r} object is not callable: needed an index in "
                        f"square brackets, got a call with {describe(args)} (write "
                        f"x.at[idx].set(y)){here()}")

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


# Functions with NumPy's names.

def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike,
        mode: str | None = None, *, inplace: bool = True) -> Array:
    """Replace the elements at given positions in the flattened array.

    Args:
        a: array whose elements are replaced.
        ind: positions, which are flattened. If `mode` is None, negative positions count from the
            end.
        v: new elements, which are flattened, then repeated or truncated as needed.
        mode: how to handle out-of-bounds positions. None or "clip" replaces them with the nearest
            valid position, and "wrap" wraps them around. In mode "clip", negative positions are out
            of bounds.
        inplace: must be False, because arrays are immutable.

    Returns:
        A new array with the shape and dtype of `a`.

    Raises:
        ValueError: `inplace` is True, which is the default.

    Differences:
        If no mode is given, NumPy raises an error for out-of-bounds positions.

    >>> jnp.put(jnp.arange(4), jnp.array([0, -1]), 9, inplace=False)
    Array([9, 1, 2, 9], dtype=int32)
    """
    if inplace:
        raise ValueError("put: arrays are immutable, needed inplace=False, got inplace=True "
                         "(the result is a new array)" + here())
    a, ind, v = h.as_arrays("put", a, ind, v)
    (ind, _), (v, _) = h.with_axis(ind, None), h.with_axis(v, None)
    if not a.size or not ind.size or not v.size:
        return a
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported: needed None, "
                                  f"'clip' or 'wrap'{here()}")
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"put: needed mode None, 'clip' or 'wrap', got {mode!r}{here()}")
    ind = h.fitting(ind, a.size)
    if mode == "wrap":
        ind = arr(ufuncs_numeric.remainder(ind, a.size))
    else:
        if mode is None:
            flat = lax.reshape(a, (a.size,))
            ind = h.arr(index_read.index_array(
                ind, a.size, True, index_read.told(flat, 0, True, "put", _CLAMPED)))
        low, high = lax.full_like(ind, 0), lax.full_like(ind, a.size - 1)
        ind = arr(lax.clamp(low, ind, high))
    flat = lax.reshape(a, (a.size,))
    if v.shape[0] < ind.shape[0]:
        v = index_read.get(v, (np.arange(ind.shape[0]) % v.shape[0],))
    elif v.shape[0] > ind.shape[0]:
        v = v[:ind.shape[0]]
    return lax.reshape(update(flat, ind, v, "set"), a.shape)


def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None,
                   inplace: bool = True, *,
                   mode: str | lax.GatherScatterMode | None = None) -> Array:
    """Replace the elements at given positions in each vector along an axis.

    Args:
        arr: array whose elements are replaced.
        indices: integer positions, in an array with the same number of axes as `arr`; all axes
            except `axis` are broadcast.
        values: new elements, which are broadcast to the shape of `indices`.
        axis: axis along which to replace elements; None for the flattened array.
        inplace: must be False, because arrays are immutable.
        mode: how to handle out-of-bounds positions. None, "fill" or "drop" ignores them, and "clip"
            replaces them with the nearest valid position. Pass "promise_in_bounds" to promise that
            all positions are in bounds.

    Returns:
        A new array with the shape and dtype of `arr`.

    Raises:
        ValueError: `inplace` is True, which is the default.

    >>> jnp.put_along_axis(jnp.zeros((2, 3)), jnp.array([[0], [2]]), 1, axis=1, inplace=False)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable, needed inplace=False, got "
                         "inplace=True (the result is a new array)" + here())
    h.check("put_along_axis", arr, indices, values)
    a, where = h.arr(arr), h.arr(indices)
    if axis is None:
        flat = lax.reshape(a, (a.size,))
        return lax.reshape(update(flat, where, values, "set", mode=mode), a.shape)
    if where.ndim != a.ndim:
        raise ValueError("put_along_axis: needed indices of the rank of arr, got "
                         f"{where.ndim} and {a.ndim}{here()}")
    axis = h.canonical_axis(axis, a.ndim)
    key = tuple(where if d == axis else np.arange(n).reshape([-1 if k == d else 1
                for k in range(a.ndim)]) for d, n in enumerate(a.shape))
    return update(a, key, values, "set", mode=mode)
