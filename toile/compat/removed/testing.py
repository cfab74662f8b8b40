"""Helpers of `jax.test_util` for tests, which JAX has removed from its public modules."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

import toile
from toile import tree_util
from toile.dtypes import canonicalize_dtype

_Case: Any
try:
    from absl.testing import parameterized

    _Case = parameterized.TestCase
except ModuleNotFoundError:  # programs that use its decorators have absl
    _Case = unittest.TestCase

__all__ = ["JaxTestCase", "JaxTestLoader", "check_close", "check_eq", "device_under_test",
           "skip_on_flag"]

JaxTestLoader = unittest.TestLoader
_TOLERANCE = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6,
              "float64": 1e-15, "complex128": 1e-15}


def _tolerance(x: Any, y: Any) -> float:
    return max(_TOLERANCE.get(str(np.asarray(z).dtype), 0.0) for z in (x, y))


def check_close(xs: Any, ys: Any, atol: float | None = None, rtol: float | None = None) -> None:
    """Assert that the leaves of two trees are nearly equal."""
    def check(x: Any, y: Any) -> None:
        default = _tolerance(x, y)
        np.testing.assert_allclose(
            np.asarray(x, dtype=np.result_type(x, np.float32)), np.asarray(y),
            atol=default if atol is None else atol, rtol=default if rtol is None else rtol)

    tree_util.tree_all(tree_util.tree_map(check, xs, ys))


def check_eq(xs: Any, ys: Any) -> None:
    """Assert that the leaves of two trees are equal."""
    tree_util.tree_map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)),
                       xs, ys)


def device_under_test() -> str:
    """"cpu" or "gpu"."""
    return toile.default_backend()


def skip_on_flag(flag_name: str, skip_value: Any) -> Any:
    """A decorator of tests that changes nothing; toile has no such flags."""
    return lambda test: test


class JaxTestCase(_Case):
    """A test case that compares arrays and trees."""

    def assertDtypesMatch(self, x: Any, y: Any, *, canonicalize_dtypes: bool = True) -> None:
        """Assert that two arrays have equal dtypes; without x64, float64 equals float32."""
        dtypes = [np.result_type(z) for z in (x, y)]
        if canonicalize_dtypes:
            dtypes = [canonicalize_dtype(dtype) for dtype in dtypes]
        self.assertEqual(*dtypes)

    def assertAllClose(self, x: Any, y: Any, check_dtypes: bool = True,
                       atol: float | None = None, rtol: float | None = None, *,
                       canonicalize_dtypes: bool = True, **_: Any) -> None:
        """Assert that two trees have nearly equal leaves, of equal dtypes by default."""
        check_close(x, y, atol=atol, rtol=rtol)
        if check_dtypes:
            for a, b in zip(*map(tree_util.tree_leaves, (x, y)), strict=True):
                self.assertDtypesMatch(a, b, canonicalize_dtypes=canonicalize_dtypes)

    def assertArraysEqual(self, x: Any, y: Any, check_dtypes: bool = True) -> None:
        """Assert that two arrays are equal."""
        check_eq(x, y)
        if check_dtypes:
            self.assertDtypesMatch(x, y)

    def assertArraysAllClose(self, x: Any, y: Any, check_dtypes: bool = True,
                             atol: float | None = None, rtol: float | None = None) -> None:
        """Assert that two arrays are nearly equal."""
        self.assertAllClose(x, y, check_dtypes=check_dtypes, atol=atol, rtol=rtol)
