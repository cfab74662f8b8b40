"""Expressions evaluated with `lax` of toile and of JAX: values, dtypes, weak types, gradients.

An expression sees `lax`, `jnp`, `np` and the arrays below. `grad_of` differentiates its sum, weighted
so that permuted gradients differ, with respect to one of the arrays.
"""

import jax
import ml_dtypes
import numpy as np

import toile
import toile.numpy
from tests.against_jax import compare

RNG = np.random.RandomState(0)
F = np.float32
ARRAYS = {
    "f": RNG.randn(3).astype(F),
    "p": (RNG.rand(3) + 0.5).astype(F),
    "g": np.array([0.25, -0.5, 2.0], F),
    "i": np.array([3, -2, 7], np.int32),
    "u": np.array([3, 200, 7], np.uint8),
    "b": np.array([True, False, True]),
    "h": np.array([1.5, -2.25, 3.0], ml_dtypes.bfloat16),
    "c": (RNG.randn(3) + 1j * RNG.randn(3)).astype(np.complex64),
    "m": RNG.randn(3, 4).astype(F),
    "n": RNG.randn(4, 5).astype(F),
    "x": RNG.randn(2, 3, 4).astype(F),
    "y": RNG.randn(2, 4, 5).astype(F),
    "e": np.zeros((0, 3), F),
    "im": RNG.randn(2, 7, 6, 4).astype(F),
    "ke": RNG.randn(3, 2, 4, 6).astype(F),
    "k2": RNG.randn(3, 2, 2, 6).astype(F),
    "idx": np.array([[0], [2], [1], [2]], np.int32),
    "j": np.array(1, np.int32),
    "a3": np.arange(12, dtype=np.int32).reshape(3, 4) % 5,
}
WIDE = {"float32": "float64", "complex64": "complex128"}


def scope(package, x64):
    """The names an expression sees."""
    jnp = package.numpy
    names = {"lax": package.lax, "jnp": jnp, "np": np, "jax": package}
    for name, value in ARRAYS.items():
        wide = value.astype(WIDE.get(value.dtype.name, value.dtype)) if x64 else value
        names[name] = jnp.asarray(wide)
    names["w"] = jnp.asarray(1.5)
    return names


def evaluate(package, expression, x64):
    """The value of an expression."""
    return eval(expression, scope(package, x64))


def check(expression, x64, rtol=None):
    """Assert that both packages give the same."""
    with toile.enable_x64(x64), jax.enable_x64(x64):
        got, want = (evaluate(p, expression, x64) for p in (toile, jax))
        assert type(got).__name__ == type(want).__name__ or hasattr(want, "dtype"), expression
        if not hasattr(want, "dtype") and not isinstance(want, (list, tuple, dict)):
            assert got == want or str(got) == str(want), expression
            return
        tolerance = rtol or (1e-12 if x64 else 1e-5)
        compare(got, want, tolerance, tolerance, f"{expression} x64={x64}")


def weighted_sum(package, out):
    jnp = package.numpy
    leaves = [y for y in jax.tree.leaves(out) if np.dtype(y.dtype).kind in "fcV"]
    return sum(
        jnp.sum(jnp.real(y) * (1.0 + jnp.arange(y.size).reshape(y.shape) * 0.1)) for y in leaves
    )


def grad_of(package, expression, name, x64):
    names = scope(package, x64)

    def total(value):
        return weighted_sum(package, eval(expression, {**names, name: value}))

    return package.grad(total)(names[name])


def check_grad(expression, name, x64, rtol=None):
    """Assert that both packages give the same gradient."""
    with toile.enable_x64(x64), jax.enable_x64(x64):
        got, want = (grad_of(p, expression, name, x64) for p in (toile, jax))
        tolerance = rtol or (1e-11 if x64 else 1e-4)
        compare([got], [want], tolerance, tolerance, f"d({expression})/d{name} x64={x64}")


def raised(package, expression):
    """The exception an expression ends in."""
    try:
        evaluate(package, expression, False)
    except Exception as error:
        return error
    return None
