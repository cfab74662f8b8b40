"""Gradient descent, with momentum, and with momentum and layer-wise rates (LARS)."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import struct
from toile.optim.classic.base import OptimizerDef
from toile.optim.classic.rules import is_off, learning_rate_of

__all__ = ["LARS", "GradientDescent", "Momentum"]


@struct.dataclass
class GradientDescentHyperParams:
    """What `GradientDescent` is given."""

    learning_rate: Any


class GradientDescent(OptimizerDef):
    """Parameters minus learning_rate times gradients.

    >>> optimizer = GradientDescent(learning_rate=0.5).create(jnp.array(1.0))
    >>> float(optimizer.apply_gradient(jnp.array(1.0)).target)
    0.5
    """

    def __init__(self, learning_rate: Any = None) -> None:
        super().__init__(GradientDescentHyperParams(learning_rate))

    def init_param_state(self, param: Any) -> Any:
        return ()

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        return param - learning_rate_of(self, hyper_params) * grad, state


@struct.dataclass
class MomentumHyperParams:
    """What `Momentum` is given."""

    learning_rate: Any
    beta: Any
    weight_decay: Any
    nesterov: bool


@struct.dataclass
class MomentumParamState:
    """The momentum of a parameter."""

    momentum: Any


def _moved(grad: Any, momentum: Any, beta: Any, nesterov: bool) -> tuple[Any, Any]:
    """The direction of the step and the new momentum."""
    momentum = beta * momentum + grad
    return (grad + beta * momentum if nesterov else momentum), momentum


class Momentum(OptimizerDef):
    """Gradient descent along `m = beta m + g`, or `g + beta m` with nesterov.

    weight_decay times the parameter is added to the gradient.
    """

    def __init__(
        self, learning_rate: Any = None, beta: Any = 0.9, weight_decay: Any = 0,
        nesterov: bool = False,
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
    """What `LARS` is given."""

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
    """Momentum with the rate times `trust |p| / (|g| + decay |p| + eps)`, 1 if a norm is 0.

    See https://arxiv.org/abs/1708.03888. The rate is inside the momentum.
    """

    def __init__(
        self, learning_rate: Any = None, beta: Any = 0.9, weight_decay: Any = 0,
        trust_coefficient: Any = 0.001, eps: Any = 0, nesterov: bool = False,
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
