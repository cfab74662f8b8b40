"""Quantized numbers: small integers (or float8 numbers) with a scale for each group of neighbors.

`Dequantize` computes the numbers that the integers represent. It stays a single operation until the
compiler has seen which operations read it, so that products can read the integers instead. This
module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives.bits import and_, shift_right_logical
from toile.primitives.choices import convert
from toile.primitives.families import (
    bdim_at,
    broadcast_in_dim,
    mul,
    reshape,
    scalar,
    sub,
)
from toile.primitives.shapes import iota, pad, slice_axis

NIBBLE_ZERO = 8  # the stored form of 0 in groups of 4-bit integers without zero points
STORED = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
SCALES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Dequantize(Operation):
    """(values - zeros) * scales, where groups of elements along an axis share scales and zeros.

    The operands are values, scales, zeros (if there are any), if `weighted` factors by which the
    result is multiplied in the end, which broadcast to it, and, if `calibrated`, a scale for the
    inputs of products, which `quantization.quantize_inputs` reads. Along the axis, there is a
    scale for each `group` elements; the last group may be shorter. If `bits` is 4, a uint8 contains
    two values: element 2i is in the low bits and element 2i + 1 in the high bits. Without zeros,
    4-bit values are 8 too large. The result is computed in float32 (float64 for scales of that
    dtype). Scales are constants in derivatives."""

    bits: int
    group: int
    length: int  # of the result along the axis
    axis: int  # negative: counted from the end
    dtype: Any
    calibrated: bool = False
    weighted: bool = False

    handles_zeros = dequantizes = True
    is_free = True  # reading the integers in each step of a loop is cheaper than reading floats

    @property
    def groups(self) -> int:
        return -(-self.length // self.group)

    @property
    def stored(self) -> int:
        """The length of the values along the axis."""
        return -(-self.length * self.bits // 8)

    @property
    def offset(self) -> int:
        """What is subtracted from values if there are no zeros."""
        return NIBBLE_ZERO if self.bits == 4 else 0

    def zeros_in(self, rest: Sequence[Any]) -> Sequence[Any]:
        """The zeros among the operands after the scales: one array or none."""
        return rest[: len(rest) - self.calibrated - self.weighted]

    def factors_in(self, rest: Sequence[Any]) -> Any:
        """The factors among the operands after the scales, or None."""
        return rest[len(rest) - self.calibrated - 1] if self.weighted else None

    def infer(self, values: Aval, scales: Aval, *rest: Aval) -> Aval:
        zeros = self.zeros_in(rest)
        few = len(zeros) <= 1 and all(z.shape == scales.shape for z in zeros)
        names = [np.dtype(a.dtype).name for a in (values, scales, *zeros)]
        kinds = names[0] in (STORED if self.bits == 8 else ("uint8",))
        kinds = kinds and all(name in SCALES for name in names[1:])
        ok = few and kinds and -values.ndim <= self.axis < 0 and values.ndim == scales.ndim
        if not ok or values.shape != self._sized(values.shape, self.stored) or (
                scales.shape != self._sized(values.shape, self.groups)):
            raise shape_error(
                self.name, f"values with {self.stored} elements of 8 bits along axis {self.axis}, "
                f"and scales and zeros with {self.groups}, of equal shapes otherwise",
                [values, scales, *zeros], "quantize the array again")
        return Aval(self._sized(values.shape, self.length), self.dtype)

    def _sized(self, shape: Sequence[int], n: int) -> tuple[int, ...]:
        """The shape with another length along the axis."""
        sizes = list(shape)
        sizes[self.axis] = n
        return tuple(sizes)

    def eager(self, xp: Any, values: Any, scales: Any, *rest: Any) -> Any:
        zeros = self.zeros_in(rest)
        axis = values.ndim + self.axis
        if self.bits == 4:
            pairs = xp.stack([values & 15, values >> 4], axis + 1)
            pairs = pairs.reshape(self._sized(values.shape, 2 * values.shape[axis]))
            values = xp.split(pairs, [self.length], axis)[0]
        which = xp.arange(self.length) // self.group
        work = _work_type(scales.dtype)
        numbers = values.astype(work)
        if zeros:
            numbers = numbers - xp.take(zeros[0].astype(work), which, axis)
        elif self.offset:
            numbers = numbers - work.type(self.offset)
        numbers = numbers * xp.take(scales.astype(work), which, axis)
        if self.weighted:
            numbers = numbers * self.factors_in(rest).astype(work)
        return numbers.astype(self.dtype)

    def decoded(self, values: Any, scales: Any, *rest: Any) -> Any:
        """The result as a composition of other operations, for loop nests."""
        zeros = self.zeros_in(rest)
        work = _work_type(scales.dtype)
        axis = values.ndim + self.axis
        if self.bits == 4:
            values = _unpacked(values, axis)
            if values.shape[axis] > self.length:
                values = slice_axis(values, 0, self.length, axis)
        extra = self.groups * self.group - self.length
        numbers = convert(values, work)
        if extra:
            config = [(0, 0, 0)] * values.ndim
            config[axis] = (0, extra, 0)
            numbers = pad(numbers, scalar(0, work), tuple(config))
        shape = numbers.shape
        split = (*shape[:axis], self.groups, self.group, *shape[axis + 1 :])
        kept = tuple(i for i in range(len(split)) if i != axis + 1)
        numbers = reshape(numbers, split)

        def spread(x: Any) -> Any:
            return broadcast_in_dim(convert(x, work), split, kept)

        if zeros:
            numbers = sub(numbers, spread(zeros[0]))
        elif self.offset:
            numbers = sub(numbers, scalar(self.offset, work))
        numbers = reshape(mul(numbers, spread(scales)), shape)
        if extra:
            numbers = slice_axis(numbers, 0, self.length, axis)
        if self.weighted:
            factors = convert(self.factors_in(rest), work)
            numbers = mul(numbers, broadcast_in_dim(factors, numbers.shape, tuple(
                range(numbers.ndim))))
        return convert(numbers, np.dtype(self.dtype))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(*primals)
        return out, Zero(out)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(*(bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True))), 0


def _work_type(scales: Any) -> np.dtype[Any]:
    return np.dtype(np.float64 if np.dtype(scales) == np.float64 else np.float32)


def _unpacked(values: Any, axis: int) -> Any:
    """The 4-bit integers in bytes, two for each byte along the axis."""
    shape = (*values.shape[: axis + 1], 2, *values.shape[axis + 1 :])
    kept = tuple(i for i in range(len(shape)) if i != axis + 1)
    byte = np.dtype(np.uint8)
    shifts = mul(iota(byte, shape, axis + 1), scalar(4, byte))
    found = and_(shift_right_logical(broadcast_in_dim(values, shape, kept), shifts),
                 scalar(15, byte))
    return reshape(found, (*values.shape[:axis], 2 * values.shape[axis], *values.shape[axis + 1 :]))
