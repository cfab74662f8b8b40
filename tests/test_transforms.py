"""Compositions of transforms over control flow and custom rules, against jax.

Each function is written once against the shared API and run on both libraries; each composition of
transforms is applied to each function that it fits.
"""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import CORNERS
from tests.quick_jax import OPTIONS
from toile import lax, random

JAX = SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax)
TOILE = SimpleNamespace(jax=toile, jnp=jnp, lax=lax)

W = (np.arange(9).reshape(3, 3) / 10).astype("f4")
X = np.linspace(0.1, 1, 3).astype("f4")
XS = np.random.RandomState(0).rand(5, 3).astype("f4")


def plain(ns, w, x):
    return ns.jnp.sum(ns.jnp.tanh(x @ w) * x) + ns.jnp.prod(w + 1)


def scanned(ns, w, x):
    def body(c, row):
        h = ns.jnp.tanh(c @ w + row)
        return h, h * row

    c, ys = ns.lax.scan(body, x, ns.jnp.asarray(XS))
    return c.sum() + ys.sum()


def scanned_back(ns, w, x):
    def body(c, row):
        (h, n) = c
        return (ns.jnp.sin(h @ w) * row, n + 1), (h.sum(), n)

    (h, n), (s, _) = ns.lax.scan(body, (x, 0), ns.jnp.asarray(XS), reverse=True)
    return (h * n).sum() + (s * s).sum()


def looped(ns, w, x):
    return ns.lax.fori_loop(0, 4, lambda i, c: ns.jnp.sin(c @ w) + i * x, x).sum()


def branched(ns, w, x):
    big = ns.lax.cond(x.sum() > 1.0, lambda v: (v @ w).sum(), lambda v: ns.jnp.cos(v).sum(), x)
    return big + ns.lax.switch(2, [lambda v: v, lambda v: v * 2, lambda v: v**3], x).sum()


def nested_jit(ns, w, x):
    inner = ns.jax.jit(lambda a, b: (ns.jnp.tanh(a @ b), a.sum()))
    y, s = inner(x, w)
    return (y * s).sum()


def rematted(ns, w, x):
    f = ns.jax.checkpoint(lambda a, b: ns.jnp.sin(ns.jnp.sin(a @ b)))
    return (f(x, w) * f(f(x, w), w)).sum()


def saved_dots(ns, w, x):
    policy = ns.jax.checkpoint_policies.dots_saveable
    f = ns.jax.checkpoint(lambda a, b: ns.jnp.sin(ns.jnp.sin(a @ b) @ b), policy=policy)
    return f(x, w).sum()


def remat_scan(ns, w, x):
    step = ns.jax.checkpoint(lambda c, row: (ns.jnp.tanh(c @ w + row), c.sum()))
    c, ys = ns.lax.scan(step, x, ns.jnp.asarray(XS))
    return c.sum() * ys.sum()


def custom_forward(ns, w, x):
    @ns.jax.custom_jvp
    def f(a, b):
        return ns.jnp.sin(a) * b

    @f.defjvp
    def _(primals, tangents):
        (a, b), (da, db) = primals, tangents
        return f(a, b), 2.0 * ns.jnp.cos(a) * da * b + ns.jnp.sin(a) * db

    return f(x, x @ w).sum()


def custom_in_scan(ns, w, x):
    @ns.jax.custom_jvp
    def f(a):
        return ns.jnp.sin(a)

    f.defjvp(lambda p, t: (f(*p), 3.0 * ns.jnp.cos(p[0]) * t[0]))
    return ns.lax.scan(lambda c, row: (f(c @ w + row), None), x, ns.jnp.asarray(XS))[0].sum()


def custom_in_loop(ns, w, x):
    """The same, unrolled: jax's own second derivative of the scan loses the rule (see docs)."""

    @ns.jax.custom_jvp
    def f(a):
        return ns.jnp.sin(a)

    f.defjvp(lambda p, t: (f(*p), 3.0 * ns.jnp.cos(p[0]) * t[0]))
    for row in XS:
        x = f(x @ w + row)
    return x.sum()


def custom_backward(ns, w, x):
    @ns.jax.custom_vjp
    def f(a, b):
        return ns.jnp.sin(a) * b

    f.defvjp(
        lambda a, b: (f(a, b), (a, b)),
        lambda r, ct: (2.0 * ct * ns.jnp.cos(r[0]) * r[1], ct * ns.jnp.sin(r[0])),
    )
    return f(x, x @ w).sum()


