"""toile.numpy.fft against jax.numpy.fft: values, dtypes, norms, errors, gradients."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy.compare import RECORD, check

CASES = """
jnp.fft.fft(x)|jnp.fft.fft(c)|jnp.fft.fft(i)|jnp.fft.fft(t, axis=1)|jnp.fft.fft(x, n=5)
jnp.fft.fft(x, n=2)|jnp.fft.fft(x, norm='ortho')|jnp.fft.fft(x, norm='forward')
jnp.fft.fft(x, norm='bad')|jnp.fft.ifft(c)|jnp.fft.ifft(c, norm='ortho')
jnp.fft.ifft(c, norm='forward')|jnp.fft.ifft(t, 3, 2)|jnp.fft.rfft(x)|jnp.fft.rfft(t, axis=0)
jnp.fft.rfft(c)|jnp.fft.rfft(x, 8)|jnp.fft.irfft(c)|jnp.fft.irfft(c, 5)
jnp.fft.irfft(c, norm='ortho')|jnp.fft.irfft(t, axis=1)|jnp.fft.hfft(c)|jnp.fft.ihfft(x)
jnp.fft.hfft(c, 7, norm='ortho')|jnp.fft.ihfft(x, norm='forward')|jnp.fft.fft2(m)|jnp.fft.ifft2(m)
jnp.fft.rfft2(t)|jnp.fft.irfft2(t)|jnp.fft.fftn(t)|jnp.fft.ifftn(t, axes=(0, 2))|jnp.fft.rfftn(t)
jnp.fft.irfftn(t, s=(3, 6))|jnp.fft.fftn(t, (2, 2), (0, 1))|jnp.fft.fft2(m, axes=(0, 1, 2))
jnp.fft.fftn(m, axes=(0, 0))|jnp.fft.fft(x, axis=5)|jnp.fft.fftn(t, norm='ortho')|jnp.fft.fftfreq(5)
jnp.fft.fftfreq(4, 0.1)|jnp.fft.rfftfreq(5, d=2)|jnp.fft.fftshift(jnp.arange(5))|jnp.fft.fftshift(t)
jnp.fft.ifftshift(jnp.arange(5))|jnp.fft.fftshift(t, axes=1)|jnp.fft.ifftshift(m, (0, 1))
jnp.fft.fft(bf)|jnp.fft.fftn(jnp.ones((2, 3, 2, 2, 2)))
jnp.fft.rfftn(jnp.arange(48.0).reshape(2, 3, 2, 2, 2))|jnp.fft.irfftn(jnp.ones((2, 3, 2, 2, 2)))
jnp.fft.fft([1.0])|jnp.fft.fft(x, n=0)|lib.jit(jnp.fft.fft)(x)|lib.vmap(jnp.fft.rfft)(m)
jnp.fft.fft(x, axis=(0, 1))|jnp.fft.fftfreq(5, dtype='float16')|jnp.fft.fft(x, axis=None)
"""


@pytest.mark.parametrize("case", [c for line in CASES.strip().split("\n") for c in line.split("|")])
def test_as_jax(case):
    check(case, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", [
    "jnp.sum(jnp.abs(jnp.fft.fft(a)) ** 2 * jnp.arange(4))", "jnp.fft.irfft(jnp.fft.rfft(a))[0, 1]",
    "jnp.sum(jnp.real(jnp.fft.fft2(a)) ** 2)", "jnp.sum(jnp.fft.irfft(a + 0j) ** 3)",
])
def test_gradients_agree(text):
    a = np.arange(12, dtype=np.float32).reshape(3, 4) / 5 - 1
    wanted = RECORD.in_test(lambda: jax.grad(lambda a: eval(text, {"jnp": jax.numpy, "a": a}))(a))
    got = toile.grad(lambda a: eval(text, {"jnp": tnp, "a": a}))(a)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
