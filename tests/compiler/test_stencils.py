"""Derivatives of stencils: what is rolled is read in place, and scaled afterwards."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.passes.pads import join_pads
from toile.compiler.passes.slices import _is_scaling, scale_after_joins
from toile.compiler.pipeline import optimize
from toile.engine.program import without_dead_code

X = np.random.default_rng(0).normal(size=(6, 8)).astype("f4")
Y = np.random.default_rng(1).normal(size=(6, 8)).astype("f4")


def spread(x):
    return sum(jnp.roll(x, k, axis) for k in (1, -1) for axis in (0, 1)) - 4 * x


def diffused(x, y):
    for _ in range(3):
        x, y = x + 0.1 * spread(x) - x * y * y, y + 0.3 * spread(y) + x * y
    return jnp.sum(x * x) + jnp.sum(jnp.sin(y))


STENCILS = {
    "spread": lambda x, y: jnp.sum(spread(x) ** 2 * y),
    "diffused": diffused,
    "one roll": lambda x, y: jnp.sum(jnp.sin(jnp.roll(x * 3, 2, 1)) * y),
    "rolls of both axes": lambda x, y: jnp.sum(jnp.roll(-x, (1, 2), (0, 1)) * jnp.roll(y, 3)),
    "scaled by a traced number": lambda x, y: jnp.sum(jnp.roll(x * y[0, 0], 1, 0) * y),
    "a slice that is not joined": lambda x, y: (
        lambda z: jnp.sum(jnp.roll(z, 1, 0) * y) + jnp.sum(z[1:3] ** 2))(x * 2),
    "parts of different arrays": lambda x, y: jnp.sum(
        jnp.concatenate([(x * 2)[3:], (y * 2)[:3]]) ** 3),
}


@pytest.mark.parametrize("name", STENCILS)
def test_values(name):
    f = STENCILS[name]
    for g in (f, toile.grad(f), toile.grad(f, 1)):
        with toile.disable_jit():
            wanted = g(jnp.asarray(X), jnp.asarray(Y))
        np.testing.assert_allclose(toile.jit(g)(X, Y), wanted, rtol=2e-5, atol=2e-5)


def names(program):
    return [e.op.name for e in program.equations]


def test_parts_of_a_roll_are_joined_behind_another_sum():
    def f(x, y):
        low = lax.pad(x[:2], 0.0, ((4, 0, 0), (0, 0, 0)))
        return ((y + low) + lax.pad(x[2:], 0.0, ((0, 2, 0), (0, 0, 0)))) * y

    program = without_dead_code(join_pads(toile.make_jaxpr(f)(X, Y).program))
    assert "pad" not in names(program) and names(program).count("concatenate") == 1


def test_parts_that_leave_a_gap_are_not():
    def f(x, y):
        low = lax.pad(x[:2], 0.0, ((4, 0, 0), (0, 0, 0)))
        return (y + low) + lax.pad(x[2:5], 0.0, ((0, 3, 0), (0, 0, 0)))

    program = without_dead_code(join_pads(toile.make_jaxpr(f)(X, Y).program))
    assert "concatenate" not in names(program)


def test_scaling_follows_the_roll():
    made = toile.make_jaxpr(lambda x: jnp.roll(x * 3, 1, 0) + (-(x * 3)))(X).program
    program = without_dead_code(scale_after_joins(made))
    slices = [e for e in program.equations if e.op.views_part]
    assert all(e.ins[0] is program.inputs[0] for e in slices) and slices


def test_a_scaled_array_that_is_returned_is_read_itself():
    made = without_dead_code(toile.make_jaxpr(
        lambda x: (lambda z: (jnp.roll(z, 1, 0), z))(x * 3))(X).program)
    assert names(scale_after_joins(made)) == names(made)


@pytest.mark.parametrize("name", ["a slice that is not joined", "parts of different arrays"])
def test_other_slices_stay(name):
    made = without_dead_code(toile.make_jaxpr(STENCILS[name])(X, Y).program)
    assert names(scale_after_joins(made)) == names(made)


def test_a_step_of_a_reaction_stores_few_arrays():
    """What is rolled in the gradient of a step is not scaled before."""
    program = optimize(toile.make_jaxpr(toile.grad(diffused))(X, Y).program)
    joined = [e for e in program.equations if e.op.joined_axis is not None]
    made = {o: e for e in program.equations for o in e.outs}
    parts = [made[a] for e in joined for a in e.ins if a in made]
    sources = {e.ins[0] for e in parts if e.op.views_part}
    assert sources and not any(a in made and _is_scaling(made[a]) for a in sources)


def laplacian(x, reach):
    """A stencil of the given reach on a square with zeros around it."""
    n, m = x.shape
    p = jnp.pad(x, reach)
    return sum((k + 0.5) * (p[k : k + n, reach:-reach] + p[reach:-reach, k : k + m])
               for k in range(2 * reach + 1))


@pytest.mark.parametrize("reach", [1, 2])
def test_derivatives_of_a_padded_stencil_read_one_array(reach):
    """Slices of padded arrays are padded slices, which are scaled afterwards."""
    program = optimize(toile.make_jaxpr(toile.grad(
        lambda x, y: jnp.sum(laplacian(x, reach) * y)))(X, Y).program)
    pads = [e for e in program.equations if e.op.margins is not None]
    made = {o: e for e in program.equations for o in e.outs}
    assert len(pads) == 4 * reach and all(e.outs[0].aval.shape == X.shape for e in pads)
    assert len({made[e.ins[0]].ins[0] for e in pads}) == 1


@pytest.mark.parametrize("scale", [lambda x: -x, lambda x: x * -2, lambda x: x * 2 * -1])
def test_zeros_around_a_negated_array_keep_their_sign(scale):
    found = toile.jit(lambda x: lax.pad(scale(x), 0.0, ((1, 1, 0), (0, 0, 0))))(X)
    assert not np.signbit(np.asarray(found)[[0, -1]]).any()


@pytest.mark.parametrize("seed", range(60))
def test_slices_of_padded_arrays(seed):
    """Random margins (also negative ones and those between elements), slices and readers."""
    rng = np.random.default_rng(seed)

    def margins(n):
        low, high = (int(i) for i in rng.integers(-2, 4, 2))
        return max(low, -n // 2), max(high, -n // 2), int(rng.random() < 0.15)

    def cut(shape):
        starts = [int(rng.integers(0, n)) for n in shape]
        limits = [int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, shape, strict=True)]
        whole = rng.random(len(shape)) < 0.3
        starts = [0 if w else s for w, s in zip(whole, starts, strict=True)]
        limits = [n if w else m for w, m, n in zip(whole, limits, shape, strict=True)]
        return starts, limits, [1 if rng.random() < 0.85 else 2 for _ in shape]

    steps, shape = [], list(X.shape)
    for _ in range(int(rng.integers(2, 6))):
        kind = rng.choice(["pad", "slice", "scale", "negate", "sine", "add"])
        value: object = float(rng.choice([0.0, 0.0, 1.5]))
        if kind == "pad":
            config = [margins(n) for n in shape]
            shape = [lax.pad(np.zeros(n), 0.0, [c]).shape[0]
                     for n, c in zip(shape, config, strict=True)]
            value = config, value
        elif kind == "slice":
            value = cut(shape)
            shape = [len(range(*r)) for r in zip(*value, strict=True)]
        steps.append((kind, value))

    def f(x, factor):
        for kind, value in steps:
            if kind == "pad":
                x = lax.pad(x, jnp.float32(value[1]), value[0])
            elif kind == "slice":
                x = lax.slice(x, *value)
            elif kind == "scale":
                x = x * (factor if value else 3.0)
            else:
                x = {"negate": jnp.negative, "sine": jnp.sin, "add": lambda a: a + 1}[kind](x)
        return x * 2

    x = X.copy()
    x[rng.integers(0, 6), rng.integers(0, 8)] = rng.choice([np.inf, np.nan, 1.0])
    for g in (f, lambda x, c: toile.vjp(lambda x: f(x, c), x)[1](f(x, c))[0]):
        for factor in (np.float32(0.5), np.float32(np.inf)):
            with toile.disable_jit():
                wanted = g(jnp.asarray(x), factor)
            np.testing.assert_allclose(toile.jit(g)(x, factor), wanted, rtol=2e-5, atol=2e-5,
                                       err_msg=str(steps))


ZEROS = np.array([0.0, 1.0, -2.0, -0.0, 3.0], "f4")
PADDED = {
    "negated, joined": lambda x, y: 1 / (jnp.pad(-x, (2, 1))[1:] + jnp.pad(-y, (1, 2))[:-1]),
    "factors of both signs": lambda x, y: jnp.pad(-x, (1, 2)) + jnp.pad(y * -2, (2, 1)),
    "a factor of zero": lambda x, y: jnp.pad(x * -3.0, 1) + jnp.pad(y * 0.0, 1),
    "a factor of minus zero": lambda x, y: jnp.pad(x * -0.0, 1) + jnp.pad(y * -0.0, 1),
    "twice": lambda x, y: jnp.pad(-(x * -2.0), 1) * 1.5,
    "filled with minus zero": lambda x, y: lax.pad(x * -2.0, jnp.float32(-0.0), [(1, 1, 0)]),
    "rounded": lambda x, y: jnp.pad((-x).astype(jnp.bfloat16), 2).astype("f4") * -1.0,
    "integers": lambda x, y: jnp.pad(-x.astype(jnp.int32), 2) * -3,
}


@pytest.mark.parametrize("name", PADDED)
def test_zeros_around_scaled_arrays_keep_their_signs(name):
    f = PADDED[name]
    with toile.disable_jit():
        wanted = np.asarray(f(jnp.asarray(ZEROS), jnp.asarray(-ZEROS)))
    got = np.asarray(toile.jit(f)(ZEROS, -ZEROS))
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
