"""Optimizers that adapt their steps: chains of transformations that end with a learning rate.

A learning rate is a number or a schedule (a function of the step). Masks and labels may be globs of
parameter paths. The result of `update` is to be added to the parameters (`apply_updates`).
"""

from __future__ import annotations

import functools
import warnings

from toile import numpy as jnp
from toile.optim import adaptive, base, moments, scaling
from toile.optim.accumulation import ema, trace
from toile.optim.adding import add_decayed_weights
from toile.optim.base import ArrayLike, GradientTransformationExtraArgs, ScalarOrSchedule
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


def _descent(
    learning_rate: ScalarOrSchedule | None, *steps: base.GradientTransformation
) -> GradientTransformationExtraArgs:
    """A chain of steps that ends with the learning rate."""
    return chain(*steps, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam, which divides an average of gradients by the root of their average square.

    With m and v the averages of g and g², corrected for their start at zero, a parameter moves by
    `-learning_rate * m / (sqrt(v + eps_root) + eps)`, so that all elements move about equally far
    (Kingma and Ba, 2014).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx = optim.adam(0.1)
    >>> params = {"w": jnp.array([1.0, 2.0])}
    >>> updates, state = tx.update({"w": jnp.array([0.3, -5.0])}, tx.init(params))
    >>> optim.apply_updates(params, updates)["w"].round(3)
    Array([0.9, 2.1], dtype=float32)
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled)


nadam = functools.partial(adam, nesterov=True)
nadam.__doc__ = """Adam with Nesterov's momentum (Dozat, 2016).

The same as `adam` with `nesterov=True`; its arguments and result are those of `adam`.

>>> from toile import optim
>>> tx = optim.nadam(0.1)
>>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(jnp.zeros(2)))
>>> updates.round(3)
Array([-0.147,  0.147], dtype=float32)
"""


