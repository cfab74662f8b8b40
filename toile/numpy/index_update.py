"""Writing `x.at[index]`: functional updates, lowered to dynamic_update_slice or one scatter.

The entries come from indexing.parse_index. Indices made of integers and contiguous slices are
known to be in bounds and update one window; everything else is a scatter, which drops what is out
of bounds by default.
"""

import operator
import warnings

import numpy as np

from toile import lax
from toile.engine.source import describe, here
from toile.numpy import indexing, ufuncs, ufuncs_numeric
from toile.numpy._helpers import (
    Array,
    arr,
    broadcast_to,
    check,
    fitting,
    is_weak,
    promote,
    raw_buffer,
    result_type,
    with_dtype,
    wrap_raw,
)

_WINDOW_OPS = {"set": None, "add": lax.add, "sub": lax.sub, "mul": lax.mul, "min": lax.min,
               "max": lax.max}
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


def _result_shape(entries, batch):
    """Shape that reading the same entries would give, and the positions of new axes in it."""
    sizes = {e[1]: e[3] for e in entries if e[0] == "slice"}
    shape, new = [], []
    has_arrays = any(e[0] == "array" for e in entries)
    # without index arrays an integer takes no part in the layout: it only drops its axis
    kept = entries if has_arrays else [e for e in entries if e[0] != "int"]
    for t in indexing.layout(kept):
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


def _scatter_parts(x, entries, wrap):
    """Index columns, scattered axes, window axes and the batch shape of a scatter over entries.

    Strided slices become index columns with a batch axis of their own; contiguous ones stay
    windows with a start column.
    """
    arrays = {e[1]: e[2] for e in entries if e[0] == "array"}
    adv = indexing.broadcast_shapes(*(tuple(a.shape) for a in arrays.values()))
    slices = {e[1]: e[2:] for e in entries if e[0] == "slice"}
    strided = {a for a, (_, size, step) in slices.items() if abs(step) != 1 and size > 1}
    kept = entries if arrays else [e for e in entries if e[0] != "int"]
    batch, where, windows, flipped, position = [], {}, [], [], 0
    for t in indexing.layout(kept):
        if t == "arrays":
            where["arrays"] = len(batch)
            batch.extend(adv)
            position += len(adv)
        elif t == "new":
            continue
        else:
            if t in strided:
                where[t] = len(batch)
                batch.append(slices[t][1])
            else:
                windows.append(position)
                if slices[t][2] < 0 and slices[t][1] > 1:
                    flipped.append(position)
            position += 1
    first = where.get("arrays", 0)
    columns, axes, inserted = [], [], []
    for e in entries:
        if e[0] in indexing.NO_AXIS:
            continue
        axis = e[1]
        if e[0] == "array":
            dims = tuple(range(first + len(adv) - e[2].ndim, first + len(adv)))
            columns.append((indexing.index_array(e[2], x.shape[axis], wrap), dims))
            inserted.append(axis)
        elif e[0] == "int":
            columns.append((np.asarray(e[2], np.int32), ()))
            inserted.append(axis)
        elif axis in strided:
            start, size, step = slices[axis]
            columns.append((np.arange(size, dtype=np.int32) * np.int32(step) + np.int32(start),
                            (where[axis],)))
            inserted.append(axis)
        else:
            start, size, step = slices[axis]
            if size == x.shape[axis]:
                continue
            low = start - (size - 1) if step < 0 and size > 1 else start
            columns.append((np.asarray(low, np.int32), ()))
        axes.append(axis)
    return columns, axes, inserted, windows, flipped, tuple(batch), adv


