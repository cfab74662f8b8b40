"""JAX's names for tracers, avals and Programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.annotations import ArrayLike
from toile.engine.avals import Aval
from toile.engine.avals import aval_of as get_aval
from toile.engine.conversion import as_array, leaving
from toile.engine.program import (
    ClosedProgram,
    Equation,
    Literal,
    Program,
    Var,
    evaluate,
    is_array_like,
)
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Trace, Tracer, runs_at_once

AbstractValue = Aval


class _AsAval(type):
    """`isinstance` is true for every aval; a call converts names of dtypes."""

    def __call__(cls, shape: Any, dtype: Any, weak_type: bool = False, **_: Any) -> Aval:
        named = dtype if hasattr(dtype, "kind") else np.dtype(dtype)
        return ShapedArray.of(Aval(tuple(shape), named, weak_type))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Aval)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Aval)


class ShapedArray(Aval, metaclass=_AsAval):
    """The shape and dtype of an array whose values are not known.

    `isinstance` treats every abstract value of toile as an instance of this class.

    Args:
        shape: sizes of the axes.
        dtype: the dtype or its name.
        weak_type: whether the dtype adapts to other dtypes in promotion, as the dtype of a Python
            number does.

    >>> from toile.core import ShapedArray
    >>> ShapedArray((2, 3), "float32").shape
    (2, 3)
    """

    __slots__ = ()

    @classmethod
    def of(cls, aval: Any) -> Any:
        """Return an aval as an instance of this class itself, for type rules of primitives.

        Args:
            aval: an aval; other objects are returned unchanged.

        Returns:
            The instance.
        """
        if type(aval) is not Aval:
            return aval
        made = object.__new__(cls)
        made.shape, made.dtype, made.weak_type = aval.shape, aval.dtype, aval.weak_type
        return made

    def update(self, **changes: Any) -> Aval:
        """Return a copy with a different `shape`, `dtype` or `weak_type`."""
        return self.of(Aval.update(self, **changes))


def plain_aval(x: Any) -> Any:
    """Return what a type rule of a primitive returned as toile's own aval.

    Args:
        x: an aval; other objects are returned unchanged.

    Returns:
        The aval.
    """
    return Aval(x.shape, x.dtype, x.weak_type) if type(x) is ShapedArray else x


Atom = Var | Literal
Jaxpr, ClosedJaxpr, JaxprEqn = Program, ClosedProgram, Equation


def eval_jaxpr(jaxpr: Program, consts: Sequence[ArrayLike], *args: ArrayLike) -> list[Any]:
    """Run a traced program operation by operation.

    Args:
        jaxpr: the program, such as `toile.make_jaxpr(f)(x).jaxpr`.
        consts: values of the program's constants.
        *args: values of the program's arguments.

    Returns:
        A list of the program's results.

    >>> from toile.core import eval_jaxpr
    >>> closed = toile.make_jaxpr(lambda x: 2 * x)(jnp.ones(2))
    >>> eval_jaxpr(closed.jaxpr, closed.consts, jnp.array([1.0, 3.0]))
    [Array([2., 6.], dtype=float32)]
    """
    values = [as_array(x) if isinstance(x, (int, float, complex)) else x for x in (*consts, *args)]
    return [leaving(x) for x in evaluate(jaxpr, values)]


def is_concrete(x: object) -> bool:
    """Return whether a value is already known while a function is being traced.

    Args:
        x: any value.

    Returns:
        False for a tracer without a value, True for everything else.

    >>> from toile.core import is_concrete
    >>> is_concrete(jnp.ones(2))
    True
    """
    return not isinstance(x, Tracer) or x.concrete() is not None


def trace_state_clean() -> bool:
    """Return whether the current thread is outside all transformations.

    Returns:
        True if no transformation is active.

    >>> from toile.core import trace_state_clean
    >>> trace_state_clean(), toile.jit(lambda: jnp.array(trace_state_clean()))()
    (True, Array(False, dtype=bool))
    """
    return runs_at_once()


def valid_jaxtype(x: object) -> bool:
    """Return whether a value can be an argument or a result of a transformed function.

    Args:
        x: any value. The result is False for a tree, even if its leaves are arrays.

    Returns:
        True for arrays, traced arrays, numbers, and NumPy arrays and scalars of numbers.

    >>> from toile.core import valid_jaxtype
    >>> valid_jaxtype(1.5), valid_jaxtype("text")
    (True, False)
    """
    return not isinstance(x, ShapeDtypeStruct) and is_array_like(x)


__all__ = [
    "AbstractValue", "Atom", "ClosedJaxpr", "Equation", "Jaxpr", "JaxprEqn", "Literal",
    "ShapedArray", "Trace", "Tracer", "Var", "eval_jaxpr", "get_aval", "is_concrete",
    "trace_state_clean", "valid_jaxtype",
]  # fmt: skip
