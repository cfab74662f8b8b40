"""The smaller parts of `toile.scipy` against `jax.scipy`: signal, fft, ndimage, optimize."""

import functools

import jax
import jax.scipy.optimize
import jax.scipy.spatial.transform
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, case, check, compare, name, runs
from tests.quick_jax import OPTIONS
from toile import numpy as jnp
from toile.scipy import interpolate, optimize, signal
from toile.scipy.sparse import linalg as sparse
from toile.scipy.spatial import transform

F = np.float32
RNG = np.random.RandomState(3)
V, W = RNG.randn(9).astype(F), RNG.randn(4).astype(F)
M, G = RNG.randn(6, 7).astype(F), RNG.randn(3, 2).astype(F)
COMPLEX = (M + 1j * RNG.randn(6, 7)).astype(np.complex64)
SIGNAL, OTHER = RNG.randn(2, 3, 64).astype(F)
LOOSE = {"rtol": 1e-4, "atol": 1e-5, "rtol64": 1e-9}


def sc(name, *args, **kwargs):
    return case("scipy." + name, *args, **{**LOOSE, **kwargs})


MODES = ("full", "same", "valid")

CASES = [
    *(
        sc(f"signal.{f}", V, W, mode=m, grad=(0, 1))
        for f in ("convolve", "correlate", "fftconvolve")
        for m in MODES
    ),
    *(sc(f"signal.{f}", W, V, mode=m) for f in ("convolve", "correlate") for m in MODES),
    *(
        sc(f"signal.{f}", M, G, mode=m)
        for f in ("convolve2d", "correlate2d", "convolve")
        for m in MODES
    ),
    *(sc("signal.correlate2d", G, M, mode=m) for m in MODES),
    *(sc("signal.correlate2d", COMPLEX, G, mode=m) for m in MODES),
    sc("signal.convolve", V, W, method="fft"),
    sc("signal.convolve", np.arange(5), np.arange(3)),
    sc("signal.fftconvolve", M, M, axes=1),
    sc("signal.fftconvolve", COMPLEX, M),
    sc("signal.detrend", SIGNAL),
    sc("signal.detrend", SIGNAL, type="constant", axis=0),
    sc("signal.detrend", V, bp=4),
    sc("signal.stft", SIGNAL, nperseg=16, rtol=1e-3),
    sc("signal.stft", SIGNAL, nperseg=16, noverlap=5, nfft=20, boundary="odd", fs=2.0, rtol=1e-3),
    sc("signal.stft", SIGNAL.T.copy(), nperseg=8, axis=0, padded=False, boundary=None, rtol=1e-3),
    sc(
        "signal.stft",
        SIGNAL,
        nperseg=15,
        return_onesided=False,
        detrend="constant",
        boundary="even",
        rtol=1e-3,
    ),
    sc("signal.csd", SIGNAL, OTHER, nperseg=16, rtol=1e-3, rtol64=1e-7),
    sc("signal.csd", SIGNAL, OTHER[..., :40], nperseg=16, average="median", rtol=1e-3, rtol64=1e-7),
    sc("signal.welch", SIGNAL, nperseg=16, scaling="spectrum", rtol=1e-3, rtol64=1e-7),
    sc("signal.welch", SIGNAL, rtol=1e-3, rtol64=1e-7),
    *(
        sc(f"fft.{f}", M, norm=n, grad=(0,))
        for f in ("dct", "idct", "dctn", "idctn")
        for n in (None, "ortho")
    ),
    sc("fft.dct", M, n=10, axis=0),
    sc("fft.dct", COMPLEX),
    sc("fft.idct", M, n=5),
    sc("fft.dctn", M, s=(5, 9)),
    sc("fft.idctn", RNG.randn(3, 4, 5).astype(F), axes=(0, 2)),
    sc("fft.dctn", RNG.randn(3, 4, 5).astype(F)),
    sc("integrate.trapezoid", M, grad=(0,)),
    sc("integrate.trapezoid", V, np.sort(V), grad=(0, 1)),
    sc("integrate.trapezoid", M, dx=0.5, axis=0),
    *(
        sc(
            "ndimage.map_coordinates",
            M,
            8 * RNG.rand(2, 11).astype(F) - 1,
            order=o,
            mode=m,
            cval=0.5,
            grad=(0,) if o else (),
        )
        for o in (0, 1)
        for m in ("constant", "nearest", "wrap", "mirror", "reflect")
    ),
    sc(
        "ndimage.map_coordinates",
        np.arange(20).reshape(4, 5),
        4 * RNG.rand(2, 6).astype(F),
        order=1,
    ),
    sc("cluster.vq.vq", RNG.randn(8, 3).astype(F), RNG.randn(4, 3).astype(F)),
    sc("cluster.vq.vq", V, W),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_numerics(this, x64):
    check(this, x64)


def test_istft_inverts_stft():
    from toile.scipy import signal

    _, _, z = signal.stft(SIGNAL, nperseg=16)
    _, x = signal.istft(z, nperseg=16)
    np.testing.assert_allclose(np.asarray(x)[:, :64], SIGNAL, atol=1e-5)
    got = signal.istft(z, nperseg=16)
    z = np.asarray(z)
    want = RECORD.in_test(lambda: jax.scipy.signal.istft(z, nperseg=16), z)
    compare(got, want, 1e-4, 1e-5, "istft")
    moved = np.moveaxis(z, (1, 2), (2, 0))
    options = {"nperseg": 16, "time_axis": 0, "freq_axis": 2, "boundary": False}
    got = signal.istft(moved, **options)
    want = RECORD.in_test(lambda: jax.scipy.signal.istft(moved, **options), moved)
    compare(got, want, 1e-4, 1e-5, "istft")


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, None, 0.0])
def test_regular_grid_interpolator(method, fill):
    grid = (np.array([0.0, 1.0, 3.0], F), np.array([0.0, 2.0, 2.5, 4.0], F))
    values = np.random.RandomState(3).randn(3, 4, 2).astype(F)
    points = np.array([[0.2, 0.3], [2.9, 3.0], [-1.0, 1.0], [3.0, 4.0], [1.0, 9.0]], F)
    ours = interpolate.RegularGridInterpolator(grid, values, method, fill_value=fill)
    pair = (points[:, 0], points[:, 1])

    def theirs():
        f = jax.scipy.interpolate.RegularGridInterpolator(grid, values, method, fill_value=fill)
        return f(points), f(pair)

    want = RECORD.in_test(theirs)
    compare(ours(points), want[0], 1e-5, 1e-6, method)
    compare(toile.jit(lambda f, x: f(x))(ours, pair), want[1], 1e-5, 1e-6, method)


