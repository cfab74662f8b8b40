"""Bad indices on a GPU are reported when the host waits, whatever ran in between."""

import numpy as np
import pytest

import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.index_tests import Form, worst_index
from toile.engine.out_of_bounds import forget_places
from toile.errors import OutOfBoundsWarning
from toile.platforms import reference
from toile.platforms.gpu.index_words import LateIndex


@pytest.fixture(autouse=True)
def tested(monkeypatch):
    monkeypatch.setattr("toile.platforms.gpu.executables.tests_always", True)


X = np.arange(12, dtype=np.float32).reshape(6, 2)
GOOD, BAD = np.array([0, -6, 5], np.int32), np.array([1, 9, 2], np.int32)
PROGRAMS = {
    "read": lambda x, i: x[i],
    "take": lambda x, i: jnp.take(x, i, axis=0),
    "set": lambda x, i: x.at[i].set(0.0),
    "add": lambda x, i: x.at[i].add(1.0),
    "scan": lambda x, i: lax.scan(lambda c, j: (c + x[j], None), x[0], i),
    "many": lambda x, i: [x[i + 0 * k] for k in range(6)],
    "while": lambda x, i: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + x[i[s[0]]]), (0, x[0])),
}


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize(("low", "high"), [(0, 9), (-10, 9), (-(1 << 63), 99)])
def test_outside_jit_the_worst_index_is_read_later(dtype, low, high):
    limits = np.iinfo(dtype)
    form = Form(np.dtype(dtype), low, high)
    run = reference.Executable(worst_index((3,), form))
    edges = [low - 1, low, -1, 0, high, high + 1, limits.min, limits.max]
    for edge in (v for v in edges if limits.min <= v <= limits.max):
        (worst,) = run([np.array([0, edge, 0], dtype)])
        told = []
        LateIndex(_OnDevice(worst), form, _Bounds(told)).read()
        assert told == ([] if low <= edge <= high else [edge])


class _OnDevice:
    def __init__(self, value):
        self.get = lambda: value


class _Bounds:
    def __init__(self, told):
        self.report = told.append


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("name", PROGRAMS)
def test_reported_at_the_next_wait(name, monkeypatch, recwarn):
    program, _ = program_of(PROGRAMS[name], (X, GOOD))
    forget_places()
    with host_driver.host_gpu(monkeypatch) as (_, device):
        made = host_driver.compiled(program, device)
        for i in (GOOD, GOOD, GOOD):  # step by step, and as a graph
            host_driver.run(made, [X, i], device)
        device.synchronize()
        assert not recwarn.list
        for i in (GOOD, BAD, GOOD):  # the bad one is kept
            host_driver.run(made, [X, i], device)
        assert not recwarn.list
        with pytest.warns(OutOfBoundsWarning, match="index 9 is out of bounds for axis 0 with "):
            device.synchronize()
        host_driver.run(made, [X, GOOD], device)
        forget_places()
        device.synchronize()
        assert not recwarn.list
