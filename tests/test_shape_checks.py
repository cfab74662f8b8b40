"""Operands of a loss that are broadcast against each other: what is reported, and what is not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import benchmarks.zoo
import toile
import toile.numpy as jnp
from benchmarks.operation_cells import library
from toile import lax, linen, nn, optim
from toile.engine import broadcasts
from toile.errors import BroadcastWarning

N = 5
X, Y, COLUMN = jnp.ones((N, 3)), jnp.arange(N * 1.0), jnp.arange(N * 1.0).reshape(N, 1)
W, V = jnp.ones((3, 1)), jnp.arange(N * 1.0)
PAIRS = jnp.ones((2, N, 1)), jnp.ones((2, N))


@pytest.fixture(autouse=True)
def unreported():
    broadcasts.forget_reports()


def reports(run) -> list[str]:
    """The warnings of a program; the same program raises an error while the check is on."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    assert all(w.category is BroadcastWarning and w.filename == __file__ for w in seen)
    with toile.checks("shapes"):
        if seen:
            with pytest.raises(toile.errors.ShapeError, match="broadcast against each other"):
                run()
        else:
            run()
    return [str(w.message) for w in seen]


def mlp(params, x):
    return jnp.tanh(x @ params) @ jnp.ones((1, 1))


# Losses of W or V in which (N, 1) and (N,) meet.
MISTAKES = {
    "mean": (lambda w: jnp.mean((X @ w - Y) ** 2), W),
    "sum of absolute values": (lambda w: jnp.sum(jnp.abs(Y - X @ w)), W),
    "norm": (lambda w: jnp.linalg.norm(X @ w - Y), W),
    "two reductions": (lambda w: jnp.mean(jnp.sum((X @ w - Y) ** 2, axis=1)), W),
    "method": (lambda w: ((mlp(w, X) - Y) ** 2).mean(), W),
    "mask": (lambda w: jnp.sum(jnp.where(Y > 1, X @ w, 0.0)), W),
    "mask of a sum": (lambda w: jnp.sum(X @ w, where=Y > 1), W),
    "weights": (lambda w: jnp.mean(((X @ w) - COLUMN) ** 2 * Y), W),
    "targets in a column": (lambda v: jnp.mean((v * 2 - COLUMN) ** 2), V),
    "parameter": (lambda w: jnp.mean(w - Y), COLUMN),
    "several operations": (lambda w: 0.1 * jnp.mean(jnp.log1p((X @ w - Y) ** 2)) + jnp.sum(w), W),
    "ravel": (lambda w: jnp.mean((X @ w - Y).ravel() ** 2), W),
    "custom derivative": (lambda w: jnp.mean(nn.relu(X @ w - Y)), W),
    "checkpoint": (lambda w: jnp.mean((toile.checkpoint(mlp)(w, X) - Y) ** 2), W),
    "NumPy": (lambda w: jnp.mean((X @ w - np.ones(N, np.float32)) ** 2), W),
    "power": (lambda w: jnp.mean(jnp.power(X @ w - jnp.asarray(Y), 2)), W),
    "logaddexp": (lambda w: jnp.mean(jnp.logaddexp(X @ w, Y)), W),
}
HOW = {
    "grad": lambda f, x: toile.grad(f)(x),
    "jit of grad": lambda f, x: toile.jit(toile.value_and_grad(f))(x),
    "grad of jit": lambda f, x: toile.grad(toile.jit(f))(x),
    "has_aux": lambda f, x: toile.value_and_grad(lambda y: (f(y), y), has_aux=True)(x),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name, how):
    loss, x = MISTAKES[name]
    (text,) = reports(lambda: HOW[how](loss, x))
    first = text.splitlines()[0]
    assert "(5, 1)" in first and "(5,)" in first and "to (5, 5) in a loss" in first
    assert "squeeze(-1)" in first and "reshape" in first
    assert f"{__file__}:" in text and "lambda" in text.splitlines()[2]
    assert len(text.splitlines()) <= 15


