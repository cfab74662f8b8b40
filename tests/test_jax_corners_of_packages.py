"""More corners where toile gives what jax gives: axes, indices, results of transformations, names.

A row is a function of the package; it returns something to compare or raises. Errors agree in their
type.
"""

import functools
import importlib
import operator
import types

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests import test_sparse
from tests.against_jax import Case, compare, resolve
from tests.golden.recorded import CORNERS, attempt
from tests.numpy import compare as expressions
from toile import lax

V = np.float32([1, 2, 3])
I = np.int32([1, 2])
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1
FLOAT0 = jax.dtypes.float0


# ------------------------------------------------------------------ shapes and dtypes as results


def _leaves(lib, tree):
    """The shapes, dtypes and weak types of the leaves of a tree, as text."""
    return [f"{x.shape} {x.dtype} {bool(getattr(x, 'weak_type', False))}"
            for x in lib.tree.leaves(tree)]


def _struct(lib, dtype=np.float32):
    return lib.ShapeDtypeStruct((3,), dtype)


STRUCTS = {
    "struct": _struct,
    "tree": lambda lib: {"a": _struct(lib), "b": [1.0]},
    "key": lambda lib: lib.eval_shape(lambda: lib.random.key(0)),
    "weak": lambda lib: lib.eval_shape(lambda: 1.0),
    "wide": lambda lib: _struct(lib, np.float64),
    "nested": lambda lib: lib.eval_shape(lambda x: x, _struct(lib)),
    "text": lambda lib: "text",
    "object": lambda lib: object(),
    "dtype": lambda lib: np.dtype(np.float32),
    "objects": lambda lib: np.array([object()]),
}
USES = {
    "eval_shape": lambda lib, f: _leaves(lib, lib.eval_shape(f)),
    "jit_eval_shape": lambda lib, f: _leaves(lib, lib.jit(f).eval_shape()),
    "trace": lambda lib, f: _leaves(lib, lib.jit(f).trace().out_info),
    "make_jaxpr": lambda lib, f: _leaves(lib, lib.make_jaxpr(f, return_shape=True)()[1]),
    "jit": lambda lib, f: lib.jit(f)(),
    "lower": lambda lib, f: lib.jit(f).lower(),
    "shape": lambda lib, f: lib.jit(lambda: lib.numpy.zeros(lib.eval_shape(f).shape))(),
}
RESULTS = {
    f"{use}_{name}": lambda lib, run=run, make=make: run(lib, lambda: make(lib))
    for use, run in USES.items() for name, make in STRUCTS.items()
}


# ------------------------------------------------------------------------------------ axes


FORMS = {
    "range": lambda axes: range(axes[0], axes[-1] + 1),
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "bytes": lambda axes: np.array(axes, np.uint8),
    "scalar": lambda axes: np.array(axes[0]),
    "one": lambda axes: np.array(axes[:1]),
    "none": lambda axes: np.zeros((0,), int),
    "negative": lambda axes: np.array([-1, -2]),
}
REDUCTIONS = ("sum", "prod", "max", "mean", "std", "var", "any", "ptp", "average")


def _of_axes(lib, axis):
    """Functions of an axis or a shape, by name."""
    jnp, x = lib.numpy, lib.numpy.asarray(X)
    return {
        **{name: functools.partial(getattr(jnp, name), x, axis=axis) for name in REDUCTIONS},
        "method": lambda: x.sum(axis),
        "keepdims": lambda: jnp.sum(x, axis, keepdims=True),
        "expand_dims": lambda: jnp.expand_dims(x, axis),
        "squeeze": lambda: jnp.squeeze(jnp.ones((1, 1, 3)), axis),
        "flip": lambda: jnp.flip(x, axis),
        "moveaxis": lambda: jnp.moveaxis(x, axis, axis),
        "roll": lambda: jnp.roll(x, 1, axis),
        "fftshift": lambda: jnp.fft.fftshift(x, axis),
        "fftn": lambda: jnp.fft.fftn(x, axes=axis),
        "dctn": lambda: lib.scipy.fft.dctn(x, axes=axis),
        "logsumexp": lambda: lib.nn.logsumexp(x, axis),
        "softmax": lambda: lib.nn.softmax(x, axis),
        "vector_norm": lambda: jnp.linalg.vector_norm(x, axis=axis),
        "reshape": lambda: jnp.reshape(jnp.ones(2), axis),
        "method_reshape": lambda: jnp.ones(2).reshape(axis),
        "zeros": lambda: jnp.zeros(axis),
        "lax_reshape": lambda: lib.lax.reshape(jnp.ones(2), axis),
        "lax_expand_dims": lambda: lib.lax.expand_dims(x, axis),
        "dot_general": lambda: lib.lax.dot_general(x, x, ((axis, axis), ((), ()))),
        "choice": lambda: lib.random.choice(lib.random.key(0), 5, axis),
        "bits": lambda: lib.random.bits(lib.random.key(0), axis),
    }


