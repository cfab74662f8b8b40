"""Functions that change the kind (batch, sparse, dense), order and size of a BCOO array's axes."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np

import toile.lax as lax
import toile.numpy as jnp
from toile.api import eval_shape
from toile.engine.avals import Aval
from toile.engine.source import here
from toile.experimental.sparse.batches import index_row, nfold_vmap, replaced, split
from toile.experimental.sparse.storage import (
    BCOOStorage,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
)

B = TypeVar("B", bound=BCOOStorage)


def bcoo_update_layout(
    mat: B, *, n_batch: int | None = None, n_dense: int | None = None,
    on_inefficient: Literal["error", "warn"] | None = "error",
) -> B:
    """Change which axes of a BCOO array are batch axes and dense axes.

    If a sparse axis of size 2 or more becomes a batch axis or a dense axis, many zeros are stored.

    Args:
        mat: the BCOO array.
        n_batch: new number of batch axes; None to keep the number.
        n_dense: new number of dense axes; None to keep the number.
        on_inefficient: what to do if many zeros would be stored: `"error"` raises an error,
            `"warn"` issues a warning, and None does neither.

    Returns:
        A BCOO array with the same elements.

    Raises:
        SparseEfficiencyError: many zeros would be stored, and `on_inefficient` is `"error"`.
    """
    n_batch = mat.n_batch if n_batch is None else operator.index(n_batch)
    n_dense = mat.n_dense if n_dense is None else operator.index(n_dense)
    if (n_batch, n_dense) == (mat.n_batch, mat.n_dense):
        return mat
    _check_layout(mat, n_batch, n_dense, on_inefficient)
    data, indices, shape = mat.data, mat.indices, mat.shape
    batch, dense = mat.n_batch, mat.n_dense
    if n_dense < dense:
        made = nfold_vmap(lambda d, i: _dense_to_sparse(d, i, dense - n_dense), batch + 1)
        data, indices = (_joined(x, batch) for x in made(data, indices))
    if n_batch < batch:
        made = nfold_vmap(lambda d, i: _batch_to_sparse(d, i, batch - n_batch), n_batch)
        full = [jnp.broadcast_to(x, (*x.shape[:n_batch], *shape[n_batch:batch], *x.shape[batch:]))
                for x in (data, indices)]
        data, indices = made(*full)
        batch = n_batch
    if n_dense > dense:
        n = n_dense - dense

        def to_dense(d: Any, i: Any) -> Any:
            zeros = jnp.zeros(shape[-n_dense:], d.dtype)
            return _put(zeros, tuple(i[-n:]), d), i[:-n]

        data, indices = nfold_vmap(to_dense, batch + 1)(data, indices)
    if n_batch > batch:
        new = shape[batch:n_batch]

        def to_batch(d: Any, i: Any) -> Any:
            n, nse = len(new), i.shape[0]
            place = (*(i[:, j] for j in range(n)), jnp.arange(nse))
            zeros = jnp.zeros((*new, nse, *d.shape[1:]), d.dtype)
            return _put(zeros, place, d), jnp.broadcast_to(i[:, n:], (*new, nse, i.shape[1] - n))

        data, indices = nfold_vmap(to_batch, batch)(data, indices)
    return type(mat)((data, indices), shape=shape)


def _put(zeros: Any, place: tuple[Any, ...], d: Any) -> Any:
    return zeros.at[place].set(d, mode="drop", wrap_negative_indices=False)


def _joined(x: Any, axis: int) -> Any:
    """Join an axis with the next one."""
    shape = x.shape
    return x.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _dense_to_sparse(d: Any, i: Any, n: int) -> tuple[Any, Any]:
    """One stored block as its elements along the first `n` dense axes."""
    count = math.prod(d.shape[:n])
    grid = np.indices(d.shape[:n], i.dtype).reshape(n, count).T
    rows = jnp.concatenate([jnp.broadcast_to(i, (count, i.size)), jnp.asarray(grid)], axis=1)
    return d.reshape(count, *d.shape[n:]), rows


def _batch_to_sparse(d: Any, i: Any, n: int) -> tuple[Any, Any]:
    """Batches along the first `n` axes as one, whose elements have the batch in their index."""
    count = math.prod(i.shape[: n + 1])
    grid = np.indices(i.shape[: n + 1], i.dtype)[:n].reshape(n, count).T
    rows = jnp.concatenate([jnp.asarray(grid), i.reshape(count, i.shape[-1])], axis=1)
    return d.reshape(count, *d.shape[n + 1 :]), rows


def _check_layout(mat: BCOOStorage, n_batch: int, n_dense: int, on_inefficient: Any) -> None:
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(
            f"on_inefficient={on_inefficient!r}; expected one of ['error', 'warn', None].{here()}"
        )
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(
            f"bcoo_update_layout: n_batch and n_dense must be non-negative, and their sum cannot "
            f"be larger than mat.ndim={mat.ndim}: got {n_batch=}, {n_dense=}{here()}"
        )
    new_dense = mat.shape[mat.ndim - n_dense : mat.ndim - mat.n_dense]
    new_batch = mat.shape[mat.n_batch : n_batch]
    for name, before, now, sizes in (("n_dense", mat.n_dense, n_dense, new_dense),
                                     ("n_batch", mat.n_batch, n_batch, new_batch)):
        if on_inefficient is None or now <= before or all(n <= 1 for n in sizes):
            continue
        text = (f"For matrix of shape {mat.shape}, increasing {name} from {before} to {now} "
                f"results in inefficient storage. To disable this {on_inefficient}, set the "
                "on_inefficient argument of bcoo_update_layout to ")
        if on_inefficient == "error":
            raise SparseEfficiencyError(
                f"{text}'warn' or None (or use fewer batch and dense axes).{here()}"
            )
        warnings.warn(f"{text}None.", SparseEfficiencyWarning, stacklevel=3)


# ------------------------------------------------------------------------------ order of the axes


def permuted(mat: BCOOStorage, permutation: Sequence[int]) -> tuple[list[int], ...]:
    """A permutation of the axes as one of the batch, of the sparse and of the dense axes."""
    if not isinstance(permutation, (tuple, list, np.ndarray)):
        raise TypeError(
            f"transpose permutation must be a tuple/list/ndarray, got {type(permutation)}.{here()}"
        )
    order = [int(p) for p in permutation]
    if sorted(order) != list(range(mat.ndim)):
        raise TypeError(
            "transpose permutation isn't a permutation of operand dimensions: needed one of "
            f"{mat.ndim} axes, got permutation {order} for shape {mat.shape}.{here()}"
        )
    n_batch, n_sparse, n_dense, _ = mat._axes
    batch, sparse, dense = split(order, n_batch, n_sparse)
    for name, part, n in (("batch", batch, 0), ("dense", dense, n_batch + n_sparse)):
        if sorted(part) != list(range(n, n + len(part))):
            raise NotImplementedError(
                f"transpose permutation cannot permute {name} axes with non-{name} axes; got "
                f"permutation {order}, with n_{name}={len(part)} (use update_layout){here()}"
            )
    return (list(batch), [p - n_batch for p in sparse], [p - n_batch - n_sparse for p in dense])


def bcoo_transpose(mat: B, *, permutation: Sequence[int]) -> B:
    """Reorder the axes of a BCOO array.

    Args:
        mat: the BCOO array.
        permutation: for each axis of the result, the corresponding axis of `mat`. Batch axes must
            stay in front of the sparse axes, and sparse axes in front of the dense axes.

    Returns:
        The transposed array.
    """
    batch, sparse, dense = permuted(mat, permutation)
    n = len(batch)
    data, indices = mat.data, mat.indices
    in_order = sparse == sorted(sparse)
    if not in_order:
        indices = jnp.stack([indices[..., p] for p in sparse], axis=-1)
    if batch != sorted(batch):
        indices = indices.transpose(*batch, n, n + 1)
    order = [*batch, n, *(d + n + 1 for d in dense)]
    if order != sorted(order):
        data = data.transpose(*order)
    return type(mat)((data, indices), shape=[mat.shape[p] for p in permutation],
                     unique_indices=mat.unique_indices)


def bcoo_rev(operand: B, dimensions: Sequence[int]) -> B:
    """Reverse the elements of a BCOO array along some axes.

    Args:
        operand: the BCOO array.
        dimensions: the axes to reverse.

    Returns:
        A BCOO array of the same shape.
    """
    eval_shape(lambda x: lax.rev(x, dimensions), Aval(operand.shape, operand.dtype))
    n_batch, n_sparse, _, _ = operand._axes
    batch = [d for d in dimensions if d < n_batch]
    dense = [d for d in dimensions if d >= n_batch + n_sparse]
    data, indices = operand.data, operand.indices
    if batch:
        indices = lax.rev(indices, batch)
    if batch or dense:
        data = lax.rev(data, batch + [d + 1 - n_sparse for d in dense])
    flipped = np.array([i + n_batch in dimensions for i in range(n_sparse)])
    if flipped.any():
        sizes = index_row(operand._sparse_shape, indices)
        indices = jnp.where(flipped, sizes - 1 - indices, indices)
        indices = jnp.where(indices < 0, sizes, indices)
    return type(operand)((data, indices), shape=operand.shape)


# ----------------------------------------------------------------------------- number of the axes


def bcoo_broadcast_in_dim(
    mat: B, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: None = None,
) -> B:
    """Add axes to a BCOO array, and repeat its elements along batch and dense axes.

    New axes in front of the sparse axes are batch axes. New axes between sparse axes are sparse
    axes, and must have size 1.

    Args:
        mat: the BCOO array.
        shape: shape of the result.
        broadcast_dimensions: for each axis of `mat`, the corresponding axis of the result.
        sharding: ignored.

    Returns:
        A BCOO array of the given shape.
    """
    shape, dims = tuple(shape), tuple(broadcast_dimensions)
    if len(dims) != mat.ndim:
        raise ValueError(
            f"bcoo_broadcast_in_dim: shape {mat.shape} and broadcast_dimensions={dims} must have "
            f"the same length{here()}"
        )
    n_batch, n_sparse, n_dense, nse = mat._axes
    batch, sparse, dense = split(dims, n_batch, n_sparse)
    end = len(shape)
    if max(batch, default=0) > min(sparse, default=end) or (
            max(sparse, default=0) > min(dense, default=end)):
        raise ValueError(
            "Cannot mix batch, sparse and dense dimensions during broadcast_in_dim: got "
            f"broadcast_dimensions={dims} for {mat}{here()}"
        )
    new_batch = min(dims[n_batch:], default=end)
    new_dense = end - min(dense) if dense else 0
    new_sparse = end - new_batch - new_dense
    if math.prod(mat._sparse_shape) != math.prod(shape[new_batch : new_batch + new_sparse]):
        raise NotImplementedError(
            f"Adding sparse dimensions with lengths != 1: cannot broadcast {mat} to {shape}{here()}"
        )
    data, indices = mat.data, mat.indices
    if (new_batch, new_dense) != (n_batch, n_dense):
        data = lax.broadcast_in_dim(
            data, (*shape[:new_batch], nse, *shape[new_batch + new_sparse :]),
            (*batch, new_batch, *(d + 1 - new_sparse for d in dense)))
        indices = lax.broadcast_in_dim(
            indices, (*shape[:new_batch], nse, n_sparse), (*batch, new_batch, new_batch + 1))
    if new_sparse != n_sparse:
        indices = jnp.broadcast_to(indices, (*shape[:new_batch], nse, n_sparse))
        zero = jnp.zeros(indices.shape[:-1], indices.dtype)
        places = [d - new_batch for d in sparse]
        indices = jnp.stack(
            [indices[..., places.index(i)] if i in places else zero for i in range(new_sparse)],
            axis=-1) if new_sparse else indices[..., :0]
    return type(mat)((data, indices), shape=shape)


def bcoo_squeeze(arr: B, *, dimensions: Sequence[int]) -> B:
    """Remove axes of size 1 from a BCOO array.

    Args:
        arr: the BCOO array.
        dimensions: the axes to remove.

    Returns:
        A BCOO array without these axes.
    """
    axes = [operator.index(d) for d in dimensions]
    axes = [d + arr.ndim if d < 0 else d for d in axes]
    if any(not 0 <= d < arr.ndim or arr.shape[d] != 1 for d in axes):
        raise ValueError(
            "cannot select an axis to squeeze out which has size not equal to one: needed axes of "
            f"size 1, got shape={arr.shape} and dimensions={tuple(dimensions)}{here()}"
        )
    n_batch, n_sparse, _, _ = arr._axes
    batch = [d for d in axes if d < n_batch]
    dense = [d - n_sparse + 1 for d in axes if d >= n_batch + n_sparse]
    data, indices = lax.squeeze(arr.data, (*batch, *dense)), arr.indices
    kept = [i for i in range(n_sparse) if i + n_batch not in axes]
    if len(kept) < n_sparse:
        indices = indices[..., np.array(kept, int)]
    return type(arr)((data, lax.squeeze(indices, batch)),
                     shape=[n for i, n in enumerate(arr.shape) if i not in axes],
                     indices_sorted=arr.indices_sorted, unique_indices=arr.unique_indices)


def bcoo_reshape(
    mat: B, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None,
    sharding: None = None,
) -> B:
    """Reshape a BCOO array.

    Args:
        mat: the BCOO array.
        new_sizes: shape of the result. Only axes of the same kind (batch, sparse or dense) can be
            merged.
        dimensions: permutation of the axes of `mat` that is applied first; None for no permutation.
        sharding: ignored.

    Returns:
        A BCOO array with the elements of `mat` in the same order.
    """
    n_batch, n_sparse, _, nse = mat._axes
    sizes = tuple(operator.index(n) for n in new_sizes)
    batch, sparse, dense = permuted(mat, range_of(mat) if dimensions is None else dimensions)
    if mat.indices.shape[:n_batch] != mat.data.shape[:n_batch] != mat.shape[:n_batch]:
        raise NotImplementedError(
            "reshape of arrays with broadcasted batch dimensions is not supported: got data "
            f"{mat.data.shape} and indices {mat.indices.shape} for {mat.shape}{here()}"
        )
    n_batches, count = math.prod(mat.shape[:n_batch]), math.prod(mat._sparse_shape)
    total = np.cumprod(sizes)
    for size, names in ((n_batches, "batch and sparse"), (n_batches * count, "sparse and dense")):
        if size != 1 and size not in total and (size == n_batches or count != 1):
            raise ValueError(
                f"bcoo_reshape: new shape cannot mix {names} dimensions; got shape={mat.shape} "
                f"new_shape={sizes} with n_batch={n_batch}, n_dense={mat.n_dense}{here()}"
            )
    ends = [int(total.searchsorted(n, side="right")) for n in (n_batches, n_batches * count)]
    new_batch, new_sparse, new_dense = split(sizes, ends[0], max(0, ends[1] - ends[0]))
    data = lax.reshape(mat.data, (*new_batch, nse, *new_dense),
                       (*batch, n_batch, *(d + n_batch + 1 for d in dense)))
    indices = lax.reshape(mat.indices, (*new_batch, nse, n_sparse), (*batch, n_batch, n_batch + 1))
    if not new_sparse:
        indices = jnp.zeros((*new_batch, nse, 0), indices.dtype)
    elif n_sparse:
        outside = (indices >= index_row(mat._sparse_shape, indices)).any(-1, keepdims=True)
        flat = jnp.ravel_multi_index(
            tuple(indices[..., p] for p in sparse), [mat._sparse_shape[p] for p in sparse],
            mode="clip")
        indices = jnp.stack(jnp.unravel_index(flat, new_sparse), axis=-1).astype(indices.dtype)
        indices = jnp.where(outside, index_row(new_sparse, indices), indices)
    return type(mat)((data, indices), shape=sizes)


def range_of(mat: BCOOStorage) -> tuple[int, ...]:
    """The axes of an array in order."""
    return tuple(range(mat.ndim))


# --------------------------------------------------------------------------------------- joining


def bcoo_concatenate(operands: Sequence[B], *, dimension: int) -> B:
    """Join BCOO arrays along an existing axis.

    Args:
        operands: BCOO arrays with equal shapes, except along `dimension`, and with the same numbers
            of batch and dense axes.
        dimension: the axis to join along, which must not be a dense axis.

    Returns:
        A BCOO array.
    """
    dimension = operator.index(dimension)
    if not all(isinstance(op, BCOOStorage) for op in operands):
        raise ValueError(
            "bcoo_concatenate: expected operands to be a sequence of BCOO arrays. Got "
            f"{operands}{here()}"
        )
    avals = [Aval(op.shape, op.dtype) for op in operands]
    shape = eval_shape(lambda *xs: lax.concatenate(xs, dimension), *avals).shape
    operands = _aligned(operands, dimension)
    n_batch, n_sparse, _, _ = operands[0]._axes
    if dimension >= n_batch + n_sparse:
        raise NotImplementedError(
            f"Concatenation along dense dimensions: got axis {dimension} of {operands[0]} (use "
            f"update_layout){here()}"
        )
    along = dimension
    if dimension < n_batch:
        nse = max(op.nse for op in operands)
        operands = [_with_nse(op, nse) for op in operands]
        indices = [op.indices for op in operands]
    else:
        along, indices, start = n_batch, [], 0
        for op in operands:
            offset = replaced((0,) * n_sparse, dimension - n_batch, start)
            indices.append(op.indices + index_row(offset, op.indices))
            start += op.shape[dimension]
    data = lax.concatenate([op.data for op in operands], along)
    return type(operands[0])((data, lax.concatenate(indices, along)), shape=shape)


def _aligned(operands: Sequence[B], dimension: int) -> Sequence[B]:
    """Arrays with equally many batch axes; raises an error if they cannot be joined."""
    if {op.n_batch for op in operands} == {0, 1}:
        for n in (0, 1):  # op[None] has a batch axis, which may just as well be sparse
            if all(op.shape[0] == 1 for op in operands if op.n_batch == n):
                operands = [bcoo_update_layout(op, n_batch=1 - n) for op in operands]
                break
    if len({(op.n_batch, op.n_dense) for op in operands}) > 1:
        raise ValueError(
            "bcoo_concatenate requires inputs to have matching batch dimensions and dense "
            f"dimensions: got {list(operands)} (use update_layout){here()}"
        )
    n_batch = operands[0].n_batch
    for name in ("data", "indices"):
        found = {replaced(b, dimension, 0) if dimension < n_batch else b
                 for b in (getattr(op, name).shape[:n_batch] for op in operands)}
        if len(found) > 1:
            raise NotImplementedError(
                "concatenation of arrays with broadcasted batch indices is not supported: got "
                f"batch shapes {found} of the {name}{here()}"
            )
    return operands


def _with_nse(mat: B, nse: int) -> B:
    """The array with more stored elements, which are out of bounds."""
    more = nse - mat.nse
    if not more:
        return mat
    n = mat.n_batch
    data = jnp.pad(mat.data, [(0, more if i == n else 0) for i in range(mat.data.ndim)])
    rows = jnp.broadcast_to(index_row(mat._sparse_shape, mat.indices),
                            replaced(mat.indices.shape, n, more))
    return type(mat)((data, jnp.concatenate([mat.indices, rows], axis=n)), **mat._aux)
