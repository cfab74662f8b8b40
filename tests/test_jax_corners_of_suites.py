"""Corners that the tests of JAX itself look into: each row gives in toile what it gives in jax.

A row is a function of the package; it returns something to compare or raises. Errors agree in their
type.
"""

import re
import subprocess
import sys
from typing import NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
import toile.scipy.linalg
import toile.scipy.optimize
import toile.scipy.signal
import toile.scipy.special
from tests.golden.recorded import CORNERS, attempt
from toile.custom_derivatives import SymbolicZero
from toile.experimental import checkify, sparse
from toile.scipy.spatial.transform import Rotation, Slerp

BITS = (np.arange(32) % 7 - 3).astype(np.int8)
COMPLEX_NANS = np.array([complex(x, y) for x in (-0.0, 1.0, np.nan) for y in (0.0, np.nan)],
                        np.complex64)
EMPTY = np.zeros((3, 0), np.float32)

_random = np.random.RandomState(0)
_FULL = _random.randn(2, 4, 4).astype(np.float32)
MATRICES = [np.zeros((4, 4), np.float32), np.ones((4, 4), np.float32), _FULL,
            np.diag(np.float32([1, 2, 3, 0])), np.concatenate([0 * _FULL[:1], _FULL[:1]])]


def _power(lib, x, y):
    """The first and the second derivatives of x**y, forward and reverse."""
    first = lib.grad(lib.lax.pow, (0, 1))
    second = lib.jacfwd(lib.jacfwd(lib.lax.pow, (0, 1)), (0, 1))
    reverse = lib.jacrev(lib.jacrev(lib.lax.pow, (0, 1)), (0, 1))
    return first(x, y), second(x, y), reverse(x, y)


def _set(name, *arrays, **options):
    values = [np.array(a, np.int32) for a in arrays]
    return lambda lib: getattr(lib.numpy, name)(*values, **options)


