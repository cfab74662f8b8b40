"""Factorizations and solves in compiled code: as outside jit, and without a step in Python."""

import itertools
from functools import partial

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.lax import linalg
from toile.scipy import linalg as scipy_linalg

pytestmark = pytest.mark.cpu
SIDES = (1, 2, 5, 16, 70)
BATCHES = ((), (3,), (2, 2))


def matrices(batch, n, dtype, kind="general", columns=None):
    rng = np.random.default_rng([n, len(batch)])
    x = rng.normal(size=(*batch, n, columns or n))
    if kind == "general":
        x = x / np.sqrt(n) + 2 * np.eye(n)
    elif kind == "definite":
        x = x @ np.swapaxes(x, -1, -2) / n + np.eye(n)
    return jnp.asarray(x.astype(dtype))


def close(f, *xs):
    """Compare a function with its compiled form, of which no step runs in Python."""
    assert "0 steps in Python" in str(toile.explain(lambda *xs: f(*xs))(*xs)).splitlines()[0]
    want = toile.tree.leaves(f(*xs))
    got = toile.tree.leaves(toile.jit(lambda *xs: f(*xs))(*xs))
    for w, g in zip(want, got, strict=True):
        w, g = np.asarray(w), np.asarray(g)
        assert (w.shape, w.dtype) == (g.shape, g.dtype)
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w)
            continue
        largest = np.abs(w[np.isfinite(w)]).max(initial=1)
        bound = (1e-11 if w.dtype == np.float64 else 3e-5) * largest
        np.testing.assert_allclose(g, w, rtol=0, atol=bound)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with toile.enable_x64(request.param == "float64"):
        yield request.param


def cholesky(x):
    return linalg.cholesky(x, symmetrize_input=False)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n", SIDES)
def test_factors(n, batch, dtype):
    definite = matrices(batch, n, dtype, "definite")
    close(cholesky, definite)
    close(cholesky, -definite)  # has no factor: NaN in the lower triangle, zeros above
    close(cholesky, definite.at[..., 0, 0].set(jnp.nan))
    for columns in (n, n + 3):
        wide = matrices(batch, n, dtype, "any", columns)
        close(linalg.lu, wide)
        close(linalg.lu, jnp.swapaxes(wide, -1, -2))
    close(linalg.lu, jnp.zeros_like(definite))
    close(lambda x: tuple(jnp.linalg.slogdet(x)), matrices(batch, n, dtype))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n", SIDES)
def test_triangular_solves(n, batch, dtype):
    a, b = matrices(batch, n, dtype), matrices(batch, n, dtype, "any", 200)
    for left, lower, transposed, unit in itertools.product((False, True), repeat=4):
        close(partial(linalg.triangular_solve, left_side=left, lower=lower, transpose_a=transposed,
                      unit_diagonal=unit), a, b if left else jnp.swapaxes(b, -1, -2))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n", SIDES)
def test_solves_and_their_gradients(n, batch, dtype):
    a, b = matrices(batch, n, dtype), matrices(batch, n, dtype, "any", 130)
    close(jnp.linalg.solve, a, b)
    close(jnp.linalg.inv, a)
    close(toile.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1)), a, b)
    close(toile.grad(lambda a: (cholesky(a) ** 2).sum()), matrices(batch, n, dtype, "definite"))
    close(lambda a, b: scipy_linalg.cho_solve((cholesky(a), True), b),
          matrices(batch, n, dtype, "definite"), b)


