"""Interpolation of arrays at real coordinates."""

import itertools
import math
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
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
    """The (index, weight) pairs along one axis."""
    if order == 0:
        return [(_round(coordinate).astype(np.int32), coordinate.dtype.type(1))]
    low = jnp.floor(coordinate)
    above = coordinate - low
    index = low.astype(np.int32)
    return [(index, 1 - above), (index + 1, above)]


def map_coordinates(input, coordinates, order, mode="constant", cval=0.0):
    """`input` at `coordinates` (one array per axis), nearest (order 0) or linear (1)."""
    input = jnp.asarray(input)
    coordinates = [jnp.asarray(c) for c in coordinates]
    cval = jnp.asarray(cval, input.dtype)
    if len(coordinates) != input.ndim:
        raise ValueError("coordinates must be a sequence of length input.ndim, but "
                         f"{len(coordinates)} != {input.ndim}{here()}")
    if mode not in _FOLD:
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates does not yet support mode "
                                  f"{mode}. Currently supported modes are {set(_FOLD)}.{here()}")
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires "
                                  "order<=1" + here())
    axes = []
    for coordinate, size in zip(coordinates, input.shape):
        nodes = _nodes(coordinate, order)
        axes.append([(_FOLD[mode](i, size), (i >= 0) & (i < size), w) for i, w in nodes])
    total: Any = None
    for corner in itertools.product(*axes):
        indices, inside, weights = zip(*corner)
        value = input[indices]
        if mode == "constant":
            everywhere = inside[0]
            for other in inside[1:]:
                everywhere = everywhere & other
            value = jnp.where(everywhere, value, cval)
        term = math.prod(weights[1:], start=weights[0]) * value
        total = term if total is None else total + term
    if is_integer(input):
        total = _round(total)
    return total.astype(input.dtype)