def custom_backward_in_scan(ns, w, x):
    @ns.jax.custom_vjp
    def f(a):
        return ns.jnp.sin(a)

    f.defvjp(lambda a: (f(a), a), lambda a, ct: (3.0 * ct * ns.jnp.cos(a),))
    return ns.lax.scan(lambda c, row: (f(c @ w + row), None), x, ns.jnp.asarray(XS))[0].sum()


def whiled(ns, w, x):
    def body(c):
        return c[0] + 1, ns.jnp.tanh(c[1] @ w) * x

    return ns.lax.while_loop(lambda c: c[0] < 3, body, (0, x))[1].sum()


def solved(ns, w, x):
    m = w @ w.T + 2 * ns.jnp.eye(3)
    out = ns.lax.custom_linear_solve(
        lambda v: m @ v, x, lambda _, b: ns.jnp.linalg.solve(ns.lax.stop_gradient(m), b),
        symmetric=True,
    )
    return (out * out).sum()


def stopped(ns, w, x):
    return (ns.lax.stop_gradient(x @ w) * x).sum() + ns.jnp.where(w > 0.3, w, w * w).sum()


REVERSIBLE = [
    plain, scanned, scanned_back, looped, branched, nested_jit, rematted, saved_dots, remat_scan,
    custom_forward, custom_in_scan, custom_backward, custom_backward_in_scan, solved, stopped,
]
FORWARD_ONLY = [whiled]  # in JAX; tests/test_reverse_while.py has the reverse mode
NO_FORWARD = {"custom_backward", "custom_backward_in_scan"}

BATCHED = np.stack([X, 2 * X, X - 1])

COMPOSITIONS = {
    "value": lambda ns, f, w, x, xs: f(w, x),
    "jit": lambda ns, f, w, x, xs: ns.jax.jit(f)(w, x),
    "grad": lambda ns, f, w, x, xs: ns.jax.grad(f, (0, 1))(w, x),
    "jit_grad": lambda ns, f, w, x, xs: ns.jax.jit(ns.jax.grad(f, (0, 1)))(w, x),
    "grad_jit": lambda ns, f, w, x, xs: ns.jax.grad(ns.jax.jit(f), (0, 1))(w, x),
    "vmap": lambda ns, f, w, x, xs: ns.jax.vmap(f, (None, 0))(w, xs),
    "vmap_grad": lambda ns, f, w, x, xs: ns.jax.vmap(ns.jax.grad(f, (0, 1)), (None, 0))(w, xs),
    "grad_vmap": lambda ns, f, w, x, xs: ns.jax.grad(
        lambda w, xs: ns.jax.vmap(f, (None, 0))(w, xs).sum(), (0, 1)
    )(w, xs),
    "jit_grad_vmap": lambda ns, f, w, x, xs: ns.jax.jit(
        ns.jax.grad(lambda w, xs: ns.jax.vmap(f, (None, 0))(w, xs).sum(), (0, 1))
    )(w, xs),
    "vjp_of_vjp": lambda ns, f, w, x, xs: ns.jax.jacrev(ns.jax.grad(f, 1), 1)(w, x),
    "jvp": lambda ns, f, w, x, xs: ns.jax.jvp(f, (w, x), (w, x)),
    "hessian": lambda ns, f, w, x, xs: ns.jax.hessian(f, 1)(w, x),
    "jacfwd_vmap": lambda ns, f, w, x, xs: ns.jax.jacfwd(ns.jax.vmap(f, (None, 0)))(w, xs),
    "linearize": lambda ns, f, w, x, xs: ns.jax.linearize(f, w, x)[1](w, x),
    "jvp_grad_jit": lambda ns, f, w, x, xs: ns.jax.jvp(
        ns.jax.grad(ns.jax.jit(f), 1), (w, x), (w, x)
    ),
}
FORWARD = {"jvp", "hessian", "jacfwd_vmap", "linearize", "jvp_grad_jit"}
REVERSE = {c for c in COMPOSITIONS if "grad" in c or "vjp" in c or c == "hessian"}


def pairs():
    for f in REVERSIBLE + FORWARD_ONLY:
        for name in COMPOSITIONS:
            if f.__name__ in NO_FORWARD and name in FORWARD:
                continue
            if f in FORWARD_ONLY and name in REVERSE:
                continue
            yield pytest.param(f, name, id=f"{f.__name__}-{name}")


