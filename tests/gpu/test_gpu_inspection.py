"""What `explain` and `profile` say of Programs on a GPU, with the host in its place."""

import gc
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.fake_cudnn import FakeEngine
from tests.gpu.test_programs import normal
from toile import lax
from toile import linen as nn
from toile.compiler.ir.operands import Ref
from toile.engine.buffers import signature
from toile.inspection import profiles, subjects
from toile.inspection.explain import Explanation
from toile.inspection.kernels import all_kernels, kernels_of
from toile.inspection.profiles import Profile, assigned
from toile.platforms.gpu import execution, memory
from toile.platforms.gpu import step_times as timing
from toile.platforms.gpu.exits import GpuExit
from toile.targets.cuda import cudnn, driver, precision
from toile.targets.cuda.cublas import Gemm, Matrix

pytestmark = [pytest.mark.usefixtures("by_libraries"),
              pytest.mark.skipif(not fibers.available(), reason="needs g++")]


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(memory, "_arenas", {})
    with host_driver.host_gpu(monkeypatch) as (_, made):
        monkeypatch.setattr(subjects, "device_of_arguments", lambda *args: made)
        yield made


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(16)(x))
        return nn.softmax(nn.Dense(4)(x))


def net():
    x = normal(6, 8)
    return Net().apply, (Net().init(toile.random.key(0), x), x)


# ---- explain


def test_explain(device):
    f, args = net()
    e = toile.explain(f)(*args)
    assert e.device is device
    first, *_, last = e.kernels
    assert first.kind.startswith("cuBLAS float32") and first.operations == ["dot_general"]
    assert [len(first.calls), len(first.launches)] == [1, 0]
    assert first.precision == precision.TF32
    assert last.kind == "row" and last.borders == ["float32[6,4] is a result"]
    assert {"Net/Dense_0", "Net/Dense_1", "Net"} <= {m for k in e.kernels for m in k.modules}
    assert first.flops == 2 * 6 * 8 * 16 and first.bytes_read == 4 * (6 * 8 + 8 * 16)
    text = str(e)
    for part in ("2 library calls, one graph of ", "nodes; 0 steps on the host",
                 "x = nn.gelu(nn.Dense(16)(x))", f"numbers: {precision.TF32}",
                 "is read by [", "planned peak of a call: ", " block", "traced in"):  # fmt: skip
        assert part in text, part
    assert e.memory.total == e.memory.inputs + e.memory.outputs + e.memory.constants + (
        e.memory.arena)
    assert "cuBLAS" in e._repr_html_()


def test_compilations_are_counted(device):
    f, args = net()
    of = subjects.subject(f, "explain", args, {})  # kernels stay as long as one uses them
    first, again = Explanation(of).compilation, toile.explain(f)(*args).compilation
    assert first.texts == first.compiled > 0 and first.kernel_seconds > 0
    assert (again.compiled, again.kept) == (0, first.texts)


def test_precision_that_was_asked_for(device):
    x = normal(8, 8)

    def explained(**settings):
        return toile.explain(lambda x: jnp.matmul(x, x, **settings))(x).kernels[0].precision

    assert explained() == precision.TF32
    assert explained(precision="highest") == "float32"
    with toile.default_matmul_precision("highest"):
        assert explained() == "float32"
    half = toile.explain(lambda x: x @ x)(x.astype(jnp.bfloat16)).kernels[0]
    assert half.precision == "bfloat16, sums in float32"
    whole = toile.explain(lambda x: x @ x)(np.ones((8, 8), np.int32)).kernels[0]
    assert whole.precision == "int32 (a kernel of toile's)"
    small = Matrix(Ref(None), "int8", 8)
    assert precision.of_call(Gemm(8, 8, 8, small, small, small, "int32")) == "int8, sums in int32"


def test_precision_of_convolutions(device):
    def conv(x, w, how=None):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", precision=how)

    x, w = normal(2, 8, 9, 9), normal(8, 8, 3, 3)
    with cudnn.use(FakeEngine()):
        coarse = toile.explain(conv)(x, w).kernels
        fine = toile.explain(lambda x, w: conv(x, w, "highest"))(x, w).kernels
    assert [k.precision for k in coarse if k.precision] == [precision.TF32]
    assert [k.precision for k in fine if k.precision] == ["float32"]
    assert "cuDNN fprop float32 (tf32)" in coarse[0].kind


