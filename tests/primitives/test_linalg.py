"""Linear algebra: values, every rule, failures and errors against jax.lax.linalg.

JAX and toile call the same LAPACK, so signs and phases of vectors agree too.
"""

import functools
import inspect
import itertools

import jax
import numpy as np
import pytest
from jax.lax import linalg as theirs

import toile
from tests.primitives.rules import (
    asked,
    choices,
    flat,
    flat_reference,
    random_like,
    same,
    second_order,
)
from toile.engine import dtypes
from toile.engine.avals import Zero
from toile.engine.conversion import as_array
from toile.engine.scoped_options import enable_x64
from toile.lax import linalg as ours
from toile.primitives import linalg_solve
from toile.primitives.families import instantiate
from toile.primitives.linalg import take
from toile.transforms.jvp import jvp_flat
from toile.transforms.linearize import linearize_flat
from toile.transforms.transpose import backward
from toile.transforms.vmap import vmap_flat

REAL, COMPLEX = np.float64, np.complex128
DTYPES = [REAL, COMPLEX]


@pytest.fixture(autouse=True)
def double_precision():
    """Derivatives are compared in double precision; single is tested on its own."""
    with jax.enable_x64(True), enable_x64(True):
        yield


def general(shape, dtype=REAL, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def positive(shape, dtype=REAL):
    x = general(shape, dtype)
    return (x @ x.conj().swapaxes(-1, -2) + 2 * np.eye(shape[-1])).astype(dtype)


def hermitian(shape, dtype=REAL):
    x = general(shape, dtype)
    return x + x.conj().swapaxes(-1, -2)


def compare(name, *arrays, tol=1e-9, derivative=True, second=False, vmap=True, **options):
    """All rules of one function of the face: jvp and vjp against JAX's, vmap against a loop."""
    mine = functools.partial(getattr(ours, name), **options)
    reference = functools.partial(getattr(theirs, name), **options)
    compare_functions(mine, reference, arrays, tol, derivative, second, vmap)


def compare_functions(mine, reference, arrays, tol, derivative=True, second=False, vmap=True):
    run, ref = flat(mine), flat_reference(reference)
    xs = [as_array(a) for a in arrays]
    if derivative:
        compare_derivatives(run, ref, xs, arrays, tol)
    else:
        same(run(*xs), asked(jax.jit(ref), *arrays), tol, tol, "eager")
    if vmap:
        compare_vmap(run, arrays, tol)
    if second:
        second_order(mine, jax.jit(reference), list(arrays), [True] * len(arrays), tol, tol)


def compare_derivatives(run, ref, xs, arrays, tol):
    """One compilation of JAX gives everything; then operands move one at a time."""
    rng = np.random.default_rng(1)
    dots = [random_like(rng, a) for a in arrays]
    cts = [random_like(rng, np.zeros(o.shape, o.dtype)) if o.dtype.kind in "fc"
           else np.zeros(o.shape, jax.dtypes.float0) for o in jax.eval_shape(ref, *arrays)]

    @jax.jit
    def everything(arrays, dots, cts):
        out, dout = jax.jvp(ref, arrays, dots)
        dout = [d for d in dout if d.dtype != jax.dtypes.float0]
        whole = [jax.numpy.zeros(o.shape, jax.dtypes.float0) if o.dtype.kind == "i" else cts.pop(0)
                 for o in out]
        return out, dout, jax.vjp(ref, *arrays)[1](whole)

    floats = [c for c in cts if c.dtype != jax.dtypes.float0]
    want, dwant, back = asked(everything, list(arrays), dots, floats)
    got, dgot = jvp_flat(run, xs, [as_array(d) for d in dots])
    same(got, want, tol, tol, "jvp: result")
    moving = [d for d in dgot if not (isinstance(d, Zero) and d.dtype == dtypes.float0)]
    same(moving, dwant, tol, tol, "jvp: tangent")
    results, tape = linearize_flat(run, xs)
    mine = [Zero(r) if c.dtype == jax.dtypes.float0 else as_array(c)
            for c, r in zip(cts, results, strict=True)]
    same(backward(tape, mine), back, tol, tol, "vjp")
    total = None
    for i, d in enumerate(dots if len(dots) > 1 else ()):
        only = [as_array(d) if j == i else Zero(x) for j, x in enumerate(xs)]
        part = [instantiate(t) for t in jvp_flat(run, xs, only)[1]]
        total = part if total is None else [a._data + b._data for a, b in zip(total, part)]
        total = [as_array(t) for t in total]
    if total is not None:
        same(total, dwant, tol, tol, "jvp: one operand at a time")


def compare_vmap(run, arrays, tol, size=3):
    """vmap over every choice of operands, at the first and the last axis, against a loop."""
    for chosen in choices([True] * len(arrays)):
        for last in (False, True):
            dims = [(a.ndim if last else 0) if i in chosen else None
                    for i, a in enumerate(arrays)]
            rows = [[a if i not in chosen else a * (1 + 0.25 * j) for i, a in enumerate(arrays)]
                    for j in range(size)]
            want = [run(*[as_array(a) for a in row]) for row in rows]
            stacked = [as_array(a if d is None else np.stack([r[i] for r in rows], axis=d))
                       for i, (a, d) in enumerate(zip(arrays, dims))]
            outs, out_dims = vmap_flat(run, (None, size), stacked, dims)
            for k, (o, d) in enumerate(zip(outs, out_dims)):
                got = np.moveaxis(np.asarray(o), d, 0)
                loop = np.stack([np.asarray(w[k]) for w in want])
                np.testing.assert_allclose(got, loop, rtol=tol, atol=tol, err_msg=f"vmap {dims}")


# ---------------------------------------------------------------------------------- factorizations


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3)])
def test_cholesky(shape, dtype):
    a = positive(shape, dtype)
    compare("cholesky", a, second=shape == (4, 4))
    if jax.__version_info__ >= (0, 11):  # older ones let tangents of the upper triangle through
        compare("cholesky", a, symmetrize_input=False)


