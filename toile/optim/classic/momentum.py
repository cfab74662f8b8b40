"""Gradient descent, momentum, and momentum with a separate learning rate for each array (LARS)."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import struct
from toile.optim.base import ArrayLike
from toile.optim.classic.base import OptimizerDef
from toile.optim.classic.rules import is_off, learning_rate_of

__all__ = ["LARS", "GradientDescent", "Momentum"]


@struct.dataclass
class GradientDescentHyperParams:
    """The hyperparameters of `GradientDescent`."""

    learning_rate: Any


class GradientDescent(OptimizerDef):
    """Gradient descent, which moves a parameter with gradient `g` by `-learning_rate * g`.

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.

    >>> from toile import optim
    >>> optimizer = optim.GradientDescent(learning_rate=0.5).create(jnp.array([1.0]))
    >>> optimizer.apply_gradient(jnp.array([1.0])).target
    Array([0.5], dtype=float32)
    """

    def __init__(self, learning_rate: ArrayLike | None = None) -> None:
        super().__init__(GradientDescentHyperParams(learning_rate))

    def init_param_state(self, param: Any) -> Any:
        return ()

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        return param - learning_rate_of(self, hyper_params) * grad, state


@struct.dataclass
class MomentumHyperParams:
    """The hyperparameters of `Momentum`."""

    learning_rate: Any
    beta: Any
    weight_decay: Any
    nesterov: bool


@struct.dataclass
class MomentumParamState:
    """The momentum of a parameter."""

    momentum: Any


def _moved(grad: Any, momentum: Any, beta: Any, nesterov: bool) -> tuple[Any, Any]:
    """Return the direction of the step and the new momentum."""
    momentum = beta * momentum + grad
    return (grad + beta * momentum if nesterov else momentum), momentum


class Momentum(OptimizerDef):
    """Gradient descent with momentum.

    For a gradient `g`, the momentum becomes `m = beta * m + g`, and the parameter moves by
    `-learning_rate * m`.

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta: decay rate of the momentum.
        weight_decay: strength of the weight decay; `weight_decay * p` is added to the gradient of a
            parameter `p`, which has the effect of a penalty on the squared norm of `p`.
        nesterov: whether to use Nesterov momentum, which moves along `g + beta * m`.

    >>> from toile import optim
    >>> optimizer = optim.Momentum(learning_rate=0.5, beta=0.5).create(jnp.array([1.0]))
    >>> for _ in range(2):
    ...     optimizer = optimizer.apply_gradient(jnp.array([1.0]))
    ...     print(optimizer.target)
    [0.5]
    [-0.25]
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta: ArrayLike = 0.9,
        weight_decay: ArrayLike = 0, nesterov: bool = False,
    ) -> None:
        super().__init__(MomentumHyperParams(learning_rate, beta, weight_decay, nesterov))

    def init_param_state(self, param: Any) -> Any:
        return MomentumParamState(jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        rate = learning_rate_of(self, hyper_params)
        if not is_off(hyper_params.weight_decay):
            grad = grad + hyper_params.weight_decay * param
        move, momentum = _moved(grad, state.momentum, hyper_params.beta, hyper_params.nesterov)
        return param - rate * move, MomentumParamState(momentum)


@struct.dataclass
class LARSHyperParams:
    """The hyperparameters of `LARS`."""

    learning_rate: Any
    beta: Any
    weight_decay: Any
    trust_coefficient: Any
    eps: Any
    nesterov: bool


@struct.dataclass
class LARSParamState:
    """The momentum of a parameter."""

    momentum: Any


class LARS(OptimizerDef):
    """LARS: a variant of momentum whose step for each array is proportional to the array's norm.

    For an array `p` with gradient `g`, the learning rate is multiplied by
    `trust_coefficient * norm(p) / (norm(g) + weight_decay * norm(p) + eps)`, or by 1 if one of the
    norms is 0. Let `r` be the resulting learning rate. The momentum becomes
    `m = beta * m + r * (g + weight_decay * p)`, and the array becomes `p - m` (You et al., 2017).

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta: decay rate of the momentum.
        weight_decay: strength of the weight decay; `weight_decay * p` is added to the gradient.
        trust_coefficient: factor by which the ratio of norms is multiplied.
        eps: small number added to the denominator of the ratio.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.

    >>> from toile import optim
    >>> definition = optim.LARS(learning_rate=1.0, trust_coefficient=0.1)
    >>> optimizer = definition.create(jnp.array([3.0, 4.0]))
    >>> optimizer.apply_gradient(jnp.array([1.0, 0.0])).target
    Array([2.5, 4. ], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta: ArrayLike = 0.9,
        weight_decay: ArrayLike = 0, trust_coefficient: ArrayLike = 0.001, eps: ArrayLike = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(
            LARSHyperParams(learning_rate, beta, weight_decay, trust_coefficient, eps, nesterov)
        )

    def init_param_state(self, param: Any) -> Any:
        return LARSParamState(jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp = hyper_params
        param_norm, grad_norm = jnp.linalg.norm(param), jnp.linalg.norm(grad)
        trust = hp.trust_coefficient * param_norm
        trust = trust / (grad_norm + hp.weight_decay * param_norm + hp.eps)
        zero = jnp.logical_or(grad_norm == 0.0, param_norm == 0.0)
        rate = learning_rate_of(self, hp) * jnp.where(zero, 1.0, trust)
        if not is_off(hp.weight_decay):
            grad = grad + hp.weight_decay * param
        move, momentum = _moved(rate * grad, state.momentum, hp.beta, hp.nesterov)
        return param - move, LARSParamState(momentum)
