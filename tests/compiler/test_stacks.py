"""Reductions over the axis of a stack of a few arrays become elementwise operations."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_passes import names, program, same
from toile import lax
from toile.compiler.passes.calls import inline_calls
from toile.compiler.passes.stacks import MOST, unstack

RNG = np.random.default_rng(0)
X, Y, Z = RNG.standard_normal((3, 4, 5)).astype(np.float32)
EDGES = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0], [1.0, -1.0, 2.0, -np.inf, 0.0]], np.float32)
OVER_STACK = {
    "max": lambda x, y, z: jnp.stack([x, y, z]).max(0),
    "min": lambda x, y, z: jnp.stack([x, y, z], 1).min(1),
    "sum": lambda x, y, z: jnp.stack([x, y, z], 2).sum(2),
    "product": lambda x, y, z: jnp.stack([x, y, z]).prod(0),
    "mean": lambda x, y, z: jnp.stack([x, y]).mean(0) * z,
    "integers": lambda x, y, z: jnp.stack([x, y, z]).astype(jnp.int32).sum(0),
    "all axes": lambda x, y, z: jnp.stack([x, y, z], 1).max(),
    "other axes, too": lambda x, y, z: jnp.stack([x, y, z], 1).min((0, 1)),
    "computed first": lambda x, y, z: jnp.exp(jnp.stack([x, y]) * 2 + z).max(0),
    "two stacks": lambda x, y, z: (jnp.stack([x, y]) * jnp.stack([y, z])).sum(0),
    "with an array": lambda x, y, z: (jnp.stack([x, y]) - jnp.sin(jnp.ones((2, 4, 5)) * z)).max(0),
    "compared": lambda x, y, z: jnp.where(jnp.stack([x, y]) > z, 1, jnp.stack([z, z])).sum(0),
    "logsumexp": lambda x, y, z: toile.nn.logsumexp(jnp.stack([x, y, z]), axis=0),
    "logaddexp of rows": lambda x, y, z: toile.nn.logsumexp(jnp.stack([x, y], -1), axis=-1) + z,
    "numbers": lambda x, y, z: jnp.stack([x.sum(), y.sum(), z.sum()]).max(),
    "columns": lambda x, y, z: jnp.concatenate([x[:, :1], y[:, 2:3], z[:, 4:]], 1).max(1),
}  # fmt: skip
# Results that keep the axis are stacked from their parts.
STACKED_AGAIN = {
    "softmax": lambda x, y, z: toile.nn.softmax(jnp.stack([x, y, z]), axis=0),
    "returned": lambda x, y, z: (lambda s: (s, s.max(0), s * 2))(jnp.stack([x, y, z])),
    "read by a product": lambda x, y, z: (lambda s: (s.sum(0), s @ z.T))(jnp.stack([x, y]) * 2),
    "another axis": lambda x, y, z: (lambda s: s.max(0) + s.max(1).max(0))(jnp.stack([x, y])),
    "two axes": lambda x, y, z: (jnp.stack([x[:2], y[:2]]).swapaxes(0, 1)
                                 * jnp.stack([x[:2], z[:2]], 1)).max(1),
}  # fmt: skip
UNCHANGED = {
    "another axis": lambda x, y, z: jnp.stack([x, y, z]).max(1),
    "not reduced": lambda x, y, z: jnp.exp(jnp.stack([x, y, z])),
    "parts of several rows": lambda x, y, z: jnp.concatenate([x, y]).max(0),
    "many": lambda x, y, z: jnp.stack([x] * (MOST + 1)).sum(0),
    "a narrow sum": lambda x, y, z: lax.reduce(
        jnp.stack([x, y]).astype(jnp.bfloat16), jnp.bfloat16(0), lax.add, (0,)),
    "a position": lambda x, y, z: jnp.stack([x, y]).argmax(0),
    "logical": lambda x, y, z: jnp.stack([x > 0, y > 0]).any(0),
}  # fmt: skip


def reductions(p):
    return [n for n in names(p) if n.startswith("reduce") or n.startswith("concat")]


@pytest.mark.parametrize("name", OVER_STACK)
def test_reduced_stacks_are_no_arrays(name):
    p = program(OVER_STACK[name], X, Y, Z)
    after = same(p, X, Y, Z, ulps=2)
    over_others = name in ("all axes", "other axes, too", "numbers")
    assert not [n for n in reductions(after) if n.startswith("concat") or not over_others]


@pytest.mark.parametrize("name", STACKED_AGAIN)
def test_results_are_stacked_again(name):
    p = program(STACKED_AGAIN[name], X, Y, Z)
    assert unstack(inline_calls(p)) is not inline_calls(p)
    same(p, X, Y, Z, ulps=2)


@pytest.mark.parametrize("name", UNCHANGED)
def test_other_programs_stay(name):
    p = inline_calls(program(UNCHANGED[name], X, Y, Z))
    assert unstack(p) is p
    same(program(UNCHANGED[name], X, Y, Z), X, Y, Z)


@pytest.mark.parametrize("reduce", ["max", "min", "sum", "prod"])
def test_special_values(reduce):
    f = lambda a, b: getattr(jnp.stack([a, b, a]), reduce)(0)
    with np.errstate(invalid="ignore"):
        same(program(f, EDGES, EDGES[::-1]), EDGES, EDGES[::-1])


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed):
    """Elementwise operations, stacks, and reductions over the stacked and other axes."""
    rng = np.random.default_rng(seed)
    axis, count = int(rng.integers(3)), int(rng.integers(2, 5))
    steps = rng.integers(0, 8, 12)

    def f(*xs):
        whole = jnp.stack(xs, axis)
        values, found = [whole, jnp.cos(whole)], []
        for step, (i, j) in zip(steps, rng_pairs, strict=True):
            a, b = values[i % len(values)], values[j % len(values)]
            if step < 3:
                values.append([a + b, jnp.maximum(a, b), jnp.where(a > b, a * 0.5, b)][step])
            elif step == 3:
                values.append(a - a.max(axis, keepdims=True))
            elif step == 4:
                values.append(jnp.stack([x * 2 for x in xs], axis) + a)
            else:
                found.append([a.max(axis), a.min(axis), a.max((axis + 1) % 3)][step - 5])
        return values[-1], *found, whole.min(axis)

    rng_pairs = rng.integers(0, 50, (12, 2)).tolist()
    xs = rng.standard_normal((count, 3, 4)).astype(np.float32)
    p = program(f, *xs)
    same(p, *xs)
    for got, want in zip(toile.jit(f)(*xs), f(*map(jnp.asarray, xs)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_logarithm_of_a_sum_of_exponentials_is_one_kernel(axis):
    """Also its gradient, in each step of a scan."""
    def value(x, y, z):
        return toile.nn.logsumexp(jnp.stack([x, y, z], axis), axis=axis)

    assert len(toile.explain(value)(X, Y, Z).kernels) == 1
    gradient = toile.grad(lambda x, y, z: value(x, y, z).sum(), (0, 1, 2))
    assert len(toile.explain(gradient)(X, Y, Z).kernels) == 1
    for got, w in zip(gradient(X, Y, Z), (X, Y, Z), strict=True):
        want = np.exp(w) / (np.exp(X) + np.exp(Y) + np.exp(Z))
        np.testing.assert_allclose(got, want, rtol=1e-5)


# ---- joined numbers are padding
PADDED = {
    "before": (lambda x: jnp.concatenate([jnp.full((4, 2), -1e30), x[:, :-2]], 1), True),
    "after": (lambda x: jnp.concatenate([x[1:], jnp.zeros((1, 5))]), True),
    "around": (lambda x: jnp.concatenate([jnp.ones((1, 5)), x, jnp.ones((2, 5))]), True),
    "different numbers": (lambda x: jnp.concatenate([jnp.ones((1, 5)), x, jnp.zeros((2, 5))]),
                          False),
    "zeros of both signs": (lambda x: jnp.concatenate([jnp.full((1, 5), -0.0), x,
                                                       jnp.zeros((1, 5))]), False),
    "two arrays": (lambda x: jnp.concatenate([jnp.ones((1, 5)), x[1:], x[:1]]), False),
    "only numbers": (lambda x: jnp.concatenate([jnp.ones((1, 5)), jnp.ones((2, 5))]) * x[0], False),
    "a computed array": (lambda x: jnp.concatenate([jnp.ones((1, 5)), jnp.sin(x)]), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_joined_numbers_are_padding(name):
    f, padded = PADDED[name]
    after = same(program(f, X), X)
    assert ("pad" in names(after), "concatenate" in names(after)) == (padded, not padded)


# ---- slices of broadcast arrays
SLICED = {
    "along the new axis": lambda x: jnp.broadcast_to(x, (6, 4, 5))[2:4],
    "all of it": lambda x: jnp.broadcast_to(x, (6, 4, 5))[3:4],
    "along an axis of one": lambda x: jnp.broadcast_to(x[:, :1], (4, 6))[:, 1:5:2],
    "a row and a new axis": lambda x: jnp.broadcast_to(x[0], (4, 5))[1:3, 1:],
    "every second element": lambda x: jnp.broadcast_to(x, (6, 4, 5))[:, ::2],
    "of one number": lambda x: jnp.broadcast_to(x[:1, :1], (4, 5))[1:, 2:],
}  # fmt: skip


@pytest.mark.parametrize("name", SLICED)
def test_slices_of_broadcast_arrays(name):
    after = same(program(SLICED[name], X), X)
    whole = name in ("a row and a new axis", "every second element")
    broadcast = [e for e in after.equations if e.op.name == "slice"
                 and any(p.outs[0] is e.ins[0] and p.op.name == "broadcast_in_dim"
                         for p in after.equations)]
    assert bool(broadcast) == whole


# ---- logsumexp of real numbers: the sum of exponentials is never negative
EXPONENTS = [[-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [1e4, -1e4], [0.0, -0.0], [-1e30, 3]]


@pytest.mark.parametrize("values", EXPONENTS, ids=str)
def test_logsumexp_needs_no_absolute_value(values):
    x = np.array(values, np.float32)
    assert "abs" not in names(program(toile.nn.logsumexp, x))
    with np.errstate(all="ignore"):
        want = np.logaddexp(x[0], x[1])
    np.testing.assert_allclose(toile.nn.logsumexp(x), want, rtol=1e-6)
    log, sign = toile.nn.logsumexp(x, return_sign=True)
    np.testing.assert_allclose(log, want, rtol=1e-6)
    np.testing.assert_equal(np.asarray(sign), np.nan if np.isnan(want) else want > -np.inf)
