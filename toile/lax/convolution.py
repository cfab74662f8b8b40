"""Convolutions: general, transposed, unshared, their patches, and the shapes of their results.

`dimension_numbers` are three strings such as ("NHWC", "HWIO", "NHWC"), a `ConvDimensionNumbers`, or
None for ("NCHW", "OIHW", "NCHW"); strides and padding go with the spatial letters in the order of
the second string. May import the engine, primitives, `_operands` and this package's shapes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.lax import elementwise, shapes
from toile.lax._operands import ints, operand, prepared, user_dtype
from toile.lax.contractions import PrecisionLike, canonicalize_precision, dot_general
from toile.lax.conversion import convert_element_type
from toile.lax.windows import padtype_to_pads
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated
from toile.primitives.families import inverse
from toile.primitives.windows import dilated

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding",
]  # fmt: skip

ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None
Padding = str | Sequence[tuple[int, int]]


# ------------------------------------------------------------------------------- dimension numbers


def conv_general_permutations(dimension_numbers: Any) -> tuple[tuple[int, ...], ...]:
    """Axes of lhs, rhs and result in the order batch, feature, spatial, from three strings."""
    pairs = ("NC", "OI", "NC")
    for i, (spec, pair) in enumerate(zip(dimension_numbers, pairs, strict=True)):
        if any(spec.count(c) != 1 for c in pair) or len(set(spec)) != len(spec):
            raise TypeError(f"convolution dimension_numbers[{i}]: needed distinct letters with "
                            f"{pair[0]!r} and {pair[1]!r} among them, got {spec!r}{here()}")
    spatial = [set(s) - set(p) for s, p in zip(dimension_numbers, pairs, strict=True)]
    if not spatial[0] == spatial[1] == spatial[2]:
        raise TypeError("convolution dimension_numbers: needed the same spatial letters in all "
                        f"three, got {tuple(dimension_numbers)}{here()}")
    order = [c for c in dimension_numbers[1] if c not in "OI"]
    return tuple(
        (spec.index(pair[0]), spec.index(pair[1]), *(spec.index(c) for c in order))
        for spec, pair in zip(dimension_numbers, pairs, strict=True)
    )


@lru_cache(maxsize=512)
def _numbers(lhs_rank: int, rhs_rank: int, numbers: Any) -> ConvDimensionNumbers:
    if lhs_rank != rhs_rank:
        raise TypeError(f"convolution: needed operands of equal rank, got {lhs_rank} and "
                        f"{rhs_rank} (add the missing axes with x[None]){here()}")
    if numbers is None:
        return ConvDimensionNumbers(*(tuple(range(lhs_rank)),) * 3)
    if len(numbers) != 3 or not all(isinstance(s, str) and len(s) == lhs_rank for s in numbers):
        raise TypeError("convolution dimension_numbers: needed three strings of length "
                        f"{lhs_rank}, got {numbers}{here()}")
    return ConvDimensionNumbers(*conv_general_permutations(numbers))


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers: Any) -> ConvDimensionNumbers:
    """Axes of the operands and the result, from any form of `dimension_numbers`."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return ConvDimensionNumbers(*map(ints, dimension_numbers))
    if dimension_numbers is not None:
        if not isinstance(dimension_numbers, (list, tuple)):
            raise TypeError("convolution dimension_numbers: needed a tuple, a list or None, got "
                            f"{type(dimension_numbers)}{here()}")
        dimension_numbers = tuple(dimension_numbers)
    return _numbers(len(lhs_shape), len(rhs_shape), dimension_numbers)


# ------------------------------------------------------------------------------------- convolutions


