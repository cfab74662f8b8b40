"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.ffi.c_functions import c_function as c_function
from toile.ffi.gpu_kernels import cuda_kernel as cuda_kernel
from toile.ffi.xla_targets import (
    build_ffi_lowering_function as build_ffi_lowering_function,
    ffi_call as ffi_call,
    ffi_lowering as ffi_lowering,
    include_dir as include_dir,
    pycapsule as pycapsule,
    register_ffi_target as register_ffi_target,
    register_ffi_type as register_ffi_type,
)
