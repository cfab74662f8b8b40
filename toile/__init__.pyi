"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile import (
    ad_checkpoint as ad_checkpoint,
    configurations as configurations,
    core as core,
    cursor as cursor,
    custom_batching as custom_batching,
    custom_derivatives as custom_derivatives,
    debug as debug,
    distributed as distributed,
    dlpack as dlpack,
    dtypes as dtypes,
    errors as errors,
    example_libraries as example_libraries,
    experimental as experimental,
    export as export,
    ffi as ffi,
    finetuning as finetuning,
    flatten_util as flatten_util,
    generation as generation,
    ids as ids,
    image as image,
    interop as interop,
    io as io,
    jax_utils as jax_utils,
    lax as lax,
    linen as linen,
    metrics as metrics,
    monitoring as monitoring,
    nn as nn,
    numpy as numpy,
    ops as ops,
    optim as optim,
    parallel as parallel,
    profiler as profiler,
    quantization as quantization,
    random as random,
    ref as ref,
    scipy as scipy,
    serialization as serialization,
    serving as serving,
    sharding as sharding,
    stages as stages,
    struct as struct,
    test_util as test_util,
    traceback_util as traceback_util,
    training as training,
    traverse_util as traverse_util,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
    version as version,
)
from toile.api import (
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    ensure_compile_time_eval as ensure_compile_time_eval,
    eval_shape as eval_shape,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jit as jit,
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    make_jaxpr as make_jaxpr,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from toile.api.callbacks import effects_barrier as effects_barrier, pure_callback as pure_callback
from toile.api.checkpoint import (
    checkpoint as checkpoint,
    checkpoint_policies as checkpoint_policies,
    remat as remat,
)
from toile.api.cotangents import ad as ad
from toile.api.devices import (
    block_until_ready as block_until_ready,
    copy_to_host_async as copy_to_host_async,
    default_backend as default_backend,
    device_count as device_count,
    device_get as device_get,
    device_put as device_put,
    devices as devices,
    host_count as host_count,
    host_id as host_id,
    host_ids as host_ids,
    live_arrays as live_arrays,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
    typeof as typeof,
)
from toile.api.environment import print_environment_info as print_environment_info
from toile.api.pairs import fwd_and_bwd as fwd_and_bwd
from toile.api.scopes import named_call as named_call, named_scope as named_scope
from toile.engine.arrays import Shard as Shard
from toile.engine.check_switch import checks as checks
from toile.engine.config import config as config
from toile.engine.scoped_options import (
    allow_f16_reductions as allow_f16_reductions,
    array_garbage_collection_guard as array_garbage_collection_guard,
    auto_pcast as auto_pcast,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    no_execution as no_execution,
    no_tracing as no_tracing,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type,
    softmax_custom_jvp as softmax_custom_jvp,
    thread_guard as thread_guard,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from toile.engine.contexts import make_user_context as make_user_context
from toile.engine.devices import Device as Device
from toile.engine.dtypes import float0 as float0
from toile.engine.shardings import memory as memory
from toile.engine.structs import ShapeDtypeStruct as ShapeDtypeStruct
from toile.engine.trace import Array as Array
from toile.inspection import explain as explain, plan as plan, profile as profile
from toile.parallel import pmap as pmap, shard_map as shard_map, smap as smap
from toile.ref import (
    Ref as Ref,
    ds as ds,
    empty_ref as empty_ref,
    free_ref as free_ref,
    freeze as freeze,
    new_ref as new_ref,
)
from toile.sharding import (
    NamedSharding as NamedSharding,
    P as P,
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    make_mesh as make_mesh,
    reshard as reshard,
    set_mesh as set_mesh,
    use_abstract_mesh as use_abstract_mesh,
)
from toile.staging.jit import clear_caches as clear_caches
from toile.targets.llvm.thread_count import threads as threads
from toile.version import __version__ as __version__, __version_info__ as __version_info__
