"""What `explain` and `profile` say of compiled functions, and what `TOILE_DEBUG` prints."""

import gzip
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.linen as linen
import toile.numpy as jnp
from toile import lax, nn
from toile.displays.markup import amount, table
from toile.inspection.kernels import all_kernels
from toile.inspection.profiles import fitted
from toile.inspection.tables import aligned, counted, duration
from toile.targets.llvm import native
from toile.targets.llvm import thread_count as threads

ROOT = Path(__file__).parent.parent.parent
X = jnp.linspace(-1, 1, 12 * 20).reshape(12, 20)
W = jnp.linspace(0, 1, 20 * 8).reshape(20, 8)


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.gelu(linen.Dense(16)(x))
        return linen.Dense(4)(linen.LayerNorm()(x))


# ---- explain


def test_softmax_is_one_kernel_after_the_product():
    e = toile.explain(lambda x, w: nn.softmax(x @ w))(X, W)
    product, softmax = e.kernels
    assert product.operations == ["dot_general"] and softmax.kind == "row"
    assert {"reduce_max", "sub", "exp", "reduce_sum", "div"} <= set(softmax.operations)
    assert product.flops == 2 * 12 * 20 * 8 and e.flops == product.flops + softmax.flops
    assert (product.bytes_read, product.bytes_written) == (X.nbytes + W.nbytes, 12 * 8 * 4)
    assert (softmax.bytes_read, softmax.bytes_written) == (12 * 8 * 4, 12 * 8 * 4)
    assert softmax.reads == softmax.writes == ["float32[12,8]"]
    assert softmax.borders == ["float32[12,8] is a result"]
    assert not e.python_steps and e.steps == 2 and e.regions == 2


def test_kernels_know_lines_and_modules():
    net = Net()
    params = net.init(toile.random.key(0), X)
    e = toile.explain(net.apply)(params, X)
    found = {m for k in e.kernels for m in k.modules}
    assert {"Net/Dense_0", "Net/LayerNorm_0", "Net/Dense_1"} <= found
    files = {file for k in e.kernels for file, _ in k.sources}
    assert files == {__file__}
    text = str(e)
    assert "Net/Dense_0" in text and "x = linen.gelu(linen.Dense(16)(x))" in text


def test_modules_of_shared_and_inner_programs():
    class Cell(linen.Module):
        @linen.compact
        def __call__(self, c, x):
            c = linen.silu(linen.Dense(8)(c) + x)  # silu is jitted: one Program for all callers
            return c, c

    class Stack(linen.Module):
        @linen.compact
        def __call__(self, x):
            cells = linen.scan(Cell, variable_broadcast="params", split_rngs={"params": False})
            _, y = cells(name="cells")(jnp.ones(8), linen.silu(x))
            return y

    net = Stack()
    x = jnp.ones((5, 8))
    params = net.init(toile.random.key(0), x)
    e = toile.explain(net.apply)(params, x)
    found = {m for k in all_kernels(e.kernels) for m in k.modules}
    assert "Stack" in found and "Stack/cells/Dense_0" in found
    assert not any("Stack/Stack" in m or "Cell" in m for m in found)


def borders(f, *args):
    return [reason for k in toile.explain(f)(*args).kernels for reason in k.borders]


def test_why_fusion_stopped():
    assert any("dot_general is a kernel of its own" in r for r in borders(lambda x: (x * 2) @ W, X))

    def two_sums(x):  # over the last axis, then over the first of three
        y = x.reshape(2, -1, x.shape[1])
        return jnp.exp(y - y.sum(2, keepdims=True)).sum(0)

    assert any("sums over other axes" in r for r in borders(two_sums, X))
    reasons = borders(lambda x: x - x.sum(0), X)
    assert any("complete only when the kernel ends" in r for r in reasons)

    def between(x):
        y = jnp.tanh(x)
        return y + jnp.sin(y @ W) @ W.T

    assert any("must run between them" in r for r in borders(between, X))