def _plain(x):
    return [np.asarray(v) for v in x] if isinstance(x, (tuple, list)) else [np.asarray(x)]


def test_cholesky_of_an_indefinite_matrix_is_nan():
    a = np.stack([np.eye(2), np.diag([1.0, -1.0]), np.full((2, 2), np.nan)])
    got = np.asarray(ours.cholesky(a))
    assert np.isfinite(got[0]).all() and np.isnan(np.diagonal(got, 0, 1, 2)[1:]).all()
    np.testing.assert_array_equal(got, asked(theirs.cholesky, a))


def test_cholesky_update():
    r = np.linalg.cholesky(positive((4, 4))).T
    w = general((4,))
    got = np.asarray(ours.cholesky_update(r, w))
    np.testing.assert_allclose(got, asked(theirs.cholesky_update, r, w), atol=1e-12)
    with pytest.raises(NotImplementedError, match="'cholesky_update' not implemented"):
        jvp_flat(lambda r: [ours.cholesky_update(r, w)], [as_array(r)], [as_array(r)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (2, 3, 4)])
def test_lu(shape, dtype):
    compare("lu", general(shape, dtype), second=shape == (4, 4))


def test_lu_pivots_to_permutation():
    pivots = np.array([[2, 2, 2], [0, 3, 4]], np.int32)
    want = theirs.lu_pivots_to_permutation(pivots, 5)
    got = ours.lu_pivots_to_permutation(pivots, 5)
    np.testing.assert_array_equal(np.asarray(got), want)
    assert got.dtype == want.dtype
    with pytest.raises(ValueError, match="at most 2 row swaps"):
        ours.lu_pivots_to_permutation(pivots, 2)


def test_swaps_outside_of_a_matrix():
    """A swap with a row that is not there is not done."""
    swaps = np.array([[3, -5, 2], [1, 99, 2]], np.int32)
    order = lambda p: ours.lu_pivots_to_permutation(p, 4)
    for f in (order, toile.jit(order)):
        np.testing.assert_array_equal(f(swaps), [[3, 1, 2, 0], [1, 0, 2, 3]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5)])
