"""Corners in which programs written for JAX notice a difference: phrases of errors, attributes of
stages, texts, warnings. One row each; every row is quick.
"""

import collections.abc
import inspect
import logging
import pathlib
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import errors, lax, random
from toile.engine import trace

ONE = jnp.float32(1)
X = jnp.ones(3)


def _identity(x):
    return x


def _generator(x):
    yield x


def _of_three(a, b, c):
    return a


def _branching(x, y):
    return x if x > y else y


def _custom_vjp(bwd, fwd=lambda x: (jnp.sin(x), x)):
    f = toile.custom_vjp(jnp.sin)
    f.defvjp(fwd, bwd)
    return f


def _custom_jvp(rule):
    f = toile.custom_jvp(jnp.sin)
    f.defjvp(rule)
    return f


def _scaled(n, x):
    return n * x


def _nondiff():
    f = toile.custom_vjp(_scaled, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (n * x, None), lambda n, _, g: (n * g,))
    return f


def _leaked(transform, *args):
    kept = []

    def f(x):
        kept.append(x)
        return x

    with toile.checking_leaks():
        transform(f)(*args)


def _escaped():
    kept = []
    toile.jit(lambda x: kept.append(x * 2))(ONE)
    return kept[0] + 1


compiled = toile.jit(_identity).lower(ONE).compile()

