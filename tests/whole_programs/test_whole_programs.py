"""Each whole program on both libraries: structures, dtypes, weak types, shapes and values agree.

jax is the oracle. Values agree to float32 roundoff, which a program may widen where it iterates.
"""

import importlib
import types

import jax
import numpy as np
import pytest

import toile
from tests.whole_programs import (  # noqa: F401
    controlling,
    corners,
    differentiation,
    inference,
    networks,
    numerics,
    structures,
)
from tests.whole_programs.registry import PROGRAMS, Caught


def namespace(package):
    """What a program sees of one library."""
    parts = ("lax", "random", "nn", "tree", "scipy", "tree_util", "ops", "image", "flatten_util")
    found = {p: importlib.import_module(f"{package.__name__}.{p}") for p in parts}
    for part in ("optimize", "signal", "stats", "ndimage", "linalg", "sparse.linalg", "special"):
        importlib.import_module(f"{package.__name__}.scipy.{part}")
    importlib.import_module(f"{package.__name__}.experimental")
    jnp = importlib.import_module(f"{package.__name__}.numpy")
    return types.SimpleNamespace(jax=package, jnp=jnp, **found)


def run(package, function):
    """The leaves and the printed structure of a program's result."""
    with package.enable_x64(function.x64):
        out = function(namespace(package))
        leaves, structure = package.tree.flatten(out)
    return leaves, str(structure)


def agree(got, want, rtol, atol, what):
    """Assert that two leaves are the same kind of thing and close."""
    if isinstance(want, Caught):  # every except clause that works with jax works with toile
        assert want <= got and bool(want) == bool(got), f"{what}: {set(got)}, jax has {set(want)}"
        return
    if not hasattr(want, "dtype"):
        assert type(got).__name__ == type(want).__name__, f"{what}: {type(got)}, {type(want)}"
        if isinstance(want, float):
            assert got == pytest.approx(want, rel=rtol, abs=atol, nan_ok=True), what
        else:
            assert got == want, what
        return
    assert isinstance(got, np.ndarray) == isinstance(want, np.ndarray), f"{what}: {type(got)}"
    assert str(got.dtype) == str(want.dtype), f"{what}: dtype {got.dtype}, jax has {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, jax has {want.shape}"
    if hasattr(want, "weak_type"):
        assert bool(got.weak_type) == bool(want.weak_type), f"{what}: weak type {got.weak_type}"
    if str(want.dtype).startswith("key<"):
        got, want = toile.random.key_data(got), jax.random.key_data(want)
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind not in "biufc":
        got, want = got.astype(np.float32), want.astype(np.float32)
    scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0) if want.dtype.kind in "fc" else 1
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * scale, err_msg=what)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function):
    """The program computes on toile what it computes on jax."""
    got, got_structure = run(toile, function)
    want, want_structure = run(jax, function)
    assert got_structure == want_structure
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        agree(a, b, function.rtol, function.atol, f"{function.__name__}, leaf {i}")
