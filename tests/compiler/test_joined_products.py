"""Products in loops that share an operand, or that are added, become one product."""

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.closeness import nearly_equal
from toile import lax
from toile.compiler.passes import joined_products
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.engine.scoped_options import allow_excess_precision
from toile.platforms.gpu.target import TARGET
from toile.platforms.reference import Executable

TURNS, ROWS, WIDTH = 10, 8, 64


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=s).astype("f4") / 8).astype(dtype) for s in shapes]


def matrices(n, dtype="float32"):
    return arrays((ROWS, WIDTH), *[(WIDTH, WIDTH)] * n, dtype=dtype)


def gates(h, *ws):
    """Several functions of products of the carry."""
    def turn(h, _):
        return sum(jnp.tanh(h @ w + i) for i, w in enumerate(ws)), None

    return lax.scan(turn, h, None, length=TURNS)[0]


def added(h, *ws):
    """The sum of several products."""
    def turn(h, _):
        return jnp.tanh(sum(jnp.sin(h + i) @ w for i, w in enumerate(ws)) + h), None

    return lax.scan(turn, h, None, length=TURNS)[0]


def overlapping(h, u, v, w, a, b):
    """Two sums share one operand; one of them is stacked, not carried."""
    def turn(h, _):
        x, y, z = jnp.sin(h), jnp.cos(h), h * 0.5
        return jnp.tanh(x @ u + y @ v), y @ a + z @ b + h * 2

    return lax.scan(turn, h, None, length=TURNS)


def one_after_another(h, u, v, w, a):
    """The operands of a sum depend on another sum, with which it shares an operand."""
    def turn(h, _):
        x, y = jnp.sin(h), jnp.cos(h)
        z = jnp.tanh(x @ u + y @ v)
        return jnp.tanh(y @ w + z @ a), None

    return lax.scan(turn, h, None, length=TURNS)[0]


def three_sums(h, u, v, w, a, b):
    """The operands of the third sum cannot be adjacent, too."""
    def turn(h, _):
        x, y, z = jnp.sin(h), jnp.cos(h), h * 0.5
        return jnp.tanh(x @ u + y @ v), (y @ a + z @ b, jnp.tanh(x @ w + z @ u))

    return lax.scan(turn, h, None, length=TURNS)


def stacked_parts(h, u, v):
    """An operand of a joined product is a result, too."""
    def turn(h, _):
        x, y = jnp.sin(h), jnp.cos(h)
        return jnp.tanh(x @ u + y @ v), (x, y)

    return lax.scan(turn, h, None, length=TURNS, reverse=True)


def twice(h, u, v):
    """One operand occurs twice in a sum, and one product is read twice."""
    def turn(h, _):
        x = jnp.sin(h)
        p = x @ u
        return jnp.tanh(x @ u + x @ v + jnp.cos(h) @ v), p

    return lax.scan(turn, h, None, length=TURNS)


def uneven(h, u, v):
    """The parts have different sizes."""
    def turn(h, _):
        return jnp.tanh(jnp.sin(h[:, :40]) @ u[:40] + jnp.cos(h) @ v), jnp.sin(h @ u[:, :24]).sum()

    return lax.scan(turn, h, None, length=TURNS)


FUNCTIONS = {"gates": (gates, 3), "added": (added, 3), "overlapping": (overlapping, 5),
             "three sums": (three_sums, 5), "stacked parts": (stacked_parts, 2),
             "twice": (twice, 2), "uneven": (uneven, 2),
             "one after another": (one_after_another, 4)}


def loss(fun):
    return lambda *xs: sum((x * x).sum() for x in toile.tree.leaves(fun(*xs)))


def products(program):
    """How many products each scan contains."""
    return [sum(e.op.name == "dot_general" for e in e.op.program.equations)
            for e in program.equations if e.op.name == "scan"]


def optimized(fun, *args):
    return optimize(toile.make_jaxpr(fun)(*args).jaxpr, choose=TARGET.choose)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_stay_the_same(name):
    fun, n = FUNCTIONS[name]
    args = matrices(n)
    for f in (fun, toile.grad(loss(fun), tuple(range(n + 1)))):
        program = toile.make_jaxpr(f)(*args).jaxpr
        raws = [np.asarray(a) for a in args]
        wanted = Executable(program)(raws)
        for found in (toile.tree.leaves(toile.jit(f)(*args)),
                      Executable(optimized(f, *args))(raws)):
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "forward", "gradient"), [
    ("gates", [1], [1, 1]), ("added", [1], None), ("overlapping", [2], None),
    ("stacked parts", [1], None)])
