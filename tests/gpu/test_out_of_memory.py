"""Running out of a GPU's memory: what is said, what is given up first, and that nothing leaks."""

import contextlib
import gc
import threading
import weakref

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile import linen as nn
from toile.engine.arrays import DeviceArray
from toile.engine.buffers import signature
from toile.engine.platform_registry import registry
from toile.engine.trees import flatten
from toile.inspection import peak_memory
from toile.platforms import largest_batch as batch
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import kernel_reports, memory
from toile.platforms.gpu import live_arrays as live
from toile.platforms.gpu.exits import GpuExit
from toile.platforms.gpu.live_arrays import Buffer, Made
from toile.platforms.gpu.memory import OutOfMemoryError
from toile.targets.cuda import driver

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


class SmallDevice(host_driver.HostDevice):
    """A device of so many bytes, which are counted while somebody has them."""

    def __init__(self, limit=1 << 40):
        super().__init__()
        self.limit, self.used = limit, 0

    def allocate(self, nbytes):
        if self.used + nbytes > self.limit:
            raise MemoryError(f"none left for {nbytes} bytes")
        memory, start = super().allocate(nbytes)
        self.used += nbytes
        weakref.finalize(memory, self._freed, nbytes)
        return memory, start

    def _freed(self, nbytes):
        self.used -= nbytes

    def memory_stats(self):
        return {"bytes_in_use": self.used, "bytes_limit": self.limit,
                "bytes_free": self.limit - self.used, "pool_bytes": self.used}


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(memory, "_arenas", {})
    monkeypatch.setattr(memory, "executables", weakref.WeakSet())
    with host_driver.host_gpu(monkeypatch):
        yield SmallDevice()


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(48)(x))
        x = nn.gelu(nn.Dense(48)(x))
        return nn.Dense(10)(x)


def step(params, momentum, x, y):
    def loss(p):
        return -(nn.log_softmax(Net().apply(p, x)) * (y[:, None] == jnp.arange(10))).mean()

    value, grads = toile.value_and_grad(loss)(params)
    momentum = toile.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return toile.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum, value


def training(n):
    params = Net().init(toile.random.key(0), normal(1, 20))
    zeros = toile.tree.map(jnp.zeros_like, params)
    return step, [params, zeros, normal(n, 20), np.zeros(n, np.int32)]


def convolutions(n):
    def f(w, x):
        for _ in range(3):
            x = nn.relu(lax.conv(x, w, (1, 1), "SAME"))
        return (x.mean((2, 3)) ** 2).sum()

    return toile.value_and_grad(f), [normal(4, 4, 3, 3), normal(n, 4, 8, 8)]


