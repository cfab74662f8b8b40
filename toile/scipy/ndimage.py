"""Interpolation of arrays at real-valued coordinates, as in `jax.scipy.ndimage`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import is_integer

__all__ = ["map_coordinates"]


def _mirror(index, size):
    last = size - 1
    return jnp.abs((index + last) % (2 * last) - last)


# Mode -> how an index outside the array is brought inside. "reflect" repeats the edge: it mirrors
# about half-integers, which is mirroring of doubled indices.
_FOLD = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirror,
    "reflect": lambda index, size: (_mirror(2 * index + 1, 2 * size + 1) - 1) // 2,
}


def _round(x):
    return x if is_integer(x) else lax.round(x)  # halves away from zero


def _nodes(coordinate, order):
    """Return the indices along one axis to interpolate between, with their weights."""
    if order == 0:
        return [(_round(coordinate).astype(np.int32), coordinate.dtype.type(1))]
    low = jnp.floor(coordinate)
    above = coordinate - low
    index = low.astype(np.int32)
    return [(index, 1 - above), (index + 1, above)]


def map_coordinates(input: ArrayLike, coordinates: Sequence[ArrayLike], order: int,
                    mode: Literal["constant", "nearest", "wrap", "mirror", "reflect"] = "constant",
                    cval: ArrayLike = 0.0) -> Array:
    """Interpolate an array at real-valued indices.

    Args:
        input: array whose values are interpolated.
        coordinates: one array of indices for each axis of `input`. The arrays are broadcast
            against each other.
        order: 0 for the value at the nearest index, or 1 for linear interpolation. For order 0, an
            index halfway between two integers is rounded away from 0.
        mode: how the array is extended beyond its bounds, shown here for an array `a b c d`.
            `"constant"` uses `cval`, `"nearest"` repeats the edge elements
            (`a a a | a b c d | d d d`), `"wrap"` repeats the array (`b c d | a b c d | a b c`),
            `"mirror"` reflects it about the edge elements (`d c b | a b c d | c b a`), and
            `"reflect"` reflects it about the edges (`c b a | a b c d | d c b`).
        cval: value outside the array for `mode="constant"`. Up to a distance of 1 from the edge,
            linear interpolation mixes this value with the edge element.

    Returns:
        An array with the shape that the coordinates broadcast to and the dtype of `input`. If
        `input` contains integers, interpolated values are rounded.

    Raises:
        NotImplementedError: `order` is not 0 or 1, or `mode` is not supported.
        ValueError: the number of coordinate arrays differs from the number of axes of `input`.

    Differences:
        SciPy also supports splines of higher order. With `"constant"`, it returns `cval` for every
        index outside the array, without interpolation. With `"wrap"`, SciPy repeats the array with
        a period that is 1 less than the size of the axis; SciPy's `"grid-wrap"` corresponds to
        toile's `"wrap"`.

    >>> from toile.scipy import ndimage
    >>> x = jnp.array([0.0, 10.0, 20.0])
    >>> ndimage.map_coordinates(x, [jnp.array([0.5, 1.0, 1.75])], order=1)
    Array([ 5. , 10. , 17.5], dtype=float32)
    """
    source = jnp.asarray(input)
    indices = [jnp.asarray(c) for c in coordinates]
    outside = jnp.asarray(cval, source.dtype)
    if len(indices) != source.ndim:
        raise ValueError("coordinates must be a sequence of length input.ndim, but "
                         f"{len(indices)} != {source.ndim}{here()}")
    if mode not in _FOLD:
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates does not yet support mode "
                                  f"{mode}. Currently supported modes are {set(_FOLD)}.{here()}")
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires "
                                  "order<=1" + here())
    axes = []
    for coordinate, size in zip(indices, source.shape):
        nodes = _nodes(coordinate, order)
        axes.append([(_FOLD[mode](i, size), (i >= 0) & (i < size), w) for i, w in nodes])
    total: Any = None
    for corner in itertools.product(*axes):
        node, inside, weights = zip(*corner)
        value = source.at[node].get(mode="clip")  # `mode` says what is outside
        if mode == "constant":
            everywhere = inside[0]
            for other in inside[1:]:
                everywhere = everywhere & other
            value = jnp.where(everywhere, value, outside)
        term = math.prod(weights[1:], start=weights[0]) * value
        total = term if total is None else total + term
    if is_integer(source):
        total = _round(total)
    return total.astype(source.dtype)
