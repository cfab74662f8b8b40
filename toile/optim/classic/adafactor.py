"""Adafactor, which stores a matrix's average squared gradients by row and by column.

See https://arxiv.org/abs/1804.04235.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import toile.numpy as jnp
from toile import dtypes, struct
from toile.optim.base import ArrayLike
from toile.optim.classic.base import OptimizerDef
from toile.optim.classic.rules import learning_rate_of
from toile.optim.factored import two_largest, without
from toile.typing import DTypeLike

__all__ = ["Adafactor"]


@struct.dataclass
class AdafactorHyperParams:
    """The hyperparameters of `Adafactor`."""

    learning_rate: Any
    factored: bool
    multiply_by_parameter_scale: bool
    beta1: Any
    decay_rate: Any
    step_offset: Any
    clipping_threshold: Any
    weight_decay_rate: Any
    min_dim_size_to_factor: int
    epsilon1: Any
    epsilon2: Any


@struct.dataclass
class AdafactorParamState:
    """Averages of squared gradients, and the momentum; arrays that are not used have shape (1,)."""

    v_row: Any
    v_col: Any
    v: Any
    m: Any


class Adafactor(OptimizerDef):
    """Adafactor, which stores only row and column averages of a matrix's squared gradients.

    A parameter's gradient is divided by the square root of the average squared gradient. The
    quotient is scaled down if its root mean square exceeds `clipping_threshold`, and is then
    multiplied by the learning rate and by the root mean square of the parameter. Finally, momentum
    and weight decay are applied, if requested. Large matrices need little additional memory
    (Shazeer and Stern, 2018).

    Args:
        learning_rate: step size. If None, the step size must be passed to `apply_gradient` in each
            step. If `multiply_by_parameter_scale` is True, the step size is relative to the root
            mean square of the parameter.
        factored: whether to factor the averages of squared gradients. If False, the averages are
            stored in full.
        multiply_by_parameter_scale: whether to multiply each parameter's step by the parameter's
            root mean square.
        beta1: decay rate of the moving average of steps. If None, steps are not averaged.
        decay_rate: exponent `c`; the decay rate of the averages at step `t` is `1 - t**-c`.
        step_offset: number subtracted from the step count to obtain `t`; set it if training
            continues from a saved state.
        clipping_threshold: maximum root mean square of an array's step before the multiplication by
            the learning rate. If `clipping_threshold` is None, there is no limit.
        weight_decay_rate: strength of the weight decay, which is not multiplied by the learning
            rate; if None, there is no weight decay.
        min_dim_size_to_factor: an array is factored if its second-largest axis has at least this
            size.
        epsilon1: small number added to squared gradients.
        epsilon2: lower bound for the root mean square of a parameter.
        dtype_momentum: dtype in which the average of steps is stored.

    >>> from toile import optim
    >>> optimizer = optim.Adafactor(learning_rate=0.1).create(jnp.full((128, 256), 2.0))
    >>> optimizer.state.param_states.v_row.shape, optimizer.state.param_states.v_col.shape
    ((128,), (256,))
    >>> optimizer.apply_gradient(jnp.ones((128, 256))).target[0, 0].round(3)
    Array(1.8, dtype=float32)
    """

    def __init__(
        self, learning_rate: ArrayLike | None = None, factored: bool = True,
        multiply_by_parameter_scale: bool = True, beta1: ArrayLike | None = None,
        decay_rate: ArrayLike = 0.8, step_offset: ArrayLike = 0,
        clipping_threshold: ArrayLike | None = 1.0, weight_decay_rate: ArrayLike | None = None,
        min_dim_size_to_factor: int = 128, epsilon1: ArrayLike = 1e-30, epsilon2: ArrayLike = 1e-3,
        dtype_momentum: DTypeLike = jnp.float32,
    ) -> None:
        self.dtype_momentum = dtypes.canonicalize_dtype(dtype_momentum)
        super().__init__(AdafactorHyperParams(
            learning_rate, factored, multiply_by_parameter_scale, beta1, decay_rate, step_offset,
            clipping_threshold, weight_decay_rate, min_dim_size_to_factor, epsilon1, epsilon2,
        ))

    def _factored_axes(self, shape: Sequence[int]) -> tuple[int, int] | None:
        """Return the second-largest and the largest axis, or None if the array is not factored."""
        hp = self.hyper_params
        return two_largest(shape, hp.min_dim_size_to_factor) if hp.factored else None

    def init_param_state(self, param: Any) -> Any:
        parts = _placeholders()
        axes = self._factored_axes(param.shape)
        if axes is None:
            parts["v"] = jnp.zeros(param.shape, dtype=jnp.float32)
        else:
            second, first = axes
            parts["v_row"] = jnp.zeros(without(param.shape, first), dtype=jnp.float32)
            parts["v_col"] = jnp.zeros(without(param.shape, second), dtype=jnp.float32)
        if self.hyper_params.beta1 is not None:
            parts["m"] = jnp.zeros(param.shape, dtype=self.dtype_momentum)
        return AdafactorParamState(**parts)

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        hp, rate = hyper_params, learning_rate_of(self, hyper_params)
        grad = grad.astype(jnp.float32)
        t = jnp.array(step - hp.step_offset, jnp.float32) + 1.0
        if self.hyper_params.multiply_by_parameter_scale:
            rate = rate * jnp.maximum(jnp.sqrt(jnp.mean(param * param)), hp.epsilon2)
        move, parts = self._normalized(grad, state, 1.0 - t**-hp.decay_rate, hp.epsilon1)
        if hp.clipping_threshold is not None:
            size = jnp.sqrt(jnp.mean(move * move))
            move = move / jnp.maximum(1.0, size / hp.clipping_threshold)
        move = rate * move
        if hp.beta1 is not None:
            move = hp.beta1 * state.m + (1.0 - hp.beta1) * move
            parts["m"] = move.astype(self.dtype_momentum)
        kept = param if hp.weight_decay_rate is None else (1.0 - hp.weight_decay_rate) * param
        return (kept - move).astype(param.dtype), AdafactorParamState(**parts)

    def _normalized(self, grad: Any, state: Any, decay: Any, epsilon: Any) -> Any:
        """Return the gradient divided by the root of its average square, and the new averages."""
        parts, square = _placeholders(), grad * grad + epsilon
        mixed = lambda old, new: decay * old + (1.0 - decay) * new
        axes = self._factored_axes(grad.shape)
        if axes is None:
            parts["v"] = mixed(state.v, square)
            return grad * parts["v"] ** (-0.5), parts
        second, first = axes
        row = parts["v_row"] = mixed(state.v_row, jnp.mean(square, axis=first))
        column = parts["v_col"] = mixed(state.v_col, jnp.mean(square, axis=second))
        in_row = second - 1 if second > first else second  # where `second` is once `first` is gone
        row_factor = (row / jnp.mean(row, axis=in_row, keepdims=True)) ** (-0.5)
        column_factor = column ** (-0.5)
        move = grad * jnp.expand_dims(row_factor, axis=first)
        return move * jnp.expand_dims(column_factor, axis=second), parts


def _placeholders() -> dict[str, Any]:
    return {name: jnp.zeros((1,)) for name in ("v_row", "v_col", "v", "m")}
