"""Functions exported with symbolic dimensions accept all sizes, and compute what they compute."""

import math

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import export, lax
from toile import linen as nn
from toile.export import InconclusiveDimensionOperation

KEY = toile.random.key(0)
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(4, 10)).astype("float32")
SEQUENCES = RNG.normal(size=(4, 6, 16)).astype("float32")
IMAGES = RNG.normal(size=(4, 8, 8, 3)).astype("float32")
TOKENS = RNG.integers(0, 20, (4, 6))
SIZES = (1, 2, 5, 17)


class Conv(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3))(x))
        x = nn.max_pool(nn.avg_pool(x, (2, 2), strides=(2, 2)), (2, 2), strides=(2, 2))
        return nn.log_softmax(nn.Dense(10)(x.reshape((x.shape[0], -1))))


MODULES = {
    "dense": (nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(3), nn.softmax]), VECTORS),
    "convolution": (Conv(), IMAGES),
    "batch norm": (nn.BatchNorm(use_running_average=True), VECTORS),
    "layer norm": (nn.LayerNorm(), SEQUENCES),
    "group norm": (nn.GroupNorm(num_groups=1), IMAGES),
    "attention": (nn.MultiHeadDotProductAttention(num_heads=4), SEQUENCES),
    "embedding": (nn.Embed(20, 8), TOKENS),
    "lstm": (nn.RNN(nn.LSTMCell(8)), SEQUENCES),
    "dropout": (nn.Dropout(0.5, deterministic=False), VECTORS),
}

