"""Memory of the GPU's backend on the host: the arena, graphs by pointers, plans by GPUs."""

import numpy as np
import pytest

import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.fake_cudnn import FakeConvolution, FakeEngine
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile import linen as nn
from toile.platforms.gpu import executables as backend
from toile.platforms.gpu import execution, memory
from toile.platforms.gpu.memory import Arena
from toile.targets.cuda import cudnn

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def test_the_arena_grows_and_counts():
    device = host_driver.HostDevice()
    arena = Arena(device)
    start, first = arena.of(100)
    assert arena.of(50) == (start, first)
    assert arena.of(1000)[1] == first + 1
    assert arena.nbytes == 1000 and not device.trimmed


def test_what_a_large_arena_grew_out_of_is_given_back(monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 1000)
    device = host_driver.HostDevice()
    arena = Arena(device)
    for nbytes in (100, 1000, 900, 5000):
        arena.of(nbytes)
    assert device.trimmed == 1


DIRECT = {
    "a kernel": (lambda x, y: x * 2 + y, [normal(9, 7), normal(9, 7)]),
    "a product": (lambda x, y: x @ y, [normal(9, 7), normal(7, 5)]),
    "transposed": (lambda x, y: jnp.einsum("ji,kj->ik", x, y), [normal(9, 7), normal(5, 9)]),
    "products": (lambda x, y: x @ y, [normal(4, 9, 7), normal(4, 7, 5)]),
}


@pytest.mark.parametrize("name", DIRECT)
def test_one_launch_or_call_by_itself(name, machine):
    driver, device = machine
    fun, args = DIRECT[name]
    program, leaves = program_of(fun, args)
    executable = host_driver.compiled(program, device)
    direct = executable.direct()
    assert direct is not None
    for shift in (0.0, 1.0):
        held = [np.ascontiguousarray(np.array(x._data) + np.float32(shift)) for x in leaves]
        (memory, out), = [device.allocate(n) for n in executable.out_bytes]
        direct([*(x.ctypes.data for x in held), out])
        (wanted,) = host_driver.run(executable, held, device)
        found = memory.array(*executable.out_specs[0], 0)
        np.testing.assert_array_equal(found, wanted)
    assert device.program == program.name


def test_what_takes_more_than_one_is_not_direct(machine):
    _, device = machine
    program, _ = program_of(sums, [normal(6, 5)])
    assert host_driver.compiled(program, device).direct() is None


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
    for _ in range(12):
        kept.append([device.allocate(n) for n in executable.out_bytes])
        executable.run([x.ctypes.data, *(p for _, p in kept[-1])])
    assert set(executable.own) == {1, 2} and len(executable.graphs) == 1
    for room in kept:
        for (m, _), w in zip(room, wanted, strict=True):
            np.testing.assert_allclose(m.array(w.shape, w.dtype, 0), w, rtol=1e-5)


def trained(p, x):
    """A step of a training: new state, and a loss that overwrites nothing."""
    return p + jnp.cumsum(p, 0) * x.sum(), (jnp.cumsum(x, 0) * 2).sum()


def places_of(way, held, rooms):
    """Addresses of one call after the other: state, batch, new state, loss.

    Results that overwrite nothing lie in two places by turns: the caller still has those before."""
    (state, batch, other), (new, loss) = held, rooms
    for turn in range(8):
        now, then = turn % 2, (turn + 1) % 2
        if way == "donated":
            yield [state, batch, state, loss[now]]
        elif way == "donated, new batches":
            yield [state, (batch, other)[now], state, loss[now]]
        elif way == "inference":
            yield [state, batch, new[now], loss[now]]
        elif turn == 0:  # not donated: the first state stays where it was
            yield [state, batch, new[0], loss[0]]
        else:
            yield [new[then], batch, new[now], loss[now]]


