"""Corners of jit, vmap, the derivatives, device_put and the stages: as in jax.

A row is a function of the package, or a phrase and a function whose error says it in both.
"""

import builtins
import logging
import operator
import re
from functools import partial
from unittest import mock

import jax
import numpy as np
import pytest

import toile
from toile.api import cotangents

pytestmark = pytest.mark.cpu

PREFIX = r"(?s)specification must be a tree prefix of the corresponding value;.*Mismatch details"


def _sum_of_three(x1, x2, a3):
    return x1 + x2 + a3


def _first(x, *rest):
    return x


def _pair(x):
    return x, x


def _ones(lib, n):
    return lib.numpy.ones(n, np.float32)


VMAP = {
    "keyword_sizes": (
        r"size 2, e.g. axis 0 of argument x1 of type float32\[2\];\n"
        r"  \* one axis had size 1: axis 0 of kwargs\['a3'\] of type float32\[1\]",
        lambda lib: lib.vmap(_sum_of_three)(_ones(lib, 2), a3=_ones(lib, 1), x2=_ones(lib, 2))),
    "in_axes_dict": (
        r"passed to the function, but got \{'a': 0\}\.",
        lambda lib: lib.vmap(_first, in_axes={"a": 0})),
    "in_axes_prefix": (
        PREFIX + ".*different types", lambda lib: lib.vmap(_first, in_axes=([0],))(_ones(lib, 3))),
    "out_axes_prefix": (PREFIX, lambda lib: lib.vmap(_first, out_axes=(2, 3))(_ones(lib, 3))),
    "named_output": (
        r"vmap has mapped output.*axis_name=foo.*but out_axes is None",
        lambda lib: lib.vmap(_first, out_axes=None, axis_name="foo")(_ones(lib, 3))),
    "unnamed_output": (
        "at vmap out_axes", lambda lib: lib.vmap(_first, out_axes=None)(_ones(lib, 3))),
    "nothing_to_map": (
        r"containing an array or axis_size must be specified, got empty \*args=\(\{\},\) and",
        lambda lib: lib.vmap(_first)({})),
}


def _directed(lib):
    """Cotangents returned, added to a Ref and left out."""
    ad = lib.ad if lib is jax else cotangents.ad
    x = lib.numpy.arange(3.0)
    f_vjp = lib.vjp(lambda x, y: x * y, x, x)[1]
    ref = lib.new_ref(lib.numpy.ones(3))
    one = f_vjp.with_refs(ad.GradValue(), ad.DontWant())(lib.numpy.ones(3))
    two = f_vjp.with_refs(ref, ad.GradValue())(lib.numpy.ones(3))
    wanted = f_vjp.with_refs(ad.DontWant(), ad.GradValue())
    three = lib.jit(lambda: wanted(lib.numpy.ones(3)))()
    return [np.asarray(v) for v in (one[0], two[1], three[1], ref[...])] + [
        repr(v) for v in (one[1], two[0], three[0])] + [one[1] == ad.DidntWant()]


def _saved(lib):
    """Arguments among the residuals, which are removed before and restored after a jitted call."""
    x, w = lib.numpy.ones((3, 4)), lib.numpy.full((4, 4), 0.1)

    def layer(d, x):
        return lib.numpy.tanh(x @ d["w"]), lib.numpy.sin(x[0, 0])

    def forward(d, x):
        y, f_vjp = lib.vjp(layer, d, x)
        f_vjp.args_res[0] = None
        return y, f_vjp

    y, f_vjp = lib.jit(forward)({"w": w}, x)
    removed = f_vjp.args_res[0] is None
    f_vjp.args_res[0] = {"w": w}
    cts = lib.jit(lambda f_vjp, y: f_vjp(y))(f_vjp, y)
    f_vjp.args_res = [({"w": w},), 2 * x]
    sine = lib.vjp(lib.numpy.sin, 3.0)[1]
    found = [np.round(np.asarray(ct), 5) for ct in (cts[0]["w"], cts[1], f_vjp(y)[0]["w"])]
    return [removed, *found, repr(sine.args_res), len(sine.opaque_residuals),
            len(lib.tree.leaves(sine))]


def _weak(tree, lib):
    return [lib.numpy.asarray(x).weak_type for x in lib.tree.leaves(tree)]


def _weak_cotangents(lib):
    f_vjp = lib.vjp(lambda x, y: x**3 * y, 2.0, np.float32(3))[1]
    strong = lib.vjp(lib.numpy.sqrt, 2.0)[1](np.float32(1))
    weak = lib.vjp(lambda x: x * np.float32(2), 2.0)[1](np.float32(1))
    return _weak((f_vjp(np.float32(1)), strong, weak, lib.vjp(lib.numpy.sqrt, 2.0)[1](1.0)), lib)


