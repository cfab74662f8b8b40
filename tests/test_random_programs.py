"""Random programs: jit, grad, vmap and jit(grad(vmap)) against eager runs and loops, and jax.

Programs run in float64, so that tolerances are tight. Each day makes others (tests/seeds.py);
TOILE_TEST_ALL=1 makes 1,000.
"""

import types

import hypothesis
import jax
import jax.numpy
import numpy as np
import pytest

import toile
import toile.nn
import toile.numpy as jnp
from tests import programs, seeds
from tests.quick_jax import OPTIONS as QUICK

EXAMPLES = 1000 if seeds.EVERYTHING else 8
BATCH = 3
TOILE = types.SimpleNamespace(jax=toile, jnp=jnp, lax=toile.lax, nn=toile.nn)
JAX = types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax, nn=jax.nn)
FLOATS = tuple(range(len(programs.INPUTS)))
HEALTH = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large,
          hypothesis.HealthCheck.large_base_example]


def close(got, want, what, rtol=1e-9):
    for g, w in zip(toile.tree_util.tree_leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape and g.dtype == w.dtype, what
        scale = np.abs(w).max(initial=1e-3)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol * scale, err_msg=what)


def batches():
    """Arguments of several examples, and the same stacked."""
    each = [programs.arguments(salt) for salt in range(BATCH)]
    return each, [np.stack(column) for column in zip(*each)]


@pytest.mark.filterwarnings("ignore:.* were broadcast against each other")  # on purpose
@hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=HEALTH,
                     phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink])
@hypothesis.given(programs.programs())
def test_random_program(program):
    with toile.enable_x64(True):
        f = lambda *args: programs.run(TOILE, program, *args)
        args = [jnp.asarray(a) for a in programs.arguments()]
        want = f(*args)
        assert np.isfinite(np.asarray(want))
        close(toile.jit(f)(*args), want, "jit")
        slopes = toile.grad(f, FLOATS)(*args)
        check_directional(f, args, slopes)
        close(toile.jit(toile.grad(f, FLOATS))(*args), slopes, "jit(grad)")
        each, stacked = batches()
        stacked = [jnp.asarray(a) for a in stacked]
        values = np.stack([np.asarray(f(*map(jnp.asarray, one))) for one in each])
        close(toile.vmap(f)(*stacked), values, "vmap")
        loops = [toile.grad(f, FLOATS)(*map(jnp.asarray, one)) for one in each]
        rows = [np.stack([np.asarray(g[i]) for g in loops]) for i in FLOATS]
        total = lambda *a: jnp.sum(toile.vmap(f)(*a))
        close(toile.jit(toile.grad(total, FLOATS))(*stacked), rows, "jit(grad(vmap))")
        close(toile.vmap(toile.grad(f, FLOATS))(*stacked), rows, "vmap(grad)")
    if seeds.is_chosen(repr(program), 10):
        check_against_jax(program, want, slopes)


def check_directional(f, args, slopes):
    """The gradient against forward mode, and forward mode against finite differences."""
    rng = np.random.default_rng(7)
    ds = [rng.uniform(-1, 1, args[i].shape) for i in FLOATS]
    g = lambda *xs: f(*xs, args[-1])
    _, forward = toile.jvp(g, tuple(args[:-1]), tuple(map(jnp.asarray, ds)))
    reverse = sum(np.sum(np.asarray(s) * d) for s, d in zip(slopes, ds))
    close(forward, np.asarray(reverse), "jvp against grad", 1e-8)
    h = 1e-6
    up, down = (g(*[x + sign * h * d for x, d in zip(args, ds)]) for sign in (1, -1))
    difference = (float(up) - float(down)) / (2 * h)
    assert abs(difference - reverse) <= 1e-5 * (1 + abs(reverse)), "finite differences"


def check_against_jax(program, value, slopes):
    """The same program on jax, value and gradient."""
    with jax.enable_x64(True):
        f = lambda *args: programs.run(JAX, program, *args)
        pair, args = jax.value_and_grad(f, FLOATS), programs.arguments()
        try:
            close((value, slopes), jax.jit(pair, compiler_options=QUICK)(*args), "jax")
        except AssertionError:  # code that jax compiles so has made nan of zeros: ask again
            close((value, slopes), jax.jit(pair)(*args), "jax")


@hypothesis.settings(max_examples=20, suppress_health_check=HEALTH)
@hypothesis.given(programs.programs(low=20))
def test_shapes_are_known(program):
    """The generator knows the shape of every value."""
    shapes = list(programs.INPUTS)
    for name, operands, k in program:
        given = [shapes[i] for i in operands]
        shapes.append(programs.SHAPE[name](k, *given) if name in programs.SHAPE else given[0])
    assert programs.shapes_of(TOILE, program, *programs.arguments(dtype="float32")) == shapes


def test_every_step_is_used():
    """Each step has its place in some program of the sample."""
    seen = set()

    @hypothesis.settings(max_examples=100, derandomize=True, deadline=None, database=None,
                         suppress_health_check=HEALTH)
    @hypothesis.given(programs.programs())
    def collect(program):
        assert 5 <= len(program) <= 25
        seen.update(name for name, _, _ in program)

    collect()
    assert seen == set(programs.STEPS)