ROWS = {
    **{f"power at {x} {y}": lambda lib, x=x, y=y: _power(lib, x, y)
       for x, y in [(4.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (2.0, 3.0)]},
    **{f"spacing {dtype}": lambda lib, dtype=dtype: lib.numpy.spacing(
        np.array([-20, -1, 0, 1, 20], dtype)) for dtype in ("float16", "float32", "bfloat16")},
    **{f"{name} of booleans": lambda lib, name=name: getattr(lib.numpy, name)(
        np.float32([[0.1], [-0.1], [0.0]]), axis=0, dtype=bool)
       for name in ("cumsum", "cumprod", "nancumsum", "cumulative_sum", "cumulative_prod")},
    **{f"linspace {n}": lambda lib, n=n: lib.numpy.linspace(0, 5 * n, n + 1)
       for n in (3, 5, 10, 25)},
    "histogram of whole numbers": lambda lib: lib.numpy.histogram(
        np.float32([0, 5, 14, 15, 15, 24, 25]), 5),
    **{f"piecewise {count}": lambda lib, count=count: lib.numpy.piecewise(
        lib.numpy.arange(-4, 5), np.array([False, True, False]),
        [lambda x: x - 1, lambda x: x * 2, lambda x: x**2, 7][:count]) for count in (3, 4)},
    **{f"{name} of arrays": lambda lib, name=name: [getattr(lib.numpy, name)(a, b) for a, b in (
        (BITS[:3][None], BITS[:6].reshape(2, 3)), (BITS[:6].reshape(2, 3), BITS[:6].reshape(2, 3)))]
       for name in ("polyadd", "polysub")},
    **{f"roots of {p}": lambda lib, p=p: lib.jit(lambda p: lib.numpy.roots(p, strip_zeros=False))(
        np.float32(p)) for p in ([0, 1, 2], [0, 0, 1, 2], [1, 2, 0], [0, 1, 2, 0], [0, 0, 0])},
    **{f"traced axis of {name}": lambda lib, name=name: lib.jit(
        lambda x, axis: getattr(lib.numpy, name)(x, axis))(np.ones((2, 3)), 0)
       for name in ("sum", "mean", "min", "expand_dims", "flip", "argmax", "take")},
    "covariance without observations": lambda lib: [
        lib.numpy.cov(EMPTY), lib.numpy.cov(EMPTY[0]), lib.numpy.cov(EMPTY, EMPTY[:2])],
    **{f"{name} {a} {b} {options}": _set(name, a, b, size=3, **options)
       for name in ("setdiff1d", "setxor1d") for a, b in [((), (1,)), ((), ()), ((1,), ())]
       for options in ({}, {"fill_value": 99})},
    "unique complex NaN": lambda lib: lib.numpy.unique(
        COMPLEX_NANS, return_index=True, return_inverse=True, return_counts=True),
    **{f"linspace step {num} {shape}": lambda lib, num=num, shape=shape: lib.numpy.linspace(
        np.ones(shape, np.float32), 2.0, num, retstep=True)
       for num in (0, 1, 3) for shape in ((), (2,), (2, 2))},
    **{f"byteswap {dtype} {shape}": lambda lib, dtype=dtype, shape=shape: lib.numpy.asarray(
        BITS[:8].astype(dtype).reshape(shape)).byteswap().view("uint8")
       for dtype, shape in [("float32", (8,)), ("complex64", (2, 4)), ("int8", (8,))]},
    "byteswap of a scalar": lambda lib: lib.numpy.asarray(np.float32(3)).byteswap(),
    **{f"view {a} {b}": lambda lib, a=a, b=b: lib.numpy.asarray(
        BITS.astype(getattr(ml_dtypes, a, a))).view(getattr(lib.numpy, b)).astype("float32")
       for a in ("int4", "uint4", "int8", "bfloat16", "float32")
       for b in ("int4", "uint4", "int8", "bool_", "int16", "float32")},
    **{f"bitcast {a} {shape} {b}": lambda lib, a=a, shape=shape, b=b: lib.lax.bitcast_convert_type(
        lib.numpy.asarray(BITS[:np.prod(shape)].reshape(shape), a), getattr(lib.numpy, b)
        ).astype("float32")
       for a, shape, b in [("int4", (4, 2), "int8"), ("int4", (4, 4), "int16"),
                           ("int8", (3,), "int4"), ("int4", (3,), "int8"),
                           ("uint4", (8,), "float32"), ("int4", (), "uint4"),
                           ("float32", (2,), "uint4"), ("int4", (3, 3), "int8")]},
    "unravel with a traced shape": lambda lib: lib.jit(lib.numpy.unravel_index)(
        np.int32([3, -1, 100]), (2, 3)),
    **{f"take along {mode} {wrap}": lambda lib, mode=mode, wrap=wrap: lib.numpy.take_along_axis(
        lib.numpy.array([10, 20, 30]), np.int32([-1, -2]), 0, mode, wrap_negative_indices=wrap)
       for mode in (None, "clip", "promise_in_bounds") for wrap in (True, False)},
    **{f"contains {x!r}": lambda lib, x=x: x in lib.numpy.arange(2)
       for x in (1, 5, 1.0, "abc", None, np.arange(2))},
    "contained in a scalar": lambda lib: 1 in lib.numpy.array(1),
    "contained in a matrix": lambda lib: 1 in lib.numpy.ones((2, 2)),
    "rotated vector": lambda lib: lib.numpy.rot90(np.ones(2)),
    "clip to a complex number": lambda lib: lib.numpy.clip(np.arange(3), min=-1 + 5j),
    "fractional image": lambda lib: lib.image.resize(np.ones((3, 4)), [10.5, 17], "cubic"),
    "complex list": lambda lib: lib.jit(lambda x: lib.numpy.iscomplexobj([x]))(1j),
    "traced number of classes": lambda lib: lib.jit(lib.nn.one_hot)(3, 5),
    "one output for two": lambda lib: lib.numpy.vectorize(
        lambda x: x, signature="(n)->(n),(n)")(np.ones((2, 3))),
    **{f"derivative of det {k}": lambda lib, k=k: (
        lib.grad(lambda a: lib.numpy.linalg.det(a).sum())(MATRICES[k]),
        lib.jvp(lib.numpy.linalg.det, (MATRICES[k],), (np.ones_like(MATRICES[k]),))[1])
       for k in range(5)},
    "least squares of zeros": lambda lib: lib.numpy.linalg.lstsq(EMPTY[:2, :0] @ EMPTY[:2, :0].T,
                                                                 np.eye(2, dtype=np.float32))[:3:2],
    "tridiagonal of one": lambda lib: lib.lax.linalg.tridiagonal(np.complex64([[1 + 2j]])),
    "struct like": lambda lib: [
        (x.shape, str(x.dtype), x.weak_type) for x in map(lib.ShapeDtypeStruct.like, (
            2, 1.5, np.ones(3, "int8"), lib.numpy.ones((2, 3)),
            lib.ShapeDtypeStruct((4,), "int8")))],
    "negative size": lambda lib: lib.lax.broadcast_shapes((-1,)),
}


def _assert_same(got, wanted):
    got, wanted = toile.tree.leaves(got), jax.tree.leaves(wanted)
    if any(isinstance(x, str) for x in wanted):
        assert got == wanted
        return
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", ROWS)
def test_as_jax(row):
    wanted = CORNERS.in_test(lambda: attempt(lambda: ROWS[row](jax)), row)
    got = attempt(lambda: ROWS[row](toile))
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        refused = (TypeError, ValueError, IndexError)
        alike = isinstance(got, type(wanted)) or (
            isinstance(got, refused) and isinstance(wanted, refused))
        assert alike, f"needed {wanted!r}, got {got!r}"
    else:
        _assert_same(got, wanted)


# Errors in the words that JAX's tests look for.
def _in_scan(f):
    """Differentiate f after it has run, so that the structure of its result is known."""
    return toile.grad(lambda x: toile.lax.scan(lambda c, _: (f(c), None), x, None, 1)[0])(1.0)


def _jvp_of(out):
    def f(x):
        return x

    f = toile.custom_jvp(f)
    f.defjvp(lambda primals, tangents: (out, out))
    return _in_scan(f)


def _vjp_of(out):
    def f(x):
        return x

    f = toile.custom_vjp(f)
    f.defvjp(lambda x: (out, None), lambda _, ct: (ct,))
    return _in_scan(f)


def _zero_of_another_shape():
    f = toile.custom_vjp(lambda x: x)
    zero = SymbolicZero(toile.typeof(np.ones(3, np.float32)))
    f.defvjp(lambda x: (x.value, None), lambda _, ct: (zero,), symbolic_zeros=True)
    return toile.grad(f)(1.0)


WORDS = {
    "Passing complex start/stop/step": lambda: jnp.arange(1 + 2j, 3),
    "It arose in the jnp.arange argument 'stop'": lambda: toile.jit(jnp.arange)(3),
    "The error occurred because jnp.choose was jit-compiled with mode='raise'": lambda: toile.jit(
        lambda i: jnp.choose(i, [1, 2]))(jnp.array([0])),
    "The error occurred because ravel_multi_index was jit-compiled": lambda: toile.jit(
        lambda i: jnp.ravel_multi_index(i, (2, 3)))((1, 2)),
    "non-empty jnp.take": lambda: jnp.take(jnp.ones((2, 0)), jnp.array([0]), axis=1),
    "Only non-negative indices are allowed": lambda: toile.lax.broadcast_shapes((-1,)),
    "output must be a tuple": lambda: ROWS["one output for two"](toile),
    "cannot be clipped": lambda: jnp.clip(jnp.arange(3), max=1j),
    "index_dtype must be an integer type": lambda: toile.lax.argmax(jnp.ones(2), 0, float),
    "argmin require non-empty reduced dimension": lambda: toile.lax.argmin(EMPTY, 1, int),
    "Sizes passed to split must be nonnegative": lambda: toile.lax.split(jnp.ones(2), (3, -1)),
    "Operands must have the same tree structure": lambda: toile.lax.reduce(
        {"x": jnp.ones(2)}, {"y": 0.0}, lambda a, b: a, (0,)),
    "reduce found non-scalar initial value": lambda: toile.lax.reduce(
        jnp.ones(2), jnp.ones(2), toile.lax.add, (0,)),
    "padding_value must be a scalar": lambda: toile.lax.pad(
        jnp.ones(2), jnp.ones(2), [(0, 0, 0)]),
    "must have every element be positive": lambda: toile.lax.reduce_window(
        jnp.ones(1), 0.0, toile.lax.add, (0,), (1,), "VALID"),
    "lhs and rhs must have the same number of dimensions": lambda: (
        toile.lax.conv_general_dilated(jnp.ones((1, 1, 1)), jnp.ones((1, 1, 1, 1)), (1,), "VALID")),
    "axis1 and axis2 can not be same": lambda: jnp.trace(jnp.ones((2, 2)), 0, 1, -1),
    "ndim at least two": lambda: jnp.rot90(jnp.ones(2)),
    "jnp.nansum: where must be": lambda: jnp.nansum(jnp.ones(2), where=jnp.ones(2, int)),
    "jnp.nanmin: where must be": lambda: jnp.nanmin(jnp.ones(2), initial=0, where=jnp.ones(2, int)),
    "jnp.nanmean: where must be": lambda: jnp.nanmean(jnp.ones(2), where=jnp.ones(2, int)),
    "jnp.nanstd: where must be": lambda: jnp.nanstd(jnp.ones(2), where=jnp.ones(2, int)),
    "interior padding in padding_config must be nonnegative": lambda: toile.lax.pad(
        jnp.ones(2), 0.0, [(0, 0, -1)]),
    "Sum of sizes 6 must be equal": lambda: toile.lax.split(jnp.ones(5), (6,)),
    "Python int too large": lambda: jnp.array([0, 2**70]),
    "The `length` argument to `scan` expects a concrete `int` value": lambda: toile.jit(
        lambda n: toile.lax.scan(lambda c, x: (c, x), 0, None, n))(3),
    "The `unroll` argument to `scan` expects a concrete `int` or `bool` value": lambda: toile.jit(
        lambda n: toile.lax.scan(lambda c, x: (c, x), 0, None, 9, unroll=n))(3),
    "carry output must have equal types, but they differ:\n\nThe input carry c has type int32[]":
        lambda: toile.lax.scan(lambda c, x: (c * 1.5, x), np.int32(1), None, 3),
    "An overflow was encountered while parsing an argument to a jitted computation, whose argument "
    "path is x['a']": lambda: toile.jit(lambda x: x["a"])({"a": 2**40}),
    "Consider just returning a None here instead of a SymbolicZero object": _zero_of_another_shape,
    "The inputs to the closure produced by closure_convert must have the same Pytree structure":
        lambda: toile.closure_convert(jnp.sin, 1.0)[0](1.0, []),
    **{f"must produce a pair (list or tuple of length two) where the first element represents the "
       f"primal output ({what}": run for what, run in {
        "equal in value to the output of the custom_jvp-decorated function f, and in particular of "
        "the same container/pytree structure), but instead the JVP rule output's first element had "
        "container/pytree structure:\n    (float32[], float32[])\nwhile": lambda: _jvp_of((1., 1.)),
        "equal in value to the output of the custom_jvp-decorated function f, and in particular "
        "with leaves of the same shape/dtype), but": lambda: _jvp_of(np.float32([1, 2])),
        "equal to the output of the custom_vjp-decorated function f) and the second element "
        "represents residuals (i.e. values stored from the forward pass for use on the backward "
        "pass), but instead the fwd rule output's first element had shapes/dtypes of:\n"
        "    float32[2]\nwhile": lambda: _vjp_of(np.float32([1, 2])),
    }.items()},
}


@pytest.mark.parametrize("words", WORDS)
def test_words_of_errors(words):
    errors = TypeError, ValueError, IndexError, OverflowError
    with pytest.raises(errors, match=re.escape(words)):
        WORDS[words]()


HERMITIAN = np.complex64([[4, 1j], [-1j, 3]])
X = _random.randn(2, 3, 64).astype(np.float32)
ROTATIONS = Rotation.from_rotvec(_random.randn(5, 3).astype(np.float32))
TIMES = np.arange(5, dtype=np.float32)

# Functions whose own computations must not depend on how operands of the user are promoted.
STRICT = {
    "istft": lambda: toile.scipy.signal.istft(
        toile.scipy.signal.stft(X, nperseg=16)[2], nperseg=16)[1],
    "polar": lambda: toile.scipy.linalg.polar(HERMITIAN),
    "svd": lambda: jnp.linalg.svd(HERMITIAN, hermitian=True),
    "pinv": lambda: jnp.linalg.pinv(HERMITIAN, hermitian=True),
    "lobpcg": lambda: sparse.linalg.lobpcg_standard(
        jnp.diag(jnp.arange(20, dtype=np.float32)),
        np.random.RandomState(0).randn(20, 2).astype(np.float32))[0],
    "inverse rotation": lambda: ROTATIONS.inv().as_quat(),
    "slerp": lambda: Slerp.init(TIMES, ROTATIONS)(TIMES[:2] + 0.5).as_quat(),
    "l-bfgs": lambda: toile.scipy.optimize.minimize(
        lambda x: jnp.sum((x - 1.0) ** 2), TIMES, method="l-bfgs-experimental-do-not-rely-on-this",
        options={"maxiter": 5, "maxfun": np.inf}).x,
    "bfgs": lambda: toile.scipy.optimize.minimize(
        lambda x: jnp.sum((x - 1.0) ** 2), jnp.ones(3), method="bfgs"),
    **{f"index checks {dtype}": lambda dtype=dtype: checkify.checkify(
        lambda x: x[np.array([1, 20], dtype), np.array([0, 70], dtype)],
        errors=checkify.index_checks)(X[0])[0].get() for dtype in ("int8", "int32", "uint8")},
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", STRICT)
def test_results_under_strict_promotion(name, x64):
    with toile.enable_x64(x64):
        wanted = STRICT[name]()
        with toile.numpy_rank_promotion("raise"), toile.numpy_dtype_promotion("strict"):
            got = STRICT[name]()
    for a, b in zip(toile.tree.leaves(got), toile.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


class _Wrapped(NamedTuple):
    value: object

    def __rmul__(self, other):
        return "reflected"

    def __gt__(self, other):
        return "greater"


def test_operators_of_tuples_that_define_them_are_asked():
    x = jnp.ones(2)
    assert x * _Wrapped(1) == "reflected" and (x < _Wrapped(1)) == "greater"
    with pytest.raises(TypeError, match="needed arrays or numbers"):
        x - _Wrapped(1)
    with pytest.raises(TypeError, match="needed arrays or numbers"):
        x * (1, 2)


def test_numbers_are_arguments_of_interpreted_programs():
    program = toile.make_jaxpr(lambda x: toile.lax.psum(2 * x, "i"), axis_env=[("i", 4)])(1.0)
    run = lambda _, x: toile.core.eval_jaxpr(program.jaxpr, program.consts, x)[0]
    assert toile.vmap(run, (0, None), None, axis_name="i")(jnp.arange(4.0), 3.0) == 24


def test_infinite_constants_are_no_results():
    with toile.debug_infs(True):
        assert jnp.max(jnp.ones(3), initial=-jnp.inf, where=jnp.ones(3, bool)) == 1
        np.testing.assert_allclose(toile.scipy.special.logsumexp(jnp.zeros(2)), np.log(2), 1e-6)
        for f in (lambda: jnp.ones(3) / 0.0, lambda: jnp.full(3, 1e30).astype("float16")):
            with pytest.raises(FloatingPointError, match="inf"):
                f()


def test_attributes_of_ufuncs_are_read_only():
    made = jnp.frompyfunc(lambda x, y: x + y, 2, 1, identity=0)
    for name in ("nargs", "nin", "nout", "identity", "_func"):
        getattr(made, name)
        with pytest.raises(AttributeError, match=f"needed {name} unchanged"):
            setattr(made, name, None)


INTEGERS = """
import warnings
import jax, jax.numpy as jnp
warnings.simplefilter("ignore")
x = jnp.arange(6.0).reshape(2, 3)
assert x[5].tolist() == [3, 4, 5] and x[-5].tolist() == [0, 1, 2]
assert x[:, 7].tolist() == [2, 5] and x[5, 1] == 4
assert jax.jit(lambda x: x[5])(x).tolist() == [3, 4, 5]
assert [float(v) for v in x[0]] == [0, 1, 2]
jax.config.update("jax_check_static_indices", True)
for read in (lambda: x[5], lambda: x.at[:, -4].get(), lambda: jax.jit(lambda x: x[5])(x)):
    try:
        read()
    except IndexError as error:
        assert "out of bounds for axis" in str(error)
    else:
        raise AssertionError
assert x.at[5].get(mode="clip").tolist() == [3, 4, 5]
"""


def test_integers_out_of_bounds_are_clamped_in_place_of_jax(tmp_path):
    file = tmp_path / "integers.py"
    file.write_text(INTEGERS)
    subprocess.run([sys.executable, "-m", "toile", "run", str(file)], check=True)


def test_integers_out_of_bounds_are_errors_in_programs_for_toile():
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 2"):
        jnp.ones((2, 3))[5]


def test_sets_of_a_given_size_read_no_index_out_of_bounds():
    with toile.checks("index"):
        assert jnp.setxor1d(jnp.array([1, 2]), jnp.array([2]), size=3).tolist() == [1, 1, 1]


def _root_of_factors(lib):
    """A root whose tangent solver uses factors that depend on the differentiated matrix."""
    def root(a, b):
        factors = lib.scipy.linalg.cho_factor(a @ a.T)
        solve = lambda f, y: lib.scipy.linalg.cho_solve(factors, y)
        linear = lambda g, y: lib.lax.custom_linear_solve(g, y, solve, symmetric=True)
        return lib.lax.custom_root(lambda x: a @ a.T @ x - b, b, solve, linear)

    a, b = np.float32([[2, 1], [0, 1]]), np.float32([1, 2])
    found = root(a, b), *lib.grad(lambda a, b: root(a, b).sum(), (0, 1))(a, b)
    return *found, lib.jvp(root, (a, b), (a, b))[1], lib.jit(lib.jacrev(root))(a, b)


def _root_of_closure(lib):
    def root(a, b):
        dense = lambda g, y: lib.numpy.linalg.solve(lib.jacobian(g)(y), y)
        solution = lib.numpy.linalg.solve(a, b)
        return lib.lax.custom_root(lambda x: a @ x - b, b, lambda f, x: solution, dense)

    a, b = np.float32([[2, 1], [0, 1]]), np.float32([1, 2])
    return lib.grad(lambda a: root(a, b).sum())(a), lib.hessian(lambda b: root(a, b).sum())(b)


ROOTS = {"factors": _root_of_factors, "closure": _root_of_closure}


@pytest.mark.parametrize("name", ROOTS)
def test_derivatives_of_roots(name):
    want = CORNERS.in_test(lambda: [np.asarray(x) for x in ROOTS[name](jax)])
    for a, b in zip(ROOTS[name](toile), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


CHECKED = {
    "text": (lambda x: 1.0, ("hi",), None), "flag": (lambda x: 1 if x else 2, (True,), None),
    "keyword": (lambda x, n: jnp.log(x) * (n if n > 1 else 0), (-1.0, 2), "nan generated"),
    "index": (lambda x, i: x[i], (np.ones((2, 3)), ((0, 1), (1, 5))), "out-of-bounds indexing"),
    "traced_index": (lambda x, i: toile.jit(lambda x, i: x.at[i].get())(x, i),
                     (np.ones((2, 3)), (((1, 1), (1, 9)), 2)), "out-of-bounds indexing"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_arguments_of_checked_functions(name):
    f, args, told = CHECKED[name]
    error, _ = checkify.checkify(f, errors=checkify.all_checks)(*args)
    assert (error.get() or "").startswith(told or "") and bool(error.get()) == (told is not None)


def test_static_arguments_of_checked_functions():
    f = checkify.checkify(lambda x, n: x if n else -x)
    assert toile.jit(f, static_argnums=1)(2.0, False)[1] == -2


def test_checks_name_the_function_that_was_called():
    for check in (checkify.check, checkify.debug_check):
        with pytest.raises(TypeError, match=f"^{check.__name__} takes a scalar pred"):
            check(np.ones(2, bool), "no")
