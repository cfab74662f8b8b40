"""What `plan` predicts of a call's memory, and the error of a compiled call that runs out of it."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, optim
from toile import linen as nn
from toile.compiler.pipeline import optimize
from toile.compiler.plan.phases import Phases
from toile.engine import buffers
from toile.inspection.batch_sizes import MOST_PLANS, largest_batch
from toile.inspection.checkpointing import flops_of
from toile.platforms import cpu
from toile.platforms.cpu import execution, memory
from toile.platforms.memory_reports import OutOfMemoryError

ROOT = Path(__file__).parent.parent.parent


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(h)))


class Blocks(nn.Module):
    layer: type = Block

    @nn.compact
    def __call__(self, x):
        for i in range(3):
            x = self.layer(name=f"layer_{i}")(x)
        return nn.Dense(8)(x)


class Images(nn.Module):
    @nn.compact
    def __call__(self, x):
        for features in (8, 16):
            x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(len(x), -1))


def training(net, *shape):
    """A step of a network with Adam, and its arguments for an input of a shape."""
    tx = optim.adam(1e-3)

    def step(params, state, x):
        def loss(p):
            return (net.apply(p, x) ** 2).mean()

        value, grads = toile.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    params = net.init(toile.random.key(0), jnp.ones((1, *shape[1:])))
    return step, (params, tx.init(params), jnp.ones(shape))


def recurrence():
    def f(w, xs):
        def turn(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        h, hs = lax.scan(turn, jnp.zeros((32, 64)), xs)
        return (hs**2).sum() + h.sum()

    return toile.value_and_grad(f), (jnp.ones((64, 64)), jnp.ones((20, 32, 64)))


CALLS = {
    "transformer": lambda: training(Blocks(), 64, 64),
    "convolutions": lambda: training(Images(), 8, 32, 32, 3),
    "recurrence": recurrence,
    "sort": lambda: (lambda x: (jnp.sort(x @ x, 0) + x, x.sum()), (jnp.ones((300, 300)),)),
    "one kernel": lambda: (lambda x: x * 2 + 1, (jnp.ones((64, 64)),)),
}


# ---- the peak


@pytest.mark.parametrize("name", CALLS)
def test_prediction_is_what_a_call_allocates(name, monkeypatch):
    """The arena and the results, as the runtime allocates them."""
    f, args = CALLS[name]()
    p = toile.plan(f)(*args)
    compiled = toile.jit(f).lower(*args).compile()
    made = []

    def counted(nbytes):
        made.append(nbytes)
        return buffers.allocate(nbytes)

    monkeypatch.setattr(execution, "allocate", counted)
    monkeypatch.setattr(execution, "_arenas", [])
    monkeypatch.setattr(execution, "ROOM_TO_GROW", 1)  # what is reserved, not what is used
    compiled(*args)
    assert sum(made) == pytest.approx(p.results + p.temporaries, rel=0.05, abs=256)
    assert p.arguments == sum(x.nbytes for x in toile.tree.leaves(args))
    assert p.total == p.arguments + p.results + p.constants + p.temporaries
    assert p.in_place == p.donated == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_prediction_is_what_the_process_uses():
    """The high-water mark of the process during a call, without what it had before."""
    code = """
        import re, toile, toile.numpy as jnp
        from tests.compiler.test_memory_plans import Blocks, training
        from toile.platforms.cpu.execution import release_arenas

        def status(name):
            return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

        f, args = training(Blocks(), 8192, 128)
        p = toile.plan(f)(*args)
        compiled = toile.jit(f).lower(*args).compile()
        compiled(*args)  # libraries allocate memory of their own
        release_arenas()
        before = status("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")  # resets the high-water mark
        out = compiled(*args)
        print(p.results + p.temporaries, status("VmHWM") - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, text=True,
                          capture_output=True, check=True)
    predicted, measured = map(int, done.stdout.split())
    assert predicted > 50e6 and measured == pytest.approx(predicted, rel=0.05)


def test_nothing_is_allocated_or_run(monkeypatch):
    def fails(*args):
        raise AssertionError("memory was allocated")

    monkeypatch.setattr(buffers, "allocate", fails)
    monkeypatch.setattr(execution, "allocate", fails)
    x = toile.ShapeDtypeStruct((1 << 20, 1 << 14), jnp.float32)
    p = toile.plan(lambda x: jnp.tanh(x) @ jnp.ones((1 << 14, 4)))(x)
    assert p.arguments == x.size * 4 and p.total > 2 * p.arguments


