"""CUDA kernels, which are described by their source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.conversion import as_array
from toile.engine.source import describe, here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trees import flatten, unflatten
from toile.ffi.pointers import results_of
from toile.primitives.foreign_calls import C_TYPES, CudaKernel, bits_of

Size = int | Sequence[int] | Callable[..., Any]
_MOST_THREADS = 1024


def cuda_kernel(
    source: str, name: str, result_shape_dtypes: Callable[..., PyTree] | PyTree, *, grid: Size,
    block: Size, shared_memory: int = 0,
) -> Callable[..., PyTree]:
    """Turn a CUDA C++ kernel into a function of arrays.

    The kernel is launched on the stream of the GPU, in the same CUDA graph as the kernels around
    it. The kernel's parameters are pointers to the operands, pointers to the results, and then the
    keyword arguments in the order of the call: `int` for a Python integer, `float` for a Python
    float, and, for a NumPy scalar, the C type that corresponds to its dtype. Arrays are in
    row-major order. Under `vmap`, the kernel is launched once for each example. To run a different
    function on the CPU, use `toile.lax.platform_dependent`.

    Args:
        source: source that contains `extern "C" __global__ void name(...)`. It is compiled by NVRTC
            when a program that uses it is compiled.
        name: name of the kernel.
        result_shape_dtypes: a `ShapeDtypeStruct` for one result, a sequence for several, or a
            function that returns them. The function is called with a `ShapeDtypeStruct` for each
            operand, and with the numbers as keyword arguments.
        grid: number of blocks along x, y and z: a number, a sequence, or a function like
            `result_shape_dtypes`.
        block: number of threads in a block along x, y and z, in the same forms.
        shared_memory: bytes of dynamic shared memory for each block.

    Returns:
        A function of arrays, whose keyword arguments are numbers.

    Raises:
        ValueError: the source has no kernel of this name, or `grid` or `block` is invalid.

    >>> source = '''
    ... extern "C" __global__ void twice(const float* x, float* y, int n) {
    ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = 2 * x[i];
    ... }'''
    >>> twice = toile.ffi.cuda_kernel(
    ...     source, "twice", lambda x, n: x, grid=lambda x, n: -(-n // 256), block=256)
    >>> toile.eval_shape(lambda x: twice(x, n=x.size), jnp.ones(1000))
    ShapeDtypeStruct(shape=(1000,), dtype=float32)
    """
    if not re.search(rf'extern\s+"C"[^;{{]*__global__[^;{{]*\b{re.escape(name)}\s*\(', source):
        raise ValueError(
            f"cuda_kernel: needed the kernel extern \"C\" __global__ void {name}(...) in the "
            f"source, got a source without it (declare it so that its name is not mangled){here()}"
        )

    def call(*args: ArrayLike, **numbers: Any) -> PyTree:
        xs = [as_array(x) for x in args]
        structs = [ShapeDtypeStruct(x.shape, x.dtype) for x in xs]
        shapes = result_shape_dtypes
        flat, tree = flatten(shapes(*structs, **numbers) if callable(shapes) else shapes)
        op = CudaKernel(
            source, name, results_of(name, flat),
            tuple(_number(name, *pair) for pair in numbers.items()),
            _sizes(name, "grid", grid, structs, numbers, 2**31 - 1),
            _sizes(name, "block", block, structs, numbers, _MOST_THREADS), shared_memory)
        return unflatten(tree, op(*xs))

    call.__name__ = call.__qualname__ = name
    return call


def _sizes(name: str, what: str, given: Size, structs: list[Any], numbers: dict[str, Any],
           most: int) -> tuple[int, int, int]:
    """Three sizes, of which those that are not given are 1."""
    value = given(*structs, **numbers) if callable(given) else given
    sizes = tuple(value) if isinstance(value, Sequence) else (value,)
    good = len(sizes) <= 3 and all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes)
    total = int(np.prod(sizes)) if good else 0
    if not good or total > most:
        raise ValueError(
            f"{name}: needed one to three positive numbers for {what}, whose product is at most "
            f"{most}, got {value!r} (return them from {what}=){here()}"
        )
    x, y, z = (int(n) for n in (*sizes, 1, 1)[:3])
    return x, y, z


def _number(kernel: str, name: str, value: Any) -> tuple[str, int]:
    """The dtype of a keyword argument, and its bits."""
    if isinstance(value, (np.number, np.bool_)) and value.dtype.name in C_TYPES:
        return value.dtype.name, bits_of(value.item(), value.dtype.name)
    if isinstance(value, bool):
        return "bool", int(value)
    if isinstance(value, float):
        return "float32", bits_of(value, "float32")
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return "int32", bits_of(value, "int32")
    raise TypeError(
        f"{kernel}: the argument {name!r} needed to be a Python float, an integer of 32 bits or a "
        f"NumPy scalar, got {describe(value)} (use np.int64(n), or pass arrays as operands)"
        f"{here()}"
    )
