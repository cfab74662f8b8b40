"""Arrays that are continued beyond their ends: values on both devices, and kernels on GPUs."""

import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler import test_picks
from toile.compiler.passes.extended_arrays import MODES, Extend, places
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.gpu.target import TARGET

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((11, 9)).astype("f4")
IMAGES = RANDOM.standard_normal((2, 7, 6, 3)).astype("f4")
run, check = test_picks.run, test_picks.check


def padded(widths, mode):
    return lambda x: jnp.pad(x, widths, mode=mode)


def stencil(mode):
    """A padded array that only a stencil reads."""
    def fun(x):
        p = jnp.pad(x, 1, mode=mode)
        return p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * x

    return fun


def one_side(x):
    return jnp.concatenate([x, x[-1:]]) * 2, jnp.concatenate([x[:, :1], x], 1)


def scrambled(x):
    """Almost continued: other elements, another order, another axis."""
    return [jnp.concatenate(parts, axis) for axis, parts in (
        (0, [x[1:2], x, x[-1:]]), (0, [x[:3], x, x[-3:]]), (1, [x[:, :2][:, ::-1], x, x[:, 3:5]]),
        (0, [x[:2, ::-1], x]), (0, [x[:2][::-1], x, x[-2:]]), (0, [x, x]),
        (0, [x[:2], x, x, x[-2:]]),
        (0, [jnp.repeat(x[:1].reshape(9, 1), 2, 1).reshape(2, 9), x]))]


PROGRAMS = {
    **{f"{mode}, {widths}": (padded(widths, mode), X) for mode in MODES
       for widths in (3, ((2, 0), (0, 1)), ((0, 0), (5, 4)))},
    **{f"stencil, {mode}": (stencil(mode), X) for mode in MODES},
    "images": (padded(((0, 0), (1, 2), (3, 1), (0, 0)), "reflect"), IMAGES),
    "more than there is": (padded(20, "reflect"), X), "twice": (padded(14, "wrap"), X),
    "bfloat16": (padded(2, "edge"), X.astype(jnp.bfloat16)), "bytes": (
        padded(2, "symmetric"), (X * 20).astype("i1")),
    "complex": (lambda x: (lambda p: (p.real, p.imag))(jnp.pad(x * 2j, 2, mode="reflect")), X),
    "one element": (padded(2, "edge"), X[:1]), "one side": (one_side, X),
    "scrambled": (scrambled, X),
    "returned and read": (lambda x: (lambda p: (p, p[1:] - p[:-1]))(jnp.pad(x, 2, mode="edge")), X),
    "summed": (lambda x: jnp.pad(x, 2, mode="wrap").sum(0), X),
    "odd": (lambda x: jnp.pad(x, 2, mode="reflect", reflect_type="odd"), X),
    "gradient": (toile.grad(lambda x: (stencil("reflect")(x) ** 3).sum()), X),
    "gradient of wrapped": (toile.grad(lambda x: (padded(3, "wrap")(x) ** 3).sum()), X),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, run):
    fun, x = PROGRAMS[name]
    check(run, fun, (x,))


@pytest.mark.parametrize("mode", MODES)
def test_places(mode):
    for n, low, high in itertools.product((2, 5), (0, 1, 2), (0, 1, 2)):
        if mode == "reflect" and max(low, high) >= n:
            continue
        want = np.pad(np.arange(n), (low, high), mode=mode)
        np.testing.assert_array_equal(places(mode, -low, n + low + high, n), want)
        op = Extend((-low, 0), (n + low + high, 3), (mode, ""))
        x = np.arange(n * 3).reshape(n, 3)
        np.testing.assert_array_equal(op.eager(np, x), np.pad(x, ((low, high), (0, 0)), mode=mode))


def launches(fun, x):
    plan = planned(optimize(toile.make_jaxpr(fun)(x).jaxpr), TARGET)
    return [launch for step in plan.steps for launch in step.launches]


@pytest.mark.parametrize("mode", MODES)
def test_one_kernel(mode):
    """It reads the array once, and computes a stencil of the padded array, too."""
    x = toile.ShapeDtypeStruct((1000, 256), "float32")
    (pad,) = launches(padded(3, mode), x)
    assert pad.note == "map" and pad.nbytes <= 1.1 * 2 * 4 * 1000 * 256
    (whole,) = launches(stencil(mode), x)
    assert whole.note == "map"


def test_what_only_looks_alike_is_copied():
    assert [e.op.name for e in TARGET.last_pass(optimize(toile.make_jaxpr(scrambled)(
        X).jaxpr)).equations if isinstance(e.op, Extend)] == []
