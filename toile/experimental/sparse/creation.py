"""Functions that create sparse arrays: zeros, ones on a diagonal, and random arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import toile.numpy as jnp
import toile.random as random
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.experimental.sparse.batches import split
from toile.experimental.sparse.bcoo import BCOO
from toile.experimental.sparse.bcsr import BCSR
from toile.experimental.sparse.coo import COO
from toile.experimental.sparse.csr import CSC, CSR
from toile.experimental.sparse.storage import JAXSparse

Format = Literal["bcoo", "bcsr", "coo", "csr", "csc"]
_FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str, known: Sequence[str]) -> Any:
    if name not in known:
        raise ValueError(
            f"sparse_format={name!r} not recognized; must be one of {list(known)}{here()}"
        )
    return _FORMATS[name]


def empty(
    shape: Sequence[int], dtype: DTypeLike | None = None, index_dtype: DTypeLike = "int32",
    sparse_format: Format = "bcoo", **kwds: int,
) -> JAXSparse:
    """Create a sparse array of zeros.

    Args:
        shape: shape of the array.
        dtype: dtype of the elements; None for float32.
        index_dtype: dtype of the indices.
        sparse_format: the name of the format.
        **kwds: for BCOO and BCSR, `n_batch`, `n_dense` and `nse`.

    Returns:
        A sparse array without stored elements, or with `nse` elements of padding in each batch.

    >>> from toile.experimental import sparse
    >>> sparse.empty((3, 4))
    BCOO(float32[3, 4], nse=0)
    """
    kind = _format(sparse_format, list(_FORMATS))
    return kind._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: Literal["bcoo", "coo", "csr", "csc"] = "bcoo", **kwds: int,
) -> JAXSparse:
    """Create a sparse matrix with ones on a diagonal.

    Args:
        N: number of rows.
        M: number of columns; None for the number of rows.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.
        dtype: dtype of the elements; None for float32.
        index_dtype: dtype of the indices.
        sparse_format: the name of the format.
        **kwds: for BCOO, `n_batch` and `n_dense`.

    Returns:
        A sparse matrix.

    >>> from toile.experimental import sparse
    >>> sparse.eye(3)
    BCOO(float32[3, 3], nse=3)
    """
    kind = _format(sparse_format, ("bcoo", "coo", "csr", "csc"))
    rows, cols, diagonal = (operator.index(n) for n in (N, N if M is None else M, k))
    return kind._eye(rows, cols, diagonal, dtype=dtype, index_dtype=index_dtype, **kwds)


def random_bcoo(
    key: Array, shape: Sequence[int], *, dtype: DTypeLike = float,
    indices_dtype: DTypeLike | None = None, nse: float = 0.2, n_batch: int = 0, n_dense: int = 0,
    unique_indices: bool = True, sorted_indices: bool = False,
    generator: Callable[..., Array] = random.uniform, **kwds: ArrayLike,
) -> BCOO:
    """Create a BCOO array with random values at random indices.

    Args:
        key: the random key.
        shape: shape of the array.
        dtype: dtype of the elements.
        indices_dtype: dtype of the indices; None for the default integer dtype.
        nse: number of stored elements in each batch. A number less than 1 is the fraction of the
            elements that are stored.
        n_batch: number of batch axes.
        n_dense: number of dense axes.
        unique_indices: whether the indices are unique.
        sorted_indices: whether the indices are sorted.
        generator: function that creates the values from a key, a shape and a dtype.
        **kwds: other arguments for `generator`.

    Returns:
        A BCOO array.

    >>> from toile.experimental import sparse
    >>> sparse.random_bcoo(toile.random.key(0), (100, 100), nse=0.01)
    BCOO(float32[100, 100], nse=100)
    """
    shape = tuple(operator.index(n) for n in shape)
    n_sparse = len(shape) - n_batch - n_dense
    if min(n_batch, n_dense, n_sparse) < 0:
        raise ValueError(
            f"Invalid n_batch={n_batch}, n_dense={n_dense} for shape={shape}: needed at most "
            f"{len(shape)} axes in all{here()}"
        )
    batch, sparse, dense = split(shape, n_batch, n_sparse)
    batches, size = math.prod(batch), math.prod(sparse)
    if not 0 <= nse < size:
        raise ValueError(f"got nse={nse}, expected to be between 0 and {size}{here()}")
    count = math.ceil(nse * size) if 0 < nse < 1 else int(nse)
    index_dtype = jnp.arange(0).dtype if indices_dtype is None else jnp.dtype(indices_dtype)
    if size > jnp.iinfo(index_dtype).max:
        raise ValueError(
            f"indices_dtype={index_dtype} does not have enough range to generate sparse indices of "
            f"size {size}: use a larger dtype{here()}"
        )

    def indices(key: Array) -> Array:
        if not sparse:
            return jnp.zeros((count, 0), index_dtype)
        place = random.choice(key, size, shape=(count,), replace=not unique_indices)
        return jnp.stack(jnp.unravel_index(place.astype(index_dtype), sparse), axis=-1)

    keys = random.split(key, batches + 1)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    rows = vmap(indices)(keys[1:]).reshape(*batch, count, n_sparse)
    mat = BCOO((data, rows), shape=shape)
    return mat.sort_indices() if sorted_indices else mat
