"""Sparse arrays against JAX's, against dense arrays, and under transformations."""

import inspect
import warnings

import jax
import jax.experimental.sparse as theirs
import numpy as np
import pytest
import scipy.sparse

import toile
import toile.experimental.sparse as ours
import toile.numpy as jnp
from tests.golden.recorded import Record
from tests.quick_jax import OPTIONS
from tests.sparse_cases import LAYOUTS, ROWS, M, Stored, V, dense, full, stored
from toile import lax
from toile.errors import ConcretizationTypeError

pytestmark = pytest.mark.cpu
RECORD = Record("sparse")

# These need numbers of elements that are not known while JAX traces, or raise errors of XLA.
EAGER = ("fromdense", "sum_duplicates", "sum_duplicates-zeros", "COO", "CSR", "CSC", "eye", "empty",
         "bcsr-")
REFUSED = {f"{f}-{n}" for f, n in (
    ("reduce_sum-first", "shared"), ("reduce_sum-last", "shared"), ("sum", "shared"),
    ("reshape", "blocks"), ("reshape", "all"))}


def made(x, sparse):
    """An argument of a row with one of the two packages."""
    if isinstance(x, Stored):
        return x.made(sparse)
    return {k: made(v, sparse) for k, v in x.items()} if isinstance(x, dict) else x


def parts(lib, sparse, out):
    """What is compared: the kinds and static parts as text, and all buffers."""
    leaves = lib.tree_util.tree_leaves(out, is_leaf=lambda x: isinstance(x, sparse.JAXSparse))
    text, arrays = [], []
    for x in leaves:
        if isinstance(x, sparse.JAXSparse):
            buffers, aux = x.tree_flatten()
            text.append(f"{type(x).__name__} {sorted(aux.items())}")
            arrays += map(np.asarray, buffers)
        else:
            text.append("dense")
            arrays.append(np.asarray(x))
    return " ".join(text), arrays


def asked(name):
    """What JAX gives for a row."""
    fun, args = ROWS[name]
    args = [made(a, theirs) for a in args]
    run = lambda *xs: fun(jax, theirs, *xs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not name.startswith(EAGER) and "fromdense" not in name and args:
            run = jax.jit(run, compiler_options=OPTIONS)
        text, arrays = parts(jax, theirs, run(*args))
    return [text, *arrays]


@pytest.mark.parametrize("name", ROWS)
def test_equals_jax(name):
    fun, args = ROWS[name]
    text, arrays = parts(toile, ours, fun(toile, ours, *[made(a, ours) for a in args]))
    if name in REFUSED:
        return
    key = f"{name} {inspect.getsource(fun)} {fun.__defaults__} {[_text(a) for a in args]}"
    kinds, *want = RECORD.answer(key, lambda: asked(name))
    assert text == kinds
    assert len(arrays) == len(want)
    for got, value in zip(arrays, want, strict=True):
        assert (got.shape, got.dtype) == (value.shape, value.dtype)
        rtol = 2e-3 if got.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, value, rtol=rtol, atol=1e-5)


def _text(x):
    if isinstance(x, Stored):
        return _text([x.data, x.indices]) + f"{x.shape} {x.flags} {x.bcsr}"
    if isinstance(x, dict):
        return _text(list(x.values()))
    if isinstance(x, list):
        return " ".join(map(_text, x))
    return f"{x.dtype}{x.shape}{x.tolist()}"


# ---------------------------------------------------------------------------- transformations


@pytest.mark.parametrize("name", [n for n, (_, args) in ROWS.items() if any(
    isinstance(a, Stored) for a in args) and not n.startswith(EAGER)])
def test_compiled_equals_eager(name):
    fun, args = ROWS[name]
    args = [made(a, ours) for a in args]
    text, arrays = parts(toile, ours, fun(toile, ours, *args))
    compiled = parts(toile, ours, toile.jit(lambda *xs: fun(toile, ours, *xs))(*args))
    assert compiled[0] == text
    for got, want in zip(compiled[1], arrays, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3 if want.dtype == np.float16 else 1e-5,
                                   atol=1e-5)


