"""Single operations, forward and backward: inputs, exact results, and code with JAX's names.

`inputs(name, elements)` returns the same arrays for every library. `exact(name, arrays)` computes
the results in float64 with NumPy, to determine each library's error. `jaxlike(lib, name)` returns
the function to jit, which returns all outputs of the forward pass and then all gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import workloads

COLUMNS, EPSILON, RATE, B1, B2, ADAM_EPSILON, STEP = 1024, 1e-6, 1e-3, 0.9, 0.999, 1e-8, 10
NAMES = ("softmax", "layer norm", "gelu tanh", "gelu erf", "adam", "cross-entropy")


def inputs(name: str, elements: int) -> list[np.ndarray]:
    """The arguments of an operation; the first array has `elements` elements, in rows of 1,024."""
    random = np.random.RandomState(0)
    shape = (max(1, elements // COLUMNS), COLUMNS)
    normal = lambda *s: random.standard_normal(s).astype("f4")
    if name == "cross-entropy":
        return [3 * normal(*shape), random.randint(0, COLUMNS, shape[0]).astype("i4")]
    if name == "layer norm":
        return [normal(*shape) + 0.5, 1 + 0.1 * normal(COLUMNS), normal(COLUMNS), normal(*shape)]
    if name == "adam":  # parameters, gradients, means, means of squares
        return [normal(*shape), normal(*shape), 0.1 * normal(*shape), normal(*shape) ** 2]
    return [2 * normal(*shape), normal(*shape)]


def _softmax(x: np.ndarray) -> np.ndarray:
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def _gelu(x: np.ndarray, tanh: bool) -> tuple[np.ndarray, np.ndarray]:
    """The value and the derivative."""
    if tanh:  # y = x (1 + tanh u) / 2 with u = c (x + a x^3)
        c, a = np.sqrt(2 / np.pi), 0.044715
        t = np.tanh(c * (x + a * x**3))
        return x * (1 + t) / 2, (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * a * x * x)
    from scipy.special import ndtr

    # y = x Phi(x), y' = Phi + x phi
    return x * ndtr(x), ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, ct: np.ndarray) -> list:
    deviation = np.sqrt(x.var(-1, keepdims=True) + EPSILON)
    n = (x - x.mean(-1, keepdims=True)) / deviation
    g = ct * scale
    dx = g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)
    return [n * scale + bias, dx / deviation, (ct * n).sum(0), ct.sum(0)]


def exact(name: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs and gradients in float64."""
    x, *rest = (a.astype("f8") if a.dtype.kind == "f" else a for a in arrays)
    if name == "softmax":
        y = _softmax(x)
        return [y, y * (rest[0] - (rest[0] * y).sum(-1, keepdims=True))]
    if name == "layer norm":
        return _layer_norm(x, *rest)
    if name.startswith("gelu"):
        y, slope = _gelu(x, name == "gelu tanh")
        return [y, slope * rest[0]]
    if name == "adam":
        g, mu, nu = rest
        mu, nu = B1 * mu + (1 - B1) * g, B2 * nu + (1 - B2) * g * g
        mean, square = mu / (1 - B1**STEP), nu / (1 - B2**STEP)
        return [x - RATE * mean / (np.sqrt(square) + ADAM_EPSILON), mu, nu]
    y, rows = _softmax(x), np.arange(len(x))
    loss = -np.log(y[rows, rest[0]]).mean()
    y[rows, rest[0]] -= 1
    return [np.asarray(loss), y / len(x)]


def errors(name: str, arrays: Sequence[np.ndarray], got: Sequence[Any]) -> list[float]:
    """The largest error of each output, as a fraction of the output's largest exact value."""
    found = []
    for want, have in zip(exact(name, arrays), got, strict=True):
        difference = np.abs(np.asarray(have).astype("f8") - want).max()
        found.append(float(difference / np.abs(want).max()))
    return found


def jaxlike(lib: Any, name: str) -> Callable[..., tuple[Any, ...]]:
    """A function to jit that computes the operation and its gradients with JAX's names."""
    jax, jnp, nn = lib.jax, lib.jnp, lib.nn

    def layer_norm(x: Any, scale: Any, bias: Any, ct: Any) -> tuple[Any, ...]:
        norm = nn.LayerNorm(epsilon=EPSILON)
        apply = lambda x, scale, bias: norm.apply({"params": {"scale": scale, "bias": bias}}, x)
        y, pullback = jax.vjp(apply, x, scale, bias)
        return y, *pullback(ct)

    def cross_entropy(x: Any, labels: Any) -> tuple[Any, ...]:
        return jax.value_and_grad(lambda x: workloads.cross_entropy(lib, x, labels))(x)

    def adam(p: Any, g: Any, mu: Any, nu: Any, step: Any) -> tuple[Any, ...]:
        t = (step + 1).astype(jnp.float32)
        mu, nu = B1 * mu + (1 - B1) * g, B2 * nu + (1 - B2) * g * g
        # Computes 1 - b^t accurately; subtracting from 1 in float32 would lose most of the digits.
        c1, c2 = (-jnp.expm1(t * math.log(b)) for b in (B1, B2))
        p = p - RATE * (mu / c1) / (jnp.sqrt(nu / c2) + ADAM_EPSILON)
        return p, mu, nu

    def unary(function: Callable[[Any], Any]) -> Callable[..., tuple[Any, ...]]:
        def both(x: Any, ct: Any) -> tuple[Any, ...]:
            y, pullback = jax.vjp(function, x)
            return y, *pullback(ct)

        return both

    return {
        "softmax": unary(jax.nn.softmax),
        "gelu tanh": unary(lambda x: jax.nn.gelu(x, approximate=True)),
        "gelu erf": unary(lambda x: jax.nn.gelu(x, approximate=False)),
        "layer norm": layer_norm,
        "cross-entropy": cross_entropy,
        "adam": adam,
    }[name]
