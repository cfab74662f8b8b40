"""Corners of derivative rules, control flow, checks and callbacks: as in jax, words included.

A row of VALUES is a function of the package whose result agrees. A row of ERRORS is such a function
and a pattern: both packages raise an error of the same Python class, and it matches in both.
"""

import builtins
import contextlib
import functools
import importlib
import io
import re

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import compare
from tests.golden.recorded import CORNERS

pytestmark = pytest.mark.cpu

V = np.float32([0, 1, 2])
FLOAT = np.float32(1)


def _module(lib, name):
    return importlib.import_module(f"{lib.__name__}.{name}")


def _scanned(lib, f):
    return lambda x: lib.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


# ---------------------------------------------------------------------------------- custom_jvp


def _jvp_of(rule, fun=lambda x: x, symbolic=False, name="rule"):
    """The jvp of a function with a rule, at float32 numbers."""
    def row(lib):
        def f(x):
            return fun(x)

        def rule_jvp(primals, tangents):
            return rule(lib, primals, tangents)

        rule_jvp.__name__ = name
        f = lib.custom_jvp(f)
        f.defjvp(rule_jvp, symbolic_zeros=symbolic)
        one = lib.numpy.float32(1)
        return lib.jvp(_scanned(lib, f) if name == "scanned" else f, (one,), (one,))

    return row


def _still_tangent(lib):
    """A tangent that stays a symbolic zero through a mapped rule."""
    zeros = []

    @lib.custom_jvp
    def f(x, y):
        return y

    def rule(primals, tangents):
        zeros.append(type(tangents[1]) is lib.custom_derivatives.SymbolicZero)
        return primals[1], tangents[1]

    f.defjvp(rule, symbolic_zeros=True)
    lib.jvp(lib.vmap(lambda x: f(x, f(x, 1.0))), (V,), (V,))
    return zeros


def _weak_tangent(lib):
    f = lib.custom_jvp(lib.numpy.sin)
    f.defjvp(lambda p, t: (f(*p), 2 * lib.numpy.cos(p[0]) * t[0]))
    return lib.jit(lambda x: lib.jvp(f, (x,), (x,)))(3.0)


def _resolved(kind, *args, **kwargs):
    def row(lib):
        decorator = lib.custom_batching.custom_vmap if kind == "custom_vmap" else getattr(lib, kind)

        @decorator
        def f(x, y, *, z=None):
            return x + y

        rules = {"custom_jvp": ("defjvp", 1), "custom_vjp": ("defvjp", 2),
                 "custom_vmap": ("def_vmap", 1)}
        method, count = rules[kind]
        getattr(f, method)(*[lambda *a: a] * count)
        return f(*args, **kwargs)

    return row


# ---------------------------------------------------------------------------------- custom_vjp


def _grad_of(fun, fwd, bwd, *args, total=lambda lib, out: out, symbolic=False, argnums=0,
             scanned=False):
    def row(lib):
        f = lib.custom_vjp(fun)
        f.defvjp(functools.wraps(fwd)(lambda *a: fwd(lib, *a)), lambda *a: bwd(lib, *a),
                 symbolic_zeros=symbolic)
        run = _scanned(lib, f) if scanned else f
        given = [lib.numpy.asarray(a) for a in args]
        return lib.grad(lambda *a: total(lib, run(*a)), argnums)(*given)

    return row


def same(x):
    return x


def fwd_pair(lib, x):
    return (x, x), None


def fwd_wide(lib, x):
    return lib.numpy.zeros((3, *x.shape), x.dtype), None


def _prefix(lib):
    """A cotangent that stands for all the leaves of an argument."""
    f = lib.custom_vjp(lambda tree, y: tree["a"] * tree["b"][0] * y)
    f.defvjp(lambda tree, y: (f(tree, y), y), lambda y, g: (y * g, 2 * g))
    tree = {"a": FLOAT, "b": [2 * FLOAT, 3 * FLOAT]}
    return lib.grad(f, (0, 1))(tree, lib.numpy.float32(5))


def _mapped_zero(lib):
    """The shape of a symbolic zero that a mapped backward rule gets."""
    shapes = []
    f = lib.custom_vjp(lambda x, y: (x, y))

    def bwd(_, cts):
        shapes.append((type(cts[1]).__name__, cts[1].shape))
        return cts

    f.defvjp(lambda x, y: (f(x.value, y.value), None), bwd, symbolic_zeros=True)
    lib.grad(lambda x: lib.vmap(f)(x, x * 2)[0].sum())(lib.numpy.asarray(V))
    return shapes


# --------------------------------------------------------------------------------- custom_vmap