def test_one_product_is_left_in_each_turn(name, forward, gradient):
    fun, n = FUNCTIONS[name]
    args = matrices(n)
    assert products(optimized(fun, *args)) == forward
    if gradient:
        found = optimized(toile.grad(loss(fun), tuple(range(n + 1))), *args)
        assert products(found) == gradient


@pytest.mark.parametrize(("cell", "outside"), [
    (nn.GRUCell, 3), (nn.LSTMCell, 3), (nn.OptimizedLSTMCell, 3), (nn.MGUCell, 3)])
def test_cells(cell, outside):
    """A turn has one product in each direction; weights' gradients are a few products."""
    network = nn.RNN(cell(WIDTH))
    (x,) = arrays((ROWS, TURNS, 48))
    params = network.init(toile.random.key(0), x)

    def loss(params, x):
        return (network.apply(params, x) ** 2).sum()

    f = toile.grad(loss, (0, 1))
    program = optimized(f, params, x)
    assert products(program) == [1, 1]
    assert sum(e.op.name == "dot_general" for e in program.equations) <= 4 + outside
    plan = planned(program, TARGET)
    turns = [len(s.body.steps) for s in plan.steps if hasattr(s, "trips")]
    assert turns[0] <= 2 and turns[1] <= 3
    want = toile.tree.leaves(f(params, x))
    for got, wanted in zip(toile.tree.leaves(toile.jit(f)(params, x)), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-4, atol=2e-5)


def test_products_with_one_operand_stay_apart_on_cpus():
    fun, n = FUNCTIONS["gates"]
    assert products(optimize(toile.make_jaxpr(fun)(*matrices(n)).jaxpr)) == [3]


def test_what_is_not_joined():
    """Short loops, small products, matrices that change, and results that would be copied."""
    h, u, v = matrices(2)

    def steps(n, width=WIDTH):
        def f(h, u, v):
            return lax.scan(lambda h, _: (jnp.tanh(h @ u) + jnp.sin(h @ v), None), h, None,
                            length=n)[0]
        return f, (h[:, :width], u[:width, :width], v[:width, :width])

    def changing(h, u, v):
        def turn(c, _):
            h, u = c
            return (jnp.tanh(h @ u) + jnp.sin(h @ v), u * 0.9), None
        return lax.scan(turn, (h, u), None, length=TURNS)[0]

    def returned(h, u, v):
        return lax.scan(lambda h, _: (h @ u, h @ v + jnp.tanh(h @ u)), h, None, length=TURNS)

    fewest = joined_products.FEWEST_TURNS
    for (f, args), count in [(steps(fewest), 1), (steps(fewest - 1), 2), (steps(TURNS, 32), 2),
                             ((changing, (h, u, v)), 2), ((returned, (h, u, v)), 2)]:
        assert products(optimized(f, *args)) == [count]


def test_narrow_floats_are_rounded_before_sums_on_demand():
    fun, n = FUNCTIONS["added"]
    args = matrices(n, "bfloat16")
    assert products(optimized(fun, *args)) == [1]
    with allow_excess_precision(False):
        assert products(optimized(fun, *args)) == [3]
        nearly_equal(toile.jit(fun)(*args), np.asarray(fun(*args)), ulps=8)


@pytest.mark.parametrize("dims", [(0, None), (0, 0)])
def test_mapped_loops(dims, batch=3):
    """Under vmap, matrices are shared or not."""
    h, u, v = matrices(2)
    hs = jnp.stack([h + i for i in range(batch)])
    w = jnp.stack([u + i / 16 for i in range(batch)]) if dims[1] == 0 else u
    f = toile.vmap(lambda h, w: gates(h, w, v), dims)
    want = [gates(hs[i], w[i] if dims[1] == 0 else w, v) for i in range(batch)]
    np.testing.assert_allclose(np.asarray(toile.jit(f)(hs, w)), np.stack(want), rtol=2e-4,
                               atol=2e-5)


def test_complex_products():
    h, u, v = (a.astype("complex64") * (1 + 0.5j) for a in matrices(2))

    def f(h, u, v):
        return lax.scan(lambda h, _: (jnp.sin(h) @ u + jnp.cos(h) @ v, h.sum()), h * 0.1, None,
                        length=TURNS)

    for got, want in zip(toile.jit(f)(h, u, v), f(h, u, v), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-3, atol=1e-4)
