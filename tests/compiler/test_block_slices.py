"""Slices of arrays with replaced blocks: which are taken of the parts, and that values stay."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.passes.block_slices import slice_before_updates
from toile.compiler.pipeline import optimize
from toile.engine.program import evaluate

SHAPE = (6, 5)
X = np.arange(30, dtype=np.float32).reshape(SHAPE)


def program_of(f, *xs):
    return toile.make_jaxpr(f)(*xs).jaxpr


def updates(program):
    return sum(e.op.updates for e in program.equations)


@st.composite
def ranges(draw, axis):
    start = draw(st.integers(0, SHAPE[axis] - 1))
    return start, draw(st.integers(start + 1, SHAPE[axis])), draw(st.integers(1, 2))


block = st.tuples(ranges(0), ranges(1))


@settings(max_examples=150, deadline=None)
@given(st.lists(block, min_size=1, max_size=3), st.lists(block, min_size=1, max_size=3),
       st.booleans())
def test_values_stay(replaced, taken, returned):
    def f(x):
        for n, ((a, b, _), (c, d, _)) in enumerate(replaced):
            x = lax.dynamic_update_slice(x, (-1.0 - n) * x[a:b, c:d], (a, c))
        parts = [x[a:b:s, c:d:t] for (a, b, s), (c, d, t) in taken]
        return [*parts, x] if returned else parts

    program = program_of(f, X)
    found = slice_before_updates(program)
    assert updates(found) <= updates(program)
    for wanted, got in zip(f(X), evaluate(found, [X]), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    for wanted, got in zip(f(X), toile.jit(f)(X), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def left(f, *xs):
    return updates(slice_before_updates(program_of(f, *xs)))


def put(x, value, *at):
    return lax.dynamic_update_slice(x, jnp.asarray(value, jnp.float32), at)


ROWS = np.ones((2, 5), np.float32)


def test_unneeded_updates_are_left_out():
    beside = lambda x: put(x, ROWS, 4, 0)[:4]
    inside = lambda x, y: put(x, y, 2, 0)[3:4, 1:]
    both = lambda x, y: (lambda z: (z[:2], z[4:], z[2:4]))(put(put(x, y, 0, 0), 2 * y, 4, 0))
    nested = lambda x, y: put(x, put(y, np.ones((1, 5)), 1, 0), 2, 0)[2:3]
    assert [left(beside, X), left(inside, X, ROWS), left(both, X, ROWS)] == [0, 0, 0]
    assert left(nested, X, ROWS) == 1  # the block itself is sliced by the next pass over it


def test_gradients_of_updates_copy_nothing():
    def f(y):
        z = put(put(jnp.zeros(SHAPE), y, 0, 0), jnp.sin(y), 3, 0)
        return jnp.exp(jnp.cumsum(z, 0)).sum()

    program = program_of(toile.grad(f), ROWS)
    assert updates(program) == 3 and updates(optimize(program)) == 2  # those of `f`


def test_updates_that_are_read_otherwise_stay():
    """They happen in place, which a slice of the array before would prevent."""
    across = lambda x: put(x, ROWS, 3, 0)[:4]
    result = lambda x: (lambda z: (z, z[:2]))(put(x, ROWS, 4, 0))
    computed = lambda x: (lambda z: (jnp.sin(z), z[:2]))(put(x, ROWS, 4, 0))
    updated = lambda x: (lambda z: (put(z, ROWS, 2, 0), z[:2]))(put(x, ROWS, 4, 0))
    moving = lambda x, i: put(x, ROWS, i, 0)[:2]
    assert [left(f, X) for f in (across, result, computed)] == [1, 1, 1]
    assert left(updated, X) == 2 and left(moving, X, 3) == 1
