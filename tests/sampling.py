"""Which tests a run leaves out, and how it says so.

`make test` runs every n-th test of the tables in `SAMPLED`; the seed of the run (tests/seeds.py)
chooses which, so that seven days in a row run all of them. `make test-all` leaves out none, and
neither does a run that names single tests. Workers of pytest-xdist choose alike: they find the
seed in the environment, and tell the process that started them what they left out.
"""

import os
import pathlib
from collections.abc import Callable

import pytest

from tests import seeds
from tests.golden import recorded

HERE = pathlib.Path(__file__).parent

# Files under tests/, or single tests of them, and n: one test in n runs each day. At most 7, so
# that a week runs all. What they hold is compared with jax, which takes its time to compile, is
# CUDA text that g++ compiles, starts processes, or trains a model of examples/ (train_test.py).
SAMPLED = {
    "scipy/test_stats.py": 7,
    "scipy/test_special.py": 7,
    "scipy/test_numerics.py": 7,
    "scipy/test_linalg.py": 7,
    "primitives/test_array_kernels.py": 7,
    "primitives/test_cumulative.py": 7,
    "primitives/test_linalg.py": 7,
    "primitives/test_special.py": 7,
    "primitives/test_indexing.py": 7,
    "numpy/test_linalg.py": 7,
    "numpy/test_manipulation.py": 7,
    "numpy/test_reductions.py": 7,
    "numpy/test_ufuncs.py": 7,
    "lax/test_elementwise.py": 7,
    "lax/test_reductions.py": 7,
    "nn/test_initializers.py": 7,
    "nn/test_nn.py": 7,
    "random/test_generators.py": 7,
    "compiler/test_complex_kernels.py": 3,
    "compiler/test_matrices.py": 3,
    "compiler/test_recalling.py": 2,
    "distributed/test_disagreement.py": 3,
    "engine/test_collecting.py": 3,
    "gpu/test_chunks.py": 3,
    "gpu/test_solvers.py": 7,
    "gpu/test_texts_compile.py": 7,
    "random/test_older_layout.py::test_bits": 2,
    "random/test_older_layout.py::test_more_words_than_a_key_has": 4,
    "random/test_older_layout.py::test_programs": 7,
    "random/test_older_layout.py::test_samplers": 5,
    "random/test_random_samplers.py": 7,
    "random/test_threefry.py": 7,
    "random/test_random_uniform.py": 7,
    "core/test_functional_layers.py": 3,
    "compiler/test_rows.py": 7,
    "compiler/test_fft.py::test_length": 4,
    "test_zoo.py::test_program": 5,
    "exporting/test_numpy_files.py::test_operation": 7,
    "exporting/test_numpy_files.py::test_layer": 7,
    "exporting/test_numpy_files.py::test_example": 7,
    "exporting/test_c_files.py::test_operations": 7,
    "exporting/test_c_files.py::test_layer": 7,
    "exporting/test_c_files.py::test_example": 7,
    "exporting/test_programs.py": 7,
    "exporting/test_onnx_files.py::test_operation": 7,
    "exporting/test_onnx_files.py::test_layer": 7,
    "exporting/test_onnx_files.py::test_example": 7,
    "exporting/test_onnx_files.py::test_file_of_pytorch": 3,
    "compiler/test_contractions.py": 4,
    "compiler/test_convolutions.py": 4,
    "compiler/test_cumulative.py": 2,
    "compiler/test_gathering.py": 2,
    "compiler/test_mathematics.py": 4,
    "compiler/test_pooling.py": 5,
    "compiler/test_sharing.py": 4,
    "compiler/test_sorting.py": 7,
    "compiler/test_tiny_loops.py": 5,
    "compiler/test_tiny_ranks.py": 5,
    "linen/test_layers.py::test_transforms": 4,
    "linen/test_fp8_rows.py": 4,
    "gpu/test_kernels.py": 7,
    "gpu/test_nests.py": 7,
    "gpu/test_attention_program.py": 7,
    "gpu/test_convolution.py": 4,
    "gpu/test_programs.py": 7,
    "optim/test_losses.py": 4,
    "optim/test_transforms.py": 3,
    "test_example_libraries.py": 7,
    "test_image.py": 4,
    "test_jet.py": 7,
    "test_ode.py": 7,
    "test_transforms.py": 7,
    "interop/test_optax.py": 5,
    "primitives/test_transcendental.py": 4,
    "primitives/test_windows.py": 4,
    "primitives/test_conv.py": 3,
    "primitives/test_fft.py": 4,
    "primitives/test_sorting.py": 3,
    "numpy/test_indexing.py": 4,
    "numpy/test_contractions.py": 3,
    "random/test_special_formulas.py": 4,
    "gpu/test_conditional.py": 7,
    "gpu/test_tensor_products.py": 4,
    "linen/test_fp8.py": 3,
    "test_parity.py": 5,
    "test_jax_corners.py": 3,
    "test_corners_numpy.py": 3,
    "test_experimental.py": 3,
    "test_benchmarks.py::test_a_child_runs_cases": 7,
    "test_operations.py": 3,
    "compiler/test_concurrency.py": 3,
    "compiler/test_determinism.py": 2,
    "compiler/test_forks.py": 4,
    "distributed/test_processes.py": 3,
    "linen/test_layers.py::test_layer": 2,
    "linen/test_layers.py::test_layer_live": 2,
    "test_interruption.py": 2,
    "test_kernel_memory.py": 2,
    "test_lazy.py": 3,
    "test_planted_faults.py::test_caught_and_missed": 3,
    "test_planted_faults.py::test_faults_of_the_library": 3,
    "test_sampling.py": 3,
    "train_test.py": 3,
    "test_doctests.py": 3,
    "command/test_example_projects.py": 5,
    "displays/test_kernel.py": 7,
    "training/test_sweep.py": 3,
    "whole_programs/test_whole_programs.py::test_program": 2,
    "whole_programs/test_whole_programs.py::test_program_live": 3,
}
DAYS = 7  # in which everything has run
OTHER_DAYS = (f"they run on other days, each at least once in {DAYS} days in a row (make test-all: "
              "all)")

