"""Lowering of contractions to matrix products of cuBLAS.

One row axis, one column axis and one summed axis make a matrix product; the other axes are a batch:
strided if they merge into one axis, otherwise given by addresses or as a few calls. Operands are
read in place, transposed or in batches; they are copied only if no axis of a matrix has unit
stride, or if its axes do not merge. Dtypes that cuBLAS does not multiply are declined. `single` is
for cuBLASLt: one product in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from toile.compiler.ir.geometry import dense, room
from toile.compiler.ir.operands import Operand, Ref
from toile.engine.config import flags
from toile.kernels.contraction import gpu_narrow, gpu_tensor_cores, gpu_tiles, gpu_vectors
from toile.kernels.contraction.shared import (
    Axis,
    CopiesNotMade,
    Labels,
    cheapest_order,
    copied,
    labels_of,
    leading,
    merge,
)
from toile.kernels.copy import gpu_relayout as relayout
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import cublas, cublaslt
from toile.targets.cuda.cublas import Gemm, Matrix
from toile.targets.cuda.launches import Planner

CALLS = 2  # up to this many calls in a loop are cheaper than writing addresses
MOST_CALLS = 64  # calls in a loop if addresses cannot be used: with more, copies
INTEGER_TERMS = 1.7e8  # int8 multiplications for which a slow layout costs a microsecond
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
# The result dtypes that cuBLAS supports for two operands of one dtype.
RESULTS = {
    "float32": ("float32",), "float64": ("float64",), "complex64": ("complex64",),
    "complex128": ("complex128",), "bfloat16": ("bfloat16", "float32"),
    "float16": ("float16", "float32"), "int8": ("int32",),
}  # fmt: skip


def lower(op: DotGeneral, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Add the stages of a contraction; False if its dtypes have no kernel."""
    return by_library(op, ins, outs, plan) or gpu_tiles.lower_small_dot(op, ins, outs, plan)


