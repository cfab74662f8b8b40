"""Adam and its relatives: gradients divided by the root of their moving average square.

Each keeps averages of g (mu) and of |g|² or the like (nu), both started at zero and corrected for
that by 1 - decayᵗ.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from toile import numpy as jnp
from toile import tree as trees
from toile.dtypes import canonicalize_dtype
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import abs_sq, safe_increment
from toile.optim.tree.maths import map_present
from toile.typing import DTypeLike

__all__ = [
    "ScaleByAdamState", "ScaleByAdanState", "ScaleByAmsgradState", "ScaleByBeliefState",
    "ScaleByLionState", "scale_by_adam", "scale_by_adamax", "scale_by_adan", "scale_by_amsgrad",
    "scale_by_belief", "scale_by_lion", "scale_by_radam", "scale_by_yogi",
]  # fmt: skip


def canonical(dtype: DTypeLike | None) -> Any:
    """The dtype as arrays have it (float64 is float32 where x64 is off); None stays None."""
    return None if dtype is None else canonicalize_dtype(dtype)


def _mean_direction(updates, mu, b1, count, nesterov):
    """mu without its bias; with nesterov, a look one step ahead of it."""
    if not nesterov:
        return tree.bias_correction(mu, b1, count)
    ahead = tree.bias_correction(mu, b1, safe_increment(count))
    now = tree.bias_correction(updates, b1, count)
    return trees.map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)


def _over_root(mu, nu, eps, eps_root):
    return map_present(lambda m, v: m / (jnp.sqrt(v + eps_root) + eps), mu, nu)


def _zero_moments(state_class, mu_dtype=None, squares=1):
    """An init function for a counter, an average gradient and averages of squares."""

    def init_fn(params):
        mu = tree.zeros_like(params, dtype=mu_dtype)
        nus = (tree.zeros_like(params) for _ in range(squares))  # not shared: states are donated
        return state_class(base.zero_count(), mu, *nus)

    return init_fn


class ScaleByAdamState(NamedTuple):
    """Steps taken, the average gradient and the average square."""

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_adam(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = False,
) -> base.GradientTransformation:
    """Adam: mu / (sqrt(nu + eps_root) + eps); mu_dtype is what mu is kept in.

    >>> import toile.numpy as jnp
    >>> tx = scale_by_adam()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> print(updates.round(4), state.count)
    [ 1. -1.] 1
    """
    mu_dtype = canonical(mu_dtype)

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        nu = tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
        mu_hat = _mean_direction(updates, mu, b1, count, nesterov)
        nu_hat = tree.bias_correction(nu, b2, count)
        kept = ScaleByAdamState(count, tree.cast(mu, mu_dtype), tree.cast_like(nu, state.nu))
        return _over_root(mu_hat, nu_hat, eps, eps_root), kept

    return base.GradientTransformation(_zero_moments(ScaleByAdamState, mu_dtype), update_fn)


class ScaleByAmsgradState(NamedTuple):
    """Adam's averages, and the largest square average so far."""

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates
    nu_max: base.Updates


