"""Loops over tiny arrays: one kernel, and the results of the same steps taken one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from toile import lax
from toile.engine.scoped_options import allow_excess_precision
from toile.inspection.kernels import all_kernels
from toile.kernels.tiny import cpu_loops as tiny_loops

N = 7
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "bool", "complex64")
EXACT = ("int32", "bool")


def normal(*shape, dtype="float32", seed=0):
    r = np.random.RandomState(seed + sum(shape))
    x = r.standard_normal(shape) / 2
    if dtype == "complex64":
        x = x + 1j * r.standard_normal(shape) / 2
    if dtype == "bool":
        return jnp.asarray(x > 0)
    return jnp.asarray(5 * x if dtype == "int32" else x).astype(dtype)


def index(c):
    """A number from 0 to 3 that depends on data."""
    return jnp.abs(c.real.sum().astype("int32")) % 4


def inner_scan(w, c, x):
    out, ys = lax.scan(lambda a, b: (a * b, a.sum()), c[0], x, reverse=True)
    return c.at[1].set(out), ys


def inner_while(w, c, x):
    n, out = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (index(c), c))
    return out, n


def branches(w, c, x):
    cases = [lambda c: c + x, lambda c: c * x, lambda c: (w @ c)]
    return lax.switch(index(c) - 1, cases, c), c


# step(w, carry, x) -> carry, y; all of them 3 x 3
STEPS = {
    "products": lambda w, c, x: (w @ c @ w.T + x, c[0] @ x),
    "batched": lambda w, c, x: (jnp.einsum("ij,ik->ijk", c, x).sum(1),
                                jnp.einsum("ij,ij->i", c, x)),
    "moves": lambda w, c, x: (jnp.concatenate([c[1:, ::-1], x[:1].T.reshape(1, 3)]),
                              jnp.pad(c, ((1, 0), (0, 2)))[:, 1:].T),
    "negative pads": lambda w, c, x: (lax.pad(c.ravel()[:5], jnp.zeros((), c.dtype), [(-1, 0, 1)]
                                              )[:3] * x, jnp.broadcast_to(c[:, None], (3, 2, 3))),
    "choices": lambda w, c, x: (jnp.where(x == x.T, c, x), jnp.arange(3).astype(c.dtype) * c),
    "reductions": lambda w, c, x: (c.sum(0) + x.prod(1)[:, None] * w, (c * x).sum()),
    "slices": lambda w, c, x: (c.at[index(x) - 1].set(x[1]),
                               lax.dynamic_slice(c, (index(c) - 2, 1), (2, 2))),
    "updates": lambda w, c, x: (lax.dynamic_update_slice(c, x[:2, :2], (index(c), index(x) - 2)),
                                c[jnp.array([0, 2, 1]), jnp.array([1, 5, -1])]),
    "gathers": lambda w, c, x: (c[jnp.stack([index(c), index(x), 0 * index(c)])] * w,
                                x.at[:, index(c)].get(mode="fill", fill_value=0)),
    "fills": lambda w, c, x: (x * c, c.at[jnp.stack([index(c), index(x)])].get(mode="fill")),
    "scatters": lambda w, c, x: (c.at[jnp.stack([index(c), index(x)])].add(x[:2]),
                                 c.at[index(c), ::2].add(x[0, :2])),
    "unchanged": lambda w, c, x: (c, w * x),
    "inner scan": inner_scan,
    "inner while": inner_while,
    "branches": branches,
}
REAL = {
    "extrema": lambda w, c, x: (jnp.maximum(c.max(0), x.min(1)) - w, jnp.minimum(c, x)),
    "functions": lambda w, c, x: (jnp.tanh(c @ w + x), jnp.exp(-jnp.abs(c)) / (1 + x * x)),
    "extrema in place": lambda w, c, x: (c.at[index(x)].min(w[0]), x.at[:, index(c)].max(c[1])),
    "running": lambda w, c, x: (jnp.cumsum(c, 0) - lax.cumprod(x, 1, reverse=True),
                                lax.cummax(c, 0) - lax.cummin(x, 1)),
    "places": lambda w, c, x: (x.at[0, jnp.argmin(c[1])].set(2), jnp.argmax(c * x, 0)),
    "places of nan": lambda w, c, x: (c, jnp.argmax(jnp.log(x), 1) + jnp.argmin(jnp.sqrt(x), 0)),
    "softmax": lambda w, c, x: (toile.nn.softmax(c + x), toile.nn.sigmoid(c)),
    "solve": lambda w, c, x: (c + x / (jnp.eye(3) + w @ w.T).trace().astype(c.dtype),
                              jnp.linalg.norm(c)),
}
ROWS = [(name, d) for name in STEPS for d in DTYPES]
ROWS += [(name, d) for name in REAL for d in ("float32", "float64", "bfloat16")]
MIXED = {"batched", "negative pads", "inner while", "reductions"}  # of booleans they give integers


def arguments(dtype):
    return [normal(3, 3, dtype=dtype), normal(3, 3, dtype=dtype, seed=1),
            normal(N, 3, 3, dtype=dtype, seed=2)]


def step_of(name):
    return STEPS.get(name) or REAL[name]


def scanned(step):
    return lambda w, c, xs: lax.scan(lambda c, x: step(w, c, x), c, xs)


def one_by_one(step, w, c, xs):
    """The same, step by step."""
    ys = []
    for x in xs:
        c, y = step(w, c, x)
        ys.append(y)
    return c, jnp.stack(ys)


def loops_of(f, *args):
    """The kernels that are loops in registers, and the loops that are steps of the runner."""
    kernels = list(all_kernels(toile.explain(f)(*args).kernels))
    return ([k for k in kernels if "in registers" in k.kind], [k for k in kernels if k.bodies])


@pytest.fixture
def as_steps(monkeypatch):
    """Loops as steps of the runner."""
    def use(on):
        monkeypatch.setattr(tiny_loops, "_fits", (lambda *_: False) if on else FITS)
    return use


FITS = tiny_loops._fits


@pytest.mark.parametrize(("name", "dtype"), ROWS)
def test_scan(name, dtype, as_steps):
    if dtype == "bool" and name in MIXED:
        pytest.skip("not closed under booleans")
    step = step_of(name)
    with toile.enable_x64(dtype == "float64"), allow_excess_precision(False):
        args = arguments(dtype)
        f = scanned(step)
        registers, steps = loops_of(f, *args)
        assert len(registers) == 1 and not steps, (registers, steps)
        got = toile.jit(f)(*args)
        as_steps(True)
        want = one_by_one(step, *args)
    for g, w in zip(got, want, strict=True):
        nearly_equal(g, w, f"{name} {dtype}", ulps=64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*STEPS, *REAL])
def test_gradient(name, dtype, as_steps):
    def loss(run):
        def f(w, c, xs):
            c, ys = run(w, c, xs)
            return jnp.square(c).sum() + jnp.sin(ys).sum()
        return f

    step = step_of(name)
    with toile.enable_x64(dtype == "float64"):
        args = arguments(dtype)
        got = toile.jit(toile.grad(loss(scanned(step)), (0, 1, 2)))(*args)
        as_steps(True)
        want = toile.grad(loss(lambda *a: one_by_one(step, *a)), (0, 1, 2))(*args)
    for g, w in zip(got, want, strict=True):
        nearly_equal(g, w, f"{name} {dtype}", ulps=256)


@pytest.mark.parametrize("name", ["products", "slices", "scatters", "branches", "functions"])
def test_vmap_and_jvp(name, as_steps):
    """Mapped steps read one block for each example, with batch axes: those are no tiny loops."""
    f = scanned(step_of(name))
    w, c, xs = arguments("float32")
    mapped = toile.vmap(f, (None, 0, None))
    cs = jnp.stack([c, -c])
    moved = lambda w, c, xs: toile.jvp(f, (w, c, xs), (xs[0], w, xs * xs))
    got = toile.jit(mapped)(w, cs, xs), toile.jit(moved)(w, c, xs)
    as_steps(True)
    want = toile.jit(mapped)(w, cs, xs), toile.jit(moved)(w, c, xs)
    for g, e in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        nearly_equal(g, e, name, ulps=64)


LOOPS = {
    "collatz": (lambda n: lax.while_loop(
        lambda s: s[0] > 1,
        lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)), 27),
    "newton": (lambda a: lax.while_loop(
        lambda x: jnp.abs(x * x - a).max() > 1e-5, lambda x: (x + a / x) / 2, a),
        jnp.array([2.0, 3.0, 5.0])),
    "not once": (lambda x: lax.while_loop(lambda x: x[0] < 0, lambda x: x - 1, x), jnp.ones(4)),
    "for": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x[i] + i, 1.0), normal(10), 10),
    "long table": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c + x[i] * x[-i - 1], 0.0),
                   normal(1000), 1000),
    "long result": (lambda x: lax.fori_loop(1, 500, lambda i, c: c.at[i].set(
        c[i - 1] * 0.5 + c[i]), x), normal(500)),
    "counts": (lambda x: lax.fori_loop(0, 300, lambda i, c: c.at[x[i]].add(1),
                                       jnp.zeros(300, "int32")), jnp.arange(300) * 7 % 31),
    "outside": (lambda x: lax.fori_loop(0, 20, lambda i, c: c.at[30 * i].set(1.0), x),
                jnp.zeros(400)),
    "rows": (lambda x: lax.scan(lambda c, i: (lax.dynamic_update_slice(
        c, 2 * lax.dynamic_slice(c, (i, 1), (1, 3)), (i + 1, 0)),
        c[i][4]), x, jnp.arange(60)), normal(80, 5)),
    "strided": (lambda x: lax.scan(lambda c, y: (c + y, c), x[0, :3], x[:, 1:18:6]),
                normal(50, 20)),
    "nested": (lambda x: lax.fori_loop(0, 5, lambda i, a: lax.fori_loop(
        0, i, lambda j, b: b.at[i, j].set(b[j, i] - b[i, j]), a), x), normal(5, 5)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, as_steps):
    f, *args = LOOPS[name]
    registers, steps = loops_of(f, *args)
    assert len(registers) == 1 and not steps
    got = toile.jit(f)(*args)
    as_steps(True)
    want = toile.jit(lambda *args: f(*args))(*args)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        nearly_equal(g, w, name, ulps=64)


def read_later(x):
    """What a carry was before its update is read after it."""
    def body(i, c):
        new = c.at[i].set(1.0)
        return new.at[i + 1].set(c[i] + new[i])
    return lax.fori_loop(0, 300, body, x)


def exchanged(x):
    return lax.fori_loop(0, 5, lambda i, s: (s[1].at[i].set(2.0), s[0]), (x, 2 * x))


def given_back(x):
    return lax.fori_loop(0, 5, lambda i, s: (s[0].at[i].set(2.0), s[0]), (x, 2 * x))


def kept_outside(x):
    """A loop inside changes a carry of which the loop around it uses the old value."""
    def body(i, c):
        inner = lax.fori_loop(0, 3, lambda j, d: d.at[j].set(7.0), c)
        return c.at[i].set(inner[0] + c[0])
    return lax.fori_loop(0, 3, body, x)


@pytest.mark.parametrize("f", [read_later, exchanged, given_back, kept_outside])
def test_arrays_in_memory_are_not_overwritten_too_soon(f, as_steps):
    x = normal(300 + 5)
    got = toile.jit(f)(x)
    as_steps(True)
    want = toile.jit(lambda x: f(x))(x)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)


def covariance(w, c, xs):
    return lax.scan(lambda c, x: (w @ c @ w.T + x, None), c, xs)[0].sum()


def test_a_loop_is_one_launch():
    args = normal(3, 3), normal(3, 3), normal(50, 3, 3)
    one = toile.explain(covariance)(*args)
    assert [k.kind for k in one.kernels if "dot_general" in k.operations] == ["scan in registers"]
    assert one.kernels[0].trips == 50 and "50 times" in str(one)
    slope = toile.explain(toile.grad(covariance))(*args)
    assert [k.kind for k in slope.kernels] == ["scan in registers"] * 2
    assert all(len(k.launches) == 1 for k in slope.kernels)
    (line,) = {line for k in one.kernels for _, line in k.sources if "dot_general" in k.operations}
    assert line == covariance.__code__.co_firstlineno + 1


def test_the_number_of_turns_is_no_part_of_the_text():
    of = lambda n: toile.explain(covariance)(normal(3, 3), normal(3, 3), normal(n, 3, 3))
    texts = [{x.text for k in of(n).kernels for x in k.launches} for n in (9, 90)]
    assert len(texts[0] & texts[1]) >= 1
    assert any("straight-line" in t for t in texts[0] & texts[1])


def test_long_programs_are_no_straight_line_code():
    w = normal(16, 16)
    step = lambda c, _: (jnp.tanh(c @ w), None)
    registers, steps = loops_of(lambda c: lax.scan(step, c, None, length=3)[0], normal(16, 16))
    assert not registers and len(steps) == 1


def test_effects_stay_in_order(capsys):
    def f(x):
        def step(c, _):
            toile.debug.print("{c}", c=c[0])
            return c + 1, None
        return lax.scan(step, x, None, length=3)[0]

    toile.jit(f)(jnp.zeros(2)).block_until_ready()
    toile.effects_barrier()
    assert capsys.readouterr().out.split() == ["0.0", "1.0", "2.0"]


def test_nan_is_found():
    with toile.debug_nans(True), pytest.raises(FloatingPointError):
        toile.jit(lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.log(c - 1), x))(jnp.ones(3))


def test_excess_precision_stops_at_the_carry():
    """A carry of bfloat16 has bfloat16's values at each turn, as memory would have."""
    f = lambda c: lax.fori_loop(0, 100, lambda i, c: c * 1.01 + 0.1, c)
    c = normal(4, dtype="bfloat16")
    got, want = toile.jit(f)(c), c
    for _ in range(100):
        want = toile.jit(lambda c: c * 1.01 + 0.1)(want)
    np.testing.assert_array_equal(got, want)