AXES = {
    f"{name}_{form}_{axes[0]}": lambda lib, n=name, make=make, axes=axes: _of_axes(lib, make(axes))[
        n]()
    for name in _of_axes(toile, 0) for form, make in FORMS.items() for axes in ([0, 1], [1, 2])
}
# jax refuses these only because it hashes the axis.
HASHED = {"dctn_array", "dctn_bytes", "dctn_one", "dctn_none", "dctn_negative", "dctn_scalar",
          "logsumexp_range", "logsumexp_scalar", "fftshift_scalar", "bits_scalar"}


# ------------------------------------------------------------------------------- reductions


def _reduced(lib, init, name, dtype, windows):
    x = lib.numpy.arange(12).reshape(3, 4).astype(dtype)
    f = getattr(lib.lax, name, None) or (lambda a, b: a)
    if windows:
        return lib.lax.reduce_window(x, init, f, (2, 2), (1, 1), "SAME")
    return lib.lax.reduce(x, init, f, (0,))


INITS = {"-inf": -np.inf, "inf": np.inf, "nan": np.nan, "0": 0, "0.0": 0.0, "True": True,
         "int32": np.int32(0), "float32": np.float32(-np.inf), "1.5": 1.5, "array": np.zeros(1)}
FOLDS = {
    f"{name}_{text}_{dtype}_{windows}": functools.partial(
        _reduced, init=init, name=name, dtype=dtype, windows=windows)
    for name in ("max", "min", "add", "mul", "bitwise_or", "first")
    for text, init in INITS.items() for dtype in ("int32", "float32", "bool")
    for windows in (False, True)
}


# --------------------------------------------------------------------------------- indices


PLACES = {
    "7": 7, "-6": -6, "numpy": np.int64(7), "tuple": (7,), "new": (7, None), "ellipsis": (..., 7),
    "row": (7, slice(None)), "second": (1, 7), "both": (7, 7), "strided": (slice(None, None, 2), 9),
    "back": (slice(None, None, -1), 9), "array": (np.array([0, 1]), 9), "mask": (True, 7),
}
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def _written(lib, place, name, mode, jit):
    arguments = {"set": (9,), "add": (1,), "multiply": (2,), "max": (50,),
                 "apply": (lambda v: v + 1,), "get": ()}[name]

    def run(x):
        return getattr(x.at[place], name)(*arguments, mode=mode)

    return (lib.jit(run) if jit else run)(lib.numpy.asarray(MATRIX))


WRITES = {
    f"{name}_{text}_{mode}_{jit}": functools.partial(
        _written, place=place, name=name, mode=mode, jit=jit)
    for name in ("set", "add", "multiply", "max", "apply", "get") for text, place in PLACES.items()
    for mode in (None, "clip", "fill") for jit in (False, True) if not jit or mode is None
}
ARRAYS = {"x": V, "m": MATRIX[:, :2], "empty": V[:0], "rows": MATRIX[:, :0], "t": X}
MASKS = {
    "length0": np.zeros(0, bool), "3x0": np.zeros((3, 0), bool), "0x3": np.zeros((0, 3), bool),
    "0x2": np.zeros((0, 2), bool), "False": False, "True": True, "none": np.zeros(3, bool),
    "both": (True, False), "first": (False, 0), "last": (0, False),
    "rest": (slice(None), True), "after": (..., True), "wrong": np.zeros(2, bool),
    "after_new": (None, np.zeros(0, bool)), "then": (np.zeros(0, bool), 0), "list": ([],),
}


def _masked(lib, x, mask, how):
    x = lib.numpy.asarray(x)
    if how == "set":
        return x.at[mask].set(9)
    return lib.jit(lambda v: v[mask])(x) if how == "jit" else x[mask]