def adamw(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None,
    weight_decay: ScalarOrSchedule = 1e-4, mask: MaskOrFn = None, *, nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam with decoupled weight decay, which is not divided by the average square.

    A parameter p moves by `-learning_rate * (m / (sqrt(v + eps_root) + eps) + weight_decay * p)`,
    with the averages m and v of `adam` (Loshchilov and Hutter, 2019).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        weight_decay: strength of the decay, a number or a schedule; often 1e-4 to 0.1. It is
            multiplied by the learning rate.
        mask: the parameters that decay: a tree of bools (or a prefix of it), a function from the
            parameters to such a tree, or a glob of parameter paths such as `"**/kernel"` or a list
            of globs; None for all.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx = optim.adamw(0.1, weight_decay=0.5, mask="**/kernel")
    >>> params = {"dense": {"kernel": jnp.ones(2), "bias": jnp.ones(1)}}
    >>> grads = {"dense": {"kernel": jnp.zeros(2), "bias": jnp.zeros(1)}}
    >>> updates, state = tx.update(grads, tx.init(params), params)
    >>> optim.apply_updates(params, updates)
    {'dense': {'bias': Array([1.], dtype=float32), 'kernel': Array([0.95, 0.95], dtype=float32)}}
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


nadamw = functools.partial(adamw, nesterov=True)
nadamw.__doc__ = """AdamW with Nesterov's momentum.

The same as `adamw` with `nesterov=True`; its arguments and result are those of `adamw`.

>>> from toile import optim
>>> tx, params = optim.nadamw(0.1), jnp.zeros(2)
>>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
>>> updates.round(3)
Array([-0.147,  0.147], dtype=float32)
"""


def amsgrad(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None,
    bias_correction_mu: bool = True, bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam that divides by the largest average square so far, so that the divisor never shrinks.

    With m and v the averages of `adam`, a parameter moves by
    `-learning_rate * m / (sqrt(max(v) + eps_root) + eps)`, where the maximum is over all steps
    (Reddi et al., 2018).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        bias_correction_mu: whether the average of gradients is corrected for its start at zero.
        bias_correction_nu: whether the average square is corrected for its start at zero.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.amsgrad(0.1), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for grad in (10.0, 0.1):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates.round(3))
    [-0.1]
    [-0.048]
    """
    correct = bias_correction_mu, bias_correction_nu
    return _descent(
        learning_rate, moments.scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, *correct)
    )


def adamax(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8,
) -> GradientTransformationExtraArgs:
    """Adam that divides by a decaying maximum of the gradients' sizes.

    A parameter moves by `-learning_rate * m / u`, with m the corrected average of gradients and
    `u = max(|g| + eps, b2 * u)` (Kingma and Ba, 2014).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the maximum of absolute gradients.
        eps: small number added to absolute gradients, to avoid division by zero.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adamax(0.1), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params))
    >>> optim.apply_updates(params, updates).round(3)
    Array([0.9, 2.1], dtype=float32)
    """
    return _descent(learning_rate, moments.scale_by_adamax(b1, b2, eps))


def adamaxw(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, weight_decay: ScalarOrSchedule = 1e-4, mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """Adamax with decoupled weight decay, which is not divided by the maximum.

    A parameter p moves by `-learning_rate * (m / u + weight_decay * p)`, with m and u of `adamax`.

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the maximum of absolute gradients.
        eps: small number added to absolute gradients, to avoid division by zero.
        weight_decay: strength of the decay, a number or a schedule. It is multiplied by the
            learning rate.
        mask: the parameters that decay: a tree of bools (or a prefix of it), a function from the
            parameters to such a tree, or a glob of parameter paths such as `"**/kernel"` or a list
            of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adamaxw(0.1, weight_decay=0.5), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([-0.15, -0.  ], dtype=float32)
    """
    scaled = moments.scale_by_adamax(b1, b2, eps)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def radam(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0, threshold: ArrayLike = 5.0, *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Rectified Adam, which starts as plain momentum and adapts once enough steps are averaged.

    While the average square covers few steps (see `threshold`) a parameter moves by
    `-learning_rate * m`; after that by `-learning_rate * r * m / (sqrt(v + eps_root) + eps)`, where
    r grows towards 1. This replaces a warm-up of the learning rate (Liu et al., 2020).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        threshold: number of steps that the average square must cover before it is used.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.radam(0.1), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for step in range(6):
    ...     updates, state = tx.update(jnp.array([10.0]), state)
    ...     if step in (0, 4, 5):
    ...         print(step, updates.round(4))
    0 [-1.]
    4 [-1.]
    5 [-0.0026]
    """
    scaled = moments.scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov)
    return _descent(learning_rate, scaled)


