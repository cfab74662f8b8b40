"""The programs of tests/test_sparse.py: each is run with toile and with JAX.

A row is `name: (function of (lib, sparse, *args), arguments)`, where `lib` is toile or jax and
`sparse` its package of sparse arrays. An argument `Stored` is a sparse array with given buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Stored:
    """A BCOO array, or a BCSR array with the same elements."""

    data: np.ndarray
    indices: np.ndarray
    shape: tuple[int, ...]
    flags: dict[str, bool] = field(default_factory=dict)
    bcsr: bool = False

    def made(self, sparse: Any) -> Any:
        mat = sparse.BCOO((self.data, self.indices), shape=self.shape, **self.flags)
        return sparse.BCSR.from_bcoo(mat) if self.bcsr else mat

    def as_bcsr(self) -> Stored:
        return Stored(self.data, self.indices, self.shape, self.flags, True)


def dense(*shape, dtype=np.float32, seed=0, share=0.5):
    """An array with about that share of elements that are not zero."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.integers(1, 9, shape) * rng.choice([-1, 1], shape) * (rng.random(shape) < share)
    x = x + 1j * rng.integers(-3, 4, shape) * (x != 0) if np.dtype(dtype).kind == "c" else x
    return x.astype(dtype)


def full(*shape, dtype=np.float32, seed=1):
    return dense(*shape, dtype=dtype, seed=seed, share=1.0)


def stored(*shape, n_batch=0, n_dense=0, nse=4, dtype=np.float32, unique=True, padding=1, seed=0,
           shared=()):
    """A sparse array with `padding` elements out of bounds in each batch; `shared` has the names
    of the buffers with batch axes of size 1."""
    rng = np.random.default_rng((seed, *shape, n_batch, n_dense))
    n_sparse = len(shape) - n_batch - n_dense
    batch, sparse = shape[:n_batch], shape[n_batch : n_batch + n_sparse]
    size = int(np.prod(sparse))

    def rows(_):
        if not sparse:
            return np.zeros((nse, 0))
        place = rng.choice(size, min(nse - padding, size), replace=not unique)
        found = np.stack(np.unravel_index(place, sparse), -1).reshape(len(place), n_sparse)
        return np.concatenate([found, np.tile(sparse, (nse - len(place), 1))])

    b_data, b_index = ((1,) * n_batch if name in shared else batch for name in ("data", "indices"))
    indices = np.array([rows(i) for i in range(int(np.prod(b_index)))], np.int32)
    data = full(*b_data, nse, *shape[n_batch + n_sparse :], dtype=dtype, seed=seed + 7)
    return Stored(data, indices.reshape(*b_index, nse, n_sparse), shape,
                  {"unique_indices": unique} if unique else {})


# The layouts that every function is tried on: name -> a sparse array.
LAYOUTS = {
    "vector": stored(7),
    "matrix": stored(4, 5, nse=7),
    "repeated": stored(4, 5, nse=9, unique=False),
    "batched": stored(3, 4, 5, n_batch=1, nse=5),
    "shared": stored(3, 4, 5, n_batch=1, nse=5, shared=("indices",)),
    "blocks": stored(4, 5, 2, n_dense=1, nse=6),
    "all": stored(2, 4, 3, 2, n_batch=1, n_dense=1, nse=5),
    "batches": stored(2, 3, n_batch=2, nse=1, padding=0),
    "cube": stored(3, 4, 2, nse=6),
}
DTYPES = (np.float32, np.int32, np.complex64, np.float16)


def numbers(contract, batch=((), ())):
    return contract, batch


ROWS: dict[str, tuple[Any, tuple[Any, ...]]] = {}


def row(name, fun, *args):
    assert name not in ROWS, name
    ROWS[name] = fun, args


