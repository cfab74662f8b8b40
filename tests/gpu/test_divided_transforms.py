"""The division of inverse Fourier transforms, fused with the operations after it."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")
CASES = {
    "a map": (lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x) * 2) + 1, 0),
    "a sum": (lambda x: (jnp.fft.irfft(jnp.fft.rfft(x)) * 3).sum(0), 0),
    "other axes": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x, axis=0), axis=0) * 2, 0),
    "a gradient": (lambda x: toile.grad(
        lambda x: (jnp.fft.irfft2(jnp.fft.rfft2(x) ** 2) ** 2).sum())(x), 0),
    "returned": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), 1),
    "returned and read": (lambda x: (lambda y: (y, y * 2))(jnp.fft.irfft(jnp.fft.rfft(x))), 1),
    "multiplied": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)) @ x[0].T, 1),
    "complex": (lambda x: jnp.fft.ifft(x * 1j).real * 2, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_divisions(name, monkeypatch):
    """The values, and how many divisions have a kernel of their own."""
    fun, kernels = CASES[name]
    x = np.random.default_rng(0).standard_normal((3, 8, 6)).astype(np.float32)
    program, leaves = program_of(fun, [x])
    wanted = toile.tree.leaves(fun(jnp.asarray(x)))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        found = host_driver.run(executable, [a._data for a in leaves], device)
        notes = [x.note for s in executable.plan.steps for x in getattr(s, "launches", ())]
    assert notes.count("divide by length") == kernels
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