def loops(w, xs):
    def step(c, x):
        c = jnp.tanh(c @ w + x)
        return c, c

    c, ys = lax.scan(step, xs[0], xs)
    c = lax.while_loop(lambda c: c.sum() < 10, lambda c: c + 1, c)
    c = lax.linalg.hessenberg(c[:, None] * c)[1]
    return lax.cond(c[0] > 0, jnp.sin, jnp.cos, c), ys


def test_loops_and_what_runs_on_the_host(device):
    e = toile.explain(loops)(normal(5, 5), normal(7, 5))
    kinds = {k.kind for k in e.kernels}
    assert {"scan", "while", "cond", "Python"} <= kinds
    assert any(k.calls for k in all_kernels(e.kernels))
    text = str(e)
    assert "issued step by step: it waits for the host" in text and "7 times" in text
    assert "1 step on the host" in text


def counted(n, x):
    """A loop and a branch that a graph decides."""
    i, x = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1]) * 2), (0, x))
    return lax.cond(i > 2, jnp.cos, jnp.tanh, x)


def test_how_calls_are_issued(device, monkeypatch):
    given = np.int32(3), normal(5)
    assert "one graph of " in str(toile.explain(counted)(*given))
    assert ", one launch; " in str(toile.explain(lambda x: x + 1)(given[1]))
    monkeypatch.setattr(execution, "MOST_NODES", 5)
    assert "nodes are too many for a graph" in str(toile.explain(counted)(*given))
    driver.driver().conditionals = -1
    assert "step by step: it waits for the host" in str(toile.explain(counted)(*given))


# ---- profile


@pytest.fixture
def quick(device, monkeypatch):
    """Kernels that only take their time."""
    made = driver.driver()
    monkeypatch.setattr(made, "launch", lambda *args: made._do(lambda: time.sleep(1e-4)))
    return device


def profiled(f, args, device, rounds=3):
    """A profile, with the call that the host makes of the executable."""
    of = subjects.subject(f, "profile", args, {})
    exe = of.executable
    held = [np.ascontiguousarray(x._data if hasattr(x, "_data") else x)
            for x in [*(of.consts or ()), *toile.tree.leaves(args)]]
    rooms = [device.allocate(n) for n in exe.out_bytes]
    pointers = [x.ctypes.data for x in held] + [p for _, p in rooms]
    steps, whole, scale = timing.measure(exe, pointers, rounds)
    times = assigned(kernels_of(of.plan), steps, scale)
    return Profile(of.name, whole, 0.0, rounds, times, 1, device), exe, rooms


def test_profile(quick):
    f, args = net()
    before = len(driver.driver().graphs)
    p, _, _ = profiled(f, args, quick)
    assert 0.2 < p.covered < 1.001  # what sleeping takes is not always the same
    assert {"cuBLAS", "row"} <= {r.name.split()[1] for r in p.table().rows if r.seconds}
    modules = {r.name for r in p.table("module").rows}
    assert {"Net/Dense_0", "Net/Dense_1"} <= modules
    for by in ("kernel", "module", "operation"):
        assert sum(r.seconds for r in p.table(by).rows) == pytest.approx(p.covered * p.call)
    assert f"on {quick}" in str(p)
    graphs = driver.driver().graphs
    assert len(graphs) == before + 2 and not any(graphs.values())  # made, and destroyed
    assert not any(driver.driver().times)  # events too


def test_forward_and_backward_on_a_gpu(quick, tmp_path):
    f, args = net()
    p, _, _ = profiled(toile.grad(lambda v, x: (f(v, x) ** 2).sum()), args, quick)
    rows = {r.name: r for r in p.table("module").rows}
    assert rows["Net/Dense_0"].forward > 0 and rows["Net/Dense_0"].backward > 0
    p.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"forward", "backward"} <= {e["name"] for e in events}
    assert any(str(quick) in e["args"].get("name", "") for e in events if e["ph"] == "M")


def test_rows_of_short_calls_add_up(quick, monkeypatch):
    """A call that takes less than its parts do apart: all rows are scaled down."""
    f, args = net()
    of = subjects.subject(f, "profile", args, {})
    again = SimpleNamespace(program=SimpleNamespace(memo={}), executable=of.executable,
                            jitted=None)
    monkeypatch.setattr(profiles, "timed", lambda call: 1e-5)
    held = [np.ascontiguousarray(x) for x in toile.tree.leaves(args)]
    monkeypatch.setattr(of.executable, "given", lambda x: SimpleNamespace(
        data=SimpleNamespace(ptr=x.ctypes.data)))
    p = profiles._profiled_elsewhere(of, again, quick, held, lambda: None, lambda: None, 3)
    assert p.call == 1e-5 and p.covered == pytest.approx(1) and 0 < p.calling < 1e-5