for _name, _mat in LAYOUTS.items():
    row(f"todense-{_name}", lambda lib, sp, m: m.todense(), _mat)
    row(f"sum_duplicates-{_name}", lambda lib, sp, m: sp.bcoo_sum_duplicates(m, nse=m.nse), _mat)
    row(f"sum_duplicates-more-{_name}",
        lambda lib, sp, m: sp.bcoo_sum_duplicates(m, nse=m.nse + 2), _mat)
    row(f"sort_indices-{_name}", lambda lib, sp, m: m.sort_indices(), _mat)
    row(f"extract-{_name}", lambda lib, sp, m, x: sp.bcoo_extract(m, x), _mat, full(*_mat.shape))
    row(f"multiply_dense-{_name}", lambda lib, sp, m, x: sp.bcoo_multiply_dense(m, x), _mat,
        full(*_mat.shape))
    row(f"scaled-{_name}", lambda lib, sp, m: (m * 2, -m, m / 4, 3 * m), _mat)
    row(f"times-row-{_name}", lambda lib, sp, m, x: m * x, _mat, full(_mat.shape[-1]))
    row(f"reduce_sum-first-{_name}", lambda lib, sp, m: sp.bcoo_reduce_sum(m, axes=(0,)), _mat)
    row(f"reduce_sum-last-{_name}",
        lambda lib, sp, m: sp.bcoo_reduce_sum(m, axes=(m.ndim - 1,)), _mat)
    row(f"sum-{_name}", lambda lib, sp, m: m.sum(), _mat)
    row(f"rev-{_name}", lambda lib, sp, m: sp.bcoo_rev(m, tuple(range(m.ndim))), _mat)
    row(f"slice-{_name}", lambda lib, sp, m: sp.bcoo_slice(
        m, start_indices=[1] * m.ndim, limit_indices=m.shape, strides=[2] * m.ndim), _mat)
    row(f"item-{_name}", lambda lib, sp, m: m[1], _mat)
    row(f"new-axis-{_name}", lambda lib, sp, m: (m[None], m[..., None]), _mat)
    row(f"dynamic_slice-{_name}", lambda lib, sp, m, i: sp.bcoo_dynamic_slice(
        m, [i] * m.ndim, [min(2, n) for n in m.shape]), _mat, np.int32(1))
    row(f"add-{_name}", lambda lib, sp, m: m + m, _mat)
    row(f"sub-{_name}", lambda lib, sp, m: m - m, _mat)
    row(f"add-dense-{_name}", lambda lib, sp, m, x: m + x, _mat, full(*_mat.shape))
    row(f"multiply_sparse-{_name}", lambda lib, sp, m: sp.bcoo_multiply_sparse(m, m), _mat)
    row(f"abs-{_name}", lambda lib, sp, m: abs(m), _mat)
    row(f"astype-{_name}", lambda lib, sp, m: m.astype("int32"), _mat)
    if _name != "shared":
        row(f"concatenate-{_name}",
            lambda lib, sp, m: sp.bcoo_concatenate([m, m], dimension=0), _mat)
        row(f"reshape-{_name}", lambda lib, sp, m: sp.bcoo_reshape(
            m, new_sizes=(1, *m.shape)), _mat)

for _dtype in DTYPES:
    _d = np.dtype(_dtype).name
    row(f"fromdense-{_d}", lambda lib, sp, x: sp.BCOO.fromdense(x), dense(4, 5, dtype=_dtype))
    row(f"matmat-{_d}", lambda lib, sp, m, x: m @ x, stored(4, 5, nse=7, dtype=_dtype),
        full(5, 3, dtype=_dtype))
    row(f"matmat-left-{_d}", lambda lib, sp, m, x: lib.numpy.asarray(x) @ m,
        stored(4, 5, nse=7, dtype=_dtype), full(3, 4, dtype=_dtype))
    row(f"mixed-{_d}", lambda lib, sp, m, x: (m @ x, m * x), stored(4, 5, nse=7, dtype=_dtype),
        full(5))
    row(f"bcsr-{_d}", lambda lib, sp, m, x: m @ x,
        stored(4, 5, nse=7, dtype=_dtype).as_bcsr(), full(5, 3, dtype=_dtype))

for _nb, _nd in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 3), (3, 0)):
    for _nse in (None, 9):
        row(f"fromdense-{_nb}-{_nd}-{_nse}",
            lambda lib, sp, x, b=_nb, d=_nd, n=_nse: sp.bcoo_fromdense(
                x, n_batch=b, n_dense=d, nse=n), dense(3, 4, 2))

for _to in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)):
    row(f"update_layout-{_to}", lambda lib, sp, m, to=_to: m.update_layout(
        n_batch=to[0], n_dense=to[1], on_inefficient=None), stored(2, 3, 4, n_batch=1, n_dense=1))

