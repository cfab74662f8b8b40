"""Rows are selected from the operands of products; what a program computes stays the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.passes import product_rows
from toile.compiler.pipeline import optimize
from toile.primitives.families import Reshape

RANDOM = np.random.default_rng(0)
B, S, K, V = 4, 16, 32, 64


def whole(*shape):
    """Small whole numbers: their products and sums are exact."""
    return RANDOM.integers(-3, 4, shape).astype("f4")


X, Y, W, BIAS = whole(B, S, K), whole(B, S, V), whole(K, V), whole(V)
AT = np.array([3, -1, 0, 15])
AWAY = np.array([3, -17, 16, 2])
numbers = lambda: jnp.arange(B)
positive = lambda x: jnp.where(x > 0, x, 1)  # also where x is NaN


def rms(x):
    return x * lax.rsqrt((x * x).sum(-1, keepdims=True) + 1)


def attended(x, i):
    """Attention in one head, and a product with a vocabulary."""
    q, k, v = x, x[..., ::-1] * 2, x + 1
    scores = jnp.einsum("bqd,bkd->bqk", q, k)
    scores = jnp.where(jnp.tri(S, dtype=bool), scores, -jnp.inf)
    return (x + toile.nn.softmax(scores) @ v) @ W


def gathered(x, i, offset, sizes, **rest):
    """A gather from the products `x @ W`, with a batch axis."""
    names = lax.GatherDimensionNumbers(offset, (1,), (1,), (0,), (0,))
    return lax.gather(x @ W, i.reshape(B, -1, 1), names, sizes, **rest)


# name: function of `X` and an integer for each row of the batch
MOVED = {
    "last": lambda x, i: (x @ W)[:, -1],
    "few": lambda x, i: (x @ W)[:, 3:11:2],
    "half of the batch": lambda x, i: (x @ W)[1:3],
    "one": lambda x, i: (x @ W)[2, 5],
    "columns": lambda x, i: (x @ W)[..., 7],
    "at a number": lambda x, i: (x @ W)[:, i[0]],
    "dynamic slice": lambda x, i: lax.dynamic_slice(x @ W, (1, i[3], 5), (2, 3, V)),
    "at each length": lambda x, i: (x @ W)[numbers(), i],
    "several of each": lambda x, i: toile.vmap(
        lambda x, i: (x @ W)[jnp.stack([i, i - 1, i])])(x, i),
    "along an axis": lambda x, i: jnp.take_along_axis(x @ W, i[:, None, None], 1)[:, 0],
    "the same twice": lambda x, i: (x @ W)[:, jnp.stack([i[0], i[1], i[0]])],
    "a matrix of rows": lambda x, i: (x @ W)[:, i[:4].reshape(2, 2)],
    "mapped": lambda x, i: toile.vmap(lambda x, i: (x @ W)[i])(x, i),
    "taken": lambda x, i: jnp.take(x @ W, i, axis=1),
    "clipped": lambda x, i: jnp.take(x @ W, i, axis=1, mode="clip"),
    "filled with a number": lambda x, i: (x @ W).at[numbers(), i].get(mode="fill", fill_value=7),
    "filled, then compared": lambda x, i: positive((x @ W).at[numbers(), i].get(mode="fill")),
    "compared, then filled": lambda x, i: positive(x @ W).at[numbers(), i].get(mode="fill"),
    "narrow indices": lambda x, i: (x @ W).at[:, i.astype("int8")].get(mode="fill"),
    "a window of one row": lambda x, i: gathered(x, i, (1,), (1, 1, V)),
    "rows last": lambda x, i: gathered(x, jnp.stack([i, i, i]).T, (1,), (1, 1, V)),
    "bias and cap": lambda x, i: (jnp.tanh((x @ W + BIAS) / 8) * 8)[numbers(), i],
    "half precision": lambda x, i: (x.astype("bfloat16") @ W.astype("bfloat16"))[numbers(), i],
    "summed in single precision": lambda x, i: jnp.matmul(
        x.astype("float16"), W.astype("float16"), preferred_element_type="float32")[numbers(), i],
    "integers": lambda x, i: jnp.matmul(
        x.astype("int8"), W.astype("int8"), preferred_element_type="int32")[:, -1],
    "transposed before": lambda x, i: (x.swapaxes(0, 1) @ W)[i, numbers()],
    "transposed after": lambda x, i: (x @ W).transpose(2, 1, 0)[:, -1],
    "flattened": lambda x, i: (x.reshape(B * S, K) @ W)[5],
    "merged windows": lambda x, i: jnp.einsum("bsk,knd->bsnd", x, W.reshape(K, 8, 8)).reshape(
        B, S, V)[numbers(), i],
    "two products": lambda x, i: jnp.maximum(x @ W, 0)[numbers(), i] @ W.T,
    "a network": lambda x, i: (rms(jnp.maximum(rms(x) @ W, 0) @ W.T + x) @ W)[numbers(), i],
    "products with a batch": lambda x, i: jnp.einsum("bsk,bkv->bsv", x, Y[:, :S].reshape(
        B, 2 * S, 32)[:, :K])[numbers(), i],
    "matrices that are selected, too": lambda x, i: jnp.einsum(
        "bsk,skv->bsv", x, jnp.arange(S)[:, None, None] * W)[:, i[0]],
    "attention": lambda x, i: attended(x, i)[numbers(), i],
    "attention of the last": lambda x, i: attended(x, i)[:, -1],
    "joined and cut": lambda x, i: (jnp.concatenate([x[..., 8:], x[..., :8]], -1) @ W)[..., :48]
    [numbers(), i],
    "a broadcast array that others read": lambda x, i: (
        (x @ W + jnp.broadcast_to(BIAS, Y.shape))[numbers(), i],
        jnp.broadcast_to(BIAS, Y.shape) * 2),
    "in a loop": lambda x, i: lax.scan(
        lambda c, w: ((x * c @ w)[:, -1].sum() % 7, None), 1.0, jnp.stack([W, W]))[0],
}  # fmt: skip
STAYS = {
    "returned, too": lambda x, i: ((y := x @ W)[:, -1], y),
    "another reader": lambda x, i: (y := x @ W)[:, -1] + y.sum(1),
    "two selections": lambda x, i: (y := x @ W)[:, -1] + y[:, 0],
    "more than half": lambda x, i: (x @ W)[:, 1:],
    "more rows than there are": lambda x, i: (x @ W)[:, jnp.concatenate([i, i, i, i, i])],
    "elements": lambda x, i: (x @ W)[numbers(), i, i + 20],
    "a sum over rows": lambda x, i: (x @ W).cumsum(1)[:, -1],
    "sorted": lambda x, i: jnp.sort(x @ W, axis=1)[:, -1],
    "axes are merged": lambda x, i: (x @ W).reshape(B * S, V)[i],
    "different rows of shared factors": lambda x, i: jnp.einsum(
        "sk,bkv->bsv", x[0], jnp.stack([W] * B))[numbers(), i],
    "a summed axis": lambda x, i: jnp.einsum("bsk,kv->bv", x, W)[0],
    "tiny": lambda x, i: (x[:2, :2, :2] @ W[:2, :2])[:, -1],
    "no product": lambda x, i: rms(x)[:, -1],
    "nothing": lambda x, i: (x @ W)[:, :0],
}  # fmt: skip


def flops(program):
    """The work of all products in a Program and in its loops."""
    return sum((e.op.flops(*[a.aval for a in e.ins]) if e.op.name == "dot_general" else 0)
               + sum(map(flops, e.op.programs())) for e in program.equations)


def work(f, *args):
    """The work of the products of a function before and after the pass."""
    program = optimize(toile.make_jaxpr(f)(*args).jaxpr)  # with inlined calls
    bodies = [optimize(p) for e in program.equations for p in e.op.programs()]
    return flops(toile.make_jaxpr(f)(*args).jaxpr), flops(program) if not bodies else sum(
        map(flops, bodies))


def same(got, want):
    for a, b in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a, "f4"), np.asarray(b, "f4"), 2e-6, 2e-6)


@pytest.mark.parametrize("i", [AT, AWAY], ids=["inside", "outside"])
@pytest.mark.parametrize("name", [*MOVED, *STAYS])
def test_same_results(name, i):
    f = {**MOVED, **STAYS}[name]
    same(toile.jit(f)(X, i), f(jnp.asarray(X), jnp.asarray(i)))


@pytest.mark.parametrize("name", MOVED)
def test_selected_before_products(name):
    before, after = work(MOVED[name], X, AT)
    assert after <= (0.6 if "attention" in name else 0.5) * before


@pytest.mark.parametrize("name", STAYS)
def test_selected_after_products(name):
    before, after = work(STAYS[name], X, AT)
    assert after == before


@pytest.mark.parametrize("name", [n for n in MOVED if n not in ("integers", "half precision")])
def test_derivatives(name):
    def loss(x):
        return sum(jnp.square(y).sum() for y in toile.tree.leaves(MOVED[name](x / 4, AT)))

    got, want = (f(loss)(jnp.asarray(X)) for f in (lambda f: toile.jit(toile.grad(f)), toile.grad))
    np.testing.assert_allclose(got, want, 1e-3 if "summed in" in name else 1e-4, 1e-3)


def test_a_row_of_infinities_is_not_selected():
    x = X.copy()
    x[:, 4] = np.inf
    f = lambda x: (x @ W)[:, 5]
    np.testing.assert_array_equal(toile.jit(f)(x), f(jnp.asarray(X)))


def test_only_the_last_layer_reads_all_rows():
    """Work that remains: keys and values of all rows in two layers, and all of the first."""
    def layer(x):
        q, k, v = x @ W[:, :K], x @ W[:, K:], x @ (W[:, :K] + 1)
        y = toile.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)) @ v
        return x + jnp.tanh((x + y) @ W) @ W.T

    two = lambda x: (layer(layer(x)) @ W)[:, -1]
    one = 2 * B * S * K * (3 * K + 2 * S + 2 * V)
    few = 2 * B * K * (K + 2 * S + 3 * V)  # of the last row
    assert work(two, X) == (2 * one + 2 * B * S * K * V, one + 2 * 2 * B * S * K * K + few)


@pytest.mark.parametrize(("old", "new", "axes"), [
    ((4, 6, 5), (4, 30), [0, None, None]), ((4, 6, 5), (4, 2, 3, 5), [0, None, 3]),
    ((4, 1, 6), (4, 6), [0, None, 1]), ((6, 4), (4, 6), [None, None]), ((3, 3), (1, 3, 3), [1, 2]),
    ((2, 0), (0, 2), [None, None]), ((2, 2, 2), (4, 2), [None, None, 1]), ((7,), (1, 7), [1]),
])  # fmt: skip
def test_axes_that_stay_in_a_reshape(old, new, axes):
    op = Reshape(new)
    assert [op.moved_axis(old, d) for d in range(len(old))] == axes


STEPS = {
    "product": lambda x, w: x @ w,
    "bias": lambda x, w: x + w[0],
    "rows": lambda x, w: x * x.sum(-1, keepdims=True),
    "columns": lambda x, w: x - x.max(1, keepdims=True),
    "batch": lambda x, w: x + x.sum(0),
    "residual": lambda x, w: x + jnp.maximum(x @ w, 0),
    "transposed": lambda x, w: x.transpose(1, 0, 2),
    "swapped": lambda x, w: x.transpose(0, 2, 1) * 2,
    "heads": lambda x, w: x.reshape(*x.shape[:2], 2, -1).sum(2).repeat(2, -1),
    "split": lambda x, w: x.reshape(2, -1, *x.shape[1:]).reshape(x.shape),
    "scores": lambda x, w: jnp.einsum("bqd,bkd->bqk", x, x) @ x,
    "reversed": lambda x, w: jnp.concatenate([x[..., 4:], x[..., :4]], -1),
    "shared": lambda x, w: (x @ w) * (x[:1, :1] @ w),
}  # fmt: skip
SELECTIONS = {
    "slice": lambda x, i: x[:, 1:4],
    "stride": lambda x, i: x[::3, :, -1:],
    "dynamic": lambda x, i: lax.dynamic_slice(x, (i[0], i[1], i[2]), (8, 2, 8)),
    "rows": lambda x, i: x[jnp.arange(8), i],
    "other rows": lambda x, i: x[i, jnp.arange(8)],
    "columns": lambda x, i: x[..., i[:3]],
    "filled": lambda x, i: x.at[:, i[:4]].get(mode="fill", fill_value=-5),
    "mapped": lambda x, i: toile.vmap(lambda x, i: x[:, i])(x, i),
    "batch": lambda x, i: jnp.take(x, i[:2], axis=0),
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
       st.lists(st.sampled_from(sorted(SELECTIONS)), min_size=1, max_size=2),
       st.integers(0, 2**31))
def test_random_programs(steps, selections, seed):
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-1, 2, shape).astype("f8") for shape in ((8, 8, 8), (8, 8)))
    i = rng.integers(-10, 10, 8)

    def f(x, w, i):
        for name in steps:
            x = STEPS[name](x, w) % 5
        return [SELECTIONS[name](x, i) for name in selections]

    with pytest.MonkeyPatch.context() as patch, toile.enable_x64():
        patch.setattr(product_rows, "LEAST", 0)
        for a, b in zip(toile.jit(f)(x, w, i), f(*map(jnp.asarray, (x, w, i))), strict=True):
            np.testing.assert_array_equal(a, b)
