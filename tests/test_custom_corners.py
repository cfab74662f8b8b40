"""Corners of functions with rules of the user's own, against jax: results, or types of errors.

Each row is a function of the library's namespace, run in both.
"""

import itertools
from functools import partial
from types import SimpleNamespace

import jax
import jax.custom_batching
import jax.custom_derivatives
import numpy as np
import pytest

import toile
import toile.custom_batching
import toile.custom_derivatives
import toile.numpy
from tests.golden.recorded import CORNERS

ROWS = {}


def _space(lib):
    return SimpleNamespace(
        jax=lib, jnp=lib.numpy, lax=lib.lax, derivatives=lib.custom_derivatives,
        batching=lib.custom_batching, leaves=lib.tree_util.tree_leaves,
        structure=lib.tree_util.tree_structure,
    )


TOILE, JAX = _space(toile), _space(jax)


def row(fun):
    assert fun.__name__ not in ROWS
    ROWS[fun.__name__] = fun
    return fun


def outcome(fun, ns):
    """Values and structure of the results, or the type of the error."""
    try:
        out = fun(ns)
    except Exception as error:
        return type(error).__name__, None
    # At once, jax gives a Python number back as one.
    leaves = [ns.jnp.asarray(x) if type(x) is float or "Typed" in type(x).__name__ else x
              for x in ns.leaves(out)]
    return [np.asarray(x) for x in leaves], str(ns.structure(out))


# ---------------------------------------------------------------------------------- arguments


def _tripled(ns, fun, **options):
    f = ns.jax.custom_vjp(fun, **options)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * x * ct,))
    return f


def _scaled(x, *, eps=1e-3):
    return x * x + eps


@row
def keyword_only_default_vjp(ns):
    f = _tripled(ns, _scaled)
    return ns.jax.value_and_grad(f)(2.0), ns.jax.jit(f)(2.0), f(np.float32(2))


@row
def keyword_only_default_jvp(ns):
    f = ns.jax.custom_jvp(_scaled)
    f.defjvp(lambda p, t: (f(*p), 5 * t[0]))
    return ns.jax.value_and_grad(f)(2.0)


@row
def keyword_only_given(ns):
    return _tripled(ns, _scaled)(2.0, eps=1.0)


@row
def keyword_only_by_position(ns):
    return _tripled(ns, _scaled)(2.0, 1.0)


@row
def keywords_of_positions(ns):
    f = ns.jax.custom_vjp(lambda x, y=2.0: x * y)
    f.defvjp(lambda x, y: (f(x, y), y), lambda y, ct: (y * ct, 7 * ct))
    return f(y=3.0, x=2.0), ns.jax.grad(lambda v: f(y=v, x=2.0))(1.0), ns.jax.grad(f)(1.0)


@row
def partial_vjp(ns):
    f = _tripled(ns, partial(lambda x, n: x**n, n=3))
    return ns.jax.value_and_grad(f)(2.0), f(2.0)


@row
def partial_jvp(ns):
    f = ns.jax.custom_jvp(partial(lambda n, x: x**n, 3))
    f.defjvp(lambda p, t: (f(*p), 5 * t[0]))
    return ns.jax.value_and_grad(f)(2.0)


@row
def partial_with_keyword(ns):
    return _tripled(ns, partial(lambda x, n: x**n, n=3))(2.0, n=2)


# ------------------------------------------------------------------- arguments without tangents


def _product(ns):
    f = ns.jax.custom_jvp(lambda x, y: x * y, nondiff_argnums=(1,))
    f.defjvp(lambda y, p, t: (f(p[0], y), t[0] * y))
    return f


@row
def nondiff_jvp_mapped_and_moving(ns):
    return ns.jax.grad(lambda v: ns.jax.vmap(_product(ns))(v, v).sum())(2 * ns.jnp.ones(3))


@row
def nondiff_jvp_moving_and_mapped(ns):
    return ns.jax.vmap(ns.jax.grad(lambda v: _product(ns)(v, v)))(ns.jnp.arange(3.0))