def _mapped_jvp(in_axes, x, t, linear=False, out_axes=0):
    """The jvp of a custom_vmap function, mapped over values or over tangents alone."""
    def row(lib):
        seen = []

        @lib.custom_batching.custom_vmap
        def f(x):
            return 7 * x if linear else lib.numpy.sin(x)

        @f.def_vmap
        def rule(size, batched, xs):
            seen.append((size, batched))
            return (11 * xs if linear else lib.numpy.cos(xs)), batched[0]

        mapped = lib.vmap(lambda x, t: lib.jvp(f, [x], [t]), in_axes, out_axes)
        return mapped(lib.numpy.asarray(x), lib.numpy.asarray(t)), seen

    return row


# -------------------------------------------------------------------------------- control flow


def _safe_root(lib):
    def safe(x):
        return lib.lax.cond(x < 1e-3, lambda: 1e-3, lambda: lib.numpy.sqrt(x))

    return lib.grad(lambda x: lib.vmap(safe)(x).sum())(lib.numpy.zeros(3))


def _solved(lib, **options):
    return lib.lax.custom_linear_solve(lambda x: x, {"b": np.float32(1)}, lambda m, b: b, **options)


# ------------------------------------------------------------------------ checks and callbacks


def _loop_errors(lib):
    """The first failure in time counts, not the first check in the text."""
    c = _module(lib, "experimental.checkify")

    def going(v):
        c.check(v[0] < 0, "i must be negative")
        return v[0] < 2

    def body(v):
        c.check(v[1] < 0, "x must be negative")
        return v[0] + 1.0, v[1] + 1

    run = c.checkify(lambda i, x: lib.lax.while_loop(going, body, (i, x)))
    return [run(i, x)[0].get().split(" (")[0] for i, x in ((0, 1), (-1, 0))]


def _io(lib, f, *args):
    return _module(lib, "experimental").io_callback(f, None, *args)


def _io_in_while(lib):
    def body(i):
        _io(lib, lambda x: None, i)
        return i + 1

    return lib.vmap(lambda i: lib.lax.while_loop(lambda i: i < 5, body, i))(lib.numpy.arange(2))


def _io_in_checkpoint(lib):
    def f(x, y):
        _io(lib, lambda x: None, y)
        return x

    return lib.grad(lib.checkpoint(f))(2.0, 3.0)


def _printed(policy):
    """What a debug print in a checkpointed function shows while its gradient is computed."""
    def row(lib):
        name = _module(lib, "ad_checkpoint").checkpoint_name

        def f(x):
            y = name(x + 1.0, "y")
            lib.debug.print("y: {}", y)
            return lib.numpy.exp(name(y * 2.0, "z"))

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            lib.grad(lib.checkpoint(f, policy=policy(lib.checkpoint_policies)))(2.0)
            lib.effects_barrier()
        return out.getvalue()

    return row


def _kept(policy):
    """How many values a checkpointed function keeps for its gradient."""
    def row(lib):
        name = _module(lib, "ad_checkpoint").checkpoint_name

        def f(x, w):
            x = lib.numpy.sin(name(x @ w, "a"))
            return lib.numpy.sin(name(lib.numpy.cos(x @ w), "b")).sum()

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            _module(lib, "ad_checkpoint").print_saved_residuals(
                lib.checkpoint(f, policy=policy(lib.checkpoint_policies)), V, np.eye(3, 3))
        return len(out.getvalue().splitlines())

    return row


def _answers(prim, *avals, **params):
    """A policy that answers in the words of the package whose operation it is asked about."""
    lib = toile if type(prim).__module__.startswith("toile") else jax
    words = _module(lib, "ad_checkpoint")
    return words.Saveable if str(prim) == "dot_general" else words.Recompute


VALUES = {
    "jvp_still_tangent": _still_tangent,
    "jvp_weak_tangent": _weak_tangent,
    "vjp_prefix": _prefix,
    "vjp_mapped_zero": _mapped_zero,
    "vmap_of_jvp_tangents": _mapped_jvp((None, 0), np.float32(1), V),
    "vmap_of_jvp_values": _mapped_jvp((0, None), V, np.float32(4)),
    "vmap_of_jvp_linear": _mapped_jvp((0, None), V, np.float32(4), True, (0, None)),
    "cond_safe_gradient": _safe_root,
    "check_while_order": _loop_errors,
    "print_again": _printed(lambda p: p.nothing_saveable),
    "print_again_unnamed": _printed(lambda p: p.save_only_these_names("z")),
    "kept_everything": _kept(lambda p: p.everything_saveable),
    "kept_by_answers": _kept(lambda p: _answers),
    "kept_but_names": _kept(lambda p: p.save_anything_except_these_names("a")),
}

