"""How padding, products, convolutions, pooling, sorting and running sums are written in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.program import Equation
from toile.exporting.numpy_writer import missing_rule
from toile.exporting.onnx_writer import OnnxWriter, Rule
from toile.exporting.sizes import Size, plus, times
from toile.primitives import contractions, conv, cumulative, recurrences, shapes, sorts, windows

MOST_SPATIAL = 3  # largest number of axes over which runtimes can pool
Config = Sequence[Sequence[int]]


def padded(w: OnnxWriter, x: str, value: str, shape: Sequence[int], config: Config) -> str:
    """Add `low` and `high` values around each axis of x, and `interior` ones between elements."""
    sizes = list(shape)
    for axis, (_, _, interior) in enumerate(config):
        if interior and sizes[axis] != 1:
            x = _spread(w, x, value, sizes, axis, int(interior))
    if not any(low or high for low, high, _ in config):
        return x
    pads = [int(low) for low, _, _ in config] + [int(high) for _, high, _ in config]
    cut = [(axis, low, high) for axis, (low, high, _) in enumerate(config) if low < 0 or high < 0]
    for axis, low, high in cut:
        stop = plus(sizes[axis], min(high, 0))
        x = w.slice(x, [max(-low, 0)], [stop], [axis], [1])
    pads = [max(p, 0) for p in pads]
    return w.node("Pad", [x, w.ints(*pads), value]) if any(pads) else x


def _spread(
    w: OnnxWriter, x: str, value: str, sizes: list[int], axis: int, interior: int
) -> str:
    """Insert values between the elements of x along an axis, whose size is updated."""
    n, rank = sizes[axis], len(sizes)
    x = w.reshape(x, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    pads = [0] * (2 * (rank + 1))
    pads[rank + 1 + axis + 1] = interior
    x = w.node("Pad", [x, w.ints(*pads), value])
    wide = times(n, interior + 1)
    x = w.reshape(x, [*sizes[:axis], wide, *sizes[axis + 1 :]])
    sizes[axis] = plus(wide, -interior)
    return w.slice(x, [0], [sizes[axis]], [axis], [1])


def _pad(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    x = e.ins[0].aval
    if x.dtype == np.bool_:
        found = padded(w, w.cast(xs[0], np.int32), w.cast(xs[1], np.int32), x.shape, op.config)
        return w.cast(found, np.bool_)
    return padded(w, xs[0], xs[1], x.shape, op.config)


# ---------------------------------------------------------------------------------------- products


def _kinds(x: str, y: str, out: str) -> tuple[list[str], ...]:
    """The labels of a contraction: of a batch, of x alone, of y alone, and summed."""
    batch = [c for c in out if c in x and c in y]
    left, right = ([c for c in s if c in out and c not in batch] for s in (x, y))
    return batch, left, right, [c for c in x if c in y and c not in out]


def _dot(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    dtype = e.outs[0].aval.dtype
    xs = [x if a.aval.dtype == dtype else w.cast(x, dtype)
          for x, a in zip(xs, e.ins, strict=True)]
    x, y, out = op.lhs, op.rhs, op.out
    batch, left, right, summed = _kinds(x, y, out)
    if len(summed) == 1 and len(right) == 1 and (len(left) == 1 or not batch and left):
        first = w.transpose(xs[0], [x.index(c) for c in (*batch, *left, *summed)])
        second = w.transpose(xs[1], [y.index(c) for c in (*batch, *summed, *right)])
        made = [*batch, *left, *right]
        return w.transpose(w.node("MatMul", [first, second]), [made.index(c) for c in out])
    return w.node("Einsum", xs, equation=f"{x},{y}->{out}")


def _convolution(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    numbers = op.dimension_numbers
    if op.batch_group_count != 1 or len(op.window_strides) == 0:
        raise missing_rule("to_onnx", e)
    dtype = e.outs[0].aval.dtype
    xs = [v if a.aval.dtype == dtype else w.cast(v, dtype)
          for v, a in zip(xs, e.ins, strict=True)]
    x, k = w.transpose(xs[0], numbers.lhs_spec), w.transpose(xs[1], numbers.rhs_spec)
    shape = [e.ins[0].aval.shape[d] for d in numbers.lhs_spec]
    pads = [tuple(map(int, p)) for p in op.padding]
    if any(low < 0 or high < 0 for low, high in pads) or set(op.lhs_dilation) != {1}:
        config = [(0, 0, 0), (0, 0, 0)]
        config += [(low, high, d - 1) for (low, high), d in zip(pads, op.lhs_dilation, strict=True)]
        x = padded(w, x, w.like(0, e.ins[0].aval), shape, config)
        pads = [(0, 0)] * len(pads)
    kernel = [int(e.ins[1].aval.shape[d]) for d in numbers.rhs_spec[2:]]
    out = w.node("Conv", [x, k], strides=op.window_strides, dilations=op.rhs_dilation,
                 group=int(op.feature_group_count), kernel_shape=kernel,
                 pads=[p[0] for p in pads] + [p[1] for p in pads])
    return w.transpose(out, np.argsort(numbers.out_spec).tolist())


# ----------------------------------------------------------------------------------------- windows


class _Windows:
    """The operand of a pooling operator: windows are over its last axes, after a batch and a
    channel."""

    def __init__(self, w: OnnxWriter, op: Any, e: Equation):
        size, strides, padding, base, dilation = op.geometry()
        self.axes = [i for i, parts in enumerate(zip(size, strides, padding, base, dilation,
                                                     strict=True))
                     if parts != (1, 1, (0, 0), 1, 1)]
        self.others = [i for i in range(len(size)) if i not in self.axes]
        if len(self.axes) > MOST_SPATIAL or e.ins[0].aval.dtype.kind != "f" or any(
                isinstance(e.ins[0].aval.shape[i], Size) for i in self.axes):
            raise missing_rule("to_onnx", e)
        pick = lambda values: [values[i] for i in self.axes]
        self.size, self.strides, self.dilation = pick(size), pick(strides), pick(dilation)
        self.config = [(low, high, b - 1) for (low, high), b in zip(pick(padding), pick(base),
                                                                    strict=True)]
        self.w, self.e = w, e

    def pooled(self, x: str, neutral: float, pool: Callable[[str], str]) -> str:
        """Apply an operator to the padded operand in its layout."""
        if not self.axes:
            return x
        w, aval, out = self.w, self.e.ins[0].aval, self.e.outs[0].aval
        x = w.transpose(x, [*self.others, *self.axes])
        spatial = [aval.shape[i] for i in self.axes]
        x = w.node("Reshape", [x, w.shape([-1, 1, *spatial])])
        x = padded(w, x, w.like(neutral, aval), [1, 1, *spatial], [(0, 0, 0)] * 2 + self.config)
        x = pool(x)
        shape = [out.shape[i] for i in (*self.others, *self.axes)]
        order = np.argsort([*self.others, *self.axes]).tolist()
        return w.transpose(w.reshape(x, shape), order)


def _window_extreme(largest: bool) -> Rule:
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        layout = _Windows(w, op, e)
        x = xs[0] if largest else w.node("Neg", xs)
        pool = lambda x: w.node("MaxPool", [x], kernel_shape=layout.size, strides=layout.strides,
                                dilations=layout.dilation)
        out = layout.pooled(x, -np.inf, pool)
        return out if largest else w.node("Neg", [out])
    return rule


def _window_sum(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    layout = _Windows(w, op, e)
    aval = e.ins[0].aval
    ones = w.constant(np.ones((1, 1, *layout.size), aval.dtype))

    def pool(x: str) -> str:
        if set(layout.dilation) == {1}:
            mean = w.node("AveragePool", [x], kernel_shape=layout.size, strides=layout.strides)
            return w.node("Mul", [mean, w.like(math.prod(layout.size), aval)])
        return w.node("Conv", [x, ones], strides=layout.strides, dilations=layout.dilation)

    return layout.pooled(xs[0], 0, pool)


# --------------------------------------------------------------------------- sorting, partial sums


def _sort(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> Any:
    axis, n = op.dimension, e.ins[0].aval.shape[op.dimension]
    order = None
    for x, a in reversed([*zip(xs, e.ins, strict=True)][: op.num_keys]):
        small = a.aval.dtype.kind == "b" or a.aval.dtype.itemsize < 4
        key = w.cast(x, np.float32 if a.aval.dtype.kind == "f" else np.int32) if small else x
        if order is not None:
            key = w.node("GatherElements", [key, order], axis=axis)
        step = w.nodes("TopK", [key, w.vector(n)], 2, axis=axis, largest=0, sorted=1)[1]
        order = step if order is None else w.node("GatherElements", [order, step], axis=axis)
    assert order is not None
    return [w.node("GatherElements", [x, order], axis=axis) for x in xs]


def _top_k(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> Any:
    values, places = w.nodes("TopK", [xs[0], w.vector(op.k)], 2, axis=op.axis, largest=1, sorted=1)
    return values, w.cast(places, np.int32)


def _cumsum(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("CumSum", [xs[0], w.constant(op.axis, np.int64)], reverse=int(op.reverse))


Step = Callable[[list[str], list[str]], list[str]]


def _doubled(w: OnnxWriter, xs: list[str], aval: Aval, axis: int, reverse: bool, step: Step,
             e: Equation) -> list[str]:
    """Compute all partial results of an associative `step(before, after)` in log2(n) steps."""
    n = aval.shape[axis]
    if isinstance(n, Size):
        raise missing_rule("to_onnx", e)
    shift = 1
    while shift < n:
        cut = lambda x, a, b: w.slice(x, [a], [b], [axis], [1])
        first, last = ([cut(x, 0, n - shift) for x in xs], [cut(x, shift, n) for x in xs])
        made = step(last, first) if reverse else step(first, last)
        edge = [cut(x, n - shift, n) if reverse else cut(x, 0, shift) for x in xs]
        xs = [w.node("Concat", [m, g] if reverse else [g, m], axis=axis)
              for m, g in zip(made, edge, strict=True)]
        shift *= 2
    return xs


def _cumulative(name: str) -> Rule:
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        step: Step = lambda a, b: [w.node(name, [a[0], b[0]])]
        return _doubled(w, xs, e.ins[0].aval, op.axis, op.reverse, step, e)[0]
    return rule


def _cumlogsumexp(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    def step(a: list[str], b: list[str]) -> list[str]:
        larger, smaller = w.node("Max", [a[0], b[0]]), w.node("Min", [a[0], b[0]])
        one = w.like(1, e.ins[0].aval)
        ratio = w.node("Exp", [w.node("Sub", [smaller, larger])])
        found = w.node("Add", [larger, w.node("Log", [w.node("Add", [ratio, one])])])
        return [w.node("Where", [w.node("Equal", [smaller, larger]), w.node(
            "Add", [larger, w.like(math.log(2), e.ins[0].aval)]), found])]

    return _doubled(w, xs, e.ins[0].aval, op.axis, op.reverse, step, e)[0]


def _recurrence(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    if op.shifted:
        raise missing_rule("to_onnx", e)

    def step(before: list[str], after: list[str]) -> list[str]:
        (a, b), (c, d) = before, after
        return [w.node("Mul", [a, c]), w.node("Add", [w.node("Mul", [c, b]), d])]

    return _doubled(w, xs, e.ins[0].aval, op.axis, op.reverse, step, e)[1]


WINDOWS: dict[type, Rule] = {
    shapes.Pad: _pad,
    contractions.DotGeneral: _dot,
    conv.ConvGeneralDilated: _convolution,
    windows.ReduceWindowMax: _window_extreme(True),
    windows.ReduceWindowMin: _window_extreme(False),
    windows.ReduceWindowSum: _window_sum,
    sorts.Sort: _sort,
    sorts.TopK: _top_k,
    cumulative.Cumsum: _cumsum,
    cumulative.Cumprod: _cumulative("Mul"),
    cumulative.Cummax: _cumulative("Max"),
    cumulative.Cummin: _cumulative("Min"),
    cumulative.Cumlogsumexp: _cumlogsumexp,
    recurrences.LinearRecurrence: _recurrence,
}
