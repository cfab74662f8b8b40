"""Optimizers that adapt to the size of past gradients: Adagrad, Adadelta and RMSProp."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import struct
from toile.optim.base import ArrayLike
from toile.optim.classic.base import OptimizerDef
from toile.optim.classic.rules import learning_rate_of

__all__ = ["Adadelta", "Adagrad", "RMSProp"]


@struct.dataclass
class AdagradHyperParams:
    """The hyperparameters of `Adagrad`."""

    learning_rate: Any
    eps: Any


@struct.dataclass
class AdagradParamState:
    """The sum of a parameter's squared gradients."""

    G: Any


class Adagrad(OptimizerDef):
    """Adagrad, which divides gradients by the square root of the sum of their squares so far.

    For a gradient `g`, the sum becomes `s = s + g²`, and the parameter moves by
    `-learning_rate * g / (sqrt(s) + eps)` (Duchi et al., 2011). The sum starts at 0.

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        eps: small number added to the square root to avoid division by zero.

    >>> from toile import optim
    >>> optimizer = optim.Adagrad(learning_rate=0.5).create(jnp.array([1.0]))
    >>> optimizer.apply_gradient(jnp.array([4.0])).target
    Array([0.5], dtype=float32)
    """

    def __init__(self, learning_rate: ArrayLike | None = None, eps: ArrayLike = 1e-8) -> None:
        super().__init__(AdagradHyperParams(learning_rate, eps))

    def init_param_state(self, param: Any) -> Any:
        return AdagradParamState(jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        squares = state.G + jnp.square(grad)
        rate = learning_rate_of(self, hyper_params)
        moved = param - rate * grad / (jnp.sqrt(squares) + hyper_params.eps)
        return moved, AdagradParamState(squares)


@struct.dataclass
class AdadeltaHyperParams:
    """The hyperparameters of `Adadelta`."""

    learning_rate: Any
    rho: Any
    eps: Any
    weight_decay: Any


@struct.dataclass
class AdadeltaParamState:
    """Moving averages of a parameter's squared gradients and squared steps."""

    sq_avg: Any
    acc_delta: Any


class Adadelta(OptimizerDef):
    """Adadelta, whose steps are proportional to the size of earlier steps.

    For a gradient `g`, the step is `u = sqrt(d + eps) / sqrt(v + eps) * g`, where `v` is the moving
    average of `g²` and `d` is the moving average of `u²` over the earlier steps. A parameter `p`
    moves by `-learning_rate * (u + weight_decay * p)` (Zeiler, 2012).

    Args:
        learning_rate: factor by which steps are multiplied; 1.0 gives the published rule. If None,
            the learning rate must be passed to `apply_gradient` in each step.
        rho: decay rate of both averages.
        eps: small number added under both square roots; it determines the size of the first steps.
        weight_decay: strength of the weight decay, which is multiplied by the learning rate.

    >>> from toile import optim
    >>> optimizer = optim.Adadelta(learning_rate=1.0, eps=0.01).create(jnp.array([1.0]))
    >>> optimizer.apply_gradient(jnp.array([4.0])).target.round(3)
    Array([0.685], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, rho: ArrayLike = 0.9, eps: ArrayLike = 1e-6,
        weight_decay: ArrayLike = 0.0,
    ) -> None:
        super().__init__(AdadeltaHyperParams(learning_rate, rho, eps, weight_decay))

    def init_param_state(self, param: Any) -> Any:
        return AdadeltaParamState(jnp.zeros_like(param), jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp, rate = hyper_params, learning_rate_of(self, hyper_params)
        decayed = lambda mean, x: hp.rho * mean + jnp.square(x) * (1 - hp.rho)
        squares = decayed(state.sq_avg, grad)
        delta = jnp.sqrt(state.acc_delta + hp.eps) / jnp.sqrt(squares + hp.eps) * grad
        moved = param - rate * delta
        moved = moved - rate * hp.weight_decay * param
        return moved, AdadeltaParamState(squares, decayed(state.acc_delta, delta))


@struct.dataclass
class RMSPropHyperParams:
    """The hyperparameters of `RMSProp`."""

    learning_rate: Any
    beta2: Any
    eps: Any
    centered: bool


@struct.dataclass
class RMSPropParamState:
    """Moving averages of the squared gradient and, if `centered` is True, of the gradient."""

    v: Any
    mg: Any


class RMSProp(OptimizerDef):
    """RMSProp, which divides gradients by the square root of the average squared gradient.

    A parameter with gradient `g` moves by `-learning_rate * g / (sqrt(v) + eps)`, where `v` is the
    moving average of `g²` (Hinton, 2012). If `centered` is True, the square of the average gradient
    is subtracted from `v`.

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        centered: whether to divide by the standard deviation of the gradients instead of by the
            square root of the average squared gradient.

    >>> from toile import optim
    >>> optimizer = optim.RMSProp(learning_rate=0.5, beta2=0.75).create(jnp.array([1.0]))
    >>> optimizer.apply_gradient(jnp.array([4.0])).target
    Array([0.], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta2: ArrayLike = 0.9, eps: ArrayLike = 1e-8,
        centered: bool = False,
    ) -> None:
        super().__init__(RMSPropHyperParams(learning_rate, beta2, eps, centered))

    def init_param_state(self, param: Any) -> Any:
        mean = jnp.zeros_like(param) if self.hyper_params.centered else None
        return RMSPropParamState(jnp.zeros_like(param), mean)

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp, rate = hyper_params, learning_rate_of(self, hyper_params)
        square = hp.beta2 * state.v + (1.0 - hp.beta2) * jnp.square(grad)
        mean, spread = state.mg, square
        if hp.centered:
            mean = hp.beta2 * state.mg + (1.0 - hp.beta2) * grad
            spread = square - jnp.square(mean)
        moved = param - rate * grad / (jnp.sqrt(spread) + hp.eps)
        return moved, RMSPropParamState(square, mean)