def test_buffers_at_the_peak():
    f, args = training(Blocks(), 64, 64)
    p = toile.plan(f)(*args)
    assert p.buffers == sorted(p.buffers, key=lambda b: -b.nbytes)
    assert sum(b.nbytes for b in p.buffers) == p.total
    gelu = next(b for b in p.buffers if b.kind == "temporary" and b.shape == (64, 256))
    assert (gelu.dtype, gelu.phase, gelu.nbytes) == ("float32", "forward", 64 * 256 * 4)
    assert gelu.module.startswith("Blocks/layer_")
    assert gelu.line.startswith("test_memory_plans.py:") and "nn.gelu(nn.Dense(4" in gelu.line
    kinds = {b.kind for b in p.buffers}
    assert {"argument", "result", "temporary"} <= kinds
    named = [b.made.by for b in p.buffers if b.kind == "argument"]
    assert "params['params']['layer_0']['Dense_0']['kernel']" in named and "x" in named
    at = p.peak_step
    assert all(b.first <= at <= b.last for b in p.buffers if b.kind == "temporary")


def test_modules_lines_and_passes():
    f, args = training(Blocks(), 64, 64)
    p = toile.plan(f)(*args)
    for by in ("module", "line"):
        rows = p.table(by)
        assert [r.nbytes for r in rows] == sorted((r.nbytes for r in rows), reverse=True)
        assert sum(r.nbytes for r in rows) == sum(b.nbytes for b in p.buffers)
        for r in rows:
            if r.name not in ("(arguments)", "(constants)"):
                assert r.forward + r.backward + r.update == r.nbytes
    modules = {r.name: r for r in p.table("module")}
    assert modules["Blocks/layer_1"].forward > 0
    assert modules["(arguments)"].nbytes == p.arguments
    update = sum(r.update for r in modules.values())
    assert update >= 3 * sum(x.nbytes for x in toile.tree.leaves(args[0]))  # parameters, moments
    assert p.highest["forward"] > 0 and p.highest["backward"] > 0 and p.highest["update"] > 0
    assert max(p.highest.values()) <= p.temporaries
    with pytest.raises(ValueError, match="needed by='module' or 'line', got 'kernel'"):
        p.table("kernel")


def test_passes_inside_loops():
    """A loop of training steps: its bodies have passes of their own."""
    f, (params, state, x) = training(Blocks(), 64, 64)

    def epoch(params, state, xs):
        (params, state), losses = lax.scan(
            lambda c, x: ((out := f(*c, x))[:2], out[2]), (params, state), xs)
        return params, state, losses

    p = toile.plan(epoch)(params, state, jnp.ones((3, *x.shape)))
    one = toile.plan(f)(params, state, x)
    for name, most in one.highest.items():
        assert p.highest[name] >= 0.9 * most > 0
    assert sum(b.nbytes for b in p.buffers) == p.total
    assert {b.phase for b in p.buffers if b.kind == "temporary"} >= {"forward", "backward"}
    assert any(b.module.startswith("Blocks/layer_") for b in p.buffers)


def test_forward_alone_has_one_pass():
    p = toile.plan(Blocks().apply)(*[training(Blocks(), 16, 64)[1][i] for i in (0, 2)])
    assert p.highest["backward"] == p.highest["update"] == 0
    assert all(b.phase == "forward" for b in p.buffers) and not p.checkpoints


def test_donated_arguments():
    def step(w, x):
        return w - 0.1 * (x.T @ (x @ w))

    args = jnp.ones((64, 32)), jnp.ones((16, 64))
    donating = toile.jit(step, donate_argnums=0)
    p = toile.plan(donating)(*args)
    assert p.donated == args[0].nbytes and p.in_place == 0  # later calls use the memory
    assert p.total == toile.plan(step)(*args).total and not args[0].is_deleted()
    assert "does not lower the peak" in str(p)


def test_steps_in_python_are_named():
    p = toile.plan(lambda x: lax.linalg.schur(x)[0])(jnp.eye(4))
    assert p.python_steps == ["schur"] and "not counted" in str(p) and "(schur)" in str(p)


