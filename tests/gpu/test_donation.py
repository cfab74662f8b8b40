"""Which results may lie in the place of donated arguments."""

import weakref

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from benchmarks import operation_cells, zoo
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile.engine.buffers import signature
from toile.engine.trees import flatten
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import exits, memory
from toile.platforms.gpu.exits import PATIENCE, GpuExit, oldest

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def momentum(p, v, g):
    v = 0.9 * v + g
    return p - 0.1 * v, v


CASES = {
    "elementwise": (lambda p, g: p - 0.1 * g, [normal(6, 7), normal(6, 7)], [0], {0: 0}),
    "read after it is written": (
        lambda p, g: (p - 0.1 * g, jnp.sort(p, 0)), [normal(6, 7), normal(6, 7)], [0], {}),
    "read elsewhere by the same kernel": (
        lambda p: p + p.T, [normal(6, 6)], [0], {}),
    "read before": (
        lambda p, x: (x @ p, p * 2), [normal(6, 7), normal(3, 6)], [0], {1: 0}),
    "another shape": (lambda p: p.sum(0), [normal(6, 7)], [0], {}),
    "returned as it is": (lambda p, q: (p, q + 1), [normal(5), normal(5)], [0], {0: 0}),
    "returned twice": (lambda p, q: (p, q + 1, p), [normal(5), normal(5)], [0], {0: 0}),
    "exchanged": (lambda p, q: (q, p), [normal(5), normal(5)], [0, 1], {}),
    "returned and read": (lambda p, q: (p, q @ p), [normal(5, 5)] * 2, [0, 1], {0: 0}),
    "returned transposed": (lambda p, q: p.T, [normal(5, 5)] * 2, [0], {}),
    "not donated": (lambda p, g: p - g, [normal(5), normal(5)], [1], {0: 1}),
    "read by two kernels": (lambda p, v, g: (p - v, v + g), [normal(9)] * 3, [0, 1], {0: 0}),
    "momentum": (momentum, [normal(9)] * 3, [0, 1], {0: 0, 1: 1}),
    "a part in place, then a copy of others": (
        lambda x: jnp.concatenate([x[1:], jnp.tanh(x[-1:])]), [normal(9)], [0], {}),
    "a part in place and a copy of the same": (
        lambda x: jnp.concatenate([jnp.tanh(x[:5]), x[:4]]), [normal(9)], [0], {}),
    "read beside a part, before the rest": (
        lambda x: jnp.concatenate([jnp.sin(x[:5]), jnp.sort(x)[:4]]), [normal(9)], [0], {}),
    "read between a part and the rest": (
        lambda x, w: jnp.concatenate([jnp.sin(x[:5]), (x @ w)[:4]]),
        [normal(9), normal(9, 6)], [0], {}),
    "a part from elsewhere, and a later one in place": (
        lambda x, u: jnp.concatenate([jnp.sin(u), jnp.cumsum(x[5:]) + x[5:]]),
        [normal(9), normal(5)], [0], {}),
    "a part in place, the rest from elsewhere": (
        lambda x, u: jnp.concatenate([jnp.sin(x[:5]), u]), [normal(9), normal(4)], [0], {0: 0}),
    "rows that are set": (
        lambda p, u: p.at[jnp.array([3, 1])].set(u), [normal(40, 5), normal(2, 5)], [0], {0: 0}),
    "rows that are set, and a sum of the old ones": (
        lambda p, u: (p.at[jnp.array([3, 1])].set(u), jnp.cumsum(p[jnp.array([1, 2])] @ p.T)),
        [normal(40, 5), normal(2, 5)], [0], {}),
    "rows that are added": (
        lambda p, u: p.at[jnp.array([3, 1, 3])].add(u), [normal(40, 5), normal(3, 5)], [0],
        {0: 0}),
    "a block that is set": (
        lambda p, u: lax.dynamic_update_slice(p, u, (u[0, 0].astype(int), 1)),
        [normal(40, 5), normal(2, 3)], [0], {0: 0}),
    "rows that are set after others are read": (
        lambda p, u: p.at[jnp.array([3, 1])].set(u + p[jnp.array([1, 2])]),
        [normal(40, 5), normal(2, 5)], [0], {0: 0}),
    "rows that are set before others are read": (
        lambda p, u: (p.at[jnp.array([3, 1])].set(u), jnp.sort(p, 0)),
        [normal(40, 5), normal(2, 5)], [0], {0: 0}),
    "parts of rows in place": (
        lambda x, u: jnp.concatenate([jnp.sin(x[:, :5]), u], 1),
        [normal(3, 9), normal(3, 4)], [0], {0: 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_overwritten(name, monkeypatch):
    fun, args, donated, wanted = CASES[name]
    program, leaves = program_of(fun, args)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        found = executable.overwritten(donated)
        assert found == wanted
        apart = host_driver.run(executable, [x._data for x in leaves], device)
        held = [np.array(x._data) for x in leaves]
        memory = {i: device.allocate(n) for i, n in enumerate(executable.out_bytes)}
        outs = [held[found[i]].ctypes.data if i in found else memory[i][1] for i in memory]
        executable.run([x.ctypes.data for x in held] + outs)
        for i, a in enumerate(apart):
            got = held[found[i]] if i in found else memory[i][0].array(a.shape, a.dtype, 0)
            np.testing.assert_array_equal(got, a)


def test_only_rows_of_a_table_are_touched(monkeypatch):
    """A step with SGD and donated tables copies none of them: it launches nothing of their size."""
    table, ids = normal(5000, 4), np.array([5, 7, 5, 4999])

    def step(p, ids):
        return p - 0.1 * toile.grad(lambda p: jnp.sum(p[ids] ** 2))(p)

    program, leaves = program_of(step, [table, ids])
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        executable = host_driver.compiled(program, device)
        assert executable.overwritten([0]) == {0: 0}
        held = [np.array(x._data) for x in leaves]
        launched = []
        launch = driver.launch
        monkeypatch.setattr(driver, "launch", lambda *x: (launched.append(x[0]), launch(*x)))
        executable.run([x.ctypes.data for x in (*held, held[0])])
        beside = len(launched)
        other = np.empty_like(held[0])
        executable.run([*(x.ctypes.data for x in held), other.ctypes.data])
    assert len(launched) - beside == beside + 1  # the copy
    wanted = np.asarray(step(table, ids))
    np.testing.assert_allclose(held[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(other, np.asarray(step(wanted, ids)), rtol=1e-6)


def test_tables_and_their_sums_of_squares_are_updated_in_place(monkeypatch):
    """Also if a kernel reads rows of a table beside the copy that the update begins with."""
    found = zoo.programs()["recommender"]
    step, state, batch = found.make(operation_cells.library("toile"), batch=64, dense=4, tables=2,
                                    rows=3000, d=16, width=32)
    program, _ = program_of(step, (state, *batch))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        placed = executable.overwritten(range(len(flatten(state)[0])))
        tables = [i for i, o in enumerate(program.outputs) if o.aval.shape == (3000, 16)]
        assert len(tables) == 4 and all(placed.get(i) == i for i in tables)


def test_leaves_stay(monkeypatch):
    """A result that may not lie in the place of its like leaves that of others alone: each would
    take another's, and all would move on with every call."""
    def step(ps):
        new = [ps[0] * 2]
        for p in ps[1:]:  # the one before is read once more before the next is written
            new.append(p * 2 + (jnp.sort(new[-1], 0) @ ps[len(new) - 1].T).sum())
        return new

    program, _ = program_of(step, ([normal(6, 7) for _ in range(4)],))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        may, inputs = executable.plan.may_overwrite(), program.inputs
        results = [r.buffer for r in executable.plan.outputs]
        own = {i: i for i in range(4) if may(inputs[i], results[i])}
        others = [i for i in range(4) for j in range(4) if i != j and may(inputs[j], results[i])]
        assert executable.overwritten(range(4)) == own
        assert {*others} - {*own}  # there was something to leave alone


def test_results_beyond_the_donated_take_what_is_left(monkeypatch):
    def f(p, x):
        y = jnp.sort(p + p.T, 0)
        return y, x * 2, p * 2 + y

    program, _ = program_of(f, [normal(6, 6)] * 2)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        assert executable.overwritten([0]) == {2: 0}


def test_many_leaves(monkeypatch):
    """Every result finds its own place, and finding it does not go through the plan for each."""
    count, looked = 120, []
    monkeypatch.delenv("TOILE_DEBUG", raising=False)  # the verifier goes through the plan, too

    class Steps(list):
        def __iter__(self):
            looked.append(self)
            return super().__iter__()

    leaves = [normal(6, 7) for _ in range(2 * count)]
    program, _ = program_of(lambda *x: [momentum(p, 0.5, g)[0] for p, g in
                                        zip(x[:count], x[count:])], leaves)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        executable.plan.steps = Steps(executable.plan.steps)
        assert executable.overwritten(range(count)) == {i: i for i in range(count)}
    assert len(looked) <= 2


def test_memory_is_used_again_in_order():
    pool, made = ["first", "second"], []
    found = [oldest(pool, 8, lambda n: made.append(n) or "new") for _ in range(3)]
    assert found == ["first", "second", "new"] and made == [8] and not pool


@pytest.fixture(params=[0, 32], ids=["loop", "text"])
def most_written(request, monkeypatch):
    """How many results an exit may have that is written as text; others use a loop."""
    monkeypatch.setattr(exits, "MOST_WRITTEN", request.param)


def test_exits(most_written, monkeypatch):
    """Results are in the right memory, by text and by loop: in that of donated arguments, in a pool
    if the function donates, or else in memory of earlier results."""
    p, x = normal(6, 7), normal(3, 6)
    program, leaves = program_of(lambda p, x: (x @ p, p * 2, x.sum()), [p, x])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
        for donated, hosted in ([], []), ([0], []), ([0], [1]), ([], [0, 1]):
            exit = GpuExit(executable, [], hosted, outs, list, donated)
            for _ in range(4):
                blocks = []
                for a in leaves:
                    memory, place = device.allocate(a._data.nbytes)
                    memory.array(a.shape, a.dtype, 0)[...] = a._data
                    blocks.append(Slot((memory, place)))
                    del memory
                first = blocks[0].block[1]
                results = exit.leave([b.block[1] for b in blocks],
                                     tuple(b.block for b in blocks))
                assert (results[1]._pointer == first) == (donated == [0])
                for found, wanted in zip(results, (x @ p, p * 2, x.sum()), strict=True):
                    memory, start = found._memory
                    data = memory.array(found.shape, wanted.dtype, found._pointer - start)
                    np.testing.assert_allclose(data, wanted, rtol=1e-5)


class Slot:
    """Holds a block as an array does."""

    def __init__(self, block):
        self.block = block


def test_an_exit_that_fails_keeps_no_memory(most_written, monkeypatch):
    program, leaves = program_of(lambda p: (p * 2, p.sum()), [normal(6, 7)])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
        exit = GpuExit(executable, [], [], outs, list, [0])
        made = []

        def allocate(nbytes):
            memory, place = type(device).allocate(device, nbytes)
            made.append(weakref.ref(memory))
            return memory, place

        monkeypatch.setattr(device, "allocate", allocate, raising=False)
        monkeypatch.setattr(executable, "run", lambda *_: 1 / 0)
        exit = GpuExit(executable, [], [], outs, list, [0])
        held = np.array(leaves[0]._data)
        with pytest.raises(ZeroDivisionError) as error:
            exit.leave([held.ctypes.data], (held,))
        assert len(made) == 2 and not any(m() for m in made), error


def test_first_calls_are_no_graphs(most_written, monkeypatch):
    """As long as results cannot overwrite donated arguments, a graph would not be used again; but
    not forever."""
    program, leaves = program_of(lambda p, x: (x @ p, p * 2), [normal(6, 7), normal(3, 6)])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        asked = []
        monkeypatch.setattr(executable, "run", lambda pointers, again: asked.append(again))
        outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
        exit = GpuExit(executable, [], [], outs, list, [0])
        assert exit.placed == {1: 0}
        held = [np.array(x._data) for x in leaves]
        for _ in range(PATIENCE + 2):  # NumPy's memory is not a block that toile owns
            exit.leave([x.ctypes.data for x in held], held)
        assert asked == [False] * PATIENCE + [True] * 2
        memory = [device.allocate(x.nbytes) for x in held]
        del asked[:]
        GpuExit(executable, [], [], outs, list, [0]).leave([p for _, p in memory], memory)
        assert asked == [False]  # somebody else refers to the block


def test_results_of_one_function_are_donated_to_another(most_written, monkeypatch):
    """The first function keeps the memory of its results for later calls; the second overwrites it
    nevertheless, unless somebody else refers to it."""
    program, leaves = program_of(lambda p: p * 2, [normal(6, 7)])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
        first = GpuExit(executable, [], [], outs, list, [])
        second = GpuExit(executable, [], [], outs, list, [0])
        given = np.array(leaves[0]._data)
        for others in (False, True, False, False):
            x, = first.leave([given.ctypes.data], (given,))
            place, held = x._pointer, others and x._memory
            results = []
            for _ in range(3):  # as a loop does with its state
                x, = second.leave([x._pointer], (x._memory,))
                results.append(x._pointer)
            del held
            assert (results[0] == place) == (not others) and len(set(results)) == 1
            memory, start = x._memory
            data = memory.array(x.shape, x.dtype, x._pointer - start)
            np.testing.assert_array_equal(data, given * 16)
            del x, memory, data


def test_memory_can_be_reclaimed_after_an_exit_was_closed(monkeypatch):
    program, _ = program_of(lambda p: p * 2, [normal(6, 7)])
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
        open_, closed = (GpuExit(executable, [], [], outs, list, []) for _ in range(2))
        closed.close()
        memory.reclaim(device, True)
        assert open_ in gpu.keepers and closed not in gpu.keepers
