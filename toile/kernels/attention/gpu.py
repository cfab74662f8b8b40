"""Lowering of attention on a GPU: a kernel of toile's own for a few queries, a cuDNN call if that
computes the same result, else products.

Causal masks, windows and lengths that cuDNN supports are passed to it; an explicit mask, or a
combination of these, is passed as a table that is added to the logits. For a query that sees no
key, cuDNN would give another result: it is replaced by a query of zeros that sees all keys, which
gives the mean of the values, and its derivative is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.operands import Operand
from toile.control.attention import Form
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Equation, Program, derive
from toile.kernels.attention import gpu_calls as attention
from toile.kernels.attention import gpu_few_queries as few_queries
from toile.kernels.attention.gpu_calls import Extras, Options
from toile.kernels.attention.gpu_few_queries import LOW
from toile.kernels.attention.masks import known_as
from toile.primitives.bits import and_, ge, gt, le, lt, ne
from toile.primitives.choices import convert, select
from toile.primitives.elementwise import max_
from toile.primitives.families import add, broadcast_in_dim, reshape, scalar, sub, transpose
from toile.primitives.reductions import ReduceMax
from toile.primitives.shapes import iota
from toile.targets.cuda import cudnn

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


# ---- operations of the compiled Program
@dataclass(frozen=True)
class FusedAttention(Operation):
    """Attention of (batch, positions, heads, depth) in one call: (out, logarithms of the sums).

    `extras` names the operands after q, k and v, as in `attention.Extras`."""

    options: Options
    extras: tuple[str, ...] = ()
    sums: bool = True

    kernel_family = "attention"
    multiple = True
    by_library = True

    def infer(self, q: Aval, k: Aval, v: Aval, *extras: Aval) -> list[Aval]:
        b, t, n, _ = q.shape
        out = Aval((b, t, n, v.shape[3]), q.dtype)
        return [out, Aval((b, n, t), FLOAT32)] if self.sums else [out]

    def eager(self, xp: Any, q: Any, k: Any, v: Any, *extras: Any) -> Any:
        logits, seen = _logits(xp, self.options, q, k, dict(zip(self.extras, extras, strict=True)))
        top = xp.where(seen.any(-1), logits.max(-1), 0)[..., None]
        weights = xp.exp(logits - top)
        total = weights.sum(-1, keepdims=True)
        total = xp.where(total > 0, total, 1)  # for queries that see no key
        out = xp.einsum("bhts,bshd->bthd", weights / total, _wide(xp, v, q))
        sums = (top + xp.log(total))[..., 0]
        return [out.astype(q.dtype), sums][: 1 + self.sums]


@dataclass(frozen=True)
class FusedAttentionGradient(Operation):
    """cuDNN's derivative: (q, k, v, out, sums, dout, extras...) -> (dq, dk, dv)."""

    options: Options
    extras: tuple[str, ...] = ()

    kernel_family = "attention.gradient"
    multiple = True
    by_library = True

    def infer(self, q: Aval, k: Aval, v: Aval, *others: Aval) -> list[Aval]:
        return [Aval(x.shape, x.dtype) for x in (q, k, v)]

    def eager(self, xp: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, ct: Any,
              *extras: Any) -> Any:
        logits, seen = _logits(xp, self.options, q, k, dict(zip(self.extras, extras, strict=True)))
        weights = xp.where(seen, xp.exp(xp.where(seen, logits, 0) - sums[..., None]), 0)
        d = ct.astype(FLOAT32)
        inner = (d * out.astype(FLOAT32)).sum(-1).transpose(0, 2, 1)[..., None]
        moved = weights * (xp.einsum("bthd,bshd->bhts", d, _wide(xp, v, q)) - inner)
        moved = moved * np.float32(self.options.scale)
        dq = xp.einsum("bhts,bshd->bthd", moved, _wide(xp, k, q))
        dk = xp.einsum("bhts,bthd->bshd", moved, q.astype(FLOAT32))
        dv = xp.einsum("bhts,bthd->bshd", weights, d)
        return [dq.astype(q.dtype), _shared(dk, k), _shared(dv, v)]


