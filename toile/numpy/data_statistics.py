"""Counting and describing data: bincount, histograms, cov, corrcoef, interp, convolve, correlate.

The number of bins must be static. Histograms find the bin of each sample with `searchsorted`, and
count the samples with one scatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import contractions, index_update
from toile.numpy._helpers import arr, check, promote_inexact


def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *,
             length: int | None = None, out_sharding: object = None) -> Array:
    """Count the occurrences of each nonnegative integer in an array.

    If `length` is None, the length of the result depends on the values of `x`, so `length` is
    required under `jit`.

    Args:
        x: integers or booleans, as an array of rank 1; negative integers are treated as 0.
        weights: amount that each element of `x` adds to its count; 1 by default.
        minlength: minimum length of the result; ignored if `length` is given.
        length: length of the result; integers that are too large for this length are not counted.
            If `length` is None, the length is the largest element of `x` plus 1, or `minlength` if
            that is larger.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of rank 1 whose element i is the number (or total weight) of the elements of `x`
        that equal i. Counts have the default integer dtype; weighted counts have the dtype of the
        weights, or the default integer dtype if the weights are booleans.

    Raises:
        TypeError: `x` is neither integer nor boolean.
        ValueError: `x` does not have rank 1, or `weights` does not have the shape of `x`.

    Differences:
        NumPy has no `length`, rejects negative integers, and returns weighted counts as float64.

    >>> jnp.bincount(jnp.array([0, 1, 1, 5]), length=4)
    Array([1, 2, 0, 0], dtype=int32)
    """
    x = h.as_array("bincount", x)
    if not h.issubdtype(x.dtype, np.integer) and x.dtype != np.bool_:
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype} "
                        f"(convert it with .astype(int)){here()}")
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
    added = arr(weights)
    if added.dtype == np.bool_:
        added = lax.convert_element_type(added, h.index_dtype())
    # Scatters drop indices beyond the end in any integer dtype; only bools have to be converted.
    places = lax.convert_element_type(x, np.int32) if x.dtype == np.bool_ else (jnp.clip(x, 0))
    return index_update.update(lax.full((length,), 0, added.dtype), (places,), added, "add",
                               mode="drop")


# Histograms.

def histogram_bin_edges(a: ArrayLike, bins: int | ArrayLike = 10,
                        range: Sequence[ArrayLike] | None = None,
                        weights: ArrayLike | None = None) -> Array:
    """Compute the edges of the bins that `histogram` uses.

    Args:
        a: array or number; only its smallest and largest elements matter.
        bins: number of bins of equal width, or an array of edges, which becomes the result.
        range: lowest and highest edge; None for the smallest and largest elements (0 and 1 if `a`
            is empty). If the two edges are equal, each is moved outward by 0.5.
        weights: ignored.

    Returns:
        The edges; there is one more edge than there are bins. The edges have the dtype of `a` if
        it is floating, and float32 if `a` contains integers or booleans (float64 for 64-bit
        integers).

    Raises:
        NotImplementedError: `bins` is a string. Unlike NumPy, this function does not accept the
            name of a binning method.
    """
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented: needed a number or "
                                  f"edges, got {bins!r} (use bins=10){here()}")
    x = jnp.ravel(a)
    dtype = h.dtypes.to_inexact_dtype(h.result_type(x))
    if np.ndim(bins) == 1:
        return lax.convert_element_type(arr(bins), dtype)
    count = h.static_int(bins, "bins argument of histogram_bin_edges")
    if range is None:
        range = (jnp.min(x), jnp.max(x)) if x.size else (0.0, 1.0)
    low, high = (lax.convert_element_type(arr(end), dtype) for end in range)
    flat = low == high
    low, high = jnp.where(flat, low - 0.5, low), jnp.where(flat, high + 0.5, high)
    return jnp.linspace(low, high, count + 1, dtype=dtype)


def _bins(x, edges):
    """Find the bin of each sample, counted from 1; 0 and len(edges) are outside all bins."""
    place = jnp.searchsorted(edges, x, "right")
    last = edges.shape[0] - 1
    return jnp.where(x == edges[last], last, place)


def histogram(a: ArrayLike, bins: int | ArrayLike = 10, range: Sequence[ArrayLike] | None = None,
              weights: ArrayLike | None = None, density: bool | None = None,
              out_sharding: object = None) -> tuple[Array, Array]:
    """Count the elements that fall into each of several bins.

    A bin contains its lower edge but not its upper edge; the last bin contains both. Elements that
    are NaN or lie outside all bins are not counted. If `range` is None and an element is NaN, the
    edges are NaN.

    Args:
        a: array or number; its shape does not matter.
        bins: number of bins of equal width, or an array of edges in ascending order.
        range: lowest and highest edge; None for the smallest and largest elements.
        weights: amount that each element adds to its bin, as an array with the shape of `a`; 1 by
            default.
        density: whether to divide the counts by their sum and by the widths of the bins.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A tuple of the counts, one for each bin, and the edges, of which there is one more. Both
        have the floating dtype that `a` and `weights` promote to, which is float32 for integers
        (float64 for 64-bit integers).

    Raises:
        ValueError: `weights` does not have the shape of `a`.
        NotImplementedError: `bins` is a string. Unlike NumPy, this function does not accept the
            name of a binning method.

    Differences:
        NumPy returns unweighted counts as integers.

    >>> jnp.histogram(jnp.array([0, 1, 1, 4]), bins=4)[0]
    Array([1., 2., 0., 1.], dtype=float32)
    """
    if weights is None:
        check("histogram", a, bins if not isinstance(bins, str) else 0)
        a, = promote_inexact(a)
        weights = lax.full(a.shape, 1, h.index_dtype())  # integers are added without sorting them
        dtype = a.dtype
    else:
        check("histogram", a, weights)
        if np.shape(a) != np.shape(weights):
            raise ValueError("weights should have the same shape as a." + here())
        a, weights = promote_inexact(a, weights)
        dtype = weights.dtype
    edges = histogram_bin_edges(a, bins, range, weights)
    added = jnp.ravel(weights)
    x, edges = promote_inexact(jnp.ravel(a), edges)
    counts = index_update.update(lax.full((edges.shape[0],), 0, added.dtype), (_bins(x, edges),),
                                 added, "add", mode="drop")[1:]
    counts = lax.convert_element_type(counts, dtype)
    if density:
        counts = counts / (edges[1:] - edges[:-1]) / jnp.sum(counts)
    return counts, edges


def histogramdd(sample: ArrayLike, bins: int | Sequence[int | ArrayLike] = 10,
                range: Sequence[Sequence[ArrayLike] | None] | None = None,
                weights: ArrayLike | None = None,
                density: bool | None = None) -> tuple[Array, list[Array]]:
    """Count the points in each box of a grid with any number of dimensions.

    Args:
        sample: N points with D coordinates, as an array of shape (N, D).
        bins: number of bins along every dimension, or a list that contains, for each dimension, the
            number of bins or an array of edges.
        range: list of pairs (lowest edge, highest edge), one for each dimension. None, in place of
            a pair or of the whole list, means the smallest and largest coordinates.
        weights: amount that each point adds to its box, as an array of shape (N,); 1 by default.
        density: whether to divide the counts by their sum and by the volumes of the boxes.

    Returns:
        A tuple of the counts, with an axis for each dimension, and a list of arrays of edges, one
        for each dimension. Counts have the default integer dtype. Weighted counts and densities
        have the floating dtype that `sample` and `weights` promote to.

    Raises:
        ValueError: `sample` does not have rank 2, or the length of `bins`, `range` or `weights`
            does not match `sample`.
    """
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
    given: Any = bins
    if not isinstance(given, (list, tuple)) and np.ndim(given) == 0:
        given = [given] * rank
    if len(given) != rank:
        raise ValueError("should be a bin for each dimension." + here())
    edges, places, sizes = [], [], []
    for d, each in enumerate(given):
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
    """Return a pair (low, high) or None for each column of samples."""
    rank = shape[1]
    if range is None:
        return [None] * rank
    if len(range) != rank or any(r is not None and np.shape(r)[0] != 2 for r in range):
        raise ValueError(f"For sample.shape={shape}, range must be a sequence of {rank} "
                         f"pairs or Nones; got range={range}{here()}")
    return range


def _density(total, edges):
    """Divide counts by their sum and by the volumes of their bins."""
    total = total / jnp.sum(total)
    for d, edge in enumerate(edges):
        other = tuple(k for k in range(len(edges)) if k != d)
        total = total / lax.expand_dims(edge[1:] - edge[:-1], other)
    return total


def histogram2d(x: ArrayLike, y: ArrayLike,
                bins: int | ArrayLike | Sequence[int | ArrayLike] = 10,
                range: Sequence[Sequence[ArrayLike] | None] | None = None,
                weights: ArrayLike | None = None,
                density: bool | None = None) -> tuple[Array, Array, Array]:
    """Count the points in each box of a two-dimensional grid.

    Args:
        x, y: coordinates of the points, as arrays of rank 1.
        bins: number of bins or array of edges for both dimensions, or a pair that contains one of
            these for `x` and one for `y`.
        range: two pairs (lowest edge, highest edge), one for `x` and one for `y`. None, in place of
            one pair or of both, means the smallest and largest coordinates.
        weights: amount that each point adds to its box, as an array with the shape of `x`; 1 by
            default.
        density: whether to divide the counts by their sum and by the areas of the boxes.

    Returns:
        A tuple of the counts, of shape (bins along x, bins along y), the edges along `x`, and the
        edges along `y`. The counts have the same dtype as in `histogramdd`.

    >>> x, y = jnp.array([0.0, 0.1, 1.0]), jnp.array([0.0, 1.0, 1.0])
    >>> jnp.histogram2d(x, y, bins=2)[0]
    Array([[1, 1],
           [0, 1]], dtype=int32)
    """
    check("histogram2d", x, y)
    given: Any = bins
    one_for_both = not isinstance(given, (list, tuple)) and np.ndim(given) == 1
    if one_for_both or isinstance(given, (list, tuple)) and len(given) not in (1, 2):
        given = [arr(given)] * 2
    elif isinstance(given, (list, tuple)) and len(given) == 1:
        given = [given[0], given[0]]
    sample = jnp.stack([arr(x), arr(y)], axis=-1)
    counts, edges = histogramdd(sample, given, range, weights, density)
    return counts, edges[0], edges[1]


# Covariance.

def _observation_weights(fweights, aweights, count):
    """Return the product of both kinds of weights, or None if there are no weights."""
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


def cov(m: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False,
        ddof: int | None = None, fweights: ArrayLike | None = None,
        aweights: ArrayLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Compute the covariance matrix of observed variables.

    Args:
        m: observations, as an array of rank 2 with one variable in each row (or in each column; see
            `rowvar`), or as an array of rank 1 for a single variable.
        y: additional variables, in the same form as `m`; None to use only `m`.
        rowvar: True if rows are variables and columns are observations; False if rows are
            observations and columns are variables.
        bias: True to divide the sums of products by N, the number of observations; False to divide
            them by N - 1.
        ddof: number to subtract from N to obtain the divisor; it overrides `bias`. If `ddof` is
            None, `bias` is used.
        fweights: number of times to count each observation, as an integer array of rank 1.
        aweights: weight of each observation, as an array of rank 1.
        dtype: floating or complex dtype of the result; None for the dtype of `m`, or float32 for
            integers and booleans (float64 for 64-bit integers).

    Returns:
        An array of shape (variables, variables), or of rank 0 if there is only one variable. Its
        elements are NaN or infinite if the divisor is 0.

    Raises:
        ValueError: `m` or `y` has more than two axes, or `dtype` is not floating or complex.
        TypeError: `fweights` is not an integer array.
        RuntimeError: weights have more than one axis, or their number differs from the number of
            observations.

    Differences:
        NumPy raises an error for negative weights, whereas toile uses their absolute values.

    >>> jnp.cov(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    _check_inexact("cov", dtype)
    if y is not None:
        m, y = promote_inexact(*h.as_arrays("cov", m, y))
        if y.ndim > 2:
            raise ValueError("y has more than 2 dimensions" + here())
    else:
        m, = promote_inexact(*h.as_arrays("cov", m))
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions" + here())
    x = _variables(m if dtype is None else lax.convert_element_type(m, dtype),
                   rowvar or m.ndim == 1)
    if x.shape[0] == 0:
        return lax.full((0, 0), 0, x.dtype)
    if y is not None:
        x = _joined_variables(x, y, rowvar)
    if x.shape[1] == 0:
        return lax.full(() if x.shape[0] == 1 else (x.shape[0], x.shape[0]), np.nan, x.dtype)
    ddof = ddof if ddof is not None else 0 if bias else 1
    w = _observation_weights(fweights, aweights, x.shape[1])
    mean, total = jnp.average(x, axis=1, weights=w, returned=True)
    scale = x.shape[1] - ddof if w is None else _weighted_divisor(total[0], w, aweights, ddof)
    x = x - lax.expand_dims(mean, (1,))
    right = jnp.transpose(x if w is None else x * w[None])
    return jnp.squeeze(jnp.dot(x, jnp.conj(right)) / scale)


def _joined_variables(m, y, rowvar):
    """Convert the observations of two arrays to one matrix with the variables in rows."""
    in_rows = rowvar or y.ndim < 2 or y.shape[0] == 1
    return lax.concatenate([m, _variables(lax.convert_element_type(y, m.dtype), in_rows)], 0)


def _variables(x, in_rows):
    """Convert observations to a matrix with the variables in rows."""
    x = jnp.atleast_2d(x)
    return x if in_rows else jnp.transpose(x)


def _weighted_divisor(total, w, aweights, ddof):
    """The divisor of weighted sums of squares, where the weights `w` sum to `total`."""
    if not ddof:
        return total
    if aweights is None:
        return total - ddof
    return total - ddof * jnp.sum(w * aweights) / total


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True,
             dtype: DTypeLike | None = None) -> Array:
    """Compute the matrix of correlation coefficients of observed variables.

    Coefficients are clipped to [-1, 1]; the real and imaginary parts of complex coefficients are
    clipped separately. The coefficients of a constant variable are NaN.

    Args:
        x: observations, as an array of rank 2 with one variable in each row (or in each column; see
            `rowvar`), or as an array of rank 1 for a single variable.
        y: additional variables, in the same form as `x`; None to use only `x`.
        rowvar: True if rows are variables and columns are observations; False if rows are
            observations and columns are variables.
        dtype: floating or complex dtype of the result; None for the dtype of `x`, or float32 for
            integers and booleans (float64 for 64-bit integers).

    Returns:
        An array of shape (variables, variables), or of rank 0 if there is only one variable.

    Raises:
        ValueError: `x` or `y` has more than two axes, or `dtype` is not floating or complex.
    """
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

def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike,
           left: ArrayLike | Literal["extrapolate"] | None = None,
           right: ArrayLike | Literal["extrapolate"] | None = None,
           period: ArrayLike | None = None) -> Array:
    """Interpolate linearly between given points.

    If `xp` is not in ascending order and `period` is None, the result is meaningless; the order is
    not checked. Where `x` is NaN, the result is NaN.

    Args:
        x: x coordinates at which to interpolate.
        xp: x coordinates of the points, in ascending order unless `period` is given.
        fp: values at the points, real or complex, as an array with the shape of `xp`.
        left: value where `x` is less than all elements of `xp`; None for the first element of `fp`,
            or "extrapolate" to continue the first line segment.
        right: value where `x` is greater than all elements of `xp`; None for the last element of
            `fp`, or "extrapolate" to continue the last line segment.
        period: period of the function. If it is given, `x` and `xp` are reduced to one period, the
            points are sorted, and `left` and `right` are ignored.

    Returns:
        An array with the shape of `x`, in a floating or complex dtype.

    Raises:
        ValueError: `xp` or `fp` does not have rank 1, their sizes differ, or `x` is complex.

    Differences:
        NumPy does not have the option "extrapolate".

    >>> xp, fp = jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 10.0, 30.0])
    >>> jnp.interp(jnp.array([-1.0, 0.5, 3.0]), xp, fp, right="extrapolate")
    Array([ 0.,  5., 50.], dtype=float32)
    """
    check("interp", x, xp, fp)
    x, xp, fp = (h.unwrapped(v) for v in (x, xp, fp))
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
        x, xp, fp = _in_one_period(x, xp, fp, period)
        left = right = None
    n = xp.shape[0]
    i = jnp.clip(jnp.searchsorted(xp, x, "right"), 1, max(n - 1, 1))
    below, start = fp[i - 1], xp[i - 1]
    df = jnp.take(fp, i, mode="clip") - below
    dx = jnp.take(xp, i, mode="clip") - start
    # equal neighbors would divide by zero, also in the derivative: the slope there is never used
    wide = np.float64 if dx.dtype == np.float64 else np.float32
    flat = abs(dx) <= float(np.spacing(np.finfo(wide).eps))
    rise = (x - start) / jnp.where(flat, 1, dx) * df
    f = jnp.where(flat, below, below + rise)
    if not isinstance(left, str):
        f = jnp.where(x < xp[0], fp[0] if left is None else left, f)
    if not isinstance(right, str):
        f = jnp.where(x > xp[n - 1], fp[n - 1] if right is None else right, f)
    return f


def _in_one_period(x: Array, xp: Any, fp: Any, period: ArrayLike) -> tuple[Array, Array, Array]:
    """Reduce x coordinates to one period, sort the points, and add a neighbor at each end."""
    if np.ndim(period):
        raise ValueError(f"period must be a scalar; got {period}{here()}")
    period = jnp.absolute(period)
    x, xp = jnp.remainder(x, period), jnp.remainder(xp, period)
    xp, order = lax.sort((xp, lax.iota(np.int32, xp.shape[0])), num_keys=1)
    fp = fp[order]
    end = xp.shape[0] - 1
    xp = jnp.concatenate([xp[end:] - period, xp, xp[:1] + period])
    return x, xp, jnp.concatenate([fp[end:], fp, fp[:1]])


# Convolution.

def _convolve(name, a, v, mode, precision, preferred):
    """Compute the sums over j of a[i - j] v[j]: a convolution of one channel with `v` reversed."""
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


def convolve(a: ArrayLike, v: ArrayLike, mode: Literal["full", "same", "valid"] = "full", *,
             precision: lax.PrecisionLike = None,
             preferred_element_type: DTypeLike | None = None) -> Array:
    """Compute the discrete convolution of two arrays of rank 1.

    Element n is the sum over m of `a[m] * v[n - m]`.

    Args:
        a, v: nonempty arrays of rank 1.
        mode: "full" returns an element for every shift at which the arrays overlap; "same" returns
            the middle part, which has the length of the longer array; "valid" returns the elements
            for which the shorter array lies entirely inside the longer one.
        precision: precision of the multiplication, as in `lax.dot_general`; None for the default.
        preferred_element_type: dtype of the sums and of the result; None for the promoted
            dtype.

    Returns:
        An array of rank 1. Its dtype is the one that both arrays promote to; integers and booleans
        become float32 (64-bit integers become float64).

    Raises:
        ValueError: an array is empty or does not have rank 1, or `mode` is unknown.

    Differences:
        In NumPy, the result for integer arrays is an integer array.

    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([0, 1]))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    a, v = promote_inexact(a, v, name="convolve")
    return _convolve("convolve", a, v, mode, precision,
                     contractions.element_type(preferred_element_type))