@row
def nondiff_jvp_trees(ns):
    f = ns.jax.custom_jvp(lambda x, y: x * y["a"], nondiff_argnums=(1,))
    f.defjvp(lambda y, p, t: (f(p[0], y), t[0] * y["a"]))
    return ns.jax.grad(lambda v: f(v, {"a": v, "b": None}))(3.0)


@row
def nondiff_jvp_twice_moving(ns):
    return ns.jax.grad(ns.jax.grad(lambda v: _product(ns)(v, v) * v))(3.0)


@row
def nondiff_jvp_staged(ns):
    return ns.jax.jit(lambda v: _product(ns)(v, v))(3.0)


@row
def nondiff_jvp_grad_inside_jit(ns):
    return ns.jax.jit(ns.jax.grad(lambda v: _product(ns)(v, v)))(3.0)


def _product_vjp(ns):
    f = ns.jax.custom_vjp(lambda x, y: x * y, nondiff_argnums=(1,))
    f.defvjp(lambda x, y: (f(x, y), None), lambda y, _, ct: (ct * y,))
    return f


@row
def nondiff_vjp_plain(ns):
    return ns.jax.grad(_product_vjp(ns))(2.0, 3.0)


@row
def nondiff_vjp_mapped_and_moving(ns):
    return ns.jax.grad(lambda v: ns.jax.vmap(_product_vjp(ns))(v, v).sum())(ns.jnp.ones(3))


@row
def nondiff_vjp_mapped(ns):
    return ns.jax.vmap(_product_vjp(ns))(ns.jnp.ones(3), ns.jnp.ones(3))


@row
def nondiff_vjp_staged(ns):
    return ns.jax.jit(_product_vjp(ns))(2.0, 3.0)


@row
def nondiff_vjp_moving(ns):
    return ns.jax.grad(lambda v: _product_vjp(ns)(v, v))(2.0)


# ----------------------------------------------------------------------------------- vmap rules


def _mapped(ns):
    f = ns.batching.custom_vmap(lambda x, y=2.0, *, n=3: x * y + n)
    f.def_vmap(lambda size, batched, xs, ys: (100 * xs + ys, True))
    return f


@row
def vmap_keywords(ns):
    f, x = _mapped(ns), ns.jnp.arange(3.0)
    return (f(x=1.0), f(1.0, y=3.0), ns.jax.vmap(lambda v: f(x=v, y=1.0))(x),
            ns.jax.vmap(f)(x), ns.jax.jit(lambda v: f(y=v, x=v))(x))


@row
def vmap_keyword_only(ns):
    return _mapped(ns)(1.0, n=2)


@row
def vmap_unknown_keyword(ns):
    return _mapped(ns)(1.0, z=2)


@row
def vmap_without_rule(ns):
    return ns.batching.custom_vmap(lambda x: x)(1.0)


@row
def vmap_without_rule_staged(ns):
    return ns.jax.jit(ns.batching.custom_vmap(lambda x: x))(1.0)


@row
def vmap_without_rule_mapped(ns):
    return ns.jax.vmap(ns.batching.custom_vmap(lambda x: x))(ns.jnp.ones(3))


# ------------------------------------------------------------------------------------ wrappers


@row
def vjp_over_vmap(ns):
    @ns.jax.custom_vjp
    @ns.batching.custom_vmap
    def f(x, y):
        return ns.jnp.sin(x) * y

    @f.def_vmap
    def rule(axis_size, in_batched, xs, ys):
        return ns.jnp.cos(xs) * ys, True

    f.defvjp(lambda x, y: (f(x, y), (ns.jnp.cos(x), ns.jnp.sin(x), y)),
             lambda res, g: (res[0] * g * res[2], res[1] * g))
    return (ns.jax.vmap(f)(ns.jnp.zeros(3), ns.jnp.ones(3)),
            ns.jax.grad(f)(ns.jnp.zeros(()), ns.jnp.ones(())))


