"""Compiled functions where a wrong result would be silent: equal to what runs one by one."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, nn

KEY = np.random.default_rng(0)
ROWS = np.arange(200)
TURN = np.roll(np.arange(1000), -1)


def numbers(*shape, dtype=np.float32):
    return KEY.integers(-8, 9, shape).astype(dtype)


def prefill(c, u, i):
    return toile.vmap(lambda c, u, i: lax.dynamic_update_slice(c, u, (i, 0)))(c, u, i)


def overlapping(x, s):
    window = lambda i: lax.dynamic_slice(x, (i, 0), (3, 64))
    return (toile.vmap(window)(s) ** 2).sum()


def turned(kind):
    return lambda c: lax.fori_loop(0, 3, lambda i, c: getattr(c.at[TURN], kind)(c), c)


def picked(x, i):
    return jnp.take_along_axis(x * 2, i[:, None], axis=1)


def chosen(logits, y):
    return jnp.take_along_axis(nn.log_softmax(logits), y[:, None], -1)


BYTES = lambda x: lax.bitcast_convert_type(x, np.uint8)
INDICES = np.array([0, 4, 5, -7], np.int32)
CASES = {
    # windows that are parts of a dense run, cut by columns between threads
    "updates of several rows": (
        prefill, np.zeros((2, 1000, 64), "f4"), numbers(2, 128, 64), np.array([3, 7])),
    "one long update": (
        prefill, np.zeros((1, 700, 128), "f4"), numbers(1, 300, 128), np.array([250])),
    "windows that overlap": (toile.grad(overlapping), numbers(1000, 64), np.arange(100) * 5),
    "windows within rows": (
        lambda x, u: x.at[ROWS, 2:10, :].add(u), numbers(300, 12, 64), numbers(200, 8, 64)),
    "windows within rows, set": (
        lambda x, u: x.at[ROWS, 2:10, :].set(u), numbers(300, 12, 64), numbers(200, 8, 64)),
    "rows": (lambda x, u: x.at[ROWS % 7].add(u), numbers(9, 256), numbers(200, 256)),
    # a carry that is scattered into itself
    "set into itself": (turned("set"), np.arange(1000, dtype="f4")),
    "added to itself": (turned("add"), np.arange(1000, dtype="f4")),
    "in a scan": (
        lambda c: lax.scan(lambda c, _: (c.at[TURN].set(c), c[0]), c, None, 3),
        np.arange(1000, dtype="f4")),
    # what is out of range, of dtypes without NaN
    **{f"picked {d}": (picked, abs(numbers(4, 5)).astype(d), INDICES)
       for d in ("int32", "uint8", "int8", "float32", "float16", "bfloat16")},
    "picked in a cross entropy": (chosen, numbers(4, 5).astype("bfloat16"), INDICES),
    # the bytes of a number
    "some bytes": (lambda x: BYTES(x)[1:3], np.uint32(0x04030201)),
    "one byte": (lambda x: BYTES(x)[3] + 1, np.uint32(0x04030201)),
    "bytes of many": (lambda x: BYTES(x)[1:, 2:], np.array([7, 0x04030201, 9], np.uint32)),
    # sums that float16 cannot hold, whatever is done with them in the same kernel
    **{f"overflow {name}": (f, np.full((48, 70), 100, "f2"), np.float16(0.001)) for name, f in {
        "of all": lambda x, t: lax.reduce_sum(x, (0, 1)) * t,
        "of negative ones": lambda x, t: lax.reduce_sum(-x, (0, 1)) * t,
        "converted": lambda x, t: lax.reduce_sum(x, (0, 1)).astype("f4"),
        "of rows": lambda x, t: x * (lax.reduce_sum(x * 16, (1,)) * t)[:, None],
        "of columns": lambda x, t: x * (lax.reduce_sum(x * 16, (0,)) * t),
    }.items()},
    # zeros with a sign
    "signs": (lambda x: 1 / jnp.sign(x), np.array([-0.0, 0.0, -2.0, 3.0, np.nan], "f4")),
    "rounded": (lambda x: 1 / lax.round(x), np.array([-0.3, 0.3, -0.0, 0.0, -1.5, 2.5], "f4")),
}


@pytest.mark.cpu
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_compiled_is_as_one_by_one(name, threads):
    function, *args = CASES[name]
    args = [jnp.asarray(a) for a in args]
    with toile.disable_jit():
        right = function(*args)
    with toile.threads(threads):
        found = toile.jit(lambda *a: function(*a))(*args)
    for a, b in zip(toile.tree.leaves(found), toile.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-2 if "entropy" in name else 1e-6)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def test_some_against_numpy():
    """Where the rules that run one by one could be wrong in the same way."""
    cache, update, start = (np.asarray(a) for a in CASES["updates of several rows"][1:])
    right = cache.copy()
    for k, at in enumerate(start):
        right[k, at:at + 128] = update[k]
    np.testing.assert_array_equal(toile.jit(prefill)(cache, update, start), right)
    x = np.arange(1000, dtype="f4")
    np.testing.assert_array_equal(toile.jit(turned("set"))(x), np.roll(x, 3))
    low = np.iinfo(np.int32).min
    ones = np.ones((4, 5), np.int32)
    np.testing.assert_array_equal(toile.jit(picked)(ones, INDICES).ravel(), [2, 2, low, low])
    assert np.signbit(lax.round(np.float32(-0.3))) and np.signbit(jnp.sign(np.float32(-0.0)))
