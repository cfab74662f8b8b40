"""Names that jax has had since 0.11 or 0.12: against NumPy, SciPy, and the jax that has them."""

import jax
import numpy as np
import pytest
import scipy.special

import toile
import toile.numpy as jnp
from tests.numpy.compare import check
from toile import ad_checkpoint, lax
from toile.scipy import special

X = np.linspace(-0.95, 0.9, 12, dtype=np.float32).reshape(3, 4)
CASES = """
lib.lax.polynomial(3.0, [1.0, 5.0, 2.0])|lib.lax.polynomial(m, [1, 2.5])|lib.lax.polynomial(2, [1])
lib.lax.polynomial(x, [])|lib.lax.polynomial(x, [y, 2, y])|lib.grad(lambda a: lib.lax.polynomial(a,
 (2., 3., 4.)))(0.5)|lib.lax.one_minus_square(m)|lib.lax.one_minus_square(3)
lib.lax.one_minus_square(c)|lib.grad(lib.lax.one_minus_square)(1e-30)|lib.lax.log2(x)|lib.lax.log2(c)
lib.lax.log2(w)|lib.lax.log2(i)|lib.grad(lib.lax.log2)(3.0)|lib.lax.top_k(x, 2, is_stable=False)
lib.lax.reduce_max(m, (0,), out_sharding=None)|jnp.minmax(m)|jnp.minmax(m, axis=1, keepdims=True)
jnp.minmax(i, initial=(1, 5), where=b)|jnp.minmax(o)|jnp.minmax(m, where=mask)|jnp.minmax(z)
jnp.top_k(z, 3)|jnp.top_k(m, 2, axis=0, mode='smallest')|jnp.top_k(i8, 2, mode='smallest')
jnp.top_k(u, 2, mode='smallest')|jnp.top_k(b, 3, mode='smallest')|jnp.top_k(c, 1)
jnp.top_k(x, 2, mode='some')
"""


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="jax has these since 0.12")
@pytest.mark.parametrize("case", CASES.strip().replace("\n ", " ").replace("\n", "|").split("|"))
def test_as_jax(case):
    check(case)


def test_polynomial_and_its_derivatives():
    coefficients = (1.0, -2.0, 0.5, 3.0)
    reference = np.polynomial.Polynomial(coefficients)
    f = lambda x: lax.polynomial(x, coefficients)
    np.testing.assert_allclose(f(X), reference(X), rtol=1e-6)
    np.testing.assert_allclose(toile.grad(toile.grad(f))(0.3), reference.deriv(2)(0.3), rtol=1e-6)
    slopes = toile.grad(lambda c: lax.polynomial(0.5, c))([jnp.float32(c) for c in coefficients])
    np.testing.assert_allclose(slopes, [1, 0.5, 0.25, 0.125])


def test_logarithm_to_base_2_and_one_minus_square():
    np.testing.assert_allclose(lax.log2(1 + X), np.log2(1 + X), rtol=1e-5, atol=1e-7)
    assert lax.log2(8.0).weak_type and float(lax.log2(8.0)) == 3
    near = np.float32(1 - 2**-20)
    assert float(lax.one_minus_square(near)) == pytest.approx(1 - float(near) ** 2, rel=1e-6)
    assert float(toile.grad(lax.one_minus_square)(1e-30)) == np.float32(-2e-30)


def test_extremes():
    low, high = jnp.minmax(X, axis=0)
    np.testing.assert_array_equal(low, X.min(0))
    np.testing.assert_array_equal(high, X.max(0))
    values, places = jnp.top_k(X, 2, axis=0, mode="smallest")
    np.testing.assert_array_equal(values, np.sort(X, 0)[:2])
    np.testing.assert_array_equal(np.take_along_axis(X, np.asarray(places), 0), values)
    least = jnp.top_k(np.array([-128, 127, 0], np.int8), 2, mode="smallest")[0]
    np.testing.assert_array_equal(least, [-128, 0])


def test_erfcinv():
    y = np.r_[1 - X.ravel(), 0, 2, 1e-30, -0.1, 2.1, np.nan].astype(np.float32)
    np.testing.assert_allclose(special.erfcinv(y), scipy.special.erfcinv(y), rtol=1e-6)
    slope = toile.grad(special.erfcinv)(1e-10)
    x = scipy.special.erfcinv(1e-10)
    assert float(slope) == pytest.approx(-np.sqrt(np.pi) / 2 * np.exp(x * x), rel=1e-5)


def test_print_saved_residuals(capsys):
    def f(p, x):
        y = ad_checkpoint.checkpoint_name(jnp.sin(p["w"] @ x), "y")
        return jnp.sum(y * y)

    args = {"w": jnp.ones((2, 3))}, jnp.ones(3)
    ad_checkpoint.print_saved_residuals(f, *args)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["f32[2,3] from the argument p['w']", "f32[3] from the argument x"]
    assert lines[2].startswith("f32[2] output of cos from ") and lines[2].endswith("(f)")
    assert any(line.startswith("f32[2] named 'y' from ") for line in lines)
    ad_checkpoint.print_saved_residuals(ad_checkpoint.checkpoint(f), *args)
    assert capsys.readouterr().out.splitlines() == lines[:2]
