"""Which operations have code: the lowering of each class, and what loop nests can hold."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.backends.cpu import ir, slicing
from toile.backends.cpu.launches import Operand, strides_of
from toile.backends.cpu.scalars import Scalars, register
from toile.compiler.fusion import ELEMENTWISE
from toile.compiler.groups import REDUCTIONS
from toile.compiler.messages import EdgesByTarget, GatherScatter
from toile.compiler.scalars import Unsupported, Value, kind
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.operation import Operation
from toile.engine.program import Equation
from toile.primitives import contractions, conv, cumulative, indexing, shapes, sorting, windows
from toile.primitives.families import Reshape
from toile.primitives.shapes import Iota

Lowering = Callable[..., bool]


def can_fuse(e: Equation) -> bool:
    """Whether a loop nest can compute an equation."""
    if e.effects or len(e.outs) != 1:
        return False
    avals = [*(a.aval for a in e.ins), e.outs[0].aval]
    if any(a.size == 0 for a in avals):
        return False
    try:
        return _has_code(e.op if not isinstance(e.op, (*REDUCTIONS, Iota)) else e.op.__class__,
                         tuple(a.dtype for a in avals))
    except TypeError:  # a parameter that cannot be hashed
        return False


@functools.lru_cache(4096)
def _has_code(op: Operation | type, dtypes: tuple[Any, ...]) -> bool:
    """Whether the builder writes this operation at these dtypes: try it and see."""
    if isinstance(op, ELEMENTWISE) and getattr(op, "lower", None) is None:
        return False
    if not isinstance(op, (*ELEMENTWISE, type)):
        return False
    k = Scalars(ir.Function("probe", ()))
    try:
        kinds = [kind(np.dtype(d)) for d in dtypes]
        if isinstance(op, type):
            extremum = op.__name__ in ("ReduceMax", "ReduceMin")
            return not (extremum and "c" in kinds)
        op.lower(k, *[_sample(np.dtype(d)) for d in dtypes[:-1]])
    except (Unsupported, TypeError):
        return False
    return True


def _sample(dtype: np.dtype) -> Value:
    name = {"i1": "true", "float": "0.0", "double": "0.0"}.get(register(dtype), "1")
    return Value(name, dtype, name if kind(dtype) == "c" else "")


def lower_reshape(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """The elements of a view in their order: a copy under the operand's shape."""
    x, out = ins[0], outs[0]
    slicing.copy(Operand(out.ref, x.shape, strides_of(x.shape), x.dtype), x, plan)
    return True


# Modules with the lowerings of classes; loaded when a Program has one of them.
_PLACES: dict[type, tuple[str, str]] = {
    contractions.DotGeneral: ("contractions", "lower"),
    conv.ConvGeneralDilated: ("convolution", "lower"),
    windows.ReduceWindowSum: ("pooling", "lower"),
    windows.ReduceWindowMax: ("pooling", "lower"),
    windows.ReduceWindowMin: ("pooling", "lower"),
    windows.ReduceWindowProd: ("pooling", "lower"),
    windows.SelectAndScatterAdd: ("pooling", "lower"),
    windows.SelectAndGatherAdd: ("pooling", "lower"),
    indexing.Gather: ("gathering", "lower_gather"),
    indexing.Scatter: ("scattering", "lower_scatter"),
    EdgesByTarget: ("messages", "lower_edges"),
    GatherScatter: ("messages", "lower_messages"),
    indexing.DynamicSlice: ("slicing", "lower_dynamic_slice"),
    indexing.DynamicUpdateSlice: ("slicing", "lower_dynamic_update_slice"),
    shapes.Copy: ("slicing", "lower_copy"),
    shapes.Rev: ("slicing", "lower_rev"),
    shapes.Concatenate: ("slicing", "lower_concatenate"),
    shapes.Pad: ("slicing", "lower_pad"),
    Reshape: ("lowerings", "lower_reshape"),
    cumulative.Cumsum: ("cumulative", "lower_cumulative"),
    cumulative.Cumprod: ("cumulative", "lower_cumulative"),
    cumulative.Cummax: ("cumulative", "lower_cumulative"),
    cumulative.Cummin: ("cumulative", "lower_cumulative"),
    cumulative.Cumlogsumexp: ("cumulative", "lower_cumulative"),
    sorting.Sort: ("sorting", "lower_sort"),
    sorting.TopK: ("sorting", "lower_top_k"),
    sorting.Argmax: ("sorting", "lower_argmax"),
    sorting.Argmin: ("sorting", "lower_argmin"),
    Scan: ("control", "lower_scan"),
    While: ("control", "lower_while"),
    Cond: ("control", "lower_cond"),
}


@functools.cache
def _lowering(cls: type) -> Lowering | None:
    place = _PLACES.get(cls)
    if place is None:
        return None
    module = importlib.import_module(f"toile.backends.cpu.{place[0]}")
    return getattr(module, place[1])


def lowering_of(e: Equation) -> Lowering | None:
    """The function that adds an equation's stages to a plan; None: NumPy computes it."""
    return _lowering(e.op.__class__)
