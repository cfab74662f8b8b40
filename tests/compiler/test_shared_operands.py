"""Loops and branches whose constants are given twice: they get them once, and compute the same."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.pipeline import optimize

ANGLES = np.linspace(0, 1, 6, dtype=np.float32)


def rotated(x):
    return x * jnp.cos(jnp.asarray(ANGLES.copy())) + jnp.sin(jnp.asarray(ANGLES.copy()))


def scanned(x, n):
    return lax.scan(lambda c, a: (rotated(rotated(c)) + a, c.sum()), x, jnp.outer(x, x)[:4])


def looped(x, n):
    condition = lambda c: (c[0] < n) & (rotated(rotated(c[1])).sum() < 1e9)
    return lax.while_loop(condition, lambda c: (c[0] + 1, rotated(rotated(c[1]))), (0, x))


def counted(x, n):
    return lax.fori_loop(0, 3, lambda i, c: rotated(rotated(c)), x)


def chosen(x, n):
    return lax.cond(n > 2, lambda x: rotated(rotated(x)), lambda x: rotated(x) - 1, x)


def switched(x, n):
    return lax.switch(n, [rotated, lambda x: rotated(rotated(x)), lambda x: x], x)


def nested(x, n):
    return lax.scan(lambda c, _: (looped(c, n)[1] + scanned(c, n)[0], None), x, None, length=2)[0]


CASES = {f.__name__: f for f in (scanned, looped, counted, chosen, switched, nested)}
X = jnp.linspace(-1, 1, 6)


def cosines(program):
    """How many cosines a Program computes, including those in its loops and branches."""
    return sum((e.op.name == "cos") + sum(map(cosines, e.op.programs()))
               for e in program.equations)


def close(a, b):
    for x, y in zip(toile.tree.leaves(a), toile.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("name", CASES)
def test_same_results(name, n):
    fun = CASES[name]
    close(toile.jit(fun)(X, n), fun(X, n))
    many = jnp.stack([X, X * 2])
    close(toile.jit(toile.vmap(fun, (0, None)))(many, n), toile.vmap(fun, (0, None))(many, n))
    loss = lambda x: sum(jnp.sum(y) for y in toile.tree.leaves(fun(x, n))
                         if jnp.issubdtype(y.dtype, jnp.floating))
    tangent = lambda x: toile.jvp(loss, (x,), (x,))
    close(toile.jit(tangent)(X), tangent(X))
    if name not in ("looped", "nested"):
        close(toile.jit(toile.grad(loss))(X), toile.grad(loss)(X))


# Kernels of one body each: the same number of cosines however often the constants are given.
COUNTS = {"scanned": 0, "looped": 2, "chosen": 2, "switched": 2}


@pytest.mark.parametrize("name", COUNTS)
def test_bodies_compute_once(name):
    program = toile.jit(CASES[name]).trace(X, 3).jaxpr.jaxpr
    assert cosines(program) > COUNTS[name]
    after = optimize(program)
    bodies = sum(cosines(optimize(p)) for e in after.equations for p in e.op.programs())
    assert bodies == COUNTS[name]