@row
def jvp_over_vmap(ns):
    f = ns.jax.custom_jvp(ns.batching.custom_vmap(lambda x: x))
    f.def_vmap(lambda size, batched, xs: (10 * xs, True))
    f.defjvp(lambda p, t: (f(*p), 3 * t[0]))
    return ns.jax.vmap(f)(ns.jnp.ones(3)), ns.jax.grad(f)(1.0)


@row
def vmap_over_jvp(ns):
    f = ns.batching.custom_vmap(ns.jax.custom_jvp(lambda x: x))
    f.def_vmap(lambda size, batched, xs: (10 * xs, True))
    f.defjvp(lambda p, t: (p[0], 3 * t[0]))
    return ns.jax.vmap(f)(ns.jnp.ones(3)), ns.jax.jvp(f, (1.0,), (1.0,))


@row
def rules_of_plain_functions(ns):
    return ns.jax.custom_vjp(lambda x: x).defjvp


@row
def unknown_attributes(ns):
    return ns.jax.custom_jvp(lambda x: x).nothing


@row
def attributes_of_functions(ns):
    def f(x):
        return x

    f.hung, f._private = 3, 4
    wrappers = ns.jax.custom_jvp, ns.jax.custom_vjp, ns.batching.custom_vmap
    made = [wrap(f) for wrap in wrappers]
    return [(w.hung, w._private, w.__wrapped__ is f, len(w.__name__)) for w in made]


@row
def rules_are_not_inherited(ns):
    inner = _tripled(ns, lambda x: x)
    return ns.jax.custom_vjp(inner)(1.0)


# --------------------------------------------------------------------------------- linear_call


def _seven(ns):
    return lambda x: ns.derivatives.linear_call(lambda _, x: x, lambda _, t: 7.0, (), x)


def _divided(ns, x, denominator):
    call = ns.derivatives.linear_call
    return x + call(lambda r, x: x / r, lambda r, t: 3 * t / r, denominator, x)


@row
def linear_transposes(ns):
    once = lambda f: lambda y: ns.jax.linear_transpose(f, 1.0)(y)[0]
    f = _seven(ns)
    return [np.float32(v) for v in (f(1.0), once(f)(1.0), once(once(f))(1.0),
                                    once(once(once(f)))(1.0))]


@row
def linear_residuals(ns):
    f = lambda x: _divided(ns, x, 3.0)
    return ns.jax.linear_transpose(f, 1.0)(18.0), ns.jax.jit(f)(9.0), f(9.0), ns.jax.grad(f)(1.0)


@row
def linear_jvp(ns):
    f = lambda x: _divided(ns, x, 3.0)
    return ns.jax.jvp(f, (9.0,), (6.0,)), ns.jax.jit(partial(ns.jax.jvp, f))((9.0,), (6.0,))


@row
def linear_grad_of_staged(ns):
    f = lambda x: _divided(ns, ns.jnp.sin(x), 3.0)
    return ns.jax.grad(ns.jax.jit(f))(1.0), ns.jax.jit(ns.jax.grad(f))(1.0)


@row
def linear_in_scan(ns):
    body = lambda c, x: (_divided(ns, c, 3.0), _divided(ns, x, 2.0))
    f = lambda c, xs: sum(ns.jnp.sum(o) for o in ns.lax.scan(body, c, xs))
    return ns.jax.grad(f, argnums=(0, 1))(1.0, ns.jnp.arange(3.0))


@row
def linear_closing_over(ns):
    @ns.jax.jit
    def f(x, y):
        forward, back = lambda _, v: v * y, lambda _, t: 5 * t * y
        g = lambda v: ns.derivatives.linear_call(forward, back, (), v)
        return ns.jax.grad(g)(x), g(x), ns.jax.grad(ns.jax.grad(lambda v: g(v) ** 2))(x)

    return f(3.0, 2.0)


@row
def linear_trees(ns):
    forward = lambda r, x: [x["a"] * r, x["b"]]
    back = lambda r, t: {"a": 2 * t[0] * r, "b": 4 * t[1]}
    f = lambda x: ns.derivatives.linear_call(forward, back, 3.0, x)
    x = {"a": ns.jnp.ones(2), "b": ns.jnp.float32(2)}
    return ns.jax.vjp(f, x)[1](f(x)), ns.jax.grad(lambda x: f(x)[0].sum())(x)


