"""The kernel that looks for NaNs and infinities, run on the host."""

import contextlib

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, nvrtc
from toile.engine import value_ranges
from toile.platforms.gpu import finite_tests

needs_compiler = pytest.mark.skipif(not fibers.available(), reason="needs g++")
DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


NONE, NAN, INF = (False, False), (True, False), (False, True)


class Host:
    """A device whose kernels run on the host, and the driver that launches them there."""

    stream = 0

    def host_words(self, count):
        words = np.ones(count, np.int32)  # memory is not cleared
        return words, words.ctypes.data, words

    def current(self):
        return contextlib.nullcontext()

    def synchronize(self):
        pass

    def launch(self, kernel, blocks, threads, shared, stream, argument):
        words = list(argument)
        if not kernel.many:
            fibers.execute(finite_tests.TEXT, words, blocks)
            return
        count, width = words[:2]
        starts = [*words[2 : 2 + count], blocks]
        for i in range(count):
            own = words[2 + count + i * width :][:width]
            fibers.execute(finite_tests.TEXT, own, starts[i + 1] - starts[i])


@pytest.fixture
def contents(monkeypatch):
    """A function that says what arrays in host memory contain, as the launches find it."""
    host = Host()
    monkeypatch.setattr(finite_tests, "driver", lambda: host)
    monkeypatch.setattr(finite_tests.kernels, "functions", lambda given, _: {k: k for k in given})

    def found(arrays, times=1):
        plan = finite_tests._Plan(host, [(x.nbytes, x.dtype.char) for x in arrays])
        addresses = np.array([x.ctypes.data for x in arrays])
        for _ in range(times):
            clean, answers = plan.run(addresses), plan.answers()
            assert clean == (answers == [NONE] * len(arrays))
        return answers

    return found


def aligned(x):
    """A copy at an address that is divisible by 64, as memory of GPUs is."""
    room = np.zeros(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + x.nbytes].view(x.dtype)
    made[...] = x
    return made


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_place(dtype, contents):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 7, 8, 9, 17, 33):
        clean = aligned(rng.normal(size=size).astype(kind))
        given = [clean]
        for i in range(size):
            for value in (np.nan, -np.nan, np.inf, -np.inf):
                x = aligned(clean)
                x[i] = value
                given.append(x)
        assert contents(given, times=2) == [NONE, *[NAN, NAN, INF, INF] * size]


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_bits(dtype, contents):
    """The largest numbers, the smallest ones, and random bits."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    real = kind if kind.kind != "c" else np.dtype(f"f{kind.itemsize // 2}")
    info = ml_dtypes.finfo(real)
    special = np.array([info.max, -info.max, info.tiny, 0.0, -0.0], real)
    bits = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8).view(real)
    with np.errstate(invalid="ignore"):
        nan, inf = np.isnan(bits), np.isinf(bits)
    values = np.concatenate([special, bits[~nan & ~inf]])
    values = aligned(values[: len(values) // 2 * 2].view(kind))
    assert contents([values] * 100) == [NONE] * 100
    values[-1] = np.inf
    both = aligned(values)
    both[0] = np.nan
    assert contents([values, both]) == [INF, (True, True)]
    rows = [aligned(np.append(x, x).view(kind)) for x in bits[nan][:40]]
    assert contents(rows) == [NAN] * len(rows)


def test_the_text_compiles():
    for kernel in finite_tests.KERNELS:
        assert nvrtc.problem(kernel.source) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_gpu(dtype):
    with toile.enable_x64(True):
        xs = [jnp.ones((n, 33), dtype) for n in (64, 100, 2000)] * 30
        xs[5] = xs[5].at[7, 7].set(jnp.nan)
        xs[40] = xs[40].at[0, 0].set(jnp.inf)
        found = value_ranges.all_non_finite(xs)
        assert [i for i, flags in enumerate(found) if any(flags)] == [5, 40]
        assert found[5] == (True, False) and found[40] == (False, True)
        assert not value_ranges.all_finite(xs) and value_ranges.all_finite(xs[6:40])
        assert value_ranges.all_non_finite(xs)[5] == (True, False)  # the launches are kept
