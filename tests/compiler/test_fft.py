"""Fourier transforms in compiled code: as NumPy computes them, and without a step in Python."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases import noted
from toile.compiler.compilation import compile_program
from toile.compiler.ir.steps import EagerStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.compiler.verify.contents import PlanError
from toile.platforms.cpu import plan_reader
from toile.platforms.cpu.target import Target

pytestmark = pytest.mark.cpu
FFTS = {"fft": np.fft.fft, "ifft": np.fft.ifft, "rfft": np.fft.rfft, "irfft": np.fft.irfft}
# One pass and several of each radix, large ones too; lengths that are divided; large primes, which
# are convolutions.
LENGTHS = (1, 2, 3, 4, 7, 8, 11, 12, 13, 17, 30, 45, 64, 97, 128, 146, 210, 256, 509, 511, 512,
           1000, 1155, 1271, 4096, 4099, 20480)  # fmt: skip
BATCHES = (1, 5, 16, 35)  # fewer signals than lanes, as many, and more
RNG = np.random.default_rng(0)


@pytest.fixture(params=["complex64", "complex128"])
def dtype(request):
    with toile.enable_x64(request.param == "complex128"):
        yield request.param


def signals(shape, dtype):
    """Complex numbers."""
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def check(fun, want, x):
    """Compare a compiled function with NumPy's in float64."""
    jitted = toile.jit(fun)
    got = np.asarray(jitted(x))
    want = want(x.astype("complex128" if x.dtype.kind == "c" else "float64"))
    assert got.shape == want.shape
    size = np.sqrt(np.mean(np.abs(want) ** 2))
    bound = 4 * np.finfo(got.dtype).eps * np.log2(x.size + 2) * size
    assert np.abs(got - want).max() <= bound


@pytest.mark.parametrize("n", LENGTHS)
def test_length(n, dtype):
    for batch in BATCHES if n <= 1155 else (1, 17):
        x = signals((batch, n), dtype)
        with noted(f"{batch} signals"):
            check(jnp.fft.fft, np.fft.fft, x)
            check(jnp.fft.ifft, np.fft.ifft, x)
            check(jnp.fft.rfft, np.fft.rfft, x.real.copy())
            half = x[:, : n // 2 + 1].copy()
            check(lambda x: jnp.fft.irfft(x, n), lambda x: np.fft.irfft(x, n), half)


@pytest.mark.parametrize("shape", [(8, 8), (30, 17), (4, 64, 5), (33, 16, 20), (2, 3, 4, 5),
                                   (64, 130), (513, 24)])  # fmt: skip
def test_axes(shape, dtype):
    x = signals(shape, dtype)
    for name in ("fftn", "ifftn", "irfftn", "rfftn"):
        with noted(name):
            given = x.real.copy() if name == "rfftn" else x
            check(getattr(jnp.fft, name), getattr(np.fft, name), given)
    for axis in range(len(shape)):
        with noted(f"axis {axis}"):
            check(lambda x, axis=axis: jnp.fft.fft(x, axis=axis),
                  lambda x, axis=axis: np.fft.fft(x, axis=axis), x)
            check(lambda x, axis=axis: jnp.fft.ifft(x.T, axis=axis),
                  lambda x, axis=axis: np.fft.ifft(x.T, axis=axis), x)


def test_views():
    """Strided operands: every other row, reversed columns, a broadcast row."""
    x = signals((12, 64), "complex64")
    check(lambda x: jnp.fft.fft(x[::2]), lambda x: np.fft.fft(x[::2]), x)
    check(lambda x: jnp.fft.fft(x[:, ::-2]), lambda x: np.fft.fft(x[:, ::-2]), x)
    check(lambda x: jnp.fft.fft(jnp.broadcast_to(x[0], (20, 64))),
          lambda x: np.fft.fft(np.broadcast_to(x[0], (20, 64))), x)
    check(lambda x: jnp.fft.rfft(x.real[:, 3:60]), lambda x: np.fft.rfft(x.real[:, 3:60]), x)


def test_nothing_in_python():
    x = signals((3, 40), "complex64")
    for fun in (jnp.fft.fft2, jnp.fft.ifftn, lambda x: jnp.fft.rfft(x.real), jnp.fft.irfft,
                lambda x: jnp.fft.fft(x[:, :37])):
        assert "0 steps in Python" in str(toile.explain(fun)(x)).splitlines()[0]


def test_parts_of_the_spectrum_that_irfft_ignores():
    """The first and the middle number of a real signal's spectrum are real."""
    x = signals((3, 9), "complex64")
    other = x.copy()
    other[:, [0, 8]] = other[:, [0, 8]].real + 7j
    f = toile.jit(lambda x: jnp.fft.irfft(x, 16))
    np.testing.assert_array_equal(f(x), f(other))


def test_in_place():
    """A donated operand may be where the result is stored."""
    x = signals((40, 96), "complex64")
    want = np.fft.fft2(x)
    got = toile.jit(jnp.fft.fft2, donate_argnums=0)(jnp.array(x))
    np.testing.assert_allclose(got, want, atol=1e-3)


def plan_of(fun, shape, dtype):
    """The plan for arrays that are never made."""
    aval = toile.ShapeDtypeStruct(shape, dtype)
    return planned(optimize(toile.make_jaxpr(fun)(aval).jaxpr), Target(2))


@pytest.mark.parametrize(("n", "native"), [
    (1 << 26, True), (1 << 27, False), (13**7, False), (131071, True), (1000003, False)])
def test_lengths_without_code(n, native):
    """Planning ends, and leaves to NumPy what would need more than two divisions or huge tables."""
    for fun, real in ((jnp.fft.fft, False), (jnp.fft.rfft, True)):
        shape = (2 * n if real else n,)
        plan = plan_of(fun, shape, "float32" if real else "complex64")
        assert any(isinstance(step, EagerStep) for step in plan.steps) == (not native)


def test_tables_are_small():
    """Plans are stored on disk: long signals have no table of their length."""
    for fun, dtype in ((jnp.fft.fft, "complex64"), (jnp.fft.rfft, "float32")):
        plan = plan_of(fun, (1 << 24,), dtype)
        assert sum(c.array.nbytes for c in plan.constants.values()) < 1 << 21


def test_a_changed_table_is_found():
    """The verifier knows what the tables of a kernel contain."""
    program = optimize(toile.make_jaxpr(jnp.fft.fft)(jnp.ones(48, "complex64")).jaxpr)
    made = compile_program(program, Target(2))
    plan_reader.verify(made)
    array = made.image.constants[0][1]
    array.view(np.uint8)[0] ^= 1
    for table in made.plan.constants.values():
        if table.array is array:
            table.array = array.copy()
            table.array.view(np.uint8)[0] ^= 1
    with pytest.raises(PlanError):
        plan_reader.verify(made)
