"""Reductions, running results, sorting and contractions of `toile.lax` against `jax.lax`."""

import numpy as np
import pytest

import toile
from tests.lax.expressions import check, check_error

NUMBERS = "(((2,), (1,)), ((0,), (0,)))"
RAGGED = "lax.RaggedDotDimensionNumbers"
GROUPS = "jnp.array([1, 0, 2], jnp.int32)"
PAIR = "lambda a, b: (a[0] + b[0], a[1] * b[1])"
ARGMAX = (
    "lambda a, b: (lax.max(a[0], b[0]), lax.select(lax.ge(a[0], b[0]), a[1], b[1]))"
)
REDUCTIONS = [
    *(f"lax.reduce_{n}({a}, (0,))" for n in ("sum", "prod", "max", "min") for a in "fihm"),
    *(f"lax.reduce_{n}(x, (0, 2))" for n in ("sum", "prod", "max", "min")),
    *(f"lax.reduce_{n}({a}, (0,))" for n in ("and", "or", "xor") for a in "ib"),
    "lax.reduce_max(e, (0,))", "lax.reduce_min(e, (0,))", "lax.reduce_sum(1.0, ())",
    "lax.reduce_sum(m, [1, 0])", "lax.reduce_max(b, (0,))", "lax.reduce_sum(c, (0,))",
    "lax.argmax(m, 1, jnp.int32)", "lax.argmin(m, 0, jnp.int8)", "lax.argmax(a3, 0, jnp.int32)",
    "lax.argmin(jnp.array([3., jnp.nan, 1.]), 0, jnp.int32)",
    *(f"lax.{n}({a}, {d}, {r})" for n in ("cumsum", "cumprod", "cummax", "cummin")
      for a, d, r in (("m", 0, False), ("m", 1, True), ("i", 0, False))),
    "lax.cumlogsumexp(m, 1)", "lax.cumlogsumexp(m, axis=0, reverse=True)",
    "lax.reduce(m, 0., lax.add, (0,))", "lax.reduce(m, 1., lax.add, (0,))",
    "lax.reduce(m, 0., lambda a, b: a + b, (0,))",
    "lax.reduce(m, np.float32(0) + m[0, 0], lax.max, (0, 1))",
    "lax.reduce(m, 1., jnp.multiply, (1,))", "lax.reduce(m, -jnp.inf, jnp.maximum, (1,))",
    "lax.reduce(1.0, 0., lax.add, ())", f"lax.reduce((m, m), (0., 1.), {PAIR}, (1,))",
    "lax.reduce([m, m], [0., 1.], lambda a, b: [a[0] + b[0], a[1] * b[1]], (1,))",
    "lax.reduce((m, lax.broadcasted_iota(np.int32, (3, 4), 1)), (m[0, 0] - 9, np.int32(0)), "
    f"{ARGMAX}, (1,))",
    "lax.reduce(x, 0., lambda a, b: a * 0.5 + b + 0.5 * a, (0, 2))",
    "lax.reduce(b, False, lax.bitwise_or, (0,))",
    "lax.reduce(a3, np.int32(-1), lax.bitwise_and, (0,))",
    "lax.reduce(e, 0., lambda a, b: a + b * 2, (0,))",
]  # fmt: skip
SORTS = [
    "lax.sort(m)", "lax.sort(m, dimension=0)", "lax.sort((a3, m), num_keys=1)",
    "lax.sort(np.array([3, 1]))",
    "lax.sort([a3, a3 * -1], num_keys=2, dimension=0)", "lax.sort(c)", "lax.sort(h)",
    "lax.sort(jnp.array([3., jnp.nan, -0., 0., -jnp.inf]))", "lax.sort_key_val(a3, m)",
    "lax.top_k(m, 2)", "lax.top_k(m, 2, axis=0)", "lax.top_k(a3, 3)", "lax.top_k(b, 2)",
    "lax.top_k(m, 0)", "lax.approx_max_k(m, 2)", "lax.approx_min_k(m, 2)",
    "lax.approx_max_k(m, 2, reduction_dimension=0)",
]  # fmt: skip
PRODUCTS = [
    "lax.dot(f, g)", "lax.dot(m, n)", "lax.dot(f, m)", "lax.dot(n.T, m.T)", "lax.dot(i, f)",
    "lax.dot(m, m, dimension_numbers=(((1,), (1,)), ((), ())))", "lax.dot(u, i)", "lax.dot(h, f)",
    "lax.dot(h, h, preferred_element_type=jnp.float32)",
    "lax.dot(u, u, preferred_element_type=jnp.uint32)",
    "lax.dot(i, i, preferred_element_type=jnp.float32)", "lax.dot(c, f)", "lax.dot(b, b)",
    f"lax.dot_general(x, y, {NUMBERS})", "lax.dot_general(x, y, (([2], [1]), ([0], [0])))",
    "lax.dot_general(x, y, (((2,), (1,)), ((), ())))",
    "lax.dot_general(x, x, (((1,), (1,)), ((), ())))",
    "lax.dot_general(x, x, (((), ()), ((2, 0), (2, 0))))",
    "lax.dot_general(w, w, (((), ()), ((), ())))",
    "lax.dot_general(m, n, (((1,), (0,)), ((), ())), precision='highest')",
    "lax.dot_general(m, n, (((1,), (0,)), ((), ())), precision=('highest', 'default'))",
    "lax.dot_general(m, n, (((1,), (0,)), ((), ())), precision=lax.Precision.HIGH)",
    "lax.dot_general(m, n, (((1,), (0,)), ((), ())), preferred_element_type=jnp.bfloat16)",
    "lax.batch_matmul(x, y)", "lax.batch_matmul(m, n)",
    f"lax.ragged_dot(m, jnp.stack([n, n * 2, n * 3]), {GROUPS})",
    f"lax.ragged_dot(m, jnp.stack([n, n * 2, n * 3]), {GROUPS}, "
    "preferred_element_type=jnp.float32)",
    f"lax.ragged_dot_general(m, m, {GROUPS}, {RAGGED}((((0,), (0,)), ((), ())), [0], []))",
    f"lax.ragged_dot_general(x, y, jnp.array([1, 1], jnp.int32), {RAGGED}({NUMBERS}, [0], []))",
    "lax.scaled_dot(x, y, lhs_scale=x[..., :2] * 0 + 2, rhs_scale=y[:, :1] * 0 + 3)",
    "lax.scaled_dot(m, n)",
]  # fmt: skip
GRADS = [
    *((f"lax.reduce_{n}(m, (1,))", "m") for n in ("sum", "prod", "max", "min")),
    *((f"lax.{n}(m, 1)", "m") for n in "cumsum cumprod cummax cummin cumlogsumexp".split()),
    ("lax.reduce(m, 0., lambda a, b: a + b, (0,))", "m"), ("lax.reduce(m, 2., lax.mul, (0,))", "m"),
    (f"lax.reduce((m, m), (0., 1.), {PAIR}, (1,))", "m"), ("lax.sort(m)", "m"),
    ("lax.sort_key_val(a3, m)", "m"), ("lax.top_k(m, 2)", "m"), ("lax.dot(m, n)", "m"),
    ("lax.dot(m, n)", "n"), (f"lax.dot_general(x, y, {NUMBERS})", "x"), ("lax.dot(f, f)", "f"),
    (f"lax.ragged_dot(m, jnp.stack([n, n * 2, n * 3]), {GROUPS})", "n"),
]  # fmt: skip
TABLE = REDUCTIONS + SORTS + PRODUCTS + GRADS
ERRORS = [
    "lax.reduce_sum(m, (-1,))", "lax.reduce_sum(m, (0, 0))", "lax.reduce_sum(m, (2,))",
    "lax.reduce_sum(m, 0)", "lax.reduce_sum(b, (0,))", "lax.reduce_prod(b, (0,))",
    "lax.reduce_or(f, (0,))", "lax.argmax(m, -1, jnp.int32)", "lax.argmin(m, 0, jnp.float32)",
    "lax.argmax(m, 2, jnp.int32)", "lax.argmax(jnp.zeros((0,)), 0, jnp.int32)",
    "lax.argmax(c, 0, jnp.int32)", "lax.cumsum(m, -1)", "lax.cumsum(m, 2)", "lax.cumsum(b)",
    "lax.cumsum(1.0)", "lax.reduce(m, i[0], lax.max, (0, 1))", "lax.reduce(m, 0., lax.add, (-1,))",
    "lax.reduce(m, f, lax.add, (1,))", "lax.reduce(f, 0., lambda a, b: a > b, (0,))",
    "lax.reduce(f, 0., lambda a, b: (a, b), (0,))", "lax.reduce((f, f), 0., lax.add, (0,))",
    "lax.dot(m, m)", "lax.dot(x, y)", "lax.dot(w, f)",
    "lax.dot_general(x, y, (((-1,), (1,)), ((0,), (0,))))",
    "lax.dot_general(x, y, (((2,), (0,)), ((0,), (0,))))",
    "lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,))))",
    "lax.dot(i, i, preferred_element_type=jnp.int8)", "lax.dot(m, n, precision='foo')",
    "lax.batch_matmul(f, f)", "lax.batch_matmul(x, y[0])", "lax.sort(())",
    "lax.sort(m, dimension=2)",
    "lax.sort((m, f))", "lax.sort((m, m), num_keys=3)", "lax.top_k(m, 7)", "lax.top_k(1.0, 1)",
    "lax.top_k(m, -1)", "lax.approx_max_k(i, 2)", "lax.approx_max_k(m, 9)",
]  # fmt: skip