@row
def linear_other_structure(ns):
    call = ns.derivatives.linear_call
    return ns.jax.grad(lambda x: call(lambda _, x: x, lambda _, t: (t, t), (), x))(1.0)


@row
def linear_transpose_never_used(ns):
    f = lambda x: ns.derivatives.linear_call(lambda _, x: 2 * x, lambda _, t: 1 / 0, (), x)
    return ns.jax.jvp(f, (1.0,), (2.0,)), ns.jax.jit(f)(1.0)


# ----------------------------------------------------------------------------- custom_gradient


@row
def gradient_list(ns):
    f = ns.jax.custom_gradient(lambda x, y: (x * y, lambda g: [g, 2 * g]))
    return ns.jax.grad(f, argnums=(0, 1))(2.0, 3.0)


@row
def gradient_leaf(ns):
    return ns.jax.grad(ns.jax.custom_gradient(lambda x: (x * x, lambda g: 5 * g)))(2.0)


@row
def gradient_none(ns):
    return ns.jax.grad(ns.jax.custom_gradient(lambda x: (x * x, lambda g: None)))(2.0)


@row
def gradient_list_of_one(ns):
    return ns.jax.grad(ns.jax.custom_gradient(lambda x: (x * x, lambda g: [5 * g])))(2.0)


@row
def gradient_dict(ns):
    f = ns.jax.custom_gradient(lambda x: (x["a"] * 2, lambda g: {"a": 5 * g}))
    return ns.jax.grad(f)({"a": 2.0})


@row
def gradient_too_many(ns):
    return ns.jax.grad(ns.jax.custom_gradient(lambda x: (x * x, lambda g: [g, g])))(2.0)


# -------------------------------------------------------------------------------------- helpers

TREE = {"a": np.ones(2, np.float32), "b": (np.arange(3, dtype=np.int32), None)}


@row
def zeros_of_trees(ns):
    return ns.derivatives.zero_from_primal(TREE)


@row
def symbolic_zeros_of_trees(ns):
    found = ns.derivatives.zero_from_primal(TREE, symbolic_zeros=True)
    a, b = found["a"], found["b"][0]
    assert type(a) is type(b) is ns.derivatives.SymbolicZero
    return a.shape, b.shape, np.dtype(b.dtype).name == np.dtype([("float0", "V")]).name


@row
def symbolic_zero_of_value(ns):
    zero = ns.derivatives.SymbolicZero.from_primal_value(np.ones((2, 3), np.float16))
    return zero.shape, zero.dtype == np.float16, zero.ndim


@row
def primal_values(ns):
    primal = ns.derivatives.CustomVJPPrimal
    return ns.derivatives.custom_vjp_primal_tree_values({"a": primal(2.0, True), "b": None})


@row
def primal_values_in_rule(ns):
    f = ns.jax.custom_vjp(lambda x: x["a"] * 2)

    def fwd(x):
        return f(ns.derivatives.custom_vjp_primal_tree_values(x)), None

    f.defvjp(fwd, lambda _, g: ({"a": 5 * g},), symbolic_zeros=True)
    return ns.jax.grad(f)({"a": 3.0})


@row
def primal_values_of_others(ns):
    return ns.derivatives.custom_vjp_primal_tree_values({"a": 2.0})


# --------------------------------------------------------------------------------------- errors


@row
def jvp_rule_closes_over_what_moves(ns):
    def h(x):
        f = ns.jax.custom_jvp(lambda y: y * x)
        f.defjvp(lambda p, t: (p[0] * x, t[0] * x))
        return f(x)

    return ns.jax.grad(h)(2.0)


@row
def fwd_rule_closes_over_what_moves(ns):
    def h(x):
        f = ns.jax.custom_vjp(lambda y: y * x)
        f.defvjp(lambda y: (y * x, x), lambda x, ct: (ct * x,))
        return f(x)

    return ns.jax.grad(h)(2.0)