def scale_by_amsgrad(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> base.GradientTransformation:
    """AMSGrad: Adam, divided by the largest average that nu has had, so that steps never grow."""
    mu_dtype = canonical(mu_dtype)

    init_fn = _zero_moments(ScaleByAmsgradState, mu_dtype, squares=2)

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        nu = tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
        mu_hat = tree.bias_correction(mu, b1, count) if bias_correction_mu else mu
        nu_hat = tree.bias_correction(nu, b2, count) if bias_correction_nu else nu
        nu_max = trees.map(jnp.maximum, state.nu_max, nu_hat)
        kept = ScaleByAmsgradState(count, tree.cast(mu, mu_dtype), nu, nu_max)
        return _over_root(mu_hat, nu_max, eps, eps_root), kept

    return base.GradientTransformation(init_fn, update_fn)


def scale_by_adamax(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8
) -> base.GradientTransformation:
    """Adamax: mu over the decaying maximum of |g|, which needs no correction."""

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        nu = tree.update_infinity_moment(updates, state.nu, b2, eps)
        updates = tree.div(tree.bias_correction(mu, b1, count), nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return base.GradientTransformation(_zero_moments(ScaleByAdamState), update_fn)


class ScaleByLionState(NamedTuple):
    """Steps taken and the average gradient."""

    count: ArrayLike
    mu: base.Updates


def _lion_step(x, mode, smooth_beta):
    if mode == "hard":
        return jnp.sign(x)
    if mode == "smooth":
        return jnp.tanh(smooth_beta * x)
    if mode == "refined":
        return jnp.where(jnp.abs(x) < 1.0, x, jnp.sign(x))
    raise ValueError(f"scale_by_lion: needed mode 'hard', 'smooth' or 'refined', got {mode!r}")


def scale_by_lion(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.99, mu_dtype: DTypeLike | None = None, *,
    mode: Literal["hard", "smooth", "refined"] = "hard", smooth_beta: float = 1.0,
) -> base.GradientTransformation:
    """Lion: the sign (or a softer step) of a mix of gradient and average."""
    mu_dtype = canonical(mu_dtype)

    def init_fn(params):
        return ScaleByLionState(base.zero_count(), tree.zeros_like(params, dtype=mu_dtype))

    def update_fn(updates, state, params=None):
        step = lambda g, m: _lion_step((1.0 - b1) * g + b1 * m, mode, smooth_beta)
        mu = tree.cast(tree.update_moment(updates, state.mu, b2, 1), mu_dtype)
        kept = ScaleByLionState(safe_increment(state.count), mu)
        return trees.map(step, updates, state.mu), kept

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByAdanState(NamedTuple):
    """Averages of gradients (m), their differences (v), squares (n); the last gradient; steps."""

    m: base.Updates
    v: base.Updates
    n: base.Updates
    g: base.Updates
    t: ArrayLike


def scale_by_adan(
    b1: ArrayLike = 0.98, b2: ArrayLike = 0.92, b3: ArrayLike = 0.99, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0,
) -> base.GradientTransformation:
    """Adan: Nesterov momentum by averages of gradients and of their differences."""

    def init_fn(params):
        m, v, n, g = (tree.zeros_like(params) for _ in range(4))
        return ScaleByAdanState(m, v, n, g, base.zero_count())

    def update_fn(updates, state, params=None):
        nothing = tree.zeros_like(updates)
        change = tree.where(state.t == 0, nothing, tree.sub(updates, state.g))
        m = tree.update_moment(updates, state.m, b1, 1)
        v = tree.update_moment(change, state.v, b2, 1)
        ahead = tree.add_scale(updates, 1 - b2, change)
        n = tree.update_moment_per_elem_norm(ahead, state.n, b3, 2)
        t = safe_increment(state.t)
        m_hat, v_hat = tree.bias_correction(m, b1, t), tree.bias_correction(v, b2, t)
        root = lambda x: jnp.sqrt(x + eps_root) + eps
        below = trees.map(root, tree.bias_correction(n, b3, t))
        step = tree.div(tree.add_scale(m_hat, 1 - b2, v_hat), below)
        return step, ScaleByAdanState(m, v, n, updates, t)

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByBeliefState(NamedTuple):
    """Steps taken, the average gradient, the average squared surprise."""

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_belief(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-16, eps_root: ArrayLike = 1e-16,
    *, nesterov: bool = False,
) -> base.GradientTransformation:
    """AdaBelief: Adam with the average square of g - mu, how far a gradient is from expected."""

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        surprise = tree.sub(updates, mu)
        nu = tree.update_moment_per_elem_norm(surprise, state.nu, b2, 2)
        nu = trees.map(lambda v: v + eps_root, nu)
        mu_hat = _mean_direction(updates, mu, b1, count, nesterov)
        nu_hat = tree.bias_correction(nu, b2, count)
        step = map_present(lambda m, v: m / (jnp.sqrt(v) + eps), mu_hat, nu_hat)
        return step, ScaleByBeliefState(count, mu, nu)

    return base.GradientTransformation(_zero_moments(ScaleByBeliefState), update_fn)


def scale_by_yogi(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-3, eps_root: ArrayLike = 0.0,
    initial_accumulator_value: ArrayLike = 1e-6,
) -> base.GradientTransformation:
    """Yogi: Adam whose nu moves by a step the size of |g|², up or down, however large nu is."""

    def init_fn(params):
        start = lambda: tree.full_like(params, initial_accumulator_value)
        return ScaleByAdamState(base.zero_count(), start(), start())

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        toward = lambda g, v: v - (1 - b2) * jnp.sign(v - abs_sq(g)) * abs_sq(g)
        nu = trees.map(toward, updates, state.nu)
        mu_hat, nu_hat = tree.bias_correction(mu, b1, count), tree.bias_correction(nu, b2, count)
        return _over_root(mu_hat, nu_hat, eps, eps_root), ScaleByAdamState(count, mu, nu)

    return base.GradientTransformation(init_fn, update_fn)


def scale_by_radam(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    threshold: ArrayLike = 5.0, *, nesterov: bool = False,
) -> base.GradientTransformation:
    """Rectified Adam: plain momentum until nu has seen enough steps to be trusted."""
    longest = 2.0 / (1.0 - b2) - 1.0  # how many samples an average with decay b2 can hold

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        nu = tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
        mu_hat = _mean_direction(updates, mu, b1, count, nesterov)
        nu_hat = tree.bias_correction(nu, b2, count)

        decayed = b2**count
        length = longest - 2 * count * decayed / (1 - decayed)
        above = (length - 4.0) * (length - 2.0) * longest
        r = jnp.sqrt(above / ((longest - 4.0) * (longest - 2.0) * length))

        def step(m, v):
            adapted = r.astype(m.dtype) * m / (jnp.sqrt(v + eps_root) + eps)
            return jnp.where(length >= threshold, adapted, m)

        return trees.map(step, mu_hat, nu_hat), ScaleByAdamState(count, mu, nu)

    return base.GradientTransformation(_zero_moments(ScaleByAdamState), update_fn)
