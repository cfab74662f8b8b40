"""Scalar functions that users pass to reductions, applied to whole arrays.

A computation is staged once on scalars. If it is a single associative operation, such as `lax.add`
or `lambda a, b: a + b`, it is recognized and runs as that reduction; any other computation is
mapped over the elements. The function that composes the steps of a linear recurrence is recognized
too. This module may import the engine, primitives, transforms and other modules of `lax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.errors import shape_error
from toile.engine.program import Program, evaluate
from toile.engine.source import here
from toile.engine.trees import flatten, structure, unflatten
from toile.lax import comparisons, elementwise
from toile.lax._operands import operand, operands
from toile.lax._traced_functions import stage
from toile.primitives import bits
from toile.primitives import elementwise as ops
from toile.primitives.elementwise import convert
from toile.primitives.families import NUMERIC, add, bdim_at, mul, reshape
from toile.primitives.reductions import highest, lowest
from toile.transforms.vmap import vmap_flat

_MONOIDS: dict[Any, str] = {
    add: "add", mul: "mul", ops.max_: "max", ops.min_: "min", bits.and_: "and", bits.or_: "or",
    bits.xor: "xor",
}  # fmt: skip
_FUNCTIONS: dict[Any, str] = {
    elementwise.add: "add", elementwise.mul: "mul", elementwise.max: "max",
    elementwise.min: "min", comparisons.bitwise_and: "and", comparisons.bitwise_or: "or",
    comparisons.bitwise_xor: "xor",
}  # fmt: skip
COMBINE = {name: op for op, name in _MONOIDS.items()}


def identity(kind: str, dtype: Any) -> Any:
    """The identity element of a monoid."""
    if kind in ("max", "min"):
        return lowest(dtype) if kind == "max" else highest(dtype)
    if kind == "and":
        return True if dtype == np.bool_ else np.asarray(-1).astype(dtype)
    return 1 if kind == "mul" else 0


def is_identity(kind: str, init: Any) -> bool:
    """Whether an initial value is known to be the identity element."""
    return isinstance(init, ConcreteArray) and bool(init._data == identity(kind, init.dtype))


class Computation:
    """A staged function of two trees of scalars; calling it applies the function elementwise."""

    def __init__(self, name: str, fun: Callable[..., Any], tree: Any, avals: Sequence[Aval]):
        self.kind = _FUNCTIONS.get(fun) if len(avals) == 1 and _hashable(fun) else None
        self.name = name
        if self.kind is not None:
            return
        pair = structure((unflatten(tree, avals),) * 2)
        self.program, self.consts, out_tree = stage(fun, pair, [*avals, *avals])
        given = [(a.shape, a.dtype) for a in avals]
        got = [(a.shape, a.dtype) for a in self.program.out_avals]
        if name == "reduce_window" and out_tree != tree:
            raise ValueError("reduce_window output must have the same tree structure as the "
                             f"operands: needed {tree}, got {out_tree}{here()}")
        if out_tree != tree or given != got:
            raise TypeError(f"{name}: needed a computation that returns what it is given, "
                            f"{', '.join(a.str_short() for a in avals)} in {tree}, got "
                            f"{', '.join(a.str_short() for a in self.program.out_avals)} in "
                            f"{out_tree}{here()}")
        if len(avals) == 1:
            self.kind = _single_monoid(self.program)

    def __call__(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """The results for two lists of arrays, all of one shape."""
        if self.kind is not None:
            return [COMBINE[self.kind](first[0], second[0])]
        return apply_scalar(self.program, self.consts, [*first, *second])


def _hashable(fun: Any) -> bool:
    return getattr(type(fun), "__hash__", None) is not None


def _single_monoid(program: Program) -> str | None:
    """The monoid of a program that is one associative operation on its two inputs, or None."""
    if len(program.equations) != 1 or len(program.inputs) != 2:
        return None
    (e,) = program.equations
    same = len(e.ins) == 2 and {*e.ins} == {*program.inputs} and program.outputs[0] is e.outs[0]
    return _MONOIDS.get(e.op) if same else None


def coefficient_of_recurrence(
    fun: Callable[..., Any], tree: Any, leaves: Sequence[Any], axis: int
) -> int | None:
    """Which of two leaves is `a`, if `fun` composes steps h -> a h + b of the other one; or None.

    (a1, b1), (a2, b2) -> (a1 a2, a2 b1 + b2), for slices of two lengths along `axis`."""
    types = {(x.shape, x.dtype) for x in leaves}
    if len(leaves) != 2 or len(types) > 1 or dtypes.kind(leaves[0].dtype) not in NUMERIC:
        return None
    found = set()
    for n in (leaves[0].shape[axis] // 2, 1):
        avals = [Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.weak_type)
                 for x in leaves]
        try:
            pair = structure((unflatten(tree, avals),) * 2)
            program, _, out_tree = stage(fun, pair, [*avals, *avals], [*leaves, *leaves])
        except Exception:  # raised again, if it is an error, where the function is applied
            return None
        found.add(_coefficient(program) if out_tree == tree else None)
    return found.pop() if len(found) == 1 else None


def _coefficient(program: Program) -> int | None:
    """Which of two outputs is the product of coefficients, in a program that composes steps."""
    if len(program.inputs) != 4 or any(e.op not in (add, mul) for e in program.equations):
        return None
    forms: dict[Any, Any] = {}  # the expressions of variables, in which operands have no order
    for e in program.equations:
        forms[e.outs[0]] = (e.op, frozenset(forms.get(x, x) for x in e.ins))
    results = [forms.get(x) for x in program.outputs]
    first, second = program.inputs[:2], program.inputs[2:]
    for a, b in ((0, 1), (1, 0)):
        moved = (mul, frozenset([second[a], first[b]]))
        if results[a] == (mul, frozenset([first[a], second[a]])) and (
            results[b] == (add, frozenset([moved, second[b]]))
        ):
            return a
    return None


def apply_scalar(program: Program, consts: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    """Apply a program on scalars to each element of arrays of one shape."""
    shape = xs[0].shape
    if not shape:
        return evaluate(program, [*consts, *xs])
    size = math.prod(shape)
    flat = [reshape(x, (size,)) for x in xs]
    dims = [None] * len(consts) + [0] * len(flat)
    outs, found = vmap_flat(lambda *args: evaluate(program, args), (None, size), [*consts, *flat],
                            dims)
    return [reshape(bdim_at(o, d, size), shape) for o, d in zip(outs, found, strict=True)]


def operands_and_inits(
    name: str, xs: Any, inits: Any, fun: Any = None
) -> tuple[list[Any], list[Any], Any]:
    """Flat operands of one shape, their scalar initial values, and the structure of both.

    An initial value of another dtype than its operand is accepted if it is the identity element of
    `fun`, such as -inf for the maximum of integers."""
    flat, tree = flatten(xs)
    starts, init_tree = flatten(inits)
    if not flat:
        raise ValueError(f"{name}: needed at least one operand, got none{here()}")
    if tree != init_tree:
        raise ValueError("Operands must have the same tree structure as init_values: "
                         f"{name} needed one structure, got {tree} and {init_tree}{here()}")
    arrays, values = [], []
    for i, (x, v) in enumerate(zip(flat, starts, strict=True)):
        a = operand(name, x, i)
        v = _identity_of_other_dtype(fun, v, a) if len(flat) == 1 else v
        _check_fits(name, v, a)
        a, v = operands(name, (a, v))
        v = _as_weak_as(v, starts[i])
        arrays.append(a)
        values.append(v)
    avals = [a.aval for a in (*arrays, *values)]
    if any(v.shape for v in values):
        found = [v.shape for v in values]
        if name == "reduce_window":
            raise TypeError("reduce_window expected init_values to be scalars but init_values "
                            f"have shapes {found}.{here()}")
        raise ValueError(f"{name} found non-scalar initial value: needed scalars, got shapes "
                         f"{found}{here()}")
    if any(a.dtype != v.dtype for a, v in zip(arrays, values, strict=True)):
        raise shape_error(name, "initial values of the operands' dtypes", avals)
    if any(a.shape != arrays[0].shape for a in arrays):
        raise shape_error(name, "operands of one shape", avals)
    return arrays, values, tree


def _check_fits(name: str, init: Any, x: Any) -> None:
    """Raise an error for an integer that the dtype of an operand of integers cannot hold."""
    if type(init) is int and dtypes.kind(x.dtype) in "iu":
        info = np.iinfo(x.dtype)
        if not info.min <= init <= info.max:
            raise TypeError(
                f"{name}: operand dtypes should match corresponding initial value dtypes: needed a "
                f"number between {info.min} and {info.max} for {x.dtype}, got {init} (convert the "
                f"operand to a wider dtype){here()}"
            )


def _identity_of_other_dtype(fun: Any, init: Any, x: Any) -> Any:
    """The initial value; if it is the identity of `fun` for another dtype, the one for `x`."""
    kind = _FUNCTIONS.get(fun) if _hashable(fun) else None
    if kind is None or not isinstance(init, (int, float, np.generic, np.ndarray, ConcreteArray)):
        return init
    value = as_array(init)
    if value.shape or value.dtype == x.dtype or dtypes.is_extended(x.dtype):
        return init
    if kind in ("and", "or", "xor") and dtypes.kind(value.dtype) not in "iub":
        return init
    return np.asarray(identity(kind, x.dtype), x.dtype) if is_identity(kind, value) else init


def _as_weak_as(value: Any, given: Any) -> Any:
    """The value with the weak bit of the argument that the user passed."""
    weak = dtypes.is_weakly_typed(given)
    if value.weak_type == weak:
        return value
    if isinstance(value, DeviceArray):  # which stays one while a function is traced
        return DeviceArray(value._data, weak)
    return convert(value, value.dtype, weak)


def settle_weak(out: Any, init: Any) -> Any:
    """The result without its weak bit, unless the initial value is weak too."""
    return convert(out, out.dtype) if out.weak_type and not init.weak_type else out