def test_a_function_that_was_traced_before():
    loss = toile.jit(lambda w: jnp.mean((X @ w - Y) ** 2))
    assert reports(lambda: loss(W)) == []
    assert len(reports(lambda: toile.grad(loss)(W))) == 1


def test_once_per_place():
    def loss(w):
        return jnp.mean((X @ w - Y) ** 2)

    assert len(reports(lambda: [toile.grad(loss)(W) for _ in range(6)])) == 1
    assert reports(lambda: None) == []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        toile.grad(loss)(W)
    assert not seen
    with toile.checks("shapes"):  # an error each time, with or without cached derivatives
        for _ in range(6):
            with pytest.raises(toile.errors.ShapeError):
                toile.grad(loss)(W)


def test_three_axes():
    def loss(a):
        return jnp.mean((a - jnp.ones((N, 4))) ** 2)

    (text,) = reports(lambda: toile.grad(loss)(jnp.ones((N, 1, 4))))
    assert "(5, 1, 4) and (5, 4)" in text and "(5, 5, 4)" in text


def test_the_module_is_named():
    class Head(linen.Module):
        @linen.compact
        def __call__(self, x, y):
            return jnp.mean((linen.Dense(1)(x) - y) ** 2)

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x, y):
            return Head(name="head")(x, y)

    variables = Net().init(toile.random.key(0), X, Y)
    (text,) = reports(lambda: toile.grad(lambda v: Net().apply(v, X, Y))(variables))
    assert "in module /head (Head)" in text


# ---------------------------------------------------------------------------- what is not reported


def softmax_attention(q):
    mask = jnp.tril(jnp.ones((4, 4), bool))
    scores = jnp.where(mask, q @ q.swapaxes(-1, -2), -1e9)
    return jnp.mean(nn.softmax(scores) @ q)


def layer_norm(x):
    mean = x.mean(-1, keepdims=True)
    return jnp.mean((x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6) * jnp.ones(3))


def squared_distances(x):
    """(N, 1) and (N,) meet on purpose, as in many kernels."""
    squares = jnp.sum(x**2, axis=1, keepdims=True)
    norms = jnp.sum(x**2, axis=1)
    return jnp.sum(jnp.exp(-(squares + norms - 2 * x @ x.T)))


def pairs_on_two_lines(v):
    rows = v[:, None]
    scaled = rows * 2.0
    return jnp.mean((scaled - v) ** 2)


def pairs_by_reshape(v):
    rows = jnp.reshape(v, (-1, 1))
    return jnp.sum(jnp.abs(rows - v))


def position_encoding(w):
    """Positions (T, 1) times T frequencies: the result is no sum over the loss's elements."""
    positions, frequencies = COLUMN, jnp.ones(N)
    return jnp.mean((jnp.sin(positions * frequencies) @ jnp.ones((N, 3))) @ w)