def _weak_tangents(lib):
    f = lambda x: (x**3, lib.numpy.sqrt(x), lib.numpy.cos(1.0), x * np.float32(2))
    _, f_jvp = lib.linearize(f, 2.0)
    return _weak((lib.jvp(f, (2.0,), (1.0,)), f_jvp(1.0), lib.jit(f_jvp)(1.0)), lib)


DERIVATIVES = {
    "weak_cotangents": _weak_cotangents,
    "weak_tangents": _weak_tangents,
    "weak_transposed": lambda lib: _weak(lib.linear_transpose(lambda x, y: x, 1.0, 2.0)(1.0), lib),
    "with_refs": _directed,
    "saved_arguments": _saved,
    "jvp_structure": (
        "primal and tangent arguments to jax.jvp must have the same tree structure",
        lambda lib: lib.jvp(_first, (np.float32(2),), ())),
    "jvp_dtype": (
        "primal and tangent arguments to jax.jvp do not match",
        lambda lib: lib.jvp(_first, (np.float16(2),), (np.float32(4),))),
    "jvp_not_tuples": (
        r"to jax.jvp must be tuples or lists; found float and tuple\.",
        lambda lib: lib.jvp(_first, 0.0, (1.0,))),
    "vjp_two_cotangents": (
        "applied to _pair was called with 2 arguments",
        lambda lib: lib.vjp(_pair, 1.0)[1](1.0, 1.0)),
    "grad_argnums": ("interpreted as an integer", lambda lib: lib.grad(_first, argnums="x")),
    "jacfwd_argnums": ("interpreted as an integer", lambda lib: lib.jacfwd(_first, argnums="x")),
}


class _NoSignature:
    @property
    def __signature__(self):
        raise TypeError("none")

    def __call__(self, *args, **kwargs):
        return None


class _ArrayLike:
    def __init__(self, x):
        self.x = x

    def __jax_array__(self):
        return self.x


def _guarded(guard):
    def row(lib):
        f = lib.jit(lambda x: x * 2)
        for _ in range(4):  # by whichever way it is called
            f(_ones(lib, 3))
        with getattr(lib, guard)():
            return f(_ones(lib, 3 if guard == "no_execution" else 4))

    return row


def _compiled(options):
    return lambda lib: lib.jit(lambda x: x * 2).lower(1.0).compile(compiler_options=options)


def _called(options):
    return lambda lib: lib.jit(lambda x: x * 2, compiler_options=options)(1.0)


def _out_sharding(lib):
    s = lib.sharding.SingleDeviceSharding(lib.devices()[0])
    return lib.jit(lambda x: x * 2, out_shardings=s).eval_shape(np.arange(8)).sharding == s


def _function_names(lib):
    named = partial(_first)
    named.__name__ = "named"
    functions = _first, partial(_first), partial(partial(_first)), named
    return [lib.jit(f).__getstate__()["function_name"] for f in functions]


def _program_names(lib):
    made = lib.make_jaxpr(_pair)
    return made.__name__, made.__qualname__


JIT = {
    "static_name_number": (
        "argument is not a string", lambda lib: lib.jit(_sum_of_three, static_argnames=("x1", 1))),
    "donate_names_of_nothing": (
        "Getting the signature of function.*failed. Pass donate_argnums",
        lambda lib: lib.jit(_NoSignature(), donate_argnames="a")(1, 2)),
    "array_like": (
        r"Triggering __jax_array__\(\) during abstractification is no longer supported",
        lambda lib: lib.jit(_first)(_ArrayLike(_ones(lib, 4)))),
    "no_tracing": ("no_tracing", _guarded("no_tracing")),
    "no_execution": ("no_execution", _guarded("no_execution")),
    "option_at_call": (
        "No such compile option: 'effort'", _called({"effort": 1})),
    "option_after_another": (
        "No such compile option: 'effort'",
        lambda lib: [_called(o)(lib) for o in ({"xla_dump_max_hlo_modules": 2}, {"effort": 1})]),
    "option_value": (
        "is not a valid bool value", _compiled({"xla_embed_ir_in_executable": "some"})),
    "out_sharding": _out_sharding,
    "lower_no_array": ("was passed to the function at path x",
                       lambda lib: lib.jit(_first).lower("foo")),
    "lowered_results": lambda lib: str(lib.jit(_first).lower(1.0).out_info),
    "make_jaxpr_names": _program_names,
    "function_names": _function_names,
}


