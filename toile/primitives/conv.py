"""Convolution of any rank, with strides, dilations, padding and groups.

`dimension_numbers` gives the batch, feature and spatial axes of both operands and the result. The
derivatives with respect to either operand are also convolutions, and a mapped axis becomes
additional features, batch entries or groups. This module may import the engine and other modules of
`primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from toile.engine import dtypes
from toile.engine.avals import Aval, aval_of
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim
from toile.engine.records import dataclass
from toile.engine.traits import Shape
from toile.primitives import arrays, division
from toile.primitives.elementwise import convert
from toile.primitives.families import NUMERIC, Bilinear, inverse, move_axis, reshape, zeros
from toile.primitives.rules import frame_rule
from toile.primitives.shapes import Rev
from toile.primitives.windows import dilated, transposed_padding

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class ConvDimensionNumbers(NamedTuple):
    """The order of the axes of a convolution's operands and result, as axis numbers.

    `lax.conv_dimension_numbers` creates this tuple from three strings, such as
    ("NHWC", "HWIO", "NHWC").

    Args:
        lhs_spec: axes of the input: batch, features, then the spatial axes.
        rhs_spec: axes of the kernel: output features, input features, then the spatial axes.
        out_spec: axes of the result: batch, features, then the spatial axes.

    >>> lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1),
    ...                          out_spec=(0, 3, 1, 2))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """

    lhs_spec: Sizes
    rhs_spec: Sizes
    out_spec: Sizes


def _swapped(spec: Sizes) -> Sizes:
    """The spec with batch and feature axes (or out and in features) exchanged."""
    return (spec[1], spec[0], *spec[2:])


def _merge(x: Any, source: int, into: int) -> Any:
    """Make axis `source` the slower part of axis `into`, counted without `source`."""
    moved = move_axis(x, source, into)
    shape = list(moved.shape)
    shape[into : into + 2] = [shape[into] * shape[into + 1]]
    return reshape(moved, tuple(shape))


def _split(x: Any, axis: int, parts: int) -> Any:
    """Split axis `axis` in two: `parts` and the rest."""
    shape = list(x.shape)
    shape[axis : axis + 1] = [parts, shape[axis] // parts if parts else 0]
    return reshape(x, tuple(shape))


def _example(x: Any, dim: Dim) -> Aval:
    """The aval of an operand without its mapped axis."""
    aval = aval_of(x)
    shape = aval.shape
    return aval if dim is None else aval.with_shape(shape[:dim] + shape[dim + 1 :])


@dataclass(frozen=True)
class ConvGeneralDilated(Bilinear):
    """The cross-correlation of the padded and dilated `lhs` with the kernels `rhs`."""

    window_strides: Sizes
    padding: Pairs
    lhs_dilation: Sizes
    rhs_dilation: Sizes
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int = 1
    batch_group_count: int = 1
    precision: Any = None
    preferred_element_type: Any = None

    kernel_family = "convolution"
    sparse = frame_rule("convolution")
    can_make_nan = True

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        numbers = self.dimension_numbers
        batch = (numbers.lhs_spec[0], numbers.rhs_spec[0])[i]
        return numbers.out_spec[i] if axis == batch else None

    def infer(self, lhs: Aval, rhs: Aval) -> Aval:
        problem = self._problem(lhs, rhs)
        if problem:
            alike = lhs.ndim == rhs.ndim
            said = f"{self.name} lhs and rhs must have the same number of dimensions"
            raise shape_error(self.name, problem, [lhs, rhs], said="" if alike else said)
        dtype, preferred = lhs.dtype, self.preferred_element_type
        weak = lhs.weak_type and rhs.weak_type and preferred is None
        return Aval(self.out_shape(lhs.shape, rhs.shape), preferred or dtype, weak)

    def _problem(self, lhs: Aval, rhs: Aval) -> str:
        """What is wrong with the operands; empty if nothing."""
        numbers, rank = self.dimension_numbers, lhs.ndim
        if rhs.ndim != rank or any(sorted(s) != list(range(rank)) for s in numbers):
            return f"operands of equal rank and dimension numbers for it, here {tuple(numbers)}"
        fields = (self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation)
        if any(len(f) != rank - 2 for f in fields):
            return f"strides, padding and dilations for {rank - 2} spatial axes, here {fields}"
        if any(n < 1 for f in (fields[0], *fields[2:]) for n in f):
            return "positive strides and dilations"
        if lhs.dtype != rhs.dtype or dtypes.kind(lhs.dtype) not in NUMERIC:
            return "numeric operands of one dtype"
        return self._count_problem(lhs, rhs)

    def _count_problem(self, lhs: Aval, rhs: Aval) -> str:
        """What is wrong with the numbers of features, groups and batches."""
        numbers, groups, batches = (
            self.dimension_numbers, self.feature_group_count, self.batch_group_count)
        if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
            return "one of feature_group_count and batch_group_count to be 1"
        features, batch = lhs.shape[numbers.lhs_spec[1]], lhs.shape[numbers.lhs_spec[0]]
        outs, ins = (rhs.shape[d] for d in numbers.rhs_spec[:2])
        if features != groups * ins:
            return (
                f"feature_group_count ({groups}) times the kernels' input features ({ins}) to be "
                f"the features (channels) of the operand ({features}; transpose an operand, or "
                "name its layout in dimension_numbers)"
            )
        if outs % groups or outs % batches or batch % batches:
            return (
                f"output features ({outs}) and batch ({batch}) divisible by feature_group_count "
                f"({groups}) and batch_group_count ({batches})"
            )
        return ""

    def out_shape(self, lhs: Sequence[int], rhs: Sequence[int]) -> Sizes:
        """The shape of the result."""
        spec = self.dimension_numbers
        shape = arrays.conv_output_shape(
            [lhs[d] for d in spec.lhs_spec], [rhs[d] for d in spec.rhs_spec],
            self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation,
            self.batch_group_count,
        )  # fmt: skip
        return tuple(shape[d] for d in inverse(spec.out_spec))

    def eager(self, xp: Any, lhs: Any, rhs: Any) -> Any:
        spec = self.dimension_numbers
        out = arrays.conv_general(
            xp, lhs.transpose(spec.lhs_spec), rhs.transpose(spec.rhs_spec), self.window_strides,
            self.padding, self.lhs_dilation, self.rhs_dilation, self.feature_group_count,
            self.batch_group_count, self.preferred_element_type or lhs.dtype,
        )  # fmt: skip
        return out.transpose(inverse(spec.out_spec))

    def flops(self, *avals: Aval) -> int:
        # Positions of the window, or elements of the operand where these are fewer: the gradient
        # of a convolution multiplies zeros, which are not counted.
        spec, (lhs, rhs), out = self.dimension_numbers, avals, self.infer(*avals)
        taps = math.prod(n for d, n in enumerate(rhs.shape) if d != spec.rhs_spec[0])
        places = math.prod(map(min, self._spatial(lhs, spec.lhs_spec),
                               self._spatial(out, spec.out_spec)))
        return 2 * places * taps * math.prod(out.shape[d] for d in spec.out_spec[:2])

    # ---- derivatives
    def transpose(self, ct: Any, lhs: Any, rhs: Any) -> Any:
        linear, other = (lhs, rhs) if type(lhs) is Aval else (rhs, lhs)
        if ct.dtype != other.dtype:  # the dtypes differ: compute in the wider of the two
            wide = ct.dtype if ct.dtype.itemsize >= other.dtype.itemsize else other.dtype
            ct, other = convert(ct, wide), convert(other, wide)
        if linear is lhs:
            return convert(self._to_lhs(ct, lhs, other), lhs.dtype), None
        return None, convert(self._to_rhs(ct, other, rhs), rhs.dtype)

    def _spatial(self, x: Any, spec: Sizes) -> list[int]:
        return [x.shape[d] for d in spec[2:]]

    def _to_lhs(self, ct: Any, lhs: Aval, rhs: Any) -> Any:
        """Correlate the cotangent, dilated by the strides, with the reversed kernels."""
        x_spec, w_spec, out_spec = self.dimension_numbers
        pads = transposed_padding(
            self._spatial(lhs, x_spec), self._spatial(rhs, w_spec), self.window_strides,
            self._spatial(ct, out_spec), self.padding, self.lhs_dilation, self.rhs_dilation,
        )  # fmt: skip
        groups = max(self.feature_group_count, self.batch_group_count)
        if groups > 1:  # kernels of group g belong to the inputs of group g
            rhs = _merge(_split(rhs, w_spec[0], groups), w_spec[0], w_spec[1])
        back = ConvGeneralDilated(
            self.lhs_dilation, pads, self.window_strides, self.rhs_dilation,
            ConvDimensionNumbers(out_spec, _swapped(w_spec), x_spec), groups, 1, self.precision,
        )  # fmt: skip
        out = back(ct, Rev(w_spec[2:])(rhs) if len(w_spec) > 2 else rhs)
        if self.batch_group_count > 1:
            out = _merge(_split(out, x_spec[1], groups), x_spec[1], x_spec[0])
        return out

    def _to_rhs(self, ct: Any, lhs: Any, rhs: Aval) -> Any:
        """Correlate the operand with the cotangent as its kernel, and the batch as features."""
        x_spec, w_spec, out_spec = self.dimension_numbers
        pads = []
        for n, k, m, s, (low, _), b, d in zip(
            self._spatial(lhs, x_spec), self._spatial(rhs, w_spec), self._spatial(ct, out_spec),
            self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation, strict=True,
        ):  # fmt: skip
            pads.append((low, dilated(m, s) - dilated(n, b) + dilated(k, d) - low - 1))
        back = ConvGeneralDilated(
            self.rhs_dilation, tuple(pads), self.lhs_dilation, self.window_strides,
            ConvDimensionNumbers(_swapped(x_spec), _swapped(out_spec), _swapped(w_spec)),
            self.batch_group_count, self.feature_group_count, self.precision,
        )  # fmt: skip
        return back(lhs, ct)

    # ---- vmap
    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (lhs, rhs), (d, dw) = xs, dims
        if not axis[1]:  # merged axes would not show the sizes of an example
            out = self.infer(*map(_example, xs, dims))
            return zeros(out.with_shape((0, *out.shape))), 0
        if d is not None and dw is not None:
            return self._vmap_both(lhs, rhs, d, dw, axis[1])
        if d is not None:
            return self._vmap_lhs(lhs, rhs, d, axis[1])
        assert dw is not None
        return self._vmap_rhs(lhs, rhs, dw, axis[1])

    def _vmap_both(self, lhs: Any, rhs: Any, d: int, dw: int, size: int) -> tuple[Any, Any]:
        """Make a group, or a set of groups, of each example."""
        x_spec, w_spec, out_spec = self.dimension_numbers
        if self.batch_group_count > 1:
            op = replace(self, batch_group_count=size * self.batch_group_count)
            lhs = _merge(lhs, d, x_spec[0])
        else:
            op = replace(self, feature_group_count=size * self.feature_group_count)
            lhs = _merge(lhs, d, x_spec[1])
        out = op(lhs, _merge(rhs, dw, w_spec[0]))
        return _split(out, out_spec[1], size), out_spec[1]

    def _vmap_lhs(self, lhs: Any, rhs: Any, d: int, size: int) -> tuple[Any, Any]:
        """Make the mapped axis a part of the batch; batch groups stay outermost."""
        batch, out = self.dimension_numbers.lhs_spec[0], self.dimension_numbers.out_spec[0]
        groups = self.batch_group_count
        if groups == 1:
            lhs = _merge(lhs, d, batch)
        else:  # (size, groups batch) -> (groups size batch)
            lhs = _split(move_axis(lhs, d, batch), batch + 1, groups)
            lhs = move_axis(lhs, batch, batch + 1)
            shape = list(lhs.shape)
            shape[batch : batch + 3] = [math.prod(shape[batch : batch + 3])]
            lhs = reshape(lhs, tuple(shape))
        return _split(self(lhs, rhs), out, size), out

    def _vmap_rhs(self, lhs: Any, rhs: Any, dw: int, size: int) -> tuple[Any, Any]:
        """Make the mapped axis a part of the output features; groups stay outermost."""
        axis, out_axis = self.dimension_numbers.rhs_spec[0], self.dimension_numbers.out_spec[1]
        groups = max(self.feature_group_count, self.batch_group_count)
        if groups == 1:
            return _split(self(lhs, _merge(rhs, dw, axis)), out_axis, size), out_axis
        rhs = _split(move_axis(rhs, dw, axis), axis + 1, groups)
        rhs = move_axis(rhs, axis, axis + 1)
        shape = list(rhs.shape)
        shape[axis : axis + 3] = [math.prod(shape[axis : axis + 3])]
        out = self(lhs, reshape(rhs, tuple(shape)))
        out = _split(_split(out, out_axis, groups), out_axis + 1, size)
        return _merge(out, out_axis, out_axis + 1), out_axis

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        if self.batch_group_count != 1:
            return super().divide(f, ins, outs)
        numbers = self.dimension_numbers
        # Spatial axes are whole; feature axes too if they are in groups.
        labels = [["_"] * outs[0].ndim for _ in range(3)]
        labels[0][numbers.lhs_spec[0]] = labels[2][numbers.out_spec[0]] = "b"
        if self.feature_group_count == 1:
            labels[0][numbers.lhs_spec[1]] = labels[1][numbers.rhs_spec[1]] = "i"
            labels[1][numbers.rhs_spec[0]] = labels[2][numbers.out_spec[1]] = "o"
        return division.by_labels(self, labels, f, ins, outs)


