"""Calls of C functions, and of CUDA kernels that a user has written.

A C function is known by a symbol; `register` stores its address. Each class here is one way to pass
arrays to C. An operation with a `batch` calls its function once for each example, along the first
axis of the results and of the operands that are `mapped`. This module may import the engine and
primitives.families.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.families import bdim_at, reshape

# Types of C by the name of their dtype, with the types of ctypes and of LLVM.
C_TYPES: dict[str, tuple[Any, str]] = {
    "float32": (ctypes.c_float, "float"), "float64": (ctypes.c_double, "double"),
    "int8": (ctypes.c_int8, "i8"), "int16": (ctypes.c_int16, "i16"),
    "int32": (ctypes.c_int32, "i32"), "int64": (ctypes.c_int64, "i64"),
    "uint8": (ctypes.c_uint8, "i8"), "uint16": (ctypes.c_uint16, "i16"),
    "uint32": (ctypes.c_uint32, "i32"), "uint64": (ctypes.c_uint64, "i64"),
    "bool": (ctypes.c_bool, "i8"),
}
_addresses: dict[str, int] = {}


def register(label: str, address: int) -> str:
    """The symbol of the C function at an address: its name, and a number if it is taken."""
    stem = "toile_foreign_" + re.sub(r"\W", "_", label)
    count = 0
    while _addresses.setdefault(f"{stem}_{count}", address) != address:
        count += 1
    return f"{stem}_{count}"


def bits_of(value: float | int, dtype: str) -> int:
    """A number of a dtype as 64 bits, a signed integer."""
    raw = np.asarray(value, dtype).tobytes()
    fill = b"\xff" if dtype[0] == "i" and value < 0 else b"\0"
    return int.from_bytes(raw.ljust(8, fill), "little", signed=True)


def number_of(bits: int, dtype: str) -> Any:
    """The number that `bits_of` made bits of."""
    raw = bits.to_bytes(8, "little", signed=True)
    return np.frombuffer(raw, dtype, 1)[0].item()


class Foreign(Operation):
    """A call of foreign code."""

    multiple = True
    label: str
    avals: tuple[Aval, ...]
    batch: int | None
    mapped: tuple[bool, ...]

    def infer(self, *xs: Aval) -> list[Aval]:
        return [self._batched(a) for a in self.avals]

    def _batched(self, aval: Aval) -> Aval:
        return aval if self.batch is None else Aval((self.batch, *aval.shape), aval.dtype)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise ValueError(
            f"{self.label}: needed a derivative rule, got a foreign function, which has none (wrap "
            f"the function in toile.custom_jvp or toile.custom_vjp, see docs/ffi.md){here()}"
        )

    def transpose(self, ct: Any, *xs: Any) -> Any:
        raise ValueError(
            f"{self.label}: needed a rule to transpose, got a foreign function, which has none "
            f"(wrap the function in toile.custom_vjp, see docs/ffi.md){here()}"
        )

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        """Call the function once for each example."""
        same: Any = self
        size = axis[1]
        mapped = tuple(d is not None for d in dims)
        if self.batch is None:
            moved = [x if d is None else bdim_at(x, d, size) for x, d in zip(xs, dims, strict=True)]
            return replace(same, batch=size, mapped=mapped)(*moved), [0] * len(self.avals)
        both = [m or inner for m, inner in zip(mapped, self.mapped, strict=True)]
        count = size * self.batch
        merged = [self._merged(x, d, size, inner) if m else x for x, d, m, inner in
                  zip(xs, dims, both, self.mapped, strict=True)]
        outs = replace(same, batch=count, mapped=tuple(both))(*merged)
        return [reshape(y, (size, *self._batched(a).shape))
                for y, a in zip(outs, self.avals, strict=True)], [0] * len(outs)

    def _merged(self, x: Any, dim: Dim, size: int, inner: bool) -> Any:
        """An operand with one axis for both batches, which is the first one."""
        x = bdim_at(x, dim, size)
        if not inner:
            x = bdim_at(x, None, self.batch or 1, 1)
        return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))

    def examples(self, xs: Sequence[np.ndarray], outs: Sequence[np.ndarray]
                 ) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """The operands and results of each call."""
        if self.batch is None:
            yield list(xs), list(outs)
            return
        for i in range(self.batch):
            yield ([x[i : i + 1] if m else x for x, m in zip(xs, self.mapped, strict=True)],
                   [y[i : i + 1] for y in outs])

    def eager(self, xp: Any, *xs: Any) -> Any:
        if xp is not np:  # the function runs on the host
            return [xp.asarray(y) for y in self.eager(np, *map(xp.asnumpy, xs))]
        arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in xs]
        outs = [np.empty(a.shape, a.dtype) for a in map(self._batched, self.avals)]
        self.run(arrays, outs)
        return outs

    def run(self, xs: list[np.ndarray], outs: list[np.ndarray]) -> None:
        """Compute the results into arrays in row-major order."""
        raise NotImplementedError


class CFunction(Foreign):
    """A C function, which may run on several examples at the same time if it is `parallel`."""

    symbol: str
    parallel: bool

    def function(self, result: Any, *types: Any) -> Any:
        """The function as ctypes calls it."""
        return ctypes.CFUNCTYPE(result, *types)(_addresses[self.symbol])


@dataclass(frozen=True)
class BufferCall(CFunction):
    """`void f(void **arrays, const int64_t *shapes, const int64_t *attributes)`.

    The arrays are the operands and the results; `shapes` has the rank and the sizes of each. An
    alias (i, j) passes the memory of result j, which begins as a copy of operand i, for both."""

    symbol: str
    label: str
    avals: tuple[Aval, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the operands in one call
    attributes: tuple[int, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    vmap_method: str | None = None
    parallel: bool = False
    batch: int | None = None
    mapped: tuple[bool, ...] = ()
    name = "ffi_call"
    kernel_family = "foreign.buffers"

    @property
    def sizes(self) -> np.ndarray:
        """What is passed as `shapes`."""
        every = (*self.shapes, *(a.shape for a in self.avals))
        return np.array([n for shape in every for n in (len(shape), *shape)], np.int64)

    def run(self, xs: list[np.ndarray], outs: list[np.ndarray]) -> None:
        call = self.function(None, *[ctypes.c_void_p] * 3)
        sizes, attributes = self.sizes, np.array(self.attributes, np.int64)
        for given, made in self.examples(xs, outs):
            for i, j in self.aliases:
                made[j][...] = given[i].reshape(made[j].shape)
                given[i] = made[j]
            arrays = np.array([x.ctypes.data for x in (*given, *made)], np.uint64)
            call(arrays.ctypes.data, sizes.ctypes.data, attributes.ctypes.data)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if self.vmap_method is None:
            raise NotImplementedError(
                f"vmap is only supported for {self.label} if vmap_method is one of 'sequential', "
                f"'expand_dims' and 'broadcast_all', got None (pass vmap_method=){here()}"
            )
        if self.vmap_method == "sequential" or self.batch is not None:
            return super().vmap(axis, xs, dims)
        size = axis[1]
        least = 1 if self.vmap_method == "expand_dims" else size
        moved = [bdim_at(x, d, least if d is None else size) for x, d in zip(xs, dims, strict=True)]
        op = replace(self, avals=tuple(Aval((size, *a.shape), a.dtype) for a in self.avals),
                     shapes=tuple(x.shape for x in moved))
        return op(*moved), [0] * len(self.avals)


@dataclass(frozen=True)
class BufferCallWithEffects(BufferCall):
    """The same for a function with side effects, which runs even if its results are unused."""

    effects = frozenset({"io"})


@dataclass(frozen=True)
class PrototypeCall(CFunction):
    """A function with the parameters of its prototype: pointers to arrays, and numbers.

    A parameter is ("in", i), ("out", i) or (dtype, bits)."""

    symbol: str
    label: str
    avals: tuple[Aval, ...]
    parameters: tuple[tuple[str, int], ...]
    parallel: bool = False
    batch: int | None = None
    mapped: tuple[bool, ...] = ()
    name = "c_function"
    kernel_family = "foreign.prototype"

    def run(self, xs: list[np.ndarray], outs: list[np.ndarray]) -> None:
        types = [ctypes.c_void_p if kind in ("in", "out") else C_TYPES[kind][0]
                 for kind, _ in self.parameters]
        call = self.function(None, *types)
        for given, made in self.examples(xs, outs):
            arrays = {"in": given, "out": made}
            call(*(arrays[kind][n].ctypes.data if kind in arrays else number_of(n, kind)
                   for kind, n in self.parameters))


@dataclass(frozen=True)
class ElementCall(CFunction):
    """A function that takes numbers, such as `double f(double)`, called for each element."""

    symbol: str
    label: str
    avals: tuple[Aval, ...]
    parallel: bool = False
    name = "c_function_of_elements"
    kernel_family = "foreign.elements"
    batch = None
    mapped = ()

    @property
    def count(self) -> int:
        """How many elements there are."""
        return prod(self.avals[0].shape)

    def run(self, xs: list[np.ndarray], outs: list[np.ndarray]) -> None:
        types = [C_TYPES[x.dtype.name][0] for x in (*outs, *xs)]
        call = self.function(*types)
        flat = [x.ravel().tolist() for x in xs]
        outs[0].reshape(-1)[:] = [call(*row) for row in zip(*flat, strict=True)]

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        moved = [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
        aval = self.avals[0]
        op = replace(self, avals=(Aval((axis[1], *aval.shape), aval.dtype),))
        return op(*moved), [0]


@dataclass(frozen=True)
class CudaKernel(Foreign):
    """A kernel of CUDA C++: pointers to the operands and to the results, then numbers."""

    source: str
    label: str
    avals: tuple[Aval, ...]
    numbers: tuple[tuple[str, int], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    batch: int | None = None
    mapped: tuple[bool, ...] = ()
    name = "cuda_kernel"
    kernel_family = "foreign.cuda"

    def eager(self, xp: Any, *xs: Any) -> Any:
        raise NotImplementedError(
            f"{self.label}: needed a GPU, because the kernel is CUDA C++; got a computation on the "
            f"CPU (write the function for CPUs with toile.lax.platform_dependent){here()}"
        )
