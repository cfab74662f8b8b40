"""What packages written for JAX rely on: parameters of equations, their own primitives, options.

Packages interpret Programs by JAX's names, define primitives, run their tests with checks on, and
turn warnings into errors.
"""

import functools
import importlib
import subprocess
import sys
import warnings

import flax.linen
import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, linen
from toile.compat.faces.jax import api_util, linear_util
from toile.compat.faces.jax.extend import core as face
from toile.compat.faces.jax.extend.core import primitives
from toile.compat.faces.jax.interpreters import ad, batching, mlir, partial_eval
from toile.core import Literal
from toile.engine import extra_warnings
from toile.errors import OutOfBoundsWarning

X = np.arange(6, dtype=np.float32).reshape(2, 3)
OFFSET = np.float32([1, 2, 3])
FACE = "toile.compat.faces.jax"


def with_custom_rule(lib, kind):
    """A function with a derivative rule."""
    if kind == "jvp":
        f = lib.custom_jvp(lambda x: lib.numpy.sin(x) * 2)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return f
    g = lib.custom_vjp(lambda x: lib.numpy.sin(x) * 2)
    g.defvjp(lambda x: (g(x), None), lambda residuals, ct: (ct,))
    return g


# Functions whose first equation that carries a Program is of the kind that the name tells.
CARRIERS = {
    "jit": lambda lib: lambda x: lib.jit(lib.numpy.sin)(x) + OFFSET,
    "jit_with_values": lambda lib: lambda x: lib.jit(lambda y: y * lib.numpy.array(OFFSET))(x),
    "remat": lambda lib: lib.checkpoint(lib.numpy.cos),
    "scan": lambda lib: lambda x: lib.lax.scan(lambda c, a: (c + a.sum(), c * a), 0.0, x),
    "reverse_scan": lambda lib: lambda x: lib.lax.scan(
        lambda c, a: (c + a.sum(), c * a + x[0]), 0.0, x, reverse=True),
    "while": lambda lib: lambda x: lib.lax.while_loop(
        lambda c: c.sum() < 50, lambda c: c * 2 + x, x),
    "cond": lambda lib: lambda x: lib.lax.cond(x[0, 0] > 1, lambda y: y, lambda y: y + 1, x),
    "custom_jvp": lambda lib: with_custom_rule(lib, "jvp"),
    "custom_vjp": lambda lib: with_custom_rule(lib, "vjp"),
}
SHARED = {
    "jaxpr", "name", "length", "reverse", "num_consts", "num_carry", "cond_jaxpr", "body_jaxpr",
    "cond_nconsts", "body_nconsts", "branches", "call_jaxpr", "symbolic_zeros", "prevent_cse",
}


def summary(params):
    """The parameters that both libraries have; Programs by whether they are closed."""
    found = {}
    for name in sorted(SHARED & params.keys()):
        value = params[name]
        parts = value if isinstance(value, tuple) else (value,)
        if hasattr(parts[0], "eqns"):
            value = [(hasattr(p, "consts"), len(getattr(p, "jaxpr", p).invars)) for p in parts]
        found[name] = value
    return found


@pytest.mark.parametrize("name", CARRIERS)
def test_parameters_have_the_names_of_jax(name):
    told = []
    for lib in (jax, toile):
        closed = lib.make_jaxpr(CARRIERS[name](lib))(lib.numpy.array(X))
        params = [e.params for e in closed.eqns]
        told.append(next(p for p in map(summary, params) if p))
    theirs, ours = told
    loops = "num_consts" in theirs and "length" in theirs or "cond_nconsts" in theirs
    if loops:  # which values of a loop's body are constants is a matter of tracing
        ours, theirs = dict.fromkeys(ours), dict.fromkeys(theirs)
    if name == "remat" and jax.__version_info__ >= (0, 11):  # closed since then
        ours, theirs = dict.fromkeys(ours), dict.fromkeys(theirs)
    if name == "jit_with_values":  # JAX keeps them in the Program
        ours, theirs = dict.fromkeys(ours), dict.fromkeys(theirs)
    assert {k: v for k, v in ours.items() if k in theirs} == theirs


