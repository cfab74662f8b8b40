"""The kernel that looks for NaNs and infinities, run on the host."""

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


def flagged(arrays):
    """The flags that the launches for arrays in host memory set."""
    flags = np.zeros(len(arrays), np.int32)
    given = [(x.ctypes.data, x.nbytes, x.dtype.char) for x in arrays]
    for many, words, blocks in finite_tests.launches(flags.ctypes.data, given):
        if not many:
            fibers.execute(finite_tests.TEXT, words, blocks)
            continue
        count, width = words[:2]
        starts = [*words[2 : 2 + count], blocks]
        for i in range(count):
            own = words[2 + count + i * width :][:width]
            fibers.execute(finite_tests.TEXT, own, starts[i + 1] - starts[i])
    return flags.astype(bool).tolist()


def aligned(x):
    """A copy at an address that is divisible by 64, as memory of GPUs is."""
    room = np.zeros(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + x.nbytes].view(x.dtype)
    made[...] = x
    return made


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_place(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 7, 8, 9, 17, 33):
        clean = aligned(rng.normal(size=size).astype(kind))
        found = [clean]
        for i in range(size):
            for value in (np.nan, np.inf, -np.inf):
                x = aligned(clean)
                x[i] = value
                found.append(x)
        assert flagged(found) == [False] + [True] * 3 * size


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_numbers(dtype):
    """The largest numbers, the smallest ones, and any bits that are no NaN or infinity."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    real = kind if kind.kind != "c" else np.dtype(f"f{kind.itemsize // 2}")
    info = ml_dtypes.finfo(real)
    special = np.array([info.max, -info.max, info.tiny, 0.0, -0.0], real)
    bits = np.random.default_rng(1).integers(0, 256, 40_000, dtype=np.uint8).view(real)
    with np.errstate(invalid="ignore"):
        wide = bits.astype(np.float64)
    bits = bits[np.isfinite(wide)]
    values = np.concatenate([special, bits])
    values = values[: len(values) // 2 * 2].view(kind)
    assert flagged([aligned(values)] * 100) == [False] * 100
    values = aligned(values)
    values[-1] = np.nan
    assert flagged([values]) == [True]


def test_the_text_compiles():
    for kernel in finite_tests.KERNELS:
        assert nvrtc.problem(kernel.source) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_gpu(dtype):
    with toile.enable_x64(True):
        xs = [jnp.ones((n, 33), dtype) for n in (64, 100, 2000)] * 30
        bad = xs[5].at[7, 7].set(jnp.nan)
        xs[5] = bad
        xs[40] = xs[40].at[0, 0].set(jnp.inf)
        found = value_ranges.all_non_finite(xs)
        assert [i for i, flags in enumerate(found) if any(flags)] == [5, 40]
        assert found[5] == (True, False) and found[40] == (False, True)