def test_qr(shape, full, dtype):
    a = general(shape, dtype)
    compare("qr", a, full_matrices=full, second=full and shape == (5, 3))
    if len(shape) == 2 and not full:  # JAX indexes with the whole batch of permutations
        compare("qr", a, full_matrices=full, pivoting=True, derivative=shape[0] >= shape[1])


def test_pivoted_qr_of_a_wide_matrix():
    # Numerical derivative: JAX pairs the pivoted factors with columns in their old order.
    a, da, h = general((3, 5)), general((3, 5), seed=1), 1e-6
    run = lambda x: list(ours.qr(x, pivoting=True))
    _, douts = jvp_flat(run, [as_array(a)], [as_array(da)])
    plus, minus = run(a + h * da), run(a - h * da)
    for d, p, m in zip(douts[:2], plus, minus):
        slope = (np.asarray(p) - np.asarray(m)) / (2 * h)
        np.testing.assert_allclose(np.asarray(d), slope, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 4, 2)])
def test_householder(shape, dtype):
    from jax._src.lax.linalg import geqrf

    from toile.primitives.linalg_factor import Geqrf

    a = general(shape, dtype)
    want, got = asked(geqrf, a), Geqrf()(as_array(a))
    same(got, want, 1e-10, 1e-10, "geqrf")
    packed, taus = map(np.asarray, want)
    compare("householder_product", packed, taus, derivative=False)
    for left, flip in itertools.product([True, False], repeat=2):
        rows, columns = (shape[-2], 2) if left else (2, shape[-2])
        c = general((*shape[:-2], rows, columns), dtype)
        compare("ormqr", packed, taus, c, derivative=False, left=left, transpose=flip)


# ----------------------------------------------------------------------------------------- spectra


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3)])
def test_eigh(shape, dtype):
    a = hermitian(shape, dtype)
    compare("eigh", a, second=shape == (4, 4))
    compare("eigh", general(shape, dtype), lower=False, symmetrize_input=False, derivative=False)