DIFFERENTIATED = {
    "matvec": (lambda m, v: m @ v, "matrix", full(5)),
    "matmat": (lambda m, v: m @ v, "matrix", full(5, 3)),
    "left": (lambda m, v: v @ m, "matrix", full(3, 4)),
    "transposed": (lambda m, v: m.T @ v, "matrix", full(4)),
    "batched": (lambda m, v: m @ v, "batched", full(3, 5, 2)),
    "shared": (lambda m, v: m @ v, "shared", full(3, 5, 2)),
    "scaled": (lambda m, v: m * v, "matrix", full(4, 5)),
    "column": (lambda m, v: m * v, "matrix", full(4, 1)),
    "plus": (lambda m, v: m + v, "matrix", full(4, 5)),
    "summed": (lambda m, v: m.sum(0) * v, "matrix", full(5)),
    "sliced": (lambda m, v: m[1:, ::2] @ v, "matrix", full(3)),
    "reshaped": (lambda m, v: m.reshape(2, 10) @ v, "matrix", full(10)),
    "blocks": (lambda m, v: m.sum(2) @ v, "blocks", full(5)),
    "product": (lambda m, v: (m @ m.T) @ v, "matrix", full(4)),
    "elementwise": (lambda m, v: abs(m) * m @ v, "matrix", full(5)),
}


