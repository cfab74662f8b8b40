"""Functions that exported NumPy files contain: windows, convolutions, indexing and sorting.

A file gets the functions that it uses, with their comments and without their annotations' imports,
so this module may import NumPy and the standard library only.
"""

import math

import numpy as np


def pad(x, value, config):
    """Put `low` and `high` values around each axis and `interior` between the elements.

    Negative low and high values remove elements."""
    for axis, (low, high, interior) in enumerate(config):
        before = (slice(None),) * axis
        n = x.shape[axis]
        if interior and n > 1:
            shape = (*x.shape[:axis], (n - 1) * (interior + 1) + 1, *x.shape[axis + 1 :])
            spread = np.full(shape, value, x.dtype)
            spread[(*before, slice(None, None, interior + 1))] = x
            x = spread
        n = x.shape[axis]
        start, stop = max(-low, 0), max(n + min(high, 0), max(-low, 0))
        if (start, stop) != (0, n):
            x = x[(*before, slice(start, stop))]
        if low > 0 or high > 0:
            shape = list(x.shape)
            shape[axis] = max(0, n + low + high)
            wide = np.full(shape, value, x.dtype)
            wide[(*before, slice(max(low, 0), max(low, 0) + x.shape[axis]))] = x
            x = wide
    return x


def contract(labels, x, y, dtype):
    """Sum the products of x and y over labels that the result lacks, as in "abc,acd->abd"."""
    operands, out = labels.split("->")
    lhs, rhs = operands.split(",")
    batch = [c for c in out if c in lhs and c in rhs]
    summed = [c for c in lhs if c in rhs and c not in out]
    left = [c for c in out if c not in rhs]
    right = [c for c in out if c not in lhs]
    size = {**dict(zip(lhs, x.shape)), **dict(zip(rhs, y.shape))}
    work = np.float32 if dtype == np.float16 else dtype
    count = lambda names: math.prod(size[c] for c in names)
    x = x.transpose([lhs.index(c) for c in batch + left + summed])
    x = x.reshape(*(size[c] for c in batch), count(left), count(summed)).astype(work, copy=False)
    y = y.transpose([rhs.index(c) for c in batch + summed + right])
    y = y.reshape(*(size[c] for c in batch), count(summed), count(right)).astype(work, copy=False)
    made = batch + left + right
    z = (x @ y).reshape([size[c] for c in made])
    return z.transpose([made.index(c) for c in out]).astype(dtype, copy=False)


def expect(name, x, dtype, shape):
    """The argument as an array; its shape is checked."""
    x = np.asarray(x)
    if x.shape != shape:
        raise ValueError(f"needed {name} of shape {shape}, got {x.shape}")
    return x.astype(dtype, copy=False)


def windows(x, first, size, strides, dilation):
    """A view of x with its axes from `first` on replaced by positions, followed by windows."""
    rank = len(size)
    extent = [(k - 1) * d + 1 if k else 0 for k, d in zip(size, dilation)]
    counts = [max(0, (n - e) // s + 1) for n, e, s in zip(x.shape[first:], extent, strides)]
    steps = x.strides[first : first + rank]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:first], *counts, *size),
        (*x.strides[:first], *(s * t for s, t in zip(steps, strides)),
         *(s * d for s, d in zip(steps, dilation))),
        writeable=False)


