"""Updates of slices and scatters: values on both devices, and what is copied for them."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler import test_picks
from tests.gpu import host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.compilation import compile_program
from toile.compiler.ir.steps import Region
from toile.platforms.gpu.target import TARGET

RANDOM = np.random.default_rng(0)
X, Y = (RANDOM.standard_normal((40, 24)).astype("f4") for _ in range(2))
AT = np.int32(3)
run, check = test_picks.run, test_picks.check


def chain(x, y, i):
    x = x * 2
    for k in range(6):
        x = x.at[i + k].set(y[k] + 1)
    return x


def stepped(u):
    inner = u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].add(u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] - 3 * inner)


UPDATES = {
    "a chain": chain,
    "of an argument": lambda x, y, i: x.at[i].set(y[0]),
    "read before": lambda x, y, i: ((x + 1).sum(0), (x + 1).at[i].set(y[0])),
    "read after": lambda x, y, i: (lambda t: (t.at[i].set(y[0]), t * 2))(x + y),
    "returned as well": lambda x, y, i: (lambda t: (t.at[i].set(y[0]), t))(x + y),
    "updated twice": lambda x, y, i: (lambda t: (t.at[i].set(y[0]), t.at[i + 1].set(y[1])))(x + y),
    "with itself": lambda x, y, i: (lambda t: t.at[i].set(t[i + 2]))(x + y),
    "with all of itself": lambda x, y, i: (lambda t: lax.dynamic_update_slice(
        t, t, (jnp.zeros_like(i), jnp.zeros_like(i))))(x + y),
    "with its reversal": lambda x, y, i: (lambda t: t.at[:].set(t[::-1]))(x + y),
    "a view of the operand": lambda x, y, i: (x + y).T.at[i].set(y[:, 0]),
    "a reshaped operand": lambda x, y, i: (x + y).reshape(-1).at[i].set(7),
    "elements": lambda x, y, i: (x + y).at[jnp.arange(5) + i, jnp.arange(5)].add(y[0, :5]),
    "elements that repeat": lambda x, y, i: (x + y).at[jnp.arange(9) % 3, 0].add(y[0, :9]),
    "what the update reads": lambda x, y, i: (lambda t: t.at[i].set((t * t).sum(0)))(x + y),
    "two chains": lambda x, y, i: chain(x, y, i) + chain(y, x, i),
    "a loop": lambda x, y, i: lax.fori_loop(
        0, 4, lambda k, t: t.at[k].set(y[k]).at[k + 1].add(t[0]), x),
    "inside, known": lambda x, y, i: stepped(x),
    "inside, known, twice": lambda x, y, i: stepped(stepped(x + y)),
    "inside, in a loop": lambda x, y, i: lax.fori_loop(0, 5, lambda k, t: stepped(t), x + y),
    "inside, read elsewhere": lambda x, y, i: (lambda b: (x.at[2:, 1:].set(b), b.sum()))(
        y[2:, 1:] * 2),
    "all of it": lambda x, y, i: x.at[:].set(y * 2),
    "clamped": lambda x, y, i: lax.dynamic_update_slice(x, y[:30] * 2, (99, -7)),
    "a known slice": lambda x, y, i: lax.dynamic_slice(x * 2, (50, 3), (20, 21)) + 1,
    "a gradient": toile.grad(lambda x, y, i: (stepped(stepped(x * y)) ** 2).sum(), (0, 1)),
    "a gradient of a chain": toile.grad(lambda x, y, i: (chain(x, y, i) ** 3).sum(), (0, 1)),
    "sums with blocks": lambda x, y, i: x * 2 + jnp.pad(y[:3, :2], ((1, 36), (5, 17))),
    "sums with blocks of views": lambda x, y, i: x[::-1] + jnp.pad(y[:3, :2], ((1, 36), (5, 17))),
    "a replaced block and a sum": lambda x, y, i: (x * 2).at[1:4, 2:9].set(0.0) + jnp.pad(
        y[:3, :7], ((1, 36), (2, 15))),
    "a block put back": lambda x, y, i: (lambda t: t.at[1:4, 2:9].set(0.0) + jnp.pad(
        t[1:4, 2:9], ((1, 36), (2, 15))))(x * y),
}


@pytest.mark.parametrize("name", UPDATES)
def test_values(name, run):
    check(run, UPDATES[name], (X, Y, AT))


def notes(fun, *shapes):
    """What the launches of a GPU's plan are."""
    program, _ = program_of(fun, [jnp.zeros(s, jnp.float32 if s else jnp.int32) for s in shapes])
    plan = compile_program(program, TARGET)
    return [x.note for s in plan.steps if isinstance(s, Region) for x in s.launches]


BIG = (512, 512)


@pytest.mark.parametrize("fun, copies", [
    (chain, 0),
    (UPDATES["of an argument"], 1),
    (UPDATES["read before"], 0),
    (UPDATES["returned as well"], 1),
    (UPDATES["updated twice"], 1),
])
def test_copies(fun, copies):
    assert notes(fun, BIG, BIG, ()).count("copy") == copies


@pytest.mark.parametrize("fun, kernels", [
    (lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) - 3 * u, 1),
    (lambda u: jnp.roll(u.reshape(-1), 5) * u.reshape(-1), 1),
    (toile.grad(lambda u: (jnp.roll(u, 1, 1) * u).sum()), 3),  # two parts, stored in place
])
def test_concatenations_that_are_not_stored(fun, kernels):
    assert notes(fun, BIG) == ["map"] * kernels