def interpreted(closed, args, change=lambda params: params):
    """The results of a Program, evaluated as packages do it."""
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(a):
        return a.val if isinstance(a, Literal) else known[a]

    for e in closed.jaxpr.eqns:
        given = e.primitive.get_bind_params(change(e.params))
        found = e.primitive.bind(*map(read, e.invars), **given)
        known.update(zip(e.outvars, found if e.primitive.multiple_results else [found],
                         strict=True))
    return [read(a) for a in closed.jaxpr.outvars]


def traced_anew(params):
    """Parameters in which each Program is evaluated and traced once more."""

    def again(value):
        if isinstance(value, tuple):
            return tuple(map(again, value))
        if not isinstance(value, toile.core.ClosedJaxpr):
            return value
        avals = [toile.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in value.jaxpr.invars]
        return toile.make_jaxpr(face.jaxpr_as_fun(value))(*avals)

    return {name: again(value) for name, value in params.items()}


@pytest.mark.parametrize("change", [dict, traced_anew])
@pytest.mark.parametrize("name", CARRIERS)
def test_equations_can_be_applied_with_their_parameters(name, change):
    f = CARRIERS[name](toile)
    x = jnp.array(X)
    found = interpreted(toile.make_jaxpr(f)(x), [x], change)
    for a, b in zip(found, toile.tree.leaves(f(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_function_with_a_rule_can_be_called_in_python():
    closed = toile.make_jaxpr(CARRIERS["custom_jvp"](toile))(1.0)
    [e] = closed.eqns
    assert e.primitive is primitives.custom_jvp_call_p
    inner = e.primitive.get_bind_params(e.params)["subfuns"][0]
    np.testing.assert_allclose(inner.call_wrapped(jnp.float32(1.0))[0], 2 * np.sin(1), rtol=1e-6)


@pytest.mark.parametrize("primitive", [lax.add_p, lax.reduce_sum_p, primitives.jit_p])
def test_operations_are_primitives(primitive):
    assert isinstance(primitive, face.Primitive)
    assert not primitive.call_primitive and not primitive.map_primitive
    assert not isinstance(3, face.Primitive)


def test_numbers_can_be_bound():
    np.testing.assert_array_equal(lax.add_p.bind(jnp.array(X), 1.0), X + 1)


def test_values_of_indices_are_constants_of_the_program():
    table = jnp.array([2, 0])
    closed = toile.make_jaxpr(lambda x: x[table] + 1)(jnp.arange(3.0))
    assert (len(closed.jaxpr.invars), len(closed.jaxpr.constvars)) == (1, len(closed.consts))


@pytest.mark.parametrize("kind", [ad.Zero, ad.UndefinedPrimal])
def test_symbolic_zeros_are_nodes_without_leaves(kind):
    zero = kind(toile.core.ShapedArray((), np.float32))
    assert not toile.tree.leaves(zero)
    _, passed = toile.vmap(lambda x, t: (x, t), in_axes=(0, [None]))(jnp.ones(2), [zero])
    assert type(passed[0]) is kind and passed[0].aval == zero.aval


# ------------------------------------------------------------------ changed Programs


@pytest.mark.parametrize("name", CARRIERS)
def test_parts_of_programs_can_be_replaced(name):
    """Copies with the same parts, or with parameters that are bound anew, compute the same."""
    closed = toile.make_jaxpr(CARRIERS[name](toile))(jnp.array(X))
    want = closed.jaxpr, toile.core.eval_jaxpr(closed.jaxpr, closed.consts, jnp.array(X))
    for change in (
        lambda e: e.replace(), lambda e: e.replace(params=dict(e.params)),
        lambda e: e.replace(primitive=e.primitive, invars=e.invars, outvars=e.outvars),
    ):
        copy = closed.jaxpr.replace(eqns=[change(e) for e in closed.jaxpr.eqns])
        whole = closed.replace(jaxpr=copy)
        assert copy is not closed.jaxpr and closed.jaxpr is want[0]
        assert len(copy.constvars) == len(closed.jaxpr.constvars)
        got = toile.core.eval_jaxpr(whole.jaxpr, whole.consts, jnp.array(X))
        for a, b in zip(got, want[1], strict=True):
            np.testing.assert_array_equal(a, b)


def test_replaced_parts():
    held = jnp.array(OFFSET)
    closed = toile.make_jaxpr(lambda x, y: (lax.reduce_sum(x + held, (0,)), y * 2))(held, held)
    total, double = closed.jaxpr.outvars
    assert face.jaxpr_as_fun(closed.map_jaxpr(
        lambda p: p.replace(outvars=[double])))(held, held)[0].tolist() == [2, 4, 6]
    fewer = closed.jaxpr.replace(
        outvars=[total], invars=closed.jaxpr.invars[:1], eqns=closed.jaxpr.eqns[:2])
    assert float(toile.core.eval_jaxpr(fewer, closed.consts, held)[0]) == 12
    other = closed.replace(consts=[held * 0])
    assert float(face.jaxpr_as_fun(other)(held, held)[0]) == 6
    summed = closed.eqns[1]
    assert summed.replace(params={**summed.params, "axes": (0,)}).op == summed.op
    product = summed.replace(primitive=lax.reduce_prod_p)
    assert product.op.name == "reduce_prod" and product.outvars == summed.outvars
    for part in (closed.jaxpr, summed):
        with pytest.raises(TypeError, match="needed .*, got .'color'."):
            part.replace(color=1)
    aval = toile.typeof(jnp.int32(1))
    assert aval.to_ct_aval() == aval.at_least_vspace() == aval.to_tangent_aval()
    assert aval.update_weak_type(True).weak_type and not aval.weak_type


# ------------------------------------------------------------------ names of jax.interpreters


def public(module):
    """The names of functions and tables of a module of JAX."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {n for n in dir(module) if n[0] != "_" and hasattr(module, n)}


# What toile has no counterpart of: JAX's own traces, its rules for call primitives and devices.
ABSENT = {
    "ad": "JVPTrace add_jaxvals_p annotations backward_pass jvp jvp_jaxpr linearize",
    "batching": "batch_jaxpr_axes batch_subtrace defreducer fancy_primitive_batchers "
    "zero_if_mapped",
    "partial_eval": "DynamicJaxprTracer JaxprTracer PartialVal Val abstract_eval_fun close_jaxpr "
    "convert_constvars_jaxpr custom_partial_eval_rules dce_jaxpr_call_rule "
    "dce_jaxpr_closed_call_rule dce_jaxpr_consts dce_rules lower_jaxpr lower_jaxpr2 "
    "move_binders_to_back new_eqn_recipe partial_eval_jaxpr_custom_rules "
    "partial_eval_jaxpr_nounits prune_closed_jaxpr_outputs trace_to_jaxpr_nounits",
}


@pytest.mark.parametrize("name", ABSENT)
def test_names_of_interpreters(name):
    theirs = importlib.import_module(f"jax.interpreters.{name}")
    ours = importlib.import_module(f"{FACE}.interpreters.{name}")
    assert public(theirs) - set(ours.__all__) <= set(ABSENT[name].split())
    again = importlib.import_module(f"{FACE}._src.interpreters.{name}")
    assert {n: getattr(again, n) for n in ours.__all__} == {n: vars(ours)[n] for n in ours.__all__}


def test_flat_functions_are_traced():
    held = jnp.array(OFFSET)
    fun, tree = api_util.flatten_fun_nokwargs(
        linear_util.wrap_init(lambda x: {"a": x["b"] + held, "c": 2}),
        toile.tree.structure(({"b": 0},)))
    program, types, consts = partial_eval.trace_to_jaxpr_dynamic(fun, [toile.typeof(held)])
    assert len(program.constvars) == len(consts) == 1 and consts[0] is held
    assert [t.shape for t in types] == [(3,), ()] and tree().num_leaves == 2
    smaller, used = partial_eval.dce_jaxpr(program, [False, True])
    assert used == [False] and not smaller.eqns and not smaller.invars
    smaller, used = partial_eval.dce_jaxpr(program, [True, False])
    assert used == [True] and toile.core.eval_jaxpr(smaller, consts, held)[0].tolist() == [2, 4, 6]
    assert partial_eval.dce_jaxpr(program, [False, True], instantiate=True)[1] == [True]


class Holder:
    """An object whose method reads an array."""

    def __init__(self, c):
        self.c = c

    def method(self, x):
        return x + self.c


toile.tree_util.register_pytree_node(Holder, lambda h: ((h.c,), None), lambda _, c: Holder(*c))
# How a function of x can hold an array of rank 0.
HELD = {
    "closure": lambda lib, c: lambda x: x + c,
    "container": lambda lib, c: (lambda held: lambda x: x + held["c"][0])({"c": [c]}),
    "function": lambda lib, c: (lambda f: lambda x: 2 * f(x))(lambda x: x + c),
    "partial": lambda lib, c: functools.partial(lambda c, x: x + c, c),
    "keyword": lambda lib, c: functools.partial(lambda x, c: x + c, c=c),
    "Partial": lambda lib, c: lib.tree_util.Partial(lambda c, x: x + c, c),
    "wrapped": lambda lib, c: functools.wraps(abs)(lambda x: x + c),
    "method": lambda lib, c: Holder(c).method,
    "twice": lambda lib, c: lambda x: x * c + c,
    "unused": lambda lib, c: lambda x: x if True else x + c,
    "recursive": lambda lib, c: _recursive(c),
}


def _recursive(c):
    def f(x, n=2):
        return f(x, n - 1) + c if n else x

    return f


@pytest.mark.parametrize("name", HELD)
def test_arrays_that_a_function_holds_are_constants(name):
    """Packages keep the Program and replace its constants by those of another trace."""
    hold = HELD[name]
    closed = toile.make_jaxpr(hold(toile, jnp.array(3)))(1.0)
    outer = []
    toile.jit(lambda c: outer.append(toile.make_jaxpr(hold(toile, c))(1.0)) or c)(jnp.array(3))
    assert [c.shape for c in closed.consts] == [c.shape for c in outer[0].consts]
    assert len(closed.consts) == (name != "unused")
    changed = closed.replace(consts=[c + 1 for c in closed.consts])
    want = hold(toile, jnp.array(4))(1.0)
    assert face.jaxpr_as_fun(changed)(1.0)[0] == want
    if name != "method":  # its class is a node of toile
        theirs = jax.make_jaxpr(hold(jax, jax.numpy.array(3)))(1.0)
        assert len(theirs.consts) == len(closed.consts)


@pytest.mark.parametrize("name", ["call_p", "closed_call_p"])
@pytest.mark.parametrize("old", [False, True], ids=["subfuns", "first argument"])
def test_calls_of_flat_functions(name, old):
    primitive, held = getattr(primitives, name), jnp.array(OFFSET)

    def f(x):
        fun = linear_util.wrap_init(lambda x: [jnp.sin(x) * held, x.sum()])
        y, z = primitive.bind(fun, x) if old else primitive.bind(x, subfuns=(fun,))
        return y * z

    def plain(x):
        return jnp.sin(x) * held * x.sum()

    e = toile.make_jaxpr(f)(held).eqns[0]
    inner = e.params["call_jaxpr"] if name == "call_p" else e.params["call_jaxpr"].jaxpr
    assert e.primitive is primitive and len(inner.invars) == len(e.invars) == 2
    for change in (lambda f: f, toile.jit, lambda f: toile.vmap(f), toile.jacfwd, toile.jacrev,
                   lambda f: toile.jit(toile.vmap(f)), lambda f: toile.jit(toile.jacrev(f)),
                   lambda f: toile.jacrev(toile.jit(f)), lambda f: toile.vmap(toile.jit(f))):
        for x in (X, OFFSET):
            np.testing.assert_allclose(change(f)(x), change(plain)(x), rtol=1e-5)
    closed = toile.make_jaxpr(f)(OFFSET)
    np.testing.assert_allclose(
        interpreted(closed, [jnp.array(OFFSET)])[0], plain(OFFSET), rtol=1e-5)


def test_rules_by_operand():
    product = face.Primitive("product")
    product.def_impl(lambda x, y: x * y)
    product.def_abstract_eval(lambda x, y: x if x.ndim >= y.ndim else y)
    ad.defbilinear(product, lambda ct, x, y: ct * y, lambda ct, x, y: ct * x)
    batching.defbroadcasting(product)
    a, b = jnp.array(X), jnp.array(OFFSET)
    for x, y in ((a, a + 1), (a[0], b)):
        for f in (toile.grad(lambda x, y: product.bind(x, y).sum(), argnums=(0, 1)),
                  toile.jit(toile.grad(lambda x, y: product.bind(x, y).sum(), argnums=(0, 1)))):
            np.testing.assert_array_equal(f(x, y)[0], y)
            np.testing.assert_array_equal(f(x, y)[1], x)
    for axes in ((0, 0), (1, 0), (0, None), (None, 1)):
        want = toile.vmap(lambda x, y: x * y, axes)(jnp.ones((3, 3)) * b, b[:, None] + a[1])
        got = toile.vmap(product.bind, axes)(jnp.ones((3, 3)) * b, b[:, None] + a[1])
        np.testing.assert_array_equal(got, want)
    with_scalar = toile.vmap(product.bind, (0, 0))(b, jnp.ones((3, 2)))
    np.testing.assert_array_equal(with_scalar, np.repeat(OFFSET[:, None], 2, 1))
    assert batching.broadcast(b, 2, 1, None).shape == (3, 2)
    assert ad.get_primitive_transpose(product) is ad.primitive_transposes[product]
    with pytest.raises(NotImplementedError, match="Transpose rule .* for 'bare'"):
        ad.get_primitive_transpose(face.Primitive("bare"))


def test_a_rule_that_reads_the_result():
    root = face.Primitive("root")
    root.def_impl(jnp.sqrt)
    root.def_abstract_eval(lambda x: x)
    ad.defjvp2(root, lambda t, y, x: t / (2 * y))
    assert float(toile.grad(root.bind)(4.0)) == 0.25


# ------------------------------------------------------------------ primitives, under checks


def doubled():
    """A primitive whose implementation calls operations, with one result."""
    found = face.Primitive("doubled")
    found.def_impl(lambda x, *, times: jnp.sum(x) * times)
    found.def_abstract_eval(lambda x, *, times: toile.core.ShapedArray((), x.dtype))
    return found


@pytest.mark.parametrize("option", ["numpy_rank_promotion", "debug_nans"])
def test_primitives_run_under_checks(option):
    primitive = doubled()
    with getattr(toile, option)("raise" if option == "numpy_rank_promotion" else True):
        assert float(primitive.bind(jnp.array(X), times=2)) == 30
        closed = toile.make_jaxpr(lambda x: primitive.bind(x, times=2))(jnp.array(X))
        [e] = closed.eqns
        assert e.primitive is primitive and e.params == {"times": 2}
        assert float(interpreted(closed, [jnp.array(X)])[0]) == 30


def kinds_seen(call):
    """The classes of avals that the type rule of a primitive receives in `call(bind)`."""
    seen = []
    primitive = face.Primitive("watched")
    primitive.def_impl(lambda x: x)
    primitive.def_abstract_eval(
        lambda x: seen.append(type(x)) or face.unmapped_aval(2, 0, face.mapped_aval(2, 0, x)))
    call(primitive.bind)
    return set(seen)


@pytest.mark.parametrize("call", [
    lambda bind: toile.jit(bind)(jnp.ones(2)),
    lambda bind: toile.eval_shape(bind, jnp.ones(2)),
    lambda bind: toile.make_jaxpr(lambda x: bind(bind(x) + 1))(jnp.ones(2)),
    lambda bind: toile.lax.scan(lambda c, _: (bind(c), None), jnp.ones(2), length=2),
])
def test_type_rules_receive_shaped_arrays(call):
    assert kinds_seen(call) == {toile.core.ShapedArray}
    made = toile.core.ShapedArray((2,), "float32").update(shape=(3,))
    assert type(made) is toile.core.ShapedArray and made == toile.typeof(jnp.ones(3))


# ------------------------------------------------------------------ primitives, compiled


def lowered(calls, multiple=False):
    """A primitive whose implementation notes its calls, and is compiled as a function."""
    made = face.Primitive("lowered")
    made.multiple_results = multiple

    def results(x, *, times):
        y = jnp.cumsum(x) * times
        return [y, y.sum()] if multiple else y

    def types(x, *, times):
        y = toile.core.ShapedArray(x.shape, x.dtype)
        return [y, toile.core.ShapedArray((), x.dtype)] if multiple else y

    made.def_impl(lambda x, *, times: calls.append(x) or results(x, times=times))
    made.def_abstract_eval(types)
    ad.primitive_jvps[made] = lambda xs, ts, **params: (
        made.bind(*xs, **params), made.bind(*ts, **params))
    batching.primitive_batchers[made] = lambda args, dims, **params: (
        toile.vmap(lambda x: results(x, **params), in_axes=dims[0])(args[0]),
        [0, 0] if multiple else 0)
    mlir.register_lowering(made, mlir.lower_fun(results, multiple_results=multiple))
    return made


PLACES = {
    "jit": lambda f: toile.jit(f),
    "call": lambda f: toile.jit(lambda x: toile.jit(f)(x) + 0),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "while": lambda f: lambda x: lax.while_loop(lambda c: c.sum() < 99, f, x),
    "cond": lambda f: toile.jit(lambda x: lax.cond(x[0] > 0, f, jnp.negative, x)),
    "checkpoint": lambda f: toile.jit(toile.checkpoint(f)),
    "vmap": lambda f: lambda x: toile.jit(toile.vmap(f))(jnp.stack([x, x + 1])),
    "jvp": lambda f: lambda x: toile.jit(lambda x: toile.jvp(f, (x,), (x,)))(x),
}


@pytest.mark.parametrize("multiple", [False, True], ids=["one result", "several results"])
@pytest.mark.parametrize("place", PLACES)
def test_a_primitive_is_compiled_as_its_lowering(place, multiple):
    """Compiled code contains no Python calls of the implementation, and gives the same numbers."""
    calls, seen = [], []
    primitive = lowered(calls, multiple)

    def f(x):
        out = primitive.bind(x, times=2.0)
        return out[0] + out[1] if multiple else out

    def plain(x):
        y = jnp.cumsum(x) * 2
        return y + y.sum() if multiple else y

    for g, found in ((f, seen), (plain, seen)):
        run = PLACES[place](g)
        found.append([toile.tree.leaves(run(jnp.array(X[1]))) for _ in range(3)])
    np.testing.assert_allclose(np.array(seen[0]), np.array(seen[1]), rtol=1e-6)
    assert not calls
    f(jnp.array(X[1]))
    assert len(calls) == 1  # outside of compiled code, the implementation runs


@pytest.mark.parametrize("rule", ["none", "one platform", "other", "closes over an array"])
def test_other_primitives_run_their_implementation(rule):
    calls, held = [], jnp.ones(3)
    primitive = lowered(calls)
    mlir.register_lowering(primitive, lambda ctx, x, **params: [x])
    if rule == "one platform":
        mlir.register_lowering(primitive, mlir.lower_fun(lambda x, times: x), platform="tpu")
    elif rule == "closes over an array":
        mlir.register_lowering(primitive, mlir.lower_fun(lambda x, times: x + held, False))
    elif rule == "none":
        primitive = doubled()
        assert float(toile.jit(lambda x: primitive.bind(x, times=2))(jnp.array(X))) == 30
        return
    out = toile.jit(lambda x: primitive.bind(x, times=2.0))(jnp.ones(3))
    assert out.tolist() == [2, 4, 6] and len(calls) == 1


def test_lowerings_of_keys():
    primitive = face.Primitive("drawn")
    primitive.def_abstract_eval(lambda key: toile.core.ShapedArray((2,), "float32"))
    primitive.def_impl(lambda key: toile.random.normal(key, (2,)))
    mlir.register_lowering(
        primitive, mlir.lower_fun(lambda key: toile.random.normal(key, (2,)), False))
    key = toile.random.key(3)
    found = toile.jit(lambda key: primitive.bind(toile.random.fold_in(key, 1)))(key)
    np.testing.assert_array_equal(found, primitive.bind(toile.random.fold_in(key, 1)))


def donated(x):
    """Whether a donated argument is deleted."""
    toile.jit(lambda y: y + 1, donate_argnums=0)(x)
    return x.is_deleted()


def warned(x):
    """How many warnings a useless donation gives."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        toile.jit(lambda y: y.sum(), donate_argnums=0)(x)
    return len(seen)


def copied(x):
    """Whether a copy survives the deletion of the original."""
    copies = [jnp.copy(x), jnp.array(x), x.copy(), x.__copy__()]
    x.delete()
    return [c.is_deleted() for c in copies]


@pytest.mark.parametrize("behavior", [
    donated, warned, copied, lambda x: toile.core.trace_state_clean(),
])
def test_checks_do_not_change_what_programs_do(behavior):
    plain = behavior(jnp.array(X) + 0)
    with toile.numpy_rank_promotion("raise"):
        assert behavior(jnp.array(X) + 0) == plain


# ------------------------------------------------------------------ warnings, draws


@pytest.mark.parametrize("raises", [True, False])
def test_warnings_that_jax_does_not_have(raises, monkeypatch, capsys):
    monkeypatch.setattr(extra_warnings.mode, "raises", raises)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for give in (lambda: extra_warnings.advise("far", OutOfBoundsWarning, "file.py", 3),
                     lambda: extra_warnings.advise_caller("far", OutOfBoundsWarning, 1)):
            if raises:
                with pytest.raises(OutOfBoundsWarning, match="far"):
                    give()
            else:
                give()
    assert capsys.readouterr().err.count("far") == (0 if raises else 2)


def test_a_program_that_turns_warnings_into_errors_runs_under_install():
    code = ("import toile; toile.interop.install()\n"
            "import jax, jax.numpy as jnp\n"
            "print(jax.jit(lambda x, i: x[i])(jnp.arange(3), 7))")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code],
                          capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "2", done.stderr
    assert "OutOfBoundsWarning" in done.stderr


MISTAKES = {  # what Flax accepts, with the error that toile raises
    "LayerNorm": (lambda nn: nn.LayerNorm(16), ValueError),
    "RMSNorm": (lambda nn: nn.RMSNorm(16), ValueError),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, epsilon=16), ValueError),
    "BatchNorm": (lambda nn: nn.BatchNorm(16), ValueError),
    "Dropout": (lambda nn: nn.Dropout(50, deterministic=False), ValueError),
    "Sequential": (lambda nn: nn.Sequential([nn.tanh, _Layer]), TypeError),
    "carry": (lambda nn: _Recurrent(nn.GRUCell(4)), ValueError),
}


