"""Gradient descent and its variants, with momentum, noise, signs or a line search."""

from __future__ import annotations

from typing import Literal

from toile.engine.trace import Array
from toile.optim import base
from toile.optim.accumulation import ema, trace
from toile.optim.adaptive import scale_by_rprop
from toile.optim.adding import add_noise, key_or_seed
from toile.optim.base import ArrayLike, GradientTransformationExtraArgs, ScalarOrSchedule
from toile.optim.combining import chain
from toile.optim.quasi_newton import scale_by_lbfgs
from toile.optim.recorded_hyperparams import recording
from toile.optim.scaling import (
    scale,
    scale_by_learning_rate,
    scale_by_optimistic_gradient,
    scale_by_polyak,
    scale_by_sign,
)
from toile.optim.zoom import scale_by_zoom_linesearch
from toile.typing import DTypeLike

__all__ = [
    "lbfgs", "noisy_sgd", "optimistic_gradient_descent", "polyak_sgd", "rprop", "sgd", "sign_sgd",
    "signum",
]  # fmt: skip


def sgd(
    learning_rate: ScalarOrSchedule, momentum: ArrayLike | None = None, nesterov: bool = False,
    accumulator_dtype: DTypeLike | None = None,
) -> GradientTransformationExtraArgs:
    """Gradient descent, optionally with momentum.

    A parameter with gradient `g` moves by `-learning_rate * g`. With momentum, the accumulated
    update becomes `v = momentum * v + g`, and the parameter moves by `-learning_rate * v`. With
    Nesterov momentum, the parameter moves by `-learning_rate * (g + momentum * v)`.

    Args:
        learning_rate: step size, a number or a schedule; typical values are 0.01 to 0.1.
        momentum: decay rate of the accumulated updates, usually 0.9. If None, there is no momentum.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.
        accumulator_dtype: dtype in which the accumulated values are stored. If `accumulator_dtype`
            is None, the dtype of the parameters is used.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum(w**2)
    >>> tx, w = optim.sgd(0.25), jnp.array([1.0, 2.0])
    >>> state = tx.init(w)
    >>> for _ in range(3):
    ...     updates, state = tx.update(toile.grad(loss)(w), state)
    ...     w = optim.apply_updates(w, updates)
    >>> w
    Array([0.125, 0.25 ], dtype=float32)
    """
    push = (
        base.identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    )
    return chain(push, scale_by_learning_rate(learning_rate))


def noisy_sgd(
    learning_rate: ScalarOrSchedule, eta: ArrayLike = 0.01, gamma: ArrayLike = 0.55,
    key: Array | int | None = None, *, seed: int | None = None,
) -> GradientTransformationExtraArgs:
    """Gradient descent with Gaussian noise whose variance is `eta / t**gamma` at step `t`.

    A parameter with gradient `g` moves by `-learning_rate * (g + noise)` (Neelakantan et al.,
    2015).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).
        eta: variance of the noise in the first step.
        gamma: exponent that determines how fast the variance decreases. 0.55 is a typical value;
            with 0, the variance is constant.
        key: random key, or an integer seed. If None, the seed is 0 and a warning is issued.
        seed: older name for `key` (deprecated).

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.noisy_sgd(0.5, eta=1e-8, key=0), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([1.0, -1.0]), tx.init(params))
    >>> updates.round(2)
    Array([-0.5,  0.5], dtype=float32)
    """
    noise = add_noise(eta, gamma, key_or_seed("noisy_sgd", key, seed))
    return chain(noise, scale_by_learning_rate(learning_rate))


def sign_sgd(learning_rate: ScalarOrSchedule) -> GradientTransformationExtraArgs:
    """Gradient descent that uses only the sign of each gradient element.

    A parameter with gradient `g` moves by `-learning_rate * sign(g)` (Bernstein et al., 2018).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.sign_sgd(0.5), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params))
    >>> updates
    Array([-0.5,  0.5], dtype=float32)
    """
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(
    learning_rate: ScalarOrSchedule, beta: ArrayLike = 0.9,
    accumulator_dtype: DTypeLike | None = None,
) -> GradientTransformationExtraArgs:
    """Gradient descent that uses only the sign of the average gradient.

    For a gradient `g`, the average becomes `m = beta * m + (1 - beta) * g`, and the parameter moves
    by `-learning_rate * sign(m)`.

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).
        beta: decay rate of the average of gradients; values closer to 1 average over more steps.
        accumulator_dtype: dtype in which the average is stored. If `accumulator_dtype` is None, the
            dtype of the parameters is used.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.signum(0.5), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for grad in (5.0, -0.1):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates)
    [-0.5]
    [-0.5]
    """
    average = ema(beta, debias=False, accumulator_dtype=accumulator_dtype)
    return chain(average, scale_by_sign(), scale_by_learning_rate(learning_rate))


