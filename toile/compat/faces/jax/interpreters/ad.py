"""`jax.interpreters.ad`: symbolic zeros, and the derivative rules of foreign primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.source import here
from toile.primitives.families import add, instantiate
from toile.transforms.jvp import JVPTracer
from toile.tree_util import register_pytree_node

__all__ = [
    "JVPTracer", "UndefinedPrimal", "Zero", "add_jaxvals", "add_tangents", "defbilinear", "defjvp",
    "defjvp2", "deflinear", "deflinear2", "get_aval", "get_primitive_transpose",
    "instantiate_zeros", "is_undefined_primal", "primitive_jvps", "primitive_transposes",
    "zeros_like_aval",
]

primitive_jvps: dict[Any, Callable[..., Any]] = {}
primitive_transposes: dict[Any, Callable[..., Any]] = {}

get_aval = aval_of
instantiate_zeros = instantiate
add_jaxvals = add


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


def get_primitive_transpose(primitive: Any) -> Callable[..., Any]:
    """The transpose rule of a primitive."""
    if primitive not in primitive_transposes:
        raise NotImplementedError(
            f"Transpose rule (for reverse-mode differentiation) for '{primitive}' not implemented: "
            f"needed a primitive with a rule, got one without (ad.deflinear2 sets it){here()}")
    return primitive_transposes[primitive]


def defbilinear(primitive: Any, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """Declare that a primitive is linear in each of its two operands, and set the transpose rules
    `lhs_rule(cotangent, x, y)` and `rhs_rule(cotangent, x, y)`."""

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if is_undefined_primal(x):
            return (Zero(x.aval) if type(ct) is Zero else lhs_rule(ct, x, y, **params)), None
        return None, (Zero(y.aval) if type(ct) is Zero else rhs_rule(ct, x, y, **params))

    defjvp(primitive, lambda t, x, y, **params: primitive.bind(t, y, **params),
           lambda t, x, y, **params: primitive.bind(x, t, **params))
    primitive_transposes[primitive] = transpose


def defjvp2(primitive: Any, *rules: Callable[..., Any] | None) -> None:
    """Like `defjvp`, for rules `f(tangent, result, *primals)`."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        total: Any = Zero(aval_of(out))
        for rule, t in zip(rules, tangents, strict=True):
            if rule is not None and type(t) is not Zero:
                total = add_tangents(total, rule(t, out, *primals, **params))
        return out, total

    primitive_jvps[primitive] = jvp


def defjvp(primitive: Any, *rules: Callable[..., Any] | None) -> None:
    """Set rules `f(tangent, *primals)` for the tangent, one for each operand, or None for zero."""

    def without_result(rule: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t, out, *primals, **params: rule(t, *primals, **params)

    defjvp2(primitive, *[rule and without_result(rule) for rule in rules])