def by_library(op: DotGeneral, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Add the calls of a contraction; False if cuBLAS has none for it."""
    (x, y), (out,) = ins, outs
    compute = compute_type(op.precision, x.dtype.name, y.dtype.name, out.dtype.name)
    if compute is None:
        return False
    if not (x.size and out.size):
        return _lower_empty(out, plan)
    found = labels_of(op, x, y, out)
    if not (found.rows or found.columns or found.summed):
        return False  # an elementwise product
    if x.dtype.name in FLOAT8:
        return _float8(op, x, y, out, plan)
    if gpu_tiles.lower_few(op, [x, y], [out], plan):
        return True
    if compute == "tf32" and x.dtype.name == "float32" and gpu_tensor_cores.lower_dot(
            op, x, y, out, plan, only_long=not plan.without_libraries):
        return True
    made = _planned(op, x, y, out)
    return made is not None and _add_calls(made, op, x, y, out, compute, plan)


def _lower_empty(out: Operand, plan: Planner) -> bool:
    """Lower a product without elements, or with empty sums."""
    if out.size and out.contiguous:
        plan.call(relayout.Fill(out.ref, out.size * out.dtype.itemsize))
    return not out.size or out.contiguous


def _add_calls(made: Planned, op: DotGeneral, x: Operand, y: Operand, out: Operand, compute: str,
               plan: Any) -> bool:
    """Add copies and the call; False if cuBLAS has none for this layout."""
    target = out
    if made.result is not None:
        target = room(plan, made.result.shape, out.dtype)
        op, _, _ = _regrouped(op, out)
    op, x, y = _with_copies(op, x, y, made.copies, made.order, plan)
    kinds = x.dtype.name, y.dtype.name
    call = _call(made, x.ref, y.ref, target.ref, kinds, out.dtype.name, compute)
    if call is None:
        return False
    if made.addressed:
        held = plan.scratch(24 * made.count)
        plan.stage(relayout.addresses(held, [m.ref for m in (call.a, call.b, call.c)],
                                      _address_axes(made, x.dtype.itemsize, out.dtype.itemsize)))
        call = replace(call, arrays=held)
    constant = plan.never_written
    own = gpu_narrow.launch(call, constant) or gpu_vectors.launch(call, constant)
    if own is None:
        plan.call(call)
    else:
        plan.stage(own)
    if made.result is not None:
        plan.copy(out, made.result.of(target, out))
    return True


def _with_copies(op: DotGeneral, x: Operand, y: Operand, copies: Sequence[bool],
                 order: Sequence[str], plan: Any) -> tuple[DotGeneral, Operand, Operand]:
    """The contraction with the wanted copies of operands, whose summed axes are in the given
    order."""
    if copies[0]:
        op, x = copied(op, "lhs", x, order, plan)
    if copies[1]:
        op, y = copied(op, "rhs", y, order, plan)
    return op, x, y


# ---- precision
def compute_type(precision: Any, x: str, y: str, out: str) -> str | None:
    """The type that products are computed in, a key of COMPUTE_TYPES; None: not by cuBLAS."""
    if x in FLOAT8 and y in FLOAT8:
        fits = out in ("float32", "bfloat16", "float16") and (x, y) != (FLOAT8[1], FLOAT8[1])
        return "float32" if fits else None
    if x != y or out not in RESULTS.get(x, ()):
        return None
    if x == "int8":
        return "int32"
    if x in ("float64", "complex128"):
        return "float64"
    if x in ("float32", "complex64"):
        return float32_compute(precision)
    return "float32"


def float32_compute(precision: Any) -> str:
    """What a precision request means for float32: "tf32", "bf16" or "float32".

    As in JAX, products may have TF32's 11 bits by default and with HIGH; HIGHEST means float32. An
    algorithm is identified by its name or by its types; algorithms with several passes count as
    float32."""
    if precision is None:
        return "float32" if flags.default_matmul_precision in ("highest", "float32") else "tf32"
    if isinstance(precision, tuple) and not hasattr(precision, "accumulation_type"):
        names = {getattr(p, "name", p) for p in precision}
        return "float32" if "HIGHEST" in names else "tf32"
    name = getattr(precision, "name", "")
    if not name:  # an algorithm by its types
        passes = precision.num_primitive_operations
        kinds = {str(getattr(t, "name", getattr(t, "__name__", t)))
                 for t in (precision.lhs_precision_type, precision.rhs_precision_type)}
        if passes > 1:
            return "float32"
        return "bf16" if kinds == {"bfloat16"} else "tf32" if kinds == {"tfloat32"} else "float32"
    return {"DEFAULT": "tf32", "TF32_TF32_F32": "tf32", "BF16_BF16_F32": "bf16"}.get(
        name, "float32")


# ---- the shape of a product
@dataclass(frozen=True)
class ReorderedResult:
    """A result that is stored with the axes of C in another, given order."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, target: Operand, out: Operand) -> Operand:
        """The result with its axes in the order of C."""
        strides = [0] * len(self.axes)
        for at, axis in enumerate(self.axes):
            strides[axis] = target.strides[at]
        return target._replace(shape=out.shape, strides=tuple(strides))


@dataclass(frozen=True)
class Planned:
    """A product: matrix axes, outer axes, and which operands are copied first."""

    rows: Axis
    columns: Axis
    summed: Axis
    outer: tuple[Axis, ...]
    order: tuple[str, ...]  # of the summed labels
    copies: tuple[bool, bool] = (False, False)
    result: ReorderedResult | None = None
    addressed: bool = False
    calls: int = 1  # in a loop

    @property
    def count(self) -> int:
        """The number of products."""
        return prod(axis.extent for axis in self.outer)

    @property
    def cost(self) -> float:
        """Estimated microseconds for launches; callers add the cost of copies."""
        return 2.0 * self.calls + 2.5 * self.addressed

    @property
    def extra_integer_time(self) -> float:
        """Microseconds that a product of int8 takes beyond the fastest layout's time: cuBLAS uses
        all of the tensor cores' speed only if both operands are contiguous along the sum."""
        fast = self.summed.extent == 1 or self.summed.a == self.summed.b == 1
        size = self.rows.extent * self.columns.extent * self.summed.extent
        return 0.0 if fast else self.count * size / INTEGER_TERMS


ONE = Axis(1, 0, 0, 0)


def _planned(op: DotGeneral, x: Operand, y: Operand, out: Operand) -> Planned | None:
    """The cheapest way to compute a contraction, usually the one with the fewest copies."""
    best: tuple[float, Planned] | None = None
    _, order = cheapest_order(labels_of(op, x, y, out), x, y)
    for copy_x, copy_y, copy_out in product((False, True), repeat=3):
        new, c, result = _regrouped(op, out) if copy_out else (op, out, None)
        new, a, b = _with_copies(new, x, y, (copy_x, copy_y), order, CopiesNotMade())
        item, item_c = x.dtype.itemsize, out.dtype.itemsize
        moved = (copy_x * x.size + copy_y * y.size) * item + copy_out * out.size * item_c
        cost = 3.0 * (copy_x + copy_y + copy_out) + moved / 1e6  # 2 bytes moved for each, at 2 TB/s
        if best is not None and cost >= best[0]:
            continue
        found = _fitted(labels_of(new, a, b, c), order, (item, item_c),
                        (a.ref, b.ref, c.ref))
        if found is None:
            continue
        found = replace(found, copies=(copy_x, copy_y), result=result)
        cost += found.cost + (found.extra_integer_time if item == 1 else 0.0)
        if best is None or cost < best[0]:
            best = cost, found
    return None if best is None else best[1]


def _regrouped(
    op: DotGeneral, out: Operand
) -> tuple[DotGeneral, Operand, ReorderedResult]:
    """C with its batch axes first, then rows, then columns."""
    def group(c: str) -> int:
        return 0 if c in op.lhs and c in op.rhs else 1 if c in op.lhs else 2

    order = sorted(range(len(op.out)), key=lambda i: group(op.out[i]))
    shape = tuple(out.shape[i] for i in order)
    held = dense(out.ref._replace(offset=0), shape, out.dtype)
    new = replace(op, out="".join(op.out[i] for i in order))
    return new, held, ReorderedResult(tuple(order), shape)


def _fitted(found: Labels, order: Sequence[str], items: tuple[int, int], refs: Sequence[Ref]
            ) -> Planned | None:
    """Matrix and outer axes of operands in place; None if they are not matrices."""
    summed = merge(found.of(order))
    if len(summed) > 1:
        return None
    groups = [merge(found.of(found.by(g, "c"))) for g in (found.batch, found.rows, found.columns)]
    batch, rows, columns = groups
    best: Planned | None = None
    for row, column in product(rows or [ONE], columns or [ONE]):
        one = summed[0] if summed else ONE
        if not _matrices(row, column, one):
            continue
        left = [a for a in (*batch, *rows, *columns) if a is not row and a is not column]
        outer = tuple(merge(sorted(left, key=lambda axis: -abs(axis.c))))
        made = _batched(Planned(row, column, one, outer, tuple(order)), items, refs)
        if made is not None and (best is None or _rank(made) < _rank(best)):
            best = made
    return best


def _rank(p: Planned) -> tuple[float, int]:
    return p.cost, -p.rows.extent * p.columns.extent


def _batched(p: Planned, items: tuple[int, int], refs: Sequence[Ref]) -> Planned | None:
    """How to iterate over the outer axes; None if that takes too many calls."""
    if any(axis.c <= 0 for axis in p.outer) or any(min(a.a, a.b) < 0 for a in p.outer):
        return None
    if len(p.outer) <= 1:
        return p
    largest = max(range(len(p.outer)), key=lambda i: p.outer[i].extent)
    loop = p.count // p.outer[largest].extent
    if loop <= CALLS:
        return replace(p, calls=loop)
    # Offsets of all matrices: if all are multiples of ALIGNED, cuBLAS may assume aligned addresses.
    item, item_c = items
    steps = [n for a in p.outer for n in (a.a * item, a.b * item, a.c * item_c)]
    if item > 1 and not any(n % cublas.ALIGNED for n in (*steps, *(r.offset for r in refs))):
        return replace(p, addressed=True)
    return replace(p, calls=loop) if loop <= MOST_CALLS else None


def _matrices(rows: Axis, columns: Axis, summed: Axis) -> bool:
    """Whether A, B and C are matrices that BLAS supports."""
    return (
        leading(rows, summed, "a") is not None
        and leading(summed, columns, "b") is not None
        and leading(rows, columns, "c") is not None
    )


# ---- calls
def _call(p: Planned, x: Ref, y: Ref, out: Ref, kinds: tuple[str, str], result: str, compute: str
          ) -> Gemm | None:
    """The call; C stored by rows is its transpose stored by columns: C^T = B^T A^T."""
    rows, columns, summed = p.rows, p.columns, p.summed
    kind, other = kinds
    c = leading(rows, columns, "c")
    assert c is not None
    outer = p.outer
    if c[1]:  # unit stride along its rows: C is already transposed
        rows, columns = columns.mirrored, rows.mirrored
        summed, outer = summed.mirrored, tuple(a.mirrored for a in outer)
        x, y, kind, other = y, x, other, kind
    a = leading(rows, summed, "a")
    b = leading(summed, columns, "b")
    assert a is not None and b is not None
    largest = max(outer, key=lambda axis: axis.extent, default=ONE)
    steps = (a[0], b[0], c[0], x.offset, y.offset, *(s for axis in outer for s in axis[1:]))
    if compute == "int32" and any(n % 4 for n in steps):
        return None
    item, item_c = cublas_bytes(kind), cublas_bytes(result)
    others = [axis for axis in outer if axis is not largest]
    return Gemm(
        columns.extent, rows.extent, summed.extent,
        Matrix(y, other, b[0], b[1], largest.b), Matrix(x, kind, a[0], a[1], largest.a),
        Matrix(out, result, c[0], False, largest.c), compute,
        largest.extent, tuple(_offsets(others, item, item_c)), note=_note(kind, result, compute),
    )  # fmt: skip


def _offsets(axes: Sequence[Axis], item: int, item_c: int) -> Iterator[tuple[int, int, int]]:
    """Offsets in bytes of the matrices of a loop over some axes: of B, A and C."""
    for index in product(*(range(axis.extent) for axis in axes)):
        a, b, c = (sum(n * axis[side] for n, axis in zip(index, axes, strict=True))
                   for side in (1, 2, 3))
        yield b * item, a * item, c * item_c


def _address_axes(p: Planned, item: int, item_c: int) -> list[tuple[int, int, int, int]]:
    """The outer axes for `relayout.addresses`, with A and B in the order of the call."""
    c = leading(p.rows, p.columns, "c")
    assert c is not None
    return [(a.extent, *((a.a * item, a.b * item) if c[1] else (a.b * item, a.a * item)),
             a.c * item_c) for a in p.outer]  # fmt: skip


def cublas_bytes(kind: str) -> int:
    """Bytes of an element."""
    return {"complex128": 16, "complex64": 8, "float64": 8, "float32": 4, "int32": 4,
            "bfloat16": 2, "float16": 2}.get(kind, 1)  # fmt: skip


def _note(kind: str, result: str, compute: str) -> str:
    kinds = kind if kind == result else f"{kind} -> {result}"
    return f"cuBLAS {kinds}" + (f" ({compute})" if compute in ("tf32", "bf16") else "")


# ---- one product in one call
def single(op: DotGeneral, x: Operand, y: Operand, out: Operand, plan: Planner, compute: str,
           fits: Callable[[Gemm], bool], batched: bool = False) -> Gemm | None:
    """A contraction as one call, with as few copies as `fits` allows; None if it takes several, or
    a batch unless it may be `batched`."""
    _, order = cheapest_order(labels_of(op, x, y, out), x, y)
    kinds = x.dtype.name, y.dtype.name
    costs = {(copy_x, copy_y): copy_x * x.size + copy_y * y.size
             for copy_x, copy_y in product((False, True), repeat=2)}
    for copies in sorted(costs, key=lambda c: costs[c]):
        call = _one(op, x, y, out, CopiesNotMade(), order, copies, kinds, compute, batched)
        if call is not None and _aligned(call) and fits(call):
            return _one(op, x, y, out, plan, order, copies, kinds, compute, batched)
    return None


def _one(op: DotGeneral, x: Operand, y: Operand, out: Operand, plan: Any, order: Sequence[str],
         copies: tuple[bool, bool], kinds: tuple[str, str], compute: str, batched: bool
         ) -> Gemm | None:
    """The call after these copies; None if it takes more copies, or several calls."""
    op, x, y = _with_copies(op, x, y, copies, order, plan)
    items = x.dtype.itemsize, out.dtype.itemsize
    found = _fitted(labels_of(op, x, y, out), order, items, (x.ref, y.ref, out.ref))
    if found is None or len(found.outer) > batched:
        return None
    return _call(found, x.ref, y.ref, out.ref, kinds, out.dtype.name, compute)


def _aligned(call: Gemm) -> bool:
    """Whether the columns of all matrices are aligned."""
    return all(gpu_tensor_cores.is_aligned(m.ref)
               and not m.leading * cublas_bytes(m.type) % cublas.ALIGNED
               and not m.step * cublas_bytes(m.type) % cublas.ALIGNED
               for m in (call.a, call.b, call.c))


# ---- float8
def float8_fits(op: DotGeneral, *shapes: tuple[int, ...]) -> bool:
    """Whether float8 operands of these shapes make one product with sizes divisible by 16."""
    size = dict(zip(op.lhs + op.rhs, shapes[0] + shapes[1], strict=True))
    groups = [[c for c in size if c in op.lhs and c not in op.rhs],
              [c for c in size if c in op.rhs and c not in op.lhs],
              [c for c in size if c not in op.out]]
    batch = [c for c in op.out if c in op.lhs and c in op.rhs and size[c] > 1]
    return not batch and not any(prod(size[c] for c in g) % 16 for g in groups)


def tn(call: Gemm) -> bool:
    """Whether both operands are contiguous along the sum, as float8 matrices have to be."""
    return call.a.transposed and not call.b.transposed


def _float8(op: DotGeneral, x: Operand, y: Operand, out: Operand, plan: Planner) -> bool:
    """A product of float8 matrices: both contiguous along the sum, sizes divisible by 16."""
    engine = cublaslt.engine()
    if engine is None or not out.contiguous or not float8_fits(op, x.shape, y.shape):
        return False
    call = single(op, x, y, out, plan, "float32",
                  lambda c: tn(c) and engine.has(cublaslt.fused(c)))
    if call is None:
        return False
    plan.call(cublaslt.fused(call))
    return True
