"""Which tests a run leaves out, and how it says so.

`make test` runs every n-th test of the tables in `SAMPLED`; the seed of the run (tests/seeds.py)
chooses which, so that seven days in a row run all of them. `make test-all` leaves out none, and
neither does a run that names single tests. Workers of pytest-xdist choose alike: they find the
seed in the environment, and tell the process that started them what they left out.
"""

import functools
import os
import pathlib
from collections.abc import Callable

import pytest

from tests import seeds
from tests.golden import recorded

HERE = pathlib.Path(__file__).parent

# Files under tests/, or single tests of them, and n: one test in n runs each day. At most 7, so
# that a week runs all. Their tests compare with jax, which takes its time to compile, compile CUDA
# text with g++ or many kernels with LLVM, start processes, train models of examples/, or are many
# similar rows. Some tests of every file run each day (tests/test_sampling.py).
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
    "compiler/test_complex_kernels.py": 5,
    "compiler/test_matrices.py": 5,
    "compiler/test_recalling.py": 3,
    "distributed/test_disagreement.py": 3,
    "engine/test_collecting.py": 3,
    "gpu/test_chunks.py": 5,
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
    "compiler/test_fft.py::test_length": 7,
    "test_zoo.py::test_program": 7,
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
    "compiler/test_contractions.py": 7,
    "compiler/test_convolutions.py": 4,
    "compiler/test_cumulative.py": 4,
    "compiler/test_gathering.py": 4,
    "compiler/test_mathematics.py": 7,
    "compiler/test_pooling.py": 7,
    "compiler/test_sharing.py": 7,
    "compiler/test_sorting.py": 7,
    "compiler/test_tiny_loops.py": 7,
    "compiler/test_tiny_ranks.py": 5,
    "linen/test_layers.py::test_transforms": 4,
    "linen/test_fp8_rows.py": 4,
    "gpu/test_kernels.py": 7,
    "gpu/test_nests.py": 7,
    "gpu/test_attention_program.py": 7,
    "gpu/test_convolution.py": 4,
    "gpu/test_programs.py": 7,
    "optim/test_losses.py": 4,
    "optim/test_transforms.py": 5,
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
    "primitives/test_sorting.py": 2,
    "numpy/test_indexing.py": 4,
    "numpy/test_contractions.py": 3,
    "random/test_special_formulas.py": 4,
    "gpu/test_conditional.py": 7,
    "gpu/test_tensor_products.py": 4,
    "linen/test_fp8.py": 3,
    "test_parity.py": 7,
    "test_jax_corners.py": 3,
    "test_corners_numpy.py": 3,
    "test_experimental.py": 3,
    "test_benchmarks.py::test_a_child_runs_cases": 7,
    "test_operations.py": 7,
    "compiler/test_concurrency.py": 3,
    "compiler/test_determinism.py": 2,
    "compiler/test_forks.py": 4,
    "distributed/test_processes.py": 3,
    "linen/test_layers.py::test_layer": 4,
    "linen/test_layers.py::test_layer_live": 3,
    "test_interruption.py": 2,
    "test_kernel_memory.py": 2,
    "test_lazy.py": 3,
    "test_planted_faults.py::test_caught_and_missed": 3,
    "test_planted_faults.py::test_faults_of_the_library": 3,
    "test_sampling.py": 3,
    "train_test.py": 3,
    "test_doctests.py": 5,
    "command/test_example_projects.py": 5,
    "displays/test_kernel.py": 2,
    "training/test_sweep.py": 3,
    "whole_programs/test_whole_programs.py::test_program": 4,
    "whole_programs/test_whole_programs.py::test_program_live": 3,
    "test_reverse_while.py::test_against_scans": 7,
    "test_reverse_while.py::test_second_derivative_in_reverse": 3,
    "test_reverse_while.py::test_every_count_of_iterations": 3,
    "test_reverse_while.py::test_newton_has_the_implicit_derivative": 3,
    "test_reverse_while.py::test_the_loop_is_repeated_a_few_times": 3,
    "generation/test_speculation.py::test_greedy_tokens_are_the_same": 4,
    "generation/test_speculation.py::test_distribution_is_the_same": 3,
    "generation/test_beams.py::test_caches_follow_their_beams": 3,
    "generation/test_beams.py::test_exhaustive_search": 4,
    "generation/test_pretrained_models.py": 4,
    "generation/test_generate.py::test_greedy_equals_plain_loop": 3,
    "generation/test_generate.py::test_sampling_equals_plain_loop": 3,
    "generation/test_generate.py::test_stop_strings_across_tokens": 3,
    "generation/test_generate.py::test_ring_cache_of_sliding_window": 2,
    "gpu/test_narrow_products.py::test_products": 5,
    "test_sparse.py::test_equals_jax": 4,
    "test_sparse.py::test_compiled_equals_eager": 4,
    "compiler/test_picks.py": 5,
    "test_docs.py::test_code_of_page_runs": 3,
    "test_docs.py::test_notebook_runs": 3,
    "compiler/test_fft.py::test_axes": 4,
    "test_jax_corners_of_suites.py::test_as_jax": 3,
    "test_jax_corners_of_packages.py::test_as_jax": 4,
    "test_remembered.py::test_same_bits": 4,
    "compiler/test_products.py::test_values": 4,
    "compiler/test_grouped_products.py": 4,
    "export/test_symbolic.py::test_function_that_needs_a_constant": 3,
    "export/test_symbolic.py::test_module": 3,
    "export/test_symbolic.py::test_function": 3,
    "export/test_roundtrip.py::test_training_step": 3,
    "export/test_roundtrip.py::test_operation": 3,
    "compiler/test_bodies.py::test_checkpointed_loops": 3,
    "gpu/test_index_words.py": 3,
    "test_shape_checks.py": 3,
    "drawn/test_drawn.py::test_found": 4,
    "interop/test_huggingface.py::test_models_compute_what_transformers_computed": 3,
    "interop/test_huggingface.py::test_weights_there_and_back": 3,
    "interop/test_torch_weights.py::test_outputs_are_those_of_torch": 3,
    "lax/test_associative_scan.py": 3,
    "test_index_checks.py::test_reported_once_unless_chosen": 4,
    "linen/test_transforms_sharing.py": 3,
    "linen/test_transforms.py::test_as_in_flax": 3,
    "linen/test_transforms_functions.py::test_as_in_flax": 3,
    "test_stage_corners.py::test_what_a_callback_may_return": 4,
    "test_stage_corners.py::test_stages": 3,
    "gpu/test_zoo_plans.py": 5,
    "gpu/test_every_family.py::test_family": 4,
    "interop/test_removed_names.py::test_programs_of_that_time_learn": 2,
    "test_pmap.py::test_pmap_donates_what_jax_donates": 3,
    "test_pmap.py::test_pmap_agrees_with_jax": 3,
    "gpu/test_graph_order.py::test_programs_in_any_order": 3,
    "gpu/test_graph_order.py::test_every_conflict_is_ordered": 3,
    "compiler/test_updates_in_place.py::test_rolls": 4,
    "compiler/test_updates_in_place.py::test_values": 4,
    "compiler/test_short_rows.py": 4,
    "vision_test.py::test_published_models_have_their_numbers_of_parameters": 3,
    "language_model_test.py::test_published_models_have_their_numbers_of_parameters": 3,
    "language_model_test.py::test_a_folder_that_is_written_is_read": 3,
    "speech_test.py::test_published_models_have_their_numbers_of_parameters": 3,
    "test_key_reuse.py::test_samplers": 3,
    "test_key_reuse.py::test_keys_that_are_used_once": 3,
    "compiler/test_fusion.py::test_results": 3,
    "compiler/test_amx_products.py": 3,
    "compiler/test_amx_convolutions.py": 3,
    "gpu/test_scatter_atomics.py": 3,
    "parallel/test_shard_map_specs.py::test_the_results_are_those_of_jax": 3,
    "parallel/test_partition.py::test_results": 4,
    "parallel/test_programs.py::test_pmap_agrees_with_vmap_and_jax": 3,
    "compiler/test_callpath.py::test_structures": 3,
    "gpu/test_quantized_products.py::test_kernels_on_the_host": 4,
    "gpu/test_plans_on_disk.py::test_recalled_plans_run_alike": 2,
    "training/test_loader.py::test_continues_exactly": 3,
    "exporting/test_c_files.py::test_processors": 4,
    "exporting/test_free_sizes.py::test_arithmetic": 3,
    "compiler/test_iterated_kernels.py": 3,
    "compiler/test_scatter_forms.py": 4,
    "optim/test_projections.py::test_function": 3,
    "optim/test_classic.py": 3,
    "finetuning/test_lora.py": 3,
    "gpu/test_divided_transforms.py::test_divisions": 3,
    "gpu/test_donation.py::test_overwritten": 3,
    "gpu/test_contractions.py::test_patterns": 3,
    "training/test_checkpoint_damage.py::test_a_damaged_newest_one_hides_nothing": 3,
    "compiler/test_messages.py": 3,
    "wrong_programs/test_messages.py::test_message_is_the_golden_one": 3,
    "wrong_programs/test_messages.py::test_message_is_complete": 3,
    "compiler/test_narrow_products.py": 3,
    "primitives/test_recurrences.py::test_values": 3,
    "compiler/test_selections.py::test_values": 3,
    "compiler/test_chains.py": 3,
    "compiler/test_silent_corners.py::test_compiled_is_as_one_by_one": 3,
    "compiler/test_special_kernels.py::test_values": 3,
    "numpy/test_large_indices.py": 3,
    "numpy/test_creation.py::test_case": 3,
    "test_custom_corners.py::test_as_in_jax": 3,
    "test_corners_api.py::test_same_as_jax": 3,
    "test_toy_platform.py::test_new_arrays_are_on_the_default_device": 3,
    "quantization/test_benchmark.py::test_quality": 5,
    "test_benchmarks.py::test_checkouts_are_compared": 4,
    "compiler/test_programs.py::test_programs": 2,
    "engine/test_dtypes.py::test_pairs_of_operands": 2,
    "quantization/test_calibration.py::test_gptq_is_its_definition": 3,
    "test_benchmarks.py::test_the_cost_of_a_check_is_measured": 3,
    "test_benchmarks.py::test_low_precision_is_measured_beside_float32": 3,
    "command/test_run_command.py::test_the_same_numbers_as_on_jax": 3,
    "command/test_run_command.py::test_install": 2,
    "training/test_checkpoint_damage.py::test_every_flipped_bit_is_found": 3,
    "export/test_hostile.py::test_flipped_bytes_with_a_fitting_checksum": 3,
    "test_reverse_while.py::test_random_bodies": 3,
    "generation/test_generate.py::test_batches_equal_single_prompts": 3,
    "generation/test_speculation.py::test_batches_equal_single_prompts": 3,
    "gpu/test_out_of_memory.py::test_prediction_is_what_the_device_holds": 3,
    "engine/test_avals_and_strides.py::test_strides_of_reshaped_views": 3,
    "compiler/test_memory_plans.py::test_prediction_is_what_a_call_allocates": 3,
    "compiler/test_python_steps.py": 3,
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
    return f"{_name_of(item.path)}::{item.name.partition('[')[0]}"


@functools.cache
def _name_of(path: pathlib.Path) -> str:
    """A file as the table names it."""
    return path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else path.name


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
