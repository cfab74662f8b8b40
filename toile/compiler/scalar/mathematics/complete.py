"""The complete builder: arithmetic from `compiler.scalar.builder`, functions from this package.

`_function` turns each function into a method that widens narrow floats, rejects integers, and uses
the complex version where there is one. This module may import only compiler.scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.compiler.scalar.builder import Arithmetic, Unsupported, Value, kind
from toile.compiler.scalar.mathematics import (
    apart,
    bessel,
    complex_inverses,
    complex_powers,
    complex_waves,
    complexes,
    error,
    exponential,
    gamma,
    hyperbolic,
    incomplete,
    incomplete_beta,
    incomplete_slopes,
    powers,
    trigonometric,
    zetas,
)

Code = Callable[..., Value]


def _function(real: Code, of_complex: Code | None = None) -> Any:
    """Make a method from code for float32 and float64 registers and code for complex numbers."""

    def method(self: Builder, *xs: Value, **options: Any) -> Value:
        dtype = xs[0].dtype
        k = kind(dtype)
        if k == "c" and of_complex is not None:
            return of_complex(self, *xs)
        if k != "f":
            raise Unsupported(f"{real.__name__} of {dtype} in a kernel")
        y = real(self, *(self.wide(x) for x in xs), **options)
        return Value(y.name, dtype)

    method.__name__ = real.__name__
    method.__doc__ = real.__doc__
    return method


class Builder(Arithmetic):
    """The builder `k` of an operation's `lower(k, *xs)`."""

    exp = _function(exponential.exp, complexes.exp)
    exp2 = _function(exponential.exp2, complexes.exp2)
    expm1 = _function(exponential.expm1, complex_waves.expm1)
    log = _function(exponential.log, complexes.log)
    log1p = _function(exponential.log1p, complexes.log1p)
    log2 = _function(exponential.log2, complexes.log2)
    logistic = _function(exponential.logistic, complexes.logistic)
    rsqrt = _function(powers.rsqrt, complexes.rsqrt)
    cbrt = _function(powers.cbrt)
    fmod = _function(powers.fmod)
    sin = _function(trigonometric.sin, complex_waves.sin)
    cos = _function(trigonometric.cos, complex_waves.cos)
    tan = _function(trigonometric.tan, complex_waves.tan)
    asin = _function(trigonometric.asin, complex_inverses.asin)
    acos = _function(trigonometric.acos, complex_inverses.acos)
    atan = _function(trigonometric.atan, complex_inverses.atan)
    atan2 = _function(trigonometric.atan2, complexes.atan2)
    sinh = _function(hyperbolic.sinh, complex_waves.sinh)
    cosh = _function(hyperbolic.cosh, complex_waves.cosh)
    tanh = _function(hyperbolic.tanh, complex_waves.tanh)
    asinh = _function(hyperbolic.asinh, complex_inverses.asinh)
    acosh = _function(hyperbolic.acosh, complex_inverses.acosh)
    atanh = _function(hyperbolic.atanh, complex_inverses.atanh)
    erf = _function(error.erf)
    erfc = _function(error.erfc)
    erf_inv = _function(error.erf_inv)
    lgamma = _function(gamma.lgamma)
    digamma = _function(gamma.digamma)
    polygamma = _function(gamma.polygamma)
    igamma = _function(incomplete.igamma)
    igammac = _function(incomplete.igammac)
    igamma_grad_a = _function(incomplete_slopes.igamma_grad_a)
    random_gamma_grad = _function(incomplete_slopes.random_gamma_grad)
    zeta = _function(zetas.zeta)
    betainc = _function(incomplete_beta.betainc)
    bessel_i0e = _function(bessel.bessel_i0e)
    bessel_i1e = _function(bessel.bessel_i1e)
    gcd = apart.gcd
    integer_pow = powers.integer_pow
    reduce_precision = powers.reduce_precision
    nextafter = powers.nextafter

    def pow(self, x: Value, y: Value) -> Value:
        """x to the power y; y may be an integer with a floating or complex x."""
        return (complex_powers if x.imag else powers).pow_(self, x, y)

    def sqrt(self, x: Value) -> Value:
        """Square root."""
        return complexes.sqrt(self, x) if x.imag else super().sqrt(x)

    def abs(self, x: Value) -> Value:
        """Absolute value or modulus."""
        return complexes.modulus(self, x) if x.imag else super().abs(x)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1; of a complex number, x/|x|."""
        return complexes.sign(self, x) if x.imag else super().sign(x)
