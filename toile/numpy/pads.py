"""The function `pad` and its modes.

All modes except the constant ones work axis by axis, as in NumPy, so the corners are computed from
the padding of earlier axes. The widths must be static.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import creation, joins, ufuncs
from toile.numpy._helpers import arr
from toile.primitives.elementwise import convert

_OPTIONS = {
    "constant": {"constant_values"}, "edge": set(), "linear_ramp": {"end_values"},
    "maximum": {"stat_length"}, "mean": {"stat_length"}, "median": {"stat_length"},
    "minimum": {"stat_length"}, "reflect": {"reflect_type"}, "symmetric": {"reflect_type"},
    "wrap": set(), "empty": set(),
}
_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


def _pairs(value, rank, name):
    """Convert a scalar, a pair, or a pair for each axis to a pair (before, after) for each axis."""
    if isinstance(value, dict):
        return _pairs_by_axis(value, rank)
    if not isinstance(value, (tuple, list)) and np.ndim(value) == 0:
        return [(value, value)] * rank
    rows = [tuple(v) if isinstance(v, (tuple, list)) or np.ndim(v) else v for v in value]
    plain = rows and not any(isinstance(r, tuple) for r in rows)
    if plain and len(rows) <= 2:
        return [(rows[0], rows[-1])] * rank
    if not plain and len(rows) in (1, rank):
        rows = [_pair(r) for r in rows]
        return rows * rank if len(rows) == 1 else rows
    raise ValueError(f"jnp.pad: {name} with nvals={len(rows)} is not valid for rank {rank}: needed "
                     "a value, a pair, or a pair for each axis" + here())


def _pairs_by_axis(value, rank):
    """Convert a dictionary from axes to pairs or values to a pair for each axis."""
    out = [(0, 0)] * rank
    for axis, pair in value.items():
        pair = pair if isinstance(pair, (tuple, list)) else (pair, pair)
        out[h.canonical_axis(axis, rank)] = tuple(pair)
    return out


def _pair(row):
    """Convert a pair, a sequence of one element or a plain value to a pair."""
    if not isinstance(row, tuple):
        return row, row
    return row if len(row) == 2 else (row[0], row[0])


def _widths(pad_width, rank):
    pairs = _pairs(pad_width, rank, "pad_width")
    out = []
    for before, after in pairs:
        if any(np.asarray(v).dtype.kind not in "iu" for v in (before, after) if h.is_concrete(v)):
            raise TypeError("`pad_width` must be of integral type." + here())
        out.append((h.static_int(before, "pad_width of jnp.pad"),
                    h.static_int(after, "pad_width of jnp.pad")))
    if any(v < 0 for pair in out for v in pair):
        raise ValueError("index can't contain negative values" + here())
    return out


def _constant(x, widths, values):
    pairs = _pairs(values, x.ndim, "constant_values")
    first = pairs[0][0] if pairs else 0
    if all(a is first and b is first for a, b in pairs):
        value = lax.convert_element_type(arr(first), x.dtype)
        return lax.pad(x, value, [(a, b, 0) for a, b in widths])
    for axis, ((before, after), (low, high)) in enumerate(zip(widths, pairs)):
        for width, value, side in ((before, low, 0), (after, high, 1)):
            config = [(0, 0, 0)] * x.ndim
            config[axis] = (width, 0, 0) if side == 0 else (0, width, 0)
            x = lax.pad(x, lax.convert_element_type(arr(value), x.dtype), config)
    return x


def _slab(x, axis, start, stop):
    return lax.slice_in_dim(x, start, stop, axis=axis)


def _grow(x, before, after, axis):
    parts = [p for p in (before, x, after) if p is not None and p.shape[axis]]
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def _edge(x, widths):
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        x = _grow(x, joins.repeat(_slab(x, axis, 0, 1), before, axis),
                  joins.repeat(_slab(x, axis, n - 1, n), after, axis), axis)
    return x


def _wrap(x, widths):
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if n == 0:
            raise ValueError("can't extend empty axis using modes other than 'constant' or "
                             "'empty'" + here())
        if max(before, after) <= n:
            x = _grow(x, _slab(x, axis, n - before, n), _slab(x, axis, 0, after), axis)
            continue
        rows = np.arange(-before, n + after) % n
        x = joins._rows(x, rows.astype(np.int32), axis)
    return x


def _mirror(x, widths, mode, odd):
    """Pad by mirroring; only "symmetric" repeats the edge, and `odd` mirrors 2*edge - x."""
    skip = 1 if mode == "reflect" else 0
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if n == 0 and (before or after):
            raise ValueError("can't extend empty axis using modes other than 'constant' or "
                             "'empty'" + here())
        if n == 1 and skip:
            # nothing to mirror: the edge itself is repeated
            x = _grow(x, joins.repeat(x, before, axis), joins.repeat(x, after, axis), axis)
            continue
        while before or after:
            # numpy mirrors the original part first, then what it has grown to
            n = x.shape[axis]
            left, right = min(before, n - skip), min(after, n - skip)
            stop = n - skip
            head, tail = _slab(x, axis, skip, skip + left), _slab(x, axis, stop - right, stop)
            head = _reflected(head, _slab(x, axis, 0, 1), axis, odd) if left else None
            tail = _reflected(tail, _slab(x, axis, n - 1, n), axis, odd) if right else None
            x = _grow(x, head, tail, axis)
            before, after = before - left, after - right
    return x


def _reflected(part, edge, axis, odd):
    """Reverse `part` along `axis`; with `odd`, also negate its differences from the edge."""
    part = lax.rev(part, (axis,))
    if not odd:
        return part
    twice = lax.mul(edge, lax.full_like(edge, 2))
    return lax.sub(h.broadcast_to(twice, part.shape), part)


def _ramp(x, widths, end_values):
    pairs = _pairs(end_values, x.ndim, "end_values")
    for axis, ((before, after), (low, high)) in enumerate(zip(widths, pairs)):
        n = x.shape[axis]
        parts: list[Any] = []
        for width, end, edge in ((before, low, _slab(x, axis, 0, 1)),
                                 (after, high, _slab(x, axis, n - 1, n))):
            if not width:
                parts.append(None)
                continue
            start = h.broadcast_to(arr(end), edge.shape)
            line = creation.linspace(start, edge, width, endpoint=False, axis=axis, dtype=x.dtype)
            parts.append(lax.squeeze(line, (axis + 1,)))
        head, tail = parts
        x = _grow(x, head, None if tail is None else lax.rev(tail, (axis,)), axis)
    return x


def _statistic(x, widths, mode, stat_length):
    pairs = _pairs(stat_length, x.ndim, "stat_length") if stat_length is not None else None
    if pairs and any(v <= 0 for pair in pairs for v in pair if v is not None):
        raise ValueError(f"stat_length of 0 yields no value for padding: mode={mode!r}{here()}")
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        low, high = pairs[axis] if pairs else (n, n)
        parts = []
        for width, piece in ((before, _slab(x, axis, 0, min(low, n))),
                             (after, _slab(x, axis, n - min(high, n), n))):
            value = getattr(jnp, _STATISTICS[mode])(piece, axis=axis, keepdims=True)
            if x.dtype.kind in "iu" and mode in ("mean", "median"):
                value = ufuncs.rint(value)
            value = lax.convert_element_type(value, x.dtype)
            parts.append(joins.repeat(value, width, axis))
        x = _grow(x, parts[0], parts[1], axis)
    return x


def _by_function(x, widths, function, options):
    """Let a user's function fill the padding of each vector along each axis in turn."""
    x = lax.pad(x, lax.full((), 0, x.dtype), [(a, b, 0) for a, b in widths])
    for axis, pair in enumerate(widths):
        rows = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1).reshape(-1, x.shape[axis])
        flat = lax.reshape(x, (x.size,))
        for row in rows:
            flat = flat.at[row].set(function(flat[row], pair, axis, options))
        x = lax.reshape(flat, x.shape)
    return x


