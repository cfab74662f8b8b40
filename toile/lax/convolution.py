"""Convolutions (general, transposed, unshared), their patches, and the shapes of their results.

`dimension_numbers` are three strings such as ("NHWC", "HWIO", "NHWC"), a `ConvDimensionNumbers`, or
None, which means ("NCHW", "OIHW", "NCHW"). Strides and padding are in the order of the spatial
letters in the second string. This module may import the engine, primitives and other modules of
`lax`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.lax import comparisons, shapes
from toile.lax._operands import ints, operand, prepared, user_dtype
from toile.lax.contractions import PrecisionLike, canonicalize_precision, dot_general
from toile.lax.conversion import convert_element_type
from toile.lax.windows import padtype_to_pads
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated
from toile.primitives.families import inverse
from toile.primitives.windows import dilated

if TYPE_CHECKING:
    from toile.lax._operands import ShardingLike

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding",
]  # fmt: skip

ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None
Padding = str | Sequence[tuple[int, int]]


# ------------------------------------------------------------------------------- dimension numbers


def conv_general_permutations(
    dimension_numbers: Sequence[str],
) -> tuple[tuple[int, ...], ...]:
    """Convert three strings that name the axes of a convolution to axis numbers.

    Args:
        dimension_numbers: three strings, which describe the input, the kernel and the result and
            have one letter for each axis, such as ("NHWC", "HWIO", "NHWC"). N is the batch axis, C
            is the feature axis, I and O are the kernel's input and output feature axes, and all
            other letters are spatial axes.

    Returns:
        Three tuples of axis numbers. The tuples for the input and the result start with the batch
        and feature axes; the tuple for the kernel starts with the output and input feature axes.
        The spatial axes follow, in the order of the second string.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
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
        raise TypeError("convolution: lhs and rhs must have the same number of dimensions, got "
                        f"{lhs_rank} and {rhs_rank} (add the missing axes with x[None]){here()}")
    if numbers is None:
        return ConvDimensionNumbers(*(tuple(range(lhs_rank)),) * 3)
    if len(numbers) != 3 or not all(isinstance(s, str) and len(s) == lhs_rank for s in numbers):
        raise TypeError("convolution dimension_numbers: needed three strings of length "
                        f"{lhs_rank}, got {numbers}{here()}")
    return ConvDimensionNumbers(*conv_general_permutations(numbers))


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> ConvDimensionNumbers:  # fmt: skip
    """Convert any description of the axes of a convolution to axis numbers.

    Args:
        lhs_shape: shape of the input.
        rhs_shape: shape of the kernel, which has as many axes as the input.
        dimension_numbers: three strings such as ("NHWC", "HWIO", "NHWC"), a `ConvDimensionNumbers`,
            or None, which means ("NCHW", "OIHW", "NCHW") or its equivalent for a different number
            of spatial axes.

    Returns:
        A `ConvDimensionNumbers` with the axes of the input, the kernel and the result.

    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (5, 5, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return ConvDimensionNumbers(*map(ints, dimension_numbers))
    if dimension_numbers is not None:
        if not isinstance(dimension_numbers, (list, tuple)):
            raise TypeError("convolution dimension_numbers: needed a tuple, a list or None, got "
                            f"{type(dimension_numbers)}{here()}")
    numbers = None if dimension_numbers is None else tuple(dimension_numbers)
    return _numbers(len(lhs_shape), len(rhs_shape), numbers)


# ------------------------------------------------------------------------------------- convolutions


def conv_general_dilated(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: ShardingLike | None = None,
) -> Array:  # fmt: skip
    """Convolve a batch of inputs with kernels, over any number of spatial axes.

    Each output element is computed by multiplying a kernel by the corresponding window of the
    input, and summing the products over the window and all input features. As usual in machine
    learning, the kernel is not flipped; in mathematics, this operation is called a
    cross-correlation. Strides, padding and dilations are given for each spatial axis, in the order
    of the kernel's spatial axes.

    Args:
        lhs: the input, with batch, feature and spatial axes in the order of `dimension_numbers`.
        rhs: the kernels, of the same dtype as `lhs`, with output feature, input feature and spatial
            axes.
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID" uses only windows that are entirely inside the input. "SAME" pads with
            zeros so that there are `ceil(size / stride)` windows; if the number of zeros is odd,
            the extra zero is added at the end. "SAME_LOWER" adds the extra zero at the start. A
            sequence of pairs `(before, after)` specifies, for each spatial axis, how many zeros to
            add at its start and at its end. Negative numbers remove elements.
        lhs_dilation: distance between neighboring elements of the input along each spatial axis
            after zeros are inserted between them; None means 1, which inserts no zeros.
        rhs_dilation: distance between neighboring elements of the kernel along each spatial axis,
            as in atrous convolutions; None means 1.
        dimension_numbers: three strings, which describe the input, the kernel and the result and
            have one letter for each axis, such as ("NHWC", "HWIO", "NHWC"). N is the batch axis, C
            is the feature axis, I and O are the kernel's input and output feature axes, and all
            other letters are spatial axes. The default is ("NCHW", "OIHW", "NCHW"). A
            `ConvDimensionNumbers` is also accepted.
        feature_group_count: number of groups into which the features are divided. Each group has
            its own kernels, whose input features are the features of that group. If there are as
            many groups as input features, this is a depthwise convolution.
        batch_group_count: number of groups into which the batch is divided. Each group produces its
            own output features.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array whose axes are in the order of the third string. Without dilation, the size of a
        spatial axis is `(n + before + after - k) // stride + 1`, where `n` is the size of the input
        and `k` the size of the kernel along that axis.

    Convolve a 3 by 3 image that has one feature; the kernel sums each 2 by 2 window:

    >>> image, kernel = jnp.arange(9.0).reshape(1, 3, 3, 1), jnp.ones((2, 2, 1, 1))
    >>> names = ("NHWC", "HWIO", "NHWC")
    >>> y = lax.conv_general_dilated(image, kernel, (1, 1), "VALID", dimension_numbers=names)
    >>> y.shape
    (1, 2, 2, 1)
    >>> y[0, :, :, 0]
    Array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
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


