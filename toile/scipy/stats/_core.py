"""Statistics of samples: the mode, ranks, and the standard error of the mean."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import array, canonical_axis, default_float, inexact


class ModeResult(NamedTuple):
    """The result of `mode`, a named tuple of the most common values and their counts.

    Args:
        mode: the most common values.
        count: number of times that each of these values occurs.
    """

    mode: Array
    count: Any  # an array; tuples have a method of this name


def _check_policy(name, nan_policy):
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(
            f"Illegal nan_policy value {nan_policy!r}; expected one of "
            "{'propagate', 'omit', 'raise'}" + here()
        )
    if nan_policy == "omit":
        raise NotImplementedError(f"Logic for `nan_policy` of {nan_policy} is not "
                                  f"implemented{here()}")
    if nan_policy == "raise":
        raise NotImplementedError(f"In order to best JIT compile `{name}`, we cannot know whether "
                                  "`x` contains nans. Please check if nans exist in `x` outside "
                                  f"the `{name}` function.{here()}")


def _mode(x):
    if x.size == 0:
        return jnp.array(np.nan, default_float()), jnp.array(0, default_float())
    values, counts = jnp.unique(x, return_counts=True, size=x.size)
    return values[jnp.argmax(counts)], jnp.max(counts)


def mode(a: ArrayLike, axis: int | None = 0, nan_policy: Literal["propagate"] = "propagate",
         keepdims: bool = False) -> ModeResult:
    """Find the most common value along an axis and the number of times that it occurs.

    If several values are equally common, the smallest is returned. NaNs count as equal to each
    other and as larger than any number.

    Args:
        a: array whose elements are counted.
        axis: axis along which elements are counted; None for all elements.
        nan_policy: only `"propagate"` is supported.
        keepdims: whether to keep the axis in the results, with size 1.

    Returns:
        A named tuple `(mode, count)`. For an empty axis, `mode` is NaN and `count` is 0.

    Raises:
        NotImplementedError: `nan_policy` is `"omit"` or `"raise"`.

    >>> from toile.scipy import stats
    >>> stats.mode(jnp.array([3, 1, 3, 1, 2]))
    ModeResult(mode=Array(1, dtype=int32), count=Array(2, dtype=int32))
    """
    x = jnp.atleast_1d(array("mode", a))
    _check_policy("mode", nan_policy)
    shape = x.shape
    if axis is None:
        out = (1,) * x.ndim if keepdims else ()
        x = x.reshape((-1, 1))
    else:
        axis = canonical_axis(axis, x.ndim)
        kept = (1,) if keepdims else ()
        out = shape[:axis] + kept + shape[axis + 1 :]
        x = jnp.moveaxis(x, axis, 0)
        x = x.reshape((x.shape[0], math.prod(x.shape[1:])))
    values, counts = vmap(_mode, in_axes=1)(x)
    return ModeResult(values.reshape(out), counts.reshape(out))


def _ranks(a, method, dtype):
    order, sorter = lax.sort_key_val(a, jnp.arange(a.size))
    inverse = jnp.argsort(sorter)
    if method == "ordinal":
        return (inverse + 1).astype(dtype)
    first = jnp.concatenate([jnp.array([True]), order[1:] != order[:-1]])
    dense = jnp.cumsum(first)[inverse]
    if method == "dense":
        return dense.astype(dtype)
    # Where each run of equal values starts; count[d] is the number of values up to run d.
    count = jnp.nonzero(first, size=a.size + 1, fill_value=a.size)[0].astype(dtype)
    if method == "max":
        return count[dense]
    if method == "min":
        return count[dense - 1] + 1
    return 0.5 * (count[dense] + count[dense - 1] + 1)


def rankdata(a: ArrayLike,
             method: Literal["average", "min", "max", "dense", "ordinal"] = "average", *,
             axis: int | None = None, nan_policy: Literal["propagate"] = "propagate") -> Array:
    """Rank the elements of an array, starting with 1 for the smallest.

    Args:
        a: array whose elements are ranked.
        method: how to rank equal elements. They receive the mean (`"average"`), the smallest
            (`"min"`) or the largest (`"max"`) of the ranks that they would receive if they were
            different. `"dense"` is like `"min"`, but leaves no gaps after equal elements.
            `"ordinal"` gives equal elements different ranks, in the order in which they occur in
            `a`.
        axis: axis along which elements are ranked; if None, the flattened array is ranked.
        nan_policy: only `"propagate"` is supported. If any element is NaN, all ranks are NaN.

    Returns:
        An array of the default float dtype. It has the shape of `a`, or is a vector if `axis` is
        None.

    Raises:
        NotImplementedError: `nan_policy` is `"omit"` or `"raise"`.

    Differences:
        SciPy returns integers for all methods except `"average"`.

    >>> from toile.scipy import stats
    >>> stats.rankdata(jnp.array([10, 20, 10, 5]))
    Array([2.5, 4. , 2.5, 1. ], dtype=float32)
    """
    a = array("rankdata", a)
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'{here()}")
    if axis is not None:
        return jnp.apply_along_axis(rankdata, axis, a, method)
    a = jnp.ravel(a)
    dtype = default_float()
    return jnp.where(jnp.any(jnp.isnan(a)), np.nan, _ranks(a, method, dtype)).astype(dtype)


def sem(a: ArrayLike, axis: int | None = 0, ddof: int = 1,
        nan_policy: Literal["propagate", "omit"] = "propagate", *,
        keepdims: bool = False) -> Array:
    """Compute the standard error of the mean: the standard deviation divided by `√n`.

    Here, `n` is the number of samples.

    Args:
        a: array of samples.
        axis: axis of the samples; None to treat all elements of `a` as samples.
        ddof: number to subtract from the number of samples to obtain the divisor of the variance.
        nan_policy: `"propagate"` to return NaN where a sample is NaN, `"omit"` to ignore NaNs.
        keepdims: whether to keep the axis in the result, with size 1.

    Returns:
        A floating-point array with the shape of `a` without `axis`.

    Raises:
        ValueError: `nan_policy` is neither `"propagate"` nor `"omit"`.

    >>> from toile.scipy import stats
    >>> stats.sem(jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])).round(3)
    Array(0.707, dtype=float32)
    """
    (x,) = inexact("sem", a)
    if nan_policy == "propagate":
        size = x.size if axis is None else x.shape[axis]
        return jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(size).astype(x.dtype)
    if nan_policy == "omit":
        count = jnp.sum(~jnp.isnan(x), axis, keepdims=keepdims)
        spread = jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims)
        return spread / jnp.sqrt(count).astype(x.dtype)
    raise ValueError(f"{nan_policy} is not supported{here()}")
