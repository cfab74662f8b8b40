"""Which equations loop nests can compute: scalar functions, reductions and iotas.

Backends differ only in their printers. Whether an operation has code for some dtypes is found out
by trying to write it once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.compiler.scalar.builder import FLOAT32, Arithmetic, Unsupported, Value, kind
from toile.engine.operation import Operation
from toile.engine.program import Equation


def by_element(e: Equation) -> bool:
    """Whether an equation computes its result element by element."""
    if not e.op.by_element or e.effects or len(e.outs) != 1:
        return False
    shape = e.outs[0].aval.shape
    if shape and len(e.ins) == 1 and not e.ins[0].aval.shape:
        return False  # the bytes of a number: the result has an axis that the operand lacks
    return all(a.aval.shape in (shape, ()) for a in e.ins)


def fuses(e: Equation) -> bool:
    """Whether loop nests can compute an equation, at the dtypes that kernels support."""
    return e.op.is_reduction or by_element(e)


def rule(printer: Callable[[], Arithmetic], names: Callable[[np.dtype], str],
         innermost: Callable[[Operation], bool], short_rows: bool = False,
         ) -> Callable[[Equation], bool]:
    """Make the function that says whether a backend can fuse an equation.

    `names` gives the name of a sample operand of a dtype; `innermost`: whether the backend reads
    elements of an operation's operand at computed places along the innermost axis; `short_rows`:
    whether it reads rows of a few elements at computed places."""
    has_code = functools.lru_cache(4096)(functools.partial(_has_code, printer, names))

    def can_fuse(e: Equation) -> bool:
        """Whether a loop nest can compute an equation; fast, since every equation is checked."""
        op, outs = e.op, e.outs
        plain = op.nest_node is not None
        if len(outs) != 1 or not (plain or op.by_element) or e.effects:
            return False
        out = outs[0].aval
        shape = out.shape
        if 0 in shape:
            return False
        if op.picks and not op.picks([a.aval for a in e.ins], out, innermost(op), short_rows):
            return False
        dtypes = []
        for a in e.ins:
            aval = a.aval
            own = aval.shape
            if own != shape and (0 in own if plain else own):  # scalars fit any shape
                return False
            dtypes.append(aval.dtype)
        dtypes.append(out.dtype)
        try:
            return has_code(op.__class__ if plain else op, tuple(dtypes))
        except TypeError:  # a parameter that is not hashable
            return False

    return can_fuse


def _has_code(printer: Callable[[], Arithmetic], names: Callable[[np.dtype], str],
              op: Operation | type[Operation], dtypes: tuple[Any, ...]) -> bool:
    """Whether there is code for an operation with operands and a result of some dtypes."""
    try:
        kinds = [kind(np.dtype(d)) for d in dtypes]
        if isinstance(op, type):  # a reduction or an iota; complex numbers cannot be ordered
            return not (op.needs_order and "c" in kinds)
        lowered(printer(), op, [_sample(np.dtype(d), names) for d in dtypes[:-1]])
    except (Unsupported, TypeError):
        return False
    return True


def _sample(dtype: np.dtype, names: Callable[[np.dtype], str]) -> Value:
    name = names(dtype)
    return Value(name, dtype, name if kind(dtype) == "c" else "")


def rounded(k: Arithmetic, op: Operation, xs: list[Value], dtype: np.dtype) -> Value:
    """An operation on narrow floats, rounded (after each step, if it has several)."""
    def once(x: Value) -> Value:
        return narrowed(k, Value(x.name, dtype))

    if op.lower_steps is not None:
        return op.lower_steps(k, once, *xs)
    return once(lowered(k, op, xs))


def lowered(k: Arithmetic, op: Operation, xs: list[Value]) -> Value:
    """Write the code of an elementwise operation for one element of each operand."""
    lower: Callable[..., Value] | None = getattr(op, "lower", None)
    if lower is None:
        raise Unsupported(f"{op.name} in a kernel")
    return lower(k, *xs)


def narrowed(k: Arithmetic, x: Value) -> Value:
    """A narrow float rounded to its dtype, in the float32 register that holds it."""
    return k.convert(Value(x.name, FLOAT32), x.dtype)