def _total(x):
    x = ours.todense(x)
    return (jnp.sin(x / 50) ** 2).sum()


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_those_of_dense_arrays(name):
    fun, layout, v = DIFFERENTIATED[name]
    m = LAYOUTS[layout].made(ours)
    v = v / 4
    loss = lambda m, v: _total(fun(m, v))
    got, got_v = toile.jit(ours.grad(loss, (0, 1)))(m, v)
    want, want_v = toile.grad(loss, (0, 1))(m.todense(), v)
    np.testing.assert_allclose(got_v, want_v, rtol=1e-4, atol=1e-5)
    inside = (m.indices < np.array(m._sparse_shape)).all(-1)
    at = ours.bcoo_extract(m, want).data
    keep = np.broadcast_to(np.asarray(inside), at.shape[: inside.ndim])
    found = np.broadcast_to(got.data, at.shape)
    np.testing.assert_allclose(found[keep], np.asarray(at)[keep], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(got.indices, m.indices)
    assert (np.asarray(got.data)[~keep] == 0).all() or name in ("scaled", "column", "elementwise")


def test_jacobians_and_values():
    m = M.made(ours)
    f = lambda m, v: jnp.sin(m @ v)
    forward, backward = ours.jacfwd(f)(m, V), ours.jacrev(f)(m, V)
    assert forward.shape == backward.shape == (4, 4, 5) and forward.n_batch == 1
    want = toile.jacrev(f)(m.todense(), V) * (m.todense() != 0)
    np.testing.assert_allclose(forward.todense(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backward.todense(), want, rtol=1e-4, atol=1e-5)
    value, grad = ours.value_and_grad(lambda m: f(m, V).sum())(m)
    assert float(value) == float(f(m, V).sum()) and grad.shape == m.shape
    grad, aux = ours.grad(lambda m: (f(m, V).sum(), "aux"), has_aux=True)(m)
    assert aux == "aux"
    trees = ours.grad(lambda t, v: (t["m"] @ v).sum() * t["b"])({"m": m, "b": 2.0}, V)
    assert isinstance(trees["m"], ours.BCOO) and trees["b"].shape == ()


@pytest.mark.parametrize("name", ["batched", "all"])
def test_mapped_equals_loop(name):
    m = LAYOUTS[name].made(ours)
    for fun in (lambda m: m.todense(), lambda m: m.transpose((1, 0, 2)[: m.ndim]),
                lambda m: m * 2 + m, lambda m: m.sum(0), lambda m: m.sort_indices(),
                lambda m: m[1:], lambda m: ours.bcoo_dot_general(
                    m, full(m.shape[1]), dimension_numbers=(([1], [0]), ([], [])))):
        mapped = ours.todense(toile.vmap(fun)(m))
        loop = [ours.todense(fun(m[i])) for i in range(m.shape[0])]
        np.testing.assert_allclose(mapped, np.stack(loop), rtol=1e-5)


def test_mapped_axes():
    m, x = LAYOUTS["batched"].made(ours), full(3, 5)
    want = np.einsum("bij,bj->bi", m.todense(), x)
    np.testing.assert_allclose(toile.vmap(lambda m, v: m @ v)(m, x), want)
    c = ours.BCSR.from_bcoo(m)
    np.testing.assert_allclose(toile.vmap(lambda m, v: m @ v)(c, x), want)
    assert toile.vmap(lambda m: m, out_axes=0)(c).shape == m.shape
    made_there = toile.vmap(lambda x: ours.BCOO.fromdense(x, nse=4))(full(3, 2, 2))
    assert made_there.shape == (3, 2, 2) and made_there.n_batch == 1
    assert toile.vmap(lambda m, v: m @ v, (None, 0))(M.made(ours), x).shape == (3, 4)
    for fun, axes in ((lambda m: m, {"in_axes": 0}), (lambda m: m, {"out_axes": 1, "axis_size": 2,
                                                                    "in_axes": None})):
        with pytest.raises(ValueError, match="axis="):
            toile.vmap(fun, **axes)(M.made(ours))


def test_trees():
    m = M.made(ours)
    leaves, tree = toile.tree_util.tree_flatten(m)
    assert [x.shape for x in leaves] == [(7,), (7, 2)]
    aux = {"shape": (4, 5), "indices_sorted": False, "unique_indices": True}
    assert m.tree_flatten()[1] == M.made(theirs).tree_flatten()[1] == aux
    assert repr(toile.tree_util.tree_unflatten(tree, leaves)) == repr(m) == repr(M.made(theirs))
    assert repr(ours.BCOO.tree_unflatten(aux, [None, None])) == "BCOO(<invalid>)"
    with pytest.raises(ValueError, match="aux_data"):
        ours.BCOO.tree_unflatten({"shape": ()}, leaves)
    with pytest.raises(TypeError):
        hash(m)


# --------------------------------------------------------------------------------- other functions


@pytest.mark.parametrize("shared", [("data",), ("indices",), ("data", "indices")])
def test_sums_over_shared_batches(shared):
    m = stored(3, 4, 5, n_batch=1, nse=5, shared=shared).made(ours)
    np.testing.assert_allclose(m.sum(0).todense(), m.todense().sum(0))
    np.testing.assert_allclose(m.sum(), m.todense().sum())
    np.testing.assert_allclose(m.sum((1, 2)).todense(), m.todense().sum((1, 2)))


def test_scipy_and_numpy():
    x = dense(4, 5)
    for kind, matrix in ((ours.BCOO, scipy.sparse.coo_matrix(x)),
                         (ours.BCSR, scipy.sparse.csr_matrix(x))):
        m = kind.from_scipy_sparse(matrix)
        np.testing.assert_array_equal(m.todense(), x)
    np.testing.assert_allclose(full(2, 4) @ M.made(ours), full(2, 4) @ M.made(ours).todense())


def test_random_matrices_are_not_full():
    with pytest.raises(ValueError, match="expected to be between"):
        ours.random_bcoo(toile.random.key(0), (2, 2), nse=4)


def test_direct_solver():
    a = np.eye(6, dtype=np.float32) * 5 + dense(6, 6) / 8
    m, b = ours.BCSR.fromdense(a), full(6)
    solve = toile.jit(lambda d, b: ours.linalg.spsolve(d, m.indices, m.indptr, b))
    np.testing.assert_allclose(solve(m.data, b), np.linalg.solve(a, b), rtol=1e-4)
    got = toile.grad(lambda d, b: (solve(d, b) ** 2).sum(), (0, 1))(m.data, b)
    want = toile.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1))(jnp.asarray(a), b)
    np.testing.assert_allclose(got[0], ours.bcsr_extract(m.indices, m.indptr, want[0]), rtol=1e-3,
                               atol=1e-5)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-3)
    bs = np.stack([b, 2 * b])
    np.testing.assert_allclose(toile.vmap(solve, (None, 0))(m.data, bs),
                               np.linalg.solve(a, bs.T).T, rtol=1e-4)
    with pytest.raises(ValueError, match="data types"):
        ours.linalg.spsolve(m.data, m.indices, m.indptr, b.astype(np.int32))


def test_largest_eigenvalues():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 30)).astype(np.float32)
    a, start = x @ x.T, rng.normal(size=(30, 2)).astype(np.float32)
    want = np.linalg.eigvalsh(a)[::-1][:2]
    for matrix in (a, ours.BCOO.fromdense(a), lambda v: jnp.asarray(a) @ v):
        values, vectors, steps = ours.linalg.lobpcg_standard(matrix, start)
        np.testing.assert_allclose(values, want, rtol=1e-4)
        np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-1)
        assert 0 < int(steps) <= 100
    with pytest.raises(ValueError, match="search dim"):
        ours.linalg.lobpcg_standard(a, start[:, :0])


