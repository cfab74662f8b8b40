"""Plans of small programs: results as the reference backend gives them, and how much is fused."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from toile import lax, nn
from toile.compiler.ir.steps import EagerStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned as plan_of
from toile.compiler.plan.place import arena_layout
from toile.engine.operation import Operation
from toile.engine.program import trace_program
from toile.platforms import reference
from toile.platforms.cpu.new_plans import PlannedExecutable
from toile.platforms.cpu.planner import Region
from toile.platforms.cpu.target import Target
from toile.primitives.families import Identity

RANDOM = np.random.RandomState(0)


def normal(*shape):
    return RANDOM.randn(*shape).astype(np.float32)


def assembled(program, plan):
    """What the CPU runs for a plan."""
    return PlannedExecutable(program, plan, *arena_layout(plan))


def planned(f, *args, threads=2):
    """The Program of f, its plan, and raw arguments."""
    xs = [jnp.asarray(a) for a in args]
    flat = lambda *ys: toile.tree_util.tree_leaves(f(*ys))
    program, consts = trace_program(flat, [x.aval for x in xs], "f")
    program = optimize(program)
    raws = [np.asarray(c) for c in consts] + [np.asarray(x) for x in xs]
    return program, plan_of(program, Target(threads)), raws


def kinds(plan):
    """The kinds of launches, region by region; names of Python steps and loops."""
    out = []
    for step in plan.all_steps():
        if isinstance(step, Region):
            out.append([x.note for x in step.launches])
        else:
            out.append(step.equation.op.name if isinstance(step, EagerStep)
                       else type(step).__name__)
    return out


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * scale + bias


def softmax_backward(x, y):
    return toile.vjp(nn.softmax, x)[1](y)


def cross_entropy(x, labels):
    one_hot = nn.one_hot(labels, x.shape[-1])
    return toile.value_and_grad(lambda x: -(nn.log_softmax(x) * one_hot).sum(-1).mean())(x)


def picked(x, labels):
    log_p = lambda x: jnp.take_along_axis(nn.log_softmax(x), labels[..., None], axis=-1)
    return toile.value_and_grad(lambda x: -log_p(x).mean())(x)


def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v


def many_adams(tree):
    return [adam(*leaves) for leaves in tree]


def dropout(key, x):
    keep = toile.random.bernoulli(toile.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)


def dropout_both_ways(key, x, g):
    y, back = toile.vjp(lambda x: dropout(key, nn.gelu(x)), x)
    return y, *back(g)


def sampled(sampler, *shape, **options):
    return lambda key: sampler(toile.random.wrap_key_data(key), shape, **options)


def parts(x):
    z = lax.complex(x, x * 2)
    return jnp.abs(jnp.conj(z) * z) + z.real - (z * z).imag


def bits(x):
    whole = lax.bitcast_convert_type(lax.reduce_precision(x * 2, 8, 10), jnp.int32) & -4
    return lax.bitcast_convert_type(whole, jnp.float32) + 1


def in_loop(c, rows):
    c, _ = lax.scan(lambda d, b: (d * b + 1, None), c, rows)
    return c, lax.cond(c.sum() > 0, lambda: c, lambda: -c)


X, G = normal(64, 100), normal(100)
KEY = np.array([3, 5], np.uint32)
PROGRAMS = {
    "add": (lambda x: x + 1, X),
    "mixed": (lambda x: (jnp.exp(x) * 2 + x.T.sum(), jnp.tanh(x)), X),
    "softmax": (nn.softmax, X),
    "softmax along columns": (lambda x: nn.softmax(x, axis=0), X),
    "softmax backward": (softmax_backward, X, normal(64, 100)),
    "log softmax": (toile.grad(lambda x: nn.log_softmax(x).mean()), X),
    "sums": (lambda x: ((x * 2).sum(0), x.sum(1), x.sum(), x.max(0)), X),
    "sums of many rows": (lambda x: ((x * 2).sum(0), x.sum(1), x.sum()), normal(5000, 33)),
    "sums of long rows": (lambda x: ((x * 2).sum(0), x.sum(1), x.sum()), normal(3, 300_000)),
    "softmax of a long row": (nn.softmax, normal(200_000)),
    "batch statistics": (lambda x: (x.mean((0, 1, 2)), x.var((0, 1, 2))), normal(8, 14, 14, 64)),
    "layer norm": (layer_norm, X, G, G),
    "layer norm backward": (
        lambda *a: toile.grad(lambda *b: jnp.square(layer_norm(*b)).sum(), (0, 1, 2))(*a), X, G, G),
    "split axes": (lambda x: (jnp.exp(x).reshape(8, 8, 10, 10).sum((1, 3)),
                              (x + 1).reshape(-1) * 2), X),
    "transposed": (lambda x: (jnp.exp(x).T + 1, jnp.exp(x).T.reshape(-1)), X),
    "middle axis": (lambda x: (x.reshape(4, 16, 100).sum(1),
                               x.reshape(4, 16, 100).max((0, 2))), X),
    "gelu": (toile.grad(lambda x: nn.gelu(x).sum()), X),
    "iota": (lambda x: (jnp.where(jnp.arange(100) < 50, x, 0.0),
                        jnp.arange(64)[:, None] * x), X),
    "integers": (lambda x: ((x * 10).astype(jnp.int32).sum(), (x > 0).any(0), (x > 0).all()), X),
    "complex": (lambda x: (lambda z: ((z * z).sum(0), (z * z).sum()))(x + 1j * x), X),
    "cross-entropy": (cross_entropy, X, np.arange(64) % 100),
    "picked labels": (picked, X, np.arange(64) % 100),
    "labels outside": (lambda x, i: (picked(x, i), picked(x[None], i[None]),
                                     jnp.take_along_axis(jnp.exp(x), i[:, None], 1, mode="clip")),
                       X, np.arange(64) * 7 - 200),
    "reversed and sliced": (lambda x: (x[::-1, 3:50:2] + 1, jnp.flip(x * 2, 1)[2:]), X),
    "scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c.sum()), x[0], x), X),
    "scan backward": (toile.grad(lambda x: sum(jnp.sum(t) for t in lax.scan(
        lambda c, a: (jnp.tanh(c + a), c * a), x[0], x, reverse=True))), X),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, c[1] * 1.5),
                                       (0, x)), X),
    "updates in a loop": (lambda x: lax.fori_loop(
        0, 5, lambda i, c: c.at[i].set(c[i] * i), x), X),
    "updates that are read": (lambda x: lax.fori_loop(
        1, 5, lambda i, c: c.at[i].set(c[i - 1] + c.sum() * 0.01), x), X),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: (x + 1, x), lambda x: (x - 1, x * 2), x), X),
    "nested loops": (lambda x: lax.scan(in_loop, jnp.ones(()), x), X),
    "concatenated": (lambda x: (lambda a, b: (jnp.concatenate([a, x, b.T, b.T[:, :3]], 1),
                                              a.sum(), b[:2]))(x * 2, x.T + 1), X),
    "split backward": (toile.grad(lambda x: sum(
        jnp.square(p).sum() * i for i, p in enumerate(jnp.split(x, 4, axis=1)))), X),
    "recurrent": (lambda x, w: toile.value_and_grad(lambda w: jnp.square(lax.scan(
        lambda h, a: (jnp.tanh(h @ w[:20] + a @ w[20:]), h), jnp.zeros((2, 20)),
        x.reshape(32, 2, 100))[1]).sum())(w), X, normal(120, 20)),
    "outputs twice": (lambda x: (lambda y: (y, y, x, y.T, 1.0))(x + 1), X),
    "dropout": (dropout, KEY, X),
    "dropout both ways": (dropout_both_ways, KEY, X, X),
    "dropout of a transpose": (lambda key, x: dropout(key, x.T), KEY, X),
    "uniform": (sampled(toile.random.uniform, 5, 6, 7), KEY),
    "normal": (sampled(toile.random.normal, 5, 6, 7), KEY),
    "normal bfloat16": (sampled(toile.random.normal, 5, 6, 7, dtype=jnp.bfloat16), KEY),
    "normal of many keys": (toile.vmap(sampled(toile.random.normal, 3, 4)),
                            np.arange(12, dtype=np.uint32).reshape(6, 2)),
    "split counts": (lambda x: x + jnp.arange(6400).reshape(64, 100)
                     + jnp.arange(6400.0).reshape(100, 64).T, X),
    "split counts in sums": (lambda x: ((x * jnp.arange(6400).reshape(64, 100)).sum(0),
                                        (x * jnp.arange(6400).reshape(64, 100)).sum(1)), X),
    "parts of complex numbers": (parts, X),
    "bits": (bits, X),
    "shifts": (lambda i: (i << 3, i >> 40, lax.shift_right_logical(i, jnp.int32(-1)), i >> 2),
               np.arange(-8, 8)),
    "random": (lambda x: x * toile.random.bernoulli(toile.random.key(3), 0.5, x.shape), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_results(name, threads):
    f, *args = PROGRAMS[name]
    program, plan, raws = planned(f, *args, threads=threads)
    want = reference.Executable(program)(raws)
    executable = assembled(program, plan)
    for _ in range(2):
        for g, w in zip(executable(raws), want, strict=True):
            nearly_equal(g, np.asarray(w), name, ulps=64)


FUSED = {  # regions, each a list of kinds
    "softmax": [["row"]],
    "softmax backward": [["row"]],
    "log softmax": [["row"]],
    "layer norm": [["row"]],
    "picked labels": [["map"], ["row"], ["row"]],
    "gelu": [["map"]],
    "split backward": [["map", "map", "map", "map"]],
    "cross-entropy": [["row"], ["row"]],
    **dict.fromkeys([
        "dropout", "dropout both ways", "dropout of a transpose", "uniform", "normal",
        "normal bfloat16", "normal of many keys", "split counts", "parts of complex numbers",
        "bits",
    ], [["map"]]),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name):
    f, *args = PROGRAMS[name]
    assert kinds(planned(f, *args)[1]) == FUSED[name]


# Parts of the same cache lines, which one kernel reads.
INTERLEAVED = {
    "cross products": (lambda x: jnp.cross(x[:, :3], x[:, 1:]), (300, 4)),
    "rotations": (lambda x: jnp.stack([x[..., ::2] * 2 - x[..., 1::2], x[..., ::2] + x[..., 1::2]],
                                      -1), (30, 16)),
    "of two ranks": (lambda x: (jnp.sin(x[..., 0]), x[..., 1:2] * 2), (20, 20, 3)),
    "colors": (lambda x: tuple(jnp.sin(x[..., i] * i) for i in range(3)), (20, 20, 3)),
}


@pytest.mark.parametrize("name", INTERLEAVED)
def test_parts_of_cache_lines_are_read_together(name):
    f, shape = INTERLEAVED[name]
    program, plan, raws = planned(f, normal(*shape))
    assert sum(kinds(plan), []).count("map") == 1
    for g, w in zip(assembled(program, plan)(raws), reference.Executable(program)(raws),
                    strict=True):
        nearly_equal(g, np.asarray(w), name, ulps=4)


def test_halves_are_not_read_together():
    _, plan, _ = planned(lambda x: (jnp.sin(x[:, :64]), jnp.cos(x[:, 64:])), normal(30, 128))
    assert sum(kinds(plan), []) == ["map", "map"]


def operations(cls=Operation):
    for sub in cls.__subclasses__():
        yield sub
        yield from operations(sub)


def test_all_scalar_code_fuses():
    """What has scalar code is computed by element; identities are views instead."""
    written = [c for c in operations() if c.__module__.startswith("toile.")
               and callable(getattr(c, "lower", None))]
    assert len(written) > 60
    left = {c.__name__ for c in written if not c.by_element and not issubclass(c, Identity)}
    assert left == {"CheckIndex", "StopGradient"}


def test_an_optimizer_is_one_region():
    leaves = [tuple(normal(*shape) for _ in range(4)) for shape in [(8, 8), (5,), (300, 7)] * 16]
    flat = [x for leaf in leaves for x in leaf]
    _, plan, _ = planned(
        lambda *xs: many_adams([xs[i : i + 4] for i in range(0, len(xs), 4)]), *flat)
    assert kinds(plan) == [["map"] * 48]


def test_equal_layers_share_kernels():
    def f(x):
        for _ in range(12):
            x = nn.gelu(layer_norm(x, G, G))
        return x

    _, plan, _ = planned(f, X)
    texts = {x.text for s in plan.steps for x in s.launches}
    assert len(texts) <= 2


def test_another_batch_size_compiles_nothing():
    def texts(batch):
        _, plan, _ = planned(lambda x: cross_entropy(x, jnp.zeros(batch, int)), normal(batch, 100))
        return {x.text for s in plan.steps for x in s.launches}

    assert texts(16) == texts(32) == texts(48) == texts(64)


@pytest.mark.parametrize("f", [
    lambda x: (jnp.sin(x), jnp.sin(x)),
    lambda x: (lambda y: (y, y.reshape(-1), y))(jnp.sin(x)),
    lambda x: (x.sum(0), x.sum(0)),
    lambda x: (x.sum(), x.sum()),
    lambda x: (nn.softmax(x), nn.softmax(x)),
], ids=["map", "reshaped", "columns", "total", "rows"])
def test_what_is_returned_twice_is_stored_twice(f):
    for shape in ((6, 5), (300, 700)):
        x = jnp.linspace(1, 2, shape[0] * shape[1]).reshape(shape)
        program = optimize(toile.make_jaxpr(f)(x).jaxpr)
        notes = [x.note for s in plan_of(program, Target(2)).steps for x in s.launches]
        assert not any("copy" in n for n in notes), notes
        for a, b in zip(toile.jit(f)(x), f(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


SUMS = {
    "of all": (lambda x: (x.min(), x.max()), 1),
    "of columns": (lambda x: (x.min(0), x.max(0), x.sum(0)), 1),
    "of rows": (lambda x: (x.min(1), x.max(1), x.mean(1)), 1),
    "over several axes": (lambda x: (x.reshape(40, 5, 60).sum((0, 2)),
                                     x.reshape(40, 5, 60).max((0, 2))), 1),
    "of functions": (lambda x: (jnp.abs(x).max(0), (x * x).sum(0)), 1),
    "of different axes": (lambda x: (x.min(1), x.max()), 2),
    "one of which needs the other": (lambda x: (x.max(), (x * x.max()).min()), 2),
    "of parts": (lambda x: (x[:100].min(0), x[100:].max(0)), 2),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_one_array_are_computed_together(name):
    fun, groups = SUMS[name]
    x = np.random.default_rng(0).normal(size=(200, 60)).astype("f4")
    fused = plan_of(optimize(toile.make_jaxpr(fun)(x).jaxpr), Target(1)).fused
    assert sum(group.reduced is not None for group in fused.groups) == groups
    for got, want in zip(toile.jit(fun)(x), fun(jnp.asarray(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-5)
