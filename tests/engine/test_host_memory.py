"""Allocations that do not fit into memory are explained before they are tried."""

import pytest

import toile
import toile.numpy as jnp
from toile.engine import host_memory

pytestmark = pytest.mark.cpu  # memory of a GPU: tests/gpu/test_out_of_memory.py
HUGE = 12_000_000  # its square does not fit into the address space of any machine


@pytest.mark.parametrize("count, text", [
    (0, "0 bytes"), (1023, "1.02e+03 bytes"), (1536, "1.5 KiB"), (3 << 30, "3 GiB"),
    (5 << 50, "5 PiB"), (7 << 60, "7 EiB"), (9 << 70, "9.22e+03 EiB"),
])
def test_bytes(count, text):
    assert host_memory.bytes_text(count) == text


@pytest.mark.parametrize("make", [
    lambda x: x - x.T,
    lambda x: jnp.broadcast_to(x, (HUGE, HUGE)) + 1,
    toile.jit(lambda x: x * x.T),
    lambda x: jnp.zeros((HUGE, HUGE)),
    lambda x: jnp.full((HUGE, HUGE), jnp.float32(3)),
    lambda x: toile.random.normal(toile.random.key(0), (HUGE, HUGE)),
])
def test_errors_give_shape_dtype_and_memory(make):
    with pytest.raises(MemoryError, match=r"needed 524 TiB .*float32\[12000000,12000000\].* \(use"):
        make(jnp.ones((HUGE, 1)))


def test_programs_that_fit_are_not_refused(monkeypatch):
    program = toile.make_jaxpr(lambda x: x + 1)(jnp.ones((1 << 14, 1 << 15))).jaxpr
    monkeypatch.setattr(host_memory, "_meminfo", dict)  # the memory is not known
    host_memory.check_outputs("f", program)
    both = {"MemTotal": 1 << 30, "SwapTotal": 1 << 31}
    monkeypatch.setattr(host_memory, "_meminfo", lambda: both)
    host_memory.check_outputs("f", program)
    monkeypatch.setattr(host_memory, "_meminfo", lambda: {"MemTotal": 1 << 30})
    with pytest.raises(MemoryError, match="needed 2 GiB .* got a machine with 1 GiB"):
        host_memory.check_outputs("f", program)
