"""Reductions over sliding windows, and the amount of padding that they need.

Neighboring windows are `window_strides` apart in the dilated and padded operand. Gaps and padding
do not contribute to the results. Common computations have specialized operations; any other
computation is applied to the elements of each window one after the other, in row-major order. This
module may import the engine, primitives and other modules of `lax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.source import here
from toile.engine.trees import unflatten
from toile.lax import shapes
from toile.lax._computations import (
    COMBINE,
    Computation,
    is_identity,
    operands_and_inits,
    settle_weak,
)
from toile.lax._operands import ints, prepared
from toile.lax.elementwise import select
from toile.primitives import arrays, windows
from toile.primitives.windows import dilated

__all__ = ["padtype_to_pads", "reduce_window", "reduce_window_shape_tuple"]

_WINDOWS = {
    "add": windows.ReduceWindowSum, "mul": windows.ReduceWindowProd,
    "max": windows.ReduceWindowMax, "min": windows.ReduceWindowMin,
    "and": windows.ReduceWindowAnd, "or": windows.ReduceWindowOr,
}  # fmt: skip
Pairs = Sequence[tuple[int, int]]
_FLOAT = np.dtype(np.float32)


def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int],
                    window_strides: Sequence[int], padding: str | Pairs) -> list[tuple[int, int]]:
    """Compute how many elements a padding mode adds at the start and end of each axis.

    Args:
        in_shape: sizes of the axes along which windows slide.
        window_shape: size of a window along each of these axes.
        window_strides: distance between neighboring windows along each axis.
        padding: "VALID" adds no padding. "SAME" pads so that there are `ceil(size / stride)`
            windows; if the number of added elements is odd, the extra element is added at the end.
            "SAME_LOWER" adds the extra element at the start. Pairs `(before, after)` are returned
            unchanged.

    Returns:
        A pair `(before, after)` for each axis.

    >>> lax.padtype_to_pads((10, 10), (3, 4), (1, 1), "SAME")
    [(1, 1), (1, 2)]
    """
    if not isinstance(padding, str):
        return [(int(low), int(high)) for low, high in padding]
    kind = padding.upper()
    if kind not in ("VALID", "SAME", "SAME_LOWER"):
        raise RuntimeError("padtype_to_pads: needed 'VALID', 'SAME' or 'SAME_LOWER' as padding, "
                           f"got {padding!r}{here()}")
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if not len(in_shape) == len(window_shape) == len(window_strides):
        raise shape_error(
            "window", f"a size and a stride for each of the {len(in_shape)} axes, here "
            f"sizes {window_shape} and strides {window_strides}", [],
        )
    pads = []
    for n, w, s in zip(ints(in_shape), ints(window_shape), ints(window_strides), strict=True):
        total = max((-(-n // s) - 1) * s + w - n, 0)
        small, large = total // 2, total - total // 2
        pads.append((small, large) if kind == "SAME" else (large, small))
    return pads


def _geometry(shape: Sequence[int], window: Any, strides: Any, padding: Any, base: Any,
              dilation: Any) -> tuple[Any, ...]:
    """Window, strides, padding and dilations as tuples, with the defaults filled in."""
    window = ints(window)
    ones = (1,) * len(window)
    strides, base, dilation = (
        ones if v is None else ints(v) for v in (strides, base, dilation)
    )
    if isinstance(padding, str):
        extents = [dilated(w, d) for w, d in zip(window, dilation, strict=True)]
        padding = padtype_to_pads(shape, extents, strides, padding)
    return window, strides, tuple(ints(p) for p in padding), base, dilation


def reduce_window(operand: PyTree, init_value: PyTree, computation: Callable[..., Any],
                  window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None,
                  padding: str | Pairs = "VALID", base_dilation: Sequence[int] | None = None,
                  window_dilation: Sequence[int] | None = None) -> PyTree:
    """Combine the elements in a window that slides over an array, as in pooling.

    If `computation` is `lax.max`, this function performs max pooling; if it is `lax.add`, the
    function performs sum pooling. A window has a size along every axis of the array, including the
    batch and channel axes, for which the size is usually 1.

    Args:
        operand: an array, or a tree of arrays of the same shape that are reduced together.
        init_value: for each array, a scalar of its dtype, which is combined with the elements of
            each window. The scalar is usually the identity element, such as 0 for a sum or
            `-jnp.inf` for a maximum.
        computation: an associative function that combines two scalars, or two trees of scalars,
            into one. Sums, products, maxima, minima, bitwise "and" and bitwise "or" are recognized
            and replaced with fast, specialized operations; for example, `lax.add` and
            `lambda a, b: a + b` are both recognized as sums. Other functions are applied to the
            elements of a window one after the other, for all windows at once.
        window_dimensions: size of a window along each axis.
        window_strides: distance between neighboring windows along each axis; None means 1.
        padding: "VALID" uses only windows that are entirely inside the array. "SAME" pads so that
            there are `ceil(size / stride)` windows; if the number of added elements is odd, the
            extra element is added at the end. "SAME_LOWER" adds the extra element at the start. A
            sequence of pairs `(before, after)` specifies, for each axis, how many elements to add
            at its start and at its end. Padding does not contribute to the results.
        base_dilation: distance between neighboring elements of the array along each axis; None
            means 1. Larger distances leave gaps, which do not contribute to the results.
        window_dilation: distance between neighboring elements of a window along each axis; None
            means 1.

    Returns:
        An array, or a tree of arrays, with the dtypes of `operand` and one element for each window.

    >>> x = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    >>> lax.reduce_window(x, 0, lax.add, (2, 2), (1, 2))
    Array([[14, 22]], dtype=int32)
    >>> lax.reduce_window(jnp.array([1.0, 5.0, 2.0]), -jnp.inf, lax.max, (2,), padding="SAME")
    Array([5., 5., 2.], dtype=float32)
    """
    xs, inits, tree = operands_and_inits("reduce_window", operand, init_value, computation)
    combine = Computation("reduce_window", computation, tree, [i.aval for i in inits])
    fields = _geometry(xs[0].shape, window_dimensions, window_strides, padding, base_dilation,
                       window_dilation)
    # A sum over windows checks the windows and gives the result's shape for any computation.
    whole = prepared(windows.ReduceWindowSum, fields, xs[0].shape, _FLOAT)
    shape = whole.infer(Aval(xs[0].shape, _FLOAT)).shape
    kind = combine.kind if combine.kind in _WINDOWS else None
    if kind in ("max", "min") and dtypes.kind(xs[0].dtype) == "c":
        kind = None
    if kind is not None:
        (x,), (init,) = xs, inits
        out = prepared(_WINDOWS[kind], fields, x.shape, x.dtype)(x)
        out = settle_weak(out, init) if is_identity(kind, init) else COMBINE[kind](out, init)
        return unflatten(tree, [out])
    outs = _folded(combine, xs, inits, fields, shape)
    return unflatten(tree, [settle_weak(o, x) for o, x in zip(outs, xs, strict=True)])


def _folded(combine: Computation, xs: list[Any], inits: list[Any], fields: Any,
            shape: tuple[int, ...]) -> list[Any]:
    """Fold each window in row-major order; positions outside the operand are skipped."""
    window, strides, pads, base, dilation = fields
    out = [shapes.broadcast_in_dim(i, shape, ()) for i in inits]
    if 0 in shape:
        return out
    config = tuple((low, high, b - 1) for (low, high), b in zip(pads, base, strict=True))
    inside = None
    if any(c != (0, 0, 0) for c in config):
        inside = shapes.pad(shapes.full(xs[0].shape, True), False, config)
        xs = [shapes.pad(x, i, config) for x, i in zip(xs, inits, strict=True)]
    for taps in product(*map(range, window)):
        starts = [t * d for t, d in zip(taps, dilation, strict=True)]
        limits = [a + (n - 1) * s + 1 for a, n, s in zip(starts, shape, strides, strict=True)]
        found = combine(out, [shapes.slice(x, starts, limits, strides) for x in xs])
        if inside is not None:
            valid = shapes.slice(inside, starts, limits, strides)
            found = [select(valid, a, b) for a, b in zip(found, out, strict=True)]
        out = found
    return out


def reduce_window_shape_tuple(operand_shape: Sequence[int], window_dimensions: Sequence[int],
                              window_strides: Sequence[int], padding: Pairs,
                              base_dilation: Sequence[int] | None = None,
                              window_dilation: Sequence[int] | None = None) -> tuple[int, ...]:
    """Compute the shape of the result of `reduce_window`.

    Args:
        operand_shape: shape of the array over which windows slide.
        window_dimensions: size of a window along each axis.
        window_strides: distance between neighboring windows along each axis.
        padding: a pair `(before, after)` for each axis.
        base_dilation: distance between elements of the array along each axis; None means 1.
        window_dilation: distance between elements of a window along each axis; None means 1.

    Returns:
        The shape, a tuple with one size for each axis.

    >>> lax.reduce_window_shape_tuple((8, 8), (2, 3), (2, 1), ((0, 0), (1, 1)))
    (4, 8)
    """
    fields = _geometry(operand_shape, window_dimensions, window_strides, padding, base_dilation,
                       window_dilation)
    return tuple(arrays.window_output_shape(ints(operand_shape), *fields))
