"""Transformations that accumulate updates: momentum, averages, and sums over several batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api.programs import eval_shape
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.moments import canonical
from toile.optim.numerics import safe_increment
from toile.optim.tree.maths import map_present
from toile.typing import DTypeLike

__all__ = [
    "ApplyEvery", "EmaState", "MultiSteps", "MultiStepsState", "ShouldSkipUpdateFunction",
    "TraceState", "apply_every", "ema", "skip_large_updates", "skip_not_finite", "trace",
]  # fmt: skip


class TraceState(NamedTuple):
    """State of `trace`.

    Args:
        trace: decaying sum of updates, with the structure of the parameters.

    >>> from toile import optim
    >>> optim.trace(0.9).init(jnp.zeros(2))
    TraceState(trace=Array([0., 0.], dtype=float32))
    """

    trace: base.Params


def trace(
    decay: ArrayLike, nesterov: bool = False, accumulator_dtype: DTypeLike | None = None
) -> base.GradientTransformation:
    """Replace updates with a decaying sum of all updates so far (momentum).

    For an update `g`, the sum becomes `t = g + decay * t`. The result is the new `t` or, if
    `nesterov` is True, `g + decay * t` with the new `t`.

    Args:
        decay: decay rate of the sum, usually 0.9.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.
        accumulator_dtype: dtype in which the sum is stored. If `accumulator_dtype` is None, the
            dtype of the parameters is used.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.trace(0.5)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.ones(1), state)
    ...     print(updates)
    [1.]
    [1.5]
    [1.75]
    """
    accumulator_dtype = canonical(accumulator_dtype)

    init_fn = lambda params: TraceState(tree.zeros_like(params, dtype=accumulator_dtype))

    def update_fn(updates, state, params=None):
        push = lambda g, t: g + decay * t
        total = map_present(push, updates, state.trace)
        updates = trees.map(push, updates, total) if nesterov else total
        return updates, TraceState(tree.cast(total, accumulator_dtype))

    return base.GradientTransformation(init_fn, update_fn)


class EmaState(NamedTuple):
    """State of `ema`.

    Args:
        count: number of updates made so far.
        ema: moving average of updates, not corrected for the bias caused by initializing it to
            zero.

    >>> from toile import optim
    >>> optim.ema(0.9).init(jnp.zeros(2))
    EmaState(count=Array(0, dtype=int32), ema=Array([0., 0.], dtype=float32))
    """

    count: ArrayLike
    ema: base.Params


def ema(
    decay: ArrayLike, debias: bool = True, accumulator_dtype: DTypeLike | None = None
) -> base.GradientTransformation:
    """Replace updates with their exponential moving average.

    For an update `g`, the average becomes `m = decay * m + (1 - decay) * g`. The average starts at
    zero.

    Args:
        decay: decay rate of the average; values closer to 1 average over more steps.
        debias: whether to divide the result by `1 - decay**t` at step `t`, which corrects for the
            bias caused by initializing the average to zero.
        accumulator_dtype: dtype in which the average is stored. If `accumulator_dtype` is None, the
            dtype of the parameters is used.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.ema(0.5)
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (1.0, 4.0):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates)
    [1.]
    [3.]
    """
    accumulator_dtype = canonical(accumulator_dtype)

    def init_fn(params):
        return EmaState(base.zero_count(), tree.zeros_like(params, dtype=accumulator_dtype))

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        average = tree.update_moment(updates, state.ema, decay, order=1)
        updates = tree.bias_correction(average, decay, count) if debias else average
        return updates, EmaState(count, tree.cast(average, accumulator_dtype))

    return base.GradientTransformation(init_fn, update_fn)


class ApplyEvery(NamedTuple):
    """State of `apply_every`.

    Args:
        count: number of updates in the current sum, from 0 to `k - 1`.
        grad_acc: sum of the updates so far. It is reset after every `k` updates.

    >>> from toile import optim
    >>> optim.apply_every(4).init(jnp.zeros(2))
    ApplyEvery(count=Array(0, dtype=int32), grad_acc=Array([0., 0.], dtype=float32))
    """

    count: ArrayLike
    grad_acc: base.Updates


def apply_every(k: ArrayLike = 1) -> base.GradientTransformation:
    """Sum updates over `k` steps; return the sum on every `k`-th step and zeros on the others.

    The parameters change only every `k` steps. Unlike with `MultiSteps`, the other transformations
    in a chain still run on every step.

    Args:
        k: number of updates that are summed.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.apply_every(2)
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (1.0, 2.0, 3.0):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates)
    [0.]
    [3.]
    [0.]
    """
    init_fn = lambda params: ApplyEvery(base.zero_count(), tree.zeros_like(params))

    def update_fn(updates, state, params=None):
        position = state.count % k
        begun, last = position != 0, position == k - 1
        total = trees.map(lambda g, t: begun * t + g, updates, state.grad_acc)
        updates = trees.map(lambda t: last * t, total)
        return updates, ApplyEvery(safe_increment(state.count) % k, total)

    return base.GradientTransformation(init_fn, update_fn)


class ShouldSkipUpdateFunction(Protocol):
    """The type of functions that determine which gradients `MultiSteps` skips.

    `skip_not_finite` is an example. `skip_large_updates` becomes such a function when its argument
    `max_squared_norm` is bound with `functools.partial`.

    >>> from toile import optim
    >>> skip: optim.ShouldSkipUpdateFunction = optim.skip_not_finite
    >>> skip(jnp.array([jnp.nan]), 0, None)[0]
    Array(True, dtype=bool)
    """

    def __call__(
        self, updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None
    ) -> tuple[ArrayLike, base.ArrayTree]:
        """Return a boolean scalar (True means skip) and a tree of details to store in the state.

        Args:
            updates: gradients passed to `update`.
            gradient_step: number of updates that the optimizer has made.
            params: parameters passed to `update`, or None.
        """


def skip_not_finite(
    updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None
) -> tuple[Array, base.ArrayTree]:
    """Check whether gradients contain an infinity or NaN, so that `MultiSteps` can skip them.

    Args:
        updates: gradients to check.
        gradient_step: number of updates made; ignored.
        params: parameters; ignored.

    Returns:
        A boolean scalar (True means skip) and a dict that contains this scalar as `should_skip` and
        the number of elements that are not finite as `num_not_finite`.

    >>> from toile import optim
    >>> skip, info = optim.skip_not_finite(jnp.array([1.0, jnp.inf]), 0, None)
    >>> skip, info["num_not_finite"]
    (Array(True, dtype=bool), Array(1, dtype=int32))
    """
    counts = [jnp.sum(jnp.logical_not(jnp.isfinite(g))) for g in trees.leaves(updates)]
    bad = jnp.sum(jnp.array(counts))
    return bad > 0, {"should_skip": bad > 0, "num_not_finite": bad}


def skip_large_updates(
    updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None,
    max_squared_norm: ArrayLike,
) -> tuple[Array, base.ArrayTree]:
    """Check whether the norm of gradients is too large or NaN, so that `MultiSteps` can skip them.

    Args:
        updates: gradients to check.
        gradient_step: number of updates made; ignored.
        params: parameters; ignored.
        max_squared_norm: limit for the squared norm over all leaves; gradients whose squared norm
            reaches or exceeds the limit are skipped.

    Returns:
        A boolean scalar (True means skip) and a dict that contains this scalar as `should_skip` and
        the squared norm as `norm_squared`.

    >>> import functools
    >>> from toile import optim
    >>> skip_large = functools.partial(optim.skip_large_updates, max_squared_norm=10.0)
    >>> skip_large(jnp.array([3.0, 4.0]), 0, None)[0]
    Array(True, dtype=bool)
    """
    square = jnp.sum(jnp.array([jnp.sum(g**2) for g in trees.leaves(updates)]))
    skip = jnp.logical_not(square < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": square}


def _never_skip(*args: Any, **kwargs: Any) -> tuple[Array, base.ArrayTree]:
    return jnp.array(False, dtype=jnp.bool_), ()


class MultiStepsState(NamedTuple):
    """State of `MultiSteps`.

    Args:
        mini_step: number of gradients accumulated since the last update.
        gradient_step: number of updates that the optimizer has made.
        inner_opt_state: state of the inner optimizer.
        acc_grads: mean or sum of the gradients accumulated since the last update.
        skip_state: tree that `should_skip_update_fn` returned for the last gradient.

    >>> from toile import optim
    >>> state = optim.MultiSteps(optim.sgd(1.0), every_k_schedule=2).init(jnp.zeros(1))
    >>> state.mini_step, state.acc_grads
    (Array(0, dtype=int32), Array([0.], dtype=float32))
    """

    mini_step: ArrayLike
    gradient_step: ArrayLike
    inner_opt_state: base.OptState
    acc_grads: base.Updates
    skip_state: base.ArrayTree = ()


class MultiSteps:
    """Accumulates gradients over several calls, and passes their mean or sum to an optimizer.

    Several small batches thus have the same effect as one large batch. The parameters change once
    in `k` calls to the method `update`, where `every_k_schedule` defines `k`. All other calls
    return zeros and leave the optimizer's state unchanged. Like a gradient transformation, a
    `MultiSteps` object has methods `init` and `update`. Its method `gradient_transformation`
    returns a `GradientTransformation`.

    Args:
        opt: optimizer that receives the accumulated gradients.
        every_k_schedule: number of calls per update, or a function that maps the number of updates
            made so far to the number of calls for the next update.
        use_grad_mean: whether to accumulate the mean of the gradients; if False, their sum is
            accumulated.
        should_skip_update_fn: function `f(updates, gradient_step, params)` that returns a boolean
            scalar and a tree to store in the state. Gradients for which the scalar is True are
            neither accumulated nor counted. If None, no gradient is skipped.
        accumulator_dtype: dtype in which gradients are accumulated.

    >>> from toile import optim
    >>> tx = optim.MultiSteps(optim.sgd(1.0), every_k_schedule=2)
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (1.0, 3.0):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates, tx.has_updated(state))
    [-0.] False
    [-2.] True
    """

    def __init__(
        self, opt: base.GradientTransformation,
        every_k_schedule: int | Callable[[ArrayLike], ArrayLike], use_grad_mean: bool = True,
        should_skip_update_fn: ShouldSkipUpdateFunction | None = None,
        accumulator_dtype: DTypeLike = jnp.float32,
    ):
        self._opt = base.with_extra_args_support(opt)
        every_k: Any = every_k_schedule
        if isinstance(every_k, int) and every_k < 1:
            raise ValueError(
                f"MultiSteps: needed every_k_schedule >= 1, got {every_k} (it is the number of "
                f"calls per update; 1 updates in each call){here()}"
            )
        self._every_k = (lambda step: every_k) if isinstance(every_k, int) else every_k
        self._use_grad_mean = use_grad_mean
        self._should_skip = should_skip_update_fn or _never_skip
        self._accumulator_dtype = canonical(accumulator_dtype)

    @property
    def inner_opt(self) -> base.GradientTransformationExtraArgs:
        """The optimizer that receives the accumulated gradients."""
        return self._opt

    def init(self, params: base.Params) -> MultiStepsState:
        """Create the initial state.

        Args:
            params: parameters to train.
        """
        step = base.zero_count()
        _, skip_state = self._should_skip(tree.zeros_like(params), step, params)
        return MultiStepsState(
            mini_step=base.zero_count(),
            gradient_step=step,
            inner_opt_state=self._opt.init(params),
            acc_grads=tree.zeros_like(params, dtype=self._accumulator_dtype),
            skip_state=skip_state,
        )

    def _gathered(self, grads: Any, state: MultiStepsState) -> Any:
        """Return the sum or the mean so far; the mean is a recurrence, which cannot overflow."""
        if self._use_grad_mean:
            add = lambda g, acc: acc + (g - acc) / (state.mini_step + 1)
        else:
            add = lambda g, acc: g + acc
        return trees.map(add, grads, state.acc_grads)

    def _take(self, grads, state, params, k, extra_args):
        """Accumulate one more gradient; keep the inner update only if it is the k-th."""
        gathered = self._gathered(grads, state)
        updates, inner = self._opt.update(
            tree.cast_like(gathered, grads), state.inner_opt_state, params=params, **extra_args
        )
        emit = state.mini_step == k - 1
        keep = lambda old, new: jnp.astype(jnp.where(emit, new, old), old.dtype)
        made = emit * safe_increment(state.gradient_step) + (1 - emit) * state.gradient_step
        rest = lambda acc: jnp.astype((1 - emit) * acc, self._accumulator_dtype)
        state = state._replace(
            mini_step=safe_increment(state.mini_step) % k,
            gradient_step=made,
            inner_opt_state=trees.map(keep, state.inner_opt_state, inner),
            acc_grads=trees.map(rest, gathered),
        )
        return trees.map(lambda u: emit * u, updates), state

    def _skip(self, grads, state, params, extra_args):
        """Return zeros with the shapes and dtypes of the inner updates, and the state unchanged."""
        arrays = {k: v for k, v in extra_args.items() if isinstance(v, Array)}
        others = {k: v for k, v in extra_args.items() if k not in arrays}

        def inner(grads, inner_state, params, arrays):
            return self._opt.update(grads, inner_state, params=params, **others, **arrays)[0]

        like = tree.cast_like(state.acc_grads, grads)
        shapes = eval_shape(inner, like, state.inner_opt_state, params, arrays)
        return tree.zeros_like(shapes), state

    def update(
        self, updates: base.Updates, state: MultiStepsState, params: base.Params | None = None,
        **extra_args: Any,
    ) -> tuple[base.Updates, MultiStepsState]:
        """Accumulate gradients; return updates on every `k`-th call, and zeros on all other calls.

        Args:
            updates: gradients from one small batch.
            state: state that `init` or the last call returned.
            params: parameters; only some optimizers need them.
            extra_args: keyword arguments for the optimizer.

        Returns:
            The updates and the new state.

        Raises:
            ValueError: `should_skip_update_fn` returns something other than a boolean scalar.
        """
        k = self._every_k(state.gradient_step)
        skip, skip_state = self._should_skip(updates, state.gradient_step, params)
        if (skip.dtype, skip.shape) != (jnp.bool_, ()):
            raise ValueError(
                "MultiSteps: needed a boolean scalar from should_skip_update_fn, got "
                f"{skip.dtype}{list(skip.shape)}{here()}"
            )
        state = state._replace(skip_state=skip_state)
        return lax.cond(
            skip,
            lambda grads, state, params: self._skip(grads, state, params, extra_args),
            lambda grads, state, params: self._take(grads, state, params, k, extra_args),
            *(updates, state, params),
        )

    def has_updated(self, state: MultiStepsState | base.ArrayTree) -> Array:
        """Return a boolean scalar: True if no gradient has been accumulated since the last update.

        If no gradients are skipped, the result is True if and only if the last call to `update`
        made an update. Before the first update, the result is False. A call whose gradients are
        skipped does not change the result: after an update, the result stays True until the next
        gradient is accumulated.

        Args:
            state: state that the last call to `update` returned.
        """
        return jnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> base.GradientTransformation:
        """Return a `GradientTransformation` that behaves like this object."""
        return base.GradientTransformation(init=self.init, update=cast(Any, self.update))