OPERATIONS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "product": lambda a, b: a @ b,
    "turn": lambda a, b: a.T - b[::-1], "tanh": lambda a, b: jnp.tanh(a), "max": jnp.maximum,
    "sum": lambda a, b: a.sum(0) * b, "where": lambda a, b: jnp.where(a > b, a, -b),
    "shift": lambda a, b: jnp.concatenate([b[1:], a[:1]]),
    "row": lambda a, b: a[jnp.argmax(b[0] > 0) * 0 + 1] + b,
    "set": lambda a, b: a.at[index(b)].set(b[0]), "scale": lambda a, b: a / (1 + jnp.abs(b)),
}
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9),
                              st.integers(0, 9)), min_size=1, max_size=8)


@settings(max_examples=20)
@given(PROGRAMS, st.booleans())
def test_any_program(steps, reverse):
    def step(c, x):
        values = [c, x]
        for name, i, j in steps:
            values.append(OPERATIONS[name](values[i % len(values)], values[j % len(values)]))
        return jnp.tanh(values[-1]), values[-1 - steps[0][1] % len(values)]

    def f(c, xs):
        return lax.scan(step, c, xs, reverse=reverse)

    c, xs = normal(3, 3), normal(4, 3, 3)
    got = toile.jit(f)(c, xs)
    ys = []
    for x in xs[::-1] if reverse else xs:
        c, y = step(c, x)
        ys.append(y)
    for g, w in zip(got, (c, jnp.stack(ys[::-1] if reverse else ys)), strict=True):
        nearly_equal(g, w, str(steps), ulps=512)


