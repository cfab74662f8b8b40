"""Weight normalization, which optimizes the direction and the norm of parameters separately."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import struct, tree
from toile.optim.base import ArrayLike
from toile.optim.classic.base import OptimizerDef, OptimizerState
from toile.optim.classic.rules import is_off

__all__ = ["WeightNorm"]


@struct.dataclass
class WeightNormHyperParams:
    """The hyperparameters of the wrapped optimizer and of `WeightNorm`."""

    inner: Any
    wn_decay: Any
    wn_eps: Any


@struct.dataclass
class WeightNormParamState:
    """The states of the direction and the scale, and `scale / |direction|` after the last step."""

    direction_state: Any
    scale_state: Any
    mult: Any


class WeightNorm(OptimizerDef):
    """An optimizer that updates the direction and the norm of weights separately.

    With weight normalization, each parameter is written as `s * v / norm(v)`, and the wrapped
    optimizer updates `v` and `s` (Salimans and Kingma, 2016). Norms are computed over all axes
    except the last. Biases and other parameters in which every axis except the last has size 1 are
    passed to the wrapped optimizer unchanged, because each norm would be that of a single element.

    Args:
        wrapped_optimizer: definition of the optimizer that updates `v` and `s`.
        wn_decay: strength of the weight decay applied to `v`; `wn_decay * v` is added to the
            gradient of `v`.
        wn_eps: small number added to the norm of `v`.

    >>> from toile import optim
    >>> definition = optim.WeightNorm(optim.Momentum(learning_rate=0.5))
    >>> optimizer = definition.create(jnp.full((2, 2), 2.0))
    >>> optimizer.apply_gradient(jnp.ones((2, 2))).target.round(3)
    Array([[1.5, 1.5],
           [1.5, 1.5]], dtype=float32)
    """

    def __init__(
        self, wrapped_optimizer: OptimizerDef, wn_decay: ArrayLike = 0, wn_eps: ArrayLike = 1e-8
    ) -> None:
        inner = wrapped_optimizer.hyper_params
        super().__init__(WeightNormHyperParams(inner, wn_decay, wn_eps))
        self.wrapped_optimizer = wrapped_optimizer

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        own = {"wn_decay": self.hyper_params.wn_decay, "wn_eps": self.hyper_params.wn_eps}
        own = {name: hyper_param_overrides.pop(name, value) for name, value in own.items()}
        inner = self.wrapped_optimizer.update_hyper_params(**hyper_param_overrides)
        return self.hyper_params.replace(inner=inner, **own)

    def init_state(self, params: Any) -> OptimizerState:
        split = lambda p: (p / _norm(p), _norm(p)) if _is_normalized(p) else (p, ())
        leaves, structure = tree.flatten(params)
        pairs = [split(p) for p in leaves]
        scales = structure.unflatten([s for _, s in pairs])
        directions = structure.unflatten([d for d, _ in pairs])
        state = self.wrapped_optimizer.init_state({"direction": directions, "scale": scales})
        return _joined(structure, state, [s for _, s in pairs])

    def apply_gradient(self, hyper_params, params, state, grads) -> tuple[Any, OptimizerState]:
        leaves, structure = tree.flatten(params)
        states = structure.flatten_up_to(state.param_states)
        slopes = structure.flatten_up_to(grads)
        each = zip(leaves, states, slopes, strict=True)
        parts = [_split(p, s, g, hyper_params.wn_decay) for p, s, g in each]
        column = lambda i: structure.unflatten([part[i] for part in parts])
        inner = {"direction": [s.direction_state for s in states],
                 "scale": [s.scale_state for s in states]}  # fmt: skip
        inner = {name: structure.unflatten(x) for name, x in inner.items()}
        moved, new_state = self.wrapped_optimizer.apply_gradient(
            hyper_params.inner,
            {"direction": column(0), "scale": column(1)},
            state.replace(param_states=inner),
            {"direction": column(2), "scale": column(3)},
        )
        directions = structure.flatten_up_to(moved["direction"])
        scales = structure.flatten_up_to(moved["scale"])
        merged = [_merge(d, s, hyper_params.wn_eps) for d, s in zip(directions, scales)]
        new_params = structure.unflatten([p for p, _ in merged])
        return new_params, _joined(structure, new_state, [m for _, m in merged])


def _is_normalized(param: Any) -> bool:
    return param.ndim > 0 and param.size > param.shape[-1]


def _norm(x: Any) -> Any:
    return jnp.sqrt(jnp.square(x).sum(tuple(range(x.ndim - 1)), keepdims=True))


def _split(param: Any, state: Any, grad: Any, decay: Any) -> tuple[Any, Any, Any, Any]:
    """Return the direction and the scale of a parameter, and the gradients of both."""
    if not _is_normalized(param):
        return param, (), grad, ()
    axes = tuple(range(param.ndim - 1))
    direction = param / state.mult
    scale_grad = jnp.sum(grad * direction, axis=axes, keepdims=True)
    direction_grad = state.mult * (grad - scale_grad * direction)
    if not is_off(decay):
        direction_grad = direction_grad + decay * direction
    return direction, _norm(param) * jnp.sign(state.mult), direction_grad, scale_grad


def _merge(direction: Any, scale: Any, eps: Any) -> tuple[Any, Any]:
    """Return the parameter and the factor by which its direction is multiplied."""
    if not _is_normalized(direction):
        return direction, ()
    mult = scale / (eps + _norm(direction))
    return direction * mult, mult


def _joined(structure: Any, state: Any, mults: list[Any]) -> OptimizerState:
    """Return the state of the wrapped optimizer, regrouped by parameter."""
    directions = structure.flatten_up_to(state.param_states["direction"])
    scales = structure.flatten_up_to(state.param_states["scale"])
    each = zip(directions, scales, mults, strict=True)
    return state.replace(param_states=structure.unflatten([WeightNormParamState(*x) for x in each]))