def rprop(
    learning_rate: ArrayLike, eta_minus: ArrayLike = 0.5, eta_plus: ArrayLike = 1.2,
    min_step_size: ArrayLike = 1e-6, max_step_size: ArrayLike = 50.0,
) -> GradientTransformationExtraArgs:
    """Rprop, which adapts a step size for each element and uses only the signs of the gradients.

    The step size of an element is multiplied by `eta_plus` while the sign of its gradient stays the
    same, and by `eta_minus` when the sign changes. Compute gradients on the whole data set, not on
    small batches (Riedmiller and Braun, 1993). `update` returns the step computed in the previous
    call, so the first result is zero. If the sign of an element's gradient changes in a call,
    `update` returns 0 for that element in this call and in the next, and the next call leaves the
    element's step size unchanged.

    Args:
        learning_rate: initial step size of each element.
        eta_minus: factor by which the step size is multiplied when the sign changes; less than 1.
        eta_plus: factor by which the step size is multiplied when the sign stays the same; greater
            than 1.
        min_step_size: minimum step size.
        max_step_size: maximum step size.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.rprop(0.1), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.array([7.0]), state)
    ...     print(updates.round(3))
    [-0.]
    [-0.1]
    [-0.12]
    """
    steps = scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size)
    return chain(steps, scale(-1.0))


def optimistic_gradient_descent(
    learning_rate: ScalarOrSchedule, alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0
) -> GradientTransformationExtraArgs:
    """Optimistic gradient descent, which extrapolates changes in the gradient; used for games.

    A parameter with gradient `g` moves by `-learning_rate * ((alpha + beta) * g - beta * g')`,
    where `g'` is the gradient in the previous step. In the first step, `g'` is `g`. In games, where
    each player minimizes a different loss, the extrapolation damps cycles (Mokhtari et al., 2019).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).
        alpha: weight of the gradient.
        beta: weight of the change in the gradient.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.optimistic_gradient_descent(0.5), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for grad in (2.0, 1.5):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates)
    [-1.]
    [-0.5]
    """
    step = scale_by_optimistic_gradient(alpha, beta)
    return chain(step, scale_by_learning_rate(learning_rate))


def polyak_sgd(
    max_learning_rate: ArrayLike = 1.0, scaling: ScalarOrSchedule = 1.0, f_min: ArrayLike = 0.0,
    eps: ArrayLike = 0.0, variant: Literal["sps", "sps+"] = "sps",
) -> GradientTransformationExtraArgs:
    """Gradient descent with Polyak's step size, which is computed from the loss.

    A parameter with gradient `g` moves by `-s * u`, where `u = scaling * g` and
    `s = min((loss - f_min) / (norm(u)**2 + eps), max_learning_rate)`. With `scaling=1`, this step
    would reach `f_min` if the loss were linear. Pass the loss to `update` as the keyword argument
    `value`.

    Args:
        max_learning_rate: maximum step size `s`.
        scaling: factor by which gradients are multiplied, a number or a schedule.
        f_min: smallest value that the loss can have. Use 0 for models that can fit the data
            exactly.
        eps: small number added to the squared norm.
        variant: "sps" or "sps+". If the loss is less than `f_min`, "sps" steps uphill, while "sps+"
            does not move.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the keyword argument `value`.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum(w**2)
    >>> tx, w = optim.polyak_sgd(), jnp.array([1.0, 2.0])
    >>> value, grad = toile.value_and_grad(loss)(w)
    >>> updates, state = tx.update(grad, tx.init(w), w, value=value)
    >>> optim.apply_updates(w, updates)
    Array([0.5, 1. ], dtype=float32)
    """
    return chain(sgd(scaling), scale_by_polyak(f_min, max_learning_rate, eps, variant))


_ZOOM = scale_by_zoom_linesearch(max_linesearch_steps=20, initial_guess_strategy="one")


def lbfgs(
    learning_rate: ScalarOrSchedule | None = None, memory_size: int = 10,
    scale_init_precond: bool = True, linesearch: base.GradientTransformation | None = _ZOOM,
) -> GradientTransformationExtraArgs:
    """L-BFGS, which uses an estimate of the inverse Hessian, usually with a line search.

    The direction is `-H @ g`, where `g` is the gradient and `H` is the estimate of the inverse
    Hessian, computed from the changes in parameters and gradients over the last `memory_size` steps
    (Liu and Nocedal, 1989). The line search finds the step size. L-BFGS is suited to losses
    that are computed from all the data, without noise. For the line search, pass the loss, its
    gradient and the loss function to `update` as the keyword arguments `value`, `grad` and
    `value_fn`.

    Args:
        learning_rate: factor by which the direction is multiplied before the line search, a number
            or a schedule. The default is 1.
        memory_size: number of past steps used in the estimate, at least 1.
        scale_init_precond: if True, the estimate starts from a multiple of the identity that fits
            the last step; if False, it starts from the identity.
        linesearch: transformation that scales the direction; if None, there is no line search. The
            default is `scale_by_zoom_linesearch` with at most 20 steps and an initial step size of
            1.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum((w - 3.0) ** 2)
    >>> tx, w = optim.lbfgs(), jnp.array([1.0, 2.0])
    >>> state = tx.init(w)
    >>> for _ in range(3):
    ...     value, grad = toile.value_and_grad(loss)(w)
    ...     updates, state = tx.update(grad, state, w, value=value, grad=grad, value_fn=loss)
    ...     w = optim.apply_updates(w, updates)
    >>> w.round(3)
    Array([3., 3.], dtype=float32)
    """
    rate = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    search = base.identity() if linesearch is None else linesearch
    return chain(scale_by_lbfgs(memory_size, scale_init_precond), rate, search)


for _name in ("optimistic_gradient_descent", "rprop", "sgd", "sign_sgd", "signum"):
    globals()[_name] = recording(globals()[_name])  # `get_hyperparams` reads their arguments