def rosenbrock(np_):
    def f(x):
        return np_.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return f


def bowl(np_):
    scale = np.array([1.0, 3.0, 0.5])

    def f(x):
        return np_.sum(np_.cosh(scale * (x - 1.0))) + 0.1 * np_.sum(x) ** 2

    return f


METHODS = ("BFGS", "l-bfgs-experimental-do-not-rely-on-this")


@pytest.mark.parametrize("method", METHODS)
def test_minimize(method):
    start = np.zeros(3, np.float64)
    with toile.enable_x64(True), jax.enable_x64(True):
        got = optimize.minimize(bowl(toile.numpy), toile.numpy.asarray(start), method=method)
        want = jax.scipy.optimize.minimize(bowl(jax.numpy), jax.numpy.asarray(start), method=method)
    compare(got.x, want.x, 1e-7, 1e-9, "x")
    compare(got.jac, want.jac, 1e-3, 1e-6, "jac")
    for field in ("success", "status", "nit", "nfev", "njev"):
        assert int(getattr(got, field)) == int(getattr(want, field)), field
    if method == "BFGS":
        compare(got.hess_inv, want.hess_inv, 1e-4, 1e-6, "hess_inv")


@pytest.mark.parametrize("method", METHODS)
def test_minimize_through_a_curved_valley(method):
    """A bracket whose better end is the far one must not end the line search."""
    f = rosenbrock(toile.numpy)
    with toile.enable_x64(True):
        got = optimize.minimize(f, toile.numpy.zeros(3), method=method)
    assert bool(got.success) or int(got.status) == 4  # 4: the value stopped decreasing
    np.testing.assert_allclose(np.asarray(got.x), 1.0, atol=1e-4)


def test_minimize_arguments():
    f = rosenbrock(toile.numpy)
    x = optimize.minimize(lambda x, a: f(x - a), np.zeros(2, F), (0.5,), method="bfgs").x
    np.testing.assert_allclose(np.asarray(x), 1.5, atol=1e-2)
    with pytest.raises(ValueError, match="not recognized"):
        optimize.minimize(f, np.zeros(2, F), method="newton")
    with pytest.raises(TypeError, match="tuple"):
        optimize.minimize(f, np.zeros(2, F), 3, method="bfgs")


MATRIX = (RNG.randn(6, 6) + 6 * np.eye(6)).astype(F)
SPD = (MATRIX @ MATRIX.T).astype(F)
RHS = RNG.randn(6).astype(F)


