"""Optimizers that adapt their steps: chains of transformations that end with a learning rate.

A learning rate is a number or a schedule (a function of the step). Masks and labels may be globs of
parameter paths. The result of `update` is to be added to the parameters (`apply_updates`).
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from toile import numpy as jnp
from toile.optim import adaptive, base, moments, scaling
from toile.optim.accumulation import ema, trace
from toile.optim.adding import add_decayed_weights
from toile.optim.base import ArrayLike
from toile.optim.clipping import clip_by_block_rms
from toile.optim.combining import chain
from toile.optim.factored import scale_by_factored_rms
from toile.optim.masking import MaskOrFn, masked
from toile.optim.scaling import scale, scale_by_learning_rate, scale_by_trust_ratio
from toile.typing import DTypeLike

__all__ = [
    "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan",
    "amsgrad", "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam",
    "optimistic_adam_v2", "radam", "rmsprop", "sm3", "yogi",
]  # fmt: skip

Rate = base.ScalarOrSchedule
Optimizer = base.GradientTransformationExtraArgs


def _descent(learning_rate: Rate | None, *steps: base.GradientTransformation) -> Optimizer:
    """A chain of steps that ends with the learning rate."""
    return chain(*steps, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0, mu_dtype: Any | None = None, *, nesterov: bool = False,
) -> Optimizer:
    """Adam (Kingma and Ba, 2014).

    >>> import toile.numpy as jnp
    >>> from toile import optim
    >>> tx = optim.adam(0.1)
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(jnp.zeros(2)))
    >>> print(updates.round(4))
    [-0.1  0.1]
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled)


nadam = functools.partial(adam, nesterov=True)
nadam.__doc__ = "Adam with Nesterov's momentum (Dozat, 2016)."


def adamw(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0, mu_dtype: Any | None = None, weight_decay: Rate = 1e-4,
    mask: MaskOrFn = None, *, nesterov: bool = False,
) -> Optimizer:
    """Adam with weight decay that is not adapted (Loshchilov and Hutter, 2019)."""
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


nadamw = functools.partial(adamw, nesterov=True)
nadamw.__doc__ = "AdamW with Nesterov's momentum."


def amsgrad(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0, mu_dtype: Any | None = None, bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> Optimizer:
    """Adam over the largest average square so far (Reddi et al., 2018)."""
    correct = bias_correction_mu, bias_correction_nu
    return _descent(
        learning_rate, moments.scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, *correct)
    )


def adamax(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8
) -> Optimizer:
    """Adam by the maximum norm (Kingma and Ba, 2014)."""
    return _descent(learning_rate, moments.scale_by_adamax(b1, b2, eps))


def adamaxw(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8,
    weight_decay: Rate = 1e-4, mask: MaskOrFn = None,
) -> Optimizer:
    """Adamax with weight decay that is not adapted."""
    scaled = moments.scale_by_adamax(b1, b2, eps)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def radam(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0, threshold: ArrayLike = 5.0, *, nesterov: bool = False,
) -> Optimizer:
    """Rectified Adam (Liu et al., 2020)."""
    scaled = moments.scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov)
    return _descent(learning_rate, scaled)


def adabelief(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-16,
    eps_root: ArrayLike = 1e-16, *, nesterov: bool = False,
) -> Optimizer:
    """AdaBelief (Zhuang et al., 2020)."""
    scaled = moments.scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return _descent(learning_rate, scaled)


def adan(
    learning_rate: Rate, b1: ArrayLike = 0.98, b2: ArrayLike = 0.92, b3: ArrayLike = 0.99,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 1e-8, weight_decay: Rate = 0.0,
    mask: MaskOrFn = None,
) -> Optimizer:
    """Adan (Xie et al., 2022)."""
    scaled = moments.scale_by_adan(b1, b2, b3, eps, eps_root)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def lion(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.99, mu_dtype: Any | None = None,
    weight_decay: Rate = 1e-3, mask: MaskOrFn = None,
) -> Optimizer:
    """Lion (Chen et al., 2023); wants a rate some ten times smaller than Adam's."""
    scaled = moments.scale_by_lion(b1, b2, mu_dtype)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def yogi(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-3
) -> Optimizer:
    """Yogi (Zaheer et al., 2018)."""
    return _descent(learning_rate, moments.scale_by_yogi(b1, b2, eps))


def lamb(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-6,
    eps_root: ArrayLike = 0.0, weight_decay: Rate = 0.0, mask: MaskOrFn = None,
) -> Optimizer:
    """LAMB, Adam with a trust ratio per leaf (You et al., 2020)."""
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root)
    decayed = add_decayed_weights(weight_decay, mask)
    return _descent(learning_rate, scaled, decayed, scale_by_trust_ratio())