ERRORS = {  # name: (class, phrase, program)
    "jit of a number": (TypeError, "Expected a callable value", lambda: toile.jit(3)),
    "jit of a generator": (
        TypeError, "Expected a function, got a generator function", lambda: toile.jit(_generator)),
    "jit of a staticmethod": (
        TypeError, "staticmethod arguments are not supported",
        lambda: toile.jit(staticmethod(_identity))),
    "static and donated": (
        ValueError, "static_argnames and donate_argnames cannot intersect",
        lambda: toile.jit(_of_three, static_argnames="a", donate_argnames="a")),
    "static number": (
        ValueError, "but only accepts 3 positional arguments",
        lambda: toile.jit(_of_three, static_argnums=3)),
    "static name": (
        ValueError, "invalid argnames {'d'} in static_argnames",
        lambda: toile.jit(_of_three, static_argnames=("a", "d"))),
    "static name of what is positional only": (
        ValueError, "invalid argnames",
        lambda: toile.jit(lambda a, /, **k: a, static_argnames="a")),
    "static list": (
        ValueError, "Non-hashable static arguments are not supported.*type <class 'list'>, \\[1\\]",
        lambda: toile.jit(_identity, static_argnums=0)([1])),
    "argument of jit": (
        TypeError, "problematic value is of type <class 'str'> and was passed .* at path x",
        lambda: toile.jit(_identity)("a")),
    "array of strings": (
        TypeError, "Error interpreting argument", lambda: toile.jit(_identity)(np.array(["a"]))),
    "masked array": (
        ValueError, "numpy masked arrays are not supported",
        lambda: toile.jit(_identity)(np.ma.array([1, 2], mask=[True, False]))),
    "result of jit": (
        TypeError, "traced for jit returned a value of type <class 'str'>",
        lambda: toile.jit(lambda x: "a")(1)),
    "argument of grad": (
        TypeError, "Argument 'a' of type <class 'str'> is not a valid JAX type",
        lambda: toile.grad(_identity)("a")),
    "argnums of grad": (
        TypeError, "argnums=2 requires at least 3 positional arguments",
        lambda: toile.grad(_of_three, argnums=2)(1.0, 2.0)),
    "float of a tracer": (
        errors.ConcretizationTypeError, "Abstract tracer value.*try using `x.astype\\(float\\)`",
        lambda: toile.jit(float)(ONE)),
    "if of two arguments": (
        errors.TracerBoolConversionError,
        "Attempted boolean conversion.*on the values of the arguments x and y",
        lambda: toile.jit(_branching)(1, 2)),
    "assert of constants": (
        errors.TracerBoolConversionError, "on these lines.*Additional originating lines",
        lambda: toile.jit(lambda: bool(sum(jnp.add(1, 1) for _ in range(6)) > 0))()),
    "index of a tracer": (
        errors.TracerIntegerConversionError, "The __index__\\(\\) method was called on traced",
        lambda: toile.jit(range)(3)),
    "escaped": (
        errors.UnexpectedTracerError,
        "Encountered an unexpected tracer.*traced for jit.*was created on line", _escaped),
    "compiled, another tree": (
        TypeError, "Function compiled with input pytree does not match.*at args\\[0\\], seen",
        lambda: compiled([ONE])),
    "compiled, another type": (
        TypeError, "Argument types differ.*Argument 'x' compiled with float32\\[\\] and called",
        lambda: compiled(jnp.int32(1))),
    "compiled in vmap": (
        TypeError, "Cannot apply JAX transformations.*BatchTracer",
        lambda: toile.vmap(compiled)(X)),
    "compile option": (
        errors.JaxRuntimeError, "No such compile option: 'nope'",
        lambda: toile.jit(_identity).lower(ONE).compile(compiler_options={"nope": 1})),
    "vmap sizes": (
        ValueError, "most axes \\(2 of them\\) had size 3, e.g. axis 0 of argument a of type "
        "float32\\[3\\];\n  \\* one axis had size 2: axis 0 of argument b",
        lambda: toile.vmap(_of_three)(X, jnp.ones(2), X)),
    "vmap of nothing": (
        ValueError, "must be passed at least one argument containing an array",
        lambda: toile.vmap(_identity)({})),
    "vmap in_axes": (
        ValueError, "got specification \\(\\(0, 0\\),\\) for value tree",
        lambda: toile.vmap(_identity, in_axes=((0, 0),))(X)),
    "vmap out_axes": (
        TypeError, "vmap out_axes must be an int, None",
        lambda: toile.vmap(_identity, out_axes=1.5)(X)),
    "vmap output": (
        ValueError, "vmap has mapped output \\(axis_name=i\\) but out_axes is None",
        lambda: toile.vmap(_identity, out_axes=None, axis_name="i")(X)),
    "scan carry": (
        TypeError, "scan body function carry input and carry output must have equal types.*The "
        "input carry c has type float32\\[\\] but the corresponding output carry component has "
        "type int32\\[\\], so the dtypes do not match",
        lambda: lax.scan(lambda c, x: (c.astype(int), x), ONE, X)),
    "while carry": (
        TypeError, "while_loop body function carry input and carry output must have the same "
        "pytree structure", lambda: lax.while_loop(lambda c: True, lambda c: (c, c), ONE)),
    "cond branches": (
        TypeError, "cond branches must have equal output types but they differ.*at path \\['a'\\]",
        lambda: lax.cond(True, lambda: {"a": ONE}, lambda: {"a": X})),
    "scan length": (
        errors.ConcretizationTypeError, "`length` argument to `scan`",
        lambda: toile.jit(lambda n: lax.scan(lambda c, x: (c, x), 0, length=n))(3)),
    "fori bounds": (
        TypeError, "must have equal types, got int16 and int32",
        lambda: lax.fori_loop(jnp.int16(0), jnp.int32(3), lambda i, c: c, 0)),
    "bwd of another length": (
        TypeError, "Custom VJP bwd rule must produce an output with the same container",
        lambda: toile.grad(_custom_vjp(lambda x, g: (g, g)))(ONE)),
    "bwd of another structure": (
        TypeError, "structure PyTreeDef\\(\\({'a': \\*},\\)\\) for primal input structure",
        lambda: toile.grad(_custom_vjp(lambda x, g: ({"a": g},)))(ONE)),
    "tangent of another kind": (
        TypeError, "Custom JVP rule must produce primal and tangent outputs with corresponding",
        lambda: toile.jvp(_custom_jvp(lambda p, t: (p[0], 1j * t[0])), (ONE,), (ONE,))),
    "derivative by a nondiff argument": (
        errors.UnexpectedTracerError, "position indicated by nondiff_argnums",
        lambda: toile.grad(_nondiff())(ONE, ONE)),
    "cotangent of another dtype": (
        ValueError, "unexpected JAX type", lambda: toile.vjp(jnp.sin, ONE)[1](np.float16(1))),
    "tangent of linearize": (
        ValueError, "tangent values inconsistent", lambda: toile.linearize(jnp.sin, ONE)[1](1)),
    "list and tuple in jvp": (
        TypeError, "same tree structure", lambda: toile.jvp(jnp.sin, (ONE,), [ONE])),
    "dtype of an operation": (TypeError, "sin does not accept dtype int32", lambda: lax.sin(1)),
    "dtypes of lax": (
        TypeError, "lax.add requires arguments to have the same dtypes",
        lambda: lax.add(X, jnp.ones(3, int))),
    "shapes of lax": (
        TypeError, "add got incompatible shapes for broadcasting: \\(3,\\), \\(4,\\)",
        lambda: lax.add(X, jnp.ones(4))),
    "dot": (
        TypeError, "dot_general requires contracting dimensions to have the same shape, got "
        "\\(3,\\) and \\(4,\\).", lambda: jnp.dot(X, jnp.ones(4))),
    "custom_root": (
        TypeError, "solve\\(\\) output pytree structure must match initial_guess",
        lambda: lax.custom_root(_identity, 1.0, lambda f, x: (x, x), lambda g, y: y)),
    "place": (
        ValueError, "device_put only accepts", lambda: toile.device_put(X, "nowhere")),
    "callback": (
        errors.JaxRuntimeError, "division by zero",
        lambda: toile.pure_callback(lambda: 1 / 0, toile.ShapeDtypeStruct((), jnp.float32))),
    "delete": (ValueError, "out of bounds", lambda: jnp.delete(X, 9)),
}


