"""Exponentials, logarithms, roots, trigonometry and special functions, element by element.

This module may import the engine, primitives, `_operands` and `_elementwise`.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from toile.engine.annotations import Array, ArrayLike
from toile.lax._elementwise import AccuracyMode, Tolerance, accurate, apply, binary, unary
from toile.primitives import elementwise as ops
from toile.primitives import special
from toile.primitives import transcendental as curves

# --------------------------------------------------------------------------------- transcendental

@accurate(curves.exp)
def exp(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Raise e to the power of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.exp(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 2.7183], dtype=float32)
    """


@accurate(curves.exp2)
def exp2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Raise 2 to the power of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.exp2(jnp.array([0.0, 3.0])).round(4)
    Array([1., 8.], dtype=float32)
    """


@accurate(curves.expm1)
def expm1(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `exp(x) - 1`, accurately even where `x` is close to 0.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.expm1(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.7183], dtype=float32)
    """


@accurate(ops.log)
def log(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the natural logarithm of each element.

    For real numbers, the result is -inf at 0 and NaN for negative numbers.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.log(jnp.array([1.0, 10.0])).round(4)
    Array([0.    , 2.3026], dtype=float32)
    """


@accurate(curves.log1p)
def log1p(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `log(1 + x)`, accurately even where `x` is close to 0.

    For real numbers, the result is -inf at -1 and NaN below -1.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.log1p(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.6931], dtype=float32)
    """


@accurate(curves.log2)
def log2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the logarithm to base 2 of each element.

    For real numbers, the result is -inf at 0 and NaN for negative numbers.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.log2(jnp.array([1.0, 8.0])).round(4)
    Array([0., 3.], dtype=float32)
    """


@accurate(curves.logistic)
def logistic(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the logistic sigmoid `1 / (1 + exp(-x))` of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.logistic(jnp.array([0.0, 2.0])).round(4)
    Array([0.5   , 0.8808], dtype=float32)
    """


@accurate(curves.sqrt)
def sqrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the square root of each element.

    For negative real numbers, the result is NaN. For complex numbers, it is the principal root.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.sqrt(jnp.array([4.0, 2.0])).round(4)
    Array([2.    , 1.4142], dtype=float32)
    """


@accurate(curves.rsqrt)
def rsqrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `1 / sqrt(x)` for each element.

    For real numbers, the result is inf at 0 and NaN for negative numbers.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.rsqrt(jnp.array([4.0, 0.0])).round(4)
    Array([0.5, inf], dtype=float32)
    """


@accurate(curves.cbrt)
def cbrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the real cube root of each element.

    Args:
        x: array or number of a float dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.cbrt(jnp.array([-8.0, 27.0])).round(4)
    Array([-2.,  3.], dtype=float32)
    """


@accurate(curves.sin)
def sin(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the sine of each element; the elements are angles in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.sin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8415], dtype=float32)
    """


@accurate(curves.cos)
def cos(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the cosine of each element; the elements are angles in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.cos(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.5403], dtype=float32)
    """


@accurate(curves.tan)
def tan(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the tangent of each element; the elements are angles in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.tan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5574], dtype=float32)
    """


@accurate(curves.tanh)
def tanh(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the hyperbolic tangent of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.tanh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7616], dtype=float32)
    """


@unary(curves.asin)
def asin(x: ArrayLike) -> Array:
    """Compute the inverse sine of each element.

    For real numbers in [-1, 1], the result is an angle in [-pi/2, pi/2]; for other real numbers, it
    is NaN.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.asin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5708], dtype=float32)
    """


@unary(curves.acos)
def acos(x: ArrayLike) -> Array:
    """Compute the inverse cosine of each element.

    For real numbers in [-1, 1], the result is an angle in [0, pi]; for other real numbers, it is
    NaN.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.acos(jnp.array([0.0, 1.0])).round(4)
    Array([1.5708, 0.    ], dtype=float32)
    """


@unary(curves.atan)
def atan(x: ArrayLike) -> Array:
    """Compute the inverse tangent of each element.

    For real numbers, the result is an angle in [-pi/2, pi/2].

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.atan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7854], dtype=float32)
    """


@unary(curves.sinh)
def sinh(x: ArrayLike) -> Array:
    """Compute the hyperbolic sine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.sinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.1752], dtype=float32)
    """


@unary(curves.cosh)
def cosh(x: ArrayLike) -> Array:
    """Compute the hyperbolic cosine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.cosh(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 1.5431], dtype=float32)
    """


@unary(curves.asinh)
def asinh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic sine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.asinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8814], dtype=float32)
    """


@unary(curves.acosh)
def acosh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic cosine of each element.

    For real numbers below 1, the result is NaN.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.acosh(jnp.array([1.0, 2.0])).round(4)
    Array([0.   , 1.317], dtype=float32)
    """


@unary(curves.atanh)
def atanh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic tangent of each element.

    For real numbers, the result is ±inf at ±1, and NaN outside [-1, 1].

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.atanh(jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.5493], dtype=float32)
    """


