"""toile: neural networks in the style of Flax, on an autodiff engine of its own.

Names, signatures, defaults and results are those of JAX and Flax wherever these exist there.
"""
# ruff: noqa: F401

from toile.engine.garbage import paused as _paused

with _paused():  # these import nearly everything
    from toile import _absent, lax, numpy, tree, tree_util
from toile.api import (
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    ensure_compile_time_eval,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    value_and_grad,
    vjp,
    vmap,
)
from toile.api.callbacks import effects_barrier, pure_callback
from toile.api.checkpoint import checkpoint, checkpoint_policies, remat
from toile.api.devices import (
    block_until_ready,
    copy_to_host_async,
    default_backend,
    device_count,
    device_get,
    device_put,
    devices,
    host_count,
    host_id,
    host_ids,
    live_arrays,
    local_device_count,
    local_devices,
    process_count,
    process_index,
    process_indices,
    typeof,
)
from toile.api.scopes import named_call, named_scope
from toile.engine import checked as _checked
from toile.engine import program_text as _printing
from toile.engine.arrays import DeviceArray as _DeviceArray
from toile.engine.arrays import KeyArray as _KeyArray
from toile.engine.arrays import Shard
from toile.engine.config import config
from toile.engine.devices import Device
from toile.engine.dtypes import float0
from toile.engine.lazy import attach as _attach
from toile.engine.scoped_options import (
    allow_f16_reductions,
    array_garbage_collection_guard,
    auto_pcast,
    check_tracer_leaks,
    checking_leaks,
    debug_infs,
    debug_key_reuse,
    debug_nans,
    default_device,
    default_matmul_precision,
    default_prng_impl,
    disable_jit,
    enable_checks,
    enable_custom_prng,
    enable_x64,
    explain_cache_misses,
    legacy_prng_key,
    log_compiles,
    no_execution,
    no_tracing,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    remove_size_one_mesh_axis_from_type,
    softmax_custom_jvp,
    thread_guard,
    threefry_partitionable,
    transfer_guard,
    transfer_guard_device_to_device,
    transfer_guard_device_to_host,
    transfer_guard_host_to_device,
)
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Array
from toile.engine.trace import Tracer as _Tracer
from toile.numpy.array_methods import install as _install
from toile.staging.jit import clear_caches
from toile.version import __version__, __version_info__

_install(Array, _Tracer)
_absent.install()

_MODULES = (
    "ad_checkpoint configurations core cursor custom_batching custom_derivatives debug distributed "
    "dlpack dtypes errors example_libraries experimental flatten_util ids image interop io "
    "jax_utils linen metrics monitoring nn ops optim parallel profiler random ref scipy "
    "serialization sharding stages struct test_util traceback_util training traverse_util typing "
    "version"
)
_FROM = {
    "sharding": (
        "NamedSharding P make_mesh set_mesh reshard make_array_from_callback "
        "make_array_from_process_local_data make_array_from_single_device_arrays "
        "get_abstract_mesh get_mesh use_abstract_mesh"
    ),
    "parallel": "pmap shard_map smap",
    "ref": "Ref ds empty_ref free_ref freeze new_ref",
    "api.environment": "print_environment_info",
    "api.cotangents": "ad",
    "api.pairs": "fwd_and_bwd",
    "targets.llvm.thread_count": "threads",
    "engine.contexts": "make_user_context",
    "engine.shardings": "memory",
    "inspection": "explain profile",
}
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES, _absent.missing_attribute)

# `from toile import *` exports what `from jax import *` does, not toile's internal packages.
_INTERNAL = (
    "annotations api compiler control disk engine kernels platforms primitives staging targets "
    "transforms"
)
__all__ = [name for name in __dir__() if name[0] != "_" and name not in _INTERNAL.split()]