def conv(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: str,
         precision: PrecisionLike = None,
         preferred_element_type: DTypeLike | None = None) -> Array:
    """Convolve a batch of inputs whose feature axis comes before the spatial axes.

    Args:
        lhs: the input, of shape (batch, input features, *spatial sizes).
        rhs: the kernels, of shape (output features, input features, *spatial sizes).
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID", "SAME" or "SAME_LOWER", as in `conv_general_dilated`.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.

    Returns:
        An array of shape (batch, output features, *spatial sizes).

    >>> lax.conv(jnp.array([[[1.0, 2.0, 4.0]]]), jnp.array([[[1.0, 1.0]]]), (1,), "VALID")
    Array([[[3., 6.]]], dtype=float32)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
                              padding: Padding, lhs_dilation: Sequence[int] | None,
                              rhs_dilation: Sequence[int] | None, precision: PrecisionLike = None,
                              preferred_element_type: DTypeLike | None = None) -> Array:
    """Convolve as `conv` does, but with arbitrary padding and with dilations.

    Args:
        lhs: the input, of shape (batch, input features, *spatial sizes).
        rhs: the kernels, of shape (output features, input features, *spatial sizes).
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID", "SAME", "SAME_LOWER" or a pair `(before, after)` for each spatial axis, as
            in `conv_general_dilated`.
        lhs_dilation: distance between neighboring elements of the input along each spatial axis
            after zeros are inserted between them; None means 1.
        rhs_dilation: distance between neighboring elements of the kernel along each spatial axis;
            None means 1.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.

    Returns:
        An array of shape (batch, output features, *spatial sizes).

    >>> x, kernel = jnp.array([[[1.0, 2.0, 4.0]]]), jnp.array([[[1.0, 1.0]]])
    >>> lax.conv_with_general_padding(x, kernel, (1,), [(0, 1)], None, (2,))
    Array([[[5., 2.]]], dtype=float32)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                precision=precision, preferred_element_type=preferred_element_type)