def _with_jvp(ns, primal):
    f = ns.jax.custom_jvp(lambda x: x * 2)
    f.defjvp(lambda p, t: (primal(p[0]), primal(t[0])))
    return f


def _with_fwd(ns, primal, fun=lambda x: x * 2):
    f = ns.jax.custom_vjp(fun)
    f.defvjp(lambda x: (primal(x), None), lambda _, ct: (1.0,))
    return f


def _transformations(ns):
    jit = lambda f: ns.jax.grad(ns.jax.jit(lambda x: _total(ns, f(x))))
    scan = lambda f: ns.jax.grad(
        lambda x: ns.lax.scan(lambda c, _: (c, _total(ns, f(c))), x, None, length=2)[1].sum())
    return {"jit": jit, "scan": scan}


def _total(ns, out):
    return sum(leaf.astype("float32").sum() for leaf in ns.leaves(out))


PRIMALS = {
    "structure": lambda ns, x: (x, x),
    "container": lambda ns, x: [x],
    "shape": lambda ns, x: ns.jnp.stack([x, x]),
    "rank": lambda ns, x: x[None],
    "dtype": lambda ns, x: x.astype("float16"),
    "equal": lambda ns, x: x * 2,
}


def _rows_of_rules():
    for kind, make in (("jvp", _with_jvp), ("fwd", _with_fwd)):
        for where in ("jit", "scan"):
            for what, primal in PRIMALS.items():
                name = f"{kind}_{what}_in_{where}"
                ROWS[name] = partial(_rule_row, make, where, primal)


def _rule_row(make, where, primal, ns):
    return _transformations(ns)[where](make(ns, partial(primal, ns)))(np.float32(1))


_rows_of_rules()


def _jvp_around_vjp(ns):
    """A function with a rule for tangents, which calls one that has a rule for cotangents only."""
    inner = ns.jax.custom_vjp(ns.jnp.sin)
    inner.defvjp(lambda x: (inner(x), x), lambda x, ct: (ct * 3 * x,))
    outer = ns.jax.custom_jvp(lambda x: inner(x) * x)
    outer.defjvp(lambda xs, dxs: ns.jax.jvp(lambda x: inner(x) * x, xs, dxs))
    return outer


AROUND = {
    "vmap": lambda ns, f: lambda x: ns.jax.vmap(f)(ns.jnp.stack([x, x * 2])).sum(),
    "scan": lambda ns, f: lambda x: ns.lax.scan(
        lambda c, _: (f(c), None), x, None, length=2)[0],
    "jit": lambda ns, f: ns.jax.jit(f),
    "checkpoint": lambda ns, f: ns.jax.checkpoint(f),
    "cond": lambda ns, f: lambda x: ns.lax.cond(x > 0, f, lambda x: x, x),
    "grad": lambda ns, f: ns.jax.grad(f),
}


def _rows_of_nests():
    """JAX refuses tangents of a custom_vjp where vmap lies between it and grad, and only there."""
    for first, second in itertools.product(AROUND, repeat=2):
        ROWS[f"vjp_in_jvp_in_{first}_in_{second}"] = partial(_nest_row, first, second)


def _nest_row(first, second, ns):
    f = AROUND[second](ns, AROUND[first](ns, _jvp_around_vjp(ns)))
    return ns.jax.grad(f)(np.float32(0.7))


_rows_of_nests()


@row
def weak_types_are_equal(ns):
    f = _with_fwd(ns, lambda x: 1.0, lambda x: x * 2)
    return ns.jax.grad(ns.jax.jit(f))(np.float32(1))


@row
def weak_integers_are_not(ns):
    f = _with_fwd(ns, lambda x: 1, lambda x: x * 2)
    return ns.jax.grad(ns.jax.jit(f))(np.float32(1))


@row
def integers_beside(ns):
    f = ns.jax.custom_jvp(lambda x, n: (x * n, n + 1))
    f.defjvp(lambda p, t: (f(*p), (t[0] * 5, np.zeros((), jax.dtypes.float0))))
    return ns.jax.grad(ns.jax.jit(lambda x: f(x, 3)[0]))(2.0)