def correlate(a: ArrayLike, v: ArrayLike, mode: Literal["full", "same", "valid"] = "valid", *,
              precision: lax.PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None) -> Array:
    """Compute the cross-correlation of two arrays of rank 1.

    The element for shift k is the sum over m of `a[m + k] * conj(v[m])`. The shifts are in
    ascending order.

    Args:
        a, v: nonempty arrays of rank 1.
        mode: "full" returns an element for every shift at which the arrays overlap; "same" returns
            the middle part, which has the length of the longer array; "valid" returns the elements
            for which the shorter array lies entirely inside the longer one.
        precision: precision of the multiplication, as in `lax.dot_general`; None for the default.
        preferred_element_type: dtype of the sums and of the result; None for the promoted
            dtype.

    Returns:
        An array of rank 1. Its dtype is the one that both arrays promote to; integers and booleans
        become float32 (64-bit integers become float64).

    Raises:
        ValueError: an array is empty or does not have rank 1, or `mode` is unknown.

    Differences:
        In NumPy, the result for integer arrays is an integer array.

    >>> jnp.correlate(jnp.array([1, 2, 3]), jnp.array([0, 1]))
    Array([2., 3.], dtype=float32)
    """
    a, v = promote_inexact(a, v, name="correlate")
    if v.ndim == 1:
        v = lax.rev(jnp.conj(v), (0,))
    return _convolve("correlate", a, v, mode, precision,
                     contractions.element_type(preferred_element_type))

