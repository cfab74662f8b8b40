"""Flags: names, validation, scoping by thread, hooks and the trace context."""

import sys
import threading
from enum import Enum

import pytest

from toile.engine import config as module
from toile.engine import scoped_options
from toile.engine.config import config, flags, on_change

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _restore():
    before = {name: getattr(flags, name) for name in module._TABLE}
    yield
    for name, value in before.items():
        setattr(module._Flags, name, value)
    module._changed("enable_x64")
    assert not set(flags.__dict__) - {"context"}, "an override outlived its block"


def test_names_with_and_without_prefix():
    config.update("jax_enable_x64", True)
    assert config.enable_x64 is config.jax_enable_x64 is config.x64_enabled is True
    assert config.read("jax_enable_x64") is config.read("enable_x64") is module.x64_enabled()
    config.update("enable_x64", False)
    assert config.jax_enable_x64 is False and config.values["jax_enable_x64"] is False
    assert "jax_enable_x64" in dir(config)
    with pytest.raises(AttributeError, match="jax_enable_x46.*did you mean 'jax_enable_x64'"):
        config.update("jax_enable_x46", True)
    with pytest.raises(AttributeError, match="debug_nan"):
        _ = config.debug_nan
    with pytest.raises(AttributeError):
        config.read("no_such_thing_at_all")
    with pytest.raises(AttributeError, match="config.update"):
        config.jax_enable_x64 = True
    config.parse_flags_with_absl()
    config.config_with_absl()


def test_options_on_the_command_line(monkeypatch):
    """absl reads them: at once, or when its app starts."""
    FLAGS = pytest.importorskip("absl.flags").FLAGS
    words = ["main", "--jax_debug_nans", "--jax_numpy_rank_promotion=raise", "--mine=1", "--"]
    monkeypatch.setattr(module.absl_flags, "_parsed", False)
    monkeypatch.setattr(sys, "argv", [*words, "--jax_debug_infs"])
    try:
        config.parse_flags_with_absl()
        assert config.jax_debug_nans is True and config.jax_numpy_rank_promotion == "raise"
        assert config.jax_debug_infs is False and FLAGS.is_parsed()
        config.update("jax_debug_nans", False)
        config.parse_flags_with_absl()
        assert config.jax_debug_nans is False  # read once
        assert {"jax_enable_x64", "flax_profile", "jax_num_cpu_devices"} <= set(FLAGS)
    finally:
        for name in ("jax_debug_nans", "jax_numpy_rank_promotion"):
            FLAGS[name].unparse()


def test_defaults_are_those_of_jax():
    theirs = jax.config.values
    shared = set(theirs) & set(config.values)
    assert len(shared) > 70
    for name in shared:
        want = theirs[name]
        if isinstance(want, Enum):
            want = want.name.lower()
        assert config.values[name] == want, name


def test_known_flags_of_jax():
    """What toile leaves out is about XLA, StableHLO export, Pallas, TPUs or multi-host wiring."""
    words = ("xla", "export", "pallas", "mosaic", "jax2tf", "pgle", "host", "rocm", "oneapi")
    words += ("mock", "topology", "recover", "preempt", "backend", "hlo", "shmap", "cusparse")
    words += ("serialization", "ragged_dot", "3", "pjrt", "proxy", "pipeline", "source_url")
    words += ("traceback_to_runtime", "partitioning_ptr", "constants", "refs_to_pins", "sort_dev")
    words += ("detailed_logging", "mtls", "secure", "cpp", "remat_barrier", "ppermute_sort")
    words += ("accurate_erf_inv",)
    missing = set(jax.config.values) - set(config.values)
    assert not [name for name in missing if not any(w in name for w in words)]


@pytest.mark.parametrize(
    "name, value",
    [
        ("numpy_rank_promotion", "x"),
        ("numpy_dtype_promotion", "x"),
        ("default_matmul_precision", "zz"),
        ("default_prng_impl", None),
        ("transfer_guard", "zz"),
        ("default_device", "qpu"),
        ("default_device", 3),
        ("num_cpu_devices", "3"),
        ("debug_nans", "perhaps"),
        ("default_dtype_bits", "32"),
    ],
)
def test_bad_values(name, value):
    with pytest.raises(ValueError, match=name):
        config.update(f"jax_{name}", value)
    if hasattr(module, name):
        with pytest.raises(ValueError, match=name):
            getattr(module, name)(value)


def test_good_values():
    class Mode(Enum):
        STRICT = "strict"

    for name, value, stored in (
        ("numpy_dtype_promotion", Mode.STRICT, "strict"),
        ("default_matmul_precision", "BF16_BF16_F32", "BF16_BF16_F32"),
        ("default_device", "cpu", "cpu"),
        ("debug_nans", "true", True),
        ("debug_nans", None, False),
        ("enable_x64", 1, True),
        ("persistent_cache_min_compile_time_secs", 0, 0),
    ):
        config.update(f"jax_{name}", value)
        assert config.read(name) == stored
    assert "jax_numpy_dtype_promotion='strict'" in repr(config)