def adabelief(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-16, eps_root: ArrayLike = 1e-16, *, nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam whose steps are large where gradients are as expected and small where they are not.

    A parameter moves by `-learning_rate * m / (sqrt(s) + eps)`, with m the average of gradients and
    s the average of `(g - m)**2`, both corrected for their start at zero (Zhuang et al., 2020).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of `(g - m)**2`.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added to the average of `(g - m)**2` at each step.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adabelief(0.1), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.array([2.0]), state)
    >>> updates.round(3)
    Array([-0.117], dtype=float32)
    """
    scaled = moments.scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return _descent(learning_rate, scaled)


def adan(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.98, b2: ArrayLike = 0.92,
    b3: ArrayLike = 0.99, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0, mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """Adan, Nesterov's momentum made from averages of gradients and of their differences.

    With d the change of the gradient since the last step, and m, v, n the corrected averages of g,
    d and `(g + (1 - b2) * d)**2`, a parameter moves by
    `-learning_rate * ((m + (1 - b2) * v) / (sqrt(n + eps_root) + eps) + weight_decay * p)` (Xie et
    al., 2022).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of gradient differences.
        b3: decay rate of the average of squares.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        weight_decay: strength of the decay, a number or a schedule. It is multiplied by the
            learning rate.
        mask: the parameters that decay: a tree of bools (or a prefix of it), a function from the
            parameters to such a tree, or a glob of parameter paths such as `"**/kernel"` or a list
            of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adan(0.1), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
    >>> optim.apply_updates(params, updates).round(3)
    Array([0.9, 2.1], dtype=float32)
    """
    scaled = moments.scale_by_adan(b1, b2, b3, eps, eps_root)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def lion(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.99,
    mu_dtype: DTypeLike | None = None, weight_decay: ScalarOrSchedule = 1e-3, mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """Lion, which moves every element by the same amount, in the direction of a sign.

    A parameter p moves by `-learning_rate * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)`, and
    then `m = b2 * m + (1 - b2) * g` (Chen et al., 2023). It keeps one average where Adam keeps two.

    Args:
        learning_rate: step size, a number or a schedule; usually 3 to 10 times smaller than for
            Adam, with a weight decay that is larger by the same factor.
        b1: weight of the average against the gradient in the sign.
        b2: decay rate of the average of gradients.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        weight_decay: strength of the decay, a number or a schedule. It is multiplied by the
            learning rate.
        mask: the parameters that decay: a tree of bools (or a prefix of it), a function from the
            parameters to such a tree, or a glob of parameter paths such as `"**/kernel"` or a list
            of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.lion(0.1, weight_decay=0.0), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
    >>> optim.apply_updates(params, updates)
    Array([0.9, 2.1], dtype=float32)
    """
    scaled = moments.scale_by_lion(b1, b2, mu_dtype)
    return _descent(learning_rate, scaled, add_decayed_weights(weight_decay, mask))


def yogi(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-3,
) -> GradientTransformationExtraArgs:
    """Adam whose average square changes by at most a fraction of g² in each step, up or down.

    It follows `v = v - (1 - b2) * sign(v - g²) * g²`, and a parameter moves by
    `-learning_rate * m / (sqrt(v) + eps)`, where m and v are corrected for their start (Zaheer et
    al., 2018). Both start at 1e-6.

    Args:
        learning_rate: step size, a number or a schedule; 0.01 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of v; near 1, v follows squared gradients more slowly.
        eps: small number added to the square root, to avoid division by zero.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.yogi(0.1), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params))
    >>> optim.apply_updates(params, updates).round(3)
    Array([0.901, 2.1  ], dtype=float32)
    """
    return _descent(learning_rate, moments.scale_by_yogi(b1, b2, eps))


def lamb(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-6, eps_root: ArrayLike = 0.0, weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """LAMB: Adam whose step in each array has a length proportional to the norm of the array.

    With u the step of `adamw` (weight decay included, without the learning rate), an array p moves
    by `-learning_rate * norm(p) / norm(u) * u` (by `-learning_rate * u` if a norm is zero). It is
    made for very large batches (You et al., 2020).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        weight_decay: strength of the decay, a number or a schedule.
        mask: the parameters that decay: a tree of bools (or a prefix of it), a function from the
            parameters to such a tree, or a glob of parameter paths such as `"**/kernel"` or a list
            of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.lamb(0.1), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
    >>> updates.round(3), optim.global_norm(updates).round(3)
    (Array([-0.354,  0.354], dtype=float32), Array(0.5, dtype=float32))
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root)
    decayed = add_decayed_weights(weight_decay, mask)
    return _descent(learning_rate, scaled, decayed, scale_by_trust_ratio())


