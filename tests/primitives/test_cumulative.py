"""Running reductions: values and every rule against jax.lax."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check
from toile.engine.conversion import as_array
from toile.primitives import cumulative

NAMES = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


def operation(name):
    return getattr(cumulative, name.capitalize())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(7,), (8, 2), (1, 3), (2,)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_rules(name, shape, reverse):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    axis = 0
    check(operation(name)(axis, reverse), lambda x: getattr(lax, name)(x, axis, reverse), x,
          second=shape == (7,) and not reverse, rtol=1e-4)


def in_steps(step, reverse):
    """Running values one after the other: tied extrema share their tangents in this order."""
    def run(x):
        def both(state, element):
            state = step(state, element)
            return state, state

        first, rest = (x[-1], x[:-1]) if reverse else (x[0], x[1:])
        _, out = lax.scan(both, first, rest, reverse=reverse)
        return jnp.concatenate([out, first[None]] if reverse else [first[None], out])

    return run


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumprod"])
def test_ties_and_zeros(name):
    x = np.array([0, 1, 1, 0, 2, 2, 2, 0, 1, 2, 2], np.float32)
    step = {"cummax": jnp.maximum, "cummin": jnp.minimum, "cumprod": jnp.multiply}[name]
    for reverse in (False, True):
        check(operation(name)(0, reverse), in_steps(step, reverse), x, vmap=False)


def test_infinities():
    x = np.array([-np.inf, -np.inf, 0.0, 1.0, -np.inf, 80.0, -80.0], np.float32)
    check(cumulative.Cumlogsumexp(0), lambda x: lax.cumlogsumexp(x, 0), x, vmap=False)
    x = np.array([-np.inf, 0.0, 1.0, -np.inf, 3.0, np.inf, 1.0], np.float32)
    for y, reverse in ((x, False), (x[:5], False), (x[3:], True)):
        check(cumulative.Cumlogsumexp(0, reverse), lambda x, r=reverse: lax.cumlogsumexp(x, 0, r),
              y, vmap=False, second=y is not x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_complex(name):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=5) + 1j * rng.normal(size=5)).astype(np.complex64)
    check(operation(name)(0), lambda x: getattr(lax, name)(x, 0), x, vmap=False, rtol=1e-4)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_integers(name):
    x = np.array([[3, -2, 5], [1, 0, 4]], np.int32)
    check(operation(name)(1), lambda x: getattr(lax, name)(x, 1), x)


def test_booleans_are_refused():
    with pytest.raises(TypeError, match="cumsum: needed"):
        cumulative.Cumsum(0).infer(as_array(np.ones(3, bool)).aval)
