"""Optax's private modules under `toile.optim._src`: the names that they have, and the utilities."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing

import jax
import numpy as np
import optax
import pytest
from optax import _src as theirs

import toile
import toile.numpy as jnp
from toile import optim
from toile.optim import _src as ours

MODULES = [m.name for m in pkgutil.iter_modules(theirs.__path__)
           if not m.name.endswith(("_test", "test_utils", "deprecations"))]
# How Optax's line search and matrix roots are made, which ours are otherwise.
ABSENT = {
    "BacktrackingLineSearchState", "ZoomLinesearchState", "get_spectral_radius_upper_bound",
    "zoom_linesearch",
}


def public(module):
    """What a module defines: functions, classes and the names of types."""
    home = module.__name__
    for name, value in vars(module).items():
        defined = getattr(value, "__module__", home) in (home, "typing", "collections.abc")
        if hasattr(typing, name):
            continue
        if name[0] != "_" and not inspect.ismodule(value) and defined:
            if getattr(value, "__name__", name) == name or name.isupper():
                yield name


@pytest.mark.parametrize("name", MODULES)
def test_names(name):
    module = importlib.import_module(f"toile.optim._src.{name}")
    assert getattr(ours, name) is module
    wanted = {n for n in public(importlib.import_module(f"optax._src.{name}"))
              if hasattr(optax, n) or hasattr(optax._src.utils, n)}
    missing = {n for n in wanted if not hasattr(module, n)}
    assert missing <= ABSENT
    for n in dir(module):
        if n[0] != "_" and n in ours._NAMES.get(name, "").split():
            assert getattr(module, n) is getattr(optim, n)


def test_missing_names():
    with pytest.raises(AttributeError, match="no attribute 'adamz'"):
        ours.alias.adamz  # noqa: B018
    with pytest.raises(ImportError, match="adamz"):
        from toile.optim._src.alias import adamz  # noqa: F401


PROGRAM = """
import toile.numpy as jnp
import toile.optim._src.base as base
from toile.optim._src import combine, numerics, transform, utils
from toile.optim._src.alias import sgd

def scaled(rate):
    def init(params):
        return base.EmptyState()

    def update(updates, state, params=None):
        return jnp.asarray(updates) * -rate, state

    return base.GradientTransformation(init, update)

tx = combine.chain(transform.scale(2.0), scaled(0.5))
params = jnp.ones(3)
print(tx.update(params, tx.init(params))[0].tolist(), utils.canonicalize_dtype(None))
"""


def test_an_optimizer_written_so():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "[-1.0, -1.0, -1.0] None\n", done.stderr


def matrix(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# Calls of a utility; with both libraries' arrays the values, or the class and words of the error.
CALLS = {
    "check_subdtype": [(matrix(3), np.integer), (matrix(3), np.floating)],
    "check_shapes_equal": [(matrix(3), matrix(2)), (matrix(3), matrix(3))],
    "check_rank": [(matrix(3), 2), (matrix(3), 1)],
    "set_diags": [
        (matrix(2, 3, 3), matrix(2, 3)), (matrix(2, 3, 3), matrix(2, 2)),
        (matrix(2, 3, 3), matrix(3, 3)), (matrix(3, 3), matrix(2, 2)),
        (matrix(2, 3, 2), matrix(2, 3)), (matrix(2, 3, 3), matrix(2)),
    ],
    "tile_second_to_last_dim": [(matrix(3),), (matrix(2, 3),), (matrix(1, 1),)],
    "canonicalize_dtype": [(None,), (np.float64,), ("int64",), ("bfloat16",)],
}


@pytest.mark.parametrize("name", CALLS)
def test_utilities_are_optax_s(name):
    for args in CALLS[name]:
        found = []
        for utils, lib in ((ours.utils, toile), (optax._src.utils, jax)):
            given = [lib.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
            try:
                made = getattr(utils, name)(*given)
                found.append(made.tolist() if hasattr(made, "tolist") else str(made))
            except (TypeError, ValueError) as error:
                found.append((type(error), str(error)[:30]))
        assert found[0] == found[1], args


def test_keys_and_precision():
    key = toile.random.key(3)
    assert ours.utils.canonicalize_key(key) is key
    made = ours.utils.canonicalize_key(3)
    assert (toile.random.key_data(made) == toile.random.key_data(key)).all()
    for on in (True, False):
        with ours.utils.x64_precision(on):
            assert jnp.asarray(1.0).dtype == (np.float64 if on else np.float32)
    with pytest.raises(ZeroDivisionError), ours.utils.x64_precision(True):
        1 / 0  # noqa: B018
    assert jnp.zeros(1).dtype == np.float32
