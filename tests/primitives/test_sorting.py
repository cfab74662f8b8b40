"""Sorting, top-k and arg-extrema: values and every rule against jax.lax."""

import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check
from toile.engine.conversion import as_array
from toile.primitives.sorts import Argmax, Argmin, Sort, TopK


def normal(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dimension", [0, 1])
def test_sort_one(dimension):
    check(Sort(dimension), lambda x: [lax.sort(x, dimension)], normal((4, 5)))


@pytest.mark.parametrize("num_keys", [1, 2])
def test_sort_many(num_keys):
    keys = np.array([[3, 1, 1, 2], [0, 0, 5, 0]], np.int32)
    values = normal((2, 4), 1)
    check(Sort(1, num_keys), lambda *xs: lax.sort(xs, dimension=1, num_keys=num_keys), keys,
          values, normal((2, 4), 2))


def test_sort_differentiated_keys():
    check(Sort(0), lambda *xs: lax.sort(xs, dimension=0), normal((5,)), normal((5,), 1))


def test_ties_keep_their_order_under_differentiation():
    x = np.array([1.0, 0.0, 1.0, 0.0], np.float32)
    check(Sort(0), lambda x: [lax.sort(x)], x)


@pytest.mark.parametrize(("shape", "axis", "k"), [((6,), 0, 3), ((3, 5), 1, 2), ((5, 2), 0, 5)])
def test_top_k(shape, axis, k):
    check(TopK(k, axis), lambda x: lax.top_k(x, k, axis=axis), normal(shape))


@pytest.mark.parametrize("axis", [0, 1])
def test_arg_extrema(axis):
    x = np.round(normal((4, 5)))
    check(Argmax(axis, np.dtype(np.int32)), lambda x: lax.argmax(x, axis, np.int32), x)
    check(Argmin(axis, np.dtype(np.int32)), lambda x: lax.argmin(x, axis, np.int32), x)


def test_errors():
    x = as_array(normal((4, 0)))
    with pytest.raises(ValueError, match="empty sequence"):
        Argmax(1, np.dtype(np.int32))(x)
    with pytest.raises(ValueError, match="k argument to top_k"):
        TopK(3, 1)(x)
    with pytest.raises(TypeError, match="Arguments to sort must have equal shapes: needed"):
        Sort(0)(x, as_array(normal((3,))))