def convolve(x, w, strides, padding, lhs_dilation, rhs_dilation, groups, batch_groups, dtype):
    """Correlate x (N, C, *S) with the kernels w (O, C / groups, *K); the result is (N, O, *P)."""
    rank = len(strides)
    work = np.float32 if dtype == np.float16 else dtype
    x, w = x.astype(work, copy=False), w.astype(work, copy=False)
    config = [(0, 0, 0), (0, 0, 0)]
    config += [(low, high, d - 1) for (low, high), d in zip(padding, lhs_dilation)]
    x = pad(x, 0, config)
    if batch_groups > 1:  # group g of the batch uses group g of the kernels
        parts = zip(np.split(x, batch_groups), np.split(w, batch_groups))
    else:
        parts = zip(np.split(x, groups, 1), np.split(w, groups))
    found = []
    for part, kernels in parts:
        patches = windows(part, 2, w.shape[2:], strides, rhs_dilation)  # (N, C, *P, *K)
        taps = [1, *range(2 + rank, 2 + 2 * rank)]
        found.append(np.tensordot(patches, kernels, (taps, [1, *range(2, 2 + rank)])))
    out = np.concatenate(found, -1) if len(found) > 1 else found[0]
    return np.moveaxis(out, -1, 1).astype(dtype, copy=False)


def depthwise(x, w, strides, padding, rhs_dilation, dtype):
    """Correlate each channel of x (N, C, *S) with its own kernels in w (O, 1, *K)."""
    work = np.float32 if dtype == np.float16 else dtype
    x, w = x.astype(work, copy=False), w.astype(work, copy=False)
    x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in padding)])
    channels, many = x.shape[1], w.shape[0] // x.shape[1]
    rank = len(strides)
    patches = windows(x, 2, w.shape[2:], strides, rhs_dilation)
    places = patches.shape[2 : 2 + rank]
    out = np.zeros((x.shape[0], channels, many, *places), work)
    w = w.reshape(channels, many, *w.shape[2:])
    for tap in np.ndindex(w.shape[2:]):
        factor = w[(slice(None), slice(None), *tap)].reshape(1, channels, many, *(1,) * rank)
        out += patches[(..., *tap)][:, :, None] * factor
    return out.reshape(x.shape[0], channels * many, *places).astype(dtype, copy=False)


def reduce_windows(x, reduce, neutral, size, strides, padding, base_dilation, window_dilation):
    """Apply a NumPy reduction to each window of x; `neutral` is the padding."""
    config = [(low, high, d - 1) for (low, high), d in zip(padding, base_dilation)]
    parts = windows(pad(x, neutral, config), 0, size, strides, window_dilation)
    return reduce(parts, axis=tuple(range(x.ndim, 2 * x.ndim)), dtype=x.dtype)


def extreme_of_windows(x, reduce, neutral, size, strides, padding, base_dilation, window_dilation):
    """The largest or smallest element of each window of x; `neutral` is the padding."""
    config = [(low, high, d - 1) for (low, high), d in zip(padding, base_dilation)]
    parts = windows(pad(x, neutral, config), 0, size, strides, window_dilation)
    return reduce(parts, axis=tuple(range(x.ndim, 2 * x.ndim)), initial=neutral)


def places_in_windows(x, largest, size, strides, padding, base_dilation, window_dilation):
    """For each window, the flat index in x of its first largest (or smallest) element, or -1."""
    config = [(low, high, d - 1) for (low, high), d in zip(padding, base_dilation)]
    numbers = pad(np.arange(x.size).reshape(x.shape), -1, config)
    numbers = windows(numbers, 0, size, strides, window_dilation)
    shape = numbers.shape[: x.ndim]
    numbers = numbers.reshape(*shape, -1)
    values = x.reshape(-1)[numbers]
    outside = numbers < 0
    worst = np.asarray(-np.inf if largest else np.inf)
    values = np.where(outside, worst, values)
    first = (np.argmax if largest else np.argmin)(values, -1)
    return np.take_along_axis(numbers, first[..., None], -1)[..., 0]


def select_and_scatter_add(source, x, largest, size, strides, padding):
    """Add each source element at the largest (or smallest) element of its window."""
    ones = (1,) * x.ndim
    places = places_in_windows(x, largest, size, strides, padding, ones, ones)
    out = np.zeros(x.size, source.dtype)
    chosen = places >= 0
    np.add.at(out, places[chosen], source[chosen])
    return out.reshape(x.shape)