def test_static_and_keyword_arguments():
    f = toile.jit(lambda x, n, *, y: (x @ y) ** n, static_argnums=1)
    p = toile.plan(f, batch="x", memory=1e6)(jnp.ones((8, 16)), 3, y=jnp.ones((16, 4)))
    assert p.arguments == 4 * (8 * 16 + 16 * 4) and p.batch.arguments == ["x"]
    assert p.batch.now == 8 and p.batch.exact


# ---- passes


def test_passes_of_equations():
    """What is recomputed belongs to the backward pass, and the optimizer to the update."""
    def step(w, x):
        @toile.checkpoint
        def layer(w):
            return jnp.sin(x @ w)

        value, g = toile.value_and_grad(lambda w: jnp.cos(layer(w)).sum())(w)
        return w - jnp.exp(g), value

    program = optimize(toile.make_jaxpr(step)(jnp.ones((4, 4)), jnp.ones((3, 4))).jaxpr)
    phases = Phases(program)
    found = {}
    for e in program.equations:
        found.setdefault(e.op.name, []).append(phases.of(e))
    assert found["exp"] == ["update"] and set(found["sub"]) == {"update"}
    assert found["dot_general"][0] == "forward" and set(found["dot_general"][1:]) == {"backward"}
    assert sorted(found["cos"]) == ["backward", "forward"]  # recomputed, and after the layer


def test_passes_in_loops_and_second_derivatives():
    f, args = recurrence()
    names = toile.make_jaxpr(f)(*args).jaxpr
    phases = Phases(names)
    scans = [phases.of(e) for e in names.equations if e.op.name == "scan"]
    assert scans == ["forward", "backward"]

    def penalty(x):  # its forward pass has a backward pass inside
        return (toile.grad(lambda x: jnp.sin(x).sum())(x) ** 2).sum()

    program = optimize(toile.make_jaxpr(toile.grad(penalty))(jnp.ones(3)).jaxpr)
    phases = Phases(program)
    assert {phases.of(e) for e in program.equations} <= {"forward", "backward"}


# ---- checkpoints


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_checkpoints_are_what_remat_does(platform):
    f, args = training(Blocks(), 512, 64)
    p = toile.plan(f, platform=platform)(*args)
    best = p.checkpoints[0]
    assert (best.modules, best.count) == ("Blocks/layer_*", 3)
    real, args = training(Blocks(nn.remat(Block)), 512, 64)
    q = toile.plan(real, platform=platform)(*args)
    # The order of the same buffers may leave other gaps between them.
    assert p.total - best.saved == pytest.approx(q.total, rel=0.1)
    assert best.share == pytest.approx(best.saved / p.total)
    work = flops_of(p._call.draft.plan)
    more = flops_of(q._call.draft.plan) - work
    assert best.flops == pytest.approx(more, rel=0.02)
    assert best.more_work == pytest.approx(more / work, rel=0.02)
    assert [c.saved for c in p.checkpoints] == sorted((c.saved for c in p.checkpoints),
                                                      reverse=True)


# ---- batches


def test_the_largest_batch_fits():
    f, (params, state, x) = training(Blocks(), 32, 64)
    room = 30_000_000
    p = toile.plan(f, memory=room)(params, state, x)
    b = p.batch
    assert (b.now, b.axis, b.arguments, b.exact) == (32, 0, ["x"], True)

    def peak(n):
        return toile.plan(f)(params, state, toile.ShapeDtypeStruct((n, 64), x.dtype)).total

    assert peak(b.fits) <= room < peak(b.fits + 1)
    assert b.planned[32] == p.total and len(b.planned) <= MOST_PLANS + 1
    assert b.example == pytest.approx((peak(640) - peak(320)) / 320, rel=0.1)
    assert toile.plan(f, memory=1000)(params, state, x).batch.fits == 0
    assert "not even a batch of 1 fits in 1 kB" in str(toile.plan(f, memory=1000)(params, state, x))


