"""Memory of the GPU's backend on the host: the arena, and graphs by pointers."""

import numpy as np
import pytest

import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import normal, program_of
from toile.backends.gpu import memory
from toile.backends.gpu.memory import Arena

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def test_the_arena_grows_and_counts():
    device = host_driver.HostDevice()
    arena = Arena(device)
    start, first = arena.of(100)
    assert arena.of(50) == (start, first)
    assert arena.of(1000)[1] == first + 1
    assert arena.nbytes == 1000


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(memory, "_arenas", {})
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        yield driver, device


def sums(x):
    return jnp.cumsum(x, 0), (x * 2).sum()


def test_a_graph_for_each_set_of_places(machine):
    driver, device = machine
    program, leaves = program_of(sums, [normal(6, 5)])
    executable = host_driver.compiled(program, device)
    held = [np.array(leaves[0]._data)]
    rooms = [[device.allocate(n) for n in executable.out_bytes] for _ in range(2)]
    places = [[held[0].ctypes.data, *(p for _, p in room)] for room in rooms]
    for turn in range(6):
        executable.run(places[turn % 2])
    assert len(executable.graphs) == 2 and not executable.own
    issued = driver.launched
    executable.run(places[0])
    assert driver.launched == issued  # a graph, not launches


def test_what_never_stays_gets_a_place_of_its_own(machine):
    _, device = machine
    program, leaves = program_of(sums, [normal(6, 5)])
    executable = host_driver.compiled(program, device)
    x = np.array(leaves[0]._data)
    wanted = [np.cumsum(x, 0), np.float32((x * 2).sum())]
    kept = []
    for _ in range(8):
        kept.append([device.allocate(n) for n in executable.out_bytes])
        executable.run([x.ctypes.data, *(p for _, p in kept[-1])])
    assert set(executable.own) == {1, 2} and len(executable.graphs) == 1
    for room in kept:
        for (m, _), w in zip(room, wanted, strict=True):
            np.testing.assert_allclose(m.array(w.shape, w.dtype, 0), w, rtol=1e-5)