@pytest.mark.parametrize("way, cheap, graphs, steady", [
    ("donated", True, 1, 2), ("donated, new batches", True, 1, 2), ("inference", True, 1, 2),
    ("not donated", True, 1, 2), ("not donated", False, 2, 4), ("inference", False, 2, 3),
    ("donated", False, 2, 3),
])  # fmt: skip
def test_first_calls_find_what_moves(way, cheap, graphs, steady, machine, monkeypatch):
    """How many graphs are captured, and from which call on (0: the first) no more are.

    If copies are cheap beside the work, one graph serves all calls from the second on."""
    driver, device = machine
    monkeypatch.setattr(execution, "NODES_PER_COPY", 1 if cheap else 1000)
    program, leaves = program_of(trained, [normal(6, 5), normal(6, 5)])
    executable = host_driver.compiled(program, device)
    held = [np.array(x._data) for x in (*leaves, leaves[1])]
    rooms = [[device.allocate(n) for _ in range(2)] for n in executable.out_bytes]
    last, state = 0, held[0].copy()
    addresses = [[x.ctypes.data for x in held], [[p for _, p in room] for room in rooms]]
    for turn, places in enumerate(places_of(way, *addresses)):
        before = len(driver.graphs)
        executable.run(places)
        last = turn if len(driver.graphs) > before else last
        wanted = state + np.cumsum(state, 0) * held[1].sum()
        state = state if way == "inference" else wanted
        where = places[2]
        found = held[0] if where == addresses[0][0] else next(
            m for m, p in rooms[0] if p == where).array(wanted.shape, wanted.dtype, 0)
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
        state = state if way == "inference" else np.array(found)
    assert (len(driver.graphs), last + 1) == (graphs, steady)


@pytest.mark.parametrize("cost, graphs", [(1000, 3), (45, 9)])
def test_many_arguments_that_move_need_few_graphs(cost, graphs, machine, monkeypatch):
    """As the caches of requests do: updated in place, each call somewhere else, some of them twice
    at the same address."""
    driver, device = machine
    n = 6

    def step(*xs):
        return tuple([jnp.cumsum(jnp.cumsum(jnp.cumsum(x, 0), 1), 0) for x in xs])

    program, _ = program_of(step, [normal(3, 4)] * n)
    executable = host_driver.compiled(program, device)
    monkeypatch.setattr(execution, "CAPTURE_US", cost)
    may = executable.overwritten(range(n))
    rng, old = np.random.default_rng(0), []
    for _ in range(40):
        new = [device.allocate(48) for _ in range(n)]
        chosen = [old[rng.integers(len(old))][i] if old and rng.random() < 0.3 else new[i]
                  for i in range(n)]
        old.append(new)
        given = [m.array((3, 4), np.float32, 0) for m, _ in chosen]
        for x in given:
            x[...] = rng.normal(size=(3, 4))
        wanted = [np.cumsum(np.cumsum(np.cumsum(x, 0), 1), 0) for x in given]
        inputs = [p for _, p in chosen]
        executable.run([*inputs, *(inputs[may[i]] for i in range(n))])
        for x, w in zip(given, wanted, strict=True):
            np.testing.assert_allclose(x, w, rtol=1e-4, atol=1e-5)
    assert len(driver.graphs) == graphs
    assert len(executable.own) == 2 * n and len({p for _, p in executable.own.values()}) == n