@pytest.mark.parametrize("fun, name", list(pairs()))
def test_composition_equals_jax(fun, name):
    compose = COMPOSITIONS[name]
    arrays = W, X, BATCHED
    f = lambda w, x: fun(TOILE, TOILE.jnp.asarray(w), TOILE.jnp.asarray(x))
    got = compose(TOILE, f, *arrays)
    oracle = custom_in_loop if fun is custom_in_scan else fun
    g = lambda w, x: oracle(JAX, JAX.jnp.asarray(w), JAX.jnp.asarray(x))
    run = jax.jit(lambda *arrays: jax.tree.leaves(compose(JAX, g, *arrays)),
                  compiler_options=OPTIONS)
    got, want = toile.tree.leaves(got), CORNERS.in_test(lambda: run(*arrays))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


COLLECTIVES = {
    "psum": lambda ns, x: ns.lax.psum(x, "i"),
    "pmean": lambda ns, x: ns.lax.pmean(x, "i"),
    "pmax": lambda ns, x: ns.lax.pmax(x, "i"),
    "pmin": lambda ns, x: ns.lax.pmin(x, "i"),
    "ppermute": lambda ns, x: ns.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "pshuffle": lambda ns, x: ns.lax.pshuffle(x, "i", [3, 2, 1, 0]),
    "pswapaxes": lambda ns, x: ns.lax.pswapaxes(x, "i", 1),
    "all_gather": lambda ns, x: ns.lax.all_gather(x, "i"),
    "all_gather_axis": lambda ns, x: ns.lax.all_gather(x, "i", axis=1),
    "all_gather_tiled": lambda ns, x: ns.lax.all_gather(x, "i", axis=1, tiled=True),
    "all_to_all": lambda ns, x: ns.lax.all_to_all(x, "i", 0, 1),
    "all_to_all_tiled": lambda ns, x: ns.lax.all_to_all(x, "i", 0, 1, tiled=True),
    "psum_scatter": lambda ns, x: ns.lax.psum_scatter(x, "i"),
    "psum_scatter_tiled": lambda ns, x: ns.lax.psum_scatter(x, "i", tiled=True),
    "axis_index": lambda ns, x: x * ns.lax.axis_index("i"),
    "axis_size": lambda ns, x: x * ns.lax.axis_size("i"),
    "psum_of_one": lambda ns, x: x * ns.lax.psum(1, "i"),
}
ROWS = np.random.RandomState(1).rand(4, 4, 4).astype("f4")


# max and min over a named axis have no derivative; jax's transpose of all_to_all is broken.
NO_GRADIENT = {"pmax", "pmin", "all_to_all"}
WAYS = ["vmap", "vmap_jit", "vmap_grad", "two_axes"]


@pytest.mark.parametrize(
    "name, how",
    [(n, h) for n in COLLECTIVES for h in WAYS if h != "vmap_grad" or n not in NO_GRADIENT],
)
def test_collective_equals_jax(name, how):

    def run(ns):
        fun = lambda x: COLLECTIVES[name](ns, x)
        if how == "vmap_jit":
            return ns.jax.vmap(ns.jax.jit(fun), axis_name="i")(ROWS)
        if how == "vmap_grad":
            grad = ns.jax.grad(lambda x: ns.jnp.sin(fun(x)).sum())
            return ns.jax.vmap(grad, axis_name="i")(ns.jnp.asarray(ROWS))
        if how == "two_axes":
            inner = ns.jax.vmap(fun, axis_name="j")
            return ns.jax.vmap(inner, in_axes=1, out_axes=1, axis_name="i")(
                np.stack([ROWS, 2 * ROWS])
            )
        return ns.jax.vmap(fun, axis_name="i")(ROWS)

    got, want = np.asarray(run(TOILE)), np.asarray(CORNERS.in_test(lambda: run(JAX)))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_gradient_of_all_to_all_is_its_adjoint():
    x, ct = ROWS, np.random.RandomState(2).rand(4, 4, 4).astype("f4")
    exchange = toile.vmap(lambda v: toile.lax.all_to_all(v, "i", 0, 1), axis_name="i")
    out, pullback = toile.vjp(exchange, x)
    inner = toile.vmap(
        lambda v, c: toile.vjp(lambda u: toile.lax.all_to_all(u, "i", 0, 1), v)[1](c)[0],
        axis_name="i",
    )
    np.testing.assert_allclose(pullback(toile.numpy.asarray(ct))[0], inner(x, ct), rtol=1e-6)
    np.testing.assert_allclose((np.asarray(out) * ct).sum(), (x * np.asarray(inner(x, ct))).sum(),
                               rtol=1e-5)


