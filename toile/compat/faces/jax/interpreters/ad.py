"""`jax.interpreters.ad`: symbolic zeros, and the derivative rules of foreign primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.avals import Aval, Zero, aval_of
from toile.primitives.families import add, instantiate
from toile.transforms.jvp import JVPTracer
from toile.tree_util import register_pytree_node

__all__ = [
    "JVPTracer", "UndefinedPrimal", "Zero", "add_tangents", "deflinear", "deflinear2", "defjvp",
    "get_aval", "instantiate_zeros", "is_undefined_primal", "primitive_jvps",
    "primitive_transposes", "zeros_like_aval",
]

primitive_jvps: dict[Any, Callable[..., Any]] = {}
primitive_transposes: dict[Any, Callable[..., Any]] = {}

get_aval = aval_of
instantiate_zeros = instantiate


class UndefinedPrimal:
    """A linear operand, of which a transpose rule knows only the aval."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


# As in JAX, both are nodes without leaves: `vmap` and `jit` pass them through unchanged.
register_pytree_node(Zero, lambda z: ((), z.aval), lambda aval, _: Zero(aval))
register_pytree_node(UndefinedPrimal, lambda z: ((), z.aval), lambda aval, _: UndefinedPrimal(aval))


def is_undefined_primal(x: Any) -> bool:
    """Whether `x` stands for a linear operand."""
    return type(x) is UndefinedPrimal


def zeros_like_aval(aval: Aval) -> Any:
    """An array of zeros of the type `aval`."""
    return instantiate(Zero(aval))


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a symbolic zero."""
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else add(x, y)


def deflinear2(primitive: Any, transpose: Callable[..., Any]) -> None:
    """Declare that a primitive is linear in all its operands, and set its transpose rule."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        moving = [instantiate(t) for t in tangents]
        return primitive.bind(*primals, **params), primitive.bind(*moving, **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose


def deflinear(primitive: Any, transpose: Callable[..., Any]) -> None:
    """Like `deflinear2`, for a transpose rule that is called only with the cotangent."""
    deflinear2(primitive, lambda ct, *operands, **params: transpose(ct, **params))


def defjvp(primitive: Any, *rules: Callable[..., Any] | None) -> None:
    """Set rules `f(tangent, *primals)` for the tangent, one for each operand, or None for zero."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        total: Any = Zero(aval_of(out))
        for rule, t in zip(rules, tangents, strict=True):
            if rule is not None and type(t) is not Zero:
                total = add_tangents(total, rule(t, *primals, **params))
        return out, total

    primitive_jvps[primitive] = jvp