INDEX = "Only integer scalar arrays can be converted to a scalar index"
SCALAR = "Only scalar arrays can be converted to Python scalars"
MANY = "The truth value of an array with more than one element is ambiguous"
EMPTY = "The truth value of an empty array is ambiguous"


def _converted(fun, x):
    return lambda lib: lib.jit(lambda x: fun(x))(x)


TRACED = {
    "index_array": (INDEX, _converted(operator.index, np.int32([1, 2]))),
    "index_float": (INDEX, _converted(operator.index, np.float32(1))),
    "int_array": (SCALAR, _converted(int, np.int32([1]))),
    "complex_array": (SCALAR, _converted(complex, np.int32([1]))),
    "bool_array": (MANY, _converted(bool, np.int32([1, 2]))),
    "bool_empty": (EMPTY, _converted(bool, np.int32([]))),
    "sharding": ("typeof", lambda lib: lib.jit(lambda x: x.sharding)(1.0)),
}


def _identities(lib):
    x = lib.device_put(np.arange(8), lib.devices()[0])
    y = lib.device_put(x, may_alias=False)
    place = lib.sharding.SingleDeviceSharding(lib.devices()[0])
    return [lib.device_put(x, may_alias=True) is x, y is x, bool((y == x).all()),
            lib.device_put(x, place, may_alias=False) is x]


def _started(lib):
    leaf = mock.Mock()
    x = [object(), 1, leaf]
    y = lib.copy_to_host_async(x)
    return y is x, leaf.copy_to_host_async.call_count


DEVICES = {
    "alias_and_donate": (
        "may_alias and donate cannot be True at the same time",
        lambda lib: lib.device_put(_ones(lib, 3), may_alias=True, donate=True)),
    "alias": _identities,
    "copy_to_host": _started,
    "places": (PREFIX, lambda lib: lib.device_put((1, 2, 3), (None, None))),
    "all_places": (
        r"Mismatch details \(2 found\)",
        lambda lib: lib.device_put({"a": 1, "b": 2}, {"a": [None, None], "b": (None, None)})),
}


TABLES = {"vmap": VMAP, "derivative": DERIVATIVES, "jit": JIT, "traced": TRACED,
          "device": DEVICES}
ROWS = {f"{table}-{name}": row for table, rows in TABLES.items() for name, row in rows.items()}


def _outcome(row, lib):
    """What a row returns, or what its error says and the first class of it that is Python's."""
    try:
        return row(lib), None
    except Exception as error:
        said = re.sub(r"\n  at (?s:.)*", "", str(error))  # not the user's line
        return said, next(c for c in type(error).__mro__ if c in vars(builtins).values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_same_as_jax(name):
    row = ROWS[name]
    phrase, row = row if isinstance(row, tuple) else (None, row)
    (got, raised), (want, expected) = [_outcome(row, lib) for lib in (toile, jax)]
    assert raised is expected, f"got {got!r}, jax gives {want!r}"
    if expected is None:
        np.testing.assert_equal(got, np.asarray(want) if isinstance(want, jax.Array) else want)
    elif phrase is not None:
        assert re.search(phrase, want), f"jax says {want}"
        assert re.search(phrase, got), got


def _explained(caplog, run):
    """What is logged of the misses of a block, in one text each."""
    with caplog.at_level(logging.WARNING, "toile"), toile.explain_cache_misses(True):
        run()
    return [r.getMessage() for r in caplog.records if "CACHE MISS" in r.getMessage()]


WEAK = "at x, now f32[]{weak_type=True} and before f32[]{weak_type=False}"
BEFORE = (np.float32(0), np.float32(1))
MISSES = {
    "dtype": ((np.float32(0), np.int32(1)), ["input types", "at y, now i32[] and before f32[]"]),
    "shape": ((np.float32(0), np.zeros(2, np.float32)), ["at y, now f32[2] and before f32[]"]),
    "weak": ((0.0, np.float32(1)), ["input types", WEAK]),
}


@pytest.mark.parametrize("name", MISSES)
def test_misses_are_explained(name, caplog):
    given, said = MISSES[name]
    f = toile.jit(lambda x, y: x)
    f(*BEFORE)
    (text,) = _explained(caplog, lambda: f(*given))
    assert all(s in text for s in said), text


def test_misses_of_contexts_and_repeated_functions_are_explained(caplog):
    f = toile.jit(lambda x: x)
    f(1.0)
    with toile.numpy_rank_promotion("warn"):
        (text,) = _explained(caplog, lambda: f(1.0))
    assert "tracing context" in text and "now warn and before allow" in text
    caplog.clear()
    first, second = _explained(caplog, lambda: [toile.jit(lambda x: 2 * x)(3) for _ in range(2)])
    assert "another function defined on the same line" in second and "another" not in first
