"""Expressions evaluated with `lax` of toile and of JAX: values, dtypes, weak types, gradients.

An expression sees `lax`, `jnp`, `np` and the arrays below. A pair (expression, name) stands for the
gradient of its weighted sum with respect to the array of that name.
"""

import functools
import warnings

import jax
import ml_dtypes
import numpy as np

import toile
import toile.numpy
from tests.against_jax import compare
from tests.golden.recorded import Record, text_of
from tests.quick_jax import OPTIONS

RECORD = Record("lax")

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




def inputs(x64):
    """The arrays an expression sees, as NumPy arrays."""
    if not x64:
        return dict(ARRAYS)
    return {n: v.astype(WIDE.get(v.dtype.name, v.dtype)) for n, v in ARRAYS.items()}


def scope(package, arrays):
    """The names an expression sees."""
    jnp = package.numpy
    names = {"lax": package.lax, "jnp": jnp, "np": np, "jax": package, "w": jnp.asarray(1.5)}
    return {**names, **{n: jnp.asarray(v) for n, v in arrays.items()}}


def weighted_sum(package, out):
    """A number whose gradient tells elements apart."""
    jnp = package.numpy
    leaves = [y for y in jax.tree.leaves(out) if np.dtype(y.dtype).kind in "fcV"]
    return sum(
        jnp.sum(jnp.real(y) * (1.0 + jnp.arange(y.size).reshape(y.shape) * 0.1)) for y in leaves
    )


def grad_of(package, expression, name, arrays):
    """The gradient of the weighted sum of an expression with respect to one array."""
    names = scope(package, arrays)

    def total(value):
        return weighted_sum(package, eval(expression, {**names, name: value}))

    return package.grad(total)(names[name])


def values(package, expressions, arrays):
    """What the expressions evaluate to; those given as (expression, name), to gradients."""
    names = scope(package, arrays)
    return [
        eval(e, names) if isinstance(e, str) else grad_of(package, *e, arrays)
        for e in expressions
    ]


@functools.cache
def oracle(expressions, x64):
    """JAX's answers, by the record or asked.

    All are compiled in one program: by far the quickest way to have them."""
    def ask():
        with jax.enable_x64(x64), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, from the conversion of Python numbers
            run = jax.jit(functools.partial(values, jax, expressions), compiler_options=OPTIONS)
            return run(inputs(x64))

    key = text_of(expressions, list(inputs(x64).items()), values, grad_of, weighted_sum, scope)
    return dict(zip(expressions, RECORD.answer(key, ask), strict=True))


def check(table, expression, x64, rtol=None):
    """Assert that toile gives what JAX gives for one expression (or gradient) of a table."""
    want = oracle(tuple(table), x64)[expression]
    with toile.enable_x64(x64), jax.enable_x64(x64):
        (got,) = values(toile, [expression], inputs(x64))
    assert type(got) is type(want) or hasattr(want, "dtype"), expression
    tolerance = rtol or (1e-11 if x64 else 2e-5)
    compare([got], [want], tolerance, tolerance, f"{expression} x64={x64}")


def raised(package, expression):
    """The exception an expression ends in."""
    try:
        eval(expression, scope(package, inputs(False)))
    except Exception as error:
        return error
    return None


def check_error(expression):
    """Assert that an expression is refused by both, with related exceptions."""
    theirs, ours = raised(jax, expression), raised(toile, expression)
    assert theirs is not None and ours is not None, f"{expression}: {ours!r}, JAX has {theirs!r}"
    usual = (TypeError, ValueError)  # JAX is not consistent in which of the two it raises
    related = isinstance(ours, type(theirs)) or (isinstance(ours, usual) and
                                                 isinstance(theirs, usual))
    assert related, f"{expression}: {ours!r}, JAX has {theirs!r}"
