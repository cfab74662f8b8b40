"""Counting and describing data: bincount, histograms, cov, corrcoef, interp, convolve, correlate.

Numbers of bins are static. Histograms put each sample in a bin by searchsorted and add up with one
scatter.
"""

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import contractions, index_update
from toile.numpy._helpers import arr, check, promote_inexact

__all__ = [
    "bincount", "convolve", "corrcoef", "correlate", "cov", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "interp",
]


def bincount(x, weights=None, minlength=0, *, length=None, out_sharding=None):
    """How often each non-negative integer occurs, or the sum of its weights."""
    x = h.as_array("bincount", x)
    if not h.issubdtype(x.dtype, np.integer) and x.dtype != np.bool_:
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}{here()}")
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported." + here())
    minlength = h.static_int(minlength, "'minlength' argument of jnp.bincount")
    if length is None:
        values = h.concrete(x, "x argument of jnp.bincount (pass a static length to use it under "
                               "jit)")
        length = max(minlength, int(values.max()) + 1 if values.size else 0)
    else:
        length = h.static_int(length, "'length' argument of jnp.bincount")
    if weights is None:
        weights = lax.full(x.shape, 1, h.index_dtype())
    elif np.shape(weights) != x.shape:
        raise ValueError(f"shape of weights must match shape of x, got {np.shape(weights)} and "
                         f"{x.shape}{here()}")
    weights = arr(weights)
    if weights.dtype == np.bool_:
        weights = lax.convert_element_type(weights, h.index_dtype())
    # Scatters drop indices beyond the end in any integer dtype; only bools have to be converted.
    places = lax.convert_element_type(x, np.int32) if x.dtype == np.bool_ else (jnp.clip(x, 0))
    return index_update.update(lax.full((length,), 0, weights.dtype), (places,), weights, "add",
                               mode="drop")


# Histograms.