def lars(
    learning_rate: ScalarOrSchedule, weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: MaskOrFn = True, trust_coefficient: ArrayLike = 0.001, eps: ArrayLike = 0.0,
    trust_ratio_mask: MaskOrFn = True, momentum: ArrayLike = 0.9, nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """LARS: momentum whose step in each array has a length proportional to the norm of the array.

    With `u = g + weight_decay * p`, an array's velocity becomes
    `v = momentum * v - learning_rate * trust_coefficient * norm(p) / (norm(u) + eps) * u`, and the
    array moves by v. It is made for very large batches (You et al., 2017).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number.
        weight_decay: strength of the decay, a number or a schedule.
        weight_decay_mask: the parameters that decay, in the forms of `masked`; True for all. Biases
            and normalization parameters are usually left out.
        trust_coefficient: factor of the ratio of norms.
        eps: small number added to the norm of u.
        trust_ratio_mask: the parameters whose step is scaled by the ratio of norms, in the forms of
            `masked`; True for all.
        momentum: decay rate of the velocity.
        nesterov: whether to use Nesterov's momentum, which looks one step ahead.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.lars(1.0, trust_coefficient=0.1), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([1.0, 0.0]), tx.init(params), params)
    >>> updates
    Array([-0.5,  0. ], dtype=float32)
    """
    ratio = scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps)
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(ratio, trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


def fromage(
    learning_rate: ScalarOrSchedule, min_norm: ArrayLike = 1e-6
) -> GradientTransformationExtraArgs:
    """Fromage, whose steps are proportional to the norm of each array, which is kept from growing.

    An array p becomes `(p - learning_rate * norm(p) / norm(g) * g) / sqrt(1 + learning_rate**2)`
    (Bernstein et al., 2020).

    Args:
        learning_rate: step size relative to the norm of an array, a number or a schedule; 0.01 is a
            usual value.
        min_norm: lower bound for the norms.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.fromage(0.1), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([1.0, 0.0]), tx.init(params), params)
    >>> optim.apply_updates(params, updates).round(3)
    Array([2.488, 3.98 ], dtype=float32)
    """
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
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.25,
    eps: ArrayLike = 1e-6, eps_root: ArrayLike = 0.0, weight_decay: ArrayLike = 0.0,
) -> GradientTransformationExtraArgs:
    """NovoGrad: momentum of gradients that are divided by an average norm of their array.

    With v the average of `norm(g)**2`, one number for each array,
    `m = b1 * m + g / (sqrt(v + eps_root) + eps) + weight_decay * p`, and the array moves by
    `-learning_rate * m`. The averages start at their first values (Ginsburg et al., 2019).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        b1: decay rate of the momentum.
        b2: decay rate of the average squared norm.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        weight_decay: strength of the decay, a number.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.novograd(0.1), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([3.0, 4.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([-0.06, -0.08], dtype=float32)
    """
    scaled = adaptive.scale_by_novograd(b1, b2, eps, eps_root, weight_decay)
    return _descent(learning_rate, scaled)


def adagrad(
    learning_rate: ScalarOrSchedule, initial_accumulator_value: ArrayLike = 0.1,
    eps: ArrayLike = 1e-7,
) -> GradientTransformationExtraArgs:
    """Adagrad, which divides gradients by the root of the sum of all squares so far.

    With `s = s + g²`, a parameter moves by `-learning_rate * g / sqrt(s + eps)`, so that steps
    become ever smaller. It suits sparse gradients (Duchi et al., 2011).

    Args:
        learning_rate: step size, a number or a schedule; 0.01 to 0.1 are usual values.
        initial_accumulator_value: initial value of the sum.
        eps: small number added to the sum, to avoid division by zero.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adagrad(0.1), jnp.array([1.0])
    >>> state = tx.init(params)
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.array([2.0]), state)
    ...     print(updates.round(3))
    [-0.099]
    [-0.07]
    [-0.057]
    """
    return _descent(learning_rate, adaptive.scale_by_rss(initial_accumulator_value, eps))


