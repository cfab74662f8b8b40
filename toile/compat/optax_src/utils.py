"""The functions of `optax._src.utils`: checks of arrays, diagonals, and precision in a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toile import config, dtypes
from toile import numpy as jnp
from toile.engine.source import here
from toile.optim.adding import canonical_key as canonicalize_key  # noqa: F401
from toile.optim.extras import MultiNormalDiagFromLogScale as MultiNormalDiagFromLogScale
from toile.optim.extras import multi_normal as multi_normal
from toile.optim.extras import scale_gradient as scale_gradient
from toile.optim.moments import canonical as canonicalize_dtype  # noqa: F401
from toile.optim.numerics import safe_int32_increment as safe_int32_increment
from toile.optim.numerics import safe_norm as safe_norm


def tile_second_to_last_dim(a: Any) -> Any:
    """Repeat the elements of `a` along a new last axis, which is as long as the old one."""
    a = jnp.asarray(a)
    return jnp.broadcast_to(a[..., None], (*a.shape, a.shape[-1]))


def check_subdtype(array: Any, subdtype: Any) -> None:
    """Raise an error if the dtype of an array is of another kind."""
    found = dtypes.result_type(array)
    if not jnp.issubdtype(found, subdtype):
        raise TypeError(
            f"Expected the input to have a dtype that is a subdtype of {subdtype}, got {found} "
            f"instead (convert it with .astype){here()}"
        )


def check_shapes_equal(a: Any, b: Any) -> None:
    """Raise an error if two arrays have different shapes."""
    if jnp.shape(a) != jnp.shape(b):
        raise ValueError(
            f"Shape mismatch: got {jnp.shape(a)} and {jnp.shape(b)} (needed equal ones){here()}"
        )


def check_rank(array: Any, rank: int) -> None:
    """Raise an error if an array has another number of axes."""
    if jnp.ndim(array) != rank:
        raise ValueError(
            f"Expected the input to have rank {rank}, got {jnp.ndim(array)} instead (use "
            f".reshape){here()}"
        )


def set_diags(a: Any, new_diags: Any) -> Any:
    """Replace the diagonals of a stack of matrices (N, D, D) with the rows of an array (N, D)."""
    for name, x, rank, kind in (("a", a, 3, "3D tensor"), ("new_diags", new_diags, 2, "2D array")):
        if jnp.ndim(x) != rank:
            raise ValueError(
                f"Expected `{name}` to be a {kind}, got {jnp.ndim(x)}D instead{here()}"
            )
    n, d, _ = a.shape
    for name, found, needed in (("a", a.shape, (n, d, d)), ("new_diags", new_diags.shape, (n, d))):
        if found != needed:
            raise ValueError(
                f"Shape mismatch: expected `{name}.shape` to be {needed}, got {found} instead"
                f"{here()}"
            )
    return jnp.where(jnp.eye(d, dtype=bool), new_diags[:, :, None], a)


@contextmanager
def x64_precision(enable_x64_precision: bool = True) -> Iterator[None]:
    """Enable or disable 64-bit dtypes in a block."""
    before = config.read("jax_enable_x64")
    config.update("jax_enable_x64", enable_x64_precision)
    try:
        yield
    finally:
        config.update("jax_enable_x64", before)
