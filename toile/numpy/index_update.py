"""Writing `x.at[index]`: functional updates, lowered to dynamic_update_slice or one scatter.

The entries come from index_read.parse_index. Indices made of integers and contiguous slices are
known to be in bounds and update one window; everything else is a scatter, which drops what is out
of bounds by default.
"""

import operator
import warnings
from typing import Any

import numpy as np

from toile import lax
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import index_read, ufuncs, ufuncs_numeric
from toile.numpy._helpers import Array, arr, broadcast_to, raw_buffer, wrap_raw

_WINDOW_OPS = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "min": lax.min, "max": lax.max}
_SCATTERS = {"set": lax.scatter, "add": lax.scatter_add, "sub": lax.scatter_sub,
             "mul": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}


def _window(entries):
    """(start, size, reversed) per axis when the entries select one contiguous window, else None."""
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
    """Where the axes of an update go; without index arrays an integer only drops its axis."""
    has_arrays = any(e[0] == "array" for e in entries)
    return index_read.layout(entries if has_arrays else [e for e in entries if e[0] != "int"])


def _result_shape(entries, batch):
    """Shape that reading the same entries would give, and the positions of new axes in it."""
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
    """x with one static window replaced by op(window, y)."""
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
    """The batch shape of an update, where the index columns of each part lie in it, and which axes
    of the update are windows and which of those run backwards."""
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
    """The index values of an entry and the batch axes they span; None for a whole axis.

    Strided slices become index columns with a batch axis of their own; contiguous ones stay
    windows with a start column.
    """
    kind, axis, *fields = entry
    if kind == "array":
        (values,) = fields
        end = where.get("arrays", 0) + len(adv)
        dims = tuple(range(end - values.ndim, end))
        return index_read.index_array(values, x.shape[axis], wrap), dims
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
    """Index columns, scattered axes, window axes and the batch shape of a scatter over entries."""
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
    """x with a scatter of y at the entries."""
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
    """`x.at[idx].op(y)`, in the dtype of `x`; `op` is a name of _SCATTERS or a function."""
    lenient, mode = mode is not None, index_read.gather_mode(
        mode, lax.GatherScatterMode.FILL_OR_DROP)
    dtype, weak = x.dtype, h.is_weak(x)
    if not callable(op):
        y = y if isinstance(y, (Array, np.ndarray, int, float, complex, np.generic)) else arr(y)
        if h.result_type(x, y) != dtype:
            warnings.warn(
                "scatter inputs have incompatible types: cannot safely cast value from dtype="
                f"{h.result_type(y)} to dtype={dtype} with jax_numpy_dtype_promotion=standard. In "
                "future releases this will result in an error.", FutureWarning, stacklevel=3)
        x, y = h.promote(x, y)
    entries, inserted = index_read.parse_index(x.shape, idx, lenient, wrap_negative_indices)
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
    """`y` as something NumPy stores into `data` as we would, or None."""
    kind = _KINDS.get(data.dtype.kind, -1)
    if type(y) is float:
        return y if kind >= 2 else None
    if type(y) is int:
        limit = 2 ** (8 * data.dtype.itemsize - 1)
        return y if kind >= 2 or (kind == 1 and -limit < y < limit and y >= 0) else None
    raw = raw_buffer(y)
    return raw if raw is not None and raw.dtype == data.dtype else None


def _write_view(out, key, value, op):
    """Write to the part of `out` that a basic index selects; whether NumPy writes as we do."""
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
    """Write to the elements of `out` that index arrays select; whether NumPy writes as we do."""
    if type(value) is np.ndarray and value.ndim and value.ndim > out[key].ndim:
        return False
    if op == "set":
        out[key] = value
    else:
        _RAW_OPS[op].at(out, key, value)     # repeated indices accumulate
    return True


def raw_update(x, idx, y, op):
    """The same update on a copy of the buffer by NumPy, or None where NumPy cannot do it."""
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