ERRORS = {
    "jvp_shape": (_jvp_of(lambda lib, p, t: (p[0], t[0][None])),
                  r"Expected float32\[\] \(tangent type of float32\[\]\) but got float32\[1\](\.|,)"
                  r"|expecting tangent float32\[\]"),
    "jvp_no_pair": (_jvp_of(lambda lib, p, t: t[0]), r"tangent outputs, but got 1\.0"),
    "jvp_other_tree": (_jvp_of(lambda lib, p, t: ((p[0],) * 2, (t[0],) * 2), name="scanned"),
                       r"of the same container/pytree structure(?s:.*)"
                       r"first element had container/pytree structure:\n    "
                       r"\(float32\[\], float32\[\]\)\nwhile the custom_jvp-decorated function f "
                       r"had output container/pytree structure:\n    float32\[\]\."),
    "jvp_other_type": (_jvp_of(lambda lib, p, t: (lib.numpy.zeros(3), t[0]), name="scanned"),
                       r"first element had shapes/dtypes of:\n    float32\[3\]\nwhile the "
                       r"custom_jvp-decorated function f had output shapes/dtypes of:\n    "
                       r"float32\[\]"),
    "vjp_other_tree": (_grad_of(same, fwd_pair, lambda lib, r, g: (g,), FLOAT, scanned=True),
                       "Custom VJP fwd rule fwd_pair for function same must produce a pair "),
    "vjp_other_type": (_grad_of(same, fwd_wide, lambda lib, r, g: (g,), FLOAT, scanned=True),
                       r"shapes/dtypes of:\n    float32\[3\]\nwhile the custom_vjp-decorated"),
    "vjp_bwd_shape": (_grad_of(lambda x, y: x, lambda lib, x, y: (x, None),
                               lambda lib, r, g: (g, lib.numpy.zeros(3)), V, np.ones(4, np.float32),
                               total=lambda lib, out: out.sum(), argnums=1),
                      r"output\[1\] the bwd rule produced an output of type float32\[3\]"),
    "vjp_zero_shape": (_grad_of(lambda x, y, z: (x, y, z),
                                lambda lib, *xs: (tuple(x.value for x in xs), None),
                                lambda lib, r, g: (g[1], g[0], g[2]),
                                *[np.ones(n, np.float32) for n in (1, 2, 3)], symbolic=True,
                                total=lambda lib, out: out[2].sum()),
                       r"SymbolicZero (?s:.*)at output\[0\]"),
    "while_pred_tree": (lambda lib: lib.lax.while_loop(lambda c: (1.0, 1.0), lambda c: c, 0.0),
                        r"boolean scalar, but got pytree PyTreeDef\(\(\*, \*\)\)\."),
    "while_tree": (lambda lib: lib.lax.while_loop(lambda c: True, lambda c: (1.0, 1.0), 0.0),
                   r"pytree structure, but they differ:\s+The input carry c is a"),
    "while_types": (lambda lib: lib.lax.while_loop(lambda c: True, lambda c: (True, True),
                                                   (np.bool_(True), FLOAT)),
                    r"must have equal types, but they differ:\s+The input carry component c\[1\] "
                    r"has type float32\[\] but the corresponding output carry component has type "
                    r"bool\[\], so the dtypes do not match\."),
    "scan_trees": (lambda lib: lib.lax.scan(lambda c, x: (((0, 1), [2]), x), ((1,), (2,)), V),
                   r"they differ:[\s*]+[Tt]he input carry component c\[0\] is a tuple of length 1 "
                   "but the corresponding component of the carry output is a tuple of length 2, so "
                   r"the lengths do not match[;.][\s*]+[Tt]he input carry component c\[1\]"),
    "scan_types": (lambda lib: lib.lax.scan(lambda c, x: (np.int32(0), x), FLOAT, V),
                   r"equal types, but they differ:\s+The input carry c has type float32\[\]"),
    "scan_pair": (lambda lib: lib.lax.scan(lambda c, x: FLOAT, 0, V),
                  r"scan body output must be a pair, got float32\[\]\."),
    "scan_lengths": (lambda lib: lib.lax.scan(lambda c, x: (c, x), 0, (V, V[:2])),
                     r"different leading axis sizes: 3, 2\."),
    "cond_pred_function": (lambda lib: lib.lax.cond(lambda: True, lambda: 1, lambda: 2),
                           "either boolean or number, got <function"),
    "cond_pred_text": (lambda lib: lib.lax.cond("foo", lambda: 1, lambda: 2),
                       "Pred must be a scalar, got foo of type <class 'str'>"),
    "cond_operand": (lambda lib: lib.lax.cond(True, same, same, 1, operand=2),
                     "if 'operand' keyword is passed then no positional operands can be passed"),
    "cond_tree": (lambda lib: lib.lax.cond(True, lambda: {"a": 2.0}, lambda: {"a": (3.0, 3.0)}),
                  r"(?s)differ:.*true_fun output at path \['a'\] is a pytree leaf but false_fun "
                  r"output at path \['a'\] is a <class 'tuple'>"),
    "switch_tree": (lambda lib: lib.lax.switch(1, [lambda: {"a": 2.0}, lambda: {"a": (3.0,)}]),
                    r"(?s)differ.*branch 0 output at path \['a'\] is a pytree leaf but branch1 "
                    r"output at path \['a'\] is a <class 'tuple'>"),
    "switch_types": (lambda lib: lib.lax.switch(1, [lambda: {"a": V}, lambda: {"a": FLOAT}]),
                     r"(?s)but they differ\..*The output of branch 0 at path \['a'\] has type "
                     r"float32\[3\] but the corresponding output of branch1 has type float32\[\]"),
    "switch_function": (lambda lib: lib.lax.switch(same, [same, same], 1.0),
                        "Index type must be an integer, got <function"),
    "switch_text": (lambda lib: lib.lax.switch("foo", [same, same], 1.0),
                    r"Index type must be an integer, got foo\."),
    "switch_tuple": (lambda lib: lib.lax.switch((1.0, 1.0), [same, same], 1.0),
                     r"Branch index must be scalar, got \(1\.0, 1\.0\) of shape \(2,\)\."),
    "root_tangent_tree": (lambda lib: lib.jvp(lambda a: lib.lax.custom_root(
        lambda y: a - y, 0.0, lambda f, x: x, lambda f, x: (x, x)), (0.0,), (1.0,)),
                          r"tangent_solve\(\) output pytree structure must match"),
    "solve_transpose_tree": (lambda lib: _solved(lib, transpose_solve=lambda m, b: {"a": b["b"]}),
                             r"transpose_solve\(\) output pytree structure must match b, got"),
    "check_error_type": (lambda lib: _module(lib, "experimental.checkify").check_error(3),
                         "check_error takes an Error as argument"),
    "pure_transpose": (lambda lib: lib.linear_transpose(
        lambda x: lib.pure_callback(same, x, x), 2.0)(1.0),
                       "Pure callbacks do not support transpose"),
    "io_transpose": (lambda lib: lib.linear_transpose(
        lambda x: _module(lib, "experimental").io_callback(same, x, x), 2.0)(1.0),
                     "IO callbacks do not support transpose"),
    "io_mapped_cond": (lambda lib: lib.vmap(lambda p: lib.lax.cond(
        p, lambda: _io(lib, lambda: None), lambda: _io(lib, lambda: None)))(np.bool_([0, 1])),
                       "IO effect not supported in vmap-of-cond"),
    "io_mapped_while": (_io_in_while, "not supported in while_loop with batched predicate"),
    "io_checkpoint": (_io_in_checkpoint,
                      "Effects not supported in (AD|partial-eval) of `checkpoint`"),
}
for _kind in ("custom_jvp", "custom_vjp", "custom_vmap"):
    _text = rf"to the {_kind}-decorated function f could not be (.*)\n"
    ERRORS |= {
        f"missing_{_kind}": (_resolved(_kind, 0.5), _text + "missing a required argument: 'y'"),
        f"keyword_{_kind}": (_resolved(_kind, 0.5, 0.1, z=1.0),
                             _text + "The following keyword arguments could not be resolved to "
                                     "positions: z"),
    }


def _python_class(error):
    return next(c for c in type(error).__mro__ if c in vars(builtins).values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VALUES)
def test_value(name):
    got, want = VALUES[name](toile), CORNERS.in_test(lambda: VALUES[name](jax))
    if isinstance(want, str) or (isinstance(want, list) and not hasattr(want[0], "dtype")):
        assert got == want
    else:
        compare(got, want, 1e-5, 1e-6, name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    row, pattern = ERRORS[name]
    classes = []
    for lib in (toile, jax):
        with pytest.raises(Exception) as caught:
            row(lib)
        text = re.split("\n  (?:in|at) ", str(caught.value))[0]
        assert re.search(pattern, text), f"{lib.__name__}: {text}"
        classes.append(_python_class(caught.value))
    assert issubclass(*classes), f"got {classes[0]}, jax raises {classes[1]}"