def recurrence(n):
    def f(w, xs):  # time goes first inside
        def turn(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        h, hs = lax.scan(turn, jnp.zeros((xs.shape[0], 16)), xs.transpose(1, 0, 2))
        return (hs**2).sum() + h.sum()

    return toile.value_and_grad(f), [normal(16, 16), normal(n, 9, 16)]


# ---- the batch that fits


def planned(make, n, device):
    fun, args = make(n)
    program, _ = program_of(fun, args)
    return host_driver.compiled(program, device)


@pytest.mark.parametrize("make", [training, convolutions, recurrence])
def test_the_peak_of_another_batch(make, device, near=0.1):
    """What is said of a smaller batch is close to what a Program for it plans."""
    large, small = planned(make, 96, device), planned(make, 32, device)
    fit = batch.batch_that_fits(large, small.peak_bytes)
    assert fit.batch == 96 and fit.of.endswith(f"[96{fit.of.partition('[96')[2]}")
    assert abs(fit.rest + 32 * fit.each - small.peak_bytes) <= near * small.peak_bytes
    assert 32 * (1 - 2 * near) <= fit.fits <= 32 * (1 + 2 * near)
    assert batch.batch_that_fits(large, 10).fits == 0
    assert "not even a batch of 1 would fit" in batch.batch_that_fits(large, 10).lines(str)[0]


def test_programs_without_a_batch(device):
    program, _ = program_of(lambda: jnp.ones((300, 300)) * 2, [])
    assert batch.batch_that_fits(host_driver.compiled(program, device), 1000) is None


# ---- predictions


@pytest.mark.parametrize("make", [training, convolutions, recurrence])
def test_prediction_is_what_the_device_holds(make, device):
    """The most that is allocated on the device while a Program runs."""
    fun, args = make(64)
    p = toile.plan(fun, platform="gpu")(*args)
    workspace = sum(b.nbytes for b in p.buffers if b.made.by == "NVIDIA's libraries")
    held, most = [], [0]
    for x in toile.tree.leaves(args):
        memory_, _ = device.allocate(x.nbytes)
        held.append(memory_)
    allocate = device.allocate

    def counted(nbytes):
        found = allocate(nbytes)
        most[0] = max(most[0], device.used)
        return found

    device.allocate = counted
    program, leaves = program_of(fun, args)
    executable = host_driver.compiled(program, device)
    assert p.total == executable.peak_bytes + workspace
    host_driver.run(executable, [x._data for x in leaves], device)
    assert most[0] == pytest.approx(p.total - workspace, rel=0.05)


def test_free_memory_of_a_device(device, monkeypatch):
    """The batch that fits in what is free, and what the arguments hold already."""
    fun, args = training(64)
    device.limit = 40_000_000
    device.platform = "gpu"
    monkeypatch.setattr(peak_memory, "device_of_arguments", lambda *given: device)
    p = toile.plan(fun)(*args)
    assert p.platform == "gpu" and p.batch.now == 64
    assert p.batch.memory == device.limit - device.used
    assert kernel_reports.free_memory(device, 100) == device.limit - max(device.used - 100, 0)


# ---- the report


def test_running_out_says_what_there_is(device, monkeypatch):
    fun, args = training(4096)
    program, leaves = program_of(fun, args)
    executable = host_driver.compiled(program, device)
    held = [np.ascontiguousarray(x._data) for x in leaves]
    made = [Buffer(10 * n, f"float32[{n}]", Made("add", "step")) for n in range(30, 0, -1)]
    monkeypatch.setattr(memory, "live_arrays", lambda: made)
    device.limit = device.used + 2_000_000  # neither the arguments nor the arena fit
    with pytest.raises(OutOfMemoryError, match="RESOURCE_EXHAUSTED") as found:
        host_driver.run(executable, held, device)
    text = str(found.value)
    for part in (f"needed {memory.size(executable.arena_bytes)} more", "made at",
                 f"planned peak of program: {memory.size(executable.peak_bytes)}",
                 "a batch of ", "(now 4096, the first axis of float32[4096,20])",
                 "each example adds", "largest live buffers:"):  # fmt: skip
        assert part in text, part
    assert text.count("float32[") == memory.SHOWN + 1
    assert isinstance(found.value, MemoryError) and isinstance(found.value, RuntimeError)


def test_the_result_that_does_not_fit_is_named(device):
    program, leaves = program_of(lambda x: x @ x.T, [normal(2000, 1)])
    executable = host_driver.compiled(program, device)
    device.limit = device.used + 1_000_000
    with pytest.raises(OutOfMemoryError, match=r"needed 15.3 MiB more for float32\[2000,2000\]"):
        executable.room(executable.out_bytes[0], 0)


def test_results_know_their_line_and_module(device):
    net = Net()
    params = net.init(toile.random.key(0), normal(1, 20))

    def features(p, x):
        return net.apply(p, x), x * 2, x

    program, _ = program_of(features, [params, normal(8, 20)])
    executable = host_driver.compiled(program, device)
    rooms = [executable.room(n, i)[0] for i, n in enumerate(executable.out_bytes)]
    dense, twice, same = (str(r.made) for r in rooms)
    assert "of program in Net/Dense_2 at" in dense and "return nn.Dense(10)(x)" in dense
    assert "by mul of program at" in twice and "return net.apply(p, x), x * 2, x" in twice
    assert same == "by an argument that is returned of program"


def test_large_eager_results_note_the_line_that_called():
    made = live.noted(Made("sin"), gpu.LARGE)
    assert made.source.function == "test_large_eager_results_note_the_line_that_called"
    assert live.noted(Made("sin"), 100).source is None


class FakePointer:
    def __init__(self, ptr):
        self.ptr = ptr


FakeArray = type("ndarray", (), {"__module__": "cupy.fake"})


def fake_array(ptr, shape):
    data = FakeArray()
    data.data, data.shape, data.dtype = FakePointer(ptr), shape, np.dtype("float32")
    data.nbytes = 4 * int(np.prod(shape))
    found = DeviceArray(np.zeros(0, np.float32))
    found._data = data
    found._signature = signature(shape, data.dtype, False)
    return found


def test_live_arrays_with_what_made_them(monkeypatch):
    monkeypatch.setattr(registry, "active", (registry.names["gpu"],))
    monkeypatch.setattr(gpu, "uploads", {})
    monkeypatch.setattr(live, "uploads", gpu.uploads)
    known = gpu.DeviceMemory(FakePointer(64), 400, None)
    known.made = Made("dot_general", "step", None, "Net/Dense_0")
    gpu.note_upload(128, 4 << 20)
    arrays = [fake_array(64, (10, 10)), fake_array(128, (1024, 1024)), fake_array(192, (3,))]
    found = live.live_arrays([*arrays, known, "other", DeviceArray(np.zeros(5))])
    assert [b.nbytes for b in found] == [4 << 20, 400, 12]
    assert [b.what for b in found] == ["float32[1024,1024]", "float32[10,10]", "float32[3]"]
    upload, product, foreign = (str(b.made) for b in found)
    assert upload.startswith("by a copy from the host at") and "note_upload(128" in upload
    assert product == "by dot_general of step in Net/Dense_0"
    assert foreign == "by something else than toile"


# ---- before it fails, and after


def momentum(p, v, g):
    v = 0.9 * v + g
    return p - 0.1 * jnp.sort(v, 0), v


def test_what_is_kept_for_later_calls_is_given_up(device, monkeypatch):
    program, leaves = program_of(momentum, [normal(32, 32)] * 3)
    executable = host_driver.compiled(program, device)
    outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
    tree = flatten([0, 0])[1]
    exit = GpuExit(executable, [], [], outs, tree.unflatten, [])
    held = [np.ascontiguousarray(x._data) for x in leaves]
    pointers = [x.ctypes.data for x in held]
    for _ in range(4):
        exit.leave(pointers, held)
    kept = device.used
    assert any(turn for turns in exit.spare for turn in turns)
    device.limit = kept + 100
    large, _ = program_of(lambda x: x + 1, [normal(48, 32)])
    other = host_driver.compiled(large, device)
    assert other.room(48 * 32 * 4)[0].nbytes == 48 * 32 * 4
    assert not any(turn for turns in exit.spare for turn in turns)


@contextlib.contextmanager
def busy(device):
    """A block in which another thread puts work on a device."""
    begun, over = threading.Event(), threading.Event()

    def work():
        with device.lock:
            begun.set()
            over.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def restless(device):
    """An executable that has given its results places of their own."""
    program, leaves = program_of(momentum, [normal(8, 8)] * 3)
    executable = host_driver.compiled(program, device)
    held = [np.ascontiguousarray(x._data) for x in leaves]
    rooms = [[device.allocate(n) for n in executable.out_bytes] for _ in range(12)]
    for room in rooms:
        executable.run([*(x.ctypes.data for x in held), *(p for _, p in room)])
    assert executable.own and executable.graphs
    return executable


def test_other_devices_are_left_alone_while_they_run(device):
    other = SmallDevice()
    here, there = restless(device), restless(other)
    outs = [signature(shape, dtype, False) for shape, dtype in there.out_specs]
    exit = GpuExit(there, [], [], outs, flatten([0, 0])[1].unflatten, [])
    exit.spare[0][0] = "memory"
    with busy(other):
        memory.reclaim(device, True)
        assert there.own and there.graphs and exit.spare[0][0]
        assert not here.own and not here.graphs
    memory.reclaim(device, True)  # nothing runs there: what it has may be memory of the same GPU
    assert not there.own and not there.graphs and not exit.spare[0][0]
    with busy(other):
        pass  # its lock was given back


def test_keepers_that_nobody_has_go_too(device):
    loop = [restless(device), restless(SmallDevice())]
    gone = [weakref.ref(x) for x in loop]
    loop.append(loop)  # only the collector finds it
    del loop
    memory.reclaim(device, True)
    assert not any(x() for x in gone)


def test_keepers_that_come_while_others_give_up(device, monkeypatch):
    *early, late = [restless(device) for _ in range(3)]

    class Growing(weakref.WeakSet):
        def __iter__(self):
            for x in super().__iter__():
                self.add(late)  # as another thread may
                yield x

    monkeypatch.setattr(gpu, "keepers", Growing(early))
    monkeypatch.setattr(memory, "executables", Growing(early))
    memory.reclaim(device, True)
    assert not any(x.own for x in (*early, late))
    assert memory.out_of_memory(device, 100, MemoryError("none left"))


def test_nothing_leaks(device, monkeypatch):
    """A call that fails keeps nothing, even while somebody has its error; then others work."""
    program, leaves = program_of(momentum, [normal(32, 32)] * 3)
    executable = host_driver.compiled(program, device)
    outs = [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type) for o in program.outputs]
    exit = GpuExit(executable, [], [], outs, flatten([0, 0])[1].unflatten, [0, 1])
    held = [np.ascontiguousarray(x._data) for x in leaves]
    pointers = [x.ctypes.data for x in held]
    before, limit = device.used, device.limit
    copies = [x.copy() for x in held]
    errors = []

    def fails(*args, **kwargs):
        raise KeyError("interrupted")

    device.limit = before + 32 * 32 * 4  # one result has room
    with pytest.raises(OutOfMemoryError) as found:
        exit.leave(pointers, held)
    errors.append(found.value)
    gc.collect()
    assert device.used == before
    device.limit = limit
    with monkeypatch.context() as patch:
        patch.setattr(executable.issuer, "issue", fails)
        for _ in range(3):  # step by step, then while capturing
            with pytest.raises(KeyError) as found:
                exit.leave(pointers, held)
            errors.append(found.value)
    gc.collect()
    arena = memory.arena_of(device).nbytes
    assert device.used == before + arena and driver.driver().recording is None
    assert not executable.graphs
    for a, b in zip(held, copies, strict=True):
        np.testing.assert_array_equal(a, b)
    exit.leave(pointers, held)
    assert errors


