"""Vector quantisation: the nearest code of each observation."""

from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import inexact

__all__ = ["vq"]


def vq(obs, code_book, check_finite=True):
    """(index of the nearest row of `code_book`, its distance) for each row of `obs`."""
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
