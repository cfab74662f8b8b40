"""Fourier transforms and decompositions on a GPU: plans with calls of NVIDIA's libraries."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from tests.gpu.host_driver import results_of
from toile import lax
from toile.compiler.ir.steps import EagerStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.gpu.target import TARGET
from toile.scipy.linalg import lu_factor, lu_solve, solve_triangular
from toile.targets.cuda import cufft, cusolver

DTYPES = ("float32", "float64", "complex64", "complex128")


def array(dtype, *shape, seed=0):
    """Random numbers."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def positive(dtype, *shape):
    """Hermitian, positive definite matrices."""
    x = array(dtype, *shape)
    return x @ x.swapaxes(-1, -2).conj() + 3 * np.eye(shape[-1], dtype=dtype)


def python_steps(f, *args):
    """The operations that a plan for a GPU leaves to Python."""
    program = optimize(toile.make_jaxpr(f)(*args).jaxpr)
    with cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
        steps = planned(program, TARGET).all_steps()
    return [s.equation.op.name for s in steps if isinstance(s, EagerStep)]


def check(f, *args, tolerance=None):
    """The results of a plan for a GPU are those of NumPy, and nothing runs in Python."""
    with toile.enable_x64(True):
        args = [jnp.asarray(a) for a in args]
        with toile.default_device(toile.devices("cpu")[0]):
            want = f(*args)
        want = want if isinstance(want, (tuple, list)) else [want]
        assert python_steps(f, *args) == []
        got = results_of(f, args)
        for g, w in zip(got, want, strict=True):
            w = np.asarray(w)
            eps = np.finfo(w.dtype).eps if w.dtype.kind in "fc" else 0
            scale = np.abs(w[np.isfinite(w)]).max(initial=1)
            np.testing.assert_allclose(g, w, rtol=0, atol=(tolerance or 100) * eps * scale)


# ------------------------------------------------------------------------------ Fourier transforms


TRANSFORMS = {
    "fft": (lambda x: jnp.fft.fft(x), (5, 12)),
    "one": (lambda x: jnp.fft.fft(x), (7,)),
    "ifft": (lambda x: jnp.fft.ifft(x), (2, 3, 8)),
    "first axis": (lambda x: jnp.fft.fft(x, axis=0), (6, 5)),
    "middle axis": (lambda x: jnp.fft.ifft(x, axis=1), (3, 6, 5)),
    "two axes": (lambda x: jnp.fft.fft2(x), (3, 4, 6)),
    "two axes back": (lambda x: jnp.fft.ifft2(x), (4, 6)),
    "first axes": (lambda x: jnp.fft.fft2(x, axes=(0, 1)), (4, 6, 3)),
    "exchanged": (lambda x: jnp.fft.fft2(x, axes=(-1, -2)), (2, 4, 6)),
    "three axes": (lambda x: jnp.fft.fftn(x), (4, 3, 6)),
    "sliced": (lambda x: jnp.fft.fft(x[:, ::2]), (4, 12)),
    "reversed": (lambda x: jnp.fft.fft(x[:, ::-1]), (4, 12)),
    "broadcast": (lambda x: jnp.fft.fft(jnp.broadcast_to(x, (5, *x.shape))), (4, 6)),
    "length one": (lambda x: jnp.fft.fft2(x), (4, 6, 1)),
    "padded": (lambda x: jnp.fft.fft(x, n=20), (3, 8)),
    "irfft": (lambda x: jnp.fft.irfft(x), (3, 7)),
    "irfft odd": (lambda x: jnp.fft.irfft(x, n=11), (3, 6)),
}
REAL = {
    "rfft": (lambda x: jnp.fft.rfft(x), (3, 12)),
    "rfft odd": (lambda x: jnp.fft.rfft(x), (2, 3, 9)),
    "rfft2": (lambda x: jnp.fft.rfft2(x), (2, 4, 6)),
    "rfft first axis": (lambda x: jnp.fft.rfft(x, axis=0), (8, 3)),
    "back and forth": (lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x) * 2, x.shape[-2:]), (3, 4, 7)),
    "input used again": (lambda x: (y := jnp.fft.rfft2(x), jnp.fft.irfft2(y), y * 2), (4, 6)),
    "1-d input used again": (lambda x: (y := jnp.fft.rfft(x), jnp.fft.irfft(y), y * 2), (4, 6)),
    "misaligned": (lambda x: jnp.fft.rfft(x[1:]), (9,)),
    "misaligned slices": (lambda x: toile.lax.map(
        lambda y: jnp.fft.irfft(jnp.fft.rfft(y), 5), x), (4, 5)),
    "gradient": (toile.grad(lambda x: jnp.abs(jnp.fft.rfft(x)).sum()), (3, 10)),
    "convolution": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(x + 1)), (4, 16)),
    "in a loop": (lambda x: lax.scan(
        lambda c, y: (jnp.fft.irfft(jnp.fft.rfft(c) + 1, c.shape[-1]) * 0.5 + y, c.sum()),
        x[0], x)[0], (3, 4, 10)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES[2:])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_complex_transforms(name, dtype):
    f, shape = TRANSFORMS[name]
    check(f, array(dtype, *shape))


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("name", REAL)
def test_real_transforms(name, dtype):
    f, shape = REAL[name]
    check(f, array(dtype, *shape))