def test_places_of_their_own_are_not_needed(device):
    program, leaves = program_of(lambda x: (jnp.cumsum(x, 0), x.sum()), [normal(40, 50)])
    executable = host_driver.compiled(program, device)
    x = np.ascontiguousarray(leaves[0]._data)
    rooms = [[device.allocate(n) for n in executable.out_bytes] for _ in range(12)]
    device.limit = device.used + executable.arena_bytes + 100  # for the arena only
    for room in rooms:
        executable.run([x.ctypes.data, *(p for _, p in room)])
    assert not executable.own and not executable.steady
    for (a, _), _ in rooms:
        np.testing.assert_allclose(a.array((40, 50), np.float32, 0), np.cumsum(x, 0), rtol=1e-5)


def test_arrays_from_the_host(device):
    device.limit = 1000
    with pytest.raises(OutOfMemoryError, match="an array needed 2.0 KiB more"):
        gpu.reserved(device, 2048, device.allocate)
    assert gpu.reserved(device, 500, device.allocate)[0].nbytes == 500


# ---- faults of the driver


def test_a_fault_names_the_program(device, monkeypatch):
    program, leaves = program_of(momentum, [normal(8, 8)] * 3)
    executable = host_driver.compiled(program, device)
    raws = [x._data for x in leaves]

    def fails(*args):
        raise driver.CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(driver.driver(), "launch", fails)
    with pytest.raises(driver.CudaError) as found:
        host_driver.run(executable, raws, device)
    (note,) = found.value.__notes__
    assert note.startswith("in program, or before it (") and "TOILE_DEBUG=sync" in note

    def full(*args):
        raise driver.CudaError("cuLaunchKernel", driver.OUT_OF_MEMORY, "out of memory")

    monkeypatch.setattr(driver.driver(), "launch", full)
    with pytest.raises(OutOfMemoryError, match="program needed more than is available"):
        host_driver.run(executable, raws, device)