FUNCTIONS = {
    "means": lambda x: (x.mean(), jnp.std(x, 0), x / x.shape[0], x * (1 / x.size),
                        x.sum() / (2 * x.shape[0] + 1), jnp.linalg.norm(x)),
    "shapes": lambda x: (jnp.concatenate([x, x[::-1]]), jnp.pad(x, ((1, 2), (0, 0))), x[-1],
                         x[:-1], x[1:], x[::2], x[::3], x.reshape(-1), x.reshape(2, -1),
                         jnp.tile(x, (2, 1)), jnp.repeat(x, 2, axis=0), jnp.roll(x, 1, 0),
                         x.T @ x, x @ x.T, jnp.broadcast_to(x, (3, *x.shape))),
    "sizes": lambda x: (jnp.arange(x.shape[0]), jnp.eye(x.shape[0]), jnp.tri(x.shape[0]),
                        jnp.zeros((x.shape[0] * 2 + 1, 3)), jnp.full((2,), x.shape[0])),
    "orders": lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0), jnp.argmax(x, 0), jnp.median(x, 0),
                         lax.top_k(x, 3), jnp.quantile(x, 0.3, axis=0)),
    "loops": lambda x: (lax.scan(lambda c, y: (c + y.sum(), c * y), 0.0, x),
                        lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], jnp.zeros(10))),
    "random": lambda x: (toile.random.normal(KEY, x.shape) + x,
                         toile.vmap(lambda k, y: y + toile.random.uniform(k))(
                             toile.random.split(KEY, x.shape[0]), x)),
    "derivatives": lambda x: (
        toile.grad(lambda w: jnp.mean((x @ w) ** 2))(jnp.ones((10, 3))),
        toile.vmap(toile.grad(lambda y: jnp.sum(jnp.sin(y) ** 2)))(x)),
    "quotients": lambda x: (jnp.ones(((x.shape[0] + 13) // x.shape[0],
                                      (x.shape[0] + 13) % x.shape[0], x.shape[0] // 4)),),
}

# Functions that compute with the size in Python, in ways of their own for size 1.
COUNTS = {
    "linspace": lambda x: jnp.linspace(0, 1, x.shape[0]),
    "half-open linspace": lambda x: jnp.linspace(0, 1, 2 * x.shape[0] + 3, endpoint=False),
    "geomspace": lambda x: jnp.geomspace(1, 10, x.shape[0]),
    "logspace": lambda x: jnp.logspace(1, 2, x.shape[0]),
    "windows": lambda x: [f(x.shape[0]) for f in (jnp.hanning, jnp.hamming, jnp.blackman,
                                                  jnp.bartlett)] + [jnp.kaiser(x.shape[0], 3.0)],
    "deviations": lambda x: (x.std(0, ddof=1), jnp.cov(x.T), x / float(x.shape[0] - 1)),
    "logarithm": lambda x: x * math.log(3 * x.shape[0] + 1) / math.sqrt(x.shape[0] + 2),
    "number of NumPy": lambda x: x * np.float32(x.shape[0] - 1),
}


def agree(f, example, sizes=SIZES):
    """One export with a free first axis; the results for each size are those of the function."""
    (b,) = export.symbolic_shape("b")
    f = toile.jit(f)
    spec = toile.ShapeDtypeStruct((b, *example.shape[1:]), example.dtype)
    g = export.deserialize(export.export(f)(spec).serialize())
    for n in sizes:
        x = np.take(example, np.arange(n) % len(example), axis=0)
        for got, want in zip(toile.tree.leaves(g.call(x)), toile.tree.leaves(f(x)), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(got, want, err_msg=f"size {n}")
    return g


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_module(name):
    module, x = MODULES[name]
    variables = module.init({"params": KEY, "dropout": KEY}, x)
    agree(lambda x: module.apply(variables, x, rngs={"dropout": KEY}), x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_function(name):
    agree(FUNCTIONS[name], VECTORS)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.filterwarnings("ignore")
def test_numbers_from_sizes(name):
    """Each function alone: no other one has computed the same numbers from the dimension."""
    agree(COUNTS[name], VECTORS, [n for n in SIZES if n > 1])


@pytest.mark.filterwarnings("ignore")
def test_gradients():
    """Loaded functions with a free axis are differentiable, and vjp() keeps the axis free."""
    f = toile.jit(lambda w, x: jnp.mean(toile.nn.relu(x @ w) ** 2))
    (b,) = export.symbolic_shape("b")
    w = jnp.ones((10, 3))
    g = export.deserialize(export.export(f)(
        w, toile.ShapeDtypeStruct((b, 10), "float32")).serialize())
    back = export.deserialize(g.vjp().serialize())
    for n in SIZES:
        x = np.resize(VECTORS, (n, 10))
        want = toile.jit(toile.grad(f))(w, x)
        np.testing.assert_array_equal(toile.jit(toile.grad(g.call))(w, x), want)
        np.testing.assert_allclose(back.call(w, x, jnp.float32(1.0))[0], want, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_two_dimensions_and_an_outer_export():
    """Several variables and expressions; a function that was exported is exported again."""
    inner = export.export(toile.jit(lambda x, y: jnp.concatenate([x, y]) @ jnp.ones(y.shape[1])))(
        *export.symbolic_args_specs((np.ones((4, 3), "f"), np.ones((2, 3), "f")),
                                    ("2*w, h", "w, h")))
    assert str(inner.out_avals[0].shape) == "(3*w,)"
    (n,) = export.symbolic_shape("n")
    outer = export.deserialize(export.export(toile.jit(
        lambda x: inner.call(jnp.concatenate([x, x]), x) / x.size))(
            toile.ShapeDtypeStruct((n, 5), "float32")).serialize())
    assert str(outer.out_avals[0].shape) == "(3*n,)"
    for size in SIZES:
        x = np.arange(size * 5, dtype="float32").reshape(size, 5)
        want = np.concatenate([x, x, x]).sum(1) / x.size
        np.testing.assert_allclose(outer.call(x), want, rtol=1e-6)


UNFIT = {
    "comparison": (lambda x: x if x.shape[0] > 5 else -x, "comparison 'b' > '5' is inconclusive"),
    "conversion": (lambda x: x + int(x.shape[0]), "context that requires a constant"),
    "loop": (lambda x: sum(x[i] for i in range(x.shape[0])), "context that requires a constant"),
    "constant": (lambda x: x + np.arange(x.shape[0]), "context that requires a constant"),
    "power": (lambda x: jnp.ones(x.shape[0] ** -1), "negative powers"),
    "root": (lambda x: x * np.cbrt(x.shape[0]), "context that requires a constant"),
}


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.filterwarnings("ignore")
def test_function_that_needs_a_constant(name):
    """Python that depends on the size is refused, with the operation or the expression."""
    f, message = UNFIT[name]
    (b,) = export.symbolic_shape("b")
    with pytest.raises((InconclusiveDimensionOperation, ValueError), match=message):
        export.export(toile.jit(f))(toile.ShapeDtypeStruct((b,), "float32"))


def test_sizes_that_are_too_small():
    """A slice that does not exist at some sizes is an error of the call at those sizes."""
    (b,) = export.symbolic_shape("b")
    g = export.export(toile.jit(lambda x: x[:5] * 2))(toile.ShapeDtypeStruct((b,), "float32"))
    assert g.call(jnp.arange(7.0)).shape == (5,)
    with pytest.raises(ValueError, match="needed sizes for which .*b = 3"):
        g.call(jnp.arange(3.0))


def test_constraints_decide():
    """Constraints make comparisons conclusive; calls that violate them are refused."""
    (b,) = export.symbolic_shape("b", constraints=["b >= 8", "mod(b, 4) == 0"])
    f = toile.jit(lambda x: (x[:5] if x.shape[0] > 5 else -x, x.reshape(4, -1)))
    g = export.deserialize(export.export(f)(toile.ShapeDtypeStruct((b,), "float32")).serialize())
    assert g.call(jnp.arange(12.0))[1].shape == (4, 3)
    for size, message in ((4, "b >= 8"), (13, "mod")):
        with pytest.raises(ValueError, match=f"symbolic shape constraint .*{message}"):
            g.call(jnp.arange(float(size)))


EXPRESSIONS = [
    ("a + b", "b + a"), ("a - b - a", "- b"), ("2*a*b + a*a", "2*a*b + a^2"), ("a*0 + 3", "3"),
    ("floordiv(2*a, 2)", "a"), ("mod(3*a, 3)", "0"), ("floordiv(a, 2)", "floordiv(a, 2)"),
    ("max(a, 1)", "a"), ("min(a, 1)", "1"), ("max(a, b)", "max(a, b)"), ("a + 1 - 1", "a"),
    ("floordiv(a*b, b)", "a"), ("floordiv(6*a + 4, 3)", "2*a + 1"),
    ("mod(a, 4) + 4*floordiv(a, 4)", "mod(a, 4) + 4*floordiv(a, 4)"),
]


@pytest.mark.parametrize(("text", "shown"), EXPRESSIONS)
def test_expressions(text, shown):
    """The normal form, whose text can be read again and has the value of the expression."""
    scope = export.SymbolicScope()
    (found,) = export.symbolic_shape(text, scope=scope)
    assert str(found) == shown
    (again,) = export.symbolic_shape(shown, scope=scope)
    assert found == again and str(again) == shown
    names = {"max": max, "min": min, "mod": lambda x, y: x % y, "floordiv": lambda x, y: x // y}
    for name in "ab":
        names[name] = int.__index__(scope.variable(name)) if name in text else 1
    assert int.__index__(found) == eval(text, names)


def test_bounds():
    """Comparisons that hold for all sizes have answers."""
    a, b = export.symbolic_shape("a, b", constraints=["a >= b + 3", "b <= 20"])
    assert a >= 1 and a > b and a - b >= 3 and not a < b and b < 21 and a + b > 4
    assert a * b >= 1 and a // 2 >= 1 and a % 4 < 4 and not a % 4 > 3
    for undecided in (lambda: a > 5, lambda: b > 1, lambda: a < 30, lambda: a - 2 * b > 0):
        with pytest.raises(InconclusiveDimensionOperation, match="inconclusive"):
            undecided()


BAD_SHAPES = ["a b", "(a", "a,,b", "3.5", "a/2", "a, _", "...", "a^-1", "f(a)", "1" * 30,
              "(" * 100, "a" * 20_000, "max(a)", "mod(a, 0)"]


@pytest.mark.parametrize("text", BAD_SHAPES)
def test_unreadable_shapes(text):
    with pytest.raises(ValueError, match="needed|too|symbolic"):
        export.symbolic_shape(text)


def test_arguments_that_do_not_fit():
    scope = export.SymbolicScope()
    specs = export.symbolic_args_specs((np.ones((6, 2), "f"), np.ones(3, "f")), ("2*a, _", "a"),
                                       scope=scope)
    g = export.export(toile.jit(lambda x, y: x.sum() + y.sum()))(*specs)
    ones = lambda *shape: np.ones(shape, "float32")
    for args, message in [
        ((ones(6), ones(3)), r"Rank mismatch for args\[0\]"),
        ((ones(6, 3), ones(3)), r"Shape mismatch for args\[0\].shape\[1\]"),
        ((ones(6, 2).astype("int32"), ones(3)), r"Dtype mismatch for args\[0\]"),
        ((ones(5, 2), ones(3)), "Division had remainder 1 when computing the value of 'a'"),
        ((ones(8, 2), ones(3)), r"Found inconsistency .*args\[1\].shape\[0\] \(= 3\)"),
        ((ones(0, 2), ones(0)), "Expected value >= 1 for dimension variable 'a'"),
        ((ones(6, 2),), "same pytree structure"),
    ]:
        with pytest.raises(ValueError, match=message):
            g.call(*args)
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes"):
        export.export(toile.jit(jnp.dot))(
            *[toile.ShapeDtypeStruct(export.symbolic_shape("n"), "float32") for _ in range(2)])
    with pytest.raises(ValueError, match="Cannot solve for values of dimension variables {'n'}"):
        export.export(toile.jit(jnp.sin))(
            toile.ShapeDtypeStruct(export.symbolic_shape("n*n"), "float32"))