def select_and_gather_add(tangents, x, largest, size, strides, padding, base, dilation):
    """The tangent at the largest (or smallest) element of each window."""
    places = places_in_windows(x, largest, size, strides, padding, base, dilation)
    return np.where(places >= 0, tangents.reshape(-1)[places], tangents.dtype.type(0))


def window_indices(shape, indices, starts, batching, sizes, kept):
    """For each axis of an operand, the indices of all elements of all windows.

    The arrays have the axes of the batch, and then those of the windows."""
    batch = indices.shape[:-1]
    rank = len(batch) + len(kept)
    found = []
    for axis in range(len(shape)):
        index = np.zeros((1,) * rank, np.intp)
        if axis in starts:
            index = indices[..., starts.index(axis)].astype(np.intp)
            index = index.reshape(*batch, *(1,) * len(kept))
        if axis in batching:
            own = batching[axis]
            index = np.arange(batch[own]).reshape([-1 if i == own else 1 for i in range(rank)])
        if axis in kept and sizes[axis] > 1:
            own = len(batch) + kept.index(axis)
            index = index + np.arange(sizes[axis]).reshape(
                [-1 if i == own else 1 for i in range(rank)])
        found.append(index)
    return found


def start_limits(indices, shape, starts, sizes):
    """The largest start of a window along each indexed axis; and where all starts are inside."""
    limits = np.array([shape[axis] - sizes[axis] for axis in starts], np.int64)
    inside = np.all((indices >= 0) & (indices <= limits), axis=-1)
    return limits, inside


def gather(x, indices, offset_dims, collapsed, starts, batching, index_batching, sizes, fill):
    """The windows of x at the index vectors; `fill`: the value of windows outside.

    If it is None, windows are moved so that they are inside."""
    indices = signed(indices)
    limits, inside = start_limits(indices, x.shape, starts, sizes)
    kept = [a for a in range(x.ndim) if a not in collapsed and a not in batching]
    lead = indices.ndim - 1
    shape = (*indices.shape[:-1], *(sizes[a] for a in kept))
    if 0 in shape or x.size == 0:
        out = np.full(shape, 0 if fill is None else fill, x.dtype)
    else:
        found = window_indices(x.shape, np.clip(indices, 0, limits), starts,
                               dict(zip(batching, index_batching)), sizes, kept)
        out = np.broadcast_to(x[tuple(found)], shape)
        if fill is not None and not inside.all():
            inside = inside.reshape(*inside.shape, *(1,) * len(kept))
            out = np.where(inside, out, np.asarray(fill, x.dtype))
    rank = lead + len(kept)
    order = iter(range(lead))
    windows_of = iter(range(lead, rank))
    return out.transpose([next(windows_of) if d in offset_dims else next(order)
                          for d in range(rank)])


