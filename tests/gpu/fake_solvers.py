"""cuFFT and cuSOLVER in host memory: calls are computed by NumPy and SciPy on the addresses given.

What a call says about memory (leading dimensions, steps, triangles, arrays of addresses) is taken
at its word. Inputs that a library may destroy are destroyed.
"""

import ctypes
import warnings

import numpy as np
import scipy.linalg

from tests.gpu.fake_libraries import array_at
from toile.targets.cuda import cufft, cusolver

DTYPES = {letter: np.dtype(name) for name, letter in cusolver.LETTERS.items()}
WORKSPACE = 40  # elements


class _Recorded:
    """Does work at once, or when a graph that is being captured is launched."""

    def __init__(self, driver=None):
        self.driver = driver

    def do(self, work):
        if self.driver is None or self.driver.recording is None:
            return work()
        self.driver.recording.append(work)


class FakeCufft(_Recorded):
    """An engine of `cufft`."""

    def plan(self, layout):
        return FakeTransforms(self, layout)


class FakeTransforms:
    workspace = 64

    def __init__(self, owner, layout):
        self.owner, self.layout = owner, layout

    def execute(self, source, target, direction, room, stream):
        item = np.dtype(self.layout.dtype).itemsize
        assert room and not source % item and not target % item
        ctypes.memset(room, 0x7F, self.workspace)
        self.owner.do(lambda: self._run(source, target, direction))

    def _run(self, source, target, direction):
        x = self.layout
        dtype = np.dtype(x.dtype)
        real = np.dtype(f"f{dtype.itemsize // 2}")
        half = (*x.lengths[:-1], x.lengths[-1] // 2 + 1)
        shapes = {"c2c": (x.lengths, x.lengths), "r2c": (x.lengths, half), "c2r": (half, x.lengths)}
        given = self._array(source, x.source, shapes[x.kind][0], real if x.kind == "r2c" else dtype)
        made = self._array(target, x.target, shapes[x.kind][1], real if x.kind == "c2r" else dtype)
        axes, size = tuple(range(1, 1 + len(x.lengths))), np.prod(x.lengths)
        if x.kind == "c2r":
            found = np.fft.irfftn(given, x.lengths, axes) * size
            given[...] = np.nan
        elif x.kind == "r2c":
            found = np.fft.rfftn(given, axes=axes)
        elif direction == cufft.INVERSE:
            found = np.fft.ifftn(given, axes=axes) * size
        else:
            found = np.fft.fftn(given, axes=axes)
        made[...] = found

    def _array(self, address, side, shape, dtype):
        """The signals at an address: the extents of all axes but the first say where they are."""
        steps = [side.step]
        for extent in reversed(side.extents[1:]):
            steps.insert(0, steps[0] * extent)
        assert all(e >= n for e, n in zip(side.extents, shape, strict=True))
        return array_at(address, (self.layout.count, *shape), (side.batch, *steps), dtype)


class FakeCusolver(_Recorded):
    """An engine of `cusolver`."""

    def has(self, name):
        return True

    def workspace(self, name, letter, numbers, count):
        return WORKSPACE if cusolver.ROUTINES[name][1] else 0

    def issue(self, name, letter, numbers, count, pointers, work, length, stream):
        assert len(numbers) == len({t for t in cusolver.ROUTINES[name][0].split()
                                    if t[0] in "iIa" and t[1:].isdigit()})  # fmt: skip
        if length:
            assert length == WORKSPACE
            ctypes.memset(work, 0x7F, length * DTYPES[letter].itemsize)
        routine = _Routine(DTYPES[letter], count)
        self.do(lambda: getattr(routine, name)(*numbers, *pointers))


class _Routine:
    """What the routines of LAPACK compute, for column-major matrices at addresses."""

    def __init__(self, dtype, count):
        self.dtype, self.count = dtype, count
        self.real = np.dtype(f"f{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}")

    def matrix(self, address, m, n, leading=None):
        return array_at(address, (m, n), (1, leading or m), self.dtype)

    def numbers(self, address, size, dtype=None):
        return array_at(address, (size,), (1,), dtype or self.real)

    def integers(self, address, size=1):
        return self.numbers(address, size, np.dtype("i4"))

    def addresses(self, address):
        return self.numbers(address, self.count, np.dtype("i8")).tolist()

    def potrf(self, triangle, n, a, status):
        x = self.matrix(a, n, n)
        if triangle == cusolver.UPPER:
            x = x.conj().T
        try:
            factor = np.linalg.cholesky(np.tril(x) + np.tril(x, -1).conj().T)
        except np.linalg.LinAlgError:
            self.integers(status)[0] = 1
            return
        self.integers(status)[0] = 0
        if triangle == cusolver.UPPER:
            x, factor = self.matrix(a, n, n), factor.conj().T
        rows, columns = np.nonzero(factor)
        x[rows, columns] = factor[rows, columns]

    def potrfBatched(self, triangle, n, at, status):
        for i, a in enumerate(self.addresses(at)):
            self.potrf(triangle, n, a, status + 4 * i)

    def getrf(self, m, n, a, swaps, status):
        x = self.matrix(a, m, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)  # it is singular
            packed, found = scipy.linalg.lu_factor(np.array(x), check_finite=False)
        x[...] = packed
        self.integers(swaps, min(m, n))[...] = found + 1
        self.integers(status)[0] = 0

    def getrfBatched(self, n, at, swaps, status):
        for i, a in enumerate(self.addresses(at)):
            self.getrf(n, n, a, swaps + 4 * n * i, status + 4 * i)

    def geqrf(self, m, n, a, factors, status):
        x = self.matrix(a, m, n)
        (packed, taus), _ = scipy.linalg.qr(np.array(x), mode="raw")
        x[...] = packed
        self.numbers(factors, min(m, n), self.dtype)[...] = taus
        self.integers(status)[0] = 0

    def orgqr(self, m, n, k, a, factors, status):
        x = self.matrix(a, m, n)
        name = "ungqr" if self.dtype.kind == "c" else "orgqr"
        (product,) = scipy.linalg.get_lapack_funcs([name], [x])
        x[...] = product(np.array(x, order="F"), np.array(self.numbers(factors, k, self.dtype)))[0]
        self.integers(status)[0] = 0

    def syevd(self, job, triangle, n, a, values, status):
        assert job == cusolver.VECTORS
        x = self.matrix(a, n, n)
        failed = not np.isfinite(x).all()
        if not failed:
            found, vectors = np.linalg.eigh(x, "LU"[triangle])
            x[...] = vectors
            self.numbers(values, n)[...] = found
        self.integers(status)[0] = failed

    def syevjBatched(self, job, triangle, n, a, values, status):
        for i in range(self.count):
            self.syevd(job, triangle, n, a + i * n * n * self.dtype.itemsize,
                       values + i * n * self.real.itemsize, status + 4 * i)

    def XsyevBatched(self, *args):
        self.syevjBatched(*args)

    def _svd(self, m, n, k, j, a, status):
        x = np.array(self.matrix(a, m, n))
        failed = not np.isfinite(x).all()
        self.integers(status)[0] = failed
        return None if failed else np.linalg.svd(x, max(k, j) > min(m, n))

    def gesvdj(self, job, fewer, m, n, a, values, u, v, status):
        small = min(m, n)
        k, j = (small, small) if fewer else (m, n)
        found = self._svd(m, n, k, j, a, status)
        if found is None:
            return
        self.numbers(values, small)[...] = found[1]
        if job == cusolver.VECTORS:
            self.matrix(u, m, k)[...] = found[0]
            self.matrix(v, n, j)[...] = found[2].conj().T
        self.matrix(a, m, n)[...] = np.nan

    def gesvdjBatched(self, job, m, n, a, values, u, v, status):
        item = self.dtype.itemsize
        for i in range(self.count):
            self.gesvdj(job, 0, m, n, a + i * m * n * item,
                        values + i * min(m, n) * self.real.itemsize, u + i * m * m * item,
                        v + i * n * n * item, status + 4 * i)

    def gesvd(self, job, m, n, rows, a, values, u, v, status):
        assert m >= n and rows == n
        k = m if job == ord("A") else n
        found = self._svd(m, n, k, n, a, status)
        if found is None:
            return
        self.numbers(values, n)[...] = found[1]
        if job != ord("N"):
            self.matrix(u, m, k)[...] = found[0]
            self.matrix(v, n, n)[...] = found[2]
        self.matrix(a, m, n)[...] = np.nan

    def trsm(self, side, triangle, how, unit, m, n, lda, ldb, a, b):
        order = n if side == cusolver.RIGHT else m
        matrix, x = self.matrix(a, order, order, lda), self.matrix(b, m, n, ldb)
        lower = triangle == cusolver.LOWER
        matrix = np.tril(matrix) if lower else np.triu(matrix)
        matrix = (matrix, matrix.T, matrix.conj().T)[how]
        lower ^= bool(how)
        if side == cusolver.RIGHT:  # X M = B
            x[...] = scipy.linalg.solve_triangular(
                matrix.T, np.array(x).T, lower=not lower, unit_diagonal=bool(unit)).T
        else:
            x[...] = scipy.linalg.solve_triangular(
                matrix, np.array(x), lower=lower, unit_diagonal=bool(unit))

    def trsv(self, triangle, how, unit, n, step, a, x):
        assert step == 1
        self.trsm(cusolver.LEFT, triangle, how, unit, n, 1, n, n, a, x)

    def trsmBatched(self, *numbers):
        *numbers, a, b = numbers
        for one, other in zip(self.addresses(a), self.addresses(b), strict=True):
            self.trsm(*numbers, one, other)