def test_loops_show_what_is_inside():
    def f(w, xs):
        def step(c, x):
            c = jnp.tanh(c @ w + x)
            return c, c

        c, ys = lax.scan(step, xs[0], xs)
        c = lax.while_loop(lambda c: c.sum() < 10, lambda c: c + 1, c)
        return lax.cond(c[0] > 0, jnp.sin, jnp.cos, c), ys

    e = toile.explain(f)(jnp.ones((300, 300)), jnp.ones((20, 300)))
    loops = {k.kind: k for k in e.kernels if k.bodies}
    assert set(loops) == {"scan", "while", "cond"}
    assert loops["scan"].trips == 20 and len(loops["scan"].bodies) == 1
    assert len(loops["while"].bodies) == len(loops["cond"].bodies) == 2
    assert any("tanh" in k.operations for k in loops["scan"].bodies[0])
    numbers = [k.number for k in all_kernels(e.kernels)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    text = str(e)
    assert "20 times" in text and "condition:" in text and "branch 1:" in text


def test_python_steps_are_marked():
    e = toile.explain(lambda x: toile.lax.linalg.schur(x)[0].sum())(jnp.eye(4))
    (step,) = e.python_steps
    assert step.kind == "Python" and step.operations == ["schur"]
    assert step.borders == ["schur of float32 has no native code"]
    assert "1 step in Python" in str(e) and "Python (schur)" in str(e)


def test_memory_plan():
    def f(x, w):
        y = x @ w
        return jnp.tanh(y @ w.T) @ w

    e = toile.explain(f)(X, W)
    m = e.memory
    assert m.inputs == X.nbytes + W.nbytes and m.outputs == 12 * 8 * 4
    assert m.peak <= m.arena and 0 <= m.peak_step < e.steps
    assert m.temporaries >= m.peak == max(
        sum(b.nbytes for b in m.buffers if b.first <= i <= b.last) for i in range(e.steps)
    )
    assert m.buffers == sorted(m.buffers, key=lambda b: -b.nbytes)
    assert f"peak {amount(m.peak, 'B')}" in str(e)


def test_compilation_is_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(native.engine(), "cache", None)  # no kernel comes from disk

    def f(x):  # nothing else in the tests has this shape of expression
        return jnp.where(x > 0.123, jnp.sin(x) * jnp.cos(x - 3), jnp.exp(-x) + x * x * x) - x

    first = toile.explain(f)(X).compilation
    assert (first.texts, first.compiled, first.read, first.kept) == (1, 1, 0, 0)
    assert first.kernel_seconds > 0 and first.compile_seconds > 0 and first.trace_seconds > 0
    again = toile.explain(f)(X[:5, :7]).compilation  # another shape: the same code
    assert (again.compiled, again.read, again.kept) == (0, 0, 1)


def test_jitted_functions_keep_their_static_arguments_and_caches():
    @toile.jit
    def plain(x):
        return x * 2

    @toile.jit(static_argnames="n", donate_argnums=0)
    def power(x, n):
        return x**n

    assert toile.explain(plain)(X).kernels and not plain.why()
    assert toile.explain(power)(X, n=3).kernels[0].operations == ["integer_pow"]
    assert toile.profile(power, rounds=3)(X, n=3).call > 0
    assert not X.is_deleted()


def test_shapes_are_enough_to_explain():
    shape = toile.ShapeDtypeStruct((1000, 1000), jnp.float32)
    assert toile.explain(jnp.exp)(shape).memory.inputs == 4_000_000


def test_explanations_show_in_notebooks():
    html = toile.explain(lambda x: jnp.where(x < 0, x, 1.0))(X)._repr_html_()
    assert "<table" in html and "select_n" in html and "x &lt; 0" in html


@pytest.mark.parametrize("look", [toile.explain, toile.profile])
def test_wrong_uses_say_so(look):
    with pytest.raises(TypeError, match="needed a callable, got 3"):
        look(3)(X)
    with pytest.raises(toile.errors.UnexpectedTracerError, match="outside transformations"):
        toile.jit(lambda x: look(jnp.exp)(x))(X)


# ---- profile


def covered(f, *args):
    """The best of a few profiles: other work on the machine only takes from it."""
    found = toile.profile(f)(*args)
    for _ in range(11):
        assert found.covered < 1.0001
        if found.covered >= 0.95:
            break
        found = max(found, toile.profile(f)(*args), key=lambda p: p.covered)
    return found


TINY = {
    "one kernel": lambda: (lambda x: x + 1, (jnp.ones((3, 4)),)),
    "two products": lambda: (lambda w, x: jnp.tanh(x @ w) @ w, (jnp.ones((4, 4)),) * 2),
    "training step": lambda: small_step(8),
    "loop": lambda: (lambda x: lax.fori_loop(0, 5, lambda i, x: x @ x, x), (jnp.eye(4),)),
    "Python": lambda: (lambda x: lax.linalg.schur(x)[0], (jnp.eye(3),)),
}


def small_step(n):
    """A training step of a small network, and its arguments for a batch of `n`."""
    net = Net()
    x = jnp.ones((n, 16))
    params = net.init(toile.random.key(0), x)

    def step(p, x):
        value, g = toile.value_and_grad(lambda p: (net.apply(p, x) ** 2).mean())(p)
        return toile.tree.map(lambda p, g: p - 0.1 * jnp.tanh(g), p, g), value

    return step, (params, x)


@pytest.mark.parametrize("name", TINY)
def test_percentages_of_tiny_calls_add_up(name):
    """A call of microseconds is mostly overhead, which has a row of its own."""
    f, args = TINY[name]()
    p = covered(f, *args)
    assert 0.95 <= p.covered <= 1.0001
    for by in ("kernel", "module", "operation"):
        assert sum(r.seconds for r in p.table(by).rows) <= 1.0001 * p.call
    shares = re.findall(r"^ *\S+ \S+ +([\d.]+)%", str(p.table()), re.M)
    assert shares and sum(map(float, shares[:1])) <= 100
    assert "calling it takes" in str(p)


@pytest.mark.parametrize("call, calling, kernels, expected", [
    (10.0, 3.0, 6.0, 1.0), (10.0, 5.0, 15.0, 0.5), (10.0, 0.0, 0.0, 1.0), (8.0, 8.0, 0.0, 1.0),
])
def test_parts_never_exceed_the_call(call, calling, kernels, expected):
    assert fitted(call, calling, kernels) == expected
    assert fitted(call, calling, kernels) * (calling + kernels) <= call


def test_forward_and_backward_apart():
    f, args = small_step(256)
    p = toile.profile(f, rounds=5)(*args)
    rows = {r.name: r for r in p.table("module").rows}
    for name in ("Net/Dense_0", "Net/Dense_1", "Net/LayerNorm_0"):
        r = rows[name]
        assert r.forward > 0 and r.backward > 0 and r.update == 0
        assert r.forward + r.backward == pytest.approx(r.seconds)
    assert rows["(no module)"].update > 0 and rows["(calling)"].forward == 0
    for by in ("kernel", "module", "operation"):
        for r in p.table(by).rows:
            if r.name != "(calling)":
                assert r.forward + r.backward + r.update == pytest.approx(r.seconds)
    head = str(p.table("module")).splitlines()[0].split()
    assert head[:5] == ["time", "share", "forward", "backward", "update"]
    assert "backward" in p._repr_html_()
    one = toile.profile(jnp.exp, rounds=3)(X)
    assert "forward" not in str(one.table())  # no columns for a single pass


def test_passes_of_loops():
    def f(w, xs):
        def turn(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        return (lax.scan(turn, xs[0], xs)[1] ** 2).sum()

    p = toile.profile(toile.grad(f), rounds=3)(jnp.ones((300, 300)), jnp.ones((20, 300)))
    rows = {r.name: r for r in p.table("operation").rows}
    assert rows["dot_general"].forward > 0 and rows["dot_general"].backward > 0
    assert rows["tanh"].backward == 0
    scans = [r for r in p.table().rows if " scan" in r.name]
    assert sorted((r.forward > 0, r.backward > 0) for r in scans) == [(False, True), (True, False)]


def flops(module, *args, grad=False):
    """The FLOPs of a module's products and convolutions, and of everything in it."""
    variables = module.init(toile.random.key(0), *args)

    def loss(v, *args):
        return (module.apply(v, *args) ** 2).sum()

    f = toile.grad(loss, argnums=(0, 1)) if grad else module.apply
    p = toile.profile(f, rounds=3)(variables, *args)
    by = {r.name: r.flops for r in p.table("operation").rows}
    heavy = by.get("dot_general", 0) + by.get("conv_general_dilated", 0)
    return heavy, sum(r.flops for r in p.table("module").rows if not r.name.startswith("("))


def test_flops_are_the_closed_form():
    n, i, o = 32, 64, 48
    dense = 2 * n * i * o
    assert flops(linen.Dense(o), jnp.ones((n, i))) == (dense, dense + n * o)  # and the bias
    assert flops(linen.Dense(o), jnp.ones((n, i)), grad=True)[0] == 3 * dense
    for padding, size in (("VALID", 10), ("SAME", 12)):
        conv = 2 * 4 * size * size * 3 * 3 * 8 * 16
        layer = linen.Conv(16, (3, 3), padding=padding)
        assert flops(layer, jnp.ones((4, 12, 12, 8))) == (conv, conv + 4 * size * size * 16)
        assert flops(layer, jnp.ones((4, 12, 12, 8)), grad=True)[0] == 3 * conv
    conv = 2 * 4 * 6 * 6 * 3 * 3 * 8 * 16
    layer = linen.Conv(16, (3, 3), strides=2)
    assert flops(layer, jnp.ones((4, 12, 12, 8)))[0] == conv
    assert flops(layer, jnp.ones((4, 12, 12, 8)), grad=True)[0] == 3 * conv
    b, t, d = 2, 20, 32
    layer = linen.MultiHeadDotProductAttention(4)
    attention = 4 * 2 * b * t * d * d + 2 * 2 * b * t * t * d  # projections; scores and values
    assert flops(layer, jnp.ones((b, t, d)))[0] == attention
    assert flops(layer, jnp.ones((b, t, d)), grad=True)[0] == 3 * attention


def checked_events(file):
    """The events of a Chrome trace, which must have what its format asks for."""
    content = json.loads(gzip.open(file).read() if file.suffix == ".gz" else file.read_text())
    assert content["displayTimeUnit"] in ("ms", "ns")
    for e in content["traceEvents"]:
        assert isinstance(e["name"], str) and e["ph"] in ("X", "M")
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert isinstance(e.get("args", {}), dict)
        if e["ph"] == "X":
            assert e["ts"] >= 0 and e["dur"] >= 0 and isinstance(e["cat"], str)
        else:
            assert e["name"] in ("process_name", "thread_name", "thread_sort_index")
    return content["traceEvents"]


def check_nesting(spans):
    """The spans of each track are apart or one is inside the other, as viewers require."""
    for track in {e["tid"] for e in spans}:
        open_ends = []
        ends = lambda e: round(1000 * (e["ts"] + e["dur"]))
        for e in sorted((e for e in spans if e["tid"] == track),
                        key=lambda e: (e["ts"], -e["dur"])):
            while open_ends and open_ends[-1] <= round(1000 * e["ts"]):
                open_ends.pop()
            assert not open_ends or ends(e) <= open_ends[-1]
            open_ends.append(ends(e))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_traces_open(name, tmp_path):
    f, args = small_step(64)
    p = toile.profile(f, rounds=3)(*args)
    assert p.trace(tmp_path / name) == tmp_path / name
    events = checked_events(tmp_path / name)
    spans = [e for e in events if e["ph"] == "X"]
    check_nesting(spans)
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert set(tracks) == {"kernels", "modules", "passes"}
    by_track = {t: [e for e in spans if e["tid"] == tracks[t]] for t in tracks}
    whole = by_track["kernels"][0]
    assert (whole["name"], whole["dur"]) == ("step", pytest.approx(p.call * 1e6, abs=0.01))
    kernels = [e for e in by_track["kernels"] if e["name"].startswith("[")]
    assert len(kernels) == len(p.times) and "dot_general" in kernels[0]["args"]["operations"]
    assert "test_inspection.py:" in kernels[0]["args"]["lines"]
    assert {e["name"] for e in by_track["passes"]} == {"forward", "backward", "update"}
    assert {"Net", "Dense_0", "LayerNorm_0"} <= {e["name"] for e in by_track["modules"]}
    assert "Net/Dense_0" in {e["args"]["path"] for e in by_track["modules"]}
    total = sum(e["dur"] for e in by_track["passes"]) / 1e6
    assert total == pytest.approx(sum(s for _, s, _ in p.times), rel=0.01, abs=1e-8)


def test_traces_of_loops(tmp_path):
    def f(w, xs):
        return lax.scan(lambda c, x: (jnp.tanh(c @ w + x), c.sum()), xs[0], xs)

    p = toile.profile(f, rounds=3)(jnp.ones((300, 300)), jnp.ones((20, 300)))
    spans = [e for e in checked_events(p.trace(tmp_path / "loop.json")) if e["ph"] == "X"]
    check_nesting(spans)
    assert any(e["args"].get("iterations") == 20 for e in spans)
    assert len([e for e in spans if e["name"].startswith("[")]) > len(p.times)


def test_rows_add_up_to_the_call():
    net = Net()
    x = jnp.ones((2048, 64))  # so large that noise is less than 5%
    params = net.init(toile.random.key(0), x)

    def loss(p, x):
        return (net.apply(p, x) ** 2).mean()

    p = covered(toile.grad(loss), params, x)
    assert p.covered >= 0.95 and p.calling < p.call / 2
    total = p.covered * p.call
    for by in ("kernel", "module", "operation"):
        assert sum(r.seconds for r in p.table(by).rows) == pytest.approx(total)
    modules = {r.name for r in p.table("module").rows}
    assert {"Net/Dense_0", "Net/Dense_1", "Net/LayerNorm_0", "(calling)"} <= modules
    assert "dot_general" in {r.name for r in p.table("operation").rows}
    rows = p.table().rows
    assert [r.seconds for r in rows] == sorted((r.seconds for r in rows), reverse=True)
    assert sum(r.flops for r in rows) == toile.explain(toile.grad(loss))(params, x).flops
    assert "GFLOP/s" in str(p) and "<table" in p._repr_html_()


def test_loops_are_rows_with_rows_inside():
    def f(w, xs):
        def step(c, x):
            c = lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), c)
            return jnp.where(x.sum() > 0, c + x, c), c.sum()

        c, ys = lax.scan(step, xs[0], xs)
        return lax.cond(c[0] > 0, jnp.sin, jnp.cos, c), ys

    w, xs = jnp.eye(32) * 0.9, jnp.ones((50, 32))
    p = toile.profile(f, rounds=5)(w, xs)
    scan = next(r for r in p.table().rows if " scan" in r.name)
    inside = sum(r.seconds for r in scan.inner)
    assert 0 < inside <= scan.seconds * 1.0001  # what it starts with is copied before the loop
    assert any(r.inner for r in scan.inner)  # the inner loop has rows of its own
    assert any(r.name == "dot_general" for r in p.table("operation").rows)
    assert sum(r.seconds for r in p.table("operation").rows) == pytest.approx(p.covered * p.call)