READS = {
    f"{how}_{name}_{text}": functools.partial(_masked, x=x, mask=mask, how=how)
    for how in ("get", "jit", "set") for name, x in ARRAYS.items() for text, mask in MASKS.items()
}
ALONG = {
    f"{name}_{shape}_{axis}_{mode}": lambda lib, x=x, shape=shape, axis=axis, mode=mode:
        lib.numpy.take_along_axis(lib.numpy.asarray(x), np.zeros(shape, int), axis, mode=mode)
    for name, x in ARRAYS.items() for shape in ((3,), (0,), (3, 1), (1, 2), (3, 0), (2, 1, 4))
    for axis in (0, -1, None) for mode in (None, "clip", "fill")
}


# ---------------------------------------------------------------------------------- float0


def _kinds(lib, tree):
    """Whether leaves are NumPy arrays, and their shapes and dtypes."""
    return [f"{isinstance(x, np.ndarray)} {np.shape(x)} {lib.dtypes.float0 == x.dtype}"
            for x in lib.tree.leaves(tree)]


def _scaled(x, y=2.0):
    return (x * y).sum()


def _custom(lib):
    f = lib.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, g: (g * n, None))
    return lib.jit(lib.grad(f, (0, 1), allow_int=True))(2.0, 3)


def _slope(lib):
    return lib.grad(_scaled, allow_int=True)


ROWS = np.int32([[1, 2], [3, 4], [5, 6]])
INTEGERS = {
    "grad": lambda lib: _slope(lib)(I),
    "jit": lambda lib: lib.jit(_slope(lib))(I),
    "jit_twice": lambda lib: [f(I) for f in [lib.jit(_slope(lib))] * 4],
    "grad_of_jit": lambda lib: lib.grad(lib.jit(_scaled), allow_int=True)(I),
    "vmap": lambda lib: lib.vmap(_slope(lib))(ROWS),
    "vmap_out": lambda lib: lib.vmap(_slope(lib), out_axes=1)(ROWS),
    "jit_vmap": lambda lib: lib.jit(lib.vmap(_slope(lib)))(ROWS),
    "vmap_jit": lambda lib: lib.vmap(lib.jit(_slope(lib)))(ROWS),
    "pmap": lambda lib: lib.pmap(_slope(lib))(ROWS[:1]),
    "lower": lambda lib: lib.jit(_slope(lib)).lower(I).compile()(I),
    "jvp": lambda lib: lib.jit(lambda x: lib.jvp(lambda y: (y > 1, y), (x,), (x,))[1])(V),
    "vjp": lambda lib: lib.jit(lambda x, y: lib.vjp(_scaled, x, y)[1](1.0))(V, np.int32(3)),
    "pullback": lambda lib: lib.vmap(lib.vjp(lambda x, y: x * y, V, I[0])[1])(np.ones((2, 3), "f")),
    "custom_vjp": _custom,
    "checkpoint": lambda lib: lib.jit(lib.grad(lib.checkpoint(_scaled), allow_int=True))(I),
    "scan": lambda lib: lib.lax.scan(lambda c, x: (c, _slope(lib)(x)), 0, I)[1],
    "cond": lambda lib: lib.lax.cond(True, _slope(lib), lambda x: np.zeros(2, FLOAT0), I),
    "argument": lambda lib: lib.jit(lambda x: x)(np.zeros(2, FLOAT0)),
    "constant": lambda lib: lib.vmap(lambda x: np.zeros(2, FLOAT0))(V),
    "zeros": lambda lib: lib.numpy.zeros((2,), lib.dtypes.float0),
    "zeros_like": lambda lib: lib.numpy.zeros_like(np.zeros(2, FLOAT0)),
    "asarray": lambda lib: lib.numpy.asarray(np.zeros(2, FLOAT0)),
    "device_put": lambda lib: lib.device_put(np.zeros(2, FLOAT0)),
}
INTEGERS = {name: lambda lib, row=row: _kinds(lib, row(lib)) for name, row in INTEGERS.items()}
INTEGERS |= {
    "jacrev": lambda lib: lib.jacrev(lambda x: x * 2.0, allow_int=True)(I),
    "jacrev_both": lambda lib: lib.jacrev(lambda x, y: x * y, (0, 1), allow_int=True)(V[:2], I),
}


# --------------------------------------------------------------------- names and attributes


class _Called:
    """Calls that JAX transforms although they have no name."""

    def __init__(self):
        self.tag = 5

    def __call__(self, x):
        return x * 2


class _Nameless(_Called):
    @property
    def __name__(self):
        raise AttributeError("no name")


