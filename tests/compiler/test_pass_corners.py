"""Passes keep the meaning of Programs where an axis, a fill value, a sign or an effect decides."""

import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_passes import names, program, same
from toile import lax

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("second", ORDERS)
@pytest.mark.parametrize("first", ORDERS)
def test_two_transposes(first, second):
    after = same(program(lambda x: lax.transpose(lax.transpose(x, first), second), X), X)
    assert names(after).count("transpose") <= 1


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("order", ORDERS)
def test_counts_that_are_transposed(order, axis):
    shape = tuple(X.shape[order.index(i)] for i in range(3))

    def f(x):
        return x + lax.transpose(lax.broadcasted_iota(jnp.float32, shape, axis), order)

    same(program(f, X), X)


@pytest.mark.parametrize("axis", range(3))
def test_counts_that_are_broadcast_and_reshaped(axis):
    n = X.shape[axis]

    def f(x):
        count = lax.broadcast_in_dim(lax.iota(jnp.float32, n), X.shape, (axis,))
        column = lax.reshape(lax.iota(jnp.float32, n), tuple(
            n if i == axis else 1 for i in range(3)))
        return x * count + column

    same(program(f, X), X)


@pytest.mark.parametrize("fills", [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0), (1.0, 1.0), (-0.0, 0.0)])
@pytest.mark.parametrize("interior", [0, 1])
def test_sums_of_padded_arrays(fills, interior):
    """Only arrays padded with zeros, side by side, are a concatenation."""
    x, y = X[0], X[1] * 2

    def f(x, y):
        after = 3 + 2 * interior
        a = lax.pad(x, fills[0], [(0, after, interior), (0, 0, 0)])
        b = lax.pad(y, fills[1], [(after, 0, interior), (0, 0, 0)])
        return a + b

    after = same(program(f, x, y), x, y)
    assert ("concatenate" in names(after)) == (not any(fills) and not interior)


def test_overlapping_and_distant_pads_are_no_concatenation():
    x = X[0]
    for low, high in ((2, 4), (4, 2), (5, 3)):
        def f(x, low=low, high=high):
            return lax.pad(x, 0.0, [(0, 5, 0), (0, 0, 0)]) + lax.pad(
                x, 0.0, [(low, 5 - low, 0), (0, 0, 0)]) * high

        assert "concatenate" not in names(same(program(f, x), x))


# Gradients of slices: names of operations that are left, and how often.
SLICED = {
    "halves": (lambda x: x[..., :2] * x[..., 2:], {"concatenate": 1}),
    "a half twice": (lambda x: x[..., :2] * jnp.sin(x[..., :2]), {"pad": 1}),
    "elements": (lambda x: x[..., 0] * x[..., 1] + x[..., 2] * jnp.sin(x[..., 3] * x[..., 0]),
                 {"concatenate": 1}),
    "two apart": (lambda x: x[..., :1] * x[..., 3:], {"concatenate": 1}),
    "the middle": (lambda x: x[..., 1:2] * x[..., 2:3], {"concatenate": 1}),
    "parts of a part": (lambda x: jnp.cross(x[..., :3], x[..., 1:]), {}),
    "a cross product": (lambda x: jnp.cross(x[..., :3], x[..., :3] ** 2),
                        {"concatenate": 2, "pad": 1}),
    "rows": (lambda x: x[:, :1] * x[:, 2:], {"pad": 2}),  # kernels read them in place
    "that overlap": (lambda x: x[..., :3] * x[..., 1:], {"pad": 2}),
    "nothing": (lambda x: x[..., :0].sum() + x[..., :3] * x[..., :3], {}),
    "read elsewhere": (lambda x: x[..., :2] * x[..., 2:] + x[..., 1:3] ** 2, {}),
}


@pytest.mark.parametrize("name", SLICED)
def test_gradients_of_slices(name):
    f, wanted = SLICED[name]
    p = program(toile.grad(lambda x: (f(x) ** 2).sum()), X / 10)
    after = same(p, X / 10)
    left = {k: names(after).count(k) for k in ("pad", "concatenate")}
    assert not wanted or left == {"pad": 0, "concatenate": 0} | wanted


SIGNED = np.array([-0.0, 0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
NEUTRAL = {
    "x + 0": lambda x: x + 0.0, "0 + x": lambda x: 0.0 + x, "x + -0": lambda x: x + -0.0,
    "x - 0": lambda x: x - 0.0, "x - -0": lambda x: x - -0.0, "0 - x": lambda x: 0.0 - x,
    "x * 1": lambda x: x * 1.0, "x * -1": lambda x: x * -1.0, "x / 1": lambda x: x / 1.0,
    "x * 0": lambda x: x * 0.0, "-(-x)": lambda x: jnp.negative(jnp.negative(x)),
    "max(x, x)": lambda x: jnp.maximum(x, x), "x - x": lambda x: x - x, "0 / x": lambda x: 0.0 / x,
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_identities_keep_signs_of_zeros_infinities_and_nan(name):
    with np.errstate(all="ignore"):
        same(program(NEUTRAL[name], SIGNED), SIGNED)  # compares bytes


@pytest.mark.parametrize("where", ["scan", "fori_loop", "nested"])
def test_effects_stay_in_their_loop(where):
    seen = []
    note = lambda value: seen.append(float(value))

    def body(i, c):
        toile.debug.callback(note, scale * 2)  # of a constant of the loop
        return c + scale

    def f(x):
        if where == "scan":
            return lax.scan(lambda c, _: (body(0, c), None), x, None, length=3)[0]
        if where == "fori_loop":
            return lax.fori_loop(0, 3, body, x)
        return lax.fori_loop(0, 1, lambda i, c: lax.fori_loop(0, 3, body, c), x)

    scale = 0.5
    toile.jit(f)(1.0)
    toile.effects_barrier()
    assert seen == [1.0] * 3
    seen.clear()

    def traced(x, s):
        nonlocal scale
        scale = s
        return f(x)

    toile.jit(traced)(1.0, 2.0)
    toile.effects_barrier()
    assert seen == [4.0] * 3


@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("index", [-2, -1, 0, 3, 4, 5, 100])
def test_one_element_of_each_row(mode, index):
    """A computed row, so that the element is picked by counting."""
    if mode == "promise_in_bounds" and not 0 <= index < 5:
        pytest.skip("the promise would be broken")
    x = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)
    i = np.full((3, 1), index, np.int32)

    def f(x, i):
        numbers = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
        y = jnp.exp(x) - x.sum(1, keepdims=True)
        return lax.gather(y, i[..., None], numbers, (1, 1), mode=mode, fill_value=-7.0) * 2

    same(program(f, x, i), x, i, ulps=4)
    np.testing.assert_allclose(toile.jit(f)(x, i), f(jnp.asarray(x), jnp.asarray(i)), rtol=1e-5)