# ----------------------------------------------------------------------------------- decompositions


def rebuilt_svd(x, full=False):
    u, s, vh = jnp.linalg.svd(x, full)
    k = s.shape[-1]
    return (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], s


def rebuilt_eigh(x, **options):
    v, w = lax.linalg.eigh(x, **options)
    return (v * w[..., None, :]) @ v.swapaxes(-1, -2).conj(), w


def rebuilt_qr(x, mode):
    q, r = jnp.linalg.qr(x, mode)
    return q @ r, jnp.tril(r, -1), q.swapaxes(-1, -2).conj() @ q


def rebuilt_lu(x):
    packed, _, order = lax.linalg.lu(x)
    k = min(x.shape[-2:])
    l = jnp.tril(packed[..., :k], -1) + jnp.eye(x.shape[-2], k, dtype=x.dtype)
    return l @ jnp.triu(packed[..., :k, :]) - jnp.take_along_axis(x, order[..., None], -2)


DECOMPOSITIONS = {
    "cholesky": (lambda x: jnp.linalg.cholesky(x), positive, (5, 5)),
    "cholesky of a batch": (lambda x: jnp.linalg.cholesky(x), positive, (2, 3, 4, 4)),
    "cholesky of a few large": (lambda x: jnp.linalg.cholesky(x), positive, (2, 130, 130)),
    "no cholesky": (lambda x: jnp.linalg.cholesky(x - 4 * jnp.eye(4)[None] * jnp.arange(
        3)[:, None, None]), positive, (3, 4, 4)),
    "cholesky of larger ones": (lambda x: jnp.linalg.cholesky(x), positive, (3, 40, 40)),
    "one number": (lambda x: jnp.linalg.cholesky(x), positive, (5, 1, 1)),
    "cholesky of 32 rows": (lambda x: jnp.linalg.cholesky(x), positive, (9, 32, 32)),
    "cholesky's gradient": (lambda x: toile.grad(
        lambda x: jnp.real(jnp.linalg.cholesky(x)).sum())(x), positive, (4, 4)),
    "lu": (rebuilt_lu, array, (5, 5)),
    "lu of a batch": (rebuilt_lu, array, (3, 2, 4, 4)),
    "lu of tall matrices": (rebuilt_lu, array, (2, 6, 4)),
    "lu of wide matrices": (rebuilt_lu, array, (2, 4, 6)),
    "lu of larger ones": (rebuilt_lu, array, (3, 40, 40)),
    "lu of a larger one": (rebuilt_lu, array, (33, 36)),
    "lu of 32 rows": (rebuilt_lu, array, (9, 32, 32)),
    "lu of zeros": (lambda x: rebuilt_lu(x * jnp.array([[0.0, 1, 1, 1]] * 4).astype(x.dtype)),
                    array, (2, 4, 4)),
    "larger row swaps": (lambda x: lax.linalg.lu(x)[1:], array, (2, 34, 34)),
    "row swaps": (lambda x: lax.linalg.lu(x)[1:], array, (3, 6, 6)),
    "qr": (lambda x: rebuilt_qr(x, "reduced"), array, (6, 4)),
    "complete qr": (lambda x: rebuilt_qr(x, "complete"), array, (2, 6, 4)),
    "qr of wide matrices": (lambda x: rebuilt_qr(x, "reduced"), array, (3, 4, 6)),
    "qr of one column": (lambda x: rebuilt_qr(x, "complete"), array, (3, 5, 1)),
    "qr of one row": (lambda x: rebuilt_qr(x, "reduced"), array, (3, 1, 5)),
    "qr of larger ones": (lambda x: rebuilt_qr(x, "reduced"), array, (2, 70, 40)),
    "qr of large ones": (lambda x: rebuilt_qr(x, "reduced"), array, (2, 130, 3)),
    "qr of zeros": (lambda x: rebuilt_qr(x * 0, "reduced"), array, (2, 6, 4)),
    "eigh": (rebuilt_eigh, positive, (6, 6)),
    "eigh of a batch": (rebuilt_eigh, positive, (3, 4, 4)),
    "eigh of a few": (rebuilt_eigh, positive, (2, 33, 33)),
    "eigh, upper triangle": (lambda x: rebuilt_eigh(x, lower=False, symmetrize_input=False),
                             positive, (5, 5)),
    "some eigenvalues": (lambda x: lax.linalg.eigh(x, subset_by_index=(1, 3))[1], positive, (5, 5)),
    "svd": (rebuilt_svd, array, (6, 4)),
    "svd of wide matrices": (rebuilt_svd, array, (4, 6)),
    "svd of a batch": (rebuilt_svd, array, (3, 4, 6)),
    "svd of a few": (rebuilt_svd, array, (2, 40, 6)),
    "full svd": (lambda x: rebuilt_svd(x, True), array, (6, 4)),
    "full svd of a batch": (lambda x: rebuilt_svd(x, True), array, (2, 4, 6)),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), array, (3, 4, 6)),
    "svd by qr": (lambda x: lax.linalg.svd(
        x, full_matrices=False, compute_uv=False,
        algorithm=lax.linalg.SvdAlgorithm.QR), array, (2, 6, 4)),
    "large svd": (rebuilt_svd, array, (1030, 3)),
    "large wide svd": (rebuilt_svd, array, (3, 1030)),
    "full large svd": (lambda x: rebuilt_svd(x, True)[1], array, (1030, 3)),
    "some singular values": (lambda x: lax.linalg.svd(
        x, full_matrices=False, compute_uv=False, subset_by_index=(0, 2))[0], array, (6, 4)),
    "inverse": (lambda x: jnp.linalg.inv(x), positive, (2, 4, 4)),
    "solve": (lambda x: jnp.linalg.solve(x, x[..., :2]), positive, (5, 5)),
    "solve for a vector": (lambda x: jnp.linalg.solve(x, x[..., 0]), positive, (5, 5)),
    "solve of a batch": (lambda x: jnp.linalg.solve(x, x[..., :3]), positive, (3, 4, 4)),
    "solve of larger ones": (lambda x: jnp.linalg.solve(x, x[..., :3]), positive, (3, 40, 40)),
    "solve for many": (lambda x: jnp.linalg.solve(x, jnp.tile(x, 40)), positive, (2, 5, 5)),
    "larger solve's gradient": (toile.grad(
        lambda x: jnp.real(jnp.linalg.solve(x, x[..., :3])).sum()), positive, (34, 34)),
    "solve's gradient": (toile.grad(lambda x: jnp.real(jnp.linalg.solve(x, x[..., :3])).sum()),
                         positive, (3, 4, 4)),
    "lu_solve": (lambda x: lu_solve(lu_factor(x), x[:, :2], trans=1), positive, (4, 4)),
    "determinant": (lambda x: jnp.linalg.det(x), positive, (3, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions(name, dtype):
    f, make, shape = DECOMPOSITIONS[name]
    if name == "no cholesky":
        with np.errstate(invalid="ignore"):
            return check(f, make(dtype, *shape) - 3 * np.eye(4, dtype=dtype))
    check(f, make(dtype, *shape), tolerance=2000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("how", ["", "transposed", "adjoint", "conjugate"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize("n", [4, 35])
def test_triangular_solves(dtype, left, lower, how, batch, n):
    a = positive(dtype, *batch, n, n)
    b = array(dtype, *batch, *((n, 3) if left else (3, n)))
    for unit in (False, True):
        check(lambda a, b, unit=unit: lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=how in ("transposed", "adjoint"),
            conjugate_a=how in ("conjugate", "adjoint"), unit_diagonal=unit), a, b,
            tolerance=1e4)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("how", ["", "transposed", "adjoint", "conjugate"])
def test_triangular_solves_of_a_vector(dtype, left, lower, how):
    a, b = positive(dtype, 35, 35), array(dtype, *((35, 1) if left else (1, 35)))
    check(lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=left, lower=lower, transpose_a=how in ("transposed", "adjoint"),
        conjugate_a=how in ("conjugate", "adjoint"), unit_diagonal=lower), a, b, tolerance=1e4)


def test_many_right_hand_sides():
    a = positive("float64", 200, 200)
    check(lambda a, b: solve_triangular(a, b, lower=True), a, array("float64", 200, 5),
          tolerance=1e4)


def test_not_finite():
    """Decompositions of NaN are NaN."""
    x = np.stack([positive("float32", 4, 4), np.full((4, 4), np.nan, "float32")])
    for f in (jnp.linalg.eigvalsh, lambda x: jnp.linalg.svd(x, compute_uv=False)):
        (got,) = results_of(f, [jnp.asarray(x)])
        assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()