@pytest.mark.parametrize("x64", (False, True), ids=("x32", "x64"))
@pytest.mark.parametrize("expression", TABLE, ids=str)
def test_same_as_jax(expression, x64):
    text = str(expression)
    narrow = "scaled_dot" in text or "bfloat16" in text or "(h" in text
    check(TABLE, expression, x64, 2e-2 if narrow else 1e-5 if "jnp.float32" in text else None)


@pytest.mark.parametrize("expression", ERRORS)
def test_same_errors(expression):
    check_error(expression)


def test_reduce_under_transformations():
    lax, jnp = toile.lax, toile.numpy
    x = jnp.asarray(np.random.RandomState(1).randn(4, 5).astype(np.float32))

    def total(row):
        return lax.reduce((row, row), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))

    sums, products = toile.vmap(total)(x)
    np.testing.assert_allclose(sums, np.asarray(x).sum(1), rtol=1e-5)
    np.testing.assert_allclose(products, np.asarray(x).prod(1), rtol=1e-5)
    jitted = toile.jit(total)(x[0])
    np.testing.assert_allclose(jitted[0], sums[0], rtol=1e-6)


def test_plain_computations_are_recognised():
    f = lambda x: toile.lax.reduce(x, 0.0, lambda a, b: b + a, (0,))
    assert "reduce_sum" in str(toile.make_jaxpr(f)(np.ones(3, np.float32)))
    assert float(f(np.ones(3, np.float32))) == 3.0


