"""Adaptive optimizers: chains of gradient transformations that end with a learning rate.

A learning rate is a number or a schedule (a function of the step count). Masks may be globs that
match parameter paths. `apply_updates` adds the result of `update` to the parameters.
"""

from __future__ import annotations

import functools
import warnings

from toile import numpy as jnp
from toile.engine.source import here
from toile.optim import adaptive, base, moments, scaling
from toile.optim.accumulation import ema, trace
from toile.optim.adding import add_decayed_weights
from toile.optim.base import ArrayLike, GradientTransformationExtraArgs, ScalarOrSchedule
from toile.optim.clipping import clip_by_block_rms
from toile.optim.combining import chain
from toile.optim.factored import scale_by_factored_rms
from toile.optim.masking import MaskOrFn, masked
from toile.optim.recorded_hyperparams import recording
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
    """Create a chain that applies `steps` and then the learning rate."""
    return chain(*steps, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: ScalarOrSchedule, b1: ArrayLike = 0.9, b2: ArrayLike = 0.999,
    eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam, which divides the average gradient by the square root of the average squared gradient.

    Let `m` and `v` be the moving averages of the gradient `g` and of `g²`, corrected for the bias
    caused by initializing them to zero. A parameter moves by
    `-learning_rate * m / (sqrt(v + eps_root) + eps)`, so all elements move by about the same amount
    (Kingma and Ba, 2014).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
nadam.__doc__ = """Adam with Nesterov momentum (Dozat, 2016).

`nadam` is `adam` with `nesterov=True`; all other arguments are the same as those of `adam`.

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
    """Adam with decoupled weight decay, which does not depend on the average squared gradient.

    A parameter `p` moves by `-learning_rate * (m / (sqrt(v + eps_root) + eps) + weight_decay * p)`,
    where `m` and `v` are the averages that `adam` computes (Loshchilov and Hutter, 2019).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        weight_decay: strength of the weight decay, a number or a schedule; typical values are 1e-4
            to 0.1. The weight decay is multiplied by the learning rate.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
nadamw.__doc__ = """AdamW with Nesterov momentum.

`nadamw` is `adamw` with `nesterov=True`; all other arguments are the same as those of `adamw`.

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
    """A variant of Adam that uses the largest average squared gradient of all steps so far.

    A parameter moves by `-learning_rate * m / (sqrt(max(v) + eps_root) + eps)`, where `m` and `v`
    are the averages that `adam` computes. The maximum is taken over all steps so far, so it never
    decreases (Reddi et al., 2018).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        bias_correction_mu: whether to correct the average of gradients for the bias caused by
            initializing it to zero.
        bias_correction_nu: whether to correct the average of squared gradients for the bias caused
            by initializing it to zero.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """A variant of Adam that divides by a decaying maximum of the absolute gradients.

    A parameter moves by `-learning_rate * m / u`. Here `m` is the moving average of the gradient
    `g`, corrected for the bias caused by initializing it to zero, and `u = max(|g| + eps, b2 * u)`
    (Kingma and Ba, 2014).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the maximum of absolute gradients.
        eps: small number added to absolute gradients to avoid division by zero.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """Adamax with decoupled weight decay, which does not depend on the size of the gradients.

    A parameter `p` moves by `-learning_rate * (m / u + weight_decay * p)`, where `m` and `u` are
    defined as in `adamax`.

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the maximum of absolute gradients.
        eps: small number added to absolute gradients to avoid division by zero.
        weight_decay: strength of the weight decay, a number or a schedule. The weight decay is
            multiplied by the learning rate.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Rectified Adam, which starts as plain momentum and becomes adaptive after enough steps.

    Let `m` and `v` be the averages that `adam` computes. In the first steps, a parameter moves by
    `-learning_rate * m`. Once `v` effectively averages over at least `threshold` steps, the
    parameter moves by `-learning_rate * r * m / (sqrt(v + eps_root) + eps)`, where `r`
    approaches 1. This rule makes a warm-up of the learning rate unnecessary (Liu et al., 2020).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        threshold: effective number of steps over which the average of squared gradients must extend
            before it is used.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """AdaBelief: a variant of Adam that takes larger steps where gradients are near their mean.

    A parameter moves by `-learning_rate * m / (sqrt(s) + eps)`, where `m` is the moving average of
    the gradient `g` and `s` is the moving average of `(g - m)**2`. In the step, both averages are
    corrected for the bias caused by initializing them to zero; the deviation `g - m` is computed
    with the uncorrected average (Zhuang et al., 2020).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of `(g - m)**2`.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added to the average of `(g - m)**2` at each step.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """Adan, which computes Nesterov momentum from averages of gradients and of their differences.

    Let `d` be the change in the gradient `g` since the previous step, and let `m`, `v` and `n` be
    the moving averages of `g`, `d` and `(g + (1 - b2) * d)**2`, corrected for the bias caused by
    initializing them to zero. A parameter `p` moves by
    `-learning_rate * ((m + (1 - b2) * v) / (sqrt(n + eps_root) + eps) + weight_decay * p)` (Xie et
    al., 2022).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of gradient differences.
        b3: decay rate of `n`.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        weight_decay: strength of the weight decay, a number or a schedule. The weight decay is
            multiplied by the learning rate.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Lion, which uses only the sign of a weighted sum of the gradient and its moving average.

    A parameter `p` with gradient `g` moves by
    `-learning_rate * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)`, where `m` is the average of
    the gradients so far. Then the average becomes `m = b2 * m + (1 - b2) * g` (Chen et al., 2023).
    Lion stores one average; Adam stores two.

    Args:
        learning_rate: step size, a number or a schedule; usually 3 to 10 times smaller than for
            Adam, with a weight decay that is larger by the same factor.
        b1: weight of the average `m` in the sum whose sign is taken; the weight of `g` is `1 - b1`.
        b2: decay rate of the average of gradients.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        weight_decay: strength of the weight decay, a number or a schedule. The weight decay is
            multiplied by the learning rate.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Yogi, a variant of Adam that changes its average of squared gradients more slowly.

    For a gradient `g`, the average of squared gradients, `v`, moves toward `g²` by a fixed fraction
    of `g²`: it becomes `v - (1 - b2) * sign(v - g²) * g²`. A parameter moves by
    `-learning_rate * m / (sqrt(v) + eps)`, where `m` and `v` are bias-corrected as in `adam`
    (Zaheer et al., 2018). Both `m` and `v` start at 1e-6.

    Args:
        learning_rate: step size, a number or a schedule; 0.01 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of `v`; the closer it is to 1, the more slowly `v` follows the squared
            gradients.
        eps: small number added to the square root to avoid division by zero.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """LAMB: a variant of Adam whose step for each array is proportional to the array's norm.

    Let `u` be the step that `adamw` computes, including weight decay but not the learning rate. An
    array `p` moves by `-learning_rate * norm(p) / norm(u) * u`, or by `-learning_rate * u` if one
    of the norms is zero. LAMB is designed for very large batches (You et al., 2020).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        weight_decay: strength of the weight decay, a number or a schedule.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """LARS: a variant of momentum whose step for each array is proportional to the array's norm.

    Let `u = g + weight_decay * p` for an array `p` with gradient `g`. The array's velocity becomes
    `v = momentum * v - learning_rate * trust_coefficient * norm(p) / (norm(u) + eps) * u`, and the
    array moves by `v`. LARS is designed for very large batches (You et al., 2017).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).
        weight_decay: strength of the weight decay, a number or a schedule.
        weight_decay_mask: the parameters that decay, given in any form that `masked` accepts. True
            selects all parameters. Biases and normalization parameters are usually excluded.
        trust_coefficient: factor by which the ratio of norms is multiplied.
        eps: small number added to the norm of `u`.
        trust_ratio_mask: the parameters whose steps are scaled by the ratio of norms, given in any
            form that `masked` accepts. True selects all parameters.
        momentum: decay rate of the velocity.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Fromage, whose step for each array is proportional to the array's norm.

    An array `p` with gradient `g` becomes
    `(p - learning_rate * norm(p) / norm(g) * g) / sqrt(1 + learning_rate**2)`. The division keeps
    the norm of the array from growing (Bernstein et al., 2020).

    Args:
        learning_rate: step size relative to the norm of an array, a number or a schedule; 0.01 is a
            typical value.
        min_norm: lower bound for both norms.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """NovoGrad, which divides each gradient array by the array's average norm and applies momentum.

    For an array `p` with gradient `g`, let the number `v` be the moving average of `norm(g)**2`.
    The momentum becomes `m = b1 * m + g / (sqrt(v + eps_root) + eps) + weight_decay * p`, and the
    array moves by `-learning_rate * m`. In the first step, `v` is `norm(g)**2`, and the term
    `b1 * m` is omitted (Ginsburg et al., 2019).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        b1: decay rate of the momentum.
        b2: decay rate of the average squared norm.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        weight_decay: strength of the weight decay, a number.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Adagrad, which divides gradients by the square root of the sum of their squares so far.

    For a gradient `g`, the sum becomes `s = s + g²`, and the parameter moves by
    `-learning_rate * g / sqrt(s + eps)`, so steps become smaller and smaller. Adagrad is well
    suited to sparse gradients (Duchi et al., 2011).

    Args:
        learning_rate: step size, a number or a schedule; typical values are 0.01 to 0.1.
        initial_accumulator_value: initial value of the sum.
        eps: small number added to the sum to avoid division by zero.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """Adadelta, whose steps are proportional to the size of earlier steps.

    For a gradient `g`, the step is `u = sqrt(d + eps) / sqrt(v + eps) * g`, where `v` is the moving
    average of `g²` and `d` is the moving average of `u²` over the earlier steps (Zeiler, 2012). The
    parameter moves by `-learning_rate * u`. Weight decay is added to the gradient `g` before this
    rule is applied.

    Args:
        learning_rate: factor by which steps are multiplied, a number or a schedule; 1.0 gives the
            published rule. If None, updates are multiplied neither by a learning rate nor by -1, so
            they point uphill.
        rho: decay rate of both averages.
        eps: small number added under both square roots; it determines the size of the first steps.
        weight_decay: strength of the weight decay, a number or a schedule.
        weight_decay_mask: the parameters that decay, given as a tree of bools with the structure of
            the parameters or a prefix of that structure, as a function that returns such a tree for
            the parameters, or as one or more globs that match parameter paths, such as
            `"**/kernel"`. If `weight_decay_mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """Adafactor, which stores only row and column averages of a matrix's squared gradients.

    A parameter's gradient is divided by the square root of the average squared gradient (see
    `scale_by_factored_rms`). The quotient is scaled down if its root mean square exceeds
    `clipping_threshold`, and is then multiplied by the learning rate and by the root mean square
    of the parameter. Finally, momentum and weight decay are applied, if requested. Large matrices
    need little additional memory (Shazeer and Stern, 2018).

    Args:
        learning_rate: step size, a number or a schedule; 1 by default. If
            `multiply_by_parameter_scale` is True, the step size is relative to the root mean square
            of the parameter.
        min_dim_size_to_factor: an array is factored if its second-largest axis has at least this
            size.
        decay_rate: exponent `c`; the decay rate of the averages at step `t` is `1 - t**-c`.
        decay_offset: number subtracted from the step count to obtain `t`; set it if training
            continues from a saved state.
        multiply_by_parameter_scale: whether to multiply each parameter's step by the parameter's
            root mean square, or by 1e-3 if the root mean square is less than 1e-3.
        clipping_threshold: maximum root mean square of an array's step before the multiplication by
            the learning rate. If `clipping_threshold` is None, there is no limit.
        momentum: decay rate of the moving average of steps. If None, steps are not averaged.
        dtype_momentum: dtype in which the average of steps is stored.
        weight_decay_rate: strength of the weight decay, a number or a schedule; if None, there is
            no weight decay. The weight decay is not multiplied by the learning rate.
        eps: small number added to squared gradients.
        factored: whether to factor the averages of squared gradients. If False, the averages are
            stored in full.
        weight_decay_mask: the parameters that decay, given as a tree of bools with the structure of
            the parameters or a prefix of that structure, as a function that returns such a tree for
            the parameters, or as one or more globs that match parameter paths, such as
            `"**/kernel"`. If `weight_decay_mask` is None, all parameters decay.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters. `update` needs the parameters.

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
    """RMSProp, which divides gradients by the square root of the average squared gradient.

    A parameter with gradient `g` moves by `-learning_rate * g / sqrt(v + eps)`, where `v` is the
    moving average of `g²` (Hinton, 2012). If `centered` is True, the square of the average gradient
    is subtracted from `v` (Graves, 2013). Momentum is applied after the learning rate.

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        decay: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number that avoids division by zero; `eps_in_sqrt` determines where it is added.
        initial_scale: initial value of the average of squared gradients. PyTorch uses 0; TensorFlow
            1.x uses 1.
        eps_in_sqrt: if True, `eps` is added under the square root; if False, it is added to the
            square root.
        centered: whether to divide by the standard deviation of the gradients instead of by the
            square root of their average square.
        momentum: decay rate of the accumulated updates, usually 0.9. If None, there is no momentum.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.
        bias_correction: whether to correct the averages for the bias caused by initializing them to
            zero.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """SM3: a variant of Adagrad that stores one vector per axis, not one number per element.

    The sum of an element's squared gradients is estimated as the smallest of the entries stored for
    its row, its column, and so on. Gradients are divided by the square root of this estimate, and
    the quotients are averaged (Anil et al., 2019). Large matrices need little additional memory.

    Args:
        learning_rate: step size, a number.
        momentum: decay rate of the average of steps.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    """A deprecated version of `optimistic_adam_v2` that requires a constant learning rate.

    A parameter moves by `-((learning_rate + optimism) * u - optimism * u')`, where `u` is the step
    that `adam` computes, without the learning rate, and `u'` is the previous `u`.

    Args:
        learning_rate: step size, a number.
        optimism: weight of the difference from the previous step. If `optimism` is None,
            `learning_rate` is used.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

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
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    if callable(learning_rate):
        raise ValueError(
            "optimistic_adam: needed a constant learning_rate, got a schedule "
            f"(optimistic_adam_v2 takes them){here()}"
        )
    optimism = learning_rate if optimism is None else optimism
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(1.0, scaled, scaling.scale_by_optimistic_gradient(learning_rate, optimism))


def optimistic_adam_v2(
    learning_rate: ScalarOrSchedule, *, alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0,
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Optimistic Adam, which extrapolates changes in steps; used for games such as GAN training.

    A parameter moves by `-learning_rate * ((alpha + beta) * u - beta * u')`, where `u` is the step
    that `adam` computes, without the learning rate, and `u'` is the previous `u`. In games, where
    each player minimizes a different loss, the extrapolation damps cycles (Daskalakis et al.,
    2018).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number). 1e-3 is a typical value.
        alpha: weight of the current step.
        beta: weight of the difference from the previous step.
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx = optim.optimistic_adam_v2(0.1)
    >>> updates, state = tx.update(jnp.array([0.3, -5.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([-0.147,  0.147], dtype=float32)
    """
    scaled = moments.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return _descent(learning_rate, scaled, scaling.scale_by_optimistic_gradient(alpha, beta))


for _name in __all__:  # `get_hyperparams` reads their arguments
    globals()[_name] = recording(globals()[_name])