class IndexUpdateRef:
    """`x.at[idx]`: its methods return `x` with the indexed elements changed."""

    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array = array
        self.index = index

    def __repr__(self):
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def in_errors(self):
        """What an error says of it."""
        return f"{describe(self.array)} at [{describe(self.index)}]"

    def _apply(self, op, values, indices_are_sorted, unique_indices, mode, wrap_negative_indices):
        if mode is None and wrap_negative_indices:
            out = raw_update(self.array, self.index, values, op)
            if out is not None:
                return out
        return update(self.array, self.index, values, op, indices_are_sorted=indices_are_sorted,
                      unique_indices=unique_indices, mode=mode,
                      wrap_negative_indices=wrap_negative_indices)

    def get(self, *, indices_are_sorted=False, unique_indices=False, mode=None, fill_value=None,
            out_sharding=None, wrap_negative_indices=True):
        """Equivalent to `x[idx]`, with control over out-of-bounds indices."""
        return index_read.get(self.array, self.index, indices_are_sorted=indices_are_sorted,
                            unique_indices=unique_indices, mode=mode, fill_value=fill_value,
                            wrap_negative_indices=wrap_negative_indices)

    def set(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
            out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] = values`."""
        return self._apply("set", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def add(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
            out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] += values`; repeated indices accumulate."""
        return self._apply("add", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def subtract(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
                 out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] -= values`; repeated indices accumulate."""
        return self._apply("sub", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def multiply(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
                 out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] *= values`; repeated indices accumulate."""
        return self._apply("mul", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    mul = multiply

    def min(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
            out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] = minimum(x[idx], values)`."""
        return self._apply("min", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def max(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
            out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] = maximum(x[idx], values)`."""
        return self._apply("max", values, indices_are_sorted, unique_indices, mode,
                           wrap_negative_indices)

    def _factors(self, values, indices_are_sorted, unique_indices, mode, wrap_negative_indices):
        """Ones, multiplied by `values` at the index: what divide and power apply elementwise."""
        return update(lax.full_like(self.array, 1), self.index, values, "mul",
                      indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                      mode=mode, wrap_negative_indices=wrap_negative_indices)

    def divide(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
               out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] /= values`."""
        return ufuncs.divide(self.array, self._factors(
            values, indices_are_sorted, unique_indices, mode, wrap_negative_indices))

    def power(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
              out_sharding=None, wrap_negative_indices=True):
        """Pure equivalent of `x[idx] **= values`."""
        return ufuncs_numeric.power(self.array, self._factors(
            values, indices_are_sorted, unique_indices, mode, wrap_negative_indices))

    def apply(self, func, *, indices_are_sorted=False, unique_indices=False, mode=None,
              wrap_negative_indices=True):
        """Pure equivalent of `func.at(x, idx)`: func on each indexed element."""
        return update(self.array, self.index, None, lambda v: lax.convert_element_type(
            arr(func(v)), self.array.dtype), indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices, mode=mode,
            wrap_negative_indices=wrap_negative_indices)


class IndexUpdateHelper:
    """`x.at`: index it to get a reference with set, add, get and the other update methods."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index):
        return IndexUpdateRef(self.array, index)

    def __repr__(self):
        return f"_IndexUpdateHelper({self.array!r})"


# Functions with NumPy's names.

def put(a, ind, v, mode=None, *, inplace=True):
    """A copy of `a` with the flat positions `ind` set to `v`, repeated as needed."""
    if inplace:
        raise ValueError("put: arrays are immutable, needed inplace=False, got inplace=True "
                         "(the result is a new array)" + here())
    a, ind, v = h.as_arrays("put", a, ind, v)
    ind, v = lax.reshape(ind, (ind.size,)), lax.reshape(v, (v.size,))
    if not a.size or not ind.size or not v.size:
        return a
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported: needed None, "
                                  f"'clip' or 'wrap'{here()}")
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"put: needed mode None, 'clip' or 'wrap', got {mode!r}{here()}")
    ind = h.fitting(ind, a.size)
    if mode == "wrap":
        ind = ufuncs_numeric.remainder(ind, a.size)
    else:
        if mode is None and ind.dtype.kind == "i":
            ind = h.from_end(ind, a.size)
        ind = lax.clamp(lax.full_like(ind, 0), ind, lax.full_like(ind, a.size - 1))
    flat = lax.reshape(a, (a.size,))
    if v.shape[0] < ind.shape[0]:
        v = index_read.get(v, (np.arange(ind.shape[0]) % v.shape[0],))
    elif v.shape[0] > ind.shape[0]:
        v = v[:ind.shape[0]]
    return lax.reshape(update(flat, ind, v, "set"), a.shape)


def put_along_axis(arr, indices, values, axis, inplace=True, *, mode=None):
    """A copy of `arr` with `values` written at `indices` along `axis`."""
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable, needed inplace=False, got "
                         "inplace=True (the result is a new array)" + here())
    h.check("put_along_axis", arr, indices, values)
    a, where = h.arr(arr), h.arr(indices)
    if axis is None:
        flat = lax.reshape(a, (a.size,))
        return lax.reshape(update(flat, where, values, "set", mode=mode), a.shape)
    axis = operator.index(axis) % a.ndim
    if where.ndim != a.ndim:
        raise ValueError("put_along_axis: needed indices of the rank of arr, got "
                         f"{where.ndim} and {a.ndim}{here()}")
    key = tuple(where if d == axis else np.arange(n).reshape([-1 if k == d else 1
                for k in range(a.ndim)]) for d, n in enumerate(a.shape))
    return update(a, key, values, "set", mode=mode)


__all__ = ["put", "put_along_axis"]