@pytest.mark.parametrize("kind, phrase, program", ERRORS.values(), ids=ERRORS)
def test_error(kind, phrase, program):
    with pytest.raises(kind, match=f"(?s){phrase}"):
        program()


LEAKS = {
    "jit": lambda: _leaked(toile.jit, ONE),
    "vmap": lambda: _leaked(toile.vmap, X),
    "scan": lambda: _leaked(lambda f: lambda x: lax.scan(lambda c, y: (f(c), y), ONE, x), X),
}


def check_leaks():
    """What leaks is found, what does not is let through."""
    for name, program in LEAKS.items():
        with pytest.raises(Exception, match="Leaked trace"):
            program()
        print("found", name)
    with toile.checking_leaks():
        toile.vmap(toile.grad(lambda x: toile.nn.relu(x) * 2))(X)
        f = toile.jit(lambda x: toile.nn.relu(x) * 2)
        toile.jit(lambda x: toile.vjp(toile.checkpoint(f), x))(ONE)
        lax.scan(lambda c, x: (lax.cond(x > 0, jnp.sin, jnp.cos, c), None), ONE, X)
        toile.jit(lambda x: toile.pure_callback(np.sin, x, x))(X)


def test_leaks():
    """In a process of their own, which has few objects: all of them are searched at each trace."""
    root = pathlib.Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-m", "tests.test_corners"], cwd=root, text=True,
                         capture_output=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.split() == [word for name in LEAKS for word in ("found", name)]


def test_leaks_are_searched_only_after_one(monkeypatch):
    """The search visits all objects of the process; the count of references tells without it."""
    searched = []
    monkeypatch.setattr(trace.gc, "get_referrers", lambda *xs: searched.append(xs) or [])
    with toile.checking_leaks():
        toile.vmap(toile.grad(lambda x: toile.nn.relu(x) * 2))(X)
        lax.scan(lambda c, x: (lax.cond(x > 0, jnp.sin, jnp.cos, c), None), ONE, X)
        toile.jit(lambda x: jnp.sin(x)[jnp.array([0, 1])])(X)
    assert not searched
    _leaked(toile.jit, ONE)
    assert searched


