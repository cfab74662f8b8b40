"""Adam and its variants, which divide gradients by the square root of the average squared gradient.

Each transformation keeps a moving average `mu` of the gradient `g` and a moving average `nu` of
`|g|²` or a similar quantity. Most averages start at zero; dividing them by `1 - decay**t` at step
`t` corrects for the resulting bias.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from toile import numpy as jnp
from toile import tree as trees
from toile.dtypes import canonicalize_dtype
from toile.engine.source import here
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


def check_rates(name: str, b1: Any, b2: Any) -> None:
    """Raise an error for a pair of rates, as the argument `betas` of PyTorch's optimizers is."""
    for rate, shown in ((b1, "b1"), (b2, "b2")):
        if isinstance(rate, (tuple, list, str)):
            raise TypeError(
                f"{name}: {shown} needed to be a number, got {rate!r} (pass two arguments, as in "
                f"b1=0.9, b2=0.999){here()}"
            )


def canonical(dtype: DTypeLike | None) -> Any:
    """Return the dtype that an array gets (float32 for float64 if x64 is off); None stays None."""
    return None if dtype is None else canonicalize_dtype(dtype)


def _mean_direction(updates, mu, b1, count, nesterov):
    """Return `mu` with bias correction; with `nesterov`, look one step ahead."""
    if not nesterov:
        return tree.bias_correction(mu, b1, count)
    ahead = tree.bias_correction(mu, b1, safe_increment(count))
    now = tree.bias_correction(updates, b1, count)
    return trees.map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)


def _over_root(mu, nu, eps, eps_root):
    return map_present(lambda m, v: m / (jnp.sqrt(v + eps_root) + eps), mu, nu)


def _zero_moments(state_class, mu_dtype=None, squares=1):
    """Make an `init` function for a state with a counter, `mu`, and `squares` averages."""

    def init_fn(params):
        mu = tree.zeros_like(params, dtype=mu_dtype)
        nus = (tree.zeros_like(params) for _ in range(squares))  # not shared: states are donated
        return state_class(base.zero_count(), mu, *nus)

    return init_fn


class ScaleByAdamState(NamedTuple):
    """State of `scale_by_adam` and of other transformations that keep the same averages.

    Args:
        count: number of updates made so far.
        mu: average of gradients, with the structure of the parameters.
        nu: average of squared gradients, with the structure of the parameters. In
            `scale_by_adamax`, it is the decaying maximum of absolute gradients.

    >>> from toile import optim
    >>> optim.scale_by_adam().init(jnp.zeros(2))
    ScaleByAdamState(count=Array(0, dtype=int32), mu=Array([0., 0.], dtype=float32), nu=Array([0.,
    0.], dtype=float32))
    """

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_adam(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = False,
) -> base.GradientTransformation:
    """Divide the average update by the square root of the average squared update.

    The result is `m / (sqrt(v + eps_root) + eps)`, where `m` and `v` are the moving averages of the
    update `g` and of `|g|²`. Both averages are corrected for the bias caused by initializing them
    to zero. `adam` adds a learning rate to this transformation.

    Args:
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
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_adam()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3), state.count
    (Array([ 1., -1.], dtype=float32), Array(1, dtype=int32))
    """
    check_rates("scale_by_adam", b1, b2)
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
    """State of `scale_by_amsgrad`.

    Args:
        count: number of updates made so far.
        mu: average of gradients, with the structure of the parameters.
        nu: average of squared gradients, with the structure of the parameters.
        nu_max: largest average of squared gradients so far, with the structure of the parameters.
            The maximum is taken over bias-corrected averages unless `bias_correction_nu` is False.

    >>> from toile import optim
    >>> optim.scale_by_amsgrad().init(jnp.zeros(1)).nu_max
    Array([0.], dtype=float32)
    """

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates
    nu_max: base.Updates