@row
def mapped_rules_of_staged(ns):
    f = _with_jvp(ns, lambda x: x * 2)
    return ns.jax.vmap(ns.jax.grad(ns.jax.jit(f)))(ns.jnp.arange(3.0))


@row
def grad_of_mapped_staged(ns):
    f = ns.jax.vmap(_with_fwd(ns, lambda x: x * 2))
    return ns.jax.grad(lambda x: ns.jax.jit(f)(x).sum())(ns.jnp.arange(3.0))


@pytest.mark.parametrize("name", ROWS)
def test_as_in_jax(name):
    mine, my_tree = outcome(ROWS[name], TOILE)
    other, tree = CORNERS.in_test(lambda: outcome(ROWS[name], JAX))
    if tree is None or my_tree is None:
        assert mine == other
        return
    assert my_tree == tree
    for x, y in zip(mine, other, strict=True):
        assert x.dtype == y.dtype
        if x.dtype != toile.dtypes.float0:
            np.testing.assert_allclose(x, y, rtol=1e-6)


# ------------------------------------------------------------------------ what jax has no rule for


def test_linear_call_under_vmap():
    x = toile.numpy.arange(3.0)
    f = lambda x, d: _divided(TOILE, x, d)
    np.testing.assert_allclose(toile.vmap(f)(x, x + 1), x + x / (x + 1), rtol=1e-6)
    slopes = 1 + 3 / (np.arange(3.0) + 1)
    d = toile.vmap(toile.grad(f))(x, x + 1)
    np.testing.assert_allclose(d, slopes, rtol=1e-6)
    d = toile.grad(lambda x: toile.vmap(f)(x, toile.numpy.arange(1.0, 4)).sum())(x)
    np.testing.assert_allclose(d, slopes, rtol=1e-6)
    d = toile.grad(lambda v: toile.vmap(f, in_axes=(None, 0))(v, x + 1).sum())(1.0)
    np.testing.assert_allclose(d, slopes.sum(), rtol=1e-6)


def test_linear_call_moves_with_residuals():
    f = lambda x, d: _divided(TOILE, x, d)
    np.testing.assert_allclose(toile.jvp(f, (6.0, 2.0), (0.0, 1.0))[1], -1.5)
    np.testing.assert_allclose(toile.grad(f, argnums=(0, 1))(6.0, 2.0), (2.5, -1.5))


def test_live_tracer_in_the_eager_evaluator():
    def f(x):
        with toile.engine.trace.current(None):
            return x + 1

    with pytest.raises(toile.errors.UnexpectedTracerError, match="live tracer"):
        toile.jit(f)(1.0)


def _watched(lib, decorator):
    """A function with rules that notes the types of its arguments, and what it has noted."""
    seen = []

    def product(x, y):
        seen.append(isinstance(x, float))
        return x * y

    f = getattr(lib, decorator)(product)
    f.defjvp(None) if decorator == "custom_jvp" else f.defvjp(None, None)
    f.jvp = f.fwd = f.bwd = lambda *_: None
    return f, seen


@pytest.mark.parametrize("decorator", ["custom_jvp", "custom_vjp"])
def test_functions_that_run_at_once_receive_numbers_as_they_are(decorator):
    told = []
    for lib in (toile, jax):
        f, seen = _watched(lib, decorator)
        outs = [f(2.0, 3.0), f(2.5, y=3), f(y=lib.numpy.ones(2), x=2.0)]
        with lib.numpy_rank_promotion("raise"):
            outs.append(f(2.0, 3.0))
        told.append((seen, [isinstance(out, float) for out in outs],
                     [np.asarray(out).tolist() for out in outs]))
    assert told[0] == told[1]


@pytest.mark.parametrize("options", [{}, {"nondiff_argnums": 0}])
def test_results_that_are_no_arrays_are_refused_at_once(options):
    f = toile.custom_jvp(lambda x: "text", **options)
    f.defjvp(lambda *_: None)
    with pytest.raises(TypeError, match="not a valid JAX type"):
        f(1.0)