def test_context_managers_nest_and_restore():
    with scoped_options.enable_x64(True):
        assert config.enable_x64
        with scoped_options.enable_x64(False):
            assert not config.enable_x64
            config.update("jax_enable_x64", True)  # process-wide: this block's override stands
            assert not config.enable_x64
        assert config.enable_x64
    assert config.enable_x64
    config.update("jax_enable_x64", False)
    with pytest.raises(KeyError), scoped_options.debug_nans():
        assert flags.debug_nans and scoped_options.debug_nans.value
        raise KeyError
    assert not flags.debug_nans
    again = scoped_options.log_compiles(True)
    with again, again:
        assert flags.log_compiles
    assert not flags.log_compiles
    with scoped_options.disable_jit():
        assert flags.disable_jit
        with scoped_options.disable_jit(False):
            assert not flags.disable_jit
    with scoped_options.disable_jit(disable=True), scoped_options.checking_leaks():
        assert flags.disable_jit and config.check_tracer_leaks and config.checking_leaks
    with scoped_options.transfer_guard("log"):
        assert flags.transfer_guard == flags.transfer_guard_device_to_host == "log"
    with scoped_options.transfer_guard_host_to_device("disallow"):
        assert flags.transfer_guard_host_to_device == "disallow" and flags.transfer_guard is None


def test_states_decorate_and_describe():
    @scoped_options.numpy_rank_promotion("raise")
    def inside(x):
        return flags.numpy_rank_promotion, x

    assert inside(2) == ("raise", 2) and inside.__name__ == "inside"
    assert flags.numpy_rank_promotion == "allow"
    with pytest.raises(TypeError, match="numpy_rank_promotion"):
        scoped_options.numpy_rank_promotion()
    with pytest.raises(TypeError, match="value"):
        bool(scoped_options.enable_x64)
    assert scoped_options.enable_x64.name == "jax_enable_x64" and "jax_enable_x64" in repr(
        scoped_options.enable_x64
    )


def test_every_scoped_flag_of_jax_is_here():
    theirs = {n for n in dir(jax) if type(getattr(jax, n)).__name__ == "State"}
    theirs |= {"disable_jit", "checking_leaks", "transfer_guard"}
    ours = set(vars(scoped_options))
    assert not [n for n in theirs - ours if not n.startswith("jax2tf")]


def test_overrides_belong_to_their_thread():
    seen = []

    def look():
        seen.append((flags.enable_x64, flags.debug_infs))
        with scoped_options.debug_infs():
            seen.append((flags.enable_x64, flags.debug_infs))

    with scoped_options.enable_x64(True):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        config.update("jax_debug_infs", False)
    assert seen == [(False, False), (False, True)] and not flags.debug_infs


def test_trace_context_follows_the_flags_programs_depend_on():
    plain = module.trace_context()
    assert hash(plain) == hash(module.trace_context())
    for manager in (
        scoped_options.enable_x64(True),
        scoped_options.default_matmul_precision("float32"),
        scoped_options.numpy_dtype_promotion("strict"),
        scoped_options.numpy_rank_promotion("raise"),
        scoped_options.default_device("cpu"),
        scoped_options.default_prng_impl("rbg"),
        scoped_options.threefry_partitionable(False),
        scoped_options.debug_nans(True),
        scoped_options.debug_infs(True),
        scoped_options.softmax_custom_jvp(True),
        scoped_options.disable_jit(),
    ):
        with manager:
            assert module.trace_context() != plain
        assert module.trace_context() == plain
    with scoped_options.log_compiles(True):
        assert module.trace_context() == plain
    config.update("jax_enable_x64", True)
    assert module.trace_context() != plain
    seen = []
    with scoped_options.enable_x64(False):
        thread = threading.Thread(target=lambda: seen.append(module.trace_context()))
        thread.start()
        thread.join()
        assert module.trace_context() == plain != seen[0]


def test_hooks_run_after_each_change():
    seen = []

    def hook(name):
        seen.append((name, getattr(flags, name)))

    on_change.append(hook)
    try:
        with scoped_options.debug_nans(True):
            pass
        config.update("jax_debug_nans", True)
    finally:
        on_change.remove(hook)
    assert seen == [("debug_nans", True), ("debug_nans", False), ("debug_nans", True)]


def test_environment():
    read = module._environment_value
    assert read("enable_x64", {"JAX_ENABLE_X64": "1"}) is True
    assert read("enable_x64", {"JAX_ENABLE_X64": "1", "TOILE_ENABLE_X64": "false"}) is False
    assert read("enable_x64", {}) is False
    assert read("num_cpu_devices", {"TOILE_CPU_DEVICES": "8"}) == 8
    assert read("num_gpu_devices", {"TOILE_GPU_DEVICES": "2"}) == 2
    assert (
        read(
            "persistent_cache_min_compile_time_secs",
            {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5"},
        )
        == 0.5
    )
    assert read("platforms", {"JAX_PLATFORMS": ""}) is None
    assert read("platforms", {"JAX_PLATFORMS": "cpu"}) == "cpu"
    with pytest.raises(ValueError, match="JAX_NUMPY_RANK_PROMOTION='never'"):
        read("numpy_rank_promotion", {"JAX_NUMPY_RANK_PROMOTION": "never"})
    with pytest.raises(ValueError, match="TOILE_CPU_DEVICES='many'"):
        read("num_cpu_devices", {"TOILE_CPU_DEVICES": "many"})
