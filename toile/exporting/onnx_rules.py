"""How elementwise operations, shapes and reductions are written in ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile.engine.program import Equation
from toile.exporting.numpy_writer import missing_rule
from toile.exporting.onnx_control import CONTROL
from toile.exporting.onnx_indexing import INDEXING
from toile.exporting.onnx_windows import WINDOWS
from toile.exporting.onnx_writer import OnnxWriter, Rule
from toile.parallel.placement import Constraint
from toile.parallel.varying_values import Varying
from toile.primitives import (
    barriers,
    bits,
    choices,
    elementwise,
    families,
    reductions,
    shapes,
    sorts,
    special,
    transcendental,
)
from toile.primitives.arrays.coefficients import ERF_INV_SINGLE
from toile.primitives.reductions import highest, lowest

LAST = 2**63 - 1


def _named(op: str) -> Rule:
    return lambda w, o, xs, e: w.node(op, xs)


def _itself(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> Any:
    return xs[0] if len(e.outs) == 1 else xs


def _logical(on_bools: str, on_numbers: str) -> Rule:
    """An operator that has another name for booleans."""
    return lambda w, o, xs, e: w.node(
        on_bools if e.ins[0].aval.dtype == np.bool_ else on_numbers, xs)


def _number(w: OnnxWriter, value: float, e: Equation) -> str:
    return w.like(value, e.ins[0].aval)


def _div(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Div", xs)


def _rem(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Mod", xs, fmod=1)


def _ne(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Not", [w.node("Equal", xs)])


def _integer_pow(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    if op.y == 2:
        return w.node("Mul", [xs[0], xs[0]])
    if op.y == 3:
        return w.node("Mul", [w.node("Mul", [xs[0], xs[0]]), xs[0]])
    return w.node("Pow", [xs[0], _number(w, op.y, e)])


def _round(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    if op.to_even:
        return w.node("Round", xs)
    size = w.node("Floor", [w.node("Add", [w.node("Abs", xs), _number(w, 0.5, e)])])
    return w.node("Mul", [w.node("Sign", xs), size])


def _is_finite(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Not", [w.node("Or", [w.node("IsInf", xs), w.node("IsNaN", xs)])])


def _rsqrt(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Reciprocal", [w.node("Sqrt", xs)])


def _expm1(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    """(exp(x) + 1) tanh(x / 2), which is accurate for small x."""
    half = w.node("Tanh", [w.node("Mul", [xs[0], _number(w, 0.5, e)])])
    return w.node("Mul", [w.node("Add", [w.node("Exp", xs), _number(w, 1, e)]), half])


def _log1p(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    """log(u) x / (u - 1) for u = 1 + x, which cancels the rounding error of u."""
    one = _number(w, 1, e)
    u = w.node("Add", [xs[0], one])
    log, less = w.node("Log", [u]), w.node("Sub", [u, one])
    near = w.node("Mul", [log, w.node("Div", [xs[0], less])])
    near = w.node("Where", [w.node("Equal", [u, one]), xs[0], near])
    return w.node("Where", [w.node("Greater", [xs[0], one]), log, near])


def _scaled(op_name: str, factor: float, before: bool) -> Rule:
    """An operator of x times a factor, or a factor times the operator of x."""
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        by = _number(w, factor, e)
        if before:
            return w.node(op_name, [w.node("Mul", [xs[0], by])])
        return w.node("Mul", [w.node(op_name, xs), by])
    return rule


def _exp2(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Pow", [_number(w, 2, e), xs[0]])


def _cbrt(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    size = w.node("Pow", [w.node("Abs", xs), _number(w, 1 / 3, e)])
    return w.node("Mul", [w.node("Sign", xs), size])


def _one_minus_square(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    one = _number(w, 1, e)
    return w.node("Mul", [w.node("Add", [one, xs[0]]), w.node("Sub", [one, xs[0]])])


def _atan2(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    y, x = xs
    zero, pi = _number(w, 0, e), _number(w, math.pi, e)
    low = w.node("Less", [y, zero])
    turn = w.node("Where", [low, _number(w, -math.pi, e), pi])
    plain = w.node("Atan", [w.node("Div", [y, x])])
    left = w.node("Add", [plain, turn])
    out = w.node("Where", [w.node("Less", [x, zero]), left, plain])
    half = w.node("Mul", [w.node("Sign", [y]), _number(w, math.pi / 2, e)])
    return w.node("Where", [w.node("Equal", [x, zero]), half, out])


def _erfc(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Sub", [_number(w, 1, e), w.node("Erf", xs)])


def _fma(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Add", [w.node("Mul", xs[:2]), xs[2]])


def _erf_inv(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    """Giles' polynomials in w = -log(1 - x²)."""
    one = _number(w, 1, e)
    inside = w.node("Mul", [w.node("Sub", [one, xs[0]]), w.node("Add", [one, xs[0]])])
    t = w.node("Neg", [w.node("Log", [inside])])
    parts = []
    for _, root, center, table in ERF_INV_SINGLE:
        u = w.node("Sqrt", [t]) if root else t
        u = w.node("Sub", [u, _number(w, center, e)])
        p = _number(w, table[0], e)
        for c in table[1:]:
            p = w.node("Add", [w.node("Mul", [p, u]), _number(w, c, e)])
        parts.append(p)
    near = w.node("Less", [t, _number(w, ERF_INV_SINGLE[0][0], e)])
    return w.node("Mul", [w.node("Where", [near, *parts]), xs[0]])


