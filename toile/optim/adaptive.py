"""Transformations that scale updates according to past gradients, using rules other than Adam's.

They use sums and averages of squared gradients (Adagrad, RMSProp, Adadelta), maxima per axis (SM3),
norms per leaf (NovoGrad) or signs (Rprop).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.engine.source import here
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.moments import canonical
from toile.optim.numerics import abs_sq, safe_increment
from toile.optim.tree.maths import map_present
from toile.typing import DTypeLike

__all__ = [
    "ScaleByAdaDeltaState", "ScaleByNovogradState", "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState", "ScaleByRmsState", "ScaleByRmsWithCountState",
    "ScaleByRpropState", "ScaleByRssState", "ScaleBySM3State", "scale_by_adadelta",
    "scale_by_novograd", "scale_by_rms", "scale_by_rprop", "scale_by_rss", "scale_by_sm3",
    "scale_by_stddev",
]  # fmt: skip


def _inverse_root(total, eps):
    """Return `1 / sqrt(total + eps)`, or 0 where `total` is 0."""
    return jnp.where(total > 0, lax.rsqrt(total + eps), 0.0)


class ScaleByRssState(NamedTuple):
    """State of `scale_by_rss`.

    Args:
        sum_of_squares: sum of all squared gradients so far, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_rss().init(jnp.zeros(2))
    ScaleByRssState(sum_of_squares=Array([0.1, 0.1], dtype=float32))
    """

    sum_of_squares: base.Updates


def scale_by_rss(
    initial_accumulator_value: ArrayLike = 0.1, eps: ArrayLike = 1e-7
) -> base.GradientTransformation:
    """Divide updates by the square root of the sum of all squared updates so far.

    For an update `g`, the sum becomes `s = s + |g|²`. The result is `g / sqrt(s + eps)`, or 0 where
    `s` is 0. `adagrad` adds a learning rate to this transformation.

    Args:
        initial_accumulator_value: initial value of the sum.
        eps: small number added to the sum to avoid division by zero.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_rss(initial_accumulator_value=0.0)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.array([2.0]), state)
    ...     print(updates.round(3))
    [1.]
    [0.707]
    [0.577]
    """
    init_fn = lambda params: ScaleByRssState(tree.full_like(params, initial_accumulator_value))

    def update_fn(updates, state, params=None):
        total = trees.map(lambda g, t: abs_sq(g) + t, updates, state.sum_of_squares)
        factor = trees.map(lambda t: _inverse_root(t, eps), total)
        return tree.mul(factor, updates), ScaleByRssState(total)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByRmsState(NamedTuple):
    """State of `scale_by_rms` if `bias_correction` is False.

    Args:
        nu: average of squared gradients, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_rms().init(jnp.zeros(2))
    ScaleByRmsState(nu=Array([0., 0.], dtype=float32))
    """

    nu: base.Updates


class ScaleByRmsWithCountState(NamedTuple):
    """State of `scale_by_rms` if `bias_correction` is True.

    Args:
        count: number of updates made so far.
        nu: average of squared gradients, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_rms(bias_correction=True).init(jnp.zeros(2))
    ScaleByRmsWithCountState(count=Array(0, dtype=int32), nu=Array([0., 0.], dtype=float32))
    """

    count: ArrayLike
    nu: base.Updates


def _by_root(variance, updates, eps, eps_in_sqrt):
    if eps_in_sqrt:
        factor = lambda v: lax.rsqrt(v + eps)
    else:
        factor = lambda v: 1 / (jnp.sqrt(v) + eps)
    return trees.map(lambda v, g: factor(v) * g, variance, updates)


def _by_average_square(states, centered, decay, eps, initial_scale, eps_in_sqrt, bias_correction):
    """Divide by the root of the average square or variance; `states` are without and with count."""
    state_class = states[bias_correction]

    def init_fn(params):
        count = [base.zero_count()] if bias_correction else []
        means = [tree.zeros_like(params)] if centered else []
        return state_class(*count, *means, tree.full_like(params, initial_scale))

    def update_fn(updates, state, params=None):
        count = [safe_increment(state.count)] if bias_correction else []
        corrected = lambda x: tree.bias_correction(x, decay, *count) if bias_correction else x
        nu = tree.update_moment_per_elem_norm(updates, state.nu, decay, 2)
        variance, means = corrected(nu), []
        if centered:
            means = [tree.update_moment(updates, state.mu, decay, 1)]
            variance = trees.map(lambda m, v: v - abs_sq(m), corrected(means[0]), variance)
        return _by_root(variance, updates, eps, eps_in_sqrt), state_class(*count, *means, nu)

    return base.GradientTransformation(init_fn, update_fn)


def scale_by_rms(
    decay: ArrayLike = 0.9, eps: ArrayLike = 1e-8, initial_scale: ArrayLike = 0.0,
    eps_in_sqrt: bool = True, bias_correction: bool = False,
) -> base.GradientTransformation:
    """Divide updates by the square root of the average squared update.

    The result is `g / sqrt(v + eps)`, where `v` is the moving average of `|g|²` and `g` is the
    update. `rmsprop` adds a learning rate to this transformation.

    Args:
        decay: decay rate of the average of squared gradients; values closer to 1 average over more
            steps.
        eps: small number that avoids division by zero; `eps_in_sqrt` determines where it is added.
        initial_scale: initial value of the average.
        eps_in_sqrt: if True, `eps` is added under the square root; if False, it is added to the
            square root.
        bias_correction: whether to correct the average for the bias caused by initializing it to
            zero.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_rms(decay=0.75)
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 2., -2.], dtype=float32)
    """
    states = ScaleByRmsState, ScaleByRmsWithCountState
    options = decay, eps, initial_scale, eps_in_sqrt, bias_correction
    return _by_average_square(states, False, *options)


class ScaleByRStdDevState(NamedTuple):
    """State of `scale_by_stddev` if `bias_correction` is False.

    Args:
        mu: average of gradients, with the structure of the parameters.
        nu: average of squared gradients, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_stddev().init(jnp.zeros(1))
    ScaleByRStdDevState(mu=Array([0.], dtype=float32), nu=Array([0.], dtype=float32))
    """

    mu: base.Updates
    nu: base.Updates


class ScaleByRStdDevWithCountState(NamedTuple):
    """State of `scale_by_stddev` if `bias_correction` is True.

    Args:
        count: number of updates made so far.
        mu: average of gradients, with the structure of the parameters.
        nu: average of squared gradients, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_stddev(bias_correction=True).init(jnp.zeros(1)).count
    Array(0, dtype=int32)
    """

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_stddev(
    decay: ArrayLike = 0.9, eps: ArrayLike = 1e-8, initial_scale: ArrayLike = 0.0,
    eps_in_sqrt: bool = True, bias_correction: bool = False,
) -> base.GradientTransformation:
    """Divide updates by their standard deviation over past steps.

    The result is `g / sqrt(v - |m|² + eps)`, where `m` and `v` are the moving averages of the
    update `g` and of `|g|²`. `rmsprop` with `centered=True` adds a learning rate to this
    transformation.

    Args:
        decay: decay rate of both averages; values closer to 1 average over more steps.
        eps: small number that avoids division by zero; `eps_in_sqrt` determines where it is added.
        initial_scale: initial value of the average of `|g|²`.
        eps_in_sqrt: if True, `eps` is added under the square root; if False, it is added to the
            square root.
        bias_correction: whether to correct the averages for the bias caused by initializing them to
            zero.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_stddev(decay=0.5)
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 2., -2.], dtype=float32)
    """
    states = ScaleByRStdDevState, ScaleByRStdDevWithCountState
    options = decay, eps, initial_scale, eps_in_sqrt, bias_correction
    return _by_average_square(states, True, *options)


class ScaleByAdaDeltaState(NamedTuple):
    """State of `scale_by_adadelta`.

    Args:
        e_g: average of squared gradients, with the structure of the parameters.
        e_x: average of squared steps, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_adadelta().init(jnp.zeros(1))
    ScaleByAdaDeltaState(e_g=Array([0.], dtype=float32), e_x=Array([0.], dtype=float32))
    """

    e_g: base.Updates
    e_x: base.Updates


def scale_by_adadelta(rho: ArrayLike = 0.9, eps: ArrayLike = 1e-6) -> base.GradientTransformation:
    """Scale updates so that steps are proportional to the size of earlier steps.

    The result is `u = sqrt(d + eps) / sqrt(v + eps) * g`. Here `g` is the update, `v` is the moving
    average of `g²`, and `d` is the moving average of `u²` over the earlier steps. `adadelta` adds a
    learning rate to this transformation.

    Args:
        rho: decay rate of both averages.
        eps: small number added under both square roots; it determines the size of the first steps.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_adadelta(eps=0.01)
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 0.267, -0.312], dtype=float32)
    """
    init_fn = lambda params: ScaleByAdaDeltaState(tree.zeros_like(params), tree.zeros_like(params))

    def update_fn(updates, state, params=None):
        e_g = tree.update_moment(updates, state.e_g, rho, 2)
        step = lambda g, eg, ex: jnp.sqrt(ex + eps) / jnp.sqrt(eg + eps) * g
        steps = trees.map(step, updates, e_g, state.e_x)
        return steps, ScaleByAdaDeltaState(e_g, tree.update_moment(steps, state.e_x, rho, 2))

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByRpropState(NamedTuple):
    """State of `scale_by_rprop`.

    Args:
        step_sizes: step size of each element, with the structure of the parameters.
        prev_updates: steps computed in the last call to `update`, with the structure of the
            parameters. The step of an element is 0 if the sign of its update changed in that call.
            The next call returns these steps, except that it returns 0 for each element whose
            update differs in sign from the one in the last call.

    >>> from toile import optim
    >>> optim.scale_by_rprop(0.1).init(jnp.zeros(1))
    ScaleByRpropState(step_sizes=Array([0.1], dtype=float32), prev_updates=Array([0.],
    dtype=float32))
    """

    step_sizes: base.Updates
    prev_updates: base.Updates


def scale_by_rprop(
    learning_rate: ArrayLike, eta_minus: ArrayLike = 0.5, eta_plus: ArrayLike = 1.2,
    min_step_size: ArrayLike = 1e-6, max_step_size: ArrayLike = 50.0,
) -> base.GradientTransformation:
    """Replace updates with their signs, multiplied by a step size that is adapted for each element.

    The step size of an element is multiplied by `eta_plus` while the sign of its update stays the
    same, and by `eta_minus` when the sign changes. As in Optax, `update` returns the step computed
    in the previous call, so the first result is zero. If the sign of an element's update changes in
    a call, `update` returns 0 for that element in this call and in the next, and the next call
    leaves the element's step size unchanged. `rprop` is this transformation with the sign flipped.

    Args:
        learning_rate: initial step size of each element.
        eta_minus: factor by which the step size is multiplied when the sign changes; less than 1.
        eta_plus: factor by which the step size is multiplied when the sign stays the same; greater
            than 1.
        min_step_size: minimum step size.
        max_step_size: maximum step size.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_rprop(0.1)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.array([7.0]), state)
    ...     print(updates.round(3))
    [0.]
    [0.1]
    [0.12]
    """

    def init_fn(params):
        return ScaleByRpropState(tree.full_like(params, learning_rate), tree.zeros_like(params))

    def resized(agreement, size):
        factor = jnp.where(agreement > 0, eta_plus, eta_minus)
        new = jnp.clip(size * factor, min=min_step_size, max=max_step_size)
        return jnp.where(agreement == 0, size, new)

    def stopped(agreement, step):
        return jnp.where(agreement < 0, jnp.zeros_like(step), step)  # the sign has just turned

    def update_fn(updates, state, params=None):
        agreement = tree.mul(updates, state.prev_updates)
        sizes = trees.map(resized, agreement, state.step_sizes)
        signed = lambda s, g, size: jnp.where(s < 0, jnp.zeros_like(g), size * jnp.sign(g))
        steps = trees.map(signed, agreement, updates, sizes)
        # Like Optax, return the step before this one, so that results are the same.
        taken = trees.map(stopped, agreement, state.prev_updates)
        return taken, ScaleByRpropState(sizes, steps)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleBySM3State(NamedTuple):
    """State of `scale_by_sm3`.

    Args:
        mu: for each leaf, a list with one vector per axis. Each vector contains the maxima of the
            accumulated squares, taken over the other axes.
        nu: moving average of the scaled updates, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_sm3().init(jnp.zeros((1, 2))).mu
    [Array([0.], dtype=float32), Array([0., 0.], dtype=float32)]
    """

    mu: base.Updates
    nu: base.Updates


def _others(axis: int, ndim: int) -> tuple[int, ...]:
    return tuple(i for i in range(ndim) if i != axis)


def scale_by_sm3(
    b1: ArrayLike = 0.9, b2: ArrayLike = 1.0, eps: ArrayLike = 1e-8
) -> base.GradientTransformation:
    """Divide updates by the square root of accumulated squares, of which only maxima are stored.

    For each row, each column, and so on, the largest accumulated square is stored. The accumulated
    square of an element is its squared update plus the smallest of the maxima stored for its row,
    its column, and so on. The divided updates are averaged with decay rate `b1`. `sm3` adds a
    learning rate to this transformation.

    Args:
        b1: decay rate of the average of steps.
        b2: decay rate of the accumulated squares. The value 1 means a plain sum, as in the paper by
            Anil et al. (2019).
        eps: small number added to the accumulated squares to avoid division by zero.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: the parameters are complex; raised by `init`.

    >>> from toile import optim
    >>> tx = optim.scale_by_sm3(b1=0.0)
    >>> grads = jnp.array([[1.0, 2.0], [0.0, 4.0]])
    >>> updates, state = tx.update(grads, tx.init(grads))
    >>> updates.round(3), state.mu
    (Array([[1., 1.],
           [0., 1.]], dtype=float32), [Array([ 4., 16.], dtype=float32), Array([ 1., 16.],
    dtype=float32)])
    """
    old, new = b2, (1.0 - b2 if b2 != 1.0 else 1.0)

    def init_fn(params):
        if any(jnp.iscomplexobj(x) for x in trees.leaves(params)):
            raise ValueError(f"scale_by_sm3: needed real parameters, got complex ones{here()}")
        zeros = lambda p: [jnp.zeros((n,), p.dtype) for n in p.shape]
        return ScaleBySM3State(trees.map(zeros, params), tree.zeros_like(params))

    def accumulated(g, maxima):
        along = [jnp.expand_dims(v, _others(i, g.ndim)) for i, v in enumerate(maxima)]
        bound = along[0] if g.ndim < 2 else functools.reduce(jnp.minimum, along)
        return new * g**2 + old * bound

    def axis_maxima(total):
        if total.ndim < 2:
            return [total] * total.ndim
        return [jnp.max(total, axis=_others(i, total.ndim)) for i in range(total.ndim)]

    def update_fn(updates, state, params=None):
        total = trees.map(accumulated, updates, state.mu)
        step = trees.map(lambda g, a: g * _inverse_root(a, eps), updates, total)
        nu = tree.update_moment(step, state.nu, b1, 1)
        return nu, ScaleBySM3State(trees.map(axis_maxima, total), nu)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByNovogradState(NamedTuple):
    """State of `scale_by_novograd`.

    Args:
        count: number of updates made so far.
        mu: momentum, with the structure of the parameters.
        nu: tree of scalars that contains, for each leaf, the average squared norm of its gradient.

    >>> from toile import optim
    >>> optim.scale_by_novograd().init(jnp.zeros(2))
    ScaleByNovogradState(count=Array(0, dtype=int32), mu=Array([0., 0.], dtype=float32),
    nu=Array(0., dtype=float32))
    """

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_novograd(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.25, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    weight_decay: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None,
) -> base.GradientTransformation:
    """Divide each leaf of the updates by the leaf's average norm, and apply momentum.

    For a leaf with update `g` and parameter `p`, the result is the momentum
    `m = b1 * m + g / (sqrt(v + eps_root) + eps) + weight_decay * p`, where `v` is the moving
    average of `norm(g)**2`. In the first step, `v` is `norm(g)**2`, and the term `b1 * m` is
    omitted. `novograd` adds a learning rate to this transformation.

    Args:
        b1: decay rate of the momentum.
        b2: decay rate of the average squared norm.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        weight_decay: strength of the weight decay.
        mu_dtype: dtype in which the momentum is stored. If `mu_dtype` is None, the dtype of the
            parameters is used.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.scale_by_novograd(), jnp.zeros(2)
    >>> updates, state = tx.update(jnp.array([3.0, 4.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([0.6, 0.8], dtype=float32)
    """
    mu_dtype = canonical(mu_dtype)

    def init_fn(params):
        mu = tree.zeros_like(params, dtype=mu_dtype)
        nu = trees.map(lambda p: jnp.asarray(0.0, dtype=p.dtype), params)
        return ScaleByNovogradState(base.zero_count(), mu, nu)

    def squared_norms(grads):
        return trees.map(lambda g: jnp.linalg.norm(g) ** 2, grads)

    def normalized(grads, params, nu):
        step = lambda g, p, v: g / (jnp.sqrt(v + eps_root) + eps) + weight_decay * p
        return trees.map(step, grads, params, nu)

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        first = count == 1  # averages start at the first value, not at zero
        nu = lax.cond(
            first,
            lambda grads, nu: tree.cast_like(squared_norms(grads), nu),
            lambda grads, nu: tree.update_moment(squared_norms(grads), nu, b2, 1),
            *(updates, state.nu),
        )
        mu = lax.cond(
            first,
            lambda mu, step: step,
            lambda mu, step: map_present(lambda m, s: b1 * m + s, mu, step),
            *(state.mu, normalized(updates, base.required(params), nu)),
        )
        mu = tree.cast(mu, mu_dtype)
        return mu, ScaleByNovogradState(count, mu, nu)

    return base.GradientTransformation(init_fn, update_fn)
