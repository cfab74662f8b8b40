"""What every test shares: which tests run where, and how hypothesis behaves.

Tests marked `slow` run with TOILE_TEST_ALL=1, tests marked `gpu` where CuPy sees a device; of long
tables each day runs another part (tests/sampling.py). What is random, hypothesis included, follows
the seed of the run, which is the date (tests/seeds.py): machines agree on the same day, and
`TOILE_TEST_SEED=20261116 make test` repeats a run.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile

import hypothesis
import hypothesis.core
import pytest

from tests import sampling, seeds
from tests.golden import recorded
from tests.rewriting import pytest_sessionstart  # noqa: F401  a hook
from tests.sampling import (  # noqa: F401  hooks
    pytest_report_header,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

# Decided once, here: workers and processes that tests start find it in the environment.
os.environ[seeds.VARIABLE] = str(seeds.today())

# What workers make for each other, until the process that started them ends: compiled kernels.
if "TOILE_TEST_FOLDER" not in os.environ:
    os.environ["TOILE_TEST_FOLDER"] = tempfile.mkdtemp(prefix="toile-tests-")
    atexit.register(shutil.rmtree, os.environ["TOILE_TEST_FOLDER"], ignore_errors=True)

# Bytecode is kept even where the environment forbids it, as in many containers: tests start
# hundreds of processes, and each would compile toile first, and every worker all the tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the oracle reads it when it is first imported
os.environ.setdefault("TOILE_PLATFORM", "auto")  # a GPU where there is one

# Kernels of tests run once or twice: they are compiled without LLVM's passes, but in tests/compiler
# and when everything is tested.
os.environ.setdefault("TOILE_OPTIMIZE", "0")

# Plans are made anew, so that what tests change in the compiler shows.
os.environ.setdefault("TOILE_PLANS", "off")

# Every plan that a test makes is verified.
os.environ.setdefault("TOILE_DEBUG", "verify")

TEST_ALL = seeds.EVERYTHING

if TEST_ALL:
    os.environ["TOILE_OPTIMIZE"] = "1"

# Tests of more than a minute: they come first, so that no worker has one left when others are done.
LONG = ("test_random_program",)


def gpu_count() -> int:
    """How many devices CuPy sees; 0 if it is not installed."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, no driver, a driver too old: all mean that there is no GPU to use
        return 0


DEVICES = 0 if os.environ["TOILE_PLATFORM"] == "cpu" else gpu_count()
ON_GPU = DEVICES > 0

hypothesis.settings.register_profile(
    "toile",
    derandomize=False,  # else hypothesis ignores the seed where it sees that it runs in CI
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("toile")
hypothesis.core.global_force_seed = seeds.today()  # --hypothesis-seed, read later, comes first


# Folders of tests that speak of the CPU's compiler and of CPU devices.
OF_THE_CPU = ("tests/compiler/", "tests/parallel/", "tests/distributed/", "tests/gpu/")

if ON_GPU:
    # Products as exact as the oracle's, here and in processes that tests start; what DEFAULT means
    # is tested in tests/gpu.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")

    @pytest.fixture(autouse=True)
    def where_tests_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
        """On the GPU; tests of the CPU as if there were none."""
        import toile
        from toile.platforms.gpu import devices as gpu

        path = request.path.as_posix()
        of_gpu = request.node.get_closest_marker("gpu")
        of_cpu = not of_gpu and (request.node.get_closest_marker("cpu")
                                 or any(folder in path for folder in OF_THE_CPU))
        if of_cpu:
            monkeypatch.setattr(gpu, "gpu_devices", lambda: ())
            monkeypatch.setenv("TOILE_PLATFORM", "cpu")  # of processes that the test starts
            monkeypatch.delenv("JAX_DEFAULT_MATMUL_PRECISION", raising=False)
        before = toile.config.read("jax_default_matmul_precision")
        if of_cpu or of_gpu:
            toile.config.update("jax_default_matmul_precision", None)
        yield
        toile.config.update("jax_default_matmul_precision", before)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import and collect the tests without the garbage collector, which would find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the collector away from what collecting the tests made: it all stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    """Keep the collector away from what the tests of a file left behind, such as compiled programs.

    Objects of a gigabyte take it seconds, and tests collect on purpose, many of them repeatedly."""
    done = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done


@pytest.hookimpl(specname="pytest_sessionfinish")
def pytest_keep_answers(exitstatus: int) -> None:
    """Keep the answers of jax, in a run that records them; what a failed run did not ask stays."""
    if recorded.VARIABLE in os.environ and (exitstatus == 0 or recorded.DROPS not in os.environ):
        recorded.save()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run or this machine is not meant to do."""
    sampling.sample(config, items)
    if not TEST_ALL:
        sampling.leave_out(config, items, lambda item: "slow" in item.keywords,
                           "slow: TOILE_TEST_ALL=1 (make test-all)")
    if not ON_GPU:
        sampling.leave_out(config, items, lambda item: item.get_closest_marker("gpu"),
                           "gpu: CuPy sees no device")
    if ON_GPU and DEVICES < 2:
        sampling.leave_out(config, items, lambda item: "two_devices" in item.name,
                           "needs two GPUs (or two CPU devices)")
    items.sort(key=lambda item: item.name not in LONG)