@pytest.mark.parametrize("broken, named", [
    ("sort", "sort kernel of sort -> float32[8,8] at"),
    ("mul", "map kernel of mul add -> float32[8,8] at"),
])
def test_step_by_step_a_fault_names_the_kernel(device, monkeypatch, broken, named):
    monkeypatch.setenv("TOILE_DEBUG", "sync")
    program, leaves = program_of(momentum, [normal(8, 8)] * 3)
    executable = host_driver.compiled(program, device)
    assert executable.checked
    real = driver.driver().launch
    texts = [x.kernel.text for s in executable.plan.steps
             for x in executable.issuer.launches[id(s)]
             if any(broken in m.equation.op.name for p in x.parts for m in p.origin.members)]
    failing = []

    def launch(function, *rest):
        if driver.driver().sources[function - 1].find(texts[0]) >= 0:
            failing.append(function)
        real(function, *rest)

    def synchronize(stream):  # where the fault is seen
        if failing:
            raise driver.CudaError("cuStreamSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(driver.driver(), "launch", launch)
    monkeypatch.setattr(driver.driver(), "synchronize", synchronize)
    with pytest.raises(driver.CudaError) as found:
        host_driver.run(executable, [x._data for x in leaves], device)
    (note,) = found.value.__notes__
    assert named in note and "test_out_of_memory.py" in note and note.endswith("of program")