def signed(indices):
    """Indices as signed integers."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(2**63 - 1))
    return indices.astype(np.int64)


def scatter(x, indices, updates, window_dims, inserted, starts, batching, index_batching, clip,
            combine):
    """x after each window of the updates was combined with it; outside windows are dropped."""
    indices = signed(indices)
    kept = [a for a in range(x.ndim) if a not in inserted and a not in batching]
    sizes = [1] * x.ndim
    for axis, dim in zip(kept, window_dims):
        sizes[axis] = updates.shape[dim]
    lead = [d for d in range(updates.ndim) if d not in window_dims]
    updates = updates.transpose([*lead, *window_dims]).astype(x.dtype, copy=False)
    limits, inside = start_limits(indices, x.shape, starts, sizes)
    indices = np.clip(indices, 0, limits) if clip else indices
    out = x.astype(np.float32) if x.dtype == np.float16 and combine != "set" else x.copy()
    if updates.size == 0 or x.size == 0:
        return out.astype(x.dtype, copy=False)
    found = window_indices(x.shape, indices, starts, dict(zip(batching, index_batching)), sizes,
                           kept)
    found = [np.broadcast_to(f, updates.shape) for f in found]
    if not clip and not inside.all():
        found = [f[inside] for f in found]
        updates = updates[inside]
    place = tuple(found)
    if combine == "set":
        out[place] = updates
    else:
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
                    "max": np.maximum}[combine]
        function.at(out, place, updates)
    return out.astype(x.dtype, copy=False)


def block(starts, shape, sizes):
    """The slices of a block of the given sizes; starts are moved so that it is inside."""
    starts = [min(max(int(s), 0), n - m) for s, n, m in zip(starts, shape, sizes)]
    return tuple(slice(s, s + m) for s, m in zip(starts, sizes))


def update_block(x, update, starts):
    """x with a block replaced."""
    out = x.copy()
    out[block(starts, x.shape, update.shape)] = update
    return out


def sort_together(operands, axis, keys):
    """Sort all operands along an axis by the first `keys` of them."""
    order = None
    parts = []
    for x in operands[:keys]:
        parts += [x.real, x.imag] if x.dtype.kind == "c" else [x]
    for key in reversed(parts):
        key = key if order is None else np.take_along_axis(key, order, axis)
        step = np.argsort(key, axis=axis, kind="stable")
        order = step if order is None else np.take_along_axis(order, step, axis)
    return [np.take_along_axis(x, order, axis) for x in operands]


def top_k(x, k, axis):
    """The k largest elements along an axis in descending order, and their indices."""
    if x.dtype.kind == "f":  # by the total order of the bit patterns
        key = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")
        key = ~np.where(key < 0, key ^ np.iinfo(key.dtype).max, key)
    else:
        key = ~x
    index = np.argsort(key, axis=axis, kind="stable")
    index = np.take(index, np.arange(k), axis=axis)
    return np.take_along_axis(x, index, axis), index.astype(np.int32)


def cumulative(x, function, axis, reverse):
    """All partial results of a NumPy function along an axis."""
    work = {"e": np.float32, "f": np.float64, "F": np.complex128}.get(x.dtype.char, x.dtype)
    if function in (np.maximum, np.minimum, np.logaddexp):
        work = x.dtype
    if reverse:
        x = np.flip(x, axis)
    out = function.accumulate(x.astype(work), axis=axis, dtype=work).astype(x.dtype)
    return np.flip(out, axis) if reverse else out


def linear_recurrence(a, b, axis, reverse, shifted):
    """h[t] = a[t] h[t - 1] + b[t] along an axis; shifted: with the coefficient a[t - 1]."""
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    if reverse:
        a, b = a[::-1], b[::-1]
    if shifted:
        a = np.concatenate([a[:1], a[:-1]])
    h = b.copy()
    for t in range(1, len(b)):
        h[t] = a[t] * h[t - 1] + b[t]
    return np.moveaxis(h[::-1] if reverse else h, 0, axis)


def divide_integers(x, y):
    """The quotient, rounded toward zero; -1 for the divisor 0."""
    zero = y == 0
    safe = np.where(zero, 1, y).astype(y.dtype)
    return np.where(zero, -1, (x - np.fmod(x, safe)) // safe).astype(x.dtype)


def remainder(x, y):
    """The remainder with the sign of x; x itself for the divisor 0."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    zero = y == 0
    return np.where(zero, x, np.fmod(x, np.where(zero, 1, y).astype(y.dtype)))


def power(x, y):
    """x to the power y; integers wrap around, and negative exponents give 0 except for ±1."""
    if x.dtype.kind not in "iu":
        return np.power(x, y.astype(x.dtype))
    one = x.dtype.type(1)
    out = np.power(x, np.maximum(y, y.dtype.type(0)))
    unit = np.where(x == 1, one, np.where(x == -1, np.where(y % 2 == 1, x, one), 0))
    return np.where(y < 0, unit, out).astype(x.dtype)


def integer_power(x, n):
    """x**n by repeated squaring."""
    if n < 0:
        return (1 / integer_power(x, -n)).astype(x.dtype)
    out = np.ones_like(x)
    while n:
        out = out * x if n & 1 else out
        x = x * x
        n >>= 1
    return out