def test_buffers_are_not_copied_if_there_are_few_graphs(machine):
    """A step whose results move sometimes, as in a training without donation."""
    driver, device = machine
    program, leaves = program_of(sums, [normal(6, 5)])
    executable = host_driver.compiled(program, device)
    x = np.array(leaves[0]._data)
    rooms = [[device.allocate(n) for n in executable.out_bytes] for _ in range(12)]
    for turn in range(2400):
        room = rooms[turn // 200 if turn > 300 else turn % 2]
        executable.run([x.ctypes.data, *(p for _, p in room)])
    assert not executable.own and len(driver.graphs) == 12


def gpus(*names, architecture="sm_90"):
    """Devices on the host that are GPUs of these names."""
    found = [host_driver.HostDevice() for _ in names]
    for device, name in zip(found, names, strict=True):
        device.device_kind, device.architecture = name, architecture
    return found


@pytest.mark.parametrize("find", [backend.executable_of, backend.compiled])
def test_equal_gpus_share_a_plan(find, monkeypatch):
    program, _ = program_of(lambda x: nn.softmax(x) * 2, [normal(5, 7)])
    devices = [*gpus("large", "small", "large", "small"), *gpus("small", architecture="sm_80")]
    with host_driver.host_gpu(monkeypatch):
        large, small, other_large, other_small, older = [find(program, d).plan for d in devices]
    assert large is other_large and small is other_small
    assert len({id(plan) for plan in (large, small, older)}) == 3


def test_each_kind_of_gpu_has_the_room_that_its_library_needs(monkeypatch):
    """cuDNN takes another engine on another GPU."""
    program, _ = program_of(lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
                            [normal(2, 8, 9, 9), normal(8, 8, 3, 3)])
    found = []
    with host_driver.host_gpu(monkeypatch), cudnn.use(FakeEngine()):
        for device, room in zip(gpus("small", "large"), (512, 1 << 20), strict=True):
            monkeypatch.setattr(FakeConvolution, "workspace", room)
            found.append(backend.executable_of(program, device).arena_bytes)
    assert found[1] - found[0] == (1 << 20) - 512


def half(x, w, v):
    """A value that is computed from one that nothing else reads, with the same dtype and places."""
    return jnp.tanh(x @ w) @ v


def layers(x, w, v):
    for _ in range(3):
        x = jnp.tanh(x @ w) * 0.5
    return x @ v


def turned(x, w, v):
    y = x @ w
    return (y + y.T) @ v


def summed(x, w, v):
    y = x @ w
    z = jnp.tanh(y) * 0.5  # stored by a kernel that also sums it
    return z @ v + z.sum()


def normalized(x, w, v):
    y = x @ w
    return ((y - y.mean(-1, keepdims=True)) / (y.std(-1, keepdims=True) + 1)) @ v


def rounded(x, w, v):
    return (x @ w).astype(jnp.bfloat16) @ v.astype(jnp.bfloat16)


W, V = normal(64, 64), normal(64, 1)
ARRAY = 64 * 64 * 4
SHARED = {"half": (half, 1), "layers": (layers, 2), "turned": (turned, 2),
          "rounded": (rounded, 1.5), "summed": (summed, 1), "normalized": (normalized, 1)}


@pytest.mark.parametrize("name", SHARED)
def test_a_value_is_written_over_the_one_it_is_computed_from(name, monkeypatch):
    """If a kernel touches both only at equal places."""
    fun, arrays = SHARED[name]
    args = normal(64, 64, seed=1), W, V
    program, leaves = program_of(fun, args)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        small = executable.arena_bytes - arrays * ARRAY
        assert 0 <= small < ARRAY / 4, executable.arena_bytes / ARRAY
        for _ in range(3):
            (got,) = host_driver.run(executable, [x._data for x in leaves], device)
    tolerance = 3e-2 if name == "rounded" else 1e-4
    np.testing.assert_allclose(np.asarray(got, np.float32), fun(*args), tolerance, 10 * tolerance)


def test_a_sum_of_many_parts_writes_over_what_it_reads(monkeypatch):
    """Several blocks sum parts of one long row, and each stores its part of a result."""
    args = normal(512, 512, seed=1), normal(512, 512) / 8, normal(512, 1)
    program, leaves = program_of(summed, args)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        assert "partial" in {x.note for x, _, _ in executable.plan.in_place}
        assert executable.arena_bytes < 1.1 * args[0].nbytes
        for _ in range(3):
            (got,) = host_driver.run(executable, [x._data for x in leaves], device)
    np.testing.assert_allclose(got, summed(*args), 1e-3, 0.1)