def _function(kind):
    def f(x):
        return x * 2

    if kind in ("instance", "nameless"):
        return _Called() if kind == "instance" else _Nameless()
    if kind == "partial":
        f = functools.partial(lambda x, y: x * y, y=2)
    f.tag = 5
    if kind == "odd":
        f.__name__ = "a b{}\n%<lambda>"
    return f


TRANSFORMED = {
    "jit": lambda lib, f: lib.jit(f), "grad": lambda lib, f: lib.grad(f),
    "value_and_grad": lambda lib, f: lib.value_and_grad(f), "vmap": lambda lib, f: lib.vmap(f),
    "pmap": lambda lib, f: lib.pmap(f), "checkpoint": lambda lib, f: lib.checkpoint(f),
    "custom_jvp": lambda lib, f: lib.custom_jvp(f), "custom_vjp": lambda lib, f: lib.custom_vjp(f),
    "jacfwd": lambda lib, f: lib.jacfwd(f), "jacrev": lambda lib, f: lib.jacrev(f),
    "hessian": lambda lib, f: lib.hessian(f), "grad_jit": lambda lib, f: lib.grad(lib.jit(f)),
    "vmap_custom": lambda lib, f: lib.vmap(lib.custom_jvp(f)),
}


def _attributes(lib, transform, kind):
    """What a transformed function shows of the function, and that it can be called."""
    f = transform(lib, _function(kind))
    called = type(attempt(lambda: f(V[:1] if transform in _MAPPED else 2.0))).__name__
    named = [f.__name__] if kind in ("plain", "odd") else []
    return [f.tag, *named, "Error" in called]


_MAPPED = [TRANSFORMED[name] for name in ("vmap", "pmap", "vmap_custom")]
NAMES = {
    f"{name}_{kind}": functools.partial(_attributes, transform=transform, kind=kind)
    for name, transform in TRANSFORMED.items()
    for kind in ("plain", "odd", "partial", "instance", "nameless")
}


TABLES = {
    "result": RESULTS, "axis": AXES, "fold": FOLDS, "write": WRITES, "read": READS,
    "along": ALONG, "integer": INTEGERS, "name": NAMES,
}
PAIRS = [(table, row) for table, rows in TABLES.items() for row in rows
         if row.rpartition("_")[0] not in HASHED]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("table", "row"), PAIRS, ids=map("-".join, PAIRS))
def test_as_jax(table, row):
    run = TABLES[table][row]
    wanted = CORNERS.in_test(lambda: attempt(lambda: run(jax)), row)
    got = attempt(lambda: run(toile))
    if table == "fold" and isinstance(wanted, TypeError):
        return  # toile converts Python numbers (docs/compat.md) and adds booleans
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        refused = (TypeError, ValueError, IndexError)
        alike = isinstance(got, type(wanted)) or (
            isinstance(got, refused) and isinstance(wanted, refused))
        assert alike, f"needed {wanted!r}, got {got!r}"
    elif isinstance(wanted, list) and all(isinstance(x, (str, bool, int)) for x in wanted):
        assert got == wanted
    else:
        compare(got, wanted, 1e-5, 1e-6, row)


def test_booleans_after_a_new_axis_select_as_in_numpy():
    x = toile.numpy.asarray(X)
    for mask in ((None, True), (None, False), (None, True, 1)):  # jax takes them for an axis
        np.testing.assert_array_equal(x[mask], X[mask])
        read = toile.jit(operator.getitem, static_argnums=1)
        np.testing.assert_array_equal(read(x, mask), X[mask])


def test_integers_without_a_value_are_numpy_arrays():
    found = toile.jit(toile.grad(_scaled, allow_int=True))(I)
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype) == ((2,), toile.float0)


def test_updates_out_of_bounds_warn_once():
    x = toile.numpy.zeros(3)
    with pytest.warns(toile.errors.OutOfBoundsWarning, match="index 7 .* was ignored") as caught:
        for _ in range(3):
            x.at[7].set(1)
    assert len(caught) == 1
    with pytest.raises(IndexError, match="index 7 is out of bounds"), toile.checks("index"):
        x.at[7].add(1)


