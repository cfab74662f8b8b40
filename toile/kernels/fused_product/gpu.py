"""Products fused with the operations after them: a bias, an activation, an added array, scales.

The pass in `gpu_epilogues` creates a `FusedProduct` where cuBLASLt computes both in one call, so
that the product itself is never stored. Sums are float32 until the result is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir.geometry import room
from toile.compiler.ir.operands import Operand, Ref
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction.gpu_tensor_cores import is_aligned
from toile.primitives.arrays.contraction import contract
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import cublaslt
from toile.targets.cuda.cublas import Gemm, Matrix
from toile.targets.cuda.cublaslt import LtMatmul
from toile.targets.cuda.launches import Planner

SLOPE, CUBE = np.sqrt(2 / np.pi), 0.044715  # constants of gelu's formula


def gelu(x: Any) -> Any:
    """x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x / 2 * (1 + np.tanh(SLOPE * (x + CUBE * x**3)))


def gelu_slope(x: Any) -> Any:
    """The derivative of `gelu`."""
    t = np.tanh(SLOPE * (x + CUBE * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * SLOPE * (1 + 3 * CUBE * x * x)


@dataclass(frozen=True)
class FusedProduct(Operation):
    """activation(alpha s t A B + beta C + bias); with `keeps`, also the activation's input.

    `extras` names the operands after A and B: "scale" (several times), "bias", "added" (C), and
    "before": the input of the activation whose derivative is taken ("dgelu")."""

    product: DotGeneral
    activation: str = ""  # "relu", "gelu" or "dgelu"
    extras: tuple[str, ...] = ()
    keeps: bool = False
    alpha: float = 1.0
    beta: float = 1.0

    kernel_family = "fused_product"
    multiple = True
    by_library = True

    def infer(self, *avals: Aval) -> list[Aval]:
        return [self.product.infer(*avals[:2])] * (1 + self.keeps)

    def eager(self, xp: Any, x: Any, y: Any, *extras: Any) -> Any:
        op = self.product
        total = self.alpha * contract(xp, x, y, op.lhs, op.rhs, op.out, np.dtype(np.float32))
        before = None
        for name, value in zip(self.extras, extras, strict=True):
            if name == "scale":
                total = total * value
            elif name == "before":
                before = value.astype(total.dtype)
            else:
                part = value.astype(total.dtype)
                total = total + (part.reshape(_trailing(op, total.shape)) if name == "bias"
                                 else self.beta * part)
        made = {"": lambda x: x, "relu": lambda x: xp.maximum(x, 0), "gelu": gelu,
                "dgelu": lambda x: x * gelu_slope(before)}[self.activation](total)
        dtype = op.dtype or x.dtype
        return [v.astype(dtype) for v in (made, total)[: 1 + self.keeps]]

    def flops(self, *avals: Aval) -> int:
        return self.product.flops(*avals[:2])


def trailing(op: DotGeneral) -> int:
    """How many of the last axes of a result come from the same operand: its columns."""
    side = op.lhs if op.out[-1] in op.lhs else op.rhs
    count = 0
    while count < len(op.out) and op.out[-1 - count] in side:
        count += 1
    return count


def _trailing(op: DotGeneral, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[len(shape) - trailing(op):]


def epilogue(op: FusedProduct) -> str:
    """The library's name of the epilogue."""
    parts = (op.activation, "aux" if op.keeps else "", "bias" if "bias" in op.extras else "")
    return "_".join(filter(None, parts))


def described(op: FusedProduct, gemm: Gemm, extras: list[Ref], kept: Ref | None) -> LtMatmul:
    """The call that computes the product and its epilogue."""
    given = dict(zip(op.extras, extras, strict=True))
    like = Matrix(gemm.c.ref, gemm.c.type, gemm.c.leading)
    more: dict[str, Any] = {"epilogue": epilogue(op), "bias": given.get("bias")}
    if "added" in given:
        more |= {"c": replace(gemm.c, ref=given["added"]), "alpha": op.alpha, "beta": op.beta}
    aux = given.get("before", kept)
    if aux is not None:
        more["aux"] = Matrix(aux, like.type, like.leading)
    scales = [ref for name, ref in zip(op.extras, extras, strict=True) if name == "scale"]
    if scales:
        more["scales"] = (*scales, *(None,) * (4 - len(scales)))
    return cublaslt.fused(gemm, **more)


def available(op: FusedProduct, x: Aval, y: Aval) -> bool:
    """Whether the library has an algorithm for operands that are contiguous along the sum.

    Copies can make them so; lowering checks again for their actual layout."""
    engine = cublaslt.engine()
    if engine is None:
        return False
    out = op.product.infer(x, y)
    compute = contractions.compute_type(op.product.precision, x.dtype.name, y.dtype.name,
                                        out.dtype.name)
    found = batched_sides(op.product, x.shape, y.shape)
    if compute is None or found is None:
        return False
    count, n, m, k = found
    first, second = (y, x) if op.product.out[-1] in op.product.rhs else (x, y)
    place = Ref(None)
    gemm = Gemm(m, n, k, Matrix(place, first.dtype.name, k, True, m * k),
                Matrix(place, second.dtype.name, k, False, n * k),
                Matrix(place, out.dtype.name, m, False, m * n), compute, count)
    return engine.has(described(op, gemm, [place] * len(op.extras), place if op.keeps else None))


def sides(op: DotGeneral, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Rows, columns and summed size of a row-major result; None if it is not one product."""
    size = dict(zip(op.lhs + op.rhs, x + y, strict=True))
    if any(c in op.lhs and c in op.rhs for c in op.out) or not op.out:
        return None
    cut = len(op.out) - trailing(op)
    rest, last = op.out[:cut], op.out[cut:]
    other = op.lhs if last[0] in op.rhs else op.rhs
    if any(c not in other for c in rest):
        return None
    n, m, k = (prod(size[c] for c in labels)
               for labels in (rest, last, [c for c in size if c not in op.out]))
    return n, m, k


def batched_sides(
    op: DotGeneral, x: tuple[int, ...], y: tuple[int, ...]
) -> tuple[int, int, int, int] | None:
    """The number of products, then their `sides`; None if there are batches along several axes."""
    size = dict(zip(op.lhs + op.rhs, x + y, strict=True))
    shared = [c for c in op.out if c in op.lhs and c in op.rhs]
    if len(shared) > 1 or shared != list(op.out[: len(shared)]):
        return None
    labels = [(side, "".join(c for c in side if c not in shared)) for side in (op.lhs, op.rhs)]
    shapes = [tuple(size[c] for c in left) for _, left in labels]
    single = replace(op, lhs=labels[0][1], rhs=labels[1][1], out=op.out[len(shared):])
    found = sides(single, *shapes)
    return None if found is None else (prod(size[c] for c in shared), *found)


def lower(op: FusedProduct, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower to one call to cuBLASLt."""
    x, y, *extras = (_ready(v, plan, i > 1) for i, v in enumerate(ins))
    out, kept = outs[0], outs[1].ref if op.keeps else None
    compute = contractions.compute_type(op.product.precision, x.dtype.name, y.dtype.name,
                                        out.dtype.name)
    places = [v.ref for v in extras]
    float8 = x.dtype.name in contractions.FLOAT8

    def fits(gemm: Gemm) -> bool:
        if float8 and not contractions.tn(gemm):
            return False
        return cublaslt.lt().has(described(op, gemm, places, kept))

    assert compute is not None
    gemm = contractions.single(op.product, x, y, out, plan, compute, fits, "added" in op.extras)
    assert gemm is not None, "the pass has asked whether there is an algorithm"
    plan.call(described(op, gemm, places, kept))
    return True


def _ready(x: Operand, plan: Any, dense: bool) -> Operand:
    """The operand, or an aligned copy of it; `dense`: without gaps."""
    if dense:
        x = plan.contiguous(x)
    if is_aligned(x.ref) or not x.contiguous or not x.shape:
        return x
    target = room(plan, x.shape, x.dtype)
    plan.copy(target, x)
    return target
