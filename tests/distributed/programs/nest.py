"""Mappings within mappings, loops with collectives, fewer devices, forked children, same bits."""

import os
import sys

import numpy as np

import toile
from toile import lax

toile.distributed.initialize(initialization_timeout=60)
local, count = toile.local_device_count(), toile.device_count()
own = [d.id for d in toile.local_devices()]


def check(fun, x, expected):
    """`pmap(fun)` gives the same everywhere."""
    found = toile.pmap(fun, "i")(x[own])
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-5)


x = np.arange(count * 3, dtype=np.float32).reshape(count, 1, 3)
check(lambda x: toile.pmap(lambda y: lax.psum(y, ("i", "j")), "j")(x), x, x.sum((0, 1)))
y = np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3)
check(lambda y: toile.vmap(lambda z: lax.psum(z, ("i", "j")), axis_name="j")(y), y, y.sum((0, 1)))
loop = lambda c, _: (lax.pmean(c, "i"), None)
check(lambda y: lax.scan(loop, y, None, length=5)[0], y, y.mean(0))

first = [d for d in toile.devices() if d.local_hardware_id == 0]
some = toile.pmap(lambda x: lax.psum(x, "i"), "i", devices=first)(np.ones((1, 2), np.float32))
np.testing.assert_array_equal(some, np.full((1, 2), count / local))

big = np.random.default_rng(toile.process_index()).normal(size=(local, 200000)).astype(np.float32)
total = toile.pmap(lambda x: lax.psum(x, "i"), "i")
bits = np.asarray(total(big)).tobytes()
if os.fork() == 0:
    sys.exit(0)  # a child that ends in good order says nothing in its parent's name
os.wait()
for _ in range(5):
    assert np.asarray(total(big)).tobytes() == bits
print(f"rank {toile.process_index()} agrees")