def test_groups_of_a_named_axis():
    x = ROWS[:, 0]
    groups = [[0, 2], [1, 3]]
    total = toile.vmap(lambda v: toile.lax.psum(v, "i", axis_index_groups=groups), axis_name="i")(x)
    want = np.stack([x[0] + x[2], x[1] + x[3], x[0] + x[2], x[1] + x[3]])
    np.testing.assert_allclose(total, want, rtol=1e-6)
    gathered = toile.vmap(
        lambda v: toile.lax.all_gather(v, "i", axis_index_groups=groups), axis_name="i"
    )(x)
    np.testing.assert_array_equal(gathered[3], x[[1, 3]])


def test_scan_saves_only_what_the_backward_pass_needs():
    w, x = toile.numpy.asarray(W), toile.numpy.asarray(X)
    program = toile.make_jaxpr(toile.grad(lambda w, x: scanned(TOILE, w, x)))(w, x).jaxpr
    forward = next(e for e in program.eqns if e.primitive.name == "scan")
    stacked = [v.aval.shape for v in forward.outvars if v.aval.shape[:1] == (5,)]
    # tanh's partial and the carry; neither the weights nor the inputs are copied.
    assert sorted(stacked) == [(5, 3), (5, 3)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("used", ["ys", "one carry"])
def test_scan_sends_no_cotangents_through_unused_carries(used, reverse):
    """Zeros there would be NaN after a product with an infinity: 0 * inf."""
    def program(ns, w, x):
        def step(carry, x):
            a, b, c = carry
            return (a * w + b * x[0], b * w + ns.jnp.sum(x), c + x * 3), x * 2

        def loss(w, a, x):
            carry, ys = ns.lax.scan(step, (a, a * w, x[0]), x, reverse=reverse)
            return ns.jnp.sum(ys) if used == "ys" else ns.jnp.sum(carry[2])

        return ns.jax.grad(loss, (0, 1, 2))(w, x[0, 0], x)

    w, x = np.float32(np.inf), np.full((4, 3), np.inf, "f4")
    got, want = (program(ns, ns.jnp.asarray(w), ns.jnp.asarray(x)) for ns in (TOILE, JAX))
    for g, j in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, j)
        assert np.isfinite(g).all()


def test_vjp_function_is_a_pytree():
    x = toile.numpy.asarray(X)
    out, pullback = toile.jit(lambda x: toile.vjp(lambda y: (toile.numpy.sin(y) * y).sum(), x))(x)
    (got,) = pullback(toile.numpy.ones_like(out))
    np.testing.assert_allclose(got, np.cos(X) * X + np.sin(X), rtol=1e-6)
    assert toile.tree.leaves(pullback)


def test_custom_vjp_has_no_forward_mode():
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        toile.jvp(lambda x: custom_backward(TOILE, toile.numpy.asarray(W), x), (X,), (X,))


def test_jit_traces_once_per_kind_and_says_why():
    f = toile.jit(lambda x, n: x * n, static_argnames="n")
    x = toile.numpy.ones(3)
    f(x, n=2), f(x + 1, n=2), f(x, n=3), f(toile.numpy.ones(4), n=3), f(x.astype("int32"), n=3)
    causes = f.why()
    assert causes[0] == "first call" and len(causes) == 4
    assert "static argument n: 2 -> 3" in causes[1]
    assert "x: shape (3,) -> (4,)" in causes[2]
    assert "dtype float32 -> int32" in causes[3]


def test_closed_over_arrays_are_hidden_arguments():
    big = toile.numpy.arange(1000.0)
    made = toile.make_jaxpr(lambda x: x * big)(1.0)
    assert len(made.consts) == 1 and made.consts[0] is big
    f = toile.jit(lambda x: x * big)
    np.testing.assert_array_equal(f(2.0), 2 * np.arange(1000.0, dtype="f4"))