@pytest.mark.parametrize("batch", [(), (3,), (2, 9)])
@pytest.mark.parametrize("m, n", [(1, 1), (2, 2), (16, 16), (40, 40), (7, 3), (3, 7)])
def test_orthogonal_decompositions(m, n, batch, dtype):
    """Q, singular and eigenvectors have free signs: they must be those of the eager call."""
    rng = np.random.default_rng([m, n, len(batch)])
    x = jnp.asarray(rng.normal(size=(*batch, m, n)).astype(dtype))
    bad = x.at[..., 0, 0].set(jnp.inf)  # has no singular values: NaN
    for full in (False, True):
        close(partial(linalg.qr, full_matrices=full), x)
        close(partial(linalg.svd, full_matrices=full), x)
        close(partial(linalg.svd, full_matrices=full), bad)
    close(partial(linalg.svd, compute_uv=False), x)
    if m == n:
        for lower in (False, True):
            eigh = partial(linalg.eigh, lower=lower, symmetrize_input=False)
            close(eigh, x)  # one triangle is read
            close(eigh, bad)
        for left, right in itertools.product((False, True), repeat=2):
            eig = partial(linalg.eig, compute_left_eigenvectors=left,
                          compute_right_eigenvectors=right)
            close(eig, x)  # some eigenvalues are pairs of complex numbers
            close(eig, bad)


@pytest.mark.parametrize("lower", [False, True])
def test_vectors_that_nothing_reads_are_not_computed(dtype, lower):
    x = matrices((3,), 9, dtype, "definite").at[1, 0, 0].set(jnp.nan)
    eigh = partial(linalg.eigh, lower=lower, symmetrize_input=False)
    for decomposed in (eigh, linalg.svd, partial(linalg.svd, full_matrices=False)):
        place = 1  # of the values
        values = lambda x: decomposed(x)[place]  # noqa: B023
        close(values, x)
        close(lambda xs: lax.map(values, xs) * 2, x)  # noqa: B023
        close(lambda x: decomposed(x)[1 - place], x)  # noqa: B023
        with toile.threads(1):
            all_memory, memory = (toile.explain(f)(x).memory for f in (decomposed, values))
        assert memory.peak < all_memory.peak
    unread = lambda x: (jnp.linalg.eigh(x)[0], jnp.linalg.eigh(x)[1][..., :0])
    close(unread, x)


def test_one_matrix_that_fails_does_not_spoil_the_others():
    xs = matrices((9,), 6, "float32", "definite")
    for f in (cholesky, partial(linalg.svd, full_matrices=False), linalg.eigh, linalg.eig):
        bad = xs.at[4].set(jnp.nan)
        close(f, bad)
        for leaf in toile.tree.leaves(toile.jit(lambda x: f(x))(bad)):  # noqa: B023
            assert np.isfinite(np.delete(np.asarray(leaf), 4, 0)).all()


def test_in_loops_and_with_views():
    """Operands and results that are slices of loops, transposed, repeated, or overwritten."""
    xs = matrices((6,), 5, "float32", "definite")
    close(lambda xs: lax.map(cholesky, xs), xs)
    close(lambda xs: lax.map(lambda x: linalg.lu(x.T)[0].T, xs), xs)
    close(lambda xs: lax.scan(lambda c, x: (jnp.linalg.solve(x, c), c.sum()), xs[0], xs), xs)
    close(lambda xs: jnp.linalg.solve(xs[::2].swapaxes(1, 2), xs[::2]), xs)
    close(lambda xs: linalg.triangular_solve(xs, jnp.broadcast_to(xs[0], xs.shape),
                                             left_side=True, lower=True), xs)
    close(lambda xs: toile.vmap(jnp.linalg.solve, (None, 0))(xs[0], xs), xs)
    close(lambda xs: lax.map(lambda x: linalg.eigh(x)[0] @ linalg.qr(x.T)[1], xs), xs)
    close(toile.grad(lambda xs: (jnp.linalg.svd(xs)[1] ** 2).sum()), xs)
    donated = toile.jit(cholesky, donate_argnums=0)
    want = cholesky(xs)
    for _ in range(4):
        np.testing.assert_allclose(donated(jnp.array(xs)), want, rtol=1e-5, atol=1e-6)


def test_threads_share_many_columns():
    a, b = matrices((), 64, "float32"), matrices((), 64, "float32", "any", 3000)
    close(jnp.linalg.solve, a, b)
    close(lambda a, b: linalg.triangular_solve(a, b.T, lower=True), a, b)


def test_empty_matrices():
    for shape in ((0, 0), (3, 0, 0), (0, 4, 4)):
        x = jnp.zeros(shape)
        assert toile.jit(cholesky)(x).shape == shape
        assert toile.jit(jnp.linalg.inv)(x).shape == shape