def test_profiling_leaves_results_as_they_are():
    f = toile.jit(lambda x: (jnp.sort(x, 1), x.at[0].add(1.0), jnp.cumsum(x, 0)))
    before = f(X)
    toile.profile(f, rounds=3)(X)
    for a, b in zip(before, f(X), strict=True):
        assert np.array_equal(a, b)


def test_a_step_that_raises_stops_the_profile():
    def fails(x):
        raise ValueError("broken")

    def f(x):
        return toile.pure_callback(fails, toile.ShapeDtypeStruct((3,), jnp.float32), x)

    with pytest.raises(Exception, match="broken"):
        toile.profile(f, rounds=3)(jnp.ones(3))


def test_tables_need_a_known_key():
    with pytest.raises(ValueError, match="needed by='kernel', 'module' or 'operation'"):
        toile.profile(jnp.exp, rounds=3)(X).table(by="line")


def test_threads_of_a_profile():
    with toile.threads(1):
        assert toile.profile(jnp.exp, rounds=3)(X).threads == 1
        assert toile.explain(jnp.exp)(X).threads == threads.current() == 1


# ---- the page


def any_blocks(text):
    """A text without the number of blocks of a chain, which is the machine's."""
    return re.sub(r"in \d+ blocks", "in some blocks", text)