def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of the bins that histogram would use."""
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented." + here())
    a = jnp.ravel(a)
    dtype = h.dtypes.to_inexact_dtype(h.result_type(a))
    if np.ndim(bins) == 1:
        return lax.convert_element_type(arr(bins), dtype)
    count = h.static_int(bins, "bins argument of histogram_bin_edges")
    if range is None:
        low, high = (jnp.min(a), jnp.max(a)) if a.size else (0.0, 1.0)
    else:
        low, high = range
    low = lax.convert_element_type(arr(low), dtype)
    high = lax.convert_element_type(arr(high), dtype)
    flat = low == high
    low, high = jnp.where(flat, low - 0.5, low), jnp.where(flat, high + 0.5, high)
    return jnp.linspace(low, high, count + 1, dtype=dtype)


def _bins(x, edges):
    """The bin of each sample, counted from 1; 0 and len(edges) are outside."""
    place = jnp.searchsorted(edges, x, "right")
    last = edges.shape[0] - 1
    return jnp.where(x == edges[last], last, place)


def histogram(a, bins=10, range=None, weights=None, density=None, out_sharding=None):
    """How many elements (or how much weight) fall into each bin, and the edges of the bins."""
    if weights is None:
        check("histogram", a, bins if not isinstance(bins, str) else 0)
        a, = promote_inexact(a)
        weights = lax.full(a.shape, 1, a.dtype)
    else:
        check("histogram", a, weights)
        if np.shape(a) != np.shape(weights):
            raise ValueError("weights should have the same shape as a." + here())
        a, weights = promote_inexact(a, weights)
    edges = histogram_bin_edges(a, bins, range, weights)
    a, weights = jnp.ravel(a), jnp.ravel(weights)
    x, edges = promote_inexact(a, edges)
    counts = index_update.update(lax.full((edges.shape[0],), 0, weights.dtype), (_bins(x, edges),),
                                 weights, "add", mode="drop")[1:]
    if density:
        counts = counts / (edges[1:] - edges[:-1]) / jnp.sum(counts)
    return counts, edges


def histogramdd(sample, bins=10, range=None, weights=None, density=None):
    """Counts over a grid of bins in several dimensions, and the edges along each."""
    if weights is None:
        sample, = promote_inexact(sample)
    else:
        sample, weights = promote_inexact(sample, weights)
        if weights.shape != sample.shape[:1]:
            raise ValueError("should have one weight for each sample." + here())
    if sample.ndim != 2:
        raise ValueError(f"histogramdd: needed samples of shape (N, D), got {sample.shape}{here()}")
    count, rank = sample.shape
    range = _ranges(range, sample.shape)
    if not isinstance(bins, (list, tuple)) and np.ndim(bins) == 0:
        bins = [bins] * rank
    if len(bins) != rank:
        raise ValueError("should be a bin for each dimension." + here())
    edges, places, sizes = [], [], []
    for d, each in enumerate(bins):
        column = sample[:, d]
        edge = histogram_bin_edges(column, each, range[d], weights)
        edges.append(edge)
        places.append(_bins(column, lax.convert_element_type(edge, sample.dtype)))
        sizes.append(edge.shape[0] + 1)
    flat = jnp.ravel_multi_index(places, sizes, mode="clip")
    total = bincount(lax.reshape(flat, (count,)), weights, length=math.prod(sizes))
    total = lax.reshape(total, tuple(sizes))[(slice(1, -1),) * rank]
    if density:
        total = _density(lax.convert_element_type(total, sample.dtype), edges)
    return total, edges


def _ranges(range, shape):
    """A pair (low, high) or None for each column of samples."""
    rank = shape[1]
    if range is None:
        return [None] * rank
    if len(range) != rank or any(r is not None and np.shape(r)[0] != 2 for r in range):
        raise ValueError(f"For sample.shape={shape}, range must be a sequence of {rank} "
                         f"pairs or Nones; got range={range}{here()}")
    return range


def _density(total, edges):
    """Counts over their sum and the volumes of their bins."""
    total = total / jnp.sum(total)
    for d, edge in enumerate(edges):
        other = tuple(k for k in range(len(edges)) if k != d)
        total = total / lax.expand_dims(edge[1:] - edge[:-1], other)
    return total


def histogram2d(x, y, bins=10, range=None, weights=None, density=None):
    """Counts over a grid of two-dimensional bins, and the edges along each."""
    check("histogram2d", x, y)
    one_for_both = not isinstance(bins, (list, tuple)) and np.ndim(bins) == 1
    if one_for_both or isinstance(bins, (list, tuple)) and len(bins) not in (1, 2):
        edges = arr(bins)
        bins = [edges, edges]
    elif isinstance(bins, (list, tuple)) and len(bins) == 1:
        bins = [bins[0], bins[0]]
    sample = jnp.stack([arr(x), arr(y)], axis=-1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]


# Covariance.

def _observation_weights(fweights, aweights, count):
    """The product of both kinds of weights, or None."""
    w = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        check("cov", given)
        if np.ndim(given) > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}{here()}")
        if np.shape(given)[0] != count:
            raise RuntimeError(f"incompatible numbers of samples and {name}{here()}")
        if name == "fweights" and not h.issubdtype(h.result_type(given), np.integer):
            raise TypeError("fweights must be integer." + here())
        given = jnp.absolute(given)
        w = given if w is None else jnp.multiply(w, given)
    return w


def _check_inexact(name, dtype):
    if dtype is not None and not h.issubdtype(dtype, np.inexact):
        raise ValueError(f"{name}: dtype must be a subclass of float or complex; got "
                         f"dtype={dtype!r}{here()}")


def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, dtype=None):
    """The covariance matrix of variables in rows (or columns)."""
    _check_inexact("cov", dtype)
    if y is not None:
        m, y = promote_inexact(*h.as_arrays("cov", m, y))
        if y.ndim > 2:
            raise ValueError("y has more than 2 dimensions" + here())
    else:
        m, = promote_inexact(*h.as_arrays("cov", m))
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions" + here())
    if dtype is not None:
        m = lax.convert_element_type(m, dtype)
    x = _variables(m, rowvar or m.ndim == 1)
    if x.shape[0] == 0:
        return lax.full((0, 0), 0, x.dtype)
    if y is not None:
        y = lax.convert_element_type(y, x.dtype)
        in_rows = rowvar or y.ndim < 2 or y.shape[0] == 1
        x = lax.concatenate([x, _variables(y, in_rows)], 0)
    ddof = ddof if ddof is not None else 0 if bias else 1
    w = _observation_weights(fweights, aweights, x.shape[1])
    mean, total = jnp.average(x, axis=1, weights=w, returned=True)
    scale = x.shape[1] - ddof if w is None else _weighted_divisor(total[0], w, aweights, ddof)
    x = x - lax.expand_dims(mean, (1,))
    right = jnp.transpose(x if w is None else x * w)
    return jnp.squeeze(jnp.dot(x, jnp.conj(right)) / scale)


def _variables(x, in_rows):
    """A matrix with the variables in rows."""
    x = jnp.atleast_2d(x)
    return x if in_rows else jnp.transpose(x)


def _weighted_divisor(total, w, aweights, ddof):
    """What weighted sums of squares are divided by, where the weights `w` sum up to `total`."""
    if not ddof:
        return total
    if aweights is None:
        return total - ddof
    return total - ddof * jnp.sum(w * aweights) / total


def corrcoef(x, y=None, rowvar=True, dtype=None):
    """The matrix of correlation coefficients."""
    check("corrcoef", x)
    _check_inexact("corrcoef", dtype)
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    d = jnp.sqrt(jnp.real(lax.reshape(c, (c.size,))[::c.shape[0] + 1]))
    c = c / lax.expand_dims(d, (1,)) / lax.expand_dims(d, (0,))
    if h.issubdtype(c.dtype, np.complexfloating):
        return lax.complex(jnp.clip(lax.real(c), -1, 1), jnp.clip(lax.imag(c), -1, 1))
    return jnp.clip(c, -1, 1)


# Interpolation.

def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear interpolation of the points (xp, fp) at `x`."""
    check("interp", x, xp, fp)
    if np.shape(xp) != np.shape(fp) or np.ndim(xp) != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size, got "
                         f"{describe(xp)} and {describe(fp)}{here()}")
    for name, value in (("left", left), ("right", right)):
        if isinstance(value, str) and value != "extrapolate":
            raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: "
                             f"{value!r}{here()}")
    x, xp = promote_inexact(x, xp)
    fp, = promote_inexact(fp)
    if h.issubdtype(x.dtype, np.complexfloating):
        raise ValueError("jnp.interp: complex x values not supported." + here())
    if period is not None:
        if np.ndim(period):
            raise ValueError(f"period must be a scalar; got {period}{here()}")
        period = jnp.absolute(period)
        x, xp = jnp.remainder(x, period), jnp.remainder(xp, period)
        xp, order = lax.sort((xp, lax.iota(np.int32, xp.shape[0])), num_keys=1)
        fp = fp[order]
        end = xp.shape[0] - 1
        xp = jnp.concatenate([xp[end:] - period, xp, xp[:1] + period])
        fp = jnp.concatenate([fp[end:], fp, fp[:1]])
        left = right = None
    n = xp.shape[0]
    i = jnp.clip(jnp.searchsorted(xp, x, "right"), 1, max(n - 1, 1))
    below, start = fp[i - 1], xp[i - 1]
    df = jnp.take(fp, i, mode="clip") - below
    dx = jnp.take(xp, i, mode="clip") - start
    # equal neighbours would divide by zero, also in the derivative: the slope there is never used
    wide = np.float64 if dx.dtype == np.float64 else np.float32
    flat = abs(dx) <= float(np.spacing(np.finfo(wide).eps))
    rise = (x - start) / jnp.where(flat, 1, dx) * df
    f = jnp.where(flat, below, below + rise)
    if not isinstance(left, str):
        f = jnp.where(x < xp[0], fp[0] if left is None else left, f)
    if not isinstance(right, str):
        f = jnp.where(x > xp[n - 1], fp[n - 1] if right is None else right, f)
    return f