def test_part_of_the_spectrum():
    a = hermitian((5, 5))
    v, w = ours.eigh(a)
    few, values = ours.eigh(a, subset_by_index=(1, 3))
    np.testing.assert_array_equal(np.asarray(values), np.asarray(w)[1:3])
    np.testing.assert_array_equal(np.asarray(few), np.asarray(v)[:, 1:3])
    with pytest.raises(NotImplementedError, match="partial eigen decomposition"):
        run = functools.partial(ours.eigh, subset_by_index=(1, 3))
        jvp_flat(lambda x: list(run(x)), [as_array(a)], [as_array(a)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_eig(shape, dtype):
    a = general(shape, dtype)
    for left, right in itertools.product([True, False], repeat=2):
        sides = {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
        compare("eig", a, **sides, enable_eigvec_derivs=True, derivative=left == right)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
        jvp_flat(lambda x: ours.eig(x), [as_array(a)], [as_array(a)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 4)])
def test_svd(shape, dtype):
    a = general(shape, dtype)
    compare("svd", a, full_matrices=False, second=shape == (5, 3) and dtype is REAL)
    compare("svd", a, compute_uv=False)
    square = shape[-1] == shape[-2]
    compare("svd", a, derivative=square)
    for mine, reference in zip(ours.svd(a, algorithm=ours.SvdAlgorithm.QR),
                               asked(theirs.svd, a, algorithm=theirs.SvdAlgorithm.QR)):
        np.testing.assert_allclose(np.asarray(mine), reference, atol=1e-10)
    if not square:
        with pytest.raises(NotImplementedError, match="not implemented for full matrices"):
            jvp_flat(lambda x: list(ours.svd(x)), [as_array(a)], [as_array(a)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 4])
def test_reductions_to_simpler_forms(n, dtype):
    a = general((2, n, n), dtype)
    compare("schur", a, derivative=False)
    compare("schur", a, derivative=False, compute_schur_vectors=False)
    if n > 1:
        compare("hessenberg", a, derivative=False)
    for lower in (True, False):
        if n > 1:
            compare("tridiagonal", hermitian((2, n, n), dtype), derivative=False, lower=lower)


# ------------------------------------------------------------------------------------------ solves

OPTIONS = list(itertools.product([True, False], repeat=4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left_side, lower, transpose_a, conjugate_a", OPTIONS)
def test_triangular_solve(left_side, lower, transpose_a, conjugate_a, dtype):
    options = {"left_side": left_side, "lower": lower, "transpose_a": transpose_a,
               "conjugate_a": conjugate_a}
    a = general((3, 3), dtype) + 3 * np.eye(3)
    columns = 2 if transpose_a else 5
    b = general((3, columns) if left_side else (columns, 3), dtype)
    compare("triangular_solve", a, b, **options, unit_diagonal=lower, tol=1e-8)
    if conjugate_a:
        compare("triangular_solve", a, general((3,), dtype), **options, tol=1e-8)
    else:
        compare("triangular_solve", np.stack([a, a + 1]), general((2, 3, 3), dtype), **options,
                tol=1e-8)


def test_triangular_solve_of_a_singular_matrix():
    a, b = np.diag([1.0, 0.0]), np.ones((2, 1))
    got = np.asarray(ours.triangular_solve(a, b, left_side=True))
    assert not np.isfinite(got[1]).any()
    half = [x.astype(np.float16) for x in (np.eye(2), b)]
    assert ours.triangular_solve(*half, left_side=True).dtype == np.float16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_tridiagonal_solve(n, dtype):
    dl, d, du = (general((n,), dtype, seed) for seed in range(3))
    d = d + 4
    dl[0], du[-1] = 0, 0
    b = general((n, 2), dtype, 5)
    compare("tridiagonal_solve", dl, d, du, b)
    batch = [np.stack([x, x + 1]) for x in (dl, d, du, b)]
    batch[0][:, 0], batch[2][:, -1] = 0, 0
    compare("tridiagonal_solve", *batch, derivative=n == 5)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_perturbed_tridiagonal_solve(n):
    dl, d, du = (general((n,), REAL, seed) for seed in range(3))
    dl[0], du[-1] = 0, 0
    b = general((n, 2), REAL, 5)
    if n > 1:
        got = ours.tridiagonal_solve(dl, d, du, b, perturb_singular=True)
        np.testing.assert_allclose(
            np.asarray(got), ours.tridiagonal_solve(dl, d, du, b), rtol=1e-8
        )
    nothing = np.zeros(n)
    assert np.isnan(np.asarray(ours.tridiagonal_solve(nothing, nothing, nothing, b))).all()
    got = ours.tridiagonal_solve(nothing, nothing, nothing, b, perturb_singular=True)
    assert np.isfinite(np.asarray(got)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)])
def test_solve(shape, dtype):
    a = general(shape, dtype)
    b = general((*shape[:-1], 2), dtype, 1)
    compare_functions(linalg_solve.solve, jax.numpy.linalg.solve, [a, b], 1e-8,
                      second=len(shape) == 2)
    packed, _, order = ours.lu(a)
    for trans, turned in enumerate([a, a.swapaxes(-1, -2), a.swapaxes(-1, -2).conj()]):
        x = linalg_solve.lu_solve(packed, order, as_array(b), trans)
        np.testing.assert_allclose(turned @ np.asarray(x), b, atol=1e-10)


def test_solve_of_a_singular_matrix():
    got = np.asarray(linalg_solve.solve(as_array(np.ones((2, 2))), as_array(np.eye(2))))
    assert not np.isfinite(got).any()


# ----------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 2)])
def test_symmetric_product(shape):
    a = general(shape)
    c = hermitian((*shape[:-1], shape[-2]))
    for full in (True, False):
        compare("symmetric_product", a, c, alpha=2.0, beta=0.5, symmetrize_output=full,
                derivative=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qdwh(dtype):
    for shape in [(4, 4), (6, 3)]:
        a = general(shape, dtype)
        got, want = ours.qdwh(a), asked(theirs.qdwh, a)
        for g, w in zip(got, want):
            np.testing.assert_allclose(np.asarray(g), w, atol=1e-10)
            assert g.dtype == w.dtype
    padded = np.pad(a, ((0, 2), (0, 1)), constant_values=7)
    got = ours.qdwh(padded, dynamic_shape=(6, 3))
    np.testing.assert_allclose(np.asarray(got[0])[:6, :3], np.asarray(ours.qdwh(a)[0]), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays_single(dtype):
    a = positive((3, 3), dtype)
    calls = ["cholesky", "lu", "qr", "eig", "eigh", "svd", "schur", "hessenberg", "tridiagonal"]
    for name in calls:
        got, want = _plain(getattr(ours, name)(a)), _plain(asked(getattr(theirs, name), a))
        same(got, want, 1e-4, 1e-4, name)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 3, 3)])
def test_empty(shape):
    a = np.zeros(shape)
    square = shape[-1] == shape[-2]
    for full in (True, False):
        for name in ("qr", "svd") if 0 not in shape[:-2] or square else ():
            got = getattr(ours, name)(a, full_matrices=full)
            want = jax.eval_shape(functools.partial(getattr(theirs, name), full_matrices=full), a)
            assert [g.shape for g in got] == [w.shape for w in want]
    assert [x.shape for x in ours.lu(a)] == [x.shape for x in jax.eval_shape(theirs.lu, a)]
    for name in ("cholesky", "eigh", "eig", "schur") if square else ():
        want = _shapes(jax.eval_shape(getattr(theirs, name), a))
        assert _shapes(getattr(ours, name)(a)) == want, name


def _shapes(x):
    return [v.shape for v in x] if isinstance(x, (list, tuple)) else [x.shape]


@pytest.mark.parametrize("name", ["eig", "eigh", "svd", "schur"])
def test_iterations_on_nan_give_nan(name):
    a = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    for x in _plain(getattr(ours, name)(a)):
        assert np.isfinite(x[0]).all() and np.isnan(x[1]).all()


@pytest.mark.parametrize("name", ["cholesky", "eigh", "eig", "schur", "hessenberg", "tridiagonal"])
def test_square_matrices_are_required(name):
    options = {"symmetrize_input": False} if name in ("cholesky", "eigh") else {}
    with pytest.raises(ValueError, match=rf"{name}: needed a square matrix, got shape \(2, 3\)"):
        getattr(ours, name)(np.ones((2, 3)), **options)


def test_errors():
    with pytest.raises(TypeError, match="triangular_solve: needed float or complex operands"):
        ours.triangular_solve(np.ones((2, 2)), np.ones((2, 2), np.float32))
    with pytest.raises(TypeError, match="lu: needed operands with at least"):
        ours.lu(np.ones(2))
    with pytest.raises(TypeError, match="equal batch axes"):
        ours.triangular_solve(np.ones((2, 3, 3)), np.ones((4, 3, 3)))
    with pytest.raises(NotImplementedError, match="'schur' not implemented"):
        x = as_array(np.eye(2))
        jvp_flat(lambda x: list(ours.schur(x)), [x], [x])
    with pytest.raises(NotImplementedError):
        ours.svd(np.eye(2), algorithm=ours.SvdAlgorithm.POLAR)
    with pytest.raises(ValueError):
        ours.eig(np.eye(2), implementation=ours.EigImplementation.MAGMA)


def test_names_and_signatures():
    for name in dir(theirs):
        if name.startswith("_") or name.endswith("_p"):
            continue
        assert hasattr(ours, name), name
        wanted = getattr(theirs, name)
        if inspect.isclass(wanted):
            assert {m.name: m.value for m in wanted} == {m.name: m.value
                                                         for m in getattr(ours, name)}
        elif callable(wanted):
            mine, want = (inspect.signature(f).parameters for f in (getattr(ours, name), wanted))
            assert [(p.name, p.kind, p.default) for p in mine.values()] == [
                (p.name, p.kind, p.default) for p in want.values()], name


def test_take():
    x, order = general((2, 3, 4)), np.array([[2, 0, 1], [1, 2, 0]], np.int32)
    want = np.take_along_axis(x, order[:, :, None], 1)
    np.testing.assert_array_equal(np.asarray(take(as_array(x), as_array(order), -2)), want)
    order = np.array([[3, 0, 1, 2], [1, 2, 3, 0]], np.int32)
    want = np.take_along_axis(x, order[:, None, :], 2)
    np.testing.assert_array_equal(np.asarray(take(as_array(x), as_array(order), -1)), want)
