"""jax_utils against flax's, on one device."""

import itertools

import numpy as np
import pytest

import toile
from toile import jax_utils
from toile import numpy as jnp

X = np.random.RandomState(0).normal(size=(2, 3, 4)).astype(np.float32)


def test_replicas():
    tree = {"a": jnp.ones((2, 3)), "b": 4, "c": np.arange(3.0)}
    copies = jax_utils.replicate(tree)
    assert toile.tree.map(jnp.shape, copies) == {"a": (1, 2, 3), "b": (1,), "c": (1, 3)}
    assert all(isinstance(x, toile.Array) for x in toile.tree.leaves(copies))
    back = jax_utils.unreplicate(copies)
    assert toile.tree.map(jnp.shape, back) == {"a": (2, 3), "b": (), "c": (3,)}
    assert int(jax_utils.unreplicate(jnp.int32(3))) == 3
    with pytest.raises(TypeError, match="not subscriptable"):  # as flax has it
        jax_utils.unreplicate(3)
    assert jax_utils.replicate(tree, devices=toile.devices())["a"].shape == (1, 2, 3)


def test_pmean_is_deprecated():
    with pytest.warns(DeprecationWarning, match="use toile.lax.pmean"):
        got = toile.vmap(lambda x: jax_utils.pmean(x, "i"), axis_name="i")(jnp.arange(4.0))
    assert got.tolist() == [1.5] * 4


def test_prefetch_to_device():
    taken = []

    def batches():
        for i in range(5):
            taken.append(i)
            yield {"x": np.full((1, 2), i)}

    it = jax_utils.prefetch_to_device(batches(), 2)
    first = next(it)
    assert isinstance(first["x"], toile.Array) and first["x"].tolist() == [[0, 0]]
    assert taken == [0, 1]
    assert [int(b["x"][0, 0]) for b in it] == [1, 2, 3, 4]
    assert list(jax_utils.prefetch_to_device(iter([]), 2)) == []


def test_partial_eval_by_shape():
    def fun(x, scale, *, offset):
        return {"known": jnp.arange(3) * scale, "unknown": x @ x.T + offset}

    got = jax_utils.partial_eval_by_shape(fun, [(4, 2)], 2, offset=1.0)
    assert got["known"].tolist() == [0, 2, 4]
    assert (got["unknown"].shape, got["unknown"].dtype) == ((4, 4), jnp.float32)
    got = jax_utils.partial_eval_by_shape(lambda x, y: x + y, [((3,), jnp.int32), (3,)])
    assert (got.shape, got.dtype) == ((3,), jnp.float32)
    got = jax_utils.partial_eval_by_shape(lambda x: x, [((2,), jnp.int8)])
    assert got.dtype == jnp.int8


CASES = [
    *((axis, False) for axis in [(0,), 1, (2,), (1, 0), (2, 1), (0, 1, 2)]),
    *((axis, True) for axis in [(1,), (2, 0)]),
]


@pytest.mark.parametrize(("axis", "keepdims"), CASES)
def test_scan_in_dim(axis, keepdims):
    axes = (axis,) if isinstance(axis, int) else axis

    def body(carry, x):
        carry = carry + x.sum()
        return carry, x * carry

    total, ys = jax_utils.scan_in_dim(body, 0.0, X, axis=axis, keepdims=keepdims)
    expected, running = np.zeros_like(X), 0.0
    for place in itertools.product(*(range(X.shape[a]) for a in axes)):
        where = tuple(place[axes.index(a)] if a in axes else slice(None) for a in range(X.ndim))
        running += X[where].sum()
        expected[where] = X[where] * running
    np.testing.assert_allclose(ys, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, X.sum(), rtol=1e-4, atol=1e-5)


def test_scan_in_dim_unrolls_the_innermost_loop():
    seen = []

    def body(carry, x):
        seen.append(1)
        return carry + x, None

    toile.make_jaxpr(lambda x: jax_utils.scan_in_dim(body, 0.0, x, axis=(0, 1), unroll=3)[0])(
        np.ones((2, 3))
    )
    got, _ = jax_utils.scan_in_dim(body, 0.0, np.ones((2, 3)), axis=(0, 1), unroll=3)
    assert float(got) == 6.0 and seen


@pytest.mark.parametrize("batch", [1, 4, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, jnp.bfloat16])
def test_pad_shard_unpad(batch, dtype):
    shapes = []

    @toile.pmap
    def forward(x, y):
        shapes.append(x.shape)
        return x + y["y"]

    wrapped = jax_utils.pad_shard_unpad(forward, static_argnums=())
    x = np.arange(2 * batch).reshape(batch, 2).astype(dtype)
    got = wrapped(x, {"y": 3 * x}, min_device_batch=5)
    assert isinstance(got, np.ndarray) and got.dtype == x.dtype
    np.testing.assert_array_equal(got, 4 * x)
    assert shapes == [(max(batch, 5), 2)]


def test_pad_shard_unpad_passes_static_arguments():
    def forward(params, x, *, flag):
        assert params == 5 and flag == "on"
        return (x.shape, x.sum())

    wrapped = jax_utils.pad_shard_unpad(forward, static_argnames=("flag",), static_return=True)
    assert wrapped(5, np.ones(3), flag="on", min_device_batch=4) == ((1, 4), 3.0)
    with pytest.raises(AssertionError, match="Inconsistent batch-sizes"):
        wrapped(5, {"a": np.ones(3), "b": np.ones(2)}, flag="on")


def test_the_names_are_those_of_flax():
    from flax import jax_utils as theirs

    own = [
        name for name, value in vars(theirs).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == theirs.__name__
    ]  # fmt: skip
    assert sorted(own) == sorted(jax_utils.__all__)