# Convolution.

def _convolve(name, a, v, mode, precision, preferred):
    """Sum over j of a[i - j] v[j]: a one-channel convolution with `v` reversed."""
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.{here()}")
    if not a.size or not v.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {a.shape} and "
                         f"{v.shape}.{here()}")
    if mode not in ("full", "same", "valid"):
        raise ValueError("mode must be one of ['full', 'same', 'valid']" + here())
    flipped = a.shape[0] < v.shape[0]
    if flipped:
        a, v = v, a
    k = v.shape[0]
    pad = {"full": (k - 1, k - 1), "same": (k // 2, k - k // 2 - 1), "valid": (0, 0)}[mode]
    if name == "correlate" and flipped:
        pad = pad[::-1]
    out = lax.conv_general_dilated(
        lax.reshape(a, (1, 1, a.shape[0])), lax.rev(lax.reshape(v, (1, 1, k)), (2,)), (1,), [pad],
        precision=precision, preferred_element_type=preferred)
    return lax.reshape(out, (out.shape[2],))


def convolve(a, v, mode="full", *, precision=None, preferred_element_type=None):
    """The discrete convolution of two rank-1 arrays."""
    a, v = promote_inexact(a, v, name="convolve")
    return _convolve("convolve", a, v, mode, precision,
                     contractions.element_type(preferred_element_type))


def correlate(a, v, mode="valid", *, precision=None, preferred_element_type=None):
    """The cross-correlation of two rank-1 arrays, the second conjugated."""
    a, v = promote_inexact(a, v, name="correlate")
    if v.ndim == 1:
        v = lax.rev(jnp.conj(v), (0,))
    return _convolve("correlate", a, v, mode, precision,
                     contractions.element_type(preferred_element_type))