def pad(array: ArrayLike,
        pad_width: ArrayLike | Sequence[int | Sequence[int]] | Mapping[int, int | tuple[int, int]],
        mode: str | Callable[..., ArrayLike] = "constant", **kwargs: object) -> Array:
    """Add elements at the ends of each axis of an array.

    The mode determines the new elements:

    - "constant": the value `constant_values`, 0 by default.
    - "edge": copies of the outermost element.
    - "linear_ramp": evenly spaced numbers from the outermost element to `end_values`, 0 by default.
    - "maximum", "minimum", "mean", "median": the named statistic of the vector along the axis; if
      `stat_length` is given, only that many elements nearest to the padded end are used.
    - "reflect", "symmetric": the vector in reverse; only "symmetric" repeats the outermost element.
      With `reflect_type="odd"`, the differences from that element are also negated.
    - "wrap": the elements from the opposite end.
    - "empty": zeros.

    Args:
        array: array to extend.
        pad_width: number of elements to add: one number for all ends, a pair (before, after) for
            all axes, a pair for each axis, or a dictionary that maps axes to numbers or pairs. The
            widths cannot be traced.
        mode: name of a mode, or a function `f(vector, widths, axis, options)`. The function is
            called once for each vector along each axis. It receives the vector with zeros as the
            new elements, and returns the vector with these elements filled in.
        **kwargs: options of the mode. `constant_values`, `end_values` and `stat_length` may be
            given separately for different ends, in the same form as `pad_width`.

    Returns:
        An array with the dtype of `array`.

    Raises:
        ValueError: a width is negative, or an option does not belong to the mode.
        TypeError: a width is not an integer.
        NotImplementedError: the mode is unknown.

    Differences:
        In mode "empty", NumPy leaves new elements uninitialized. If `mode` is a function, NumPy
        expects it to change the vector in place instead of returning it.

    >>> jnp.pad(jnp.array([1, 2, 3]), (1, 2))
    Array([0, 1, 2, 3, 0, 0], dtype=int32)
    >>> jnp.pad(jnp.array([1, 2, 3]), 2, mode="reflect")
    Array([3, 2, 1, 2, 3, 2, 1], dtype=int32)
    """
    x = h.as_array("pad", array)
    widths = _widths(pad_width, x.ndim)
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad: needed "
                                  f"one of {', '.join(_OPTIONS)} (zeros are 'constant'){here()}")
    unknown = set(kwargs) - _OPTIONS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}{here()}")
    out = _padded(x, widths, mode, kwargs)
    return convert(out, out.dtype, True) if x.weak_type and not out.weak_type else out


def _padded(x, widths, mode, kwargs):
    if mode in ("constant", "empty"):
        return _constant(x, widths, kwargs.get("constant_values", 0))
    if mode == "edge":
        return _edge(x, widths)
    if mode == "wrap":
        return _wrap(x, widths)
    if mode == "linear_ramp":
        return _ramp(x, widths, kwargs.get("end_values", 0))
    if mode in _STATISTICS:
        return _statistic(x, widths, mode, kwargs.get("stat_length"))
    kind = kwargs.get("reflect_type", "even")
    if kind not in ("even", "odd"):
        raise ValueError(f"pad: needed reflect_type 'even' or 'odd', got {kind!r}{here()}")
    return _mirror(x, widths, mode, kind == "odd")