def test_jit_of_a_function_that_closes_over_a_tracer():
    def outer(x):
        return toile.jit(lambda y: y * x)(3.0)

    assert float(toile.grad(outer)(2.0)) == 3.0
    assert float(toile.jit(toile.grad(outer))(2.0)) == 3.0
    np.testing.assert_array_equal(toile.vmap(outer)(np.arange(3.0)), [0.0, 3.0, 6.0])


def test_donated_arrays_are_deleted():
    f = toile.jit(lambda s, b: (s + b, b), donate_argnums=0)
    s, b = toile.numpy.ones(3), toile.numpy.ones(3)
    out, _ = f(s, b)
    assert s.is_deleted() and not b.is_deleted() and float(out[0]) == 2.0
    with pytest.raises(RuntimeError, match="deleted"):
        s + 1


def test_creation_is_staged():
    out = toile.eval_shape(lambda: toile.numpy.zeros((10**6, 10**6)))
    assert out.shape == (10**6, 10**6)


def decomposed(x):
    return lax.cond(x[0, 0] > 0, lambda x: jnp.linalg.svd(x)[1].sum(), lambda x: x.sum(), x)


def iterated(x):
    double = lambda i, x: jnp.sin(x) * 2
    return lax.cond(x[0, 0] > 0, lambda x: lax.fori_loop(0, 3, double, x).sum(),
                    lambda x: (x * x).sum(), x)


def determinant(x):
    return jnp.linalg.det(x @ jnp.diag(jnp.array([0, 1, 1, 1.0]) + (x[0, 0] > 0)))


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 1), (-1, -1, -1)], ids=str)
@pytest.mark.parametrize("fun", [decomposed, iterated, determinant])
def test_long_branches_run_if_an_example_takes_them(fun, signs):
    """A mapped choice gives each example what it gets alone, in all compositions."""
    rows = np.random.RandomState(1).rand(3, 4, 4).astype("f4")
    rows[:, 0, 0] *= signs
    slope = toile.grad(fun)
    twice = lambda x, dx: toile.jvp(slope, (x,), (dx,))[1]
    for f, args in ((fun, (rows,)), (slope, (rows,)), (twice, (rows, rows[::-1]))):
        wanted = np.stack([f(*xs) for xs in zip(*args, strict=True)])
        for made in (toile.vmap(f), toile.jit(toile.vmap(f))):
            np.testing.assert_allclose(made(*args), wanted, rtol=2e-4, atol=2e-5)
        nested = toile.vmap(toile.vmap(f))(*(a[:, None] for a in args))
        np.testing.assert_allclose(nested[:, 0], wanted, rtol=2e-4, atol=2e-5)


def test_long_branches_are_not_run_in_vain():
    operations = lambda f, x: [e.op.name for e in toile.make_jaxpr(f)(x).jaxpr.equations]
    x = np.ones((3, 4, 4), "f4")
    assert "svd" not in operations(toile.vmap(decomposed), x)
    assert "svd" not in operations(toile.vmap(toile.grad(determinant)), x)
    assert not {"while", "scan"} & {*operations(toile.vmap(iterated), x)}
    assert "cond" not in operations(toile.vmap(lambda x: lax.cond(
        x[0, 0] > 0, jnp.sin, jnp.cos, x)), x)


def test_choices_between_keys():
    """Branches that return keys, or keep them for the backward pass, also if they contain loops."""
    def turned(i, k):
        return lax.cond(i > 0, lambda k: lax.fori_loop(0, 3, lambda j, k: random.fold_in(k, j), k),
                        lambda k: k, k)

    keys, which = random.split(random.key(0), 3), jnp.array([0, 1, 0])
    found = random.key_data(toile.vmap(turned)(which, keys))
    wanted = [random.key_data(turned(i, k)) for i, k in zip(which, keys, strict=True)]
    np.testing.assert_array_equal(found, np.stack(wanted))

    noisy = lambda x, k: (random.normal(k, x.shape) * x**2).sum()

    def loss(x, i, k, noisy):
        return lax.cond(i > 0, lambda x, k: noisy(x, random.fold_in(k, 3)), lambda x, k: x.sum(),
                        x, k)

    for compiled in (toile.jit, lambda f, **_: f):
        by_x = compiled(toile.grad(loss), static_argnums=3)
        found = by_x(jnp.ones(3), 1, keys[0], toile.checkpoint(noisy))
        np.testing.assert_allclose(found, by_x(jnp.ones(3), 1, keys[0], noisy), rtol=1e-6)
