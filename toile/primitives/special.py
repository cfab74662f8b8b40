"""Special functions: error functions, the gamma family, Bessel functions, incomplete integrals.

Each class is one elementwise operation on real floats; its values come from the raw function of
`primitives.arrays.special`. A derivative that has no closed form raises ValueError, but only when
it is needed. This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.program import Literal
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.arrays import special as raw
from toile.primitives.bits import gt
from toile.primitives.elementwise import abs_, div, log, select, sign
from toile.primitives.families import (
    FLOAT,
    Elementwise,
    add,
    fill_shape,
    full_like,
    mul,
    neg,
    sub,
)
from toile.primitives.rules import kernel_function, raw_function
from toile.primitives.transcendental import exp, log1p


class _Special(Elementwise):
    accepts = FLOAT
    costly = True
    can_make_nan = True

    def no_partial(self, operand: str) -> Callable[[], Any]:
        """A partial derivative that raises when it is needed."""

        def refuse() -> Any:
            raise ValueError(
                f"{self.name}: needed an operand with a known derivative, got a tangent for "
                f"{operand}; its gradient is not supported (use stop_gradient on it){here()}"
            )

        return refuse


# -------------------------------------------------------------------------------- error functions


class Erf(_Special):
    """The error function."""

    eager = raw_function(raw.erf)
    lower = kernel_function("erf")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(x, 2 / math.sqrt(math.pi)), exp(neg(mul(x, x)))),)


class Erfc(_Special):
    """The complementary error function 1 - erf(x), accurate for large x."""

    eager = raw_function(raw.erfc)
    lower = kernel_function("erfc")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(x, -2 / math.sqrt(math.pi)), exp(neg(mul(x, x)))),)


class ErfInv(_Special):
    """The inverse of the error function."""

    eager = raw_function(raw.erf_inv)
    lower = kernel_function("erf_inv")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(x, math.sqrt(math.pi) / 2), exp(mul(y, y))),)


# --------------------------------------------------------------------------------- gamma functions


class Lgamma(_Special):
    """The logarithm of |Γ(x)|."""

    eager = raw_function(raw.lgamma)
    lower = kernel_function("lgamma")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (digamma(x),)


class Digamma(_Special):
    """The digamma function, the derivative of log Γ(x)."""

    eager = raw_function(raw.digamma)
    lower = kernel_function("digamma")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (polygamma(full_like(x, 1), x),)


class Polygamma(_Special):
    """The m-th derivative of the digamma function."""

    eager = raw_function(raw.polygamma)
    can_make_nan = False

    def partials(self, y: Any, m: Any, x: Any) -> Sequence[Any]:
        return self.no_partial("m"), lambda: polygamma(add(m, full_like(m, 1)), x)

    def simplified(self, new: Any, e: Any) -> Any:
        """If the order is known, replace the operation by one that has native code."""
        m = e.ins[0]
        value = m.val if isinstance(m, Literal) else new.fill_of(m)
        if value is None or float(value) not in range(_KNOWN_ORDERS):
            return None
        order = int(value)
        return [new.add(PolygammaOfOrder(order) if order else digamma, [e.ins[1]], e,
                        e.outs[0].aval)]


_KNOWN_ORDERS = 7  # from 0 on


@dataclass(frozen=True)
class PolygammaOfOrder(_Special):
    """The digamma derivative of a known order; compiled code uses it in place of `Polygamma`."""

    order: int

    name = "polygamma_of_order"
    can_make_nan = False

    def eager(self, xp: Any, *xs: Any) -> Any:
        (x,) = xs
        return raw.polygamma(xp, xp.full_like(x, self.order), x)

    def lower(self, k: Any, *xs: Any) -> Any:
        return k.polygamma(*xs, order=self.order)

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (PolygammaOfOrder(self.order + 1)(x),)


class Zeta(_Special):
    """The Hurwitz zeta function Σ (k + q)⁻ˣ, summed over k ≥ 0."""

    eager = raw_function(raw.zeta)
    lower = kernel_function("zeta")
    iterates = True
    can_make_nan = False


def _gamma_density(a: Any, x: Any) -> Any:
    """∂P(a, x)/∂x = x^(a-1) e^-x / Γ(a)."""
    power = mul(sub(a, full_like(a, 1)), log(x))
    return exp(sub(sub(power, x), lgamma(a)))


class Igamma(_Special):
    """The regularized lower incomplete gamma function P(a, x)."""

    eager = raw_function(raw.igamma)
    lower = kernel_function("igamma")
    iterates = True

    def partials(self, y: Any, a: Any, x: Any) -> Sequence[Any]:
        return (lambda: igamma_grad_a(a, x)), (lambda: _gamma_density(a, x))


class Igammac(_Special):
    """The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""

    eager = raw_function(raw.igammac)
    lower = kernel_function("igammac")
    iterates = True

    def partials(self, y: Any, a: Any, x: Any) -> Sequence[Any]:
        return (lambda: neg(igamma_grad_a(a, x))), (lambda: neg(_gamma_density(a, x)))


