"""How each first-order operation is written in NumPy.

The arguments of a rule are the writer, the operation, the expressions of its operands and the
equation. It returns the expressions of the results, or writes statements and returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import OnBuffers
from toile.engine.program import Equation
from toile.exporting.numpy_control import CONTROL
from toile.exporting.numpy_matrices import MATRICES
from toile.exporting.numpy_writer import NumpyWriter, Rule, dtype_text, missing_rule, number
from toile.parallel.placement import Constraint
from toile.parallel.varying_values import Varying
from toile.primitives import (
    barriers,
    bits,
    choices,
    complexes,
    contractions,
    conv,
    cumulative,
    dynamic_slices,
    elementwise,
    families,
    fft,
    gathers,
    recurrences,
    reductions,
    shapes,
    sorts,
    special,
    threefry_words,
    transcendental,
    windows,
)
from toile.primitives import random as keys
from toile.primitives.addresses import fill_number
from toile.primitives.arrays.gather_arrays import default_fill
from toile.primitives.reductions import highest, lowest


def _operator(symbol: str) -> Rule:
    return lambda w, op, xs, e: f"{xs[0]} {symbol} {xs[1]}"


def _call(name: str) -> Rule:
    return lambda w, op, xs, e: f"np.{name}({', '.join(xs)})"


def _support(name: str) -> Rule:
    return lambda w, op, xs, e: f"{w.use(name)}({', '.join(xs)})"


def _itself(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    return xs[0] if len(e.outs) == 1 else xs


def _is_integer(e: Equation) -> bool:
    return e.ins[0].aval.dtype.kind in "iu"


def _div(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if _is_integer(e):
        return f"{w.use('divide_integers')}({xs[0]}, {xs[1]})"
    return f"{xs[0]} / {xs[1]}"


def _pow(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if _is_integer(e) or e.ins[1].aval.dtype.kind in "iu":
        return f"{w.use('power')}({xs[0]}, {xs[1]})"
    return f"np.power({xs[0]}, {xs[1]})"


def _integer_pow(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if op.y in (2, 3):
        return " * ".join([xs[0]] * op.y)
    return f"{w.use('integer_power')}({xs[0]}, {op.y})"


def _round(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"np.rint({xs[0]})" if op.to_even else f"{w.use('round_away')}({xs[0]})"


def _astype(text: str, dtype: Any) -> str:
    return f"{text}.astype({dtype_text(dtype)})"


def _convert(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    old, new = e.ins[0].aval.dtype, op.dtype
    if old == new:
        return xs[0]
    if old.kind in "fc" and new.kind in "iu":
        return f"{w.use('to_integers')}({xs[0]}, {dtype_text(new)})"
    if old.kind == "c" and new.kind == "b":
        return f"{xs[0]} != 0"
    return _astype(f"{xs[0]}.real" if old.kind == "c" and new.kind == "f" else xs[0], new)


def _select(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    which, *cases = xs
    if len(cases) == 1:
        return cases[0]
    if e.ins[0].aval.dtype == np.bool_:
        return f"np.where({which}, {cases[1]}, {cases[0]})"
    out = cases[-1]
    for i, case in reversed([*enumerate(cases[:-1])]):
        out = f"np.where({which} <= {i}, {case}, {out})"
    return out


def _clamp(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"np.minimum(np.maximum({xs[1]}, {xs[0]}), {xs[2]})"


def _complex(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return _astype(f"({xs[0]} + 1j * {xs[1]})", e.outs[0].aval.dtype)


def _conj(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return _astype(f"np.conjugate({xs[0]})", e.outs[0].aval.dtype)


def _shift(function: str) -> Rule:
    return lambda w, op, xs, e: f"{w.use('shift')}({xs[0]}, {xs[1]}, np.{function})"


def _narrow(name: str) -> Rule:
    """Write a function that NumPy computes less accurately, or not at all, in float16."""
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        return f"np.{name}({xs[0]})"
    return rule


def _log2(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if e.ins[0].aval.dtype.kind == "c":
        return _astype(f"(np.log({xs[0]}) / np.log(2.0))", e.outs[0].aval.dtype)
    return f"np.log2({xs[0]})"


def _exp2(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if e.ins[0].aval.dtype.kind == "c":
        return _astype(f"np.exp({xs[0]} * np.log(2.0))", e.outs[0].aval.dtype)
    return f"np.exp2({xs[0]})"


def _one_minus_square(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    one = number(1, e.ins[0].aval.dtype)
    return f"({one} + {xs[0]}) * ({one} - {xs[0]})"


def _polygamma(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('polygamma')}(np.full_like({xs[0]}, {op.order}), {xs[0]})"


def _threefry(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('threefry')}({', '.join(xs)})[{op.word}]"


# ------------------------------------------------------------------------------------------ shapes


def _broadcast(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    (x,), rank = e.ins, len(op.shape)
    text = xs[0]
    if x.aval.ndim and op.dims != tuple(range(rank - x.aval.ndim, rank)):
        sizes = dict(zip(op.dims, x.aval.shape, strict=True))
        text = f"{text}.reshape({w.shape([sizes.get(i, 1) for i in range(rank)])})"
    if e.outs[0] in w.elided:
        return text
    if not x.aval.ndim:
        return f"np.full({w.shape(op.shape)}, {text})"
    return f"np.broadcast_to({text}, {w.shape(op.shape)})"


def _reshape(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{xs[0]}.reshape({w.shape(op.shape)})"


def _transpose(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{xs[0]}.transpose({tuple(op.perm)})" if op.perm else xs[0]


def _slice(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    parts = []
    for a, b, step, n in zip(op.starts, op.limits, op.strides, e.ins[0].aval.shape, strict=True):
        start = w.size(a) if a else ""
        stop = "" if w.size(b) == w.size(n) else w.size(b)
        parts.append(f"{start}:{stop}" + (f":{w.size(step)}" if step != 1 else ""))
    return f"{xs[0]}[{', '.join(parts)}]" if parts else xs[0]


def _pad(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('pad')}({xs[0]}, {xs[1]}, {w.pairs(op.config)})"


def _concatenate(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"np.concatenate([{', '.join(xs)}], {op.axis})"


def _rev(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"np.flip({xs[0]}, {tuple(op.axes)})"


def _iota(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    count = f"np.arange({w.size(op.shape[op.axis])}, dtype={dtype_text(op.dtype)})"
    if len(op.shape) == 1:
        return count
    spread = [1] * len(op.shape)
    spread[op.axis] = op.shape[op.axis]
    return f"np.broadcast_to({count}.reshape({w.shape(spread)}), {w.shape(op.shape)})"


def _bitcast(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('bitcast')}({xs[0]}, {dtype_text(op.dtype)})"


def _reduce_precision(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('round_to_format')}({xs[0]}, {op.exponent_bits}, {op.mantissa_bits})"


# -------------------------------------------------------------------------------------- reductions


def _axes(op: Any) -> str:
    return str(op.axes[0]) if len(op.axes) == 1 else str(tuple(op.axes))


def _sum(name: str) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        dtype = e.outs[0].aval.dtype
        wide = np.dtype(np.float32) if dtype == np.float16 else dtype
        text = f"np.{name}({xs[0]}, axis={_axes(op)}, dtype={dtype_text(wide)})"
        return text if wide == dtype else _astype(text, dtype)
    return rule


def _extreme(name: str, start: Any) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        x = e.ins[0].aval
        if 0 in x.shape:
            start_ = number(start(x.dtype), x.dtype)
            return f"np.full({w.shape(e.outs[0].aval.shape)}, {start_})"
        return f"np.{name}({xs[0]}, axis={_axes(op)})"
    return rule


def _bitwise(name: str) -> Rule:
    return lambda w, op, xs, e: f"np.{name}.reduce({xs[0]}, axis={_axes(op)})"


def _arg(name: str) -> Rule:
    return lambda w, op, xs, e: _astype(f"np.{name}({xs[0]}, axis={op.axis})", op.index_dtype)


def _cumulative(name: str) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        if name == "logaddexp" and e.ins[0].aval.dtype.kind == "c":
            raise missing_rule("to_numpy", e)
        return f"{w.use('cumulative')}({xs[0]}, np.{name}, {op.axis}, {op.reverse})"
    return rule


def _recurrence(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return (f"{w.use('linear_recurrence')}({xs[0]}, {xs[1]}, {op.axis}, {op.reverse}, "
            f"{op.shifted})")


def _sort(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    if len(xs) == 1:
        return f"np.sort({xs[0]}, axis={op.dimension}, kind='stable')"
    w.results(e, f"{w.use('sort_together')}([{', '.join(xs)}], {op.dimension}, {op.num_keys})")
    return None


def _top_k(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> None:
    w.results(e, f"{w.use('top_k')}({xs[0]}, {w.size(op.k)}, {op.axis})")


# ---------------------------------------------------------------------------- products and windows


def _dot(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    dtype = e.outs[0].aval.dtype
    plain = all(a.aval.dtype == dtype for a in e.ins) and dtype.kind in "fc" and dtype.itemsize > 2
    x, y = op.lhs, op.rhs
    batch = x[:-2] == y[:-2] or len(y) == 2
    if plain and len(x) >= 2 and len(y) >= 2 and batch and op.out == x[:-1] + y[-1] and (
            x[-1] == y[-2]) and x[-1] not in op.out and y[-1] not in x and not set(
            x[:-1]) & set(y[-2:]):
        return f"{xs[0]} @ {xs[1]}"
    labels = f"{op.lhs},{op.rhs}->{op.out}"
    return f"{w.use('contract')}({labels!r}, {xs[0]}, {xs[1]}, {dtype_text(dtype)})"


def _convolution(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    numbers = op.dimension_numbers
    x, k = (text if tuple(spec) == tuple(range(len(spec))) else f"{text}.transpose({tuple(spec)})"
            for text, spec in zip(xs, numbers[:2], strict=True))
    dtype = dtype_text(e.outs[0].aval.dtype)
    channels = e.ins[0].aval.shape[numbers.lhs_spec[1]]
    strides = w.shape(op.window_strides)
    if op.feature_group_count == channels > 1 and set(op.lhs_dilation) <= {1}:
        text = (f"{w.use('depthwise')}({x}, {k}, {strides}, {w.pairs(op.padding)}, "
                f"{w.shape(op.rhs_dilation)}, {dtype})")
    else:
        text = (f"{w.use('convolve')}({x}, {k}, {strides}, {w.pairs(op.padding)}, "
                f"{w.shape(op.lhs_dilation)}, {w.shape(op.rhs_dilation)}, "
                f"{w.size(op.feature_group_count)}, {w.size(op.batch_group_count)}, {dtype})")
    back = tuple(int(i) for i in np.argsort(numbers.out_spec))
    return text if back == tuple(range(len(back))) else f"{text}.transpose({back})"


def _geometry(w: NumpyWriter, op: Any) -> str:
    size, strides, padding, base, dilation = op.geometry()
    return ", ".join([w.shape(size), w.shape(strides), w.pairs(padding), w.shape(base),
                      w.shape(dilation)])


def _reduce_window(function: str, neutral: Any) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        start = number(neutral, e.ins[0].aval.dtype)
        return f"{w.use('reduce_windows')}({xs[0]}, np.{function}, {start}, {_geometry(w, op)})"
    return rule


def _extreme_window(function: str, start: Any) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        dtype = e.ins[0].aval.dtype
        return (f"{w.use('extreme_of_windows')}({xs[0]}, np.{function}, "
                f"{number(start(dtype), dtype)}, {_geometry(w, op)})")
    return rule


def _bits_window(function: str, neutral: int) -> Rule:
    def rule(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
        dtype = e.ins[0].aval.dtype
        start = number(np.asarray(neutral).astype(dtype), dtype)
        return (f"{w.use('reduce_windows')}({xs[0]}, np.{function}.reduce, {start}, "
                f"{_geometry(w, op)})")
    return rule


def _select_scatter(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return (f"{w.use('select_and_scatter_add')}({xs[0]}, {xs[1]}, {op.select == 'ge'}, "
            f"{w.shape(op.window_dimensions)}, {w.shape(op.window_strides)}, "
            f"{w.pairs(op.padding)})")


def _select_gather(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return (f"{w.use('select_and_gather_add')}({xs[0]}, {xs[1]}, {op.select == 'ge'}, "
            f"{_geometry(w, op)})")


# --------------------------------------------------------------------------------- gather, scatter


def _gather(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    numbers, dtype = op.dimension_numbers, e.ins[0].aval.dtype
    fill = "None"
    if op.fills:
        value = fill_number(op.fill_value, dtype)
        fill = number(default_fill(dtype) if value is None else value, dtype)
    return (f"{w.use('gather')}({xs[0]}, {xs[1]}, {', '.join(map(_plain, numbers))}, "
            f"{w.shape(op.slice_sizes)}, {fill})")


def _plain(dims: Sequence[int]) -> str:
    return str(tuple(int(d) for d in dims))


def _scatter(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return (f"{w.use('scatter')}({', '.join(xs)}, {', '.join(map(_plain, op.dimension_numbers))}, "
            f"{op.clips}, {op.combine!r})")


def _dynamic_slice(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    x, *starts = xs
    if not starts:
        return x
    shape = w.shape(e.ins[0].aval.shape)
    return f"{x}[{w.use('block')}(({', '.join(starts)},), {shape}, {w.shape(op.sizes)})]"


def _dynamic_update(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    x, update, *starts = xs
    return f"{w.use('update_block')}({x}, {update}, ({', '.join(starts)}{',' if starts else ''}))"


def _fft(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    name = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}[op.fft_type.name]
    count = len(op.fft_lengths)
    axes = tuple(range(-count, 0))
    if not count:
        return _astype(xs[0], e.outs[0].aval.dtype)
    return _astype(f"np.fft.{name}({xs[0]}, {w.shape(op.fft_lengths)}, {axes})",
                   e.outs[0].aval.dtype)


def _on_buffers(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    inner = op.op.physical(*op.avals)
    rule = w.rules.get(type(inner))
    if rule is None:
        raise missing_rule("to_numpy", e)
    return rule(w, inner, xs, e)


def _key_comparison(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    same = f"np.all({xs[0]} == {xs[1]}, axis=-1)"
    return same if op.equal else f"~{same}"


_OPERATORS = {
    families.Sub: "-", bits.Eq: "==", bits.Ne: "!=", bits.Lt: "<", bits.Le: "<=", bits.Gt: ">",
    bits.Ge: ">=", bits.And: "&", bits.Or: "|", bits.Xor: "^",
}
_CALLS = {
    bits.Not: "invert", bits.Gcd: "gcd", elementwise.Abs: "abs", elementwise.Floor: "floor",
    elementwise.Ceil: "ceil", elementwise.IsFinite: "isfinite", elementwise.Max: "maximum",
    elementwise.Min: "minimum", elementwise.Nextafter: "nextafter", elementwise.Log: "log",
    complexes.Real: "real", complexes.Imag: "imag", transcendental.Exp: "exp",
    transcendental.Expm1: "expm1", transcendental.Log1p: "log1p", transcendental.Sqrt: "sqrt",
    transcendental.Cbrt: "cbrt", transcendental.Sin: "sin", transcendental.Cos: "cos",
    transcendental.Tan: "tan", transcendental.Asin: "arcsin", transcendental.Acos: "arccos",
    transcendental.Atan: "arctan", transcendental.Atan2: "arctan2", transcendental.Sinh: "sinh",
    transcendental.Cosh: "cosh", transcendental.Tanh: "tanh", transcendental.Asinh: "arcsinh",
    transcendental.Acosh: "arccosh", transcendental.Atanh: "arctanh", families.Neg: "negative",
}
_SUPPORT = {
    elementwise.Rem: "remainder", elementwise.Sign: "sign", bits.PopulationCount: "bit_count",
    bits.Clz: "leading_zeros", bits.ShiftRightLogical: "shift_logical",
    transcendental.Logistic: "logistic", special.Erf: "erf", special.Erfc: "erfc",
    special.ErfInv: "erf_inv", special.Lgamma: "lgamma", special.Digamma: "digamma",
    special.Polygamma: "polygamma", special.Zeta: "zeta", special.Igamma: "igamma",
    special.Igammac: "igammac", special.IgammaGradA: "igamma_grad_a",
    special.RandomGammaGrad: "random_gamma_grad", special.FusedMultiplyAdd: "fused_multiply_add",
    special.RegularizedIncompleteBeta: "betainc", special.BesselI0e: "bessel_i0e",
    special.BesselI1e: "bessel_i1e",
}


def _add(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{xs[0]} {'|' if e.outs[0].aval.dtype == np.bool_ else '+'} {xs[1]}"


def _mul(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{xs[0]} {'&' if e.outs[0].aval.dtype == np.bool_ else '*'} {xs[1]}"


def _rsqrt(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{number(1, e.ins[0].aval.dtype)} / np.sqrt({xs[0]})"


RULES: dict[type, Rule] = {
    **{cls: _operator(symbol) for cls, symbol in _OPERATORS.items()},
    **{cls: _call(name) for cls, name in _CALLS.items()},
    **{cls: _support(name) for cls, name in _SUPPORT.items()},
    **CONTROL,
    **MATRICES,
    families.Add: _add,
    families.Mul: _mul,
    families.BroadcastInDim: _broadcast,
    families.Reshape: _reshape,
    families.Transpose: _transpose,
    families.ReduceSum: _sum("sum"),
    elementwise.Div: _div,
    elementwise.Pow: _pow,
    elementwise.IntegerPow: _integer_pow,
    elementwise.Round: _round,
    choices.ConvertElementType: _convert,
    choices.SelectN: _select,
    choices.Clamp: _clamp,
    complexes.Complex: _complex,
    complexes.Conj: _conj,
    bits.ShiftLeft: _shift("left_shift"),
    bits.ShiftRightArithmetic: _shift("right_shift"),
    bits._KeyComparison: _key_comparison,
    transcendental.Log2: _log2,
    transcendental.Exp2: _exp2,
    transcendental.Rsqrt: _rsqrt,
    transcendental.OneMinusSquare: _one_minus_square,
    special.PolygammaOfOrder: _polygamma,
    threefry_words.ThreefryWord: _threefry,
    shapes.Slice: _slice,
    shapes.Pad: _pad,
    shapes.Concatenate: _concatenate,
    shapes.Rev: _rev,
    shapes.Iota: _iota,
    shapes.BitcastConvertType: _bitcast,
    shapes.ReducePrecision: _reduce_precision,
    shapes.OptimizationBarrier: _itself,
    shapes.Copy: _itself,
    Constraint: _itself,
    Varying: _itself,
    barriers.StopGradient: _itself,
    barriers.Name: _itself,
    keys.RandomWrap: _itself,
    keys.RandomUnwrap: _itself,
    keys.RandomClone: _itself,
    keys.RandomConsume: _itself,
    OnBuffers: _on_buffers,
    reductions.ReduceMax: _extreme("max", lowest),
    reductions.ReduceMin: _extreme("min", highest),
    reductions.ReduceProd: _sum("prod"),
    reductions.ReduceAnd: _bitwise("bitwise_and"),
    reductions.ReduceOr: _bitwise("bitwise_or"),
    reductions.ReduceXor: _bitwise("bitwise_xor"),
    sorts.Argmax: _arg("argmax"),
    sorts.Argmin: _arg("argmin"),
    sorts.Sort: _sort,
    sorts.TopK: _top_k,
    cumulative.Cumsum: _cumulative("add"),
    cumulative.Cumprod: _cumulative("multiply"),
    cumulative.Cummax: _cumulative("maximum"),
    cumulative.Cummin: _cumulative("minimum"),
    cumulative.Cumlogsumexp: _cumulative("logaddexp"),
    recurrences.LinearRecurrence: _recurrence,
    contractions.DotGeneral: _dot,
    conv.ConvGeneralDilated: _convolution,
    windows.ReduceWindowSum: _reduce_window("sum", 0),
    windows.ReduceWindowProd: _reduce_window("prod", 1),
    windows.ReduceWindowMax: _extreme_window("max", lowest),
    windows.ReduceWindowMin: _extreme_window("min", highest),
    windows.ReduceWindowAnd: _bits_window("bitwise_and", -1),
    windows.ReduceWindowOr: _bits_window("bitwise_or", 0),
    windows.SelectAndScatterAdd: _select_scatter,
    windows.SelectAndGatherAdd: _select_gather,
    gathers.Gather: _gather,
    gathers.Scatter: _scatter,
    dynamic_slices.DynamicSlice: _dynamic_slice,
    dynamic_slices.DynamicUpdateSlice: _dynamic_update,
    fft.Fft: _fft,
}