def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: PrecisionLike = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Correlate the kernels `rhs` with a padded, dilated `lhs` at every stride."""
    x, w = operand("conv_general_dilated", lhs), operand("conv_general_dilated", rhs, 1)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    strides, ones = ints(window_strides), (1,) * (x.ndim - 2)
    base = ones if lhs_dilation is None else ints(lhs_dilation)
    dilation = ones if rhs_dilation is None else ints(rhs_dilation)
    if isinstance(padding, str):
        if any(b != 1 for b in base):
            raise ValueError("conv_general_dilated: needed padding as numbers with lhs_dilation, "
                             f"got {padding!r} (or use conv_transpose){here()}")
        window = [dilated(w.shape[d], r) for d, r in zip(numbers.rhs_spec[2:], dilation)]
        space = [x.shape[d] for d in numbers.lhs_spec[2:]]
        padding = padtype_to_pads(space, window, strides, padding)
    wanted = preferred_element_type
    if wanted is not None:
        wanted = user_dtype(wanted, "conv_general_dilated")
        if wanted == x.dtype and not (x.weak_type and w.weak_type):
            wanted = None
    fields = (
        strides, _pairs(padding), base, dilation, numbers, operator.index(feature_group_count),
        operator.index(batch_group_count), canonicalize_precision(precision), wanted,
    )  # fmt: skip
    return prepared(ConvGeneralDilated, fields, x.shape, x.dtype, w.shape, w.dtype)(x, w)


def _pairs(padding: Any) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((operator.index(low), operator.index(high)) for low, high in padding)
    except (TypeError, ValueError) as error:
        raise ValueError("padding argument to conv_general_dilated: needed a string or (low, high) "
                         f"pairs, got {padding!r}{here()}") from error


def conv(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str,
         precision: PrecisionLike = None, preferred_element_type: Any = None) -> Any:
    """Convolution of NCHW operands with OIHW kernels."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                              lhs_dilation: Sequence[int] | None,
                              rhs_dilation: Sequence[int] | None, precision: PrecisionLike = None,
                              preferred_element_type: Any = None) -> Any:
    """Convolution of NCHW operands with OIHW kernels, dilated."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                precision=precision, preferred_element_type=preferred_element_type)


_TRANSPOSE_DEFAULTS = {
    2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}  # fmt: skip


def conv_transpose(lhs: Any, rhs: Any, strides: Sequence[int], padding: Padding,
                   rhs_dilation: Sequence[int] | None = None,
                   dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
                   transpose_kernel: bool = False, precision: PrecisionLike = None,
                   preferred_element_type: Any = None, use_consistent_padding: bool = False) -> Any:
    """Convolution of an operand whose elements lie `strides` apart: the transpose of a forward one.

    "SAME" and "VALID" are the padding of that forward convolution; so are pairs of numbers with
    `use_consistent_padding`, otherwise they pad this one. `transpose_kernel` takes the forward
    kernel: it is flipped, and its feature axes change places."""
    x, w = operand("conv_transpose", lhs), operand("conv_transpose", rhs, 1)
    if dimension_numbers is None:
        if x.ndim not in _TRANSPOSE_DEFAULTS:
            raise ValueError("conv_transpose: needed dimension_numbers for operands of rank "
                             f"{x.ndim}, got None{here()}")
        dimension_numbers = _TRANSPOSE_DEFAULTS[x.ndim]
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    ones, steps = (1,) * (x.ndim - 2), ints(strides)
    dilation = ones if rhs_dilation is None else ints(rhs_dilation)
    named = isinstance(padding, str) and padding in ("SAME", "VALID")
    pads: Any = padding
    if use_consistent_padding or named:
        each = [padding] * len(steps) if isinstance(padding, str) else padding
        kernel = [w.shape[d] for d in numbers.rhs_spec[2:]]
        pads = tuple(
            _transpose_padding(dilated(k, r), s, p)
            for k, r, s, p in zip(kernel, dilation, steps, each, strict=True)
        )
    if transpose_kernel:
        w = shapes.rev(w, numbers.rhs_spec[2:])
        swap = list(range(w.ndim))
        out, into = numbers.rhs_spec[:2]
        swap[out], swap[into] = into, out
        w = shapes.transpose(w, swap)
    return conv_general_dilated(x, w, ones, pads, steps, dilation, numbers, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transpose_padding(k: int, s: int, padding: Any) -> tuple[int, int]:
    """Padding of a transposed convolution along one axis, for kernel size k and stride s."""
    if padding == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
        return before, total - before
    if padding == "VALID":
        return k - 1, s - 1 + max(k - s, 0)
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        return k - padding[0] - 1, k - padding[1] - 1
    raise ValueError("conv_transpose: needed 'SAME', 'VALID' or (low, high) pairs, got "
                     f"{padding!r}{here()}")


# ------------------------------------------------------------------------ patches, unshared kernels


def conv_general_dilated_patches(
    lhs: Any, filter_shape: Sequence[int], window_strides: Sequence[int], padding: Padding,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """What a convolution sees: each window laid out in the feature axis, channel by channel."""
    x = operand("conv_general_dilated_patches", lhs)
    window = ints(filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    taps, channels = math.prod(window), x.shape[numbers.lhs_spec[1]]
    row, column = (shapes.broadcasted_iota(np.int32, (taps, taps), d) for d in (0, 1))
    one_hot = convert_element_type(elementwise.eq(row, column), x.dtype)
    kernel = shapes.reshape(shapes.broadcast(one_hot, (channels,)), (channels * taps, 1, *window))
    kernel = shapes.transpose(kernel, inverse(numbers.rhs_spec))
    return conv_general_dilated(x, kernel, window_strides, padding, lhs_dilation, rhs_dilation,
                                numbers, channels, 1, precision, preferred_element_type)


def conv_general_dilated_local(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
    filter_shape: Sequence[int], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
) -> Any:  # fmt: skip
    """Convolution with a kernel of its own at each output position.

    The spatial axes of `rhs` are those of the result; its input features are the channels and the
    window, laid out as in `conv_general_dilated_patches`."""
    x, w = operand("conv_general_dilated_local", lhs), operand("conv_general_dilated_local", rhs, 1)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    patches = conv_general_dilated_patches(x, filter_shape, window_strides, padding, lhs_dilation,
                                           rhs_dilation, numbers, precision)
    space = sorted(zip(numbers.out_spec[2:], numbers.rhs_spec[2:], strict=True))
    dims = (
        ((numbers.out_spec[1],), (numbers.rhs_spec[1],)),
        ([a for a, _ in space], [b for _, b in space]),
    )
    out = dot_general(patches, w, dims, precision)  # spatial axes in order, batch, features
    rank, rest = x.ndim, iter(range(x.ndim - 2))
    special = {numbers.out_spec[0]: rank - 2, numbers.out_spec[1]: rank - 1}
    return shapes.transpose(out, [special[d] if d in special else next(rest) for d in range(rank)])


# ------------------------------------------------------------------------------------------ shapes


def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int],
                     pads: Padding, batch_group_count: int = 1) -> tuple[int, ...]:
    """Shape of the convolution of (N, C, ...) with (O, I, ...)."""
    lhs, rhs = ints(lhs_shape), ints(rhs_shape)
    pairs = padtype_to_pads(lhs[2:], rhs[2:], strides, pads)
    if len(pairs) != len(lhs) - 2:
        raise TypeError(f"conv_shape_tuple: needed {len(lhs) - 2} pairs of padding, got "
                        f"{len(pairs)}{here()}")
    padded = [n + low + high for n, (low, high) in zip(lhs[2:], pairs, strict=True)]
    if any(n < 0 for n in padded):
        raise ValueError(f"conv_shape_tuple: needed padding that leaves sizes >= 0, got {pairs} "
                         f"for {lhs[2:]}{here()}")
    space = (
        max(0, (n - k) // s + 1) for n, k, s in zip(padded, rhs[2:], ints(strides), strict=True)
    )
    return (lhs[0] // batch_group_count, rhs[0], *space)


def _arranged(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[d] for d in spec)


def conv_general_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                             window_strides: Sequence[int], padding: Padding,
                             dimension_numbers: Any) -> tuple[int, ...]:
    """Shape of a convolution with dimension numbers given as three strings."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(_arranged(lhs_shape, lhs), _arranged(rhs_shape, rhs), window_strides,
                             padding)
    return _arranged(shape, inverse(out))


def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                               window_strides: Sequence[int], padding: Padding,
                               dimension_numbers: Any) -> tuple[int, ...]:
    """Shape of a transposed convolution with dimension numbers given as three strings."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    x, w = _arranged(lhs_shape, lhs), _arranged(rhs_shape, rhs)
    strides = ints(window_strides)
    pads: Any = padding
    if isinstance(padding, str):
        pads = [_transpose_padding(k, s, padding) for k, s in zip(w[2:], strides, strict=True)]
    space = (
        (n - 1) * s - k + 2 + sum(p)
        for n, k, s, p in zip(x[2:], w[2:], strides, pads, strict=True)
    )
    return _arranged((x[0], w[0], *space), inverse(out))
