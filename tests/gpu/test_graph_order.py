"""The edges of graphs: conflicting steps are ordered, and others are not kept waiting."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile.compiler.ir.operands import Scratch
from toile.platforms.gpu import graph_order
from toile.platforms.gpu.graph_order import GraphOrder
from toile.targets.cuda import driver as driver_module


class Sizes:
    """Steps name ranges of memory directly."""

    def of(self, step):
        return step.reads, step.writes


@pytest.fixture
def captured():
    """A driver that captures on stream 7."""
    made = host_driver.HostDriver()
    before = driver_module.use(made)
    made.begin_capture(7)
    yield made
    driver_module.use(before)


def issue(driver, order, step, launches=1):
    """Capture a step with some launches; its pieces of work are its number, again and again."""
    needed, uses = order.wait(step, {b: b[0] for b, _ in (*step.reads, *step.writes)})
    nodes = []
    for n in range(launches):
        if n:
            order.wait_for(needed)
        driver.recording.append(step)
        nodes += order.last()
    order.add(nodes, needed, uses, launches == 1)


def step_of(reads=(), writes=(), shared=None, small=False):
    """A step that uses ranges of memory, each given as (first, last)."""
    sized = [[((first, i), last - first) for i, (first, last) in enumerate(some)]
             for some in (reads, writes)]
    call = Library(shared, small)
    return SimpleNamespace(reads=sized[0], writes=sized[1], call=call, spans=(reads, writes))


class Library:
    """A call that uses something that its library has once, or if it is small, in four parts."""

    def __init__(self, shared, small):
        self.shared, self.is_small, self.part = shared, small, None

    def use_part(self, part):
        self.part = part

    def excludes(self, other):
        """Whether another call uses the same."""
        if self.shared is None or self.shared != other.shared:
            return False
        return not (self.is_small and other.is_small) or self.part == other.part


def conflict(a, b):
    """Whether two steps may not exchange their order."""
    (reads, writes), (others, written) = a.spans, b.spans

    def meet(some, more):
        return any(x < d and c < y for x, y in some for c, d in more)

    return (a.call.excludes(b.call) or meet(writes, others) or meet(writes, written)
            or meet(reads, written))


def ancestors(graph):
    """For each piece of work, all that come before it."""
    found = []
    for needed in graph.needed:
        mine = set()
        for n in needed:
            mine |= {n - 1} | found[n - 1]
        found.append(mine)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_conflict_is_ordered(seed, captured):
    """Random steps on random ranges, which overlap in every way."""
    chance = random.Random(seed)
    order = GraphOrder(7, Sizes())
    size = chance.choice([12, 60, 400])

    def spans():
        found = []
        for _ in range(chance.randrange(4)):
            first = chance.randrange(size)
            found.append((first, first + 1 + chance.randrange(max(size // 6, 2))))
        return found

    for _ in range(80):
        step = step_of(spans(), spans(), chance.choice([None, None, 0, 1]),
                       chance.random() < 0.7)
        issue(captured, order, step, chance.choice([1, 1, 1, 2, 3]))
        if chance.random() < 0.05:
            order.join()
            captured.recording.append("alone")
            order.start()
    graph = captured.recording
    before = ancestors(graph)
    for i, a in enumerate(graph.work):
        for j in range(i + 1, len(graph.work)):
            b = graph.work[j]
            if a is not b and ("alone" in (a, b) or conflict(a, b)):
                assert i in before[j], (i, j)
    assert max(len(set(n)) for n in graph.needed) <= 3 * graph_order.CHAINS


def test_independent_steps_are_branches(captured):
    order = GraphOrder(7, Sizes())
    issue(captured, order, step_of(writes=[(0, 8)]))
    for i in range(1, 7):
        issue(captured, order, step_of([(0, 8)], [(100 * i, 100 * i + 8)]))
        issue(captured, order, step_of([(100 * i, 100 * i + 8)], [(100 * i, 100 * i + 8)]))
    issue(captured, order, step_of([(100, 620)], [(0, 8)]))
    graph = captured.recording
    assert [len(x) for x in ancestors(graph)] == [0, *[1, 2] * 6, 13]
    assert sorted(graph.needed[-1]) == [3, 5, 7, 9, 11, 13]


def test_small_calls_of_a_library_run_at_the_same_time(captured):
    """As many as there are parts of what they share; a large one waits for all of them."""
    order = GraphOrder(7, Sizes())
    small = [step_of(writes=[(i, i + 1)], shared=0, small=True) for i in range(6)]
    for step in small:
        issue(captured, order, step)
    issue(captured, order, step_of(writes=[(9, 10)], shared=0))
    issue(captured, order, step_of(writes=[(10, 11)], shared=1))
    assert sorted(x.call.part for x in small[:4]) == [0, 1, 2, 3]
    assert [len(x) for x in ancestors(captured.recording)] == [0, 0, 0, 0, 1, 1, 6, 0]


def test_launches_of_a_region_do_not_wait_for_each_other(captured):
    order = GraphOrder(7, Sizes())
    issue(captured, order, step_of(writes=[(0, 8)]))
    issue(captured, order, step_of([(0, 8)], [(8, 16)]), launches=3)
    issue(captured, order, step_of([(8, 16)]))
    assert captured.recording.needed == [(), (1,), (1,), (1,), (2, 3, 4)]


def test_a_chain_stays_one(captured):
    order = GraphOrder(7, Sizes())
    for i in range(50):
        issue(captured, order, step_of([(i, i + 1)], [(i + 1, i + 2)]))
    assert captured.recording.needed == [(), *((i,) for i in range(1, 50))]
    assert order.tails[1:] == [None] * (graph_order.CHAINS - 1)


def branching(p, x):
    """Independent work of several kinds, in a loop and outside of it."""
    def turn(carry, row):
        a, b, cache = carry
        cache = lax.dynamic_update_slice(cache, jnp.tanh(row)[None], (jnp.int32(0), jnp.int32(0)))
        return (jnp.sin(a @ p), jnp.cumsum(b, 0) + row, cache), (a.sum(), jnp.sort(b, 0))

    start = (x, x + 1, jnp.zeros((4, x.shape[1])))
    carry, rows = lax.scan(turn, start, x)
    total = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.cumsum(s[1], 0)),
                           (0, x))[1]
    return carry, rows, total, lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), p + 1


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("seed", range(8))
def test_programs_in_any_order(seed, monkeypatch):
    """Nodes run in random orders that the graph allows; the results are those of NumPy."""
    p, x = normal(5, 5), normal(6, 5)
    program, leaves = program_of(branching, [p, x])
    wanted = toile.tree.leaves(toile.jit(branching)(p, x))
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        driver.random.seed(seed)
        executable = host_driver.compiled(program, device)
        for _ in range(3):
            found = host_driver.run(executable, [a._data for a in leaves], device)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        graph = next(g for g in driver.graphs.values() if g is not None)
        before = ancestors(graph)
        assert any(len(a) < i for i, a in enumerate(before))  # not one chain


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
def test_kernels_start_early(monkeypatch):
    """Kernels that wait for one kernel are started early; others, and other work, are not."""
    def mixed(x):
        y = jnp.cumsum(jnp.sort(x, 0), 0)  # a chain of kernels
        z = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.cumsum(c[1], 1)), (0, y))[1]
        return jnp.sort(z, 1) @ y, jnp.cumsum(x.T, 0)

    program, leaves = program_of(mixed, [normal(5, 5)])
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        executable = host_driver.compiled(program, device)
        for _ in range(3):
            host_driver.run(executable, [a._data for a in leaves], device)
        graph = next(g for g in driver.graphs.values() if g is not None)
    alone = {i + 1 for i, needed in enumerate(graph.needed)
             if len(needed) == 1 and {i + 1, *needed} <= graph.kernels}
    assert graph.started_early and graph.started_early <= alone
    for source in driver.sources:  # all kernels wait before they do anything else
        wrapper = source.rsplit('extern "C"', 1)[1]
        assert wrapper.split("{", 1)[1].lstrip().startswith("start();")


def test_nothing_stays_early(monkeypatch):
    """An early edge that no kernel has used, because its launch was left out, is replaced."""
    asked = []
    monkeypatch.setattr(graph_order, "driver", lambda: SimpleNamespace(
        starts_early=lambda: True, is_kernel=lambda node: True, last_nodes=lambda stream: (),
        wait_for_nodes=lambda stream, nodes, early=False: asked.append((nodes, early))))
    order = GraphOrder(1, None)
    work = graph_order._Work([7], 0, 1, [0] * graph_order.CHAINS)
    order.wait_for([work], early=True)
    order.add([], [work], (0, [], [], []), alone=False)  # as the issuer does it without nodes
    order.wait_for([work])  # by a library call
    order.wait_for([work])
    assert asked == [([7], True), ([7], False)]


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
def test_missing_edges_give_wrong_results(monkeypatch):
    """The test above would notice: without edges some order is wrong."""
    monkeypatch.setattr(graph_order._Memory, "at", lambda self, place: [])
    p, x = normal(5, 5), normal(6, 5)
    program, leaves = program_of(branching, [p, x])
    wanted = toile.tree.leaves(toile.jit(branching)(p, x))
    wrong = False
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        executable = host_driver.compiled(program, device)
        for _ in range(6):
            found = host_driver.run(executable, [a._data for a in leaves], device)
            wrong |= not all(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
                             for a, b in zip(found, wanted, strict=True))
    assert wrong


def test_drivers_without_edges_capture_chains(monkeypatch):
    """An old driver cannot be told what to wait for."""
    program, leaves = program_of(lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0) @ x), [normal(5, 5)])
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        driver.conditionals = -1
        executable = host_driver.compiled(program, device)
        for _ in range(3):
            host_driver.run(executable, [a._data for a in leaves], device)
        graph = next(g for g in driver.graphs.values() if g is not None)
    assert graph.needed == [(), *((i,) for i in range(1, len(graph.work)))]


def test_sizes_of_all_buffers(monkeypatch):
    """Every buffer that a step touches has a size."""
    program, _ = program_of(branching, [normal(5, 5), normal(6, 5)])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        extents = executable.issuer.extents
        for step in executable.plan.all_steps():
            for some in extents.of(step):
                assert all(n > 0 for _, n in some)
            for b in {b for b in step.writes if isinstance(b, Scratch)}:
                assert (b, b.nbytes) in extents.of(step)[1]