def _wide(xp: Any, x: Any, q: Any) -> Any:
    """Keys or values in float32, repeated for each head of the queries."""
    return xp.repeat(x.astype(FLOAT32), q.shape[2] // x.shape[2], axis=2)


def _shared(d: Any, x: Any) -> Any:
    """A derivative summed over the heads that share a key."""
    b, s, n, width = d.shape
    return d.reshape(b, s, x.shape[2], -1, width).sum(3).astype(x.dtype)


def _logits(xp: Any, options: Options, q: Any, k: Any, extras: dict[str, Any]) -> tuple[Any, Any]:
    """Logits in float32, -inf at keys that are not seen, and a mask of the keys that are."""
    logits = xp.einsum("bthd,bshd->bhts", q.astype(FLOAT32), _wide(xp, k, q))
    logits = logits * np.float32(options.scale)
    if "bias" in extras:
        logits = logits + extras["bias"].astype(FLOAT32)
    i, j = xp.arange(q.shape[1])[:, None], xp.arange(k.shape[1])
    seen = xp.ones(logits.shape, bool)
    if options.causal:
        seen &= i >= j
    if options.window is not None:
        seen &= (j >= i - options.window[0]) & (j <= i + options.window[1])
    if "key_lengths" in extras:
        within = [x.reshape(-1, 1, 1, 1) for x in (extras["query_lengths"], extras["key_lengths"])]
        seen &= (i < within[0]) & (j < within[1])
    return xp.where(seen, logits, -np.inf), seen


def lower(op: FusedAttention, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Attention by a kernel for a few queries, or by cuDNN."""
    q, k, v, *more = ins
    extras = Extras(**dict(zip(op.extras, more, strict=True)))
    sums = outs[1] if op.sums else None
    if _few(op.options, op.extras, (q, k, v)):
        few_queries.lower(q, k, v, extras.bias, outs[0], sums, op.options.scale, plan)
        return True
    return attention.forward(q, k, v, outs[0], sums, op.options, plan, extras)


def lower_gradient(op: FusedAttentionGradient, ins: list[Operand], outs: list[Operand],
                   plan: Any) -> bool:
    """The derivative by cuDNN."""
    extras = Extras(**dict(zip(op.extras, ins[6:], strict=True)))
    return attention.backward(ins[:6], outs, op.options, plan, extras)


def _few(options: Options, extras: Sequence[str], qkv: Sequence[Any]) -> bool:
    """Whether the kernel for a few queries computes an attention."""
    return options == Options(options.scale) and set(extras) <= {"bias"} and few_queries.fits(*qkv)


# ---- choosing
class Way(NamedTuple):
    """What the call is given: `options`, and lengths if `lengths`; all else is in a table."""

    options: Options
    lengths: bool = False
    table: Any = None  # its dtype, if there is one


def choose(e: Equation, before: Sequence[Equation]) -> Program:
    """The Program that replaces an attention or its derivative; `before`: earlier equations."""
    op: Any = e.op
    if not op.direction:
        return op.program
    form = op.form
    if any(op.moving[3:]):
        return op.program  # the derivative of a bias
    avals = tuple(a.aval for a in e.ins)
    few = op.direction == "forward" and few_queries.fits(*avals[:3])
    if not few and (cudnn.engine() is None or not attention.supported(*avals[:3])):
        return op.program
    if "mask" in form.operands:
        known = known_as(e.ins[form.operands.index("mask")], before)
        if known == "all" or (known == "causal" and form.window is None):
            form = form._replace(causal=form.causal or known == "causal", operands=tuple(
                "" if name == "mask" else name for name in form.operands))
    return op.program.memoized(("one call", form, avals), lambda: _made(e, form, avals, few))


def _made(e: Equation, form: Form, avals: tuple[Aval, ...], few: bool) -> Program:
    """The Program with an attention in one call, or the plain one if there is no such call."""
    op: Any = e.op
    backward = op.direction == "backward"
    for way in _ways(form, avals):
        extras = ("bias",) if way.table else ("key_lengths",) if way.lengths else ()
        if _few(way.options, extras, avals[:3]) if few else _available(way, form, avals, backward):
            run = _Run(form, way, op)
            made = derive(run.backward if backward else run.forward, avals, op.label)
            equations = [Equation(x.op, x.ins, x.outs, e.source) for x in made.equations]
            return Program(made.inputs, equations, made.outputs, made.name)
    return op.program


def _ways(form: Form, avals: Sequence[Aval]) -> Iterator[Way]:
    """The ways in which one call could compute an attention, best first."""
    given = set(form.operands)
    t, s = avals[0].shape[-3], avals[1].shape[-3]
    window = form.window
    lengths = bool(given & {"query_lengths", "key_lengths"})
    within = window is None or (min(window) >= 0 and t <= s + window[0])  # each query sees a key
    if not given & {"bias", "mask"} and within and not (lengths and (form.causal or window)):
        yield Way(Options(form.scale, form.causal, window), lengths)
        if not (lengths or form.causal or window):
            return
    own = np.dtype(avals[0].dtype)
    if "bias" in given and FLOAT32 == avals[form.operands.index("bias")].dtype:
        yield Way(Options(form.scale), table=FLOAT32)
    yield Way(Options(form.scale), table=own)


def _available(way: Way, form: Form, avals: Sequence[Aval], backward: bool) -> bool:
    q, k, v = (Aval((prod(a.shape[:-3]), *a.shape[-3:]), a.dtype) for a in avals[:3])
    batch, t, n = q.shape[:3]
    given = {"q": q, "k": k, "v": v}
    out = Aval((batch, t, n, v.shape[3]), q.dtype)
    sums = Aval((batch, n, t), FLOAT32)
    if backward:
        given |= {"o": out, "stats": sums, "do": out}
    if way.table is not None:
        shape = _table_shape(form, avals)
        given["bias"] = Aval((*shape, t, k.shape[1]), way.table)
    if way.lengths:
        given |= {name: Aval((batch,), INT32) for name in ("query_lengths", "key_lengths")}
    if backward:
        return attention.available(given, {"dq": q, "dk": k, "dv": v}, way.options, True)
    return attention.available(given, {"o": out, "stats": sums}, way.options)


def _table_shape(form: Form, avals: Sequence[Any]) -> tuple[int, int]:
    """The batch size and heads of the table: 1 where it is the same for all."""
    axes = avals[0].ndim - 3
    batch, heads = 1, 1
    for name, a in zip(form.operands, avals, strict=False):
        if name in ("bias", "mask"):
            batch, heads = max(batch, prod(a.shape[:axes])), max(heads, a.shape[axes])
        elif name in ("query_lengths", "key_lengths"):
            batch = max(batch, prod(a.shape))
    return (1 if batch == 1 else prod(avals[0].shape[:axes])), heads


# ---- the Program
class _Run:
    """The computations around cuDNN's operation, traced on the operands of an attention."""

    def __init__(self, form: Form, way: Way, op: Any):
        self.form, self.way = form, way
        self.op = op

    def prepare(self, xs: Sequence[Any]) -> None:
        """Prepare arrays of rank 4, the extras, and which queries see a key."""
        given = dict(zip(self.form.operands, xs, strict=False))
        self.batch = tuple(xs[0].shape[:-3])
        self.q, self.k, self.v = (self.flat(x) for x in xs[:3])
        self.extras: dict[str, Any] = {}
        self.seeing: Any = None  # (1 or batch, queries, 1 or heads, 1), if some may see no key
        self.kept: Any = None  # the queries' lengths, if cuDNN is not given them
        if self.way.table is not None:
            self._tabulate(given, xs)
        elif self.way.lengths:
            self._measure(given)

    def flat(self, x: Any) -> Any:
        """Merge all batch axes into one."""
        return reshape(x, (prod(self.batch), *x.shape[len(self.batch) :]))

    def _measure(self, given: dict[str, Any]) -> None:
        size, t, s = self.q.shape[0], self.q.shape[1], self.k.shape[1]
        lengths = {"query_lengths": _full(t, (size,)), "key_lengths": _full(s, (size,))}
        for name in lengths:
            if name in given:
                lengths[name] = convert(self.flat(given[name]), INT32)
        if "key_lengths" in given:
            keys = lengths["key_lengths"]
            some = gt(keys, scalar(0, INT32))
            lengths["key_lengths"] = select(some, keys, _full(s, (size,)))
            self._hide(reshape(some, (size, 1, 1, 1)))
        self.extras = lengths

    def _tabulate(self, given: dict[str, Any], xs: Sequence[Any]) -> None:
        """Combine everything that hides keys in one table, which is added to the logits."""
        shape = (*_table_shape(self.form, xs), self.q.shape[1], self.k.shape[1])
        low = LOW[self.way.table.name]
        table = _full(0, shape, self.way.table)
        if "bias" in given:
            bias = convert(self._spread(given["bias"], shape), self.way.table)
            table = max_(bias, scalar(low, self.way.table))
        for seen in self._seen(given, shape):
            table = select(seen, table, _full(low, shape, self.way.table))
        some = gt(ReduceMax((3,))(table), scalar(low, self.way.table))
        wide = broadcast_in_dim(some, shape, (0, 1, 2))
        self.extras = {"bias": select(wide, table, _full(0, shape, self.way.table))}
        self._hide(reshape(transpose(some, (0, 2, 1)), (shape[0], shape[2], shape[1], 1)))

    def _seen(self, given: dict[str, Any], shape: tuple[int, ...]) -> Iterator[Any]:
        """For each condition, a table of the keys that it lets queries see."""
        i, j = iota(INT32, shape, 2), iota(INT32, shape, 3)
        if self.form.causal:
            yield ge(i, j)
        if self.form.window is not None:
            left, right = (_full(n, shape) for n in self.form.window)
            yield and_(le(i, add(j, left)), ge(i, sub(j, right)))
        if "mask" in given:
            mask = given["mask"]
            yield self._spread(ne(mask, scalar(0, mask.dtype)), shape)
        for name, place in (("query_lengths", i), ("key_lengths", j)):
            if name in given:
                length = convert(self.flat(given[name]), INT32)
                yield lt(place, broadcast_in_dim(length, shape, (0,)))
                if name == "query_lengths":
                    self.kept = length

    def _spread(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A bias or mask (*batch, heads, queries, keys) in the table's shape."""
        n = len(self.batch)
        examples = self.batch if shape[0] != 1 else (1,) * n
        full = broadcast_in_dim(x, (*examples, *shape[1:]), tuple(range(n + 3)))
        return reshape(full, shape)

    def _hide(self, seeing: Any) -> None:
        """Replace queries that see no key by zeros."""
        self.seeing = broadcast_in_dim(seeing, self.q.shape, (0, 1, 2, 3))
        self.q = select(self.seeing, self.q, _full(0, self.q.shape, self.q.dtype))

    def forward(self, *xs: Any) -> list[Any]:
        """(operands) -> out and, if they are needed, the logarithms of the sums."""
        self.prepare(xs)
        sums = len(self.op.program.outputs) > 1
        op = FusedAttention(self.way.options, tuple(self.extras), sums)
        outs = op(self.q, self.k, self.v, *self.extras.values())
        outs[0] = self._within(outs[0])
        return [reshape(x, (*self.batch, *x.shape[1:])) for x in outs]

    def backward(self, *xs: Any) -> list[Any]:
        """(operands, out, sums, cotangent) -> cotangents of the operands that need them."""
        self.prepare(xs)
        out, sums, ct = (self.flat(x) for x in xs[-3:])
        op = FusedAttentionGradient(self.way.options, tuple(self.extras))
        found = op(self.q, self.k, self.v, out, sums, self._within(ct), *self.extras.values())
        if self.seeing is not None:
            found[0] = select(self.seeing, found[0], _full(0, self.q.shape, self.q.dtype))
        return [reshape(d, (*self.batch, *d.shape[1:]))
                for d, moving in zip(found, self.op.moving[:3], strict=True) if moving]

    def _within(self, x: Any) -> Any:
        """The array with zeros past the queries' lengths, if cuDNN is not given these."""
        if self.kept is None:
            return x
        kept = lt(iota(INT32, x.shape, 1), broadcast_in_dim(self.kept, x.shape, (0,)))
        return select(kept, x, _full(0, x.shape, x.dtype))


def _full(value: float, shape: tuple[int, ...], dtype: Any = INT32) -> Any:
    return broadcast_in_dim(scalar(value, dtype), shape, ())
