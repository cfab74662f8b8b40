"""Contractions by axis labels: `DotGeneral("bik", "bkj", "bij")` is a batched matrix product.

Each label occurs in two of the three strings, or in all three (a batch axis); the rules are
permutations of the strings. Labels are named by first occurrence, so that equivalent contractions
are equal. This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim
from toile.engine.records import dataclass
from toile.engine.traits import Shape
from toile.primitives import division
from toile.primitives.arrays.contraction import contract
from toile.primitives.elementwise import convert
from toile.primitives.families import Bilinear, reduce_sum
from toile.primitives.rules import frame_rule

LETTERS = string.ascii_lowercase + string.ascii_uppercase


@dataclass(frozen=True)
class DotGeneral(Bilinear):
    """The sum of products over the axes whose labels are not in the result.

    `dtype` is the dtype of the result; if it is None, the dtype of the operands. `precision` is
    passed to the backends.
    """

    lhs: str
    rhs: str
    out: str
    dtype: Any = None
    precision: Any = None
    combines = "products"

    kernel_family = "contraction"
    sparse = frame_rule("dot_general")
    can_make_nan = True

    @property
    def sums_shared_axes(self) -> bool:
        return not any(c in self.rhs and c in self.out for c in self.lhs)

    def infer(self, x: Aval, y: Aval) -> Aval:
        if x.dtype != y.dtype and self.dtype is None:
            raise shape_error(self.name, "operands of equal dtypes", [x, y],
                              "convert one with .astype, or use jnp.matmul",
                              "lax.dot_general requires arguments to have the same dtypes")
        if len(self.lhs) != x.ndim or len(self.rhs) != y.ndim:
            raise shape_error(self.name, f"operands with axes {self.lhs} and {self.rhs}", [x, y],
                              "give as many axes as there are letters")
        size: dict[str, int] = {}
        for labels, shape in ((self.lhs, x.shape), (self.rhs, y.shape)):
            for c, n in zip(labels, shape, strict=True):
                if size.setdefault(c, n) != n:
                    raise _mismatch(self, x, y)
        weak = x.weak_type and y.weak_type and self.dtype is None
        return Aval(tuple(size[c] for c in self.out), self.dtype or x.dtype, weak)

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        label = (self.lhs, self.rhs)[i][axis]
        return self.out.index(label) if label in self.out else None

    def summed_over_steps(self) -> DotGeneral:
        step = fresh_label(self.lhs + self.rhs)
        return dot_operation(step + self.lhs, step + self.rhs, self.out, self.dtype, self.precision)

    def with_swapped_sides(self, perm: Sequence[int]) -> DotGeneral | None:
        out = "".join(self.out[i] for i in perm)
        sides = self._sides(self.out)
        if len(sides) < 2:  # all of the result's axes come from one operand
            return None
        *batch, one, other = sides
        if self._sides(out) != [*batch, other, one] or any(
                c in self.lhs and c in self.rhs for c in one + other):
            return None
        return dot_operation(self.lhs, self.rhs, out, self.dtype, self.precision)

    def _sides(self, out: str) -> list[str]:
        """The labels of a result, split into runs of labels that the same operands have."""
        found = groupby(out, lambda c: (c in self.lhs, c in self.rhs))
        return ["".join(labels) for _, labels in found]

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return contract(xp, x, y, self.lhs, self.rhs, self.out, self.dtype or x.dtype)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        if type(x) is Aval:
            out = _transposed(self.out, self.rhs, self.lhs, self.precision, ct, y, x)
            return out, None
        out = _transposed(self.out, self.lhs, self.rhs, self.precision, ct, x, y)
        return None, out

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        new = fresh_label(self.lhs + self.rhs)
        lhs = self.lhs if dims[0] is None else insert(self.lhs, dims[0], new)
        rhs = self.rhs if dims[1] is None else insert(self.rhs, dims[1], new)
        at = 0 if dims[0] is not None else self._free_position()
        op = dot_operation(lhs, rhs, insert(self.out, at, new), self.dtype, self.precision)
        return op(*xs), at

    def _free_position(self) -> int:
        """Where a mapped axis of rhs alone goes: before rhs's free axes, as in a matrix product."""
        return sum(c in self.lhs for c in self.out)

    def flops(self, *avals: Aval) -> int:
        size = dict(zip(self.lhs + self.rhs, avals[0].shape + avals[1].shape, strict=True))
        return 2 * math.prod(size.values())

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        return division.by_labels(self, (self.lhs, self.rhs, self.out), f, ins, outs)


def _mismatch(op: DotGeneral, x: Aval, y: Aval) -> Exception:
    """The error that names the axes that disagree."""
    bad = [
        f"axis {op.lhs.index(c)} of the first ({x.shape[op.lhs.index(c)]}) with axis "
        f"{op.rhs.index(c)} of the second ({y.shape[op.rhs.index(c)]})"
        for c in op.lhs
        if c in op.rhs and x.shape[op.lhs.index(c)] != y.shape[op.rhs.index(c)]
    ]
    pairs = [(x.shape[op.lhs.index(c)], y.shape[op.rhs.index(c)]) for c in op.lhs
             if c in op.rhs and c not in op.out]
    ours, theirs = tuple(n for n, _ in pairs), tuple(m for _, m in pairs)
    said = f"{op.name} requires contracting dimensions to have the same shape, got {ours} and " \
        f"{theirs}." if ours != theirs else f"{op.name} requires batch dimensions of equal sizes"
    return shape_error(
        op.name, "equal sizes where operands are contracted or batched: " + "; ".join(bad), [x, y],
        "transpose or reshape an operand", said,
    )


def _transposed(
    first: str, second: str, out: str, precision: Any, ct: Any, other: Any, linear: Aval
) -> Any:
    """Cotangent of one operand: the contraction of `ct` with the other operand."""
    missing = [c for c in out if c not in first and c not in second]
    assert not missing, "every label of an operand is in the result or in the other operand"
    if ct.dtype != other.dtype:  # the dtypes differ: compute in the wider of the two
        wide = ct.dtype if ct.dtype.itemsize >= other.dtype.itemsize else other.dtype
        ct, other = convert(ct, wide), convert(other, wide)
    found = dot_operation(first, second, out, None, precision)(ct, other)
    return convert(found, linear.dtype)


def insert(labels: str, at: int, label: str) -> str:
    return labels[:at] + label + labels[at:]


def fresh_label(used: str) -> str:
    """A label that does not occur in `used`."""
    return next(c for c in LETTERS if c not in used)


def dot_operation(
    lhs: str, rhs: str, out: str, dtype: Any = None, precision: Any = None
) -> DotGeneral:
    """A DotGeneral with its labels renamed by first occurrence."""
    names: dict[str, str] = {}
    for c in lhs + rhs:
        names.setdefault(c, LETTERS[len(names)])
    table = str.maketrans(names)
    return DotGeneral(lhs.translate(table), rhs.translate(table), out.translate(table), dtype,
                      precision)


def contract_labels(
    x: Any, y: Any, lhs: str, rhs: str, out: str, dtype: Any = None, precision: Any = None
) -> Any:
    """Contract two arrays; labels of only one operand that are not in the result are summed."""
    drop = [c for c in lhs if c not in rhs and c not in out]
    x = reduce_sum(x, tuple(lhs.index(c) for c in drop))
    lhs = "".join(c for c in lhs if c not in drop)
    drop = [c for c in rhs if c not in lhs and c not in out]
    y = reduce_sum(y, tuple(rhs.index(c) for c in drop))
    rhs = "".join(c for c in rhs if c not in drop)
    return dot_operation(lhs, rhs, out, dtype, precision)(x, y)
