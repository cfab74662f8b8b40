"""How elementwise functions call their operations: checks, broadcast axes, and fast paths.

Two concrete arrays with the same dtype and shape are passed directly to the operation. The
decorators supply the bodies of functions that are declared with only a name, types and a docstring.
This module may import the engine, primitives and `_operands`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.engine.platform_registry import array_platforms
from toile.engine.promotion import NARROW_INTEGERS
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.lax._operands import F, checked, dtypes_of, named, operands, stretched
from toile.primitives import elementwise as ops
from toile.primitives.families import accepts_text


@dataclass(frozen=True)
class Tolerance:
    """A bound on the error of a result, passed as `accuracy` to functions such as `lax.exp`.

    Each of these functions has a single implementation, so a tolerance does not change the result.

    Args:
        atol: maximum absolute error.
        rtol: maximum relative error.
        ulps: maximum error, in units in the last place.

    Raises:
        ValueError: one of the three numbers is negative, or all three are 0.

    >>> lax.exp(0.0, accuracy=lax.Tolerance(rtol=1e-5)).round(4)
    Array(1., dtype=float32, weak_type=True)
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.rtol < 0.0 or self.atol < 0.0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative." + here())
        if self.rtol == 0.0 and self.atol == 0.0 and self.ulps == 0:
            raise ValueError("At least one of atol, rtol, or ulps must be set." + here())


class AccuracyMode(enum.Enum):
    """A choice of implementation, passed as `accuracy` to functions such as `lax.exp`.

    Each of these functions has a single implementation, so the choice does not change the result.
    """

    HIGHEST = 1
    DEFAULT = 2


def apply(op: Any, accepts: str, xs: Sequence[Any]) -> Any:
    """Convert, check and broadcast the operands, and call the operation: the general path."""
    args = operands(op.name, xs)
    for x in args:
        if dtypes.kind(x.dtype) not in accepts:
            _refuse(op, accepts, args)
    if len(args) > 1 and any(a.shape != args[0].shape for a in args):
        args = stretched(args)
    if args[0].dtype in NARROW_INTEGERS:
        return _narrow(op, accepts, args)
    return checked(op, args)


def _narrow(op: Any, accepts: str, args: Sequence[Any]) -> Any:
    """Apply an operation to integers of fewer than 8 bits, and undo any widening by NumPy."""
    if op is ops.abs_:
        _refuse(op, accepts, args)
    out = checked(op, args)
    dtype = op.infer(*[a.aval for a in args]).dtype
    return out if out.dtype == dtype else ops.convert(out, dtype)


def _refuse(op: Any, accepts: str, args: Sequence[Any]) -> None:
    if any(a.dtype == dtypes.float0 for a in args):
        raise TypeError(f"Called {op.name} with a float0 array. float0s do not support any "
                        f"operations by design: needed numbers{here()}")
    if any(a.dtype != args[0].dtype for a in args):
        op.infer(*[a.aval for a in args])  # unequal dtypes are the likelier mistake
    raise shape_error(op.name, f"{accepts_text(accepts)} operands", [a.aval for a in args],
                      "convert them with .astype",
                      f"{op.name} does not accept dtype {dtypes.name_of(args[0].dtype)}")


def one(op: Any, accepts: str | None = None) -> Any:
    """A function of one operand."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any) -> Any:
        kind = x.__class__
        if kind is DeviceArray and x._data.dtype in allowed:
            return op(x)
        if kind in array_platforms and x._signature.dtype in allowed:
            return array_platforms[kind].unary(op, x)
        return apply(op, kinds, (x,))

    return fun


def unary(op: Any, accepts: str | None = None) -> Callable[[F], F]:
    """The body of a function of one operand."""
    return lambda declared: named(one(op, accepts), declared)


def accurate(op: Any) -> Callable[[F], F]:
    """The body of a function of one operand that accepts `accuracy`, which has no effect."""
    kinds = op.accepts
    allowed = dtypes_of(kinds)

    def with_body(declared: F) -> F:
        name = declared.__name__

        def fun(x: Any, *, accuracy: Any = None) -> Any:
            if accuracy is not None and not isinstance(accuracy, (Tolerance, AccuracyMode)):
                raise NotImplementedError(f"{name}: needed a Tolerance or AccuracyMode as "
                                          f"accuracy, got {accuracy!r}{here()}")
            kind = x.__class__
            if kind is DeviceArray and x._data.dtype in allowed:
                return op(x)
            if kind in array_platforms and x._signature.dtype in allowed:
                return array_platforms[kind].unary(op, x)
            return apply(op, kinds, (x,))

        return named(fun, declared)

    return with_body


def two(op: Any, accepts: str | None = None) -> Any:
    """A function of two operands."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any, y: Any) -> Any:
        if x.__class__ is DeviceArray and y.__class__ is DeviceArray:
            a, b = x._data, y._data
            dtype, shape = a.dtype, a.shape
            if dtype is b.dtype and dtype in allowed:
                other = b.shape
                if shape == other or not shape or not other:
                    return op(x, y)
        return apply(op, kinds, (x, y))

    return fun


def binary(op: Any, accepts: str | None = None) -> Callable[[F], F]:
    """The body of a function of two operands."""
    return lambda declared: named(two(op, accepts), declared)