def _update_scatter(x, entries, y, op, mode, is_sorted, unique, wrap):
    """x with a scatter of y at the entries."""
    columns, axes, inserted, windows, flipped, batch, adv = _scatter_parts(x, entries, wrap)
    shape, new = _result_shape(entries, adv)
    if 0 in shape or 0 in x.shape:
        return x
    indices = indexing.join_indices(columns, batch)
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
    lenient, mode = mode is not None, indexing.gather_mode(
        mode, lax.GatherScatterMode.FILL_OR_DROP)
    dtype, weak = x.dtype, is_weak(x)
    if not callable(op):
        y = y if isinstance(y, (Array, np.ndarray, int, float, complex, np.generic)) else arr(y)
        if result_type(x, y) != dtype:
            warnings.warn(
                "scatter inputs have incompatible types: cannot safely cast value from dtype="
                f"{result_type(y)} to dtype={dtype} with jax_numpy_dtype_promotion=standard. In "
                "future releases this will result in an error.", FutureWarning, stacklevel=3)
        x, y = promote(x, y)
    entries, inserted = indexing.parse_index(x.shape, idx, lenient, wrap_negative_indices)
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
    return with_dtype(out, dtype, weak)


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


def raw_update(x, idx, y, op):
    """The same update straight on a copy of the buffer, or None where it takes the long way."""
    data = raw_buffer(x)
    if data is None or callable(op):
        return None
    value = _raw_value(y, data)
    key = indexing.raw_index(idx)
    if value is None or (key is None and idx is not None):
        return None
    basic = type(key) in indexing._BASIC or (
        type(key) is tuple and all(type(k) in indexing._BASIC for k in key))
    if op != "set" and data.dtype.kind not in "fiuc":
        return None
    rank = value.ndim if type(value) is np.ndarray else 0
    try:
        out = data.copy()
        if not basic:
            if rank and rank > data[key].ndim:
                return None
            if op == "set":
                out[key] = value
            else:
                _RAW_OPS[op].at(out, key, value)     # repeated indices accumulate
        else:
            target = out[(*key, Ellipsis) if type(key) is tuple and Ellipsis not in key else
                         key if type(key) is tuple or key is Ellipsis else (key, Ellipsis)]
            if rank > target.ndim:
                return None
            if op == "set":
                target[...] = value
            else:
                _RAW_OPS[op](target, value, out=target)
    except (IndexError, ValueError, TypeError):
        return None                       # the traced path reports the error
    return wrap_raw(out, x)


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
        return indexing.get(self.array, self.index, indices_are_sorted=indices_are_sorted,
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


# Functions of the NumPy face.

def put(a, ind, v, mode=None, *, inplace=True):
    """A copy of `a` with the flat positions `ind` set to `v`, repeated as needed."""
    if inplace:
        raise ValueError("put: arrays are immutable, needed inplace=False, got inplace=True "
                         "(the result is a new array)" + here())
    check("put", a, ind, v)
    a, ind, v = arr(a), arr(ind), arr(v)
    ind, v = lax.reshape(ind, (ind.size,)), lax.reshape(v, (v.size,))
    if not a.size or not ind.size or not v.size:
        return a
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported: needed None, "
                                  f"'clip' or 'wrap'{here()}")
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"put: needed mode None, 'clip' or 'wrap', got {mode!r}{here()}")
    ind = fitting(ind, a.size)
    if mode == "wrap":
        ind = ufuncs_numeric.remainder(ind, a.size)
    else:
        if mode is None and ind.dtype.kind == "i":
            ind = lax.select(lax.lt(ind, lax.full_like(ind, 0)),
                             lax.add(ind, lax.full_like(ind, a.size)), ind)
        ind = lax.clamp(lax.full_like(ind, 0), ind, lax.full_like(ind, a.size - 1))
    flat = lax.reshape(a, (a.size,))
    if v.shape[0] < ind.shape[0]:
        v = indexing.get(v, (np.arange(ind.shape[0]) % v.shape[0],))
    elif v.shape[0] > ind.shape[0]:
        v = v[:ind.shape[0]]
    return lax.reshape(update(flat, ind, v, "set"), a.shape)


def put_along_axis(arr, indices, values, axis, inplace=True, *, mode=None):
    """A copy of `arr` with `values` written at `indices` along `axis`."""
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable, needed inplace=False, got "
                         "inplace=True (the result is a new array)" + here())
    check("put_along_axis", arr, indices, values)
    a, where = indexing.arr(arr), indexing.arr(indices)
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
