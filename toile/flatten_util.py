"""Convert a tree of arrays to one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import toile.lax as lax
import toile.numpy as jnp
from toile.engine import trees
from toile.engine.annotations import Array, PyTree
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.treedefs import PyTreeDef

__all__ = ["ravel_pytree"]


@dataclass(frozen=True)
class _Unravel:
    """The inverse of ravel; equal for trees of equal structure, shapes and dtypes."""

    treedef: PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...] | None  # None: one dtype for all; the vector's own is kept
    dtype: Any

    def __call__(self, flat: Any) -> Any:
        if not self.shapes:
            return self.treedef.unflatten([])
        found = jnp.result_type(flat)
        if self.dtypes is not None and found != self.dtype:
            raise TypeError(
                f"unravel function given array of dtype {found}, but expected dtype "
                f"{self.dtype}{here()}"
            )
        sizes = [prod(shape) for shape in self.shapes]
        if jnp.shape(flat) != (sum(sizes),):
            raise ValueError(
                f"unravel: needed a vector of length {sum(sizes)}, got shape "
                f"{jnp.shape(flat)}{here()}"
            )
        parts = lax.split(flat, sizes)
        out = [jnp.reshape(part, shape) for part, shape in zip(parts, self.shapes)]
        if self.dtypes is not None:
            out = [_cast(x, dtype) for x, dtype in zip(out, self.dtypes)]
        return self.treedef.unflatten(out)


def _cast(x: Any, dtype: Any) -> Any:
    """Convert to `dtype`; complex to real drops the imaginary part, which is zero."""
    drops = jnp.issubdtype(x.dtype, jnp.complexfloating)
    if drops and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = jnp.real(x)
    return lax.convert_element_type(x, dtype)


def ravel_pytree(pytree: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Concatenate all leaves of a tree into one vector.

    Args:
        pytree: tree of arrays and numbers.

    Returns:
        The pair (vector, unravel). The dtype of the vector is the result of promoting the dtypes of
        the leaves. `unravel` converts a vector of the same length to a tree whose leaves have the
        original shapes. If the leaves have different dtypes, `unravel` restores these dtypes;
        otherwise, it keeps the dtype of its argument.

    >>> from toile.flatten_util import ravel_pytree
    >>> flat, unravel = ravel_pytree({'w': jnp.ones((2, 2)), 'b': jnp.zeros(2)})
    >>> flat
    Array([0., 0., 1., 1., 1., 1.], dtype=float32)
    >>> unravel(flat * 3)['w']
    Array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    leaves, treedef = trees.flatten(pytree)
    if not leaves:
        return jnp.zeros((0,), "float32"), _Unravel(treedef, (), None, None)
    shapes = tuple([tuple(jnp.shape(x)) for x in leaves])
    dtypes = tuple([jnp.result_type(x) for x in leaves])
    common = jnp.result_type(*dtypes)
    mixed = any(dtype != common for dtype in dtypes)
    if mixed:
        leaves = [lax.convert_element_type(x, common) for x in leaves]
    flat = lax.concatenate([jnp.ravel(x) for x in leaves], dimension=0)
    return flat, _Unravel(treedef, shapes, dtypes if mixed else None, common if mixed else None)