class IgammaGradA(_Special):
    """The derivative of P(a, x) with respect to a."""

    eager = raw_function(raw.igamma_grad_a)
    lower = kernel_function("igamma_grad_a")
    iterates = True


class RandomGammaGrad(_Special):
    """The derivative dx/da of a Gamma(a) sample x at a fixed quantile."""

    eager = raw_function(raw.random_gamma_grad)
    lower = kernel_function("random_gamma_grad")
    iterates = True
    can_make_nan = False


class FusedMultiplyAdd(Elementwise):
    """a * b + c with one rounding, as processors and XLA compute it, so samplers match bit for
    bit."""

    accepts = "f"
    eager = raw_function(raw.fused_multiply_add)
    lower = kernel_function("fma")
    can_make_nan = True

    def partials(self, y: Any, a: Any, b: Any, c: Any) -> Sequence[Any]:
        return (b, a, 1)


class RegularizedIncompleteBeta(_Special):
    """The regularized incomplete beta function Iₓ(a, b)."""

    eager = raw_function(raw.betainc)
    lower = kernel_function("betainc")
    iterates = True

    def partials(self, y: Any, a: Any, b: Any, x: Any) -> Sequence[Any]:
        def dx() -> Any:  # x^(a-1) (1-x)^(b-1) / B(a, b)
            log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
            right = mul(sub(b, full_like(b, 1)), log1p(neg(x)))
            left = mul(sub(a, full_like(a, 1)), log(x))
            return exp(sub(add(right, left), log_beta))

        return self.no_partial("a"), self.no_partial("b"), dx


# -------------------------------------------------------------------------------- Bessel functions


class BesselI0e(_Special):
    """The modified Bessel function I₀(x), times exp(-|x|)."""

    eager = raw_function(raw.bessel_i0e)
    lower = kernel_function("bessel_i0e")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (sub(bessel_i1e(x), mul(sign(x), y)),)


class BesselI1e(_Special):
    """The modified Bessel function I₁(x), times exp(-|x|)."""

    eager = raw_function(raw.bessel_i1e)
    lower = kernel_function("bessel_i1e")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        # i0e(x) - y (sign(x) + 1/x), which tends to 1/2 at 0
        eps = full_like(x, dtypes.finfo(x.dtype).eps)
        large = gt(abs_(x), eps)
        safe = select(large, x, fill_shape(eps, x.shape))
        slope = add(sign(safe), div(full_like(x, 1), safe))
        slope = sub(bessel_i0e(safe), mul(y, slope))
        return (select(large, slope, fill_shape(full_like(x, 0.5), x.shape)),)


erf, erfc, erf_inv = Erf(), Erfc(), ErfInv()
lgamma, digamma, polygamma, zeta = Lgamma(), Digamma(), Polygamma(), Zeta()
igamma, igammac, igamma_grad_a = Igamma(), Igammac(), IgammaGradA()
fused_multiply_add = FusedMultiplyAdd()
random_gamma_grad, regularized_incomplete_beta = RandomGammaGrad(), RegularizedIncompleteBeta()
bessel_i0e, bessel_i1e = BesselI0e(), BesselI1e()