def sign(x):
    """-1, 0 or 1; for a complex number, x / |x|."""
    if x.dtype.kind != "c":
        return np.where(x == 0, x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)


def round_away(x):
    """The nearest integer; halves are rounded away from zero."""
    whole = np.trunc(x)
    return (whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)).astype(x.dtype)


def to_integers(x, dtype):
    """Floats as integers: truncated, NaN as 0, out-of-range values as the nearest bound."""
    if x.dtype.kind == "c":
        x = x.real
    info = np.iinfo(dtype)
    wide = np.where(np.isnan(x), 0, x).astype(np.float64)
    above, below = wide >= float(info.max) + 1, wide < float(info.min)
    out = np.where(above | below, 0, wide).astype(dtype)
    return np.where(above, info.max, np.where(below, info.min, out)).astype(dtype)


def shift(x, y, function):
    """x shifted by y bits; by the width or more, all bits are filled."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    out = function(x, np.where(inside, y, width - 1).astype(x.dtype))
    if function is np.left_shift or x.dtype.kind == "u":
        return np.where(inside, out, x.dtype.type(0))
    return out


def shift_logical(x, y):
    """x shifted right by y bits and filled with zeros."""
    words = np.asarray(x).view(f"u{x.dtype.itemsize}")
    return shift(words, np.asarray(y).view(words.dtype), np.right_shift).view(x.dtype)


def bit_count(x):
    """The number of bits that are set."""
    bits = np.asarray(x).view(f"u{x.dtype.itemsize}").astype(np.uint64)
    count = np.zeros(bits.shape, np.uint64)
    while bits.any():
        count += bits & np.uint64(1)
        bits = bits >> np.uint64(1)
    return count.astype(x.dtype)


def leading_zeros(x):
    """The number of zero bits above the highest bit that is set."""
    width = x.dtype.itemsize * 8
    bits = np.asarray(x).view(f"u{x.dtype.itemsize}")
    for step in [2**i for i in range(int(math.log2(width)))]:
        bits = bits | bits >> bits.dtype.type(step)
    return (width - bit_count(bits).astype(np.int64)).astype(x.dtype)


def bitcast(x, dtype):
    """The same bits as another dtype; if the widths differ, a last axis is added or removed."""
    dtype = np.dtype(dtype)
    x = np.ascontiguousarray(x).reshape(np.shape(x))
    if x.dtype.itemsize == dtype.itemsize:
        return x.view(dtype)
    if x.dtype.itemsize > dtype.itemsize:
        return x[..., None].view(dtype)
    return x.view(dtype)[..., 0]


def round_to_format(x, exponent_bits, mantissa_bits):
    """x rounded to a format with fewer exponent and mantissa bits."""
    forms = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
    exponent, mantissa = forms[x.dtype.name]
    y = x
    if mantissa_bits < mantissa:
        drop, integer = mantissa - mantissa_bits, f"i{x.dtype.itemsize}"
        bits = x.view(integer)
        bits = bits + ((1 << (drop - 1)) - 1) + (bits >> drop & 1) & -(1 << drop)
        y = bits.astype(integer).view(x.dtype)
    if exponent_bits < exponent:
        bias = 2 ** (exponent_bits - 1) - 1
        wide = y.astype(np.float64)
        largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
        wide = np.where(np.abs(wide) > largest, np.copysign(np.inf, wide), wide)
        wide = np.where(np.abs(wide) < 2.0 ** (1 - bias), np.copysign(0.0, wide), wide)
        y = wide.astype(x.dtype)
    return np.where(np.isfinite(x), y, x)


def threefry(k0, k1, x0, x1):
    """The two words of the Threefry-2x32 hash of (x0, x1) under the key (k0, k1)."""
    keys = k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA)
    x0, x1 = x0 + k0, x1 + k1
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(r) | x1 >> np.uint32(32 - r)) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1
