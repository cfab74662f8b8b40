"""Products of few rows with a matrix of quantized numbers read the integers as they are stored.

    dot(x, dequantize(values, scales, zeros)) = sum_g scales_g (x_g values_g - zeros_g sum(x_g))

where x_g are the columns of x that belong to group g of the summed axis. With few rows of x, the
time of a product is that of reading the matrix, and the integers are a fraction of its bytes.
Lookups of rows in a quantized table read the stored rows, too. In other places, quantized numbers
are computed by loop nests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program, without_dead_code
from toile.engine.records import dataclass
from toile.primitives.choices import convert
from toile.primitives.contractions import LETTERS, DotGeneral
from toile.primitives.families import (
    broadcast_in_dim,
    mul,
    reduce_sum,
    reshape,
    scalar,
    transpose,
)
from toile.primitives.quantized import Dequantize
from toile.primitives.shapes import pad

FEW = 8  # rows; with more, a product with the numbers themselves is faster on most devices
WIDE = 64  # columns of matrices that other devices multiply by more rows
LEAST = 1 << 12  # elements of the matrix: a smaller one is in a cache
FLOAT32 = np.dtype(np.float32)
_FLOATS = frozenset(("float32", "bfloat16", "float16"))


@dataclass(frozen=True)
class QuantizedProduct(Operation):
    """The product of x [M, K] and the matrix [K, N] of quantized numbers; all floats are float32.

    The operands are x, the sums of x over each group [M, groups] if the operation `has_sums`, the
    stored values, the scales and, if there are any, the zeros. If `transposed`, these are stored
    for a matrix [N, K]. If `short`, x was converted from 16-bit floats, and the result will be
    converted to them. If `bits` is 4, K is even, as is `group` unless there is one group: a byte
    has two numbers of a group. With `transposed`, the columns of x are then [even columns, odd
    columns]."""

    bits: int
    group: int
    transposed: bool
    has_sums: bool = True
    short: bool = False

    kernel_family = "quantized_product"

    def infer(self, x: Aval, *rest: Aval) -> Aval:
        scales = rest[1 + self.has_sums]
        return Aval((x.shape[0], scales.shape[0 if self.transposed else 1]), FLOAT32)

    def eager(self, xp: Any, x: Any, *rest: Any) -> Any:
        k = x.shape[1]
        values, scales, *zeros = rest[self.has_sums:]
        op = Dequantize(self.bits, self.group, k, -1 if self.transposed else -2, FLOAT32)
        w = op.eager(xp, values, scales, *zeros)
        if not self.transposed:
            return x @ w
        if self.bits == 4:
            w = xp.concatenate([w[:, ::2], w[:, 1::2]], 1)
        return x @ w.T


class _Matrix(NamedTuple):
    """A quantized operand of a product: who computes it, and its labels as it is stored."""

    made: Equation
    labels: str


@dataclass(frozen=True)
class _Form:
    """How a product becomes one of a matrix of few rows."""

    op: Any  # Dequantize
    transposed: bool
    x_labels: str
    free: str  # the labels of the matrix that are not summed over
    summed: str
    sizes: tuple[tuple[str, int], ...]
    out: Any  # dtype
    has_sums: bool

    def __call__(self, product: DotGeneral, x: Any, values: Any, scales: Any, *rest: Any) -> Any:
        zeros = self.op.zeros_in(rest)
        short = np.dtype(x.dtype).itemsize == np.dtype(self.out).itemsize == 2
        size = dict(self.sizes)
        rows = "".join(c for c in self.x_labels if c not in self.summed)
        m, k, n = (prod(size[c] for c in some) for some in (rows, self.summed, self.free))
        x = self._rows(x, rows, self.op.factors_in(rest), (m, k))
        length = k + k % 2 if self.op.bits == 4 else k
        group = self.op.group if self.op.group < k else length
        groups = -(-length // group)
        if length > k:
            x = pad(x, scalar(0, FLOAT32), ((0, 0, 0), (0, length - k, 0)))
        sums = []
        if self.has_sums:
            extra = groups * group - length
            whole = pad(x, scalar(0, FLOAT32), ((0, 0, 0), (0, extra, 0))) if extra else x
            sums = [reduce_sum(reshape(whole, (m, groups, group)), (2,))]
        if self.transposed and self.op.bits == 4:
            x = reshape(transpose(reshape(x, (m, length // 2, 2)), (0, 2, 1)), (m, length))

        def matrix(a: Any) -> Any:
            return reshape(a, (n, a.size // n) if self.transposed else (a.size // n, n))

        floats = [matrix(convert(a, FLOAT32)) for a in (scales, *zeros)]
        found = QuantizedProduct(self.op.bits, group, self.transposed, self.has_sums,
                                 short)(
            x, *sums, matrix(values), *floats)
        labels = rows + self.free
        found = reshape(convert(found, np.dtype(self.out)), tuple(size[c] for c in labels))
        return transpose(found, tuple(labels.index(c) for c in product.out))

    def _rows(self, x: Any, rows: str, factors: Any, shape: tuple[int, int]) -> Any:
        """The inputs as a matrix; factors, which differ along summed axes only, multiply them."""
        x = transpose(x, tuple(self.x_labels.index(c) for c in rows + self.summed))
        x = reshape(convert(x, FLOAT32), shape)
        if factors is None:
            return x
        factors = reshape(convert(factors, FLOAT32), shape[1:])
        return mul(x, broadcast_in_dim(factors, shape, (1,)))


def multiply_stored(program: Program, has_sums: bool = True, most: int = FEW) -> Program:
    """Replace products of few rows with quantized matrices.

    `has_sums`: whether the kernels for transposed matrices read the sums of x over the groups;
    `most`: rows of x, if the matrix is not transposed and has at least `WIDE` columns."""
    if all(e.op.decoded is None for e in program.equations):
        return program
    return rewrite(program, partial(_product_rule, has_sums, most))


def gather_stored(program: Program) -> Program:
    """Replace lookups of rows in quantized tables by lookups of stored rows."""
    if all(e.op.decoded is None for e in program.equations):
        return program
    return rewrite(program, _lookup_rule)


def _lookup_rule(new: Rewriter, e: Equation) -> Replacement:
    op: Any = e.op
    if not op.by_index or op.updates or not op.by_rows(*(a.aval for a in e.ins)):
        return None
    if op.fills and op.fill_value is not None:
        return None
    matrix = _matrix(new, e.ins[0], LETTERS[: e.ins[0].aval.ndim])
    if matrix is None or matrix.labels != LETTERS[: len(matrix.labels)]:
        return None
    stored: Any = matrix.made.op
    # If the axis is the first one, a group has elements of several rows.
    if stored.weighted or stored.axis == -e.ins[0].aval.ndim:
        return None
    # Rows that do not exist are filled: scales with NaN, which makes all of their numbers NaN.
    parts = [new.add(replace(op, slice_sizes=(1, *a.aval.shape[1:])), [a, e.ins[1]], e)
             for a in (*matrix.made.ins[:2], *stored.zeros_in(matrix.made.ins[2:]))]
    numbers = replace(stored, dtype=np.dtype(e.outs[0].aval.dtype), calibrated=False)
    return [new.add(numbers, parts, e)]


def _product_rule(has_sums: bool, most: int, new: Rewriter, e: Equation) -> Replacement:
    if e.op.kernel_family != "contraction" or len(e.ins) != 2:
        return None
    op: Any = e.op
    for w, x, labels, x_labels in ((*e.ins[::-1], op.rhs, op.lhs), (*e.ins, op.lhs, op.rhs)):
        matrix = _matrix(new, w, labels)
        form = None if matrix is None else _form(
            op, matrix, x.aval, x_labels, e.outs[0].aval, has_sums, most)
        if matrix is not None and form is not None:
            return [spliced(new, e, form, [x, *matrix.made.ins])]
    return None


def _matrix(new: Rewriter, a: Atom, labels: str) -> _Matrix | None:
    """The quantized numbers that an operand was converted or transposed from; or None."""
    made = new.producer(a)
    while made is not None and not made.op.dequantizes:
        op: Any = made.op
        if op.moves_axes and op.is_always_view:
            back = dict(zip(op.perm, labels, strict=True))
            labels = "".join(back[i] for i in range(len(labels)))
        elif not (op.only_rounds and _converts(made)):
            return None
        made = new.producer(made.ins[0])
    return None if made is None else _Matrix(made, labels)


def _converts(e: Equation) -> bool:
    """Whether an equation converts an array to another dtype of floats."""
    before, after = (np.dtype(a.aval.dtype) for a in (e.ins[0], e.outs[0]))
    return before != after and after.name in _FLOATS


def _form(
    op: DotGeneral, matrix: _Matrix, x: Aval, x_labels: str, out: Aval, has_sums: bool, most: int
) -> _Form | None:
    """How to compute a product from the stored numbers; None if there is no kernel for it."""
    stored: Any = matrix.made.op
    labels, avals = matrix.labels, [a.aval for a in matrix.made.ins]
    sizes = dict(zip(labels + x_labels, matrix.made.outs[0].aval.shape + x.shape, strict=True))
    summed = "".join(c for c in labels if c not in op.out)
    free = "".join(c for c in labels if c in op.out)
    if labels not in (free + summed, summed + free):
        return None
    transposed = labels == free + summed
    rows = FEW if transposed else most
    if not (_few(sizes, labels, free, rows) and _plain(op, x_labels, summed, free)):
        return None
    if labels[len(labels) + stored.axis] != summed[-1] or not _known(x, out, avals):
        return None
    if not (_aligned(stored, prod(sizes[c] for c in summed[:-1])) and _factors_fit(
            stored, avals[2:], [sizes[c] if c in summed else 1 for c in labels])):
        return None
    return _Form(stored, transposed, x_labels, free, summed, tuple(sizes.items()), out.dtype,
                 _reads_sums(stored, avals[2:], has_sums, transposed))


def _reads_sums(
    stored: Dequantize, rest: Sequence[Aval], has_sums: bool, transposed: bool
) -> bool:
    """Whether a kernel reads sums of x, because something is subtracted from stored numbers."""
    return has_sums and transposed and bool(stored.offset or stored.zeros_in(rest))


def _few(sizes: dict[str, int], labels: str, free: str, most: int) -> bool:
    """Whether a large matrix with these labels is multiplied by at most some number of rows."""
    rows = prod(n for c, n in sizes.items() if c not in labels)
    wide = prod(sizes[c] for c in free) >= WIDE
    return 0 < rows <= (most if wide else FEW) and prod(sizes[c] for c in labels) >= LEAST


def _plain(op: DotGeneral, x_labels: str, summed: str, free: str) -> bool:
    """Whether each label of x is either summed with the matrix or in the result only."""
    of_x = set(x_labels)
    return bool(summed and free) and set(summed) <= of_x and not set(free) & of_x and (
        of_x - set(summed) <= set(op.out))


def _factors_fit(stored: Dequantize, rest: Sequence[Aval], shape: Sequence[int]) -> bool:
    """Whether factors, if there are any, differ along all summed axes and no others."""
    factors = stored.factors_in(rest)
    return factors is None or list(factors.shape) == list(shape)


def _known(x: Aval, out: Aval, avals: Sequence[Aval]) -> bool:
    """Whether kernels support the dtypes."""
    x_name, out_name, values, *floats = (np.dtype(a.dtype).name for a in (x, out, *avals))
    return {x_name, out_name, *floats} <= _FLOATS and values in ("int8", "uint8")


def _aligned(stored: Dequantize, outer: int) -> bool:
    """Whether groups stay groups if the summed axes become one, and bytes belong to one group.

    `outer`: how often the axis of the groups is repeated."""
    if outer > 1 and stored.length % stored.group:
        return False
    return stored.bits == 8 or stored.group % 2 == 0 or (outer == 1 and stored.groups == 1)


def decode(program: Program) -> Program:
    """The Program without operations that are compositions of others, such as `Dequantize`."""
    if all(e.op.decoded is None for e in program.equations):
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if e.op.decoded is None:
            return None
        return [spliced(new, e, e.op.__class__.decoded, e.ins)]

    program = without_dead_code(program)
    return rewrite(program, rule)