def test_a_shape_has_no_value():
    f = toile.jit(lambda: toile.ShapeDtypeStruct((3,), "float32"))
    for run in (f, f, f.lower, toile.jit(lambda: f())):
        with pytest.raises(TypeError, match="ShapeDtypeStruct"):
            run()


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_numbers_that_are_replaced_by_others_that_are(dtype):
    """`nan_to_num(x, nan=-inf)` gives the smallest number, in JAX and not in NumPy."""
    values = np.array([np.nan, np.inf, -np.inf, 1.5], dtype)
    choices = (None, 2.0, np.inf, -np.inf, np.nan)

    def replaced(lib):
        rows = [lib.numpy.nan_to_num(values, nan=0.0 if a is None else a, posinf=b, neginf=c)
                for a in choices for b in choices for c in choices]
        return np.array(rows)

    np.testing.assert_array_equal(replaced(toile), replaced(jax))
    got = toile.jit(lambda x: toile.numpy.nan_to_num(x, nan=-np.inf))(values)
    assert np.isfinite(got).all()


# ------------------------------------------------------------------------- strict promotion


def _promotions():
    """Rows of the tables of public functions: (name, function of the package)."""
    modules = ("scipy.test_special", "scipy.test_numerics", "scipy.test_stats", "scipy.test_linalg",
               "nn.test_nn", "test_image")
    for name in modules:
        for value in vars(importlib.import_module(f"tests.{name}")).values():
            if isinstance(value, list) and value and isinstance(value[0], Case):
                for case in value:
                    yield str(case), functools.partial(_called, case=case)
    for name in ("contractions", "fft", "linalg", "manipulation", "reductions"):
        table = importlib.import_module(f"tests.numpy.test_{name}").CASES
        lines = table.strip().split("\n") if isinstance(table, str) else table
        for text in (text for line in lines for text in line.split("|")):
            yield text, functools.partial(_evaluated, text=text)
    for name in test_sparse.ROWS:
        yield f"sparse {name}", functools.partial(_sparse, name=name)
    yield from STRICT.items()


def _sparse(lib, name):
    sparse = importlib.import_module(f"{lib.__name__}.experimental.sparse")
    fun, args = test_sparse.ROWS[name]
    return fun(lib, sparse, *[test_sparse.made(x, sparse) for x in args])


def _called(lib, case):
    args = [lib.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in case.args]
    return resolve(lib.__name__, case.path)(*args, **case.kwargs)


def _evaluated(lib, text):
    return eval(text, expressions.namespace(lib))


def _lbfgs(lib, shape):
    """Steps of a compiled optimizer with donated arguments."""
    o = toile.optim if lib is toile else importlib.import_module("optax")
    tx, loss = o.lbfgs(), lambda p: lib.numpy.sum((p - 3.0) ** 2)

    def step(p, state):
        value, slope = o.value_and_grad_from_state(loss)(p, state=state)
        u, state = tx.update(slope, state, p, value=value, grad=slope, value_fn=loss)
        return o.apply_updates(p, u), state

    p = lib.numpy.ones(shape)
    state = tx.init(p)
    for _ in range(2):
        p, state = lib.jit(step, donate_argnums=(0, 1))(p, state)
    return p


def _sampled(lib):
    key, v = lib.random.key(0), lib.numpy.ones(3)
    return [lib.random.multivariate_normal(key, v, lib.numpy.eye(3), (4,)),
            lib.random.uniform(key, (3,), minval=v, maxval=2 * v), lib.random.dirichlet(key, v)]


def _estimated(lib):
    kde = lib.scipy.stats.gaussian_kde(lib.numpy.arange(6.0).reshape(2, 3) ** 2)
    return kde(lib.numpy.ones((2, 4))), kde.logpdf(lib.numpy.ones((2, 4)))


def _statistics(lib):
    jnp, x, w = lib.numpy, lib.numpy.asarray(MATRIX), lib.numpy.asarray(V[[0, 1, 2, 0]])
    return jnp.cov(x, aweights=w), jnp.corrcoef(x), jnp.polyfit(w, x.T, 1, cov=True)


STRICT = {
    "lbfgs": functools.partial(_lbfgs, shape=(2, 3)), "samplers": _sampled, "kde": _estimated,
    "statistics": _statistics,
    "donation": lambda lib: lib.jit(lambda a, b: (a * 2, b + 1), donate_argnums=(0, 1))(
        lib.numpy.ones((2, 3)), lib.numpy.ones(3)),
}
STRICT |= {
    f"{dtype}.at.{op}({value})": functools.partial(
        lambda lib, dtype, op, value: getattr(lib.numpy.ones(3, dtype).at[:2], op)(value),
        dtype=dtype, op=op, value=value)
    for dtype in ("int8", "int32", "uint32", "float16", "float32", "complex64")
    for op in ("set", "add", "multiply", "min", "power")
    for value in (True, 1, 1.5, 1j, np.bool_(True), np.int64(1), np.float32(1))
}
OPTIONS = ("numpy_rank_promotion", "numpy_dtype_promotion")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("option", OPTIONS)
def test_functions_do_not_promote_by_themselves(option):
    """What toile refuses under strict promotion, and not otherwise, jax refuses too."""
    value = {"numpy_rank_promotion": "raise", "numpy_dtype_promotion": "strict"}[option]

    def strictly(lib, run):
        with getattr(lib, option)(value):
            return attempt(lambda: run(lib))

    found = []
    for name, run in _promotions():
        got = strictly(toile, run)
        if not isinstance(got, Exception) or isinstance(
            attempt(functools.partial(run, toile)), Exception
        ):
            continue
        if not isinstance(strictly(jax, run), Exception):
            found.append(f"{name}: {got}")
    assert not found, "\n".join(found)