def lars(
    learning_rate: Rate, weight_decay: Rate = 0.0, weight_decay_mask: MaskOrFn = True,
    trust_coefficient: ArrayLike = 0.001, eps: ArrayLike = 0.0, trust_ratio_mask: MaskOrFn = True,
    momentum: ArrayLike = 0.9, nesterov: bool = False,
) -> Optimizer:
    """LARS, momentum with a trust ratio per leaf (You et al., 2017)."""
    ratio = scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps)
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(ratio, trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


def fromage(learning_rate: Rate, min_norm: ArrayLike = 1e-6) -> Optimizer:
    """Fromage (Bernstein et al., 2020): w <- (w - rate |w| g / |g|) / sqrt(1 + rate²)."""
    shrink = lambda rate: 1 / (1 + rate**2) ** 0.5
    if callable(learning_rate):
        rate = lambda count: shrink(learning_rate(count)) * learning_rate(count)
        decay = lambda count: shrink(learning_rate(count)) - 1
    else:
        rate, decay = learning_rate * shrink(learning_rate), shrink(learning_rate) - 1
    return chain(
        scale_by_trust_ratio(min_norm), scale_by_learning_rate(rate), add_decayed_weights(decay)
    )


def novograd(
    learning_rate: Rate, b1: ArrayLike = 0.9, b2: ArrayLike = 0.25, eps: ArrayLike = 1e-6,
    eps_root: ArrayLike = 0.0, weight_decay: Rate = 0.0,
) -> Optimizer:
    """NovoGrad (Ginsburg et al., 2019)."""
    scaled = adaptive.scale_by_novograd(b1, b2, eps, eps_root, weight_decay)
    return _descent(learning_rate, scaled)


def adagrad(
    learning_rate: Rate, initial_accumulator_value: ArrayLike = 0.1, eps: ArrayLike = 1e-7
) -> Optimizer:
    """Adagrad (Duchi et al., 2011)."""
    return _descent(learning_rate, adaptive.scale_by_rss(initial_accumulator_value, eps))


def adadelta(
    learning_rate: Rate | None = None, rho: ArrayLike = 0.9, eps: ArrayLike = 1e-6,
    weight_decay: Rate = 0.0, weight_decay_mask: MaskOrFn = None,
) -> Optimizer:
    """Adadelta (Zeiler, 2012)."""
    decayed = add_decayed_weights(weight_decay, weight_decay_mask)
    return _descent(learning_rate, decayed, adaptive.scale_by_adadelta(rho, eps))


def adafactor(
    learning_rate: Rate | None = None, min_dim_size_to_factor: int = 128,
    decay_rate: ArrayLike = 0.8, decay_offset: ArrayLike = 0,
    multiply_by_parameter_scale: bool = True, clipping_threshold: ArrayLike | None = 1.0,
    momentum: ArrayLike | None = None, dtype_momentum: DTypeLike = jnp.float32,
    weight_decay_rate: Rate | None = None, eps: ArrayLike = 1e-30, factored: bool = True,
    weight_decay_mask: MaskOrFn = None,
) -> Optimizer:
    """Adafactor (Shazeer and Stern, 2018)."""
    steps = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        steps += [clip_by_block_rms(clipping_threshold)]
    if learning_rate is not None:
        steps += [scale_by_learning_rate(learning_rate, flip_sign=False)]
    if multiply_by_parameter_scale:
        steps += [scaling.scale_by_param_block_rms()]
    if momentum is not None:
        steps += [ema(momentum, debias=False, accumulator_dtype=dtype_momentum)]
    if weight_decay_rate is not None:
        steps += [add_decayed_weights(weight_decay_rate, weight_decay_mask)]
    return chain(*steps, scale(-1))


def rmsprop(
    learning_rate: Rate, decay: ArrayLike = 0.9, eps: ArrayLike = 1e-8,
    initial_scale: ArrayLike = 0.0, eps_in_sqrt: bool = True, centered: bool = False,
    momentum: ArrayLike | None = None, nesterov: bool = False, bias_correction: bool = False,
) -> Optimizer:
    """RMSProp (Hinton, 2012), centred as Graves (2013) if asked, then momentum if given."""
    by = adaptive.scale_by_stddev if centered else adaptive.scale_by_rms
    return chain(
        by(decay, eps, initial_scale, eps_in_sqrt, bias_correction),
        scale_by_learning_rate(learning_rate),
        base.identity() if momentum is None else trace(momentum, nesterov),
    )


def sm3(learning_rate: ArrayLike, momentum: ArrayLike = 0.9) -> Optimizer:
    """SM3 (Anil et al., 2019)."""
    return chain(adaptive.scale_by_sm3(momentum), scale(-learning_rate))


def optimistic_adam(
    learning_rate: ArrayLike, optimism: ArrayLike | None = None, b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: Any | None = None, *, nesterov: bool = True,
) -> Optimizer:
    """An older form of `optimistic_adam_v2`, without schedules."""
    text = "optimistic_adam is deprecated: use `optimistic_adam_v2` instead"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    if callable(learning_rate):
        raise ValueError(
            "optimistic_adam: needed a constant learning_rate, got a schedule "
            "(optimistic_adam_v2 takes them)"
        )
    optimism = learning_rate if optimism is None else optimism
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(1.0, scaled, scaling.scale_by_optimistic_gradient(learning_rate, optimism))


def optimistic_adam_v2(
    learning_rate: Rate, *, alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0, b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: Any | None = None, nesterov: bool = True,
) -> Optimizer:
    """Optimistic Adam (Daskalakis et al., 2018)."""
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled, scaling.scale_by_optimistic_gradient(alpha, beta))