_COLLECTED = pytest.StashKey[list[tuple[str, str]]]()  # places and names, before any was left out
_TOTAL = pytest.StashKey[int]()  # how many there are, as workers told
_LEFT_OUT = pytest.StashKey[dict[str, int]]()  # why, and how many
_ASKED = pytest.StashKey[list[dict]]()  # what each worker asked of jax


def place_of(item: pytest.Item) -> str:
    """The file of a test and its function: `random/test_threefry.py::test_split`."""
    path = item.path
    where = path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else path.name
    return f"{where}::{item.name.partition('[')[0]}"


def one_in(place: str) -> int:
    """How many tests of a table there are for one that runs."""
    return SAMPLED.get(place) or SAMPLED.get(place.partition("::")[0], 1)


def is_left_out(place: str, name: str, seed: int) -> bool:
    """Whether the run of a seed leaves this test out."""
    n = one_in(place)
    return n > 1 and not seeds.is_chosen(name, n, seed)


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other days."""
    found = [(place_of(item), item.name) for item in items]
    config.stash[_COLLECTED] = found
    recording = recorded.VARIABLE in os.environ
    if seeds.EVERYTHING or recording or any("::" in arg for arg in config.args):
        return
    seed = seeds.today()
    leave_out(config, items, lambda item: is_left_out(place_of(item), item.name, seed), OTHER_DAYS)


def leave_out(config: pytest.Config, items: list[pytest.Item],
              is_away: Callable[[pytest.Item], object], reason: str) -> None:
    """Take tests away from those that run: a test that is skipped costs 5 ms, and there are
    thousands. They are skipped, and say why, if no test would be left or single ones are named."""
    away = [item for item in items if is_away(item)]
    if len(away) == len(items) or any("::" in arg for arg in config.args):
        for item in away:
            item.add_marker(pytest.mark.skip(reason=reason))
        return
    config.hook.pytest_deselected(items=away)
    gone = set(away)
    items[:] = [item for item in items if item not in gone]
    config.stash.setdefault(_LEFT_OUT, {})[reason] = len(away)


def collected(config: pytest.Config) -> list[tuple[str, str]]:
    """Places and names of all tests that were collected, those that were left out among them."""
    return config.stash.get(_COLLECTED, [])


# ---- hooks, which tests/conftest.py imports


def pytest_report_header() -> str:
    """The seed is known while tests run, too."""
    return f"seed: {seeds.today()}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells how many tests it left out, and how often it asked jax."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(_LEFT_OUT, {})
        output["collected"] = len(collected(session.config))
        output["asked"] = recorded.counts()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """All workers left out the same; what they asked adds up."""
    told = getattr(node, "workeroutput", {})
    if told.get("left_out"):
        node.config.stash[_LEFT_OUT] = told["left_out"]
        node.config.stash[_TOTAL] = told["collected"]
    if told.get("asked"):
        node.config.stash.setdefault(_ASKED, []).append(told["asked"])


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """How many tests were left out, how often jax was asked, how to run the same ones again."""
    total = config.stash.get(_TOTAL, len(collected(config)))
    seed = seeds.today()
    terminalreporter.section("sampling")
    for reason, left in config.stash.get(_LEFT_OUT, {}).items():
        if left:
            terminalreporter.write_line(f"{left:,} of {total:,} tests were left out: {reason}")
    asked = [recorded.counts(), *config.stash.get(_ASKED, [])]
    terminalreporter.write_line(recorded.summary(asked))
    terminalreporter.write_line(
        f"the seed was {seed}; to repeat this run: {seeds.VARIABLE}={seed} make test")