M, V = LAYOUTS["matrix"], full(5)
row("matvec", lambda lib, sp, m, v: m @ v, M, V)
row("vecmat", lambda lib, sp, m, v: lib.numpy.asarray(v) @ m, M, full(4))
row("transposed", lambda lib, sp, m, v: (m.T, m.T @ v), M, full(4))
row("transpose-axes", lambda lib, sp, m: m.transpose((1, 0, 3, 2)),
    stored(2, 3, 4, 2, n_batch=2, nse=3))
row("matrices", lambda lib, sp, m, n: m @ n, M, stored(5, 3, nse=6, seed=5))
row("batched-matrices", lambda lib, sp, m, n: m @ n, stored(2, 3, 4, n_batch=1, nse=5),
    stored(2, 4, 3, n_batch=1, nse=4, seed=4))
row("batched-matmat", lambda lib, sp, m, x: m @ x, LAYOUTS["batched"], full(3, 5, 2))
row("shared-matmat", lambda lib, sp, m, x: m @ x, LAYOUTS["shared"], full(3, 5, 2))
_DOTS = {
    "rows": (M, full(4, 3), (([0], [0]), ([], []))),
    "last": (M, full(3, 5), (([1], [1]), ([], []))),
    "both": (M, full(5, 4), (([0, 1], [1, 0]), ([], []))),
    "outer": (M, full(2), (([], []), ([], []))),
    "dense-axis": (LAYOUTS["blocks"], full(5, 3), (([1], [0]), ([], []))),
    "batch": (LAYOUTS["all"], full(3, 2, 2), (([2], [0]), ([0], [2]))),
    "batch-summed": (LAYOUTS["batched"], full(3, 4), (([0], [0]), ([], []))),
    "batch-and-sparse": (LAYOUTS["batched"], full(3, 5), (([0, 2], [0, 1]), ([], []))),
    "cube": (LAYOUTS["cube"], full(2, 3, 5), (([2, 0], [0, 1]), ([], []))),
}
for _name, (_m, _x, _numbers) in _DOTS.items():
    row(f"dot-{_name}", lambda lib, sp, m, x, n=_numbers: sp.bcoo_dot_general(
        m, x, dimension_numbers=n), _m, _x)
row("dot-right", lambda lib, sp, x, m: sp.bcoo_dot_general(
    lib.numpy.asarray(x), m, dimension_numbers=(([1], [1]), ([0], [0]))), full(3, 4, 2),
    LAYOUTS["batched"])
row("dot-preferred", lambda lib, sp, m, x: sp.bcoo_dot_general(
    m, x, dimension_numbers=(([1], [0]), ([], [])), preferred_element_type=np.float32),
    stored(4, 5, nse=7, dtype=np.float16), full(5, 2, dtype=np.float16))
row("sampled-vectors", lambda lib, sp, x, y, i: sp.bcoo_dot_general_sampled(
    x, y, i, dimension_numbers=(([], []), ([], []))), full(4), full(5), M.indices)
row("sampled-matrices", lambda lib, sp, x, y, i: sp.bcoo_dot_general_sampled(
    x, y, i, dimension_numbers=(([0], [1]), ([], []))), full(3, 4), full(5, 3), M.indices)
row("sampled-batch", lambda lib, sp, x, y, i: sp.bcoo_dot_general_sampled(
    x, y, i, dimension_numbers=(([2], [1]), ([0], [0]))), full(3, 4, 2), full(3, 2, 5),
    LAYOUTS["batched"].indices)
row("extract-first", lambda lib, sp, m, x: sp.bcoo_extract(m, x, assume_unique=False),
    LAYOUTS["repeated"], full(4, 5))
row("sum_duplicates", lambda lib, sp, m: m.sum_duplicates(), LAYOUTS["repeated"])
row("sum_duplicates-zeros", lambda lib, sp, m: m.sum_duplicates(remove_zeros=False),
    LAYOUTS["repeated"])
row("multiply-broadcast", lambda lib, sp, m, n: m * n, M, stored(1, 5, nse=3))
row("times-column", lambda lib, sp, m, x: m * x, M, full(4, 1))
row("reshape-line", lambda lib, sp, m: m.reshape(-1), M)
row("reshape-shape", lambda lib, sp, m: m.reshape(2, 10, 2), LAYOUTS["blocks"])
row("squeeze", lambda lib, sp, m: sp.bcoo_squeeze(m, dimensions=(0, 2)),
    stored(1, 3, 1, 2, n_batch=1, nse=3))