def test_batches_that_are_named():
    def f(w, batch):
        return jnp.tanh(batch["x"] @ w).sum(0) + batch["y"].sum(1)

    args = jnp.ones((16, 16)), {"x": jnp.ones((16, 16)), "y": jnp.ones((16, 16))}
    p = toile.plan(lambda w, xs: jnp.tanh(xs @ w), batch=1, axis=1, memory=1e6)(
        jnp.ones((4, 4)), jnp.ones((2, 8, 4)))
    assert (p.batch.now, p.batch.axis, p.batch.arguments) == (8, 1, ["xs"])
    for batch in (5, "z"):
        with pytest.raises(ValueError, match="numbers or names of arguments, got .* with w, batch"):
            toile.plan(f, batch=batch, memory=1e6)(*args).batch  # noqa: B018
    with pytest.raises(ValueError, match="needed batch arguments with an axis 2"):
        toile.plan(f, batch="batch", axis=2, memory=1e6)(*args).batch  # noqa: B018
    with pytest.raises(ValueError, match="of one size along axis 0, got 2 in a, 4 in b"):
        p = toile.plan(jnp.matmul, batch=(0, 1), memory=1e6)(jnp.ones((2, 4)), jnp.ones((4, 4)))
        p.batch  # noqa: B018


def test_the_search_is_short():
    """It ends at the right size for lines and for steps, whatever it starts from."""
    for fixed, each in ((0, 10), (5000, 1), (100, 333)):
        for now in (1, 7, 1000):
            for room in (6000, 123_456, 10**9):
                tried = []

                def peak(n, fixed=fixed, each=each, tried=tried):
                    tried.append(n)
                    return fixed + each * n

                found, known = largest_batch(peak, now, fixed + each * now, room)
                right = max((room - fixed) // each, 0)
                assert right - right // 50 <= found <= right
                assert len(tried) <= MOST_PLANS and set(tried) <= set(known)


def test_axes_that_are_no_batch():
    """A guess that cannot be traced with another size is not a batch; the next one may be."""
    def f(w, x):
        return w - 0.1 * (x.T @ (x @ w))

    p = toile.plan(f, memory=1e6)(jnp.ones((64, 32)), jnp.ones((16, 64)))
    assert (p.batch.now, p.batch.arguments) == (16, ["x"])
    assert toile.plan(lax.linalg.cholesky, memory=1e6)(jnp.eye(4)).batch is None
    with pytest.raises(ValueError, match="square"):  # chosen by the user
        toile.plan(lax.linalg.schur, memory=1e6, batch=0)(jnp.eye(4)).batch  # noqa: B018


def test_without_a_batch_or_with_unknown_memory(monkeypatch):
    p = toile.plan(lambda: jnp.ones((300, 300)) * 2)()
    assert p.batch is None and "batch" not in str(p)
    monkeypatch.setattr(cpu, "available", lambda: 0)
    assert toile.plan(jnp.sin)(jnp.ones((4, 4))).batch is None
    assert toile.plan(jnp.sin, platform="gpu")(jnp.ones((4, 4))).batch is None


def test_available_memory(tmp_path):
    assert memory.available() > 1 << 20
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   40 kB\n")
    assert memory._of_system(tmp_path / "meminfo") == 40 << 10
    assert memory._of_group(tmp_path) == -1
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert memory._of_group(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_group(tmp_path) == -1


# ---- other devices, displays, wrong uses


def test_plans_for_a_gpu_need_none():
    f, args = training(Blocks(), 64, 64)
    shapes = toile.tree.map(lambda x: toile.ShapeDtypeStruct(x.shape, x.dtype), args)
    p = toile.plan(toile.jit(f, donate_argnums=(0, 1)), platform="gpu", memory=1e9)(*shapes)
    state = sum(x.nbytes for x in toile.tree.leaves(args[:2]))
    assert p.platform == "gpu" and p.donated == state
    assert 0.9 * state < p.in_place <= state  # results overwrite parameters and moments
    assert p.total == p.arguments + p.results + p.constants + p.temporaries - p.in_place
    assert p.batch.fits > 64 and "of which results overwrite" in str(p)
    with pytest.raises(ValueError, match="needed platform='cpu' or 'gpu', got 'tpu'"):
        toile.plan(f, platform="tpu")


def test_text_and_html():
    f, args = training(Blocks(), 64, 64)
    p = toile.plan(f, memory=1e8)(*args)
    text = str(p)
    for part in ("step on cpu: peak ", "temporaries need the most memory in step",
                 "largest buffers", "by module", "by line",
                 "(nn.remat or toile.checkpoint) would save",
                 "Blocks/layer_* (each of 3)", "a batch of ", "(now 64, axis 0 of x)"):  # fmt: skip
        assert part in text, part
    assert re.search(r"float32\[64,256\] +temporary, forward", text)
    html = p._repr_html_()
    assert "<table" in html and "layer_*" in html and "fits in 100 MB" in html


def test_wrong_uses_say_so():
    with pytest.raises(TypeError, match="plan: needed a callable, got 3"):
        toile.plan(3)(jnp.ones(3))
    with pytest.raises(toile.errors.UnexpectedTracerError, match="plan: needed a call outside"):
        toile.jit(lambda x: toile.plan(jnp.exp)(x))(jnp.ones(3))


# ---- running out


class Full:
    """Memory that is full for large blocks; counts how often it was asked."""

    def __init__(self, most):
        self.most, self.asked = most, 0

    def __call__(self, nbytes):
        if nbytes > self.most:
            self.asked += 1
            raise MemoryError
        return buffers.allocate(nbytes)


@pytest.fixture
def full(monkeypatch):
    made = Full(100_000)
    monkeypatch.setattr(execution, "_arenas", [])
    monkeypatch.setattr(execution, "allocate", made)
    monkeypatch.setattr(memory, "allocate", made)
    monkeypatch.setattr(memory, "available", lambda: 8_000_000)
    return made


def test_running_out_says_what_was_needed(full):
    f, args = training(Blocks(), 2048, 64)
    step = toile.jit(f)
    with pytest.raises(OutOfMemoryError, match="RESOURCE_EXHAUSTED: out of memory: step needed") \
            as found:
        step(*args)
    assert full.asked >= 2  # once more after freeing what is kept
    text = str(found.value)
    p = toile.plan(f)(*args)
    for part in ("and 7.6 MiB are available", "planned peak of step: ", "temporaries ",
                 "largest buffers at the peak:", "float32[2048,256]  by ", " in Blocks/layer_",
                 "test_memory_plans.py:", "nn.gelu(nn.Dense(4", "a batch of ",
                 "(now 2048, the first axis of float32[2048,64])", "toile.plan shows",
                 "in test_running_out_says_what_was_needed\n    step(*args)"):  # fmt: skip
        assert part in text, part
    assert len(text.splitlines()) <= 15
    batch = int(re.search(r"a batch of (\d+) would fit", text)[1])
    room = 8_000_000 + p.arguments
    fits = toile.plan(f, memory=room * 31 / 32)(*args).batch.fits
    assert batch == pytest.approx(fits, rel=0.1)
    assert isinstance(found.value, MemoryError)


def test_results_that_do_not_fit(full, monkeypatch):
    """In the first call, and in calls through the generated exit; then smaller ones work."""
    f = toile.jit(lambda x: x[:, None] * x)
    x = jnp.ones(1000)
    with pytest.raises(MemoryError, match="needed 3.8 MiB more"):
        f(x)
    full.most = 1 << 30
    for _ in range(4):
        f(x)
    exits = sys.modules["toile.platforms.cpu.exits"]
    monkeypatch.setattr(exits, "allocate", full)
    g = toile.jit(lambda x: x[:, None] * x)
    for _ in range(4):
        g(x)
    full.most, full.asked = 100_000, 0
    with pytest.raises(MemoryError, match="needed 3.8 MiB more") as found:
        g(x)
    assert full.asked == 2 and "g(x)" in str(found.value) and "<toile" not in str(found.value)
    full.most = 1 << 30
    np.testing.assert_array_equal(g(x), np.ones((1000, 1000)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs ulimit")
def test_a_limit_of_the_system():
    code = """
        import resource
        import toile, toile.numpy as jnp
        f = toile.jit(lambda x: jnp.sort(jnp.tanh(x @ x.T), 0) @ x)
        f(jnp.ones((8, 8)))
        x = jnp.ones((30_000, 8))
        toile.plan(f)(x), f.lower(x).compile()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), -1))
        try:
            f(x)
        except MemoryError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, text=True,
                          capture_output=True, check=True)
    assert "out of memory: <lambda> needed" in done.stdout
    assert "float32[30000,30000]" in done.stdout and "would fit (now 30000" in done.stdout
