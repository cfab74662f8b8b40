"""Statistics of samples: mode, ranks, standard error of the mean."""

import math
from typing import Any, NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.source import here
from toile.nn._promote import array, canonical_axis, default_float, inexact


class ModeResult(NamedTuple):
    """The most common value, and how often it occurs."""

    mode: Any
    count: Any


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
                                  "`x` contains nans. Please check if nans exist in `x` outside of "
                                  f"the `{name}` function.{here()}")


def _mode(x):
    if x.size == 0:
        return jnp.array(np.nan, default_float()), jnp.array(0, default_float())
    values, counts = jnp.unique(x, return_counts=True, size=x.size)
    return values[jnp.argmax(counts)], jnp.max(counts)


def mode(a, axis=0, nan_policy="propagate", keepdims=False):
    """The most common value along `axis` (the smallest of them), with its count."""
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


def rankdata(a, method="average", *, axis=None, nan_policy="propagate"):
    """Ranks from 1, ties resolved by `method`; all NaN if any value is."""
    a = array("rankdata", a)
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'{here()}")
    if axis is not None:
        return jnp.apply_along_axis(rankdata, axis, a, method)
    a = jnp.ravel(a)
    dtype = default_float()
    return jnp.where(jnp.any(jnp.isnan(a)), np.nan, _ranks(a, method, dtype)).astype(dtype)


def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    """Standard error of the mean: standard deviation over √n."""
    (x,) = inexact("sem", a)
    if nan_policy == "propagate":
        size = x.size if axis is None else x.shape[axis]
        return jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(size).astype(x.dtype)
    if nan_policy == "omit":
        count = jnp.sum(~jnp.isnan(x), axis, keepdims=keepdims)
        spread = jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims)
        return spread / jnp.sqrt(count).astype(x.dtype)
    raise ValueError(f"{nan_policy} is not supported{here()}")