SUMS = {
    "matrices": ("ka,kb->ab", (700, 3), (700, 5)),
    "one part": ("ka,kb->ba", (300, 2), (300, 2)),
    "two axes": ("kja,kjb->ab", (1000, 3, 3), (1000, 3, 3)),
    "batch": ("kza,kzb->zab", (600, 2, 3), (600, 2, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "bool",
                                   "complex64"])
@pytest.mark.parametrize("name", SUMS)
def test_long_sums_of_tiny_products(name, dtype):
    labels, *shapes = SUMS[name]
    with toile.enable_x64(dtype == "float64"):
        x, y = (normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes))
        f = lambda x, y: jnp.einsum(labels, x, y)
        kernel = toile.explain(f)(x, y).kernels[0]
        assert kernel.kind == "product of few + sum of parts"
        got = toile.jit(f)(x, y)
        turned = toile.jit(lambda x, y: f(x[::-1], y[::-1]))(x, y)
        wide = {"bfloat16": "float64", "float16": "float64", "float32": "float64",
                "complex64": "complex128"}.get(dtype, dtype)
        want = np.einsum(labels, np.asarray(x).astype(wide), np.asarray(y).astype(wide))
    nearly_equal(got, want.astype(got.dtype), name, ulps=64)
    nearly_equal(turned, want.astype(got.dtype), name, ulps=64)
