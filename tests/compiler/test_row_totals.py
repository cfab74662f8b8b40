"""Sums over rows that a kernel takes while it works on the rows: one pass over memory."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.compiler.test_fusion import assembled, kinds, layer_norm, normal, planned
from toile import lax
from toile.platforms import reference


def backward(x, scale, bias, ct):
    y, pullback = toile.vjp(layer_norm, x, scale, bias)
    return y, *pullback(ct)


def derived(x):
    """A total of what the second pass makes, one of what is read, and rows."""
    n = x - x.max(-1, keepdims=True)
    rows, axes = n * n.sum(-1, keepdims=True), tuple(range(x.ndim - 1))
    return rows, rows.sum(axes), x.sum(axes)


def columns_first(x):
    """What is summed over rows first, and then within them."""
    y = x * x + 1
    return y.sum(0), y - y.sum(-1, keepdims=True)


def other_kinds(x):
    y = x - x.sum(-1, keepdims=True)
    return y, y.max(0), x.min(0), jnp.square(y).sum(0)


def used_after(x):
    """Totals are known when the kernel has ended: what uses them comes later."""
    y = x / (1 + jnp.abs(x).sum(-1, keepdims=True))
    mean = y.mean(0)
    return y, y - mean, jnp.square(mean)


def in_a_whole(x):
    y = x - x.mean(-1, keepdims=True)
    return y, jnp.concatenate([y.sum(0), x.sum(0)]), y.sum(0).reshape(2, -1).T


SHAPES = [(8, 4), (9, 34), (130, 16), (700, 6), (2049, 2)]
CASES = [(f, shape) for f in (columns_first, other_kinds, used_after, in_a_whole, derived)
         for shape in SHAPES] + [(derived, (3, 5, 64)), (derived, (2, 7, 3, 8))]


def agrees(f, *args, threads=2):
    program, plan, raws = planned(f, *args, threads=threads)
    got, want = assembled(program, plan)(raws), reference.run(program, raws)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        nearly_equal(a, b, f"result {i}", ulps=64)
    return plan


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("f", "shape"), CASES)
def test_results(f, shape, threads):
    agrees(f, normal(*shape), threads=threads)


@pytest.mark.parametrize("dtype", ["f8", "i4", ml_dtypes.bfloat16, "f2"])
def test_dtypes(dtype):
    x = (4 * normal(40, 12)).astype(dtype)
    program, plan, raws = planned(lambda x: (x - x.max(-1, keepdims=True), x.sum(0)), x)
    assert kinds(plan)[0] == ["row"]
    results = assembled(program, plan)(raws), reference.run(program, raws)
    for got, want in zip(*results, strict=True):
        nearly_equal(got, want)


def test_layer_norm_is_one_pass_over_memory():
    args = normal(96, 64), normal(64), normal(64), normal(96, 64)
    plan = agrees(backward, *args)
    assert kinds(plan) == [["row"], ["row", "row"]]  # the second adds the totals of the chunks


def test_one_kernel_for_each_kind():
    for f in (derived, columns_first, other_kinds):
        _, plan, _ = planned(f, normal(64, 16))
        assert [k for region in kinds(plan) for k in region].count("column") == 0
        assert len(kinds(plan)[0]) == 1


def test_long_rows_and_few_rows_have_kernels_of_their_own():
    for shape in ((64, 1 << 14), (4, 64)):
        _, plan, _ = planned(derived, normal(*shape))
        assert "column" in [k for region in kinds(plan) for k in region]


def test_totals_of_many_rows_stay_accurate():
    x = np.random.RandomState(0).rand(1 << 17, 4).astype(np.float32)
    total = toile.jit(lambda x: (x - x.max(-1, keepdims=True), x.sum(0)))(x)[1]
    exact = x.astype(np.float64).sum(0)
    assert np.abs(np.asarray(total) - exact).max() <= 4e-6 * exact.max()


def test_bits_do_not_depend_on_timing():
    x = jnp.asarray(normal(3000, 32))
    f = toile.jit(derived)
    first = [np.asarray(r).tobytes() for r in f(x)]
    for _ in range(20):
        assert [np.asarray(r).tobytes() for r in f(x)] == first


def test_a_sum_between_two_groups_is_left_where_it_is():
    """The rows need what the sum over rows gives: no group can have both."""
    f = lambda x: (x - x.sum(0)) / jnp.abs(x - x.sum(0)).sum(-1, keepdims=True)
    agrees(f, normal(64, 16))
    agrees(lambda x: lax.rsqrt(x.sum(0) ** 2 + 1) * (x - x.max(-1, keepdims=True)), normal(64, 16))