@pytest.mark.parametrize(
    "solver, matrix, options",
    [
        ("cg", SPD, {}),
        ("cg", SPD, {"M": np.diag(1 / np.diag(SPD))}),
        ("bicgstab", MATRIX, {}),
        ("gmres", MATRIX, {}),
        ("gmres", MATRIX, {"solve_method": "incremental", "restart": 3}),
        ("gmres", MATRIX.astype(np.complex64), {"solve_method": "incremental"}),
    ],
)
def test_krylov(solver, matrix, options):
    rhs = RHS.astype(matrix.dtype)
    solve = getattr(sparse, solver)
    x, _ = solve(matrix, rhs, tol=1e-6, **options)
    np.testing.assert_allclose(matrix @ np.asarray(x), rhs, rtol=1e-3, atol=1e-3)
    x, _ = solve(lambda v: matrix @ v, rhs, tol=1e-6, **options)
    np.testing.assert_allclose(matrix @ np.asarray(x), rhs, rtol=1e-3, atol=1e-3)
    if matrix.dtype == F:
        slope = toile.grad(lambda b: solve(matrix, b, tol=1e-6, **options)[0].sum())(rhs)
        np.testing.assert_allclose(matrix.T @ np.asarray(slope), np.ones(6), rtol=1e-3, atol=1e-3)


def test_krylov_on_trees():
    tree = {"a": RHS[:2], "b": RHS[2:]}
    x, _ = sparse.cg(lambda t: {"a": 2 * t["a"], "b": 3 * t["b"]}, tree)
    np.testing.assert_allclose(np.asarray(x["b"]), RHS[2:] / 3, rtol=1e-4)
    with pytest.raises(ValueError, match="structure"):
        sparse.cg(SPD, RHS, x0={"a": RHS})


QUAT = RNG.randn(4, 4).astype(F)


def rotations(parts, seq, quat, vectors, angles, matrix):
    """What a library's Rotation and Slerp give for the same numbers, by name."""
    this = parts.Rotation.from_quat(quat)
    found = {f: getattr(this, f)() for f in ("as_matrix", "as_rotvec", "as_mrp", "magnitude")}
    found |= {
        "apply": this.apply(vectors),
        "as_euler": this.as_euler(seq, True),
        "as_quat": this.as_quat(True, True),
        "from_euler": parts.Rotation.from_euler(seq, angles).quat,
        "from_matrix": parts.Rotation.from_matrix(matrix).quat,
        "from_mrp": parts.Rotation.from_mrp(vectors).quat,
        "from_rotvec": parts.Rotation.from_rotvec(vectors, True).quat,
        "mul": (this * this.inv()).quat,
        "mean": this.mean().quat,
    }
    times = np.array([0.0, 1.0, 2.5, 3.0], F)
    found["slerp"] = parts.Slerp.init(times, this)(np.array([0.3, 2.0], F)).quat
    return found


@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "XYX"])
def test_rotation(seq):
    """JAX compiles everything as one program: by itself, each operation takes a compilation."""
    ours = transform.Rotation.from_quat(QUAT)
    arrays = (QUAT, *np.random.RandomState(3).randn(2, 4, 3).astype(F),
              np.asarray(ours.as_matrix()))
    got = rotations(transform, seq, *arrays)
    theirs = functools.partial(rotations, jax.scipy.spatial.transform, seq)
    want = RECORD.in_test(lambda: jax.jit(theirs, compiler_options=OPTIONS)(*arrays), *arrays)
    for rows in got, want:
        rows["mean"] = np.abs(np.asarray(rows["mean"]))
    assert got.keys() == want.keys()
    for part in got:
        compare(got[part], want[part], 1e-4, 1e-5, part)
    assert len(ours) == 4 and not ours.single and ours[0].single


def test_the_real_scipy_is_not_imported():
    import subprocess
    import sys

    code = (
        "import sys, toile.scipy as s\n"
        "parts = [n for n in dir(s) if not n.startswith('_')]\n"
        "assert {'fft', 'linalg', 'optimize', 'signal', 'special', 'stats'} <= {*parts}, parts\n"
        "for n in parts: getattr(s, n)\n"
        "assert 'scipy' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("n, m", [(512, 512), (17, 31), (1, 7), (100, 3)])
def test_transforms_of_convolutions_have_fast_lengths(n, m):
    x, y = jnp.arange(float(n)) / n, jnp.arange(float(m)) / m
    program = toile.make_jaxpr(signal.fftconvolve)(x, y).jaxpr
    for e in program.equations:
        for length in getattr(e.op, "fft_lengths", ()):
            assert 2**40 * 3**25 * 5**17 % length == 0
    np.testing.assert_allclose(signal.fftconvolve(x, y), np.convolve(x, y), 1e-4, 1e-4)
