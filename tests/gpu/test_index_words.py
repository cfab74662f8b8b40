"""Bad indices on a GPU are reported when the host waits, whatever ran in between."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler import index_tests
from toile.compiler.index_tests import Form, worst_index
from toile.engine.out_of_bounds import forget_places
from toile.errors import OutOfBoundsWarning
from toile.platforms import reference
from toile.platforms.gpu.index_words import LateIndex
from toile.primitives.bounds import unchecked

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
@pytest.mark.parametrize(("name", "in_loops"), [
    *[(name, True) for name in PROGRAMS], *[(name, False) for name in PROGRAMS if name != "while"]])
def test_reported_at_the_next_wait(name, in_loops, monkeypatch, recwarn):
    monkeypatch.setattr("toile.platforms.gpu.executables.tests_in_loops", in_loops)
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


W = np.ones((4, 6, 2), np.float32)
LOOPS = {  # (number of tests, of those outside loops)
    "inputs": (1, 1, lambda x, i: lax.scan(lambda c, j: (c + x[j], None), x[0], i)),
    "constants": (1, 1, lambda x, i: lax.scan(lambda c, w: (c + x[i] + w, None), x[:3], W[:, :3])),
    "both": (1, 1, lambda x, i: lax.scan(lambda c, j: (c + x[i + 2 * j], None), x[:3], i)),
    "positions": (1, 0, lambda x, i: lax.fori_loop(0, 6, lambda k, c: c + x[k], x[0])),
    "positions that go too far": (
        1, 1, lambda x, i: lax.scan(lambda c, k: (c + x[k], None), x[0], jnp.arange(7))),
    "the carry": (1, 0, lambda x, i: lax.scan(
        lambda c, w: (jnp.argmax(x[c]) + i[0], None), i[0], None, length=3)),
    "the carry and inputs": (1, 0, lambda x, i: lax.scan(
        lambda c, j: (jnp.sum(x[c + j]).astype(int), None), 0, i)),
    "costly": (1, 0, lambda x, i: lax.scan(
        lambda c, w: (c + x[(w @ x[0]).astype(int)], None), x[:6], W)),
    "a branch": (1, 0, lambda x, i: lax.scan(lambda c, j: (
        lax.cond(j > 1, lambda: c + x[j], lambda: c), None), x[0], i)),
    "a jitted function": (1, 1, lambda x, i: lax.scan(
        lambda c, j: (c + toile.jit(lambda k: x[k + 1])(j), None), x[0], i)),
    "an inner loop": (2, 2, lambda x, i: lax.scan(lambda c, j: (lax.scan(
        lambda d, k: (d + x[k] + x[j], None), c, i)[0], None), x[0], i)),
    "an inner loop over both": (1, 1, lambda x, i: lax.scan(lambda c, j: (lax.scan(
        lambda d, k: (d + x[k + j], None), c, i)[0], None), x[0], i)),
    "an inner loop and the outer carry": (1, 0, lambda x, i: lax.scan(lambda c, j: (lax.scan(
        lambda d, k: (d + x[k + c], None), x[0], i)[0].sum().astype(int), None), 0, i)),
    "a while loop": (2, 0, PROGRAMS["while"]),
    "after a loop": (1, 1, lambda x, i: x[lax.fori_loop(0, 3, lambda k, c: c + i[0], 0)]),
    "no turns": (1, 0, lambda x, i: lax.scan(lambda c, j: (c + x[j], None), x[0], i[:0])),
    "a branch outside": (1, 1, lambda x, i: lax.cond(i[0] > 1, lambda: x[i], lambda: x[:3])),
}


@pytest.mark.parametrize("name", LOOPS)
def test_without_tests_in_loops_indices_are_tested_that_can_be_computed_outside(name):
    in_all, outside, f = LOOPS[name]
    program, _ = program_of(f, (X, GOOD))
    for expected, in_loops in ((in_all, True), (outside, False)):
        found = index_tests.tested(program, in_loops)
        assert len(found.bounds if found else ()) == expected
    if outside:
        for i in (GOOD, BAD, np.array([-7, 0, 0], np.int32), np.array([3, 3, 6], np.int32)):
            everything, less = (
                {k for k, n in zip(t.bounds, reference.Executable(t.program)([X, i])[-1][1:],
                                   strict=True) if n}
                for t in (index_tests.tested(program), index_tests.tested(program, False)))
            assert everything == less


@pytest.mark.parametrize("name", LOOPS)
def test_without_tests_in_loops_loops_are_unchanged(name):
    program, _ = program_of(LOOPS[name][2], (X, GOOD))
    found = index_tests.tested(program, False)
    if found:
        def loops(p):
            return [e.op for e in p.equations if e.op.turns is not None]
        assert loops(found.program) == loops(unchecked(program))
