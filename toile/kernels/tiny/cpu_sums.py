"""Sums, products, extrema and their indices over the registers of tiny arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from toile.compiler.ir.views import row_major
from toile.compiler.scalar.builder import BOOL, FLOAT32, Unsupported, Value, is_narrow, kind
from toile.compiler.scalar.totals import combine
from toile.engine.program import Equation
from toile.kernels.tiny.cpu_blocks import Blocks, Elements
from toile.primitives.contractions import DotGeneral
from toile.primitives.cumulative import Cumulative
from toile.primitives.families import OverAxes
from toile.primitives.recurrences import LinearRecurrence
from toile.primitives.sorts import Argmax, Argmin
from toile.targets.llvm.scalars import register

LONGEST = 1500  # lines of a kernel: compiling takes a tenth of a millisecond per line


class Sums(Blocks):
    """The operations of a writer that combine elements."""

    def check_length(self) -> None:
        """Raise Unsupported if the kernel is so long that loops over memory are better."""
        if len(self.f.lines) > LONGEST:
            raise Unsupported("a long kernel")

    def settled(self, xs: Elements) -> Elements:
        """Values without excess precision, as if stored in memory."""
        if not xs or not is_narrow(xs[0].dtype):
            return xs
        wide = lambda x: self.k.convert(Value(x.name, FLOAT32), x.dtype)
        return self.known(x if x.name in self.exact else wide(x) for x in xs)

    def combined(self, e: Equation, ins: list[Elements]) -> Elements:
        """An equation that combines elements of an array."""
        writers: dict[str, Callable[..., Elements]] = {
            "axes": self._reduction, "running": self._running, "places": self._place,
            "products": self._product, "recurrence": self._recurrence}
        return writers[e.op.combines](e.op, e, *ins)

    def _running(self, op: Cumulative, e: Equation, x: Elements) -> Elements:
        """Partial results along an axis."""
        step = partial(combine, self.k, f"reduce_{op.kind}")
        rows = _rows(e.ins[0].aval.shape, op.axis)
        out = list(x)
        for row in rows[:, ::-1] if op.reverse else rows:
            for before, i in zip(row, row[1:], strict=False):
                out[i] = step(out[before], x[i])
        return self.settled(out)

    def _recurrence(self, op: LinearRecurrence, e: Equation, a: Elements, b: Elements) -> Elements:
        """h[t] = a[t] h[t - 1] + b[t] along an axis."""
        a, b = self.settled(a), self.settled(b)
        rows, out = _rows(e.ins[0].aval.shape, op.axis), list(b)
        for row in rows[:, ::-1] if op.reverse else rows:
            for before, i in zip(row, row[1:], strict=False):
                out[i] = self.plus_product(b[i], a[before if op.shifted else i], out[before])
        return self.settled(out)

    def _place(self, op: Argmax | Argmin, e: Equation, x: Elements) -> Elements:
        """The index of the first extremum along an axis; a NaN counts as an extremum."""
        k, rows = self.k, _rows(e.ins[0].aval.shape, op.axis)
        better = k.gt if op.extremum == "max" else k.lt
        dtype = np.dtype(op.index_dtype)
        found, x = [], self.settled(x)
        for row in rows:
            best, place = x[row[0]], k.constant(0, dtype)
            for n, i in enumerate(row[1:], 1):
                wins = better(x[i], best)
                if kind(best.dtype) == "f":  # nothing is better than a NaN
                    wins = k.and_(k.or_(wins, k.is_nan(x[i])), k.not_(k.is_nan(best)))
                best = k.select(wins, x[i], best)
                place = k.select(wins, k.constant(n, dtype), place)
            found.append(place)
        return found

    def _reduction(self, op: OverAxes, e: Equation, x: Elements) -> Elements:
        """Combine pairs, pairs of pairs and so on: the order with the least rounding errors."""
        aval = e.ins[0].aval
        kept = [a for a in range(aval.ndim) if a not in op.axes]
        order = np.arange(aval.size).reshape(aval.shape)
        rows = order.transpose((*kept, *op.axes)).reshape(e.outs[0].aval.size, -1)
        step = partial(combine, self.k, op.name)
        return self.settled([_tree(step, [x[i] for i in row]) for row in rows])

    def _product(self, op: DotGeneral, e: Equation, *ins: Elements) -> Elements:
        """Sums of products in the order of the labels, computed like the library's kernels."""
        x, y = e.ins[0].aval, e.ins[1].aval
        dtype = np.dtype(e.outs[0].aval.dtype)
        work = product_dtype(np.dtype(x.dtype), np.dtype(y.dtype), dtype)
        a, b = ([self.k.convert(v, work) for v in self.settled(xs)] for xs in ins)
        size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
        summed = [c for c in size if c not in op.out]
        steps = [dict(zip(labels, row_major(v.shape), strict=True))
                 for labels, v in ((op.lhs, x), (op.rhs, y))]
        out: Elements = []
        for place in np.ndindex(*(size[c] for c in op.out)):
            at = dict(zip(op.out, place, strict=True))
            total = None
            for terms in np.ndindex(*(size[c] for c in summed)):
                at.update(zip(summed, terms, strict=True))
                i, j = (sum(s * at[c] for c, s in t.items()) for t in steps)
                total = self.plus_product(total, a[i], b[j])
            assert total is not None
            out.append(self.k.convert(total, dtype))
            self.check_length()
        return self.known(out)

    def plus_product(self, total: Value | None, x: Value, y: Value) -> Value:
        """total + x y."""
        if total is None:
            return self.k.mul(x, y)
        if kind(x.dtype) != "f":
            return self.k.add(total, self.k.mul(x, y))
        made = self.f.multiply_add(x.name, y.name, total.name, register(x.dtype))
        return Value(made, x.dtype)


def _rows(shape: Sequence[int], axis: int) -> np.ndarray:
    """The element numbers of an array, with those along an axis in rows."""
    order = np.arange(prod(shape)).reshape(shape)
    return np.moveaxis(order, axis, -1).reshape(-1, shape[axis])


def _tree(step: Callable[[Value, Value], Value], xs: Elements) -> Value:
    while len(xs) > 1:
        rest = xs[-1:] if len(xs) % 2 else []
        xs = [step(a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)] + rest
    return xs[0]


def product_dtype(x: np.dtype, y: np.dtype, out: np.dtype) -> np.dtype:
    """The accumulator dtype of sums of products that give `out`."""
    kinds = kind(x) + kind(y)
    if "c" in kinds + kind(out) or out == BOOL:
        if not x == y == out:
            raise Unsupported("a product of mixed dtypes")
        return out
    if kind(out) in "iu" and "f" in kinds:
        raise Unsupported("an integer product of floats")
    return FLOAT32 if is_narrow(out) else out
