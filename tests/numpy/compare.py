"""Runs one expression under jax.numpy and under toile.numpy and compares what comes out.

Expressions are Python text over the names in `NAMES` and `jnp`, so a case reads as a user would
write it. Values, dtypes, weak types and shapes must agree, and so must the class of an exception.
What jax.numpy gives is recorded (tests/golden/recorded.py).
"""

import re

import jax
import jax.numpy
import numpy as np

import toile
import toile.numpy
from tests.golden.recorded import Record, attempt, text_of

RECORD = Record("numpy")

DATA = {
    "x": np.array([1.0, 2.0, 3.0], np.float32),
    "y": np.array([-0.5, 0.25, 4.0], np.float32),
    "z": np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-3], np.float32),
    "v": np.array([2.0, -3.0, 1.0, np.inf, 0.5, -0.5, np.nan, 0.0], np.float32),
    "m": np.arange(6, dtype=np.float32).reshape(2, 3) - 1.5,
    "t": np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 7 - 2,
    "n": np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, -1.0]], np.float32),
    "o": np.zeros((0, 3), np.float32),
    "i": np.array([0, 1, 2], np.int32),
    "j": np.array([3, -2, 5], np.int32),
    "i8": np.array([100, -3, 2], np.int8),
    "u": np.array([0, 1, 200], np.uint8),
    "u32": np.array([1, 2, 4000000000], np.uint32),
    "b": np.array([False, True, True]),
    "h": np.array([1.0, 2.5, -3.0], np.float16),
    "c": np.array([1 + 1j, 0.25 - 2j, -0.5 + 0.1j], np.complex64),
    "mask": np.array([[True, False, True], [False, True, True]]),
}


def namespace(lib):
    """The names an expression may use, with arrays of the given library."""
    jnp = jax.numpy if lib is jax else toile.numpy
    names = {k: jnp.asarray(v) for k, v in DATA.items()}
    names["bf"] = jnp.asarray(DATA["x"]).astype(jnp.bfloat16)
    names["w"] = jnp.asarray(2.0)
    names["k"] = jnp.asarray(3)
    return {**names, "jnp": jnp, "np": np, "lib": lib, "DATA": DATA}


_NAMES = {}


def _names(lib):
    if lib not in _NAMES:
        _NAMES[lib] = namespace(lib)
    return _NAMES[lib]


def check(expression, rtol=2e-5, atol=1e-6, values=True):
    """Both libraries agree on the expression; without `values`, on everything but those.

    Compiling is what takes the oracle's time, and facts about shapes and dtypes need none of it.
    """
    code = compile(expression, expression, "eval")
    evaluate = eval if values else _traced
    wanted = RECORD.answer(_key(expression, values),
                           lambda: attempt(lambda: evaluate(code, _names(jax))))
    got = attempt(lambda: eval(code, _names(toile)))
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        assert isinstance(wanted, Exception), f"{expression}: needed {wanted}, raised {got!r}"
        assert isinstance(got, Exception), f"{expression}: needed {wanted!r}, got {got}"
        # Which of the two refuses an argument is an accident of the order of tests.
        refused = (TypeError, ValueError, IndexError, NotImplementedError)
        alike = isinstance(got, type(wanted)) or isinstance(wanted, type(got))
        alike = alike or (isinstance(got, refused) and isinstance(wanted, refused))
        assert alike, f"{expression}: {wanted!r} {got!r}"
        return
    same(wanted, got, expression, rtol, atol, values)


def _key(expression, values):
    """What decides the answer: the expression, the arrays that it mentions, and the mode."""
    words = set(re.findall(r"\w+", expression)) | {"x"}  # `bf` is made of it
    arrays = [text_of(name, DATA[name]) for name in sorted(words & set(DATA))]
    return text_of(expression, values, bool(jax.config.jax_enable_x64), namespace, *arrays)


def _traced(code, names):
    """The avals of an expression's results; results that are no arrays as they are."""
    plain = []

    def run():
        out = eval(code, names)
        arrays = jax.tree.leaves(out)
        if not all(isinstance(leaf, jax.Array) for leaf in arrays):
            plain.append(out)
            return ()
        return out

    avals = jax.eval_shape(run)
    return plain[0] if plain else avals


def same(wanted, got, text, rtol, atol, values=True):
    """Assert equality of nested results."""
    if isinstance(wanted, (list, tuple)):
        kinds = [type(x).__name__ for x in (wanted, got)]
        # Functions that give lists in jax 0.10 give tuples in newer ones, and here.
        assert kinds[0] == kinds[1] or kinds == ["list", "tuple"], text
        assert len(wanted) == len(got), text
        for a, b in zip(wanted, got):
            same(a, b, text, rtol, atol, values)
        return
    if not hasattr(wanted, "weak_type"):
        assert wanted == got or wanted != wanted, f"{text}: needed {wanted}, got {got}"
        return
    # A weak boolean promotes as any other: the bit says nothing.
    facts = [
        (str(v.dtype), v.shape, bool(v.weak_type) and v.dtype != bool) for v in (wanted, got)
    ]
    assert facts[0] == facts[1], f"{text}: needed {facts[0]}, got {facts[1]}"
    if not values:
        return
    a, b = np.asarray(wanted), np.asarray(got)
    if a.dtype.kind == "V" or a.dtype == np.float16:
        a, b, rtol = a.astype(np.float32), b.astype(np.float32), 1e-2
    if a.dtype.kind in "fc":
        np.testing.assert_allclose(b, a, rtol, atol, err_msg=text)
    else:
        np.testing.assert_array_equal(b, a, err_msg=text)
