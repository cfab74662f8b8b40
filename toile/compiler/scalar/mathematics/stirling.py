"""Γ by Stirling's series, for functions that have it as a factor.

In xᵃ e⁻ˣ / Γ(a), the numerator and the denominator are huge, but their quotient is not. To lose no
digits, the logarithms that are computed are those of ratios, such as x / a. All numbers are
float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.exponential import FORMS, LOG_DOUBLE, split
from toile.compiler.scalar.mathematics.gamma import SERIES, SLOPES

RAISED = 8  # parameters below this are raised by this, for Stirling's series


def log_near(k: Arithmetic, ratio: Value, excess: Value) -> tuple[Value, Value]:
    """log r and log r - (r - 1) for positive r, given r - 1, which near 1 is more exact than r."""
    form = FORMS[FLOAT64]
    f, e = split(k, ratio)
    f = k.select(k.eq(e, 0.0), excess, f)
    s = k.div(f, k.add(f, 2.0))
    z = k.mul(s, s)
    rest = k.mul(z, k.pairwise(z, LOG_DOUBLE))
    half = k.mul(k.mul(f, f), 0.5)
    small = k.fma(s, k.add(half, rest), k.mul(e, form.log2_low))
    less = k.sub(half, small)  # log(1 + f) = f - less
    high = k.mul(e, form.log2_high)
    y = k.sub(high, k.sub(less, f))
    return y, k.select(k.eq(e, 0.0), k.neg(less), k.sub(y, excess))


class Raised(NamedTuple):
    """A parameter v > 0, raised to z >= 8 so that Stirling's series gives Γ(v)."""

    small: Value  # whether z = v + 8, otherwise z = v
    z: Value
    inverse: Value  # 1 / z
    stirling: Value  # log Γ(z) - ((z - 1/2) log z - z + log(2π) / 2), plus v + 8 - z if small
    factor: Value  # 1 / Γ(v + 1) = factor √(z / 2π) z⁻ᵛ exp(v - stirling)
    slope: Value  # log z - ψ(v + 1)


def raised(k: Arithmetic, v: Value) -> Raised:
    """The numbers that depend on a parameter only."""
    small = k.lt(v, float(RAISED))
    near = k.select(small, v, 1.0)
    product, slopes = k.add(near, 1.0), k.constant(1.0, FLOAT64)  # slopes / product = Σ 1 / (v + i)
    for i in range(2, RAISED):
        term = k.add(near, float(i))
        slopes = k.fma(slopes, term, product)
        product = k.mul(product, term)
    z = k.select(small, k.add(v, float(RAISED)), v)
    w = k.div(1.0, z)
    square = k.mul(w, w)
    fourth = k.mul(square, square)
    lifted = k.mul(k.mul(product, math.exp(RAISED)), k.mul(fourth, fourth))
    inexact = k.fma(k.neg(z), w, 1.0)  # the eighth power is inexact by eight times this
    lifted = k.fma(lifted, k.mul(inexact, float(RAISED)), lifted)
    lost = k.select(small, k.sub(v, k.sub(z, float(RAISED))), 0.0)
    stirling = k.fma(w, k.pairwise(square, SERIES), lost)
    # ψ(z) = log z - 1/(2z) - ...; ψ(v + 1) = ψ(v + 8) - Σ, or ψ(v) + 1/v
    slope = k.add(k.fma(square, k.pairwise(square, SLOPES), k.mul(w, 0.5)),
                  k.select(small, k.div(slopes, product), k.neg(w)))
    return Raised(small, z, w, stirling, k.select(small, lifted, w), slope)