@pytest.mark.parametrize("shape, axes", [
    ((1,), (0,)), ((2, 3), (0,)), ((2, 3), (1,)), ((4, 7, 3), (1,)), ((11, 5), (0,)),
    ((3, 6), (0, 1)), ((2, 5, 3, 4), (1, 3)), ((0, 3), (0,)), ((0, 3), (1,)), ((3, 2), ()),
])
def test_gradient_of_a_product(shape, axes):
    """The products of all other elements, of lengths of all kinds, with zeros among them."""
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    x.reshape(-1)[::5] = 0
    others = np.ones(shape, np.float64)
    for i in np.ndindex(shape):
        place = tuple(slice(None) if a in axes else i[a] for a in range(len(shape)))
        rest = x.astype(np.float64)
        rest[i] = 1
        others[i] = np.prod(rest[place])
    f = lambda x: toile.numpy.prod(x, axis=axes)
    for g in (toile.grad(lambda x: f(x).sum()), toile.jit(toile.grad(lambda x: f(x).sum()))):
        np.testing.assert_allclose(g(x), others, rtol=1e-6)
    dx = np.random.RandomState(1).randn(*shape).astype(np.float32)
    dy = toile.jvp(f, (x,), (dx,))[1]
    np.testing.assert_allclose(dy, (others * dx).sum(axes), rtol=1e-5, atol=1e-6)


def test_a_small_cotangent_of_a_product():
    """It is multiplied last, so that partial products do not become subnormal."""
    x = np.array([1e-6] * 6 + [1e6] * 6, np.float32)
    gradient = toile.jit(toile.grad(lambda x: toile.numpy.prod(x) * 1e-30))(x)
    exact = np.prod(x.astype(np.float64)) / x.astype(np.float64) * 1e-30
    np.testing.assert_allclose(gradient, exact, rtol=1e-6)
