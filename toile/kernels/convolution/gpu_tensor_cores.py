"""Small convolutions in float32, and their derivatives, as products on tensor cores.

In the forward pass, rows are positions of the result, columns its features, and a sum runs over
taps and channels. The derivative in the images is such a convolution of the cotangent, if there are
no strides. In the derivative in the kernels, rows are taps and channels, and a sum runs over
positions.
"""

from __future__ import annotations

from math import prod
from typing import Any

from toile.compiler.ir.operands import Operand
from toile.engine.program import Program
from toile.kernels.contraction import gpu_tensor_cores as tensor_products
from toile.kernels.contraction.gpu import float32_compute
from toile.kernels.contraction.gpu_tensor_cores import ITEM, VECTOR, has_tensor_cores, is_near
from toile.kernels.contraction.gpu_tensor_text import Side, Walk
from toile.primitives.contractions import DotGeneral
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.cuda.launches import Planner

# The most multiplications for which cuDNN is not faster: forward and in the images, and in the
# kernels; and how many tiles fill a GPU if no sums are split.
MOST_TERMS, MOST_IN_KERNELS, FEWEST_TILES = 1 << 29, 1 << 30, 128


def without_libraries(program: Program) -> bool:
    """Whether a Program has convolutions, and toile's own kernels can do these and all products.

    Without convolutions cuBLAS is faster (a step of the MLP takes 56 us, not 87). With convolutions
    the difference is smaller, and a process that needs no library does not wait for one to load."""
    found = False
    for e in program.equations:
        op = e.op
        if op.by_library:
            return False
        if not op.multiplies:
            continue
        others = any(str(a.aval.dtype) != "float32" for a in (*e.ins, *e.outs))
        if others or op.kernel_family is None:
            return False
        assert isinstance(op, DotGeneral | ConvGeneralDilated)
        if float32_compute(op.precision) != "tf32":
            return False
        terms = op.flops(*(a.aval for a in e.ins)) // 2
        if op.combines:  # a contraction
            small = terms <= tensor_products.MOST_TERMS
        else:
            assert isinstance(op, ConvGeneralDilated)
            plain = op.feature_group_count == op.batch_group_count == 1
            found = small = plain and terms <= MOST_TERMS and all(n == 1 for n in op.lhs_dilation)
        if not small:
            return False
    return found and has_tensor_cores()


def lower(form: Any, plan: Planner, always: bool = False) -> bool:
    """Add the product that computes a convolution (a `Form`); False if that is slower.

    always: whatever its size, because the only other kernel is a slow one."""
    operands = form.x, form.w, form.y
    if form.w.shape[0] > 1 or any(a.dtype.name != "float32" or not is_near(a) for a in operands):
        return False
    if not (always or _is_small(form)) or not has_tensor_cores():
        return False
    if form.kind == "dgrad":
        form = form.forward
        if form is None:
            return False
    if form.kind == "fprop" and not always:
        features, depth = form.y.shape[1], prod(form.w.shape[2:])
        rows = form.y.size // max(features, 1)
        if tensor_products.tiles_of(rows, features, depth) < FEWEST_TILES:
            return False
    (_forward if form.kind == "fprop" else _in_kernels)(form, plan)
    return True


def _is_small(form: Any) -> bool:
    """Whether cuDNN is not faster."""
    in_kernels = form.kind == "wgrad"
    if in_kernels and form.w.shape[1:3] == (1, 1):  # long sums, which cuDNN does not divide
        return True
    return form.y.size * prod(form.w.shape[2:]) <= (MOST_IN_KERNELS if in_kernels else MOST_TERMS)


def _forward(form: Any, plan: Planner) -> None:
    x, w, y = form.x, form.w, form.y
    _, features, channels, *taps = w.shape
    vector = _vector(x, 1)
    left = Side(x.ref, _positions(form), _patches(form), _window(x), vector > 1, vector)
    inner = Walk.along((*taps, channels), [_bytes(w, d) for d in (*range(3, len(w.shape)), 2)])
    across = _vector(w, 1)
    deep = _vector(w, 2) if across == 1 else 1
    right = Side(w.ref, Walk.along((features,), (_bytes(w, 1),)), inner, (), deep > 1,
                 max(across, deep))
    tensor_products.product(left, right, y.ref, *_result(y), plan, "convolution (tf32)")


def _in_kernels(form: Any, plan: Planner) -> None:
    x, w, y = form.x, form.w, form.y
    _, features, channels, *taps = w.shape
    left = Side(x.ref, _patches(form), _positions(form), _window(x), False, _vector(x, 1))
    rows, columns = _result(y)
    right = Side(y.ref, columns, rows, (), False, _vector(y, 1))
    to = Walk.along((*taps, channels), [_bytes(w, d) for d in (*range(3, len(w.shape)), 2)])
    tensor_products.product(left, right, w.ref, to, Walk.along((features,), (_bytes(w, 1),)), plan,
            "convolution in kernels (tf32)")


def _bytes(a: Operand, d: int) -> int:
    return a.strides[d] * ITEM


def _vector(a: Operand, along: int) -> int:
    """How many numbers along an axis can be read at once."""
    others = (s for d, s in enumerate(a.strides) if d != along and a.shape[d] > 1)
    fits = a.strides[along] == 1 and not a.shape[along] % VECTOR and not any(
        s % VECTOR for s in others)
    return VECTOR if fits and tensor_products.is_aligned(a.ref) else 1


def _positions(form: Any) -> Walk:
    images, _, *outs = form.y.shape
    return Walk("positions", (images, *outs), (_bytes(form.x, 0), *form.stride), tuple(form.low))


def _patches(form: Any) -> Walk:
    _, _, channels, *taps = form.w.shape
    return Walk("patches", (*taps, channels), (*form.dilation, _bytes(form.x, 1)))


def _window(x: Operand) -> tuple[tuple[int, int], ...]:
    return tuple((x.shape[d], _bytes(x, d)) for d in range(2, len(x.shape)))


def _result(y: Operand) -> tuple[Walk, Walk]:
    """Positions and features of a forward pass's result."""
    order = (0, *range(2, len(y.shape)))
    rows = Walk.along([y.shape[d] for d in order], [_bytes(y, d) for d in order])
    return rows, Walk.along((y.shape[1],), (_bytes(y, 1),))
