"""Eight CPU devices for the tests of this folder."""

import pytest

import toile

DEVICES = 8


@pytest.fixture(autouse=True)
def devices():
    """The devices; as many as before after each test."""
    before = toile.config.read("jax_num_cpu_devices")
    toile.config.update("jax_num_cpu_devices", DEVICES)
    yield toile.devices()
    toile.config.update("jax_num_cpu_devices", before)
