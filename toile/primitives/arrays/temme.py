"""Temme's uniform expansion of the incomplete gamma functions, for large parameters.

With λ = x / a, η²/2 = λ - 1 - log λ and the sign of η that of λ - 1, the upper function is
Q(a, x) = erfc(η √(a/2)) / 2 + exp(-a η²/2) / √(2πa) S(a, η), S = Σ cₖ(η) / aᵏ.
Eager operations and compiled kernels share the coefficients.
"""

import functools
from types import ModuleType
from typing import Any

LEAST, WIDTH = 20.0, 0.4  # used where a > LEAST and |x - a| < WIDTH a
_ETA = 0.48  # |η| is smaller there
_MOST = 64  # coefficients of each series


@functools.cache
def expansion(digits: float, least: float = LEAST) -> list[list[float]]:
    """The coefficients of each cₖ, leading one first, that matter for a > least.

    c₀ = 1/μ - 1/η with μ = λ - 1, and cₖ = c'ₖ₋₁ / η + g / μ, where g keeps cₖ finite at 0."""
    mu = [0.0, 1.0]  # of μ in powers of η, from μ μ' = η (1 + μ)
    for i in range(2, _MOST + 2):
        inner = sum(mu[j] * mu[i + 1 - j] for j in range(2, i))
        mu.append(mu[i - 1] / (i + 1) - inner / 2)
    ratio = [1.0]  # of η / μ
    for i in range(1, _MOST + 1):
        ratio.append(-sum(mu[j + 1] * ratio[i - j] for j in range(1, i + 1)))
    c = ratio[1:]
    out: list[list[float]] = []
    while True:
        needed = [i for i, v in enumerate(c) if abs(v) * _ETA**i / least ** len(out) > digits]
        if not needed:
            return out
        out.append(c[: needed[-1] + 1][::-1])
        c = [(i + 2) * c[i + 2] - c[1] * ratio[i + 1] for i in range(len(c) - 2)]


def derivative(c: list[float]) -> list[float]:
    """The coefficients of a polynomial's derivative."""
    return [v * (len(c) - 1 - i) for i, v in enumerate(c[:-1])] or [0.0]


def slope(xp: ModuleType, a: Any, x: Any) -> Any:
    """The derivative dx/da of a Gamma(a) sample x at a fixed quantile. It is a quotient of two
    derivatives of the distribution function, whose common exponential factor cancels, which leaves
    λ Γ* (log λ / η + S log λ - S / 2a + ∂S/∂a), with Γ* = Γ(a) / (aᵃ e⁻ᵃ √(2π / a))."""
    w, mu = 1 / a, (x - a) / a
    log = xp.log1p(mu)
    series = xp.polyval(xp.asarray([(-1.0) ** n / n for n in range(12, 1, -1)]), mu) * mu * mu
    eta = xp.sign(mu) * xp.sqrt(2 * xp.where(xp.abs(mu) < 0.02, series, mu - log))
    safe = xp.where(eta == 0, 1.0, eta)
    total = weighted = moved = xp.zeros_like(a)
    for k, c in reversed(list(enumerate(expansion(1e-17)))):
        here = xp.polyval(xp.asarray(c), eta)
        total, weighted = total * w + here, weighted * w + k * here
        moved = moved * w + xp.polyval(xp.asarray(derivative(c)), eta)
    moved = moved * xp.where(eta == 0, 1.0, mu / safe)  # ∂η/∂a = -μ / (a η)
    y = xp.where(eta == 0, 1.0, log / safe) + total * log - w * (total / 2 + weighted + moved)
    stirling = w * xp.polyval(xp.asarray([1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]), w * w)
    return (1 + mu) * xp.exp(stirling) * y