def test_callback_error_keeps_its_class():
    with pytest.raises(ZeroDivisionError):
        toile.pure_callback(lambda: 1 / 0, toile.ShapeDtypeStruct((), jnp.float32))


def test_repr_of_jitted_function():
    assert repr(toile.jit(_identity)) == f"<PjitFunction of {_identity!r}>"


def test_arrays_are_not_hashable():
    assert not isinstance(X, collections.abc.Hashable)
    with pytest.raises(TypeError, match="unhashable type"):
        hash(X)


def test_stages_know_arguments():
    lowered = toile.jit(lambda x, n, y: (x * n, y), static_argnums=1, donate_argnums=2).lower(
        1.0, 2, {"a": X})
    made = lowered.compile()
    assert lowered.in_avals == made.in_avals
    assert lowered.args_info[0][1]["a"].donated and not lowered.args_info[0][0].donated
    assert repr(lowered.out_info[1]["a"]) == "ShapeDtypeStruct(shape=(3,), dtype=float32)"
    donated = X + 1
    assert made(3.0, {"a": donated})[0] == 6.0
    assert donated.is_deleted()
    assert isinstance(toile.jit(jnp.sin).eval_shape(X), toile.ShapeDtypeStruct)


def test_program_text_and_constants():
    made = toile.make_jaxpr(lambda x: x + X)(ONE)
    assert len(made.jaxpr.invars) == len(made.jaxpr.constvars) == 1
    assert str(made).startswith("{ lambda a:f32[3]; b:f32[]. let")
    text = "{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }"
    assert str(toile.make_jaxpr(lambda x: x + 1)(ONE)) == text


def test_cache_misses_are_explained(caplog):
    f = toile.jit(lambda x: x * 2)
    with caplog.at_level(logging.WARNING, "toile"), toile.explain_cache_misses(True):
        f(ONE)
        f(X)
    first, second = [r.getMessage() for r in caplog.records if "CACHE MISS" in r.getMessage()]
    assert "never seen function" in first and "different input types" in second
    assert "at x, now f32[3] and before f32[]" in second


def test_unusable_donation_warns():
    f = toile.jit(lambda x: x.sum(), donate_argnums=0)
    with pytest.warns(UserWarning, match="Some donated buffers were not usable: float32\\[3\\]"):
        f(X + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toile.jit(lambda x: x + 1, donate_argnums=0)(X + 1)


def test_documentation_of_transformed_functions():
    def f(x):
        """Of f."""

    assert "Original documentation:\n\nOf f." in toile.vmap(f).__doc__
    assert toile.grad(f).__doc__.startswith("Gradient of f with respect to")
    assert inspect.signature(toile.vmap(f)) == inspect.signature(f)


@pytest.mark.parametrize("case", [
    lambda: random.normal(random.key(0), 3).shape == (3,),
    lambda: jnp.zeros_like(random.key(3)).shape == (),
    lambda: toile.grad(lambda x, y: x * y, argnums=np.int64(1))(2.0, 3.0) == 2.0,
    lambda: toile.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(4).weak_type,
    lambda: lax.map(lambda x: x, X, batch_size=0).shape == (3,),
    lambda: lax.scan(lambda c, x: (c, x), 0, X, unroll=0)[1].shape == (3,),
    lambda: toile.grad(partial(_nondiff_jvp(), 3.0))(ONE) == 3.0,
    lambda: toile.grad(_nondiff_jvp())(ONE, ONE) == 0.0,
    lambda: str(toile.devices("cpu")[0]) == "cpu:0",
], ids=range(9))  # fmt: skip
def test_behaviour(case):
    assert case()


def _nondiff_jvp():
    f = toile.custom_jvp(_scaled, nondiff_argnums=(0,))
    f.defjvp(lambda n, p, t: (n * p[0], n * t[0]))
    return f


def test_ordered_print_in_vmap(capsys):
    toile.vmap(lambda x: toile.debug.print("{}", x, ordered=True))(jnp.arange(3))
    toile.effects_barrier()
    assert capsys.readouterr().out == "0\n1\n2\n"


if __name__ == "__main__":
    check_leaks()