_TRANSPOSE_DEFAULTS = {
    2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}  # fmt: skip


def conv_transpose(lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int], padding: Padding,
                   rhs_dilation: Sequence[int] | None = None,
                   dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
                   transpose_kernel: bool = False, precision: PrecisionLike = None,
                   preferred_element_type: DTypeLike | None = None,
                   use_consistent_padding: bool = False) -> Array:
    """Compute a transposed convolution, which enlarges the spatial axes.

    Zeros are inserted between the elements of the input so that neighboring elements are `strides`
    apart, and the enlarged input is convolved with the kernel. Decoders and generators use
    transposed convolutions to enlarge images.

    Args:
        lhs: the input, with batch, feature and spatial axes.
        rhs: the kernels, with output feature, input feature and spatial axes.
        strides: factor by which each spatial axis grows.
        padding: with "SAME", a spatial axis of the result has size `size * stride`. With "VALID",
            every position at which the kernel overlaps the input is included, so the axis of the
            result has size `size * stride + max(k - stride, 0)` for a kernel of size `k`. A
            sequence of pairs `(before, after)` specifies, for each spatial axis, how many zeros to
            add at its start and at its end.
        rhs_dilation: distance between neighboring elements of the kernel along each spatial axis;
            None means 1.
        dimension_numbers: three strings that name the axes, as in `conv_general_dilated`. The
            default is ("NHWC", "HWIO", "NHWC"), or its equivalent for one or three spatial axes.
        transpose_kernel: whether `rhs` is the kernel of the corresponding ordinary (forward)
            convolution. If True, the kernel is flipped, and its input and output features are
            swapped.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        use_consistent_padding: whether the pairs in `padding` specify the padding of the
            corresponding forward convolution, as in PyTorch. If False, they specify the padding of
            the input after zeros are inserted.

    Returns:
        An array whose axes are in the order of the third string.

    >>> x, kernel = jnp.array([[[1.0], [2.0]]]), jnp.array([[[1.0]], [[10.0]]])
    >>> lax.conv_transpose(x, kernel, (2,), "SAME")[0, :, 0]
    Array([10.,  1., 20.,  2.], dtype=float32)
    """
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
    lhs: ArrayLike, filter_shape: Sequence[int], window_strides: Sequence[int], padding: Padding,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """Collect the windows of the input that a convolution would multiply by its kernels.

    Args:
        lhs: the input, with batch, feature and spatial axes.
        filter_shape: size of a window along each spatial axis.
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID", "SAME", "SAME_LOWER" or a pair `(before, after)` for each spatial axis, as
            in `conv_general_dilated`.
        lhs_dilation: distance between neighboring elements of the input along each spatial axis
            after zeros are inserted between them; None means 1.
        rhs_dilation: distance between neighboring elements of a window along each spatial axis;
            None means 1.
        dimension_numbers: three strings that name the axes, as in `conv_general_dilated`.
        precision: precision of the convolution that extracts the windows, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of `lhs`.

    Returns:
        An array with the same axes as the result of the convolution. Its features are the elements
        of a window: first all elements of the first input feature, then those of the second, and so
        on.

    >>> lax.conv_general_dilated_patches(jnp.array([[[1.0, 2.0, 3.0]]]), (2,), (1,), "VALID")
    Array([[[1., 2.],
            [2., 3.]]], dtype=float32)
    """
    x = operand("conv_general_dilated_patches", lhs)
    window = ints(filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    taps, channels = math.prod(window), x.shape[numbers.lhs_spec[1]]
    row, column = (shapes.broadcasted_iota(np.int32, (taps, taps), d) for d in (0, 1))
    one_hot = convert_element_type(comparisons.eq(row, column), x.dtype)
    kernel = shapes.reshape(shapes.broadcast(one_hot, (channels,)), (channels * taps, 1, *window))
    kernel = shapes.transpose(kernel, inverse(numbers.rhs_spec))
    return conv_general_dilated(x, kernel, window_strides, padding, lhs_dilation, rhs_dilation,
                                numbers, channels, 1, precision, preferred_element_type)


def conv_general_dilated_local(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
    filter_shape: Sequence[int], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
) -> Array:  # fmt: skip
    """Convolve with a different kernel at each output position.

    Args:
        lhs: the input, with batch, feature and spatial axes.
        rhs: the kernels. Their spatial axes have the same sizes as those of the result, and their
            input features are the elements of a window, in the order of
            `conv_general_dilated_patches`.
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID", "SAME", "SAME_LOWER" or a pair `(before, after)` for each spatial axis, as
            in `conv_general_dilated`.
        filter_shape: size of a window along each spatial axis.
        lhs_dilation: distance between neighboring elements of the input along each spatial axis
            after zeros are inserted between them; None means 1.
        rhs_dilation: distance between neighboring elements of a window along each spatial axis;
            None means 1.
        dimension_numbers: three strings that name the axes, as in `conv_general_dilated`.
        precision: precision of the multiplication, as in `dot_general`.

    Returns:
        An array whose axes are in the order of the third string.

    Use the kernel (1, 1) at the first position, and (10, 0) at the second:

    >>> x, kernels = jnp.array([[[1.0, 2.0, 3.0]]]), jnp.array([[[1.0, 10.0], [1.0, 0.0]]])
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,))
    Array([[[ 3., 20.]]], dtype=float32)
    """
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
    """Compute the shape of the result of `conv`.

    Args:
        lhs_shape: shape of the input, (batch, input features, *spatial sizes).
        rhs_shape: shape of the kernels, (output features, input features, *spatial sizes).
        strides: distance between neighboring windows along each spatial axis.
        pads: "VALID", "SAME", "SAME_LOWER" or a pair `(before, after)` for each spatial axis.
        batch_group_count: number of groups into which the batch is divided.

    Returns:
        The shape (batch, output features, *spatial sizes).

    >>> lax.conv_shape_tuple((2, 3, 8, 8), (16, 3, 3, 3), (1, 1), "VALID")
    (2, 16, 6, 6)
    """
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
                             dimension_numbers: Sequence[str]) -> tuple[int, ...]:
    """Compute the shape of the result of `conv_general_dilated`.

    Args:
        lhs_shape: shape of the input.
        rhs_shape: shape of the kernels.
        window_strides: distance between neighboring windows along each spatial axis.
        padding: "VALID", "SAME", "SAME_LOWER" or a pair `(before, after)` for each spatial axis.
        dimension_numbers: three strings that name the axes, as in `conv_general_dilated`.

    Returns:
        The shape, with the sizes in the order of the third string.

    >>> names = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_general_shape_tuple((2, 8, 8, 3), (3, 3, 3, 16), (2, 2), "SAME", names)
    (2, 4, 4, 16)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(_arranged(lhs_shape, lhs), _arranged(rhs_shape, rhs), window_strides,
                             padding)
    return _arranged(shape, inverse(out))


def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                               window_strides: Sequence[int], padding: Padding,
                               dimension_numbers: Sequence[str]) -> tuple[int, ...]:
    """Compute the shape of the result of `conv_transpose`.

    Args:
        lhs_shape: shape of the input.
        rhs_shape: shape of the kernels.
        window_strides: factor by which each spatial axis grows.
        padding: "SAME", "VALID" or a pair `(before, after)` for each spatial axis.
        dimension_numbers: three strings that name the axes, as in `conv_general_dilated`.

    Returns:
        The shape, with the sizes in the order of the third string.

    >>> names = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_transpose_shape_tuple((2, 8, 8, 3), (3, 3, 3, 16), (2, 2), "SAME", names)
    (2, 16, 16, 16)
    """
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
