"""Arithmetic with BCOO arrays; results are sparse unless a dense array is added."""

from __future__ import annotations

from typing import Any

import toile.lax as lax
import toile.numpy as jnp
from toile.engine.source import here
from toile.experimental.sparse.bcoo_indices import as_dtype
from toile.experimental.sparse.bcoo_products import bcoo_multiply_dense, bcoo_multiply_sparse
from toile.experimental.sparse.storage import BCOOStorage
from toile.numpy._dtypes import to_inexact


def _promoted(x: Any, y: Any, inexact: bool = False) -> tuple[Any, Any]:
    """Operands with the promoted dtype of both."""
    dtype = jnp.result_type(*(v.data if isinstance(v, BCOOStorage) else v for v in (x, y)))
    dtype = to_inexact(dtype) if inexact else dtype
    found = [as_dtype(v, dtype) if isinstance(v, BCOOStorage) else jnp.asarray(v).astype(dtype)
             for v in (x, y)]
    return found[0], found[1]


def multiply(x: Any, y: Any, shared: bool = False) -> Any:
    """The product; `shared` tells that two sparse factors have the same indices."""
    x, y = _promoted(x, y)
    if not isinstance(x, BCOOStorage):
        x, y = y, x
    if not isinstance(y, BCOOStorage):
        return x._with_data(bcoo_multiply_dense(x, y))
    if shared and x.unique_indices:
        return x._with_data(lax.mul(x.data, y.data))
    return bcoo_multiply_sparse(x, y)


def divide(x: Any, y: Any) -> Any:
    """The quotient of a sparse array and a dense one."""
    if isinstance(y, BCOOStorage):
        raise NotImplementedError(
            "Division by a sparse array is not implemented because it would result in dense "
            f"output. If this is your intent, use sparse.todense() on {y}{here()}"
        )
    x, y = _promoted(x, y, inexact=True)
    return x._with_data(bcoo_multiply_dense(x, 1 / y))


def add(x: Any, y: Any, shared: bool = False) -> Any:
    """The sum; `shared` tells that two sparse terms have the same indices."""
    if not isinstance(x, BCOOStorage):
        x, y = y, x
    x, y = _promoted(x, y)
    if not isinstance(y, BCOOStorage):
        if y.shape != lax.broadcast_shapes(x.shape, y.shape):
            raise NotImplementedError(
                "Addition between a sparse array X and a dense array Y is not implemented when the "
                f"output shape is larger than Y.shape: got {x} and {y.shape} (convert X with "
                f"todense(), which may need much memory){here()}"
            )
        return x.todense() + y
    if x.shape != y.shape:
        raise NotImplementedError(
            f"Addition between sparse matrices of different shapes: got {x} and {y} (use "
            f"sparse.bcoo_broadcast_in_dim){here()}"
        )
    if shared:
        return x._with_data(lax.add(x.data, y.data))
    if (x.n_batch, x.n_dense) != (y.n_batch, y.n_dense):
        raise NotImplementedError(
            f"Addition between sparse matrices with different batch/dense dimensions: got {x} and "
            f"{y} (use update_layout){here()}"
        )
    joined = [lax.concatenate(pair, x.n_batch) for pair in zip(x._bufs, y._bufs, strict=True)]
    return type(x)(joined, shape=x.shape)


def subtract(x: Any, y: Any, shared: bool = False) -> Any:
    """The difference of two sparse arrays."""
    if not (isinstance(x, BCOOStorage) and isinstance(y, BCOOStorage)):
        raise NotImplementedError(
            "Subtraction between sparse and dense array is not supported: use x + (-y) with a "
            f"dense y{here()}"
        )
    return add(x, y._with_data(-y.data), shared)