def test_sparsify_control_flow_and_custom_rules():
    m, v = stored(5, 5, nse=8).made(ours), full(5)
    f = ours.sparsify(lambda m, v: toile.nn.relu(m @ v))  # relu has a custom_jvp
    np.testing.assert_allclose(f(m, v), np.maximum(m.todense() @ v, 0))
    g = ours.sparsify(lambda m: lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, m))[1])
    got = g(m.sort_indices())
    assert isinstance(got, ours.BCOO) and got.nse == m.nse
    np.testing.assert_allclose(got.todense(), np.sin(np.sin(m.todense())), rtol=1e-5)
    h = ours.sparsify(toile.grad(lambda v, m: (m @ v).sum()))
    np.testing.assert_allclose(h(v, m), m.todense().sum(0), rtol=1e-5)
    jitted = ours.sparsify(toile.jit(lambda m: ours.todense(m) + 1))
    np.testing.assert_allclose(jitted(m), m.todense() + 1)
    with pytest.raises(NotImplementedError, match="scan"):
        ours.sparsify(lambda m: lax.scan(lambda c, x: (c, None), 0.0, m))(m)


ERRORS = {
    "exp": (lambda m: ours.sparsify(jnp.exp)(m), NotImplementedError, "would result in dense"),
    "compare": (lambda m: m > 1, NotImplementedError, "sparse rule for gt"),
    "maximum": (lambda m: ours.sparsify(jnp.maximum)(m, m), NotImplementedError, "sparse rule"),
    "power": (lambda m: m ** -1, NotImplementedError, "sparse rule"),
    "plus one": (lambda m: m + 1, NotImplementedError, "larger than Y.shape"),
    "minus dense": (lambda m: m - m.todense(), NotImplementedError, "Subtraction"),
    "divided": (lambda m: m.todense() / m, NotImplementedError, "Division by a sparse"),
    "larger": (lambda m: m * np.ones((2, 4, 5)), NotImplementedError, "output shape"),
    "layout": (lambda m: m.update_layout(n_batch=1), ours.SparseEfficiencyError, "inefficient"),
    "axes": (lambda m: m.update_layout(n_batch=3), ValueError, "cannot be larger"),
    "reshape": (lambda m: LAYOUTS["batched"].made(ours).reshape(4, 15), ValueError, "mix batch"),
    "traced": (lambda m: toile.jit(ours.BCOO.fromdense)(m.todense()), ConcretizationTypeError,
               "nse"),
    "shapes": (lambda m: ours.BCOO((m.data, m.indices[:3]), shape=m.shape), ValueError, "Invalid"),
    "float indices": (lambda m: ours.BCOO((m.data, m.data[:, None]), shape=(4,)), ValueError,
                      "integer"),
    "bcsr": (lambda m: ours.sparsify(lambda x: x.T)(ours.BCSR.from_bcoo(m)), NotImplementedError,
             "transpose"),
    "bcsr method": (lambda m: ours.BCSR.from_bcoo(m).T, NotImplementedError, "transpose"),
    "bcsr sum": (lambda m: ours.BCSR.from_bcoo(m) + 1, NotImplementedError, "__add__"),
    "permuted": (lambda m: LAYOUTS["batched"].made(ours).T, NotImplementedError, "permute batch"),
    "slice": (lambda m: ours.bcoo_slice(m, start_indices=[0, 0], limit_indices=[9, 9]), ValueError,
              "invalid"),
    "squeeze": (lambda m: ours.bcoo_squeeze(m, dimensions=[0]), ValueError, "not equal to one"),
    "dense axis": (lambda m: LAYOUTS["blocks"].made(ours) @ full(2), NotImplementedError,
                   "dense dimensions"),
    "format": (lambda m: ours.empty((2, 2), sparse_format="dia"), ValueError, "not recognized"),
    "coo": (lambda m: ours.COO.fromdense(m.todense()) @ m, NotImplementedError, "two sparse"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    run, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        run(M.made(ours))


def test_inefficient_layouts_warn():
    with pytest.warns(ours.SparseEfficiencyWarning, match="n_dense"):
        M.made(ours).update_layout(n_dense=1, on_inefficient="warn")