def scale_by_amsgrad(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-8, eps_root: ArrayLike = 0.0,
    mu_dtype: DTypeLike | None = None, bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> base.GradientTransformation:
    """Divide the average update by the square root of the largest average squared update so far.

    The result is `m / (sqrt(max(v) + eps_root) + eps)`, where `m` and `v` are the averages that
    `scale_by_adam` computes, and the maximum is taken over all steps so far. `amsgrad` adds a
    learning rate to this transformation.

    Args:
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
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_amsgrad()
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (10.0, 0.1):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates.round(3))
    [1.]
    [0.479]
    """
    check_rates("scale_by_amsgrad", b1, b2)
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
    """Divide the average update by a decaying maximum of the absolute updates.

    The result is `m / u`. Here `m` is the moving average of the update `g`, corrected for the bias
    caused by initializing it to zero, and `u = max(|g| + eps, b2 * u)`. `adamax` adds a learning
    rate to this transformation.

    Args:
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the maximum of absolute gradients.
        eps: small number added to absolute gradients to avoid division by zero.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_adamax()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """
    check_rates("scale_by_adamax", b1, b2)

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        mu = tree.update_moment(updates, state.mu, b1, 1)
        nu = tree.update_infinity_moment(updates, state.nu, b2, eps)
        updates = tree.div(tree.bias_correction(mu, b1, count), nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return base.GradientTransformation(_zero_moments(ScaleByAdamState), update_fn)


class ScaleByLionState(NamedTuple):
    """State of `scale_by_lion`.

    Args:
        count: number of updates made so far.
        mu: average of gradients, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.scale_by_lion().init(jnp.zeros(2))
    ScaleByLionState(count=Array(0, dtype=int32), mu=Array([0., 0.], dtype=float32))
    """

    count: ArrayLike
    mu: base.Updates


def _lion_step(x, mode, smooth_beta):
    if mode == "hard":
        return jnp.sign(x)
    if mode == "smooth":
        return jnp.tanh(smooth_beta * x)
    if mode == "refined":
        return jnp.where(jnp.abs(x) < 1.0, x, jnp.sign(x))
    raise ValueError(
        f"scale_by_lion: needed mode 'hard', 'smooth' or 'refined', got {mode!r}{here()}"
    )


def scale_by_lion(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.99, mu_dtype: DTypeLike | None = None, *,
    mode: Literal["hard", "smooth", "refined"] = "hard", smooth_beta: float = 1.0,
) -> base.GradientTransformation:
    """Replace each update with the sign of a weighted sum of the update and a moving average.

    The result is `sign(c)` with `c = b1 * m + (1 - b1) * g`, where `g` is the update and `m` is the
    average of the updates so far. Then the average becomes `m = b2 * m + (1 - b2) * g`. `lion` adds
    a learning rate to this transformation.

    Args:
        b1: weight of the average `m` in `c`; the weight of the update is `1 - b1`.
        b2: decay rate of the average.
        mu_dtype: dtype in which the average of gradients is stored, for instance `jnp.bfloat16` to
            save memory. If `mu_dtype` is None, the dtype of the parameters is used.
        mode: "hard" for `sign(c)`, "smooth" for `tanh(smooth_beta * c)`, or "refined" for `c`
            clipped to [-1, 1].
        smooth_beta: steepness of the smooth sign; only used with `mode="smooth"`.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: `mode` is not supported; raised by `update`.

    >>> from toile import optim
    >>> tx = optim.scale_by_lion()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates, state.mu.round(3)
    (Array([ 1., -1.], dtype=float32), Array([ 0.005, -0.02 ], dtype=float32))
    """
    check_rates("scale_by_lion", b1, b2)
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
    """State of `scale_by_adan`.

    Args:
        m: average of gradients, with the structure of the parameters.
        v: average of the differences between successive gradients, with the structure of the
            parameters.
        n: average of the squares of the extrapolated gradients, with the structure of the
            parameters.
        g: previous gradient, with the structure of the parameters.
        t: number of updates made so far.

    >>> from toile import optim
    >>> optim.scale_by_adan().init(jnp.zeros(1)).t
    Array(0, dtype=int32)
    """

    m: base.Updates
    v: base.Updates
    n: base.Updates
    g: base.Updates
    t: ArrayLike


def scale_by_adan(
    b1: ArrayLike = 0.98, b2: ArrayLike = 0.92, b3: ArrayLike = 0.99, eps: ArrayLike = 1e-8,
    eps_root: ArrayLike = 0.0,
) -> base.GradientTransformation:
    """Extrapolate the average update, and divide it by the root of an average of squares.

    Let `d` be the change in the update `g` since the previous step (0 in the first step), and let
    `m`, `v` and `n` be the moving averages of `g`, `d` and `|g + (1 - b2) * d|**2`, corrected for
    the bias caused by initializing them to zero. The result is
    `(m + (1 - b2) * v) / (sqrt(n + eps_root) + eps)`. `adan` adds a learning rate to this
    transformation.

    Args:
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of gradient differences.
        b3: decay rate of `n`.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_adan()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """
    check_rates("scale_by_adan", b1, b2)

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
    """State of `scale_by_belief`.

    Args:
        count: number of updates made so far.
        mu: average of gradients, with the structure of the parameters.
        nu: average of the squared differences between the gradients and `mu`, with the structure of
            the parameters.

    >>> from toile import optim
    >>> optim.scale_by_belief().init(jnp.zeros(2))
    ScaleByBeliefState(count=Array(0, dtype=int32), mu=Array([0., 0.], dtype=float32),
    nu=Array([0., 0.], dtype=float32))
    """

    count: ArrayLike
    mu: base.Updates
    nu: base.Updates


def scale_by_belief(
    b1: ArrayLike = 0.9, b2: ArrayLike = 0.999, eps: ArrayLike = 1e-16, eps_root: ArrayLike = 1e-16,
    *, nesterov: bool = False,
) -> base.GradientTransformation:
    """Divide the average update by the root of the average squared deviation from that average.

    The result is `m / (sqrt(s) + eps)`, where `m` is the moving average of the update `g` and `s`
    is the moving average of `|g - m|**2`. In the result, both averages are corrected for the bias
    caused by initializing them to zero; the deviation `g - m` is computed with the uncorrected
    average. Steps are large where updates are close to their average. `adabelief` adds a learning
    rate to this transformation.

    Args:
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of the average of `|g - m|**2`.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added to the average of `|g - m|**2` at each step.
        nesterov: whether to use Nesterov momentum, which looks one step ahead, as in NAdam.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_belief()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 1.111, -1.111], dtype=float32)
    """
    check_rates("scale_by_belief", b1, b2)

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
    """Divide the average update by the root of a slowly changing estimate of the squared update.

    The result is `m / (sqrt(v + eps_root) + eps)`, where `m` is the moving average of the update
    `g`, and `v = v - (1 - b2) * sign(v - |g|²) * |g|²`. Both are bias-corrected as in
    `scale_by_adam`. Unlike a moving average, `v` changes by `(1 - b2) * |g|²`, no matter how large
    `v` is. `yogi` adds a learning rate to this transformation.

    Args:
        b1: decay rate of the average of gradients; values closer to 1 average over more steps.
        b2: decay rate of `v`; the closer it is to 1, the more slowly `v` follows the squared
            gradients.
        eps: small number added to the square root to avoid division by zero.
        eps_root: small number added under the square root. To differentiate through the update, use
            a positive number, because the derivative of a square root is infinite at 0.
        initial_accumulator_value: initial value of `m` and `v`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_yogi()
    >>> updates, state = tx.update(jnp.array([0.5, -2.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([ 0.996, -0.999], dtype=float32)
    """
    check_rates("scale_by_yogi", b1, b2)

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
    """Average updates and, once enough steps have been taken, divide the average as Adam does.

    Let `m` and `v` be the averages of updates and of squared updates that `scale_by_adam` computes.
    `v` is an average over an effective number of steps that grows during training. While this
    number is less than `threshold`, the result is `m`. After that, the result is
    `r * m / (sqrt(v + eps_root) + eps)`, where `r` approaches 1. `radam` adds a learning rate to
    this transformation.

    Args:
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
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_radam()
    >>> state = tx.init(jnp.zeros(1))
    >>> for step in range(6):
    ...     updates, state = tx.update(jnp.array([10.0]), state)
    ...     if step in (0, 4, 5):
    ...         print(step, updates.round(3))
    0 [10.]
    4 [10.]
    5 [0.026]
    """
    check_rates("scale_by_radam", b1, b2)
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
