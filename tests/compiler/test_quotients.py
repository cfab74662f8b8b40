"""Divisions by one number along a row: products with its reciprocal, where that does not show."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from benchmarks import fused_operations, workloads
from tests.compiler.test_fusion import normal, planned
from toile.compiler.plan.nests import build
from toile.compiler.plan.quotients import reciprocal_products

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1e-38, 1e-30, 3.4e38, -3.4e38, 1.0, 3.0,
]


def products(f, *args):
    """How many divisions are products."""
    _, plan, _ = planned(f, *args)
    nests = [build(plan.fused, g, g.row_by_row(plan.target.limits)).nest for g in plan.fused.groups]
    return sum(len(reciprocal_products(n)) for n in nests)


def test_only_where_the_result_is_inexact_anyway():
    x, s = normal(64), np.float32(3)
    assert products(lambda x, s: x / s, x, s) == 0  # a result
    assert products(lambda x, s: jnp.floor(x / s * 2), x, s) == 0
    assert products(lambda x, s: (x / s) + 1, x, s) == 0
    assert products(lambda x, s: jnp.sqrt(x / s), x, s) == 1
    assert products(lambda x, s: jnp.exp(x) / s, x, s) == 1
    assert products(lambda x, s: 2 * (x / s) / (1 + jnp.sqrt(x)), x, s) == 1
    assert products(lambda x, y: jnp.sqrt(x / y), x, normal(64)) == 0  # one divisor each
    moments = lambda x, s: (0.9 * (x / s) + 0.1 * (x / (s + 1))) / (1 + jnp.sqrt(x))
    assert products(moments, x, s) == 2  # sums of products may be contracted anyway
    assert products(lambda x, s: (x / s - 1) / (1 + jnp.sqrt(x)), x, s) == 0  # may be exactly 0
    assert products(lambda x, s: (x / s + x / (s + 1)) / jnp.sqrt(x), x, s) == 0
    assert products(toile.nn.softmax, normal(8, 16)) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("divisor", SPECIAL)
def test_special_numbers(dtype, divisor):
    with toile.enable_x64(dtype is np.float64):
        extreme = np.finfo(dtype)
        more = [extreme.smallest_subnormal, extreme.tiny, extreme.max, -extreme.max]
        with np.errstate(all="ignore"):
            x = np.array(SPECIAL + more, dtype)
            want = np.sqrt(np.abs(x / dtype(divisor)))
        got = np.asarray(toile.jit(lambda x, s: jnp.sqrt(jnp.abs(x / s)))(x, dtype(divisor)))
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(all="ignore"):
            near = np.abs(got - want) <= 4 * np.spacing(want)
        assert (same | near).all(), (x[~(same | near)], got[~(same | near)], want[~(same | near)])


def test_quotients_are_within_two_ulp():
    random = np.random.RandomState(0)
    bits = random.randint(0, 2**32, 40_000, np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    for s in random.standard_normal(20).astype(np.float32) * np.float32(10) ** np.arange(-10, 10):
        got = np.asarray(toile.jit(lambda x, s, one: x / s * jnp.sqrt(one))(x, s, np.ones_like(x)))
        with np.errstate(all="ignore"):
            want = x.astype(np.float64) / np.float64(s)
        normal_range = (np.abs(want) > 1.2e-38) & (np.abs(want) < 3.4e38)
        error = np.abs(got.astype(np.float64) - want)[normal_range] / np.spacing(
            np.abs(want[normal_range]).astype(np.float32)).astype(np.float64)
        assert error.max() <= 2


def test_adam_is_as_exact_as_float32_allows():
    raw = fused_operations.inputs("adam", 1 << 16)
    step = jnp.asarray(fused_operations.STEP - 1, jnp.int32)
    got = toile.jit(fused_operations.jaxlike(workloads.library("toile"), "adam"))(*raw, step)
    assert max(fused_operations.errors("adam", raw, got)) <= 1.2e-7
