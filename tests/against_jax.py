"""Comparison of a toile function with the JAX function of the same name.

`check(path, *args)` calls `toile.<path>` and `jax.<path>` with the same NumPy arguments, with x64
off and on, and compares values, dtypes, weak types and, where asked, the gradient of the sum of
outputs. What JAX gives is recorded (tests/golden/recorded.py).
"""

import functools
import importlib
import os
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import toile
from tests.golden.recorded import Record, text_of
from tests.quick_jax import OPTIONS

RECORD = Record("functions")

# JAX runs compiled, which is faster than its op-by-op mode; toile runs op by op unless asked.
COMPILED = os.environ.get("TOILE_TEST_COMPILED", "0") not in ("", "0")



def resolve(root, path):
    """The function named by a dotted path below the package `root`."""
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"{root}.{module}"), name)


def _brief(x):
    return str(x.shape) if isinstance(x, np.ndarray) else str(x)


@dataclass(frozen=True)
class Case:
    """One call: arguments, keywords, and the arguments to differentiate."""

    path: str
    args: tuple
    kwargs: dict = field(default_factory=dict)
    grad: tuple = ()
    rtol: float = 1e-5
    rtol64: float = 1e-10
    atol: float = 1e-6
    jit: bool = True
    x64: tuple = (False, True)

    def __str__(self):
        shapes = "-".join(map(_brief, self.args))
        options = ",".join(f"{k}={_brief(v)}" for k, v in self.kwargs.items())
        return f"{self.path}({shapes}){options}".replace(" ", "")


def case(
    path,
    *args,
    grad=(),
    rtol=1e-5,
    rtol64=1e-10,
    atol=1e-6,
    jit=True,
    x64=(False, True),
    **kwargs,
):
    """A `Case`; keywords that are not options of the comparison go to the function."""
    return Case(path, args, kwargs, grad, rtol, rtol64, atol, jit, x64)


def _wide(x, x64):
    """float32 test data becomes float64 when x64 is on."""
    if not x64 or not isinstance(x, (np.ndarray, np.generic)):
        return x
    table = {"float32": "float64", "complex64": "complex128"}
    return x.astype(table.get(x.dtype.name, x.dtype))


def compare(got, want, rtol, atol, what, narrow=(0.0, 0.0)):
    """Assert that two outputs agree in structure, dtype, weak type and value."""
    got, want = jax.tree.leaves(_plain(got)), jax.tree.leaves(_plain(want))
    assert len(got) == len(want), what
    for a, b in zip(got, want):
        if hasattr(b, "dtype"):
            assert a.dtype == b.dtype, f"{what}: dtype {a.dtype}, expected {b.dtype}"
        if hasattr(b, "weak_type"):
            assert bool(a.weak_type) == bool(b.weak_type), f"{what}: weak_type {a.weak_type}"
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
        if a.dtype.kind not in "biufc":
            a, b = a.astype(np.float32), b.astype(np.float32)
        if a.dtype in (np.float32, np.complex64):  # narrow outputs are no more exact under x64
            rtol, atol = max(rtol, narrow[0]), max(atol, narrow[1])
        scale = np.max(np.abs(b[np.isfinite(b)]), initial=0.0) if b.dtype.kind in "fc" else 0.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * max(1.0, scale), err_msg=what)


def _plain(x):
    """A tree whose containers JAX knows, whichever package made it."""
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return [_plain(v) for v in x]
    return x


def _total(package, f):
    jnp = package.numpy

    def total(*args):
        out = jax.tree.leaves(_plain(f(*args)))
        floats = [jnp.real(y) for y in out if np.dtype(y.dtype).kind in "fcV"]
        # Weighted, so that a gradient that only permutes elements shows.
        return sum(jnp.sum(y * (1.0 + jnp.arange(y.size).reshape(y.shape) * 0.1)) for y in floats)

    return total


def _run(package, f, args, grad, jit):
    """Outputs and gradients; only arrays are traced by jit, Python numbers stay as they are."""
    where = [i for i, a in enumerate(args) if isinstance(a, (np.ndarray, np.generic))]

    def both(arrays):
        full = list(args)
        for i, a in zip(where, arrays):
            full[i] = a
        slopes = package.grad(_total(package, f), grad)(*full) if grad else ()
        return _plain(f(*full)), slopes

    run = both
    if jit:
        run = jax.jit(both, compiler_options=OPTIONS) if package is jax else package.jit(both)
    return run([args[i] for i in where])


def check(this: Case, x64: bool):
    """Run one case in one mode."""
    args = tuple(_wide(a, x64) for a in this.args)
    rtol = this.rtol64 if x64 else this.rtol
    atol = this.atol * 1e-6 if x64 else this.atol
    with toile.enable_x64(x64), jax.enable_x64(x64):
        ours = functools.partial(resolve("toile", this.path), **this.kwargs)
        theirs = functools.partial(resolve("jax", this.path), **this.kwargs)
        got, got_grad = _run(toile, ours, args, this.grad, this.jit and COMPILED)
        key = text_of(this.path, *args, this.grad, this.jit, x64, _run, _total,
                      *(part for pair in sorted(this.kwargs.items()) for part in pair))
        want, want_grad = RECORD.answer(
            key, lambda: _run(jax, theirs, args, this.grad, this.jit))
        narrow = (this.rtol, min(this.atol, 1e-5))
        compare(got, want, rtol, atol, f"{this} x64={x64}", narrow)
        narrow = (10 * narrow[0], 10 * narrow[1])
        compare(got_grad, want_grad, 10 * rtol, 10 * atol, f"gradient of {this} x64={x64}", narrow)


def runs(cases) -> list[Any]:
    """The (case, x64) pairs of a table, for `parametrize`."""
    return [(c, mode) for c in cases for mode in c.x64]


def name(value) -> str:
    """The test id of a part of a run."""
    return str(value) if isinstance(value, Case) else ("x64" if value else "x32")