def _select(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    which, *cases = xs
    if len(cases) == 1:
        return cases[0]
    if e.ins[0].aval.dtype == np.bool_:
        return w.where(which, cases[1], cases[0], e.outs[0].aval.dtype)
    out = cases[-1]
    for i, case in reversed([*enumerate(cases[:-1])]):
        test = w.node("LessOrEqual", [which, w.like(i, e.ins[0].aval)])
        out = w.where(test, case, out, e.outs[0].aval.dtype)
    return out


def _clamp(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Min", [w.node("Max", [xs[1], xs[0]]), xs[2]])


def _convert(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return xs[0] if e.ins[0].aval.dtype == op.dtype else w.cast(xs[0], op.dtype)


def _shift(direction: str) -> Rule:
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        if e.ins[0].aval.dtype.kind != "u":
            raise missing_rule("to_onnx", e)
        return w.node("BitShift", xs, direction=direction)
    return rule


# ------------------------------------------------------------------------------------------ shapes


def _broadcast(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    (x,), rank, text = e.ins, len(op.shape), xs[0]
    if x.aval.ndim and op.dims != tuple(range(rank - x.aval.ndim, rank)):
        sizes = dict(zip(op.dims, x.aval.shape, strict=True))
        text = w.reshape(text, [sizes.get(i, 1) for i in range(rank)])
    return text if e.outs[0] in w.elided else w.node("Expand", [text, w.shape(op.shape)])


def _reshape(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.reshape(xs[0], op.shape)


def _transpose(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.transpose(xs[0], op.perm)


def _slice(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    axes = [i for i, (a, b, s, n) in enumerate(zip(
        op.starts, op.limits, op.strides, e.ins[0].aval.shape, strict=True))
        if a or b != n or s != 1]
    if not axes:
        return xs[0]
    pick = lambda values: [values[i] for i in axes]
    return w.slice(xs[0], pick(op.starts), pick(op.limits), axes, pick(op.strides))


def _concatenate(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    return w.node("Concat", xs, axis=op.axis)


def _rev(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    if not op.axes:
        return xs[0]
    count = len(op.axes)
    return w.slice(xs[0], [-1] * count, [-LAST] * count, list(op.axes), [-1] * count)


def _iota(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    count = w.count_to(op.shape[op.axis])
    if op.dtype != np.int64:
        count = w.cast(count, op.dtype)
    spread = [1] * len(op.shape)
    spread[op.axis] = op.shape[op.axis]
    return w.node("Expand", [w.reshape(count, spread), w.shape(op.shape)])


# -------------------------------------------------------------------------------------- reductions


def _reduction(name: str) -> Rule:
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        if not op.axes:
            return xs[0]
        return w.node(name, [xs[0], w.ints(*op.axes)], keepdims=0)
    return rule


def _extreme(name: str, start: Any) -> Rule:
    plain = _reduction(name)

    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> Any:
        x = e.ins[0].aval
        if 0 in x.shape:
            return w.node("Expand", [w.like(start(x.dtype), x), w.shape(e.outs[0].aval.shape)])
        if x.dtype != np.bool_:
            return plain(w, op, xs, e)
        return w.cast(plain(w, op, [w.cast(xs[0], np.int32)], e), np.bool_)
    return rule


def _any(name: str) -> Rule:
    """Reductions of booleans, as extrema of integers."""
    plain = _reduction(name)

    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        if e.ins[0].aval.dtype != np.bool_:
            raise missing_rule("to_onnx", e)
        return w.cast(plain(w, op, [w.cast(xs[0], np.int32)], e), np.bool_)
    return rule


def _arg(name: str) -> Rule:
    def rule(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
        x = w.cast(xs[0], np.int32) if e.ins[0].aval.dtype == np.bool_ else xs[0]
        found = w.node(name, [x], axis=op.axis, keepdims=0)
        return found if op.index_dtype == np.int64 else w.cast(found, op.index_dtype)
    return rule


_NAMES = {
    families.Sub: "Sub", families.Neg: "Neg", bits.Eq: "Equal", bits.Lt: "Less",
    bits.Le: "LessOrEqual", bits.Gt: "Greater", bits.Ge: "GreaterOrEqual",
    elementwise.Pow: "Pow", elementwise.Abs: "Abs", elementwise.Sign: "Sign",
    elementwise.Floor: "Floor", elementwise.Ceil: "Ceil", elementwise.Log: "Log",
    transcendental.Exp: "Exp", transcendental.Logistic: "Sigmoid", transcendental.Sqrt: "Sqrt",
    transcendental.Sin: "Sin", transcendental.Cos: "Cos", transcendental.Tan: "Tan",
    transcendental.Asin: "Asin", transcendental.Acos: "Acos", transcendental.Atan: "Atan",
    transcendental.Sinh: "Sinh", transcendental.Cosh: "Cosh", transcendental.Tanh: "Tanh",
    transcendental.Asinh: "Asinh", transcendental.Acosh: "Acosh", transcendental.Atanh: "Atanh",
    special.Erf: "Erf",
}
RULES: dict[type, Rule] = {
    **{cls: _named(name) for cls, name in _NAMES.items()},
    **CONTROL,
    **INDEXING,
    **WINDOWS,
    families.Add: _logical("Or", "Add"),
    families.Mul: _logical("And", "Mul"),
    families.BroadcastInDim: _broadcast,
    families.Reshape: _reshape,
    families.Transpose: _transpose,
    families.ReduceSum: _reduction("ReduceSum"),
    elementwise.Div: _div,
    elementwise.Rem: _rem,
    elementwise.Max: _logical("Or", "Max"),
    elementwise.Min: _logical("And", "Min"),
    elementwise.IntegerPow: _integer_pow,
    elementwise.Round: _round,
    elementwise.IsFinite: _is_finite,
    choices.ConvertElementType: _convert,
    choices.SelectN: _select,
    choices.Clamp: _clamp,
    bits.Ne: _ne,
    bits.And: _logical("And", "BitwiseAnd"),
    bits.Or: _logical("Or", "BitwiseOr"),
    bits.Xor: _logical("Xor", "BitwiseXor"),
    bits.Not: _logical("Not", "BitwiseNot"),
    bits.ShiftLeft: _shift("LEFT"),
    bits.ShiftRightLogical: _shift("RIGHT"),
    transcendental.Rsqrt: _rsqrt,
    transcendental.Expm1: _expm1,
    transcendental.Log1p: _log1p,
    transcendental.Log2: _scaled("Log", 1 / math.log(2), False),
    transcendental.Exp2: _exp2,
    transcendental.Cbrt: _cbrt,
    transcendental.Atan2: _atan2,
    transcendental.OneMinusSquare: _one_minus_square,
    special.Erfc: _erfc,
    special.ErfInv: _erf_inv,
    special.FusedMultiplyAdd: _fma,
    shapes.Slice: _slice,
    shapes.Concatenate: _concatenate,
    shapes.Rev: _rev,
    shapes.Iota: _iota,
    shapes.OptimizationBarrier: _itself,
    shapes.Copy: _itself,
    Constraint: _itself,
    Varying: _itself,
    barriers.StopGradient: _itself,
    barriers.Name: _itself,
    reductions.ReduceMax: _extreme("ReduceMax", lowest),
    reductions.ReduceMin: _extreme("ReduceMin", highest),
    reductions.ReduceProd: _reduction("ReduceProd"),
    reductions.ReduceAnd: _any("ReduceMin"),
    reductions.ReduceOr: _any("ReduceMax"),
    sorts.Argmax: _arg("ArgMax"),
    sorts.Argmin: _arg("ArgMin"),
}
