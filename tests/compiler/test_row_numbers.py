"""Row numbers in index vectors become a batch; products read transposed are computed transposed."""

import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.passes.flat_indices import flatten_indices
from toile.compiler.passes.moves import cancel_moves
from toile.compiler.passes.row_numbers import batch_by_row_numbers
from toile.compiler.pipeline import PASSES, optimize
from toile.primitives.contractions import DotGeneral
from toile.primitives.gathers import Gather, Scatter

N, WIDTH = 6, 5
RANDOM = np.random.default_rng(3)
X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype("f4")
CUBE = np.random.default_rng(1).normal(size=(N, 4, WIDTH)).astype("f4")
PICKS = np.array([3, -1, 0, 4, 2, 2])
rows = lambda: jnp.arange(N)


def lowered(f, *args):
    """The gathers and scatters of a function, before batches become parts of the indices, and after
    all passes."""
    program = toile.make_jaxpr(f)(*args).jaxpr
    batched = program
    for step in PASSES:
        if step is not flatten_indices:
            batched = step(batched)
    return [[e.op for e in p.equations if isinstance(e.op, Gather | Scatter)]
            for p in (batch_by_row_numbers(batched), optimize(program))]


# name: function of an array and indices, the operand, how many of its axes are a batch afterwards
CASES = {
    "labels": (lambda x, i: x[rows(), i], X, 1),
    "actions of rows and columns": (lambda x, i: x[rows(), i % 4, i], CUBE, 1),
    "a row of each": (lambda x, i: x[rows(), i % 4], CUBE, 1),
    "rows last": (lambda x, i: x.T[i, rows()], X, 1),
    "two axes": (lambda x, i: x[rows()[:, None], jnp.arange(4), i[:, None]], CUBE, 2),
    "a part of the rows": (lambda x, i: x[jnp.arange(4), i[:4]], X, 0),
    "shifted": (lambda x, i: x[rows() - 1, i], X, 0),
    "reversed": (lambda x, i: x[rows()[::-1], i], X, 0),
    "a diagonal": (lambda x, i: x[:, :5][jnp.arange(5), jnp.arange(5)], CUBE[:5, 0], 1),
    "no numbers": (lambda x, i: x[i, i], X, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_gathers_and_their_gradients(name):
    f, x, batch = CASES[name]
    gradient = toile.grad(lambda x, i: (jnp.sin(f(x, i)) ** 2).sum())
    for function in (f, gradient):
        got = toile.jit(function)(x, PICKS)
        np.testing.assert_allclose(got, function(jnp.asarray(x), jnp.asarray(PICKS)), 2e-6, 1e-7)
    ops, _ = lowered(f, x, PICKS)
    assert [len(op.dimension_numbers.operand_batching_dims) for op in ops] == [batch]


@pytest.mark.parametrize("mode", ["promise_in_bounds", "clip", "drop"])
@pytest.mark.parametrize("method", ["set", "add", "multiply", "min"])
def test_scatters(method, mode):
    def f(x, i, u):
        return getattr(x.at[rows(), i], method)(u, mode=mode)

    picks = PICKS if mode == "promise_in_bounds" else np.array([3, -1, 9, 4, -20, 2])
    update = np.arange(N, dtype="f4")
    got = toile.jit(f)(X, picks, update)
    np.testing.assert_array_equal(got, f(jnp.asarray(X), jnp.asarray(picks), jnp.asarray(update)))
    ops, _ = lowered(f, X, picks, update)
    assert [op.unique_indices for op in ops] == [True]


def test_the_gradient_of_labels_is_compared_with_a_count():
    """Nothing is scattered if the gradient is read by an elementwise operation."""
    def f(x, i):
        return toile.grad(lambda x: x[rows(), i].sum())(x) * jnp.exp(x)

    _, left = lowered(f, X, PICKS)
    assert not left
    want = np.zeros_like(X)
    want[np.arange(N), PICKS] = np.exp(X)[np.arange(N), PICKS]
    np.testing.assert_allclose(toile.jit(f)(X, PICKS), want, 1e-6)


def test_counts_that_wrap_around_are_no_row_numbers():
    x = np.arange(600, dtype="f4").reshape(300, 2)
    f = lambda x: x[lax.iota("uint8", 300), jnp.zeros(300, int)]
    ops, _ = lowered(f, x)
    assert [len(op.dimension_numbers.operand_batching_dims) for op in ops] == [0]
    np.testing.assert_array_equal(toile.jit(f)(x), f(jnp.asarray(x)))


def test_a_wide_part_is_no_row_number():
    x, ones = RANDOM.normal(size=(5, 5, 5)).astype("f4"), jnp.ones((5, 1), jnp.int32)

    def f(x):
        count = lax.broadcasted_iota(jnp.int32, (5, 2), 0)
        index = lax.concatenate([count, jnp.zeros((5, 0), jnp.int32), ones], 1)
        numbers = lax.GatherDimensionNumbers((), (0, 1, 2), (0, 1, 2))
        return lax.gather(x, index, numbers, (1, 1, 1), mode="clip")

    np.testing.assert_array_equal(toile.jit(f)(x), f(jnp.asarray(x)))


def test_a_count_along_the_vectors_is_no_row_number():
    def f(x, i, u):
        zeros = lax.broadcasted_iota(jnp.int32, (5, 1), 1)
        numbers = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
        return lax.scatter_add(x, lax.concatenate([zeros, i[:, None]], 1), u, numbers)

    args = np.zeros((2, 9), "f4"), np.array([3, 3, 3, 7, 3], "i4"), np.arange(5, dtype="f4")
    np.testing.assert_array_equal(toile.jit(f)(*args), f(*map(jnp.asarray, args)))
    ops, _ = lowered(f, *args)
    assert [op.unique_indices for op in ops] == [False]


# ---- products


@pytest.mark.parametrize("labels", ["ab,bc->ac", "nab,nbc->nac", "abk,kcd->abcd", "nabk,nkc->nabc",
                                    "abk,kcd->acbd", "nk,nk->n", "ak,k->a", "nak,nkb->anb"])
def test_swapped_sides(labels):
    operands, out = labels.split("->")
    left, right = operands.split(",")
    op = DotGeneral(left, right, out)
    size = dict(zip("abcdkn", (2, 3, 4, 5, 6, 7), strict=True))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, [size[c] for c in side]).astype("f4") for side in (left, right))
    swaps = 0
    for perm in itertools.permutations(range(len(out))):
        swapped = op.with_swapped_sides(perm)
        if swapped is not None:
            swaps += 1
            want = op.eager(np, x, y).transpose(perm)
            np.testing.assert_array_equal(swapped.eager(np, x, y), want)
    sides = [(c in left, c in right) for c in out]
    apart = [k for k, _ in itertools.groupby(sides)]
    assert swaps == (apart[-2:] == [(True, False), (False, True)] and len(apart) < 4)


def test_transposed_products():
    def f(x, w):
        return toile.vmap(lambda w: jnp.tanh(x @ w))(w)

    x, w = X, np.random.default_rng(2).normal(size=(3, WIDTH)).astype("f4")
    program = optimize(toile.make_jaxpr(f)(x, w).jaxpr)
    assert not any(e.op.rearranges for e in program.equations)
    np.testing.assert_allclose(toile.jit(f)(x, w), np.tanh(w @ x.T), 1e-6)


def test_a_product_that_is_read_both_ways_is_computed_once():
    def f(x, y):
        z = x @ y
        return z, jnp.exp(z.T)

    program = cancel_moves(optimize(toile.make_jaxpr(f)(X, X.T).jaxpr))
    assert sum(isinstance(e.op, DotGeneral) for e in program.equations) == 1
