"""Functions that take a `device` put their result there."""

import numpy as np
import pytest

import toile
import toile.dlpack
import toile.numpy as jnp

ROWS = {
    "zeros": lambda d: jnp.zeros(3, device=d),
    "full": lambda d: jnp.full(3, 2.0, device=d),
    "ones_like": lambda d: jnp.ones_like(np.ones(3), device=d),
    "arange": lambda d: jnp.arange(3, device=d),
    "eye": lambda d: jnp.eye(3, device=d),
    "linspace": lambda d: jnp.linspace(0, 1, 3, device=d),
    "linspace_step": lambda d: jnp.linspace(0, 1, 3, retstep=True, device=d)[0],
    "array": lambda d: jnp.array([1, 2], device=d),
    "asarray": lambda d: jnp.asarray(np.ones(2), device=d),
    "astype": lambda d: jnp.astype(jnp.ones(2), "int32", device=d),
    "astype_bool": lambda d: jnp.astype(jnp.ones(2, "complex64"), bool, device=d),
    "astype_method": lambda d: jnp.ones(2).astype("int8", device=d),
    "to_device": lambda d: jnp.ones(2).to_device(d),
    "fftfreq": lambda d: jnp.fft.fftfreq(4, device=d),
    "rfftfreq": lambda d: jnp.fft.rfftfreq(4, device=d),
    "from_dlpack": lambda d: jnp.from_dlpack(np.arange(3, dtype="int32"), device=d),
    "from_dlpack_own": lambda d: jnp.from_dlpack(jnp.arange(3), device=d),
    "dlpack": lambda d: toile.dlpack.from_dlpack(np.arange(3, dtype="int32"), device=d),
    "dlpack_own": lambda d: toile.dlpack.from_dlpack(jnp.arange(3), device=d),
}


@pytest.fixture
def second():
    """Another CPU device than the default one."""
    before = toile.config.read("jax_num_cpu_devices")
    toile.config.update("jax_num_cpu_devices", 2)
    yield toile.devices("cpu")[1]
    toile.config.update("jax_num_cpu_devices", before)


@pytest.mark.parametrize("name", ROWS)
def test_results_are_on_the_device(name, second):
    assert ROWS[name](second).devices() == {second}


@pytest.mark.parametrize("of", [jnp.from_dlpack, toile.dlpack.from_dlpack])
def test_a_copy_of_foreign_data_is_one(of):
    data = np.arange(4, dtype="int32")
    found = of(data, copy=True)
    data[0] = 7
    assert found.tolist() == [0, 1, 2, 3]


def test_fractions_are_subtracted_from_the_number_of_elements():
    x = np.array([1.0, 2.0, np.nan, 4.0], np.float32)
    for ddof in (0, 1, 0.5, 2.5, 3, 4):
        known = x[~np.isnan(x)]
        wanted = ((known - known.mean()) ** 2).sum() / (3 - ddof) if ddof < 3 else np.nan
        np.testing.assert_allclose(jnp.nanvar(x, ddof=ddof), wanted, 1e-6)
        np.testing.assert_allclose(jnp.nanstd(x, ddof=ddof), np.sqrt(wanted), 1e-6)


@pytest.mark.parametrize("flag, x, name", [("debug_nans", -1.0, "nan"), ("debug_infs", 0.0, "inf")])
def test_the_error_names_the_flag_that_raised_it(flag, x, name):
    with getattr(toile, flag)(True), pytest.raises(FloatingPointError, match=f"{flag} off"):
        jnp.log(jnp.float32(x))
