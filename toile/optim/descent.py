"""Optimizers that take steps along the gradient: with momentum, noise, signs or a line search."""

from __future__ import annotations

from typing import Any

from toile.optim import base
from toile.optim.accumulation import ema, trace
from toile.optim.adaptive import scale_by_rprop
from toile.optim.adding import add_noise, key_or_seed
from toile.optim.base import ArrayLike
from toile.optim.combining import chain
from toile.optim.quasi_newton import scale_by_lbfgs
from toile.optim.scaling import (
    scale,
    scale_by_learning_rate,
    scale_by_optimistic_gradient,
    scale_by_polyak,
    scale_by_sign,
)
from toile.optim.zoom import scale_by_zoom_linesearch

__all__ = [
    "lbfgs", "noisy_sgd", "optimistic_gradient_descent", "polyak_sgd", "rprop", "sgd", "sign_sgd",
    "signum",
]  # fmt: skip

Rate = base.ScalarOrSchedule
Optimizer = base.GradientTransformationExtraArgs


def sgd(
    learning_rate: Rate, momentum: ArrayLike | None = None, nesterov: bool = False,
    accumulator_dtype: Any | None = None,
) -> Optimizer:
    """Gradient descent, with momentum if given.

    >>> import toile
    >>> import toile.numpy as jnp
    >>> from toile import optim
    >>> loss = lambda w: jnp.sum(w**2)
    >>> tx, w = optim.sgd(0.25), jnp.array([1.0, 2.0])
    >>> state = tx.init(w)
    >>> for _ in range(3):
    ...     updates, state = tx.update(toile.grad(loss)(w), state)
    ...     w = optim.apply_updates(w, updates)
    >>> print(w)
    [0.125 0.25 ]
    """
    push = (
        base.identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    )
    return chain(push, scale_by_learning_rate(learning_rate))


def noisy_sgd(
    learning_rate: Rate, eta: ArrayLike = 0.01, gamma: ArrayLike = 0.55,
    key: ArrayLike | None = None, *, seed: int | None = None,
) -> Optimizer:
    """Gradient descent with noise of variance eta / tᵞ at step t."""
    noise = add_noise(eta, gamma, key_or_seed("noisy_sgd", key, seed))
    return chain(noise, scale_by_learning_rate(learning_rate))


def sign_sgd(learning_rate: Rate) -> Optimizer:
    """Gradient descent by signs."""
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(
    learning_rate: Rate, beta: ArrayLike = 0.9, accumulator_dtype: Any | None = None
) -> Optimizer:
    """Gradient descent by the signs of the average gradient."""
    average = ema(beta, debias=False, accumulator_dtype=accumulator_dtype)
    return chain(average, scale_by_sign(), scale_by_learning_rate(learning_rate))


def rprop(
    learning_rate: ArrayLike, eta_minus: ArrayLike = 0.5, eta_plus: ArrayLike = 1.2,
    min_step_size: ArrayLike = 1e-6, max_step_size: ArrayLike = 50.0,
) -> Optimizer:
    """Rprop (Riedmiller and Braun, 1993), for gradients of the whole data."""
    steps = scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size)
    return chain(steps, scale(-1.0))


def optimistic_gradient_descent(
    learning_rate: Rate, alpha: Rate = 1.0, beta: Rate = 1.0
) -> Optimizer:
    """Optimistic gradient descent (Mokhtari et al., 2019), for games."""
    step = scale_by_optimistic_gradient(alpha, beta)
    return chain(step, scale_by_learning_rate(learning_rate))


def polyak_sgd(
    max_learning_rate: ArrayLike = 1.0, scaling: Rate = 1.0, f_min: ArrayLike = 0.0,
    eps: ArrayLike = 0.0, variant: str = "sps",
) -> Optimizer:
    """Gradient descent with Polyak's step size; update takes `value`, the loss."""
    return chain(sgd(scaling), scale_by_polyak(f_min, max_learning_rate, eps, variant))


_ZOOM = scale_by_zoom_linesearch(max_linesearch_steps=20, initial_guess_strategy="one")


def lbfgs(
    learning_rate: Rate | None = None, memory_size: int = 10, scale_init_precond: bool = True,
    linesearch: base.GradientTransformation | None = _ZOOM,
) -> Optimizer:
    """L-BFGS with a line search; update takes value, grad and value_fn."""
    rate = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    search = base.identity() if linesearch is None else linesearch
    return chain(scale_by_lbfgs(memory_size, scale_init_precond), rate, search)