def adadelta(
    learning_rate: ScalarOrSchedule | None = None, rho: ArrayLike = 0.9, eps: ArrayLike = 1e-6,
    weight_decay: ScalarOrSchedule = 0.0, weight_decay_mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """Adadelta, whose steps are in proportion to the sizes of earlier steps.

    With v the average of g² and d that of squared steps, a step is
    `u = sqrt(d + eps) / sqrt(v + eps) * g` (Zeiler, 2012), and a parameter moves by
    `-learning_rate * u`. Weight decay is added to the gradient, before this rule.

    Args:
        learning_rate: factor of the steps, a number or a schedule; 1.0 is the rule as published.
            With None, updates are not multiplied at all, not even by -1, and point uphill.
        rho: decay rate of both averages.
        eps: small number under both square roots, which sets the size of the first steps.
        weight_decay: strength of the decay, a number or a schedule.
        weight_decay_mask: the parameters that decay: a tree of bools (or a prefix of it), a
            function from the parameters to such a tree, or a glob of parameter paths such as
            `"**/kernel"` or a list of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adadelta(1.0, eps=0.01), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([-0.218,  0.316], dtype=float32)
    """
    decayed = add_decayed_weights(weight_decay, weight_decay_mask)
    return _descent(learning_rate, decayed, adaptive.scale_by_adadelta(rho, eps))


def adafactor(
    learning_rate: ScalarOrSchedule | None = None, min_dim_size_to_factor: int = 128,
    decay_rate: ArrayLike = 0.8, decay_offset: ArrayLike = 0,
    multiply_by_parameter_scale: bool = True, clipping_threshold: ArrayLike | None = 1.0,
    momentum: ArrayLike | None = None, dtype_momentum: DTypeLike = jnp.float32,
    weight_decay_rate: ScalarOrSchedule | None = None, eps: ArrayLike = 1e-30,
    factored: bool = True, weight_decay_mask: MaskOrFn = None,
) -> GradientTransformationExtraArgs:
    """Adafactor, which keeps only row and column averages of the squared gradients of a matrix.

    Gradients are divided by the root of the average square (`scale_by_factored_rms`), limited
    (`clipping_threshold`), multiplied by the learning rate and by the root mean square of their
    parameter, averaged (`momentum`), and decayed. Large matrices need little memory (Shazeer and
    Stern, 2018).

    Args:
        learning_rate: step size, relative to the parameter's own size if
            `multiply_by_parameter_scale`; a number or a schedule, None for 1.
        min_dim_size_to_factor: size that the second largest axis of an array has to have for the
            array to be factored.
        decay_rate: exponent c of the averages' decay rate `1 - t**-c` at step t.
        decay_offset: number subtracted from the step count in t, for training that continues from a
            saved state.
        multiply_by_parameter_scale: whether steps are multiplied by the root mean square of their
            parameter (at least 1e-3).
        clipping_threshold: largest root mean square of the step of an array, before the learning
            rate; None for no limit.
        momentum: decay rate of an average of steps; None for no average.
        dtype_momentum: dtype in which that average is stored.
        weight_decay_rate: strength of the decay, which is not multiplied by the learning rate; a
            number or a schedule, None for no decay.
        eps: small number added to squared gradients.
        factored: whether average squares are factored at all.
        weight_decay_mask: the parameters that decay: a tree of bools (or a prefix of it), a
            function from the parameters to such a tree, or a glob of parameter paths such as
            `"**/kernel"` or a list of globs; None for all.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters. `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adafactor(0.1), jnp.full((128, 256), 2.0)
    >>> state = tx.init(params)
    >>> state[0].v_row.shape, state[0].v_col.shape
    ((128,), (256,))
    >>> updates, state = tx.update(jnp.ones((128, 256)), state, params)
    >>> updates[0, 0].round(3)
    Array(-0.2, dtype=float32)
    """
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
    learning_rate: ScalarOrSchedule, decay: ArrayLike = 0.9, eps: ArrayLike = 1e-8,
    initial_scale: ArrayLike = 0.0, eps_in_sqrt: bool = True, centered: bool = False,
    momentum: ArrayLike | None = None, nesterov: bool = False, bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """RMSProp, which divides gradients by the root of their average square.

    With v the average of g², a parameter moves by `-learning_rate * g / sqrt(v + eps)` (Hinton,
    2012). With `centered`, v is the average less the square of the average gradient (Graves, 2013).
    Momentum is added to the finished steps.

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        decay: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number in the denominator, to avoid division by zero.
        initial_scale: value that the average starts with; PyTorch starts with 0, TensorFlow 1 with
            1.
        eps_in_sqrt: whether `eps` is added under the square root, or to the root.
        centered: whether to divide by the standard deviation in place of the root of the average
            square.
        momentum: decay rate of the accumulated updates, usually 0.9; None for no momentum.
        nesterov: whether to use Nesterov's momentum, which looks one step ahead.
        bias_correction: whether the averages are corrected for their start at zero.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.rmsprop(0.1, decay=0.75), jnp.array([1.0, 2.0])
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(params))
    >>> optim.apply_updates(params, updates).round(3)
    Array([0.8, 2.2], dtype=float32)
    """
    by = adaptive.scale_by_stddev if centered else adaptive.scale_by_rms
    return chain(
        by(decay, eps, initial_scale, eps_in_sqrt, bias_correction),
        scale_by_learning_rate(learning_rate),
        base.identity() if momentum is None else trace(momentum, nesterov),
    )


def sm3(learning_rate: ArrayLike, momentum: ArrayLike = 0.9) -> GradientTransformationExtraArgs:
    """SM3, Adagrad that keeps one vector per axis of an array in place of one number per element.

    The sum of squares of an element is bounded by the smallest of the entries kept for its row, its
    column, and so on; gradients are divided by its root and averaged (Anil et al., 2019). Large
    matrices need little memory.

    Args:
        learning_rate: step size, a number.
        momentum: decay rate of the average of steps.

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx, params = optim.sm3(0.1), jnp.ones((2, 3))
    >>> state = tx.init(params)
    >>> [v.shape for v in state[0].mu]
    [(2,), (3,)]
    >>> updates, state = tx.update(jnp.ones((2, 3)), state)
    >>> updates.round(3)
    Array([[-0.01, -0.01, -0.01],
           [-0.01, -0.01, -0.01]], dtype=float32)
    """
    return chain(adaptive.scale_by_sm3(momentum), scale(-learning_rate))


def optimistic_adam(
    learning_rate: ArrayLike, optimism: ArrayLike | None = None, b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """An older form of `optimistic_adam_v2`, for a constant learning rate (deprecated).

    With u the step of `adam`, a parameter moves by
    `-((learning_rate + optimism) * u - optimism * u')`, where u' is the step before.

    Args:
        learning_rate: step size, a number.
        optimism: weight of the difference from the last step; None for `learning_rate`.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    Raises:
        ValueError: `learning_rate` is a schedule.

    >>> import warnings
    >>> from toile import optim
    >>> with warnings.catch_warnings(action="ignore"):
    ...     tx = optim.optimistic_adam(0.1)
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([-0.147,  0.147], dtype=float32)
    """
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
    learning_rate: ScalarOrSchedule, *, alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0,
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam that expects its step to change again as it just did; for games.

    With u the step of `adam` and u' the one before, a parameter moves by
    `-learning_rate * ((alpha + beta) * u - beta * u')`. In games, where players follow different
    losses, this damps cycles (Daskalakis et al., 2018).

    Args:
        learning_rate: step size: a number, or a schedule, which is a function from the number of
            steps taken to a number; 1e-3 is a usual value.
        alpha: weight of the step.
        beta: weight of the difference from the last step.
        b1: decay rate of the average of gradients; values near 1 average over more steps.
        b2: decay rate of the average of squared gradients; values near 1 average over more
            steps.
        eps: small number added to the square root, to avoid division by zero.
        eps_root: small number added under the square root; a positive one is needed to
            differentiate through the update, because the slope of a square root at 0 is infinite.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory; None for that of the parameters.
        nesterov: whether the average of gradients looks one step ahead (Nesterov's momentum, as in
            NAdam).

    Returns:
        The optimizer: a pair of functions `init` and `update`, whose results `apply_updates` adds
        to the parameters.

    >>> from toile import optim
    >>> tx = optim.optimistic_adam_v2(0.1)
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([-0.147,  0.147], dtype=float32)
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled, scaling.scale_by_optimistic_gradient(alpha, beta))