row("broadcast_in_dim", lambda lib, sp, m: sp.bcoo_broadcast_in_dim(
    m, shape=(2, 4, 1, 5), broadcast_dimensions=(1, 3)), M)
row("concatenate-1", lambda lib, sp, m: sp.bcoo_concatenate([m, m], dimension=1), M)
row("concatenate-nse", lambda lib, sp, m, n: sp.bcoo_concatenate([m, n], dimension=0),
    stored(2, 4, n_batch=1, nse=2), stored(3, 4, n_batch=1, nse=4))
row("concatenate-layouts", lambda lib, sp, m, n: sp.bcoo_concatenate([m, n], dimension=0),
    stored(1, 4, n_batch=1, nse=2), stored(3, 4, nse=4))
row("slices", lambda lib, sp, m: (m[1:3], m[:, 2], m[-1], m[::2, 1:4], m[2, 3]), M)
row("rows", lambda lib, sp, m, i: m[i], M, np.array([0, 2, 0], np.int32))
row("iterate", lambda lib, sp, m: list(m), stored(3, 2, nse=3))
row("conv", lambda lib, sp, m, x: sp.bcoo_conv_general_dilated(
    m, x[None, None], window_strides=(1,), padding=[(1, 2)]), stored(1, 1, 8, n_batch=2, nse=4),
    full(3))
row("gather", lambda lib, sp, m, i: sp.bcoo_gather(
    m, i, lib.lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 5)), M,
    np.array([[3], [1]], np.int32))
for _k in (-1, 0, 2, 9):
    for _format in ("bcoo", "coo", "csr", "csc"):
        row(f"eye-{_format}-{_k}", lambda lib, sp, k=_k, f=_format: (
            lambda m: (m, m.todense(), m @ np.ones(5, np.float32)))(
                sp.eye(4, 5, k, sparse_format=f)))
    row(f"eye-batched-{_k}", lambda lib, sp, k=_k: sp.eye(4, 5, k, n_batch=1).todense())
for _format in ("bcoo", "bcsr", "coo", "csr", "csc"):
    row(f"empty-{_format}", lambda lib, sp, f=_format: sp.empty((3, 4), sparse_format=f))
for _name, _options in {"": {}, "-batched": {"nse": 5, "n_batch": 1, "sorted_indices": True},
                        "-blocks": {"n_dense": 1, "unique_indices": False}}.items():
    row(f"random{_name}", lambda lib, sp, o=_options: sp.random_bcoo(
        lib.random.key(3), (3, 4, 5), dtype=np.float32, **o))
row("empty-batched", lambda lib, sp: sp.empty((3, 4, 2), n_batch=1, n_dense=1, nse=2))
for _format in ("COO", "CSR", "CSC"):
    row(f"{_format}", lambda lib, sp, x, v, f=_format: (lambda m: (
        m, m.todense(), m.T.todense(), m @ v, m @ np.stack([v, v], 1), m.nse))(
            getattr(sp, f).fromdense(x)), dense(4, 5), full(5))
row("coo-products", lambda lib, sp, x, v: (lambda m: (
    sp.coo_matvec(m, v, transpose=True), sp.coo_matmat(m, v[:, None], transpose=True)))(
        sp.coo_fromdense(x, nse=12)), dense(4, 5), full(4))
row("csr-products", lambda lib, sp, x, v: (lambda m: (
    m, sp.csr_matvec(m, v, transpose=True), sp.csr_matmat(m, v[:, None], transpose=True)))(
        sp.csr_fromdense(lib.numpy.asarray(x), nse=14)), dense(4, 5), full(4))
row("bcsr-fromdense", lambda lib, sp, x: (
    sp.BCSR.fromdense(x), sp.bcsr_fromdense(x, nse=9), sp.BCSR.fromdense(x).todense()),
    dense(3, 4))
row("bcsr-batched", lambda lib, sp, x, v: (lambda m: (m, m.todense(), m @ v, m.to_bcoo()))(
    sp.bcsr_fromdense(x, n_batch=1)), dense(2, 3, 4), full(2, 4, 2))