def test_measuring_computes_the_results(device):
    w = normal(5, 5)
    p, _, rooms = profiled(lambda x: jnp.tanh(x @ w), (normal(4, 5),), device)
    got = rooms[0][0].array((4, 5), np.float32, 0)
    np.testing.assert_allclose(got, np.tanh(normal(4, 5) @ w), rtol=1e-4)


def chosen(w, xs):
    def step(c, x):
        c = jnp.tanh(c @ w + x)
        return c, c

    c, ys = lax.scan(step, xs[0], xs)
    return lax.cond(xs[0, 0] > 0, jnp.sin, jnp.cos, c), lax.linalg.hessenberg(ys[:5])


def test_profile_of_loops(quick):
    p, _, _ = profiled(chosen, (normal(5, 5), normal(7, 5)), quick)
    rows = {r.name.split()[1]: r for r in p.table().rows if r.name.startswith("[")}
    assert rows["scan"].seconds > 0 and "Python" in rows
    inside = sum(r.seconds for r in rows["scan"].inner)
    assert 0 < inside <= rows["scan"].seconds * 1.0001  # its start is copied before the loop
    assert rows["cond"].inner
    operations = {r.name for r in p.table("operation").rows}
    assert {"dot_general", "tanh", "hessenberg"} <= operations


def test_profile_of_what_a_graph_decides(device):
    made = driver.driver()
    p, exe, _ = profiled(counted, (np.int32(3), normal(5)), device)
    rows = {r.name.split()[1]: r for r in p.table().rows if r.name.startswith("[")}
    for name in ("while", "cond"):  # timed by the graph, shared by what is inside of it
        inside = sum(r.seconds for r in rows[name].inner)
        assert 0 < inside <= rows[name].seconds * 1.0001
    assert exe.issuer.capturable and made.graphs_launched == 8
    assert not made.capturing and not any(made.times)


def test_many_leaves_in_one_launch_share_its_time(quick):
    args = ([normal(4 * (i + 1)) for i in range(20)],)
    p, exe, _ = profiled(lambda ps: [x * 2 - 1 for x in ps], args, quick)
    assert len(p.times) == 20 and sum(len(x) for x in exe.issuer.launches.values()) < 5
    assert all(seconds > 0 for _, seconds, _ in p.times)
    for same in exe.issuer.launches.values():
        for x in same:
            parts = timing.Part(None, x.parts).shared()
            assert sum(share for _, share in parts) == pytest.approx(1)
            sizes = [launch.nbytes or launch.blocks for launch in x.parts]
            assert [share for _, share in parts] == pytest.approx([n / sum(sizes) for n in sizes])


def test_graphs_without_events(quick, monkeypatch):
    """A driver that cannot record events in graphs: steps are issued one by one."""
    made = driver.driver()
    record = made.record

    def refuses(event, stream, captured=False):
        if captured:
            raise driver.CudaError("cuEventRecordWithFlags", 900, "not permitted")
        record(event, stream)

    monkeypatch.setattr(made, "record", refuses)
    f, args = net()
    p, _, _ = profiled(f, args, quick)
    taken = [seconds for _, seconds, _ in p.times]  # 0 for one that a busy machine made too short
    assert min(taken) >= 0 and sum(taken) > 0 and made.recording is None


def doubled():
    return lambda x: x * 2, (normal(5),)


@pytest.mark.parametrize("make", [net, doubled])
def test_calls_that_run_nothing(make, device):
    f, args = make()
    exe = subjects.subject(f, "profile", args, {}).executable
    assert (exe.direct() is not None) == (make is doubled)
    hollow = timing.without_steps(exe)
    outs = [signature(shape, dtype, False) for shape, dtype in hollow.out_specs]
    exit = GpuExit(hollow, [], [], outs, lambda results: None, [])
    held = [np.zeros(v.aval.shape, v.aval.dtype) for v in exe.program.inputs]
    made = driver.driver()
    launched = made.launched
    exit.leave([x.ctypes.data for x in held], held)
    assert made.launched == launched and made.graphs_launched == 1
    assert not exe.graphs and hollow.out_bytes == exe.out_bytes
    assert any(made.graphs.values()) and any(made.times)
    del hollow, exit
    gc.collect()
    assert not any(made.graphs.values()) and not any(made.times)  # the graph is gone, its event too
