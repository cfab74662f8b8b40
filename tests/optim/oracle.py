"""Runs of a row on either library: 20 steps on a nested tree, with everything that comes out.

What optax on jax answers, operation by operation, is recorded in `tests/golden/optim.npz` by
`tests/optim/recording.py`.
"""

import importlib
import types
import warnings

import ml_dtypes
import numpy as np

from tests.optim.cases import SHAPES

STEPS = 20
SHOWN = (0, 1, 7, STEPS - 1)  # steps whose updates are kept


def jax_library():
    """optax on jax."""
    return _library("jax", "optax")


def toile_library():
    """toile.optim."""
    return _library("toile", "toile.optim")


def _library(array, optim):
    load = importlib.import_module
    load(f"{array}.random")
    return types.SimpleNamespace(jax=load(array), jnp=load(f"{array}.numpy"), o=load(optim))


def _filled(shapes, draw):
    if isinstance(shapes, dict):
        return {k: _filled(v, draw) for k, v in shapes.items()}
    if isinstance(shapes, list):
        return [_filled(v, draw) for v in shapes]
    return draw(shapes)


def _dtype(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def values(lib, dtype, seed, scale=1.0, batch=()):
    """A tree of numbers."""
    rng = np.random.RandomState(seed)
    draw = lambda shape: lib.jnp.asarray(
        (scale * rng.normal(size=batch + shape)).astype(_dtype(dtype))
    )
    return _filled(SHAPES, draw)


def gradients(lib, row, dtype, step):
    """The gradients of one step; in two of seven, NaN if the row is about that."""
    batch = (4,) if row.grads == "batched" else ()
    grads = values(lib, dtype, seed=100 + step, scale=2.0 / (1 + 0.2 * step), batch=batch)
    if row.grads == "nan" and step % 7 in (2, 3):
        grads["head"][0] = lib.jnp.asarray(np.array([1.0, np.nan]).astype(_dtype(dtype)))
    return grads


def loss_of(lib, dtype):
    """A loss of parameters: smooth, convex and not quadratic."""
    jax, jnp = lib.jax, lib.jnp
    target = values(lib, dtype, seed=7)

    def loss(params):
        terms = jax.tree.map(
            lambda p, t: jnp.sum((p - t) ** 2 + 0.1 * (p - t) ** 4), params, target
        )
        return sum(jax.tree.leaves(terms))

    return loss


def make_step(lib, row, tx, dtype):
    """A pure function (grads, state, params, number) -> updates, state, params."""
    loss = loss_of(lib, dtype) if row.loss else None

    def step(grads, state, params, number):
        extra = {}
        if row.loss:
            value, grads = lib.jax.value_and_grad(loss)(params)
            extra = {"value": value, "grad": grads, "value_fn": loss}
        if row.value:
            extra = {"value": 5.0 / (1.0 + number)}
        updates, state = tx.update(grads, state, params, **extra)
        return updates, state, lib.o.apply_updates(params, updates)

    return step


def beginning(lib, row, dtype):
    """The transformation, its state and the parameters before the first step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are used
        tx = row.build(lib.o, lib)
    params = values(lib, dtype, seed=1)
    if row.lookahead:
        params = lib.o.LookaheadParams.init_synced(params)
    return tx, tx.init(params), params


def run(lib, row, dtype, steps=STEPS, jit=None):
    """Updates of some steps, parameters and state after the last."""
    tx, state, params = beginning(lib, row, dtype)
    step = make_step(lib, row, tx, dtype)
    step = jit(step) if jit else step
    shown = []
    for i in range(steps):
        grads = gradients(lib, row, dtype, i)
        updates, state, params = step(grads, state, params, lib.jnp.float32(i))
        if i in SHOWN or i == steps - 1:
            shown.append(updates)
    return {"updates": shown, "params": params, "state": state}


def described(lib, tree):
    """A tree as its structure, the types of its leaves, and all their numbers in one vector."""
    leaves, structure = lib.jax.tree.flatten(tree)
    kinds, numbers = [], []
    for x in leaves:
        dtype = str(getattr(x, "dtype", type(x).__name__))
        if dtype.startswith("key<"):
            x = lib.jax.random.key_data(x)
        array = np.asarray(x)
        if array.dtype.kind == "c":
            array = np.stack([array.real, array.imag])
        array = array.astype(np.float64)
        weak = bool(getattr(x, "weak_type", False))
        kinds.append(f"{dtype}{list(array.shape)}" + ("*" if weak else ""))
        numbers.append(array.ravel())
    vector = np.concatenate(numbers) if numbers else np.zeros(0)
    return str(structure), kinds, vector