def test_parts_computed_in_a_nest_are_stored_in_place():
    found = notes(lambda u: jnp.concatenate([jnp.sin(u), jnp.cos(u)], 1) * 2, BIG)
    assert "concatenate" not in found


@pytest.mark.parametrize("fun, kernels", [
    (lambda u: (lambda z: jnp.concatenate([z, u]).T @ z[:, :9].repeat(2, 0))(u * 2),
     ["map", "concatenate", "copy"]),  # u * 2 is stored in place, though a slice of it is read, too
    (lambda u: jnp.stack([u[0], u[3], u[1]]), ["map"]),  # instead of a kernel for each part
    (lambda u: jnp.stack([u.T, u + 1, u[::-1]], -1), ["map", "map"]),
    (lambda u: jnp.concatenate([u, u[:9]]), ["map"]),  # as jnp.pad makes it, mode="wrap"
    (lambda u: jnp.pad(u[:99], ((1, 1), (2, 0))), ["map"]),
    (lambda u: (lambda p: p[2:] - p[:-2] + u)(jnp.pad(u, ((1, 1), (0, 0)))), ["map"]),
    (lambda u: toile.vjp(lambda u: (lambda p: p[2:] - 3 * p[:-2])(jnp.pad(u, ((1, 1), (0, 0)))),
                         u)[1](u)[0], ["map"]),
])
def test_how_many_kernels_compute_parts(fun, kernels):
    assert sorted(notes(fun, BIG)) == sorted(kernels)


ROLLED = {
    "rows": lambda x, y: jnp.roll(x, 3, 0) * y,
    "columns": lambda x, y: jnp.roll(x, -5, 1) * y + jnp.roll(y, 1, 1),
    "both": lambda x, y: jnp.roll(x, (2, -3), (0, 1)) * y,
    "of a computed array": lambda x, y: jnp.roll(x * y, 3, 0) + jnp.roll(x * y, 3, 1),
    "one axis": lambda x, y: jnp.roll(x.reshape(-1), 7) - y.reshape(-1),
    "three parts": lambda x, y: jnp.concatenate([x[3:], y[1:5], x[:2]], 0)[:150] * y,
    # Of positive numbers: eager products are rounded, and the sum may be much smaller than they.
    "sums of rows": lambda x, y: jnp.abs(jnp.roll(x, 3, 1) * y).sum(-1),
    "sums of all": lambda x, y: jnp.abs(jnp.roll(x, 3, 0) * y).sum(),
    "reflected": lambda x, y: jnp.pad(x, 3, "reflect") * 2,
    "a gradient": toile.grad(
        lambda x, y: (jnp.roll(x, 1, 1) * jnp.roll(x, 1, 0) * y).sum(), (0, 1)),
    "a gradient of a reflection": toile.grad(
        lambda x, y: (jnp.pad(x, 3, "reflect") ** 2).sum() + y.sum()),
    "edges": lambda x, y: jnp.pad(x * y, 2, "edge") * 3,
    "an edge of a transposed part": lambda x, y: (
        lambda z: jnp.concatenate([z, z[3:5, ::2].repeat(2, 1)]) + z.T[7, 3])(x * y),
    "a stencil": lambda x, y: (lambda p: p[2:, 1:-1] - 3 * p[:-2, 1:-1] + p[1:-1, 2:] * y)(
        jnp.pad(x, 1)),
    "a stencil of a computed array": toile.grad(lambda x, y: (lambda p: (
        p[1:, 3:] * p[:-1, :-3]).sum())(jnp.pad(x * y, ((1, 0), (1, 2)), constant_values=2.0))),
    "a padded array": lambda x, y: jnp.pad(x, ((1, 2), (3, 0)), constant_values=-1),
    "small parts": lambda x, y: jnp.stack([x[0], y[1], x[2], x[0]], -1),
    "small parts of rows": lambda x, y: (
        jnp.concatenate([x[:5], y[:5, :3], x[:5]], 1) @ jnp.ones(83)),
    "interleaved": lambda x, y: jnp.stack([x[:99], y[5:104], x[10:109, ::-1]], -1).reshape(99, -1),
    "integers": lambda x, y: jnp.roll(jnp.floor(x).astype(jnp.int8), 3, 1) * 2,
    "flags": lambda x, y: jnp.roll(x > 0, 3, 1) & (y > 0),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ROLLED)
def test_rolls(name, dtype, run, monkeypatch):
    monkeypatch.setattr("toile.compiler.passes.joined_parts.LEAST", 64)
    fun = ROLLED[name]
    cast = lambda x, y: fun(x.astype(dtype), y.astype(dtype))
    check(run, cast, [RANDOM.standard_normal((150, 40)).astype("f4") for _ in range(2)])


def test_zeros_keep_their_sign_in_rolls():
    x = np.array([[-0.0, 0.0] * 64] * 256, "f4")
    fun = lambda x: jnp.negative(jnp.roll(x, 1, 1))
    found = host_driver.results_of(fun, [x])[0]
    np.testing.assert_array_equal(np.signbit(found), ~np.signbit(np.roll(x, 1, 1)))


def test_a_part_of_which_a_sibling_reads_a_slice_is_copied(run):
    """In place, one kernel would read a part in the buffer that it writes another part to."""
    def f(a, b):
        t, x = a[1:] * 2 + b[1:], a[:1] * 3 + b[:1]
        y = jnp.concatenate([t, x], 0)
        return y @ b, (t[:1] + x * 0.5) @ b

    a, b = (np.random.default_rng(i).normal(size=(64, 64)).astype("f4") for i in range(2))
    with toile.disable_jit():
        wanted = f(a, b)
    for x, y in zip(run(f, (a, b)), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), 1e-3, 1e-3)
