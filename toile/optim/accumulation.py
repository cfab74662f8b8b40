"""Updates gathered over steps: momentum, moving averages, several small batches as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api.programs import eval_shape
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
    """The decaying sum."""

    trace: base.Params


def trace(
    decay: ArrayLike, nesterov: bool = False, accumulator_dtype: Any | None = None
) -> base.GradientTransformation:
    """Momentum: the sum of past updates, each step decayed once more.

    >>> import toile.numpy as jnp
    >>> tx = trace(0.5)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.ones(1), state)
    >>> print(updates)
    [1.5]
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
    """Steps taken and the average."""

    count: ArrayLike
    ema: base.Params


def ema(
    decay: ArrayLike, debias: bool = True, accumulator_dtype: Any | None = None
) -> base.GradientTransformation:
    """The moving average of past updates, corrected for its start at zero."""
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
    """Position within the k steps, and the sum so far."""

    count: ArrayLike
    grad_acc: base.Updates


def apply_every(k: ArrayLike = 1) -> base.GradientTransformation:
    """The sum of k updates every k-th step, zero in between."""
    init_fn = lambda params: ApplyEvery(base.zero_count(), tree.zeros_like(params))

    def update_fn(updates, state, params=None):
        position = state.count % k
        begun, last = position != 0, position == k - 1
        total = trees.map(lambda g, t: begun * t + g, updates, state.grad_acc)
        updates = trees.map(lambda t: last * t, total)
        return updates, ApplyEvery(safe_increment(state.count) % k, total)

    return base.GradientTransformation(init_fn, update_fn)


class ShouldSkipUpdateFunction(Protocol):
    """Says whether MultiSteps should leave out a gradient."""

    def __call__(
        self, updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None
    ) -> tuple[ArrayLike, base.ArrayTree]:
        """A boolean scalar, and a tree that explains it, to keep in the state."""


def skip_not_finite(
    updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None
) -> tuple[Array, base.ArrayTree]:
    """Leave out gradients with infinities or NaN in them."""
    counts = [jnp.sum(jnp.logical_not(jnp.isfinite(g))) for g in trees.leaves(updates)]
    bad = jnp.sum(jnp.array(counts))
    return bad > 0, {"should_skip": bad > 0, "num_not_finite": bad}


def skip_large_updates(
    updates: base.Updates, gradient_step: ArrayLike, params: base.Params | None,
    max_squared_norm: ArrayLike,
) -> tuple[Array, base.ArrayTree]:
    """Leave out gradients whose squared norm is max_squared_norm or more (or NaN)."""
    square = jnp.sum(jnp.array([jnp.sum(g**2) for g in trees.leaves(updates)]))
    skip = jnp.logical_not(square < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": square}


def _never_skip(*args: Any, **kwargs: Any) -> tuple[Array, base.ArrayTree]:
    return jnp.array(False, dtype=jnp.bool_), ()


class MultiStepsState(NamedTuple):
    """Small steps since the last update, updates made, inner state, gradients so far."""

    mini_step: ArrayLike
    gradient_step: ArrayLike
    inner_opt_state: Any
    acc_grads: Any
    skip_state: base.ArrayTree = ()


class MultiSteps:
    """An optimizer fed with the mean (or sum) of the gradients of k calls, every k-th call.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.MultiSteps(optim.sgd(1.0), every_k_schedule=2)
    >>> state = tx.init(jnp.zeros(1))
    >>> for g in (1.0, 3.0):
    ...     updates, state = tx.update(jnp.array([g]), state)
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
        self._every_k = (lambda step: every_k) if isinstance(every_k, int) else every_k
        self._use_grad_mean = use_grad_mean
        self._should_skip = should_skip_update_fn or _never_skip
        self._accumulator_dtype = canonical(accumulator_dtype)

    @property
    def inner_opt(self) -> base.GradientTransformationExtraArgs:
        """The optimizer that gets the accumulated gradients."""
        return self._opt

    def init(self, params: Any) -> MultiStepsState:
        """The state before the first gradient."""
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
        """The mean (by its recurrence, which cannot overflow) or the sum so far."""
        if self._use_grad_mean:
            add = lambda g, acc: acc + (g - acc) / (state.mini_step + 1)
        else:
            add = lambda g, acc: g + acc
        return trees.map(add, grads, state.acc_grads)

    def _take(self, grads, state, params, k, extra_args):
        """One more gradient; the inner update counts only if it is the k-th."""
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
        """Zero updates, in the shapes and dtypes that the inner update would give."""
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
        """Zero updates k - 1 times, then those of the inner optimizer."""
        k = self._every_k(state.gradient_step)
        skip, skip_state = self._should_skip(updates, state.gradient_step, params)
        if (skip.dtype, skip.shape) != (jnp.bool_, ()):
            raise ValueError(
                "MultiSteps: needed a boolean scalar of should_skip_update_fn, got "
                f"{skip.dtype}{list(skip.shape)}"
            )
        state = state._replace(skip_state=skip_state)
        return lax.cond(
            skip,
            lambda grads, state, params: self._skip(grads, state, params, extra_args),
            lambda grads, state, params: self._take(grads, state, params, k, extra_args),
            *(updates, state, params),
        )

    def has_updated(self, state: MultiStepsState | base.ArrayTree) -> ArrayLike:
        """Whether the last call was one that updated."""
        return jnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> base.GradientTransformation:
        """The same as a pair of functions."""
        return base.GradientTransformation(init=self.init, update=cast(Any, self.update))