# ------------------------------------------------------------------------------------ names


def test_ragged_all_to_all():
    def exchange(*args):
        return toile.lax.ragged_all_to_all(*args, axis_name="i")

    args = [np.array(a) for a in (
        [[1.0, 2, 2], [3, 4, 0]], [[0.0] * 4] * 2, [[0, 1], [0, 1]], [[1, 2], [1, 1]],
        [[0, 0], [1, 2]], [[1, 1], [2, 1]])]
    run = toile.vmap(exchange, axis_name="i")
    for found in (run(*args), toile.jit(run)(*args)):  # the example of jax's documentation
        np.testing.assert_array_equal(found, [[1, 3, 0, 0], [2, 2, 4, 0]])
    weights = np.arange(8.0).reshape(2, 4)
    slope = toile.grad(lambda x: (run(x, *args[1:]) * weights).sum())(args[0].astype("f"))
    np.testing.assert_array_equal(slope, [[0, 4, 5], [1, 6, 0]])
    with pytest.raises(ValueError, match="must be integer type"):
        run(*args[:2], args[2] * 1.0, *args[3:])
    with pytest.raises(ValueError, match="multiple of the axis size 2"):
        run(*args[:2], *(a[:, :1] for a in args[2:]))


def test_valid_jaxtype():
    from toile.core import valid_jaxtype

    valid = [1, 1.5, True, np.ones(2), np.float32(1), toile.numpy.ones(2), toile.random.key(0)]
    assert all(map(valid_jaxtype, valid))
    struct = toile.ShapeDtypeStruct((), "float32")
    invalid = ["text", object(), None, [1], np.array(["a"]), struct, types.SimpleNamespace()]
    assert not any(map(valid_jaxtype, invalid))


def test_primitives_of_equations():
    lax, jnp = toile.lax, toile.numpy
    program = toile.make_jaxpr(lambda x: jnp.sin(x).sum() * jnp.exp(2.0 * x[0]))(V).jaxpr
    found = [e.primitive for e in program.eqns]
    assert {lax.sin_p, lax.reduce_sum_p, lax.mul_p, lax.exp_p} <= set(found)
    assert lax.sin_p.bind(0.0) == lax.sin_p.impl(0.0) == 0
    assert lax.reduce_sum_p.bind(V, axes=(0,)) == 6


def test_results_that_all_branches_return_unchanged_are_not_mapped():
    def f(p, v, c):
        return lax.cond(p > 0, lambda v, c: (v + 1, c), lambda v, c: (v * 2, c), v, c)

    p, v = jnp.arange(3.0) - 1, jnp.arange(3.0)
    changed, same = toile.vmap(f, in_axes=(0, 0, None), out_axes=(0, None))(p, v, 7.0)
    assert changed.tolist() == [0.0, 2.0, 3.0] and same == 7.0
    with pytest.raises(ValueError, match="output was batched"):
        toile.vmap(f, in_axes=(0, 0, None), out_axes=(None, None))(p, v, 7.0)


def test_labels_of_einsum_may_be_digits():
    x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(jnp.einsum("a1,1b->ab", x, y), x @ y)


@pytest.mark.parametrize(("dtype", "init"), [("int8", 300), ("uint8", -1)])
def test_integers_that_do_not_fit_are_refused_as_initial_values(dtype, init):
    x = toile.numpy.arange(3, dtype=dtype)
    for call in (lambda: toile.lax.reduce(x, init, toile.lax.add, (0,)),
                 lambda: toile.lax.reduce_window(x, init, toile.lax.add, (2,), (1,), "VALID")):
        with pytest.raises(TypeError, match=f"for {dtype}, got {init}"):
            call()