row("bcsr-blocks", lambda lib, sp, x: (lambda m: (m, m.todense()))(
    sp.bcsr_fromdense(x, n_dense=1)), dense(3, 4, 2))
row("bcsr-extract", lambda lib, sp, m, x: sp.bcsr_extract(m.indices, m.indptr, x),
    M.as_bcsr(), full(4, 5))
row("bcsr-concatenate", lambda lib, sp, m: (
    sp.bcsr_concatenate([m, m], dimension=0), sp.bcsr_concatenate([m, m], dimension=1)),
    M.as_bcsr())
row("bcsr-broadcast", lambda lib, sp, m: sp.bcsr_broadcast_in_dim(
    m, shape=(2, 4, 5), broadcast_dimensions=(1, 2)), M.as_bcsr())
row("bcsr-sum_duplicates", lambda lib, sp, m: (
    m.sum_duplicates(), sp.bcsr_sum_duplicates(m, nse=12)), LAYOUTS["repeated"].as_bcsr())
row("bcsr-sparsify", lambda lib, sp, m: (
    sp.sparsify(lambda x: lib.numpy.sin(-x))(m), sp.sparsify(lambda x: x[None])(m)), M.as_bcsr())


def sparsified(name, fun, *args):
    row(f"sparsify-{name}", lambda lib, sp, *xs: sp.sparsify(
        lambda *ys: fun(lib, sp, *ys))(*xs), *args)


sparsified("product", lambda lib, sp, m, v: 2 * m.T @ v, M, full(4))
sparsified("zero-preserving", lambda lib, sp, m: lib.numpy.tanh(lib.numpy.sin(m)) ** 2,
           LAYOUTS["repeated"])
sparsified("shared", lambda lib, sp, m: (m + 2 * m, m * lib.numpy.sin(m)), M)
sparsified("mixed", lambda lib, sp, m, x: (m * x + x, m @ x.T, m / 3), M, full(4, 5))
sparsified("axes", lambda lib, sp, m: (
    m[None], m.reshape(20), m.T, m.sum(1), m[1:3], m[::-1], lib.numpy.squeeze(m[:1], 0)), M)
sparsified("join", lambda lib, sp, m: lib.numpy.concatenate([m, m]), M)
sparsified("stack", lambda lib, sp, m: lib.numpy.stack([m, m]), M)
sparsified("jit", lambda lib, sp, m, v: lib.jit(lambda m, v: m @ v)(m, v), M, V)
sparsified("cond", lambda lib, sp, m, v: lib.lax.cond(
    v.sum() > 0, lambda m: 2 * m, lambda m: -m, m), M, V)
sparsified("while", lambda lib, sp, m: lib.lax.while_loop(
    lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, m)), M)
sparsified("scan", lambda lib, sp, m, v: lib.lax.scan(
    lambda c, _: (lib.numpy.tanh(m @ c), None), v, None, length=3)[0], stored(5, 5, nse=8), V)
sparsified("fori", lambda lib, sp, m, v: lib.lax.fori_loop(
    0, 3, lambda i, c: m @ c, v), stored(5, 5, nse=8), V)
sparsified("dense", lambda lib, sp, m: lib.numpy.exp(sp.todense(m)), M)
sparsified("bcoo-product", lambda lib, sp, m, n: m @ n, M, stored(5, 3, nse=6, seed=5))
sparsified("dynamic", lambda lib, sp, m, i: lib.lax.dynamic_slice(m, (i, 0), (2, 3)), M,
           np.int32(1))
sparsified("tree", lambda lib, sp, t: {"a": t["m"] @ t["v"], "m": t["m"]}, {"m": M, "v": V})
sparsified("mean", lambda lib, sp, m: (lib.numpy.mean(m), lib.numpy.sum(m, axis=0)), M)
for dtype in ("int8", "int32", "bool", "float16"):
    x, y = stored(4, 5, nse=8, dtype=dtype), full(4, 5, dtype=dtype)
    row(f"quotient-{dtype}", lambda lib, sp, m, y: (m / True if m.dtype == bool else m / 2, m / y),
        x, y)
    sparsified(f"quotient-{dtype}", lambda lib, sp, m, y: lib.numpy.divide(m, y), x, y)