def test_page_shows_what_is_printed(capsys):
    """Each text block of docs/compiler.md is printed by the code before it."""
    page = ROOT / "docs" / "compiler.md"
    text = page.read_text()
    scope = {"__name__": "__page__"}
    printed, shown = "", 0
    for block in re.finditer(r"^```(python|text)\n(.*?)^```", text, re.S | re.M):
        if block[1] == "python":
            line = text[: block.start()].count("\n") + 1
            exec(compile("\n" * line + block[2], str(page), "exec"), scope)
            printed = capsys.readouterr().out
        else:
            shown += 1
            assert any_blocks(block[2]) in any_blocks(printed)
    assert shown >= 6


# ---- numbers and tables


def test_numbers_are_short():
    assert [amount(n, "B") for n in (0, 7, 1536, 2.5e6)] == ["0 B", "7 B", "1.54 kB", "2.5 MB"]
    assert [duration(s) for s in (2, 3e-3, 4e-6, 5e-9)] == ["2 s", "3 ms", "4 µs", "5 ns"]
    assert counted(["add", "exp", "add"]) == "add ×2, exp"
    assert aligned(("a", "b"), [("1", "x"), ("100", "y")], left=(1,)) == "  a  b\n  1  x\n100  y"
    assert "a&lt;b<br>c" in table(("h",), [("a<b\nc",)])


# ---- TOILE_DEBUG


def test_passes_are_printed_where_asked_for():
    code = """
        import toile, toile.numpy as jnp
        def model(x, w):
            return toile.nn.softmax(x @ w * 1.0)
        toile.jit(model)(jnp.ones((4, 8)), jnp.ones((8, 3)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]

    def printed(debug):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TOILE_DEBUG": debug}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stderr

    text = printed("passes")
    assert "--- model after simplify" in text and "dot_general[lhs=ab rhs=bc out=ac]" in text
    last = text[text.index("--- model after fuse"):].splitlines()
    assert last[1].strip() == "dot_general -> float32[4,3]"
    assert last[2].strip().startswith("over 4x3: reduce_max") and last[2].endswith("float32[4,3]")
    assert len(last) == 3
    assert printed("") == printed("other") == ""
