"""Functions accept objects that have only `__jax_array__`, and use the array that it returns."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp


class Wrapped:
    """An object without a shape and a dtype."""

    def __init__(self, x):
        self.x = x

    def __jax_array__(self):
        return jnp.asarray(self.x)


V, M = np.float32([1, 2, 3]), np.arange(6, dtype=np.float32).reshape(2, 3)
SQUARE, I, B = np.eye(3, dtype=np.float32), np.int32([0, 1]), np.array([True, False, True])
ROWS = {
    "average": lambda w: jnp.average(w(V), weights=w(V)),
    "block": lambda w: jnp.block([w(V), w(V)]),
    "concatenate": lambda w: jnp.concatenate([w(V), w(V)]),
    "delete": lambda w: jnp.delete(w(V), w(I)),
    "diag_indices_from": lambda w: jnp.diag_indices_from(w(SQUARE)),
    "einsum": lambda w: jnp.einsum("ij,j", w(M), w(V)),
    "insert": lambda w: jnp.insert(w(V), w(I), 1.0),
    "interp": lambda w: jnp.interp(w(V), w(V), w(V)),
    "iscomplexobj": lambda w: jnp.iscomplexobj(w(V + 1j)),
    "linspace": lambda w: jnp.linspace(w(V), w(V), 3),
    "matmul": lambda w: jnp.matmul(w(M), w(V)),
    "ndim": lambda w: jnp.ndim(w(M)),
    "piecewise": lambda w: jnp.piecewise(w(V), [w(B), w(~B)], [lambda x: -x, 2.0]),
    "repeat": lambda w: jnp.repeat(w(V), w(np.int32([1, 2, 1]))),
    "roll": lambda w: jnp.roll(w(M), w(np.int32(1))),
    "searchsorted": lambda w: jnp.searchsorted(w(V), w(V)),
    "select": lambda w: jnp.select([w(B)], [w(V)]),
    "shape": lambda w: jnp.shape(w(M)),
    "size": lambda w: jnp.size(w(M)),
    "solve": lambda w: jnp.linalg.solve(w(SQUARE), w(V)),
    "stack": lambda w: jnp.stack([w(V), w(V)], 1),
    "tensordot": lambda w: jnp.tensordot(w(M), w(SQUARE), 1),
    "tril_indices_from": lambda w: jnp.tril_indices_from(w(SQUARE)),
    "triu_indices_from": lambda w: jnp.triu_indices_from(w(SQUARE)),
    "vdot": lambda w: jnp.vdot(w(V), w(V)),
    "vstack": lambda w: jnp.vstack([w(V), w(V)]),
    "where": lambda w: jnp.where(w(B), w(V), w(V)),
}


@pytest.mark.parametrize("name", ROWS)
def test_wrapped(name):
    wanted, got = ROWS[name](lambda x: x), ROWS[name](Wrapped)
    assert toile.tree.structure(got) == toile.tree.structure(wanted)
    for a, b in zip(toile.tree.leaves(got), toile.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
