"""Steps scaled element by element by past gradients, by rules other than Adam's.

Sums and averages of squares (Adagrad, RMSProp, Adadelta), per-axis maxima (SM3), per-leaf norms
(NovoGrad), signs (Rprop).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
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
    """1 / sqrt(total + eps), and 0 where nothing has been seen yet."""
    return jnp.where(total > 0, lax.rsqrt(total + eps), 0.0)


class ScaleByRssState(NamedTuple):
    """The sum of all squared gradients."""

    sum_of_squares: base.Updates


def scale_by_rss(
    initial_accumulator_value: ArrayLike = 0.1, eps: ArrayLike = 1e-7
) -> base.GradientTransformation:
    """Adagrad: over the root of the sum of all squares so far."""
    init_fn = lambda params: ScaleByRssState(tree.full_like(params, initial_accumulator_value))

    def update_fn(updates, state, params=None):
        total = trees.map(lambda g, t: abs_sq(g) + t, updates, state.sum_of_squares)
        factor = trees.map(lambda t: _inverse_root(t, eps), total)
        return tree.mul(factor, updates), ScaleByRssState(total)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByRmsState(NamedTuple):
    """The average square."""

    nu: base.Updates


class ScaleByRmsWithCountState(NamedTuple):
    """Steps taken and the average square."""

    count: ArrayLike
    nu: base.Updates


def _by_root(variance, updates, eps, eps_in_sqrt):
    if eps_in_sqrt:
        factor = lambda v: lax.rsqrt(v + eps)
    else:
        factor = lambda v: 1 / (jnp.sqrt(v) + eps)
    return trees.map(lambda v, g: factor(v) * g, variance, updates)


def _by_average_square(states, centered, decay, eps, initial_scale, eps_in_sqrt, bias_correction):
    """Over the root of the average square, or of the variance; `states`: without count, with."""
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
    """RMSProp: over the root of the average square."""
    states = ScaleByRmsState, ScaleByRmsWithCountState
    options = decay, eps, initial_scale, eps_in_sqrt, bias_correction
    return _by_average_square(states, False, *options)


class ScaleByRStdDevState(NamedTuple):
    """The average gradient and the average square."""

    mu: base.Updates
    nu: base.Updates


class ScaleByRStdDevWithCountState(NamedTuple):
    """Steps taken, the average gradient and the average square."""

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_stddev(
    decay: ArrayLike = 0.9, eps: ArrayLike = 1e-8, initial_scale: ArrayLike = 0.0,
    eps_in_sqrt: bool = True, bias_correction: bool = False,
) -> base.GradientTransformation:
    """Centred RMSProp: over the standard deviation of past gradients."""
    states = ScaleByRStdDevState, ScaleByRStdDevWithCountState
    options = decay, eps, initial_scale, eps_in_sqrt, bias_correction
    return _by_average_square(states, True, *options)


class ScaleByAdaDeltaState(NamedTuple):
    """The average squares of gradients and of steps."""

    e_g: base.Updates
    e_x: base.Updates


def scale_by_adadelta(rho: ArrayLike = 0.9, eps: ArrayLike = 1e-6) -> base.GradientTransformation:
    """Adadelta: by the root of the average squared step over that of the average square."""
    init_fn = lambda params: ScaleByAdaDeltaState(tree.zeros_like(params), tree.zeros_like(params))

    def update_fn(updates, state, params=None):
        e_g = tree.update_moment(updates, state.e_g, rho, 2)
        step = lambda g, eg, ex: jnp.sqrt(ex + eps) / jnp.sqrt(eg + eps) * g
        steps = trees.map(step, updates, e_g, state.e_x)
        return steps, ScaleByAdaDeltaState(e_g, tree.update_moment(steps, state.e_x, rho, 2))

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByRpropState(NamedTuple):
    """The step size of each element, and its last step."""

    step_sizes: base.Updates
    prev_updates: base.Updates


def scale_by_rprop(
    learning_rate: ArrayLike, eta_minus: ArrayLike = 0.5, eta_plus: ArrayLike = 1.2,
    min_step_size: ArrayLike = 1e-6, max_step_size: ArrayLike = 50.0,
) -> base.GradientTransformation:
    """Rprop: signs only; a step size grows while the sign stays and shrinks when it turns."""

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
        # Optax hands out the step before this one, and so do we: results are the same.
        taken = trees.map(stopped, agreement, state.prev_updates)
        return taken, ScaleByRpropState(sizes, steps)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleBySM3State(NamedTuple):
    """For each leaf the maxima of its accumulator along each axis, and the average step."""

    mu: base.Updates
    nu: base.Updates


def _others(axis: int, ndim: int) -> tuple[int, ...]:
    return tuple(i for i in range(ndim) if i != axis)


def scale_by_sm3(
    b1: ArrayLike = 0.9, b2: ArrayLike = 1.0, eps: ArrayLike = 1e-8
) -> base.GradientTransformation:
    """SM3: Adagrad that keeps one vector per axis instead of an accumulator per element."""
    old, new = b2, (1.0 - b2 if b2 != 1.0 else 1.0)

    def init_fn(params):
        if any(jnp.iscomplexobj(x) for x in trees.leaves(params)):
            raise ValueError("scale_by_sm3: needed real parameters, got complex ones")
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
    """Steps taken, the running step, and the average squared norm of each leaf."""

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_novograd(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.25, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    weight_decay: ArrayLike = 0.0, mu_dtype: DTypeLike | None = None,
) -> base.GradientTransformation:
    """NovoGrad: momentum of gradients normalized by the average norm of their leaf."""
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
