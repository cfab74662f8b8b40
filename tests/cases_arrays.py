"""Rows of the operations that move, gather, contract, reduce, scan and order elements."""

from __future__ import annotations

import functools
import itertools

import ml_dtypes
import numpy as np
import scipy.signal

from tests.cases import COMPLEX, INEXACT, MATRICES, NUMBERS, REALS, B, I, Row, X, dtype_of
from tests.recurrence_cases import WAYS, looped
from toile.primitives import barriers, dynamic_slices, recurrences
from toile.primitives import contractions as c
from toile.primitives import conv as v
from toile.primitives import cumulative as u
from toile.primitives import families as f
from toile.primitives import fft as t
from toile.primitives import gathers as n
from toile.primitives import low_rank as lr
from toile.primitives import quantized as q
from toile.primitives import reductions as r
from toile.primitives import shapes as s
from toile.primitives import sorts as o
from toile.primitives import windows as w
from toile.primitives.addresses import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)

ANY = (*NUMBERS, "bool")
A = X(2, 3, 4)
APART = X(2, 3, 4, apart=True)



def dequantized(op):
    """What `op` means, one element at a time."""

    def oracle(values, scales, *zeros):
        out = np.empty((values.shape[0], op.length, values.shape[2]), op.dtype)
        for i, k, j in np.ndindex(*out.shape):
            number = float(values[i, k * op.bits // 8, j])
            if op.bits == 4:
                number = (int(number) >> 4 * (k % 2)) & 15
            zero = float(zeros[0][i, k // op.group, j]) if zeros else 8 if op.bits == 4 else 0
            out[i, k, j] = (number - zero) * float(scales[i, k // op.group, j])
        return out

    return oracle


SHAPES = [
    Row(f.BroadcastInDim, f.BroadcastInDim((4, 2, 5, 3), (1, 3)), (X(2, 3),),
        lambda x: np.broadcast_to(x[:, None, :], (4, 2, 5, 3)), dtypes=ANY, linear=(0,)),
    Row(f.BroadcastInDim, f.BroadcastInDim((2, 4, 3), (0, 1, 2)), (X(2, 1, 3),),
        lambda x: np.broadcast_to(x, (2, 4, 3)), linear=(0,), label="stretch"),
    Row(f.Reshape, f.Reshape((4, 6)), (A,), lambda x: x.reshape(4, 6), dtypes=ANY, linear=(0,)),
    Row(f.Transpose, f.Transpose((2, 0, 1)), (A,), lambda x: x.transpose(2, 0, 1), dtypes=ANY,
        linear=(0,)),
    Row(s.Slice, s.Slice((0, 1, 0), (2, 3, 4), (1, 1, 2)), (A,), lambda x: x[:, 1:3, ::2],
        dtypes=ANY, linear=(0,)),
    Row(s.Pad, s.Pad(((1, 2, 0), (0, 1, 2))), (X(2, 3), X()),
        lambda x, y: padded(x, y, ((1, 2, 0), (0, 1, 2))), dtypes=ANY, linear=(0, 1)),
    Row(s.Pad, s.Pad(((-1, 2, 1), (2, -1, 0))), (X(3, 3), X()),
        lambda x, y: padded(x, y, ((-1, 2, 1), (2, -1, 0))), linear=(0, 1), label="negative"),
    Row(s.Concatenate, s.Concatenate(1), (X(2, 3), X(2, 1), X(2, 2)),
        lambda *xs: np.concatenate(xs, 1), dtypes=ANY, linear=(0, 1, 2)),
    Row(s.Rev, s.Rev((0, 2)), (A,), lambda x: x[::-1, :, ::-1], dtypes=ANY, linear=(0,)),
    Row(s.Copy, s.Copy(), (A,), np.copy, dtypes=ANY, linear=(0,)),
    *(Row(q.Dequantize, op, (values, X(2, op.groups, 3), *[X(2, op.groups, 3)] * zeros),
          dequantized(op), dtypes=kinds, moving=(), label=f"{op.bits}-{op.group}-{zeros}")
      for op, values, zeros, kinds in (
          (q.Dequantize(8, 2, 4, -2, np.dtype("float32")), I(2, 4, 3, low=-9, high=9, dtype="int8"),
           0, ("float32", "bfloat16")),
          (q.Dequantize(8, 3, 4, -2, np.dtype("float64")), I(2, 4, 3, high=255, dtype="uint8"), 1,
           ("float64",)),
          (q.Dequantize(4, 2, 5, -2, np.dtype("float32")), I(2, 3, 3, high=255, dtype="uint8"), 0,
           ("float32", "float16")),
          (q.Dequantize(4, 3, 6, -2, np.dtype("bfloat16")), I(2, 3, 3, high=255, dtype="uint8"), 1,
           ("float32",)))),
    Row(q.Dequantize, q.Dequantize(8, 2, 4, -2, np.dtype("float32"), True, True),
        (I(2, 4, 3, low=-9, high=9, dtype="int8"), X(2, 2, 3), X(1, 4, 1), X(1, 1, 1)),
        lambda v, s, f, i: dequantized(q.Dequantize(8, 2, 4, -2, np.dtype("float32")))(v, s) * f,
        dtypes=("float32",), moving=(), label="factors"),
    Row(lr.LowRankSum, lr.LowRankSum(1, 1), (X(3, 4), X(3, 2), X(2, 4)),
        lambda w, a, b: w + a @ b, label="matrix"),
    Row(lr.LowRankSum, lr.LowRankSum(2, 1), (X(2, 3, 2, 4), X(2, 3, 2, 2), X(2, 2, 4)),
        lambda w, a, b: w + np.einsum("zijr,zrk->zijk", a, b), label="batch"),
    *(Row(s.Iota, lambda k=k: s.Iota(dtype_of(k), (2, 3), 1)(), (),
          lambda k=k: np.broadcast_to(np.arange(3), (2, 3)).astype(dtype_of(k)), label=k,
          dtypes=("float32",)) for k in ("float32", "int32", "bfloat16", "uint8")),
    *(Row(s.BitcastConvertType, s.BitcastConvertType(np.dtype(k)), (X(2, 3, low=-9, high=9),),
          lambda x, k=k: x.reshape(2, 3, 1).view(k).reshape((2, 3) if "32" in k else (2, 3, 2)),
          label=k, dtypes=("float32", "int32"), moving=()) for k in ("uint32", "int32", "uint16")),
    Row(s.BitcastConvertType, s.BitcastConvertType(np.dtype("uint32")), (I(3, 4, dtype="uint8"),),
        lambda x: x.view(np.uint32)[:, 0], label="wider", dtypes=("float32",), moving=()),
    Row(s.ReducePrecision, s.ReducePrecision(8, 7), (A,),
        lambda x: x.astype(ml_dtypes.bfloat16).astype(x.dtype), dtypes=("float32",), moving=()),
    Row(s.OptimizationBarrier, s.OptimizationBarrier(), (A, X(2)), lambda *xs: list(xs),
        dtypes=NUMBERS, linear=(0, 1)),
    Row(barriers.StopGradient, barriers.StopGradient(), (A,), np.copy, dtypes=NUMBERS, moving=()),
]  # fmt: skip


def padded(x, value, config):
    """Padding done element by element."""
    shape = [lo + hi + m + max(0, m - 1) * k for m, (lo, hi, k) in zip(x.shape, config)]
    out = np.full(shape, value, x.dtype)
    for place in np.ndindex(*x.shape):
        to = tuple(i * (k + 1) + lo for i, (lo, _, k) in zip(place, config))
        if all(0 <= i < m for i, m in zip(to, shape)):
            out[to] = x[place]
    return out


# ------------------------------------------------------------------------------- gather, scatter

ROWS_OF = GatherDimensionNumbers((1,), (0,), (0,))
PUT_ROWS = ScatterDimensionNumbers((1,), (0,), (0,))
FILL, CLIP = GatherScatterMode.FILL_OR_DROP, GatherScatterMode.CLIP
INDEX = I(5, 1, high=3)
FAR = I(5, 1, low=-3, high=7)


def taken(x, i, fill=True):
    """Rows of x at i; those out of bounds are NaN, or the nearest row."""
    k = i[:, 0]
    near = x[np.clip(k, 0, len(x) - 1)]
    inside = (k >= 0) & (k < len(x))
    return np.where(inside[:, None], near, np.array(np.nan, x.dtype)) if fill else near


def put(combine):
    """Rows of updates combined one after another; those out of bounds are dropped."""

    def oracle(x, i, y):
        out = x.copy()
        for k, row in zip(i[:, 0], y):
            if 0 <= k < len(x):
                out[k] = combine(out[k], row)
        return out

    return oracle


def sliced(x, *starts):
    start = [int(np.clip(k, 0, m - q)) for k, m, q in zip(starts, x.shape, (2, 2))]
    return x[start[0] : start[0] + 2, start[1] : start[1] + 2]


def updated(x, y, *starts):
    out = x.copy()
    start = [int(np.clip(k, 0, m - q)) for k, m, q in zip(starts, x.shape, y.shape)]
    out[start[0] : start[0] + y.shape[0], start[1] : start[1] + y.shape[1]] = y
    return out


INDEXING = [
    Row(n.Gather, n.Gather(ROWS_OF, (1, 3)), (X(4, 3), INDEX), taken, dtypes=INEXACT, linear=(0,)),
    Row(n.Gather, n.Gather(ROWS_OF, (1, 3)), (X(4, 3), FAR), taken, moving=(), label="fill"),
    Row(n.Gather, n.Gather(ROWS_OF, (1, 3), mode=CLIP), (X(4, 3), FAR),
        lambda x, i: taken(x, i, False), dtypes=NUMBERS, linear=(0,), label="clip"),
    Row(n.Gather, n.Gather(GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1)),
        (X(4, 3), I(4, 1)), lambda x, i: np.take_along_axis(x, i, 1)[:, 0], linear=(0,),
        label="batch"),
    *(Row(n.Scatter, n.Scatter(kind, PUT_ROWS), (X(4, 3), FAR, X(5, 3)), put(combine),
          dtypes=("float32", "float64", "complex64", "int32") if kind in ("add", "sub", "set")
          else ("float32", "float64", "int32"), linear=lin, moving=moving, label=kind)
      for kind, combine, lin, moving in [
          ("set", lambda a, b: b, (0, 2), None), ("add", np.add, (0, 2), None),
          ("sub", np.subtract, (0, 2), None), ("mul", np.multiply, (0,), (0,)),
          ("min", np.minimum, (), None), ("max", np.maximum, (), None)]),
    Row(n.Scatter, lambda x, y: n.Scatter("mul", PUT_ROWS, unique_indices=True)(
            x, f.operation.DeviceArray(np.array([[2], [0]], np.int32)), y), (X(4, 3), X(2, 3)),
        lambda x, y: put(np.multiply)(x, np.array([[2], [0]]), y), label="mul-unique"),
    Row(dynamic_slices.DynamicSlice, dynamic_slices.DynamicSlice((2, 2)),
        (X(4, 3), I(high=5), I(low=-1, high=2)), sliced, dtypes=ANY, linear=(0,)),
    Row(dynamic_slices.DynamicUpdateSlice, dynamic_slices.DynamicUpdateSlice(),
        (X(4, 3), X(2, 2), I(high=5), I(low=-1, high=2)), updated, dtypes=ANY, linear=(0, 1)),
]  # fmt: skip


# --------------------------------------------------------------- contractions and convolutions


def correlate(x, k):
    """A strided, padded 2-d correlation of NCHW with OIHW, by SciPy."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 1)))
    rows = [[sum(correlate2(image[m], kernel[m]) for m in range(len(image))) for kernel in k]
            for image in x]
    return np.stack([np.stack(row) for row in rows])[:, :, ::2, :].astype(x.dtype)


def correlate2(x, k):
    return scipy.signal.correlate2d(x, np.conj(k), "valid")


def grouped(x, k):
    """Full correlation in one dimension with two groups, the operand dilated by two."""
    out = []
    for image in x:
        wide = np.zeros((image.shape[0], 2 * image.shape[1] - 1), x.dtype)
        wide[:, ::2] = image
        half = [(wide[:1], k[:1]), (wide[1:], k[1:])]
        out.append(np.concatenate([correlate1(a, b) for a, b in half]))
    return np.stack(out)


def correlate1(a, b):
    return np.stack([sum(np.correlate(p, np.conj(q), "valid") for p, q in zip(a, row))
                     for row in b])


NCHW = v.ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
NHWC = v.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
NCW = v.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
DOTS = [
    *(Row(c.DotGeneral, c.dot_operation(a, b, out), (X(*(size[k] for k in a)),
                                                     X(*(size[k] for k in b))),
          lambda x, y, a=a, b=b, out=out: np.einsum(f"{a},{b}->{out}", x, y), linear=(0,),
          dtypes=MATRICES if a == "bik" else (*REALS, "int32"), label=f"{a},{b}->{out}")
      for size in [{"b": 2, "i": 3, "j": 4, "k": 5}]
      for a, b, out in [("bik", "bkj", "bij"), ("ik", "kj", "ji"), ("k", "k", ""), ("i", "j", "ij"),
                        ("kbi", "bk", "bi"), ("i", "i", "i")]),
    Row(c.DotGeneral, c.dot_operation("ik", "kj", "ij", np.dtype("float32")), (X(3, 5), X(5, 2)),
        lambda x, y: x.astype(np.float32) @ y.astype(np.float32), dtypes=("bfloat16", "float16"),
        label="preferred"),
    Row(v.ConvGeneralDilated,
        v.ConvGeneralDilated((2, 1), ((1, 0), (1, 1)), (1, 1), (1, 1), NCHW),
        (X(2, 3, 5, 4), X(2, 3, 2, 3)), correlate, dtypes=MATRICES, linear=(0,)),
    Row(v.ConvGeneralDilated,
        v.ConvGeneralDilated((2, 1), ((1, 0), (1, 1)), (1, 1), (1, 1), NHWC),
        (X(2, 5, 4, 3), X(2, 3, 3, 2)),
        lambda x, k: correlate(x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1))
        .transpose(0, 2, 3, 1), linear=(1,), label="nhwc"),
    Row(v.ConvGeneralDilated,
        v.ConvGeneralDilated((1,), ((0, 0),), (2,), (1,), NCW, feature_group_count=2),
        (X(3, 2, 5), X(2, 1, 3)), grouped, linear=(0,), label="groups"),
]  # fmt: skip


# --------------------------------------------------------------------------------- reductions

BOOLS = ("bool", "int32", "uint8")


def cumulated(function, reverse, x):
    """A cumulative NumPy function along axis 1, from either end."""
    x = x[:, ::-1] if reverse else x
    y = function(x, axis=1).astype(x.dtype)
    return y[:, ::-1] if reverse else y


def logcumsumexp(x, axis):
    return np.logaddexp.accumulate(x, axis=axis)


REDUCTIONS = [
    *(Row(f.ReduceSum, f.ReduceSum(axes), (A,), lambda x, a=axes: x.sum(a, dtype=x.dtype),
          dtypes=("float32", "float64", "int32", "uint8", *COMPLEX), linear=(0,),
          label=f"{axes}".replace(" ", "")) for axes in [(1,), (0, 2), (0, 1, 2)]),
    Row(r.ReduceProd, r.ReduceProd((0, 2)), (X(2, 3, 4, low=0.5, high=2),),
        lambda x: x.prod((0, 2), dtype=x.dtype), dtypes=("float32", "float64", "int32")),
    Row(r.ReduceMax, r.ReduceMax((1,)), (APART,), lambda x: x.max(1), dtypes=(*REALS, "int32")),
    Row(r.ReduceMin, r.ReduceMin((0, 2)), (APART,), lambda x: x.min((0, 2)),
        dtypes=(*REALS, "int32")),
    Row(r.ReduceAnd, r.ReduceAnd((1,)), (A,), lambda x: np.bitwise_and.reduce(x, 1), dtypes=BOOLS),
    Row(r.ReduceOr, r.ReduceOr((1,)), (A,), lambda x: np.bitwise_or.reduce(x, 1), dtypes=BOOLS),
    Row(r.ReduceXor, r.ReduceXor((1,)), (A,), lambda x: np.bitwise_xor.reduce(x, 1), dtypes=BOOLS),
    *(Row(op, op(1, reverse), (operand,), functools.partial(cumulated, function, reverse),
          dtypes=dtypes, label="reverse" if reverse else "", linear=linear)
      for op, function, operand, dtypes, linear in [
          (u.Cumsum, np.cumsum, A, (*REALS, "int32", *COMPLEX), (0,)),
          (u.Cumprod, np.cumprod, X(2, 3, 4, low=0.5), (*REALS, "int32", *COMPLEX), ()),
          (u.Cummax, np.maximum.accumulate, APART, (*REALS, "int32"), ()),
          (u.Cummin, np.minimum.accumulate, APART, (*REALS, "int32"), ()),
          (u.Cumlogsumexp, logcumsumexp, A, REALS, ()),
      ] for reverse in (False, True)),
    *(Row(recurrences.LinearRecurrence, recurrences.LinearRecurrence(1, *way), (A, A),
          functools.partial(looped, axis=1, reverse=way[0], shifted=way[1]), linear=(1,),
          dtypes=(*INEXACT, "int32"), label="reverse" * way[0] + "shifted" * way[1])
      for way in WAYS),
    Row(o.Sort, lambda x: o.Sort(1)(x)[0], (APART,), lambda x: np.sort(x, 1),
        dtypes=(*REALS, "int32", "bool")),
    Row(o.Sort, o.Sort(1, 2), (I(2, 9, high=2), X(2, 9, apart=True), X(2, 9)),
        lambda a, b, x: sorted_together(a, b, x), label="keys"),
    Row(o.TopK, o.TopK(2, 1), (APART,), lambda x: top(x, 2), dtypes=(*REALS, "int32")),
    Row(o.Argmax, o.Argmax(1, np.dtype("int32")), (A,), lambda x: x.argmax(1).astype(np.int32),
        dtypes=(*REALS, "int32", "bool"), moving=()),
    Row(o.Argmin, o.Argmin(2, np.dtype("uint8")), (A,), lambda x: x.argmin(2).astype(np.uint8),
        dtypes=(*REALS, "int32", "bool"), moving=()),
]  # fmt: skip


def sorted_together(a, b, x):
    order = np.stack([np.lexsort((q, p)) for p, q in zip(a, b)])
    return [np.take_along_axis(y, order, 1) for y in (a, b, x)]


def top(x, k):
    order = np.argsort(-x.astype(float), axis=1, kind="stable")[:, :k]
    return [np.take_along_axis(x, order, 1), order.astype(np.int32)]


# ------------------------------------------------------------------------------------- windows

GEOMETRY = ((2, 3), (1, 2), ((1, 0), (0, 2)), (1, 1), (1, 1))


def windows(x, start, geometry=GEOMETRY):
    """Every window of the padded operand, as (place, elements, their places)."""
    size, stride, pads, *_ = geometry
    wide = np.pad(x, pads, constant_values=start)
    where = np.pad(np.arange(x.size).reshape(x.shape), pads, constant_values=-1)
    counts = [(m - k) // q + 1 for m, k, q in zip(wide.shape, size, stride)]
    for place in itertools.product(*map(range, counts)):
        box = tuple(slice(p * q, p * q + k) for p, q, k in zip(place, stride, size))
        yield place, counts, wide[box].ravel(), where[box].ravel()


def windowed(function, start):
    def oracle(x):
        found = list(windows(x, start(x.dtype)))
        out = np.zeros(found[0][1], x.dtype)
        for place, _, elements, _ in found:
            out[place] = function(elements)
        return out

    return oracle


def chosen(x):
    """For each window, the place of its largest element."""
    return [(place, counts, where[np.argmax(elements)])
            for place, counts, elements, where in windows(x, -np.inf)]


def scattered(source, x):
    out = np.zeros(x.size, x.dtype)
    for place, _, at in chosen(x):
        out[at] += source[place]
    return out.reshape(x.shape)


def gathered(tangent, x):
    found = chosen(x)
    out = np.zeros(found[0][1], x.dtype)
    for place, _, at in found:
        out[place] = tangent.ravel()[at]
    return out


def least(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def largest(dtype):
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


IMAGE, IMAGE_APART = X(5, 4), X(5, 4, apart=True)
WINDOWS = [
    Row(w.ReduceWindowSum, w.ReduceWindowSum(*GEOMETRY), (IMAGE,), windowed(np.sum, lambda d: 0),
        dtypes=(*REALS, "int32"), linear=(0,)),
    Row(w.ReduceWindowMax, w.ReduceWindowMax(*GEOMETRY), (IMAGE_APART,), windowed(np.max, least),
        dtypes=(*REALS, "int32")),
    Row(w.ReduceWindowMin, w.ReduceWindowMin(*GEOMETRY), (IMAGE_APART,),
        windowed(np.min, largest), dtypes=(*REALS, "int32")),
    Row(w.ReduceWindowProd, w.ReduceWindowProd(*GEOMETRY), (IMAGE,),
        windowed(np.prod, lambda d: 1), dtypes=REALS),
    Row(w.ReduceWindowAnd, w.ReduceWindowAnd(*GEOMETRY), (B(5, 4),), windowed(np.all, lambda d: 1),
        dtypes=("bool",)),
    Row(w.ReduceWindowOr, w.ReduceWindowOr(*GEOMETRY), (B(5, 4),), windowed(np.any, lambda d: 0),
        dtypes=("bool",)),
    Row(w.SelectAndScatterAdd, w.SelectAndScatterAdd("ge", *GEOMETRY[:3]),
        (X(5, 2), IMAGE_APART), scattered, linear=(0,)),
    Row(w.SelectAndGatherAdd, w.SelectAndGatherAdd("ge", *GEOMETRY), (IMAGE, IMAGE_APART),
        gathered, linear=(0,)),
]

FOURIER = [
    Row(t.Fft, t.Fft(t.FftType.FFT, (5,)), (X(2, 3, 5),), lambda x: np.fft.fft(x).astype(x.dtype),
        dtypes=COMPLEX, linear=(0,)),
    Row(t.Fft, t.Fft(t.FftType.IFFT, (3, 4)), (A,), lambda x: np.fft.ifft2(x).astype(x.dtype),
        dtypes=COMPLEX, linear=(0,), label="ifft2"),
    *(Row(t.Fft, t.Fft(t.FftType.RFFT, (k,)), (X(2, k),), np.fft.rfft, linear=(0,),
          label=f"rfft{k}") for k in (5, 6)),
    *(Row(t.Fft, t.Fft(t.FftType.IRFFT, (k,)), (X(2, k // 2 + 1),),
          lambda x, k=k: np.fft.irfft(x, k), dtypes=COMPLEX, linear=(0,), label=f"irfft{k}")
      for k in (5, 6)),
]  # fmt: skip

ROWS = [*SHAPES, *INDEXING, *DOTS, *REDUCTIONS, *WINDOWS, *FOURIER]
