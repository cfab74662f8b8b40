"""Special functions in kernels: as outside jit on the whole line, and no step runs in Python."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

LINE = np.concatenate([
    np.linspace(-30, 30, 601), np.geomspace(1e-30, 1e30, 61), -np.geomspace(1e-30, 1e3, 61),
    [0.0, -0.0, 8.0, -8.0, np.nextafter(8, 9), -1.0, -2.0, 0.5, np.inf, -np.inf, np.nan]])


def polygamma(order):
    return lambda x: lax.polygamma(jnp.full_like(x, order), x)


FUNCTIONS = {
    "bessel_i0e": lax.bessel_i0e, "bessel_i1e": lax.bessel_i1e,
    **{f"polygamma of order {n}": polygamma(n) for n in range(7)},
}


@pytest.mark.cpu
@pytest.mark.parametrize("dtype, bound", [("bfloat16", 2**-7), ("float16", 2**-9),
                                          ("float32", 2e-7), ("float64", 2e-14)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, dtype, bound):
    fun = FUNCTIONS[name]
    with toile.enable_x64(dtype == "float64"):
        with np.errstate(all="ignore"):
            x = jnp.asarray(LINE.astype(jnp.dtype(dtype)))
        assert "0 steps in Python" in str(toile.explain(lambda x: fun(x))(x)).splitlines()[0]
        got, want = (np.asarray(f(x)).astype(np.float64)
                     for f in (toile.jit(lambda x: fun(x)), fun))
    finite = np.isfinite(want) & np.isfinite(got)
    wrong = ~finite & ~((got == want) | (np.isnan(got) & np.isnan(want)))
    assert not wrong.any(), (LINE[wrong], got[wrong], want[wrong])
    # Near the zeros of a polygamma function both lose digits.
    least = 1e-11 if "gamma" in name else np.finfo(np.float32).tiny
    wrong = finite.copy()
    wrong[finite] = np.abs(got[finite] - want[finite]) > bound * np.abs(want[finite]) + least
    assert not wrong.any(), (LINE[wrong], got[wrong], want[wrong])


def test_gradients_have_native_code_too():
    x = jnp.linspace(0.1, 5.0, 50)
    for fun in (lax.digamma, lax.lgamma, toile.scipy.special.i0, toile.scipy.special.i1,
                toile.grad(lambda x: lax.lgamma(x).sum())):
        step = toile.grad(lambda x: fun(x).sum())  # noqa: B023
        assert "0 steps in Python" in str(toile.explain(step)(x)).splitlines()[0]
        np.testing.assert_allclose(toile.jit(step)(x), step(x), rtol=3e-6)