FINE = {
    "attention mask": (softmax_attention, jnp.ones((2, 4, 3))),
    "layer norm": (layer_norm, X),
    "layer norm of a square": (layer_norm, jnp.ones((3, 3))),
    "squared distances": (squared_distances, X),
    "outer difference": (lambda v: jnp.sum((v[:, None] - v[None, :]) ** 2), V),
    "outer difference of ranks": (lambda v: jnp.sum((v[:, None] - v) ** 2), V),
    "pairs on two lines": (pairs_on_two_lines, V),
    "pairs by reshape": (pairs_by_reshape, V),
    "position encoding": (position_encoding, W),
    "frequencies": (lambda f: jnp.mean(jnp.sin(COLUMN * f)), jnp.ones(7)),
    "bias": (lambda b: jnp.mean(X + b), jnp.ones(3)),
    "batch of one": (lambda w: jnp.mean((w - Y) ** 2), jnp.ones((1, 1))),
    "one target": (lambda w: jnp.mean((X @ w - Y[:1]) ** 2), W),
    "right shape": (lambda w: jnp.mean(((X @ w).squeeze(-1) - Y) ** 2), W),
    "columns": (lambda w: jnp.mean((X @ w - COLUMN) ** 2), W),
    "no reduction over it": (lambda w: ((X @ w) * Y)[0, 0], W),
    "product with it": (lambda w: jnp.mean((jnp.ones((N, 1)) * Y) @ X @ w), W),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", FINE)
def test_fine(name, how):
    loss, x = FINE[name]
    assert reports(lambda: [HOW[how](loss, x) for _ in range(2)]) == []


def test_outside_of_losses():
    assert reports(lambda: jnp.mean(X @ W - Y)) == []
    assert reports(lambda: toile.jit(lambda w: jnp.mean(X @ w - Y))(W)) == []
    assert reports(lambda: toile.vmap(lambda a: a * Y)(jnp.ones((2, N, 1)))) == []


@pytest.mark.parametrize("shapes", [
    ((4, 1), (1, 4)), ((4, 3), (3,)), ((4, 1), (3,)), ((4, 1), ()), ((4,), (4,)), ((1, 1), (1,)),
    ((2, 4, 1), (4, 1)), ((1, 4), (4,)), ((8, 1, 4), (4,)),
])
def test_rule_allows(shapes):
    result = np.broadcast_shapes(*shapes)
    assert not broadcasts.shapes_conflict(*shapes, result)
    assert not broadcasts.shapes_conflict(*shapes[::-1], result)


@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4, 1, 3), (4, 3)), ((1, 4, 1), (4,))])
def test_rule_forbids(shapes):
    result = np.broadcast_shapes(*shapes)
    assert broadcasts.shapes_conflict(*shapes, result)
    assert broadcasts.shapes_conflict(*shapes[::-1], result)


@pytest.mark.cpu
@pytest.mark.parametrize("name", benchmarks.zoo.programs())
def test_programs_of_the_zoo(name):
    program = benchmarks.zoo.programs()[name]
    step, state, batch = program.make(library("toile"), **program.sizes["tiny"])
    with toile.checks("shapes"):
        toile.eval_shape(step, state, *batch)


