"""What every test shares: which tests run where, and how hypothesis behaves.

Tests marked `slow` run with TOILE_TEST_ALL=1, tests marked `gpu` where CuPy sees a device.
Hypothesis is derandomized, so that a failure on one machine is a failure on all.
"""

import os

import hypothesis
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the oracle reads it when it is first imported

TEST_ALL = os.environ.get("TOILE_TEST_ALL", "0") not in ("", "0")

hypothesis.settings.register_profile(
    "toile",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("toile")


def has_gpu() -> bool:
    """Whether CuPy is installed and sees a device."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, a driver too old: all mean that there is no GPU to use
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this run or this machine is not meant to do."""
    gpu = has_gpu() if any("gpu" in item.keywords for item in items) else False
    for item in items:
        if "slow" in item.keywords and not TEST_ALL:
            item.add_marker(pytest.mark.skip(reason="slow: TOILE_TEST_ALL=1 (make test-all)"))
        if "gpu" in item.keywords and not gpu:
            item.add_marker(pytest.mark.skip(reason="gpu: CuPy sees no device"))