@binary(curves.atan2)
def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the angle whose tangent is `x / y`, in the quadrant of the point (y, x).

    The angle is in [-pi, pi]. Note the order of the arguments: the first argument, `x`, is the y
    coordinate of the point.

    Args:
        x: y coordinates of the points.
        y: x coordinates of the points, of the same float or complex dtype as `x`. The shapes must
            be equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.atan2(1.0, jnp.array([1.0, -1.0])).round(4)
    Array([0.7854, 2.3562], dtype=float32)
    """


@unary(curves.one_minus_square)
def one_minus_square(x: ArrayLike) -> Array:
    """Compute `1 - x**2`, accurately even where `x` is close to 1 or -1.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.one_minus_square(jnp.array([0.5, 2.0]))
    Array([ 0.75, -3.  ], dtype=float32)
    """


# ------------------------------------------------------------------------------ special functions

@unary(special.erf)
def erf(x: ArrayLike) -> Array:
    """Compute the error function of each element.

    The error function is the integral of `2 / sqrt(pi) * exp(-t**2)` from 0 to `x`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.erf(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8427], dtype=float32)
    """


@accurate(special.erfc)
def erfc(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `1 - erf(x)`, accurately even where the result is close to 0.

    Args:
        x: array or number of a float dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; it does not change the result.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.erfc(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.1573], dtype=float32)
    """


@unary(special.erf_inv)
def erf_inv(x: ArrayLike) -> Array:
    """Compute the inverse error function of each element.

    The result is ±inf at ±1, and NaN outside [-1, 1].

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.erf_inv(jnp.array([0.0, 0.5, 1.0])).round(4)
    Array([0.    , 0.4769,    inf], dtype=float32)
    """


@unary(special.lgamma)
def lgamma(x: ArrayLike) -> Array:
    """Compute the logarithm of the absolute value of the gamma function at each element.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.lgamma(jnp.array([1.0, 5.0])).round(4)
    Array([0.    , 3.1781], dtype=float32)
    """


@unary(special.digamma)
def digamma(x: ArrayLike) -> Array:
    """Compute the derivative of the logarithm of the gamma function at each element.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.digamma(jnp.array([1.0, 5.0])).round(4)
    Array([-0.5772,  1.5061], dtype=float32)
    """


@unary(special.bessel_i0e)
def bessel_i0e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind of order 0, times `exp(-|x|)`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.bessel_i0e(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.4658], dtype=float32)
    """


@unary(special.bessel_i1e)
def bessel_i1e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind of order 1, times `exp(-|x|)`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.bessel_i1e(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2079], dtype=float32)
    """


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Compute the derivative of order `m` of the digamma function.

    Args:
        m: orders of the derivatives, of a float dtype. The derivative of order 0 is the digamma
            function itself.
        x: points at which to evaluate the derivatives, of the same dtype as `m`. The shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.polygamma(1.0, jnp.array([1.0, 2.0])).round(4)
    Array([1.6449, 0.6449], dtype=float32)
    """
    return apply(special.polygamma, "f", (m, x))


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Compute the Hurwitz zeta function, the sum of `(q + n)**-x` over all integers `n >= 0`.

    Args:
        x: exponents, of a float dtype.
        q: shifts, of the same dtype as `x`. If `q` is 1, the result is the Riemann zeta function.
            The shapes must be equal, except that axes of size 1 and operands of rank 0 are
            broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.zeta(jnp.array([2.0, 4.0]), 1.0).round(4)
    Array([1.6449, 1.0823], dtype=float32)
    """
    return apply(special.zeta, "f", (x, q))


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized lower incomplete gamma function.

    The result is the integral of `t**(a - 1) * exp(-t)` from 0 to `x`, divided by the gamma
    function of `a`. The result equals the probability that a Gamma(a) random variable is less than
    `x`.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: upper limits of the integrals, of the same dtype as `a`. The shapes must be equal, except
            that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.igamma(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.3935, 0.8647], dtype=float32)
    """
    return apply(special.igamma, "f", (a, x))


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized upper incomplete gamma function, `1 - igamma(a, x)`.

    The result is accurate even where it is close to 0.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: lower limits of the integrals that define the function, of the same dtype as `a`. The
            shapes must be equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.igammac(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.6065, 0.1353], dtype=float32)
    """
    return apply(special.igammac, "f", (a, x))


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the derivative of `igamma(a, x)` with respect to `a`.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: upper limits of the integrals in `igamma`, of the same dtype as `a`. The shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.igamma_grad_a(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([-0.4895, -0.2208], dtype=float32)
    """
    return apply(special.igamma_grad_a, "f", (a, x))


def random_gamma_grad(*args: ArrayLike) -> Array:
    """Differentiate samples from a gamma distribution with respect to the shape parameter.

    A sample `x` from Gamma(a) is treated as a function of `a` at a fixed quantile.

    Args:
        args: two operands: the shape parameters `a` and the samples `x`, both of the same float
            dtype. Their shapes must be equal, except that axes of size 1 and operands of rank 0 are
            broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.random_gamma_grad(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.807 , 1.6317], dtype=float32)
    """
    return apply(special.random_gamma_grad, "f", args)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized incomplete beta function.

    The result is the probability that a Beta(a, b) random variable is less than `x`.

    Args:
        a, b: shape parameters, positive numbers of the same float dtype.
        x: numbers in [0, 1], of the same dtype as `a` and `b`. The three shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.betainc(1.0, 2.0, jnp.array([0.25, 0.5])).round(4)
    Array([0.4375, 0.75  ], dtype=float32)
    """
    return apply(special.regularized_incomplete_beta, "f", (a, b, x))
