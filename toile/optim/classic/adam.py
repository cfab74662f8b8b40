"""Adam and its variants AdaBelief and LAMB.

Each optimizer keeps a moving average of the gradient and a moving average of a squared quantity. At
step `t`, each average is divided by `1 - beta**t`, where `beta` is its decay rate. This division
corrects for the bias caused by initializing the averages to zero.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import struct
from toile.optim.base import ArrayLike
from toile.optim.classic.base import OptimizerDef
from toile.optim.classic.rules import is_off, learning_rate_of

__all__ = ["LAMB", "AdaBelief", "Adam"]


@struct.dataclass
class AdamHyperParams:
    """The hyperparameters of `Adam` and `AdaBelief`."""

    learning_rate: Any
    beta1: Any
    beta2: Any
    eps: Any
    weight_decay: Any


@struct.dataclass
class AdamParamState:
    """Moving averages of the gradient and of its square."""

    grad_ema: Any
    grad_sq_ema: Any


def _corrected(state: Any, hyper_params: Any, step: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the moving averages, corrected for the bias caused by initializing them to zero."""
    t = jnp.array(step + 1, dtype)
    mean = state.grad_ema / (1 - hyper_params.beta1**t)
    return mean, state.grad_sq_ema / (1 - hyper_params.beta2**t)


def _decayed(decay: Any, mean: Any, x: Any) -> Any:
    return decay * mean + (1.0 - decay) * x


def _means(hp: Any, state: Any, grad: Any) -> Any:
    """Return the state with the moving averages updated by a gradient."""
    square = _decayed(hp.beta2, state.grad_sq_ema, jnp.square(grad))
    return type(state)(_decayed(hp.beta1, state.grad_ema, grad), square)


class Adam(OptimizerDef):
    """Adam with decoupled weight decay, which does not depend on the average squared gradient.

    Let `m` and `v` be the moving averages of the gradient `g` and of `g²`, corrected for the bias
    caused by initializing them to zero. A parameter `p` moves by
    `-learning_rate * (m / (sqrt(v) + eps) + weight_decay * p)` (Kingma and Ba, 2014; Loshchilov and
    Hutter, 2019).

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta1: decay rate of the average of gradients; values closer to 1 average over more steps.
        beta2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        weight_decay: strength of the weight decay, which is multiplied by the learning rate.

    >>> from toile import optim
    >>> optimizer = optim.Adam(learning_rate=0.1).create(jnp.array([1.0, 1.0]))
    >>> optimizer.apply_gradient(jnp.array([4.0, -0.5])).target.round(3)
    Array([0.9, 1.1], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta1: ArrayLike = 0.9,
        beta2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, weight_decay: ArrayLike = 0.0,
    ) -> None:
        super().__init__(AdamHyperParams(learning_rate, beta1, beta2, eps, weight_decay))

    def init_param_state(self, param: Any) -> Any:
        return AdamParamState(jnp.zeros_like(param), jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp, rate = hyper_params, learning_rate_of(self, hyper_params)
        state = self._means(hp, state, grad)
        mean, square = _corrected(state, hp, step, param.dtype)
        moved = param - rate * mean / (jnp.sqrt(square) + hp.eps)
        return moved - rate * hp.weight_decay * param, state

    _means = staticmethod(_means)


class AdaBelief(Adam):
    """AdaBelief: a variant of Adam that takes larger steps where gradients are near their mean.

    Let `m` be the moving average of the gradient `g`. `AdaBelief` replaces `Adam`'s average of `g²`
    with the average of `(g - m)**2`, to which `eps` is added at each step. The deviation `g - m` is
    computed with `m` before its bias correction (Zhuang et al., 2020).

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta1: decay rate of the average of gradients; values closer to 1 average over more steps.
        beta2: decay rate of the average of `(g - m)**2`.
        eps: small number added to the average of `(g - m)**2` at each step, and to its square root.
        weight_decay: strength of the weight decay, which is multiplied by the learning rate.

    >>> from toile import optim
    >>> optimizer = optim.AdaBelief(learning_rate=0.1).create(jnp.array([1.0, 1.0]))
    >>> optimizer.apply_gradient(jnp.array([4.0, -0.5])).target.round(3)
    Array([0.889, 1.111], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta1: ArrayLike = 0.9,
        beta2: ArrayLike = 0.999, eps: ArrayLike = 1e-16, weight_decay: ArrayLike = 0.0,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, eps, weight_decay)

    @staticmethod
    def _means(hp: Any, state: Any, grad: Any) -> AdamParamState:
        mean = _decayed(hp.beta1, state.grad_ema, grad)
        square = _decayed(hp.beta2, state.grad_sq_ema, jnp.square(grad - mean))
        return AdamParamState(mean, square + hp.eps)


@struct.dataclass
class LAMBHyperParams:
    """The hyperparameters of `LAMB`."""

    learning_rate: Any
    beta1: Any
    beta2: Any
    weight_decay: Any
    eps: Any


@struct.dataclass
class LAMBParamState:
    """Moving averages of the gradient and of its square."""

    grad_ema: Any
    grad_sq_ema: Any


class LAMB(OptimizerDef):
    """LAMB: a variant of Adam whose step for each array is proportional to the array's norm.

    Let `u = m / (sqrt(v) + eps) + weight_decay * p` for an array `p`, where `m` and `v` are the
    averages that `Adam` computes. The array moves by `-learning_rate * norm(p) / norm(u) * u` (You
    et al., 2020).

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step.
        beta1: decay rate of the average of gradients; values closer to 1 average over more steps.
        beta2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        weight_decay: strength of the weight decay.
        eps: small number added to the square root to avoid division by zero.

    >>> from toile import optim
    >>> optimizer = optim.LAMB(learning_rate=0.1).create(jnp.array([3.0, 4.0]))
    >>> optimizer.apply_gradient(jnp.array([1.0, -1.0])).target.round(3)
    Array([2.646, 4.354], dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, beta1: ArrayLike = 0.9,
        beta2: ArrayLike = 0.999, weight_decay: ArrayLike = 0, eps: ArrayLike = 1e-6,
    ) -> None:
        super().__init__(LAMBHyperParams(learning_rate, beta1, beta2, weight_decay, eps))

    def init_param_state(self, param: Any) -> Any:
        return LAMBParamState(jnp.zeros_like(param), jnp.zeros_like(param))

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp, rate = hyper_params, learning_rate_of(self, hyper_params)
        state = _means(hp, state, grad)
        mean, square = _corrected(state, hp, step, param.dtype)
        update = mean / (jnp.sqrt(square) + hp.eps)
        if not is_off(hp.weight_decay):
            update = update + hp.weight_decay * param
        param_norm, update_norm = jnp.linalg.norm(param), jnp.linalg.norm(update)
        trust = jnp.where(param_norm + update_norm > 0.0, param_norm / update_norm, 1.0)
        return param - trust * rate * update, state