LAYERS = {
    "Dense": (linen.Dense(3), (3, 3)),
    "LayerNorm": (linen.LayerNorm(), (3, 3)),
    "GroupNorm": (linen.GroupNorm(num_groups=1), (3, 3)),
    "RMSNorm": (linen.RMSNorm(), (3, 3)),
    "BatchNorm": (linen.BatchNorm(use_running_average=False), (3, 3)),
    "WeightNorm": (linen.WeightNorm(linen.Dense(1)), (3, 3)),
    "Conv": (linen.Conv(1, (1,)), (3, 3)),
    "MultiHeadDotProductAttention": (linen.MultiHeadDotProductAttention(1, qkv_features=3), (3, 3)),
    "RNN": (linen.RNN(linen.LSTMCell(3)), (3, 3, 3)),
    "GRU": (linen.RNN(linen.GRUCell(1)), (3, 3, 1)),
    "Bilinear": (linen.DenseGeneral((1, 3)), (3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    """All sizes are equal or 1, so that shapes conflict wherever they can."""
    layer, shape = LAYERS[name]
    variables = layer.init(toile.random.key(0), jnp.ones(shape))
    aux = [k for k in variables if k != "params"]

    def loss(params):
        out, _ = layer.apply({**variables, "params": params}, jnp.ones(shape), mutable=aux)
        return sum(jnp.mean(leaf) for leaf in toile.tree.leaves(out))

    with toile.checks("shapes"):
        toile.grad(loss)(variables["params"])


# ----------------------------------------------------------------------------------------- losses

P = jnp.full((N, 1), 0.5)
LOSSES = {
    "huber_loss": lambda: optim.huber_loss(P, Y),
    "log_cosh": lambda: optim.log_cosh(P, Y),
    "cosine_similarity": lambda: optim.cosine_similarity(P, Y),
    "cosine_distance": lambda: optim.cosine_distance(P, Y),
    "hinge_loss": lambda: optim.hinge_loss(P, Y),
    "sparsemax_loss": lambda: optim.sparsemax_loss(P, Y),
    "kl_divergence": lambda: optim.kl_divergence(P, Y),
    "kl_divergence_with_log_targets": lambda: optim.kl_divergence_with_log_targets(P, Y),
    "generalized_kl_divergence": lambda: optim.generalized_kl_divergence(P, Y),
    "sigmoid_binary_cross_entropy": lambda: optim.sigmoid_binary_cross_entropy(P, Y),
    "sigmoid_focal_loss": lambda: optim.sigmoid_focal_loss(P, Y),
    "softmax_cross_entropy": lambda: optim.softmax_cross_entropy(P, Y),
    "safe_softmax_cross_entropy": lambda: optim.safe_softmax_cross_entropy(P, Y),
    "poly_loss_cross_entropy": lambda: optim.poly_loss_cross_entropy(P, Y),
    "ranking_softmax_loss": lambda: optim.ranking_softmax_loss(P, Y),
    "triplet_margin_loss": lambda: optim.triplet_margin_loss(P, Y, P),
    "multiclass_hinge_loss": lambda: optim.multiclass_hinge_loss(X, jnp.zeros((N, 1), int)),
    "multiclass_perceptron_loss": lambda: optim.multiclass_perceptron_loss(
        X, jnp.zeros((N, 1), int)),
}
REFUSED = {
    "squared_error": lambda: optim.squared_error(P, Y),
    "l2_loss": lambda: optim.l2_loss(P, Y),
    "perceptron_loss": lambda: optim.perceptron_loss(P, Y),
    "multiclass_generalized_dice_loss": lambda: optim.multiclass_generalized_dice_loss(P, Y),
    "softmax_cross_entropy_with_integer_labels":
        lambda: optim.softmax_cross_entropy_with_integer_labels(X, jnp.zeros((N, 1), int)),
    "ntxent": lambda: optim.ntxent(X, jnp.zeros((N, 1), int)),
    "ctc_loss": lambda: optim.ctc_loss(jnp.ones((N, 4, 3)), jnp.ones((N, 4)), jnp.ones((N, 2), int),
                                       jnp.ones((N, 2, 1))),
}
# Losses that give the same result for (N, 1) and (N,), or that take no targets as arrays.
INDIFFERENT = {"dice_loss", "binary_dice_loss", "multiclass_sparsemax_loss", "convex_kl_divergence",
               "ctc_loss_with_forward_probs", "make_fenchel_young_loss", "smooth_labels"}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    (text,) = reports(LOSSES[name])
    assert text.count("(5") >= 3 and "squeeze" in text and f"{__file__}:" in text
    with toile.checks("shapes"), pytest.raises(toile.errors.ShapeError):
        toile.jit(LOSSES[name])()


@pytest.mark.parametrize("name", REFUSED)
def test_losses_that_refuse(name):
    with pytest.raises(ValueError):
        REFUSED[name]()


def test_all_losses_are_listed():
    assert {*LOSSES, *REFUSED} | INDIFFERENT == set(optim.losses.__all__)


def test_losses_broadcast_one_side():
    def run():
        optim.softmax_cross_entropy(X, jnp.ones(3))
        optim.huber_loss(X, jnp.ones(3))
        optim.huber_loss(X, 1.0)
        optim.cosine_similarity(X[None], X[:, None])
        optim.sigmoid_binary_cross_entropy(PAIRS[0][..., 0], PAIRS[1])

    assert reports(run) == []


def test_loops():
    """A loss in the body of a loop is not looked at."""
    loss = lambda w: lax.fori_loop(0, 2, lambda i, s: s + jnp.mean(X @ w - Y), 0.0)
    assert reports(lambda: toile.jvp(loss, (W,), (W,))) == []
