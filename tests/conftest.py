"""What every test shares: which tests run where, and how hypothesis behaves.

Tests marked `slow` run with TOILE_TEST_ALL=1, tests marked `gpu` where CuPy sees a device.
Hypothesis is derandomized, so that a failure on one machine is a failure on all.
"""

import os
import zlib

import hypothesis
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the oracle reads it when it is first imported
os.environ.setdefault("TOILE_PLATFORM", "auto")  # a GPU where there is one

# Kernels of tests run once or twice: they are compiled without LLVM's passes, but in tests/compiler
# and when everything is tested.
os.environ.setdefault("TOILE_OPTIMIZE", "0")

# Plans are made anew, so that what tests change in the compiler shows.
os.environ.setdefault("TOILE_PLANS", "off")

# Every plan that a test makes is verified.
os.environ.setdefault("TOILE_DEBUG", "verify")

TEST_ALL = os.environ.get("TOILE_TEST_ALL", "0") not in ("", "0")

if TEST_ALL:
    os.environ["TOILE_OPTIMIZE"] = "1"

# Tables of which `make test` runs a fixed part, every n-th test by a hash of its name; `make
# test-all` runs them whole. What they hold is compared with jax, which takes its time to compile,
# or is CUDA text that g++ compiles.
SAMPLED = {
    "scipy/test_stats.py": 4,
    "scipy/test_special.py": 3,
    "scipy/test_numerics.py": 4,
    "scipy/test_linalg.py": 3,
    "primitives/test_array_kernels.py": 8,
    "primitives/test_cumulative.py": 6,
    "primitives/test_linalg.py": 3,
    "primitives/test_special.py": 3,
    "primitives/test_indexing.py": 3,
    "numpy/test_linalg.py": 3,
    "numpy/test_manipulation.py": 3,
    "numpy/test_reductions.py": 4,
    "numpy/test_ufuncs.py": 4,
    "lax/test_elementwise.py": 5,
    "lax/test_reductions.py": 3,
    "nn/test_initializers.py": 6,
    "nn/test_nn.py": 3,
    "random/test_generators.py": 8,
    "random/test_random_samplers.py": 6,
    "random/test_threefry.py": 4,
    "random/test_random_uniform.py": 4,
    "core/test_functional_layers.py": 3,
    "compiler/test_rows.py": 10,
    "compiler/test_sorting.py": 2,
    "compiler/test_tiny_loops.py": 3,
    "gpu/test_kernels.py": 8,
    "gpu/test_nests.py": 4,
    "gpu/test_attention_program.py": 4,
    "gpu/test_programs.py": 3,
    "optim/test_transforms.py": 2,
    "test_example_libraries.py": 4,
    "test_image.py": 4,
    "test_jet.py": 3,
    "test_ode.py": 3,
    "test_transforms.py": 3,
}


# Tests of more than a minute: they come first, so that no worker has one left when others are done.
LONG = ("test_random_program",)


def in_sample(item: pytest.Item) -> bool:
    """Whether `make test` runs this test."""
    for path, n in SAMPLED.items():
        if item.path.as_posix().endswith("tests/" + path):
            return zlib.crc32(item.name.encode()) % n == 0
    return True


def has_gpu() -> bool:
    """Whether CuPy is installed and sees a device."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, a driver too old: all mean that there is no GPU to use
        return False


ON_GPU = os.environ["TOILE_PLATFORM"] != "cpu" and has_gpu()

hypothesis.settings.register_profile(
    "toile",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("toile")


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
        from toile.engine import gpu

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run or this machine is not meant to do."""
    if not TEST_ALL and not any("::" in arg for arg in config.args):
        left_out = [item for item in items if not in_sample(item)]
        items[:] = [item for item in items if in_sample(item)]
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: item.name not in LONG)
    for item in items:
        if "slow" in item.keywords and not TEST_ALL:
            item.add_marker(pytest.mark.skip(reason="slow: TOILE_TEST_ALL=1 (make test-all)"))
        if item.get_closest_marker("gpu") and not ON_GPU:
            item.add_marker(pytest.mark.skip(reason="gpu: CuPy sees no device"))