class _Layer(linen.Module):
    """A module whose only argument is an array."""

    x: object


class _Recurrent(linen.Module):
    """A cell that is called with a carry of another size."""

    cell: object

    def __call__(self, x):
        return self.cell(x[:, :3], x)[0]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_that_flax_accepts_are_warnings_under_install(name, monkeypatch):
    make, error = MISTAKES[name]
    x, keys = jnp.ones((2, 16)), {"params": toile.random.key(0), "dropout": toile.random.key(1)}
    with pytest.raises(error, match="needed"):
        make(linen).init_with_output(keys, x)
    monkeypatch.setattr(extra_warnings.mode, "raises", False)
    with pytest.warns(UserWarning, match="needed"):
        out, _ = make(linen).init_with_output(keys, x)
    if name not in ("Sequential", "carry"):
        theirs = {k: jax.random.key(i) for i, k in enumerate(keys)}
        want = make(flax.linen).init_with_output(theirs, jax.numpy.ones((2, 16)))[0]
        np.testing.assert_allclose(out, want, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_numpy_arrays_stay_known_where_they_do_in_jax(monkeypatch):
    """The functions of `jax.numpy` that give a NumPy array back, with a shape or without one."""
    monkeypatch.setattr(extra_warnings.mode, "keeps_numpy", True)

    def kinds(lib, name):
        for more in ((), (3, -1), ((3, 2),)):
            try:
                found = getattr(lib.numpy, name)(X, *more)
            except Exception:
                continue
            yield found.shape if type(found) is np.ndarray else None

    names = ("array asarray astype atleast_1d atleast_2d broadcast_to conj copy expand_dims flip "
             "matrix_transpose moveaxis permute_dims ravel real reshape roll squeeze swapaxes take "
             "transpose").split()
    kept = {n for n in names if any(kinds(toile, n))}
    assert kept == {n for n in names if any(kinds(jax, n))} == {"reshape"}
    assert list(kinds(toile, "reshape")) == list(kinds(jax, "reshape"))
    known = []
    toile.jit(lambda: known.append(jnp.reshape(X == 1, (-1,)).any()))()
    assert known == [True]
    np.testing.assert_array_equal(jnp.reshape(X, (3, 2), order="F"), X.reshape((3, 2), order="F"))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("bound", [(), (1,), (3,)])
def test_bounds_of_uniform(shape, bound):
    def draw(lib):
        low, high = lib.numpy.zeros(bound), lib.numpy.full(bound, 2.0)
        try:
            return np.asarray(lib.random.uniform(lib.random.key(0), shape, minval=low,
                                                 maxval=high))
        except ValueError:
            return "refused"

    theirs, ours = draw(jax), draw(toile)
    assert np.shape(ours) == np.shape(theirs)
    if not isinstance(theirs, str):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
