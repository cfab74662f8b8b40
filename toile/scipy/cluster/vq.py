"""Vector quantization, as in `jax.scipy.cluster.vq`."""

from __future__ import annotations

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact

__all__ = ["vq"]


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Find the code nearest to each observation, by Euclidean distance.

    Args:
        obs: matrix with one observation in each row, or a vector of scalar observations.
        code_book: matrix with one code in each row, or a vector of scalar codes.
        check_finite: ignored.

    Returns:
        A tuple `(code, distance)`: for each observation, the index of the nearest code and the
        distance to that code. If several codes are equally near, the first of them is chosen.

    Raises:
        ValueError: the arguments differ in their number of dimensions, or have more than 2
            dimensions.

    >>> from toile.scipy.cluster.vq import vq
    >>> vq(jnp.array([0.0, 5.0, 3.0]), jnp.array([1.0, 4.0]))
    (Array([0, 1, 1], dtype=int32), Array([1., 1., 1.], dtype=float32))
    """
    obs, codes = inexact("scipy.cluster.vq.vq", obs, code_book)
    if obs.ndim != codes.ndim:
        raise ValueError("Observation and code_book should have the same rank" + here())
    if obs.ndim == 1:
        obs, codes = obs[..., None], codes[..., None]
    if obs.ndim != 2:
        raise ValueError("ndim different than 1 or 2 are not supported" + here())
    distance = jnp.linalg.norm(obs[:, None] - codes[None], axis=-1)
    code = jnp.argmin(distance, axis=-1)
    return code, jnp.take_along_axis(distance, code[:, None], axis=-1)[:, 0]
