"""Complex numbers and their parts: linear maps between real and complex arrays.

The pairing of cotangents is (a, b) -> Re(a b), so transposes do not conjugate. This module may
import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim
from toile.engine.records import dataclass
from toile.primitives import division
from toile.primitives.families import Linear, bdim_at, broadcast_in_dim, full_like, neg
from toile.primitives.rules import frame_rule, kernel_function, mapped_in_place


def _like(x: Any, value: Any) -> Any:
    """A constant with the shape and dtype of `x`."""
    return broadcast_in_dim(full_like(x, value), x.shape, ())


class Complex(Linear):
    """The complex number with the given real and imaginary parts."""

    by_element = True
    divide = division.by_element

    def infer(self, x: Aval, y: Aval) -> Aval:
        ok = x.shape == y.shape and x.dtype == y.dtype
        if not ok or x.dtype not in (np.float32, np.float64):
            raise shape_error(self.name, "two float32 or two float64 operands of one shape", [x, y])
        return Aval(x.shape, dtypes.to_complex_dtype(x.dtype), x.weak_type and y.weak_type)

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        out = xp.empty(x.shape, np.complex64 if x.dtype == np.float32 else np.complex128)
        out.real, out.imag = x, y
        return out

    lower = kernel_function("complex")

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        # The pairing is (a, b) -> Re(a b): i y pairs with ct as -Im(ct).
        return (
            real(ct) if type(x) is Aval else None,
            neg(imag(ct)) if type(y) is Aval else None,
        )

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        x, y = (bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True))
        return complex_(x, y), 0


class _Part(Linear):
    by_element = True
    divide = division.by_element
    sparse = frame_rule("linear")

    def infer(self, x: Aval) -> Aval:
        if dtypes.kind(x.dtype) != "c":
            raise shape_error(self.name, "a complex operand", [x])
        return Aval(x.shape, dtypes.dtype_to_real(x.dtype), x.weak_type)

    vmap = mapped_in_place


class Real(_Part):
    """The real part of a complex number."""

    def eager(self, xp: Any, x: Any) -> Any:
        return x.real.copy()

    lower = kernel_function("real")

    def transpose(self, ct: Any, x: Any) -> Any:
        return complex_(ct, _like(ct, 0))


class Imag(_Part):
    """The imaginary part of a complex number."""

    def eager(self, xp: Any, x: Any) -> Any:
        return x.imag.copy()

    lower = kernel_function("imag")

    def transpose(self, ct: Any, x: Any) -> Any:
        return complex_(_like(ct, 0), neg(ct))


@dataclass(frozen=True)
class Conj(Linear):
    """The complex conjugate; a real operand is first converted to complex (`from_real`)."""

    from_real: bool = False
    by_element = True
    divide = division.by_element
    sparse = frame_rule("linear")

    def infer(self, x: Aval) -> Aval:
        if dtypes.kind(x.dtype) not in "fc":
            raise shape_error(self.name, "a float or complex operand", [x])
        return Aval(x.shape, dtypes.to_complex_dtype(x.dtype), x.weak_type)

    def eager(self, xp: Any, x: Any) -> Any:
        if dtypes.kind(x.dtype) == "f":
            return x.astype(np.complex64 if x.dtype == np.float32 else np.complex128)
        return xp.conjugate(x)

    def lower(self, k: Any, x: Any) -> Any:
        if dtypes.kind(x.dtype) == "f":
            return k.convert(x, dtypes.to_complex_dtype(x.dtype))
        return k.conj(x)

    def transpose(self, ct: Any, x: Any) -> Any:
        if dtypes.kind(x.dtype) == "f":
            return real(Conj()(ct))
        return Conj()(ct)

    vmap = mapped_in_place


complex_, real, imag, conj = Complex(), Real(), Imag(), Conj()
