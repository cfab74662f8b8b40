"""Backtracking line search, which makes a step smaller until the loss decreases enough.

A step must satisfy Armijo's rule, which is stated in `scale_by_backtracking_linesearch`. This
module also contains helpers that all line searches share.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from toile import debug, lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api import linear_transpose, linearize, value_and_grad
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike

__all__ = [
    "BacktrackingLinesearchInfo", "ScaleByBacktrackingLinesearchState",
    "scale_by_backtracking_linesearch", "value_and_grad_from_state",
]  # fmt: skip


class BacktrackingLinesearchInfo(NamedTuple):
    """The outcome of the last backtracking line search.

    Args:
        num_linesearch_steps: number of step sizes tried.
        decrease_error: amount by which the decrease in loss fell short of the required decrease. It
            is at most `atol`, which is 0 by default, if the step was accepted.

    >>> from toile import optim
    >>> optim.scale_by_backtracking_linesearch(15).init(jnp.zeros(1)).info
    BacktrackingLinesearchInfo(num_linesearch_steps=Array(0, dtype=int32, weak_type=True),
    decrease_error=Array(inf, dtype=float32))
    """

    num_linesearch_steps: ArrayLike
    decrease_error: ArrayLike


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """State of `scale_by_backtracking_linesearch`.

    Args:
        learning_rate: step size found by the last search; 0 if the loss was not finite.
        value: loss at the point that the search reached.
        grad: gradient at that point if `store_grad` is True, otherwise None.
        info: outcome of the search.

    >>> from toile import optim
    >>> state = optim.scale_by_backtracking_linesearch(15).init(jnp.zeros(1))
    >>> state.learning_rate, state.value
    (Array(1., dtype=float32), Array(inf, dtype=float32))
    """

    learning_rate: ArrayLike
    value: ArrayLike
    grad: base.Updates | None
    info: BacktrackingLinesearchInfo


class _Search(NamedTuple):
    learning_rate: ArrayLike
    value: ArrayLike
    grad: base.Updates
    decrease_error: ArrayLike
    count: ArrayLike


def real_dtype(params: base.Params) -> Any:
    """Return the dtype of a loss computed from these parameters."""
    return jnp.real(jnp.empty((), dtype=trees.leaves(params)[0].dtype)).dtype


def keywords_of(who: str, value_fn: Callable, extra_args: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for the loss, or raise an error if the loss rejects them."""
    known = inspect.signature(value_fn).parameters
    unknown = sorted(name for name in extra_args if name not in known)
    if unknown:
        raise TypeError(
            f"{who}: Unexpected keyword arguments: needed those that value_fn takes "
            f"({', '.join(known)}), got {', '.join(unknown)}{here()}"
        )
    return extra_args


def print_if(condition: ArrayLike, message: str, **values: ArrayLike) -> None:
    """Print a message from inside the search if a condition holds."""
    lax.cond(condition, lambda: debug.print(message, ordered=True, **values), lambda: None)


@dataclass(frozen=True)
class _Backtracking:
    """The settings of the search, with the functions that run it."""

    max_steps: ArrayLike
    slope_rtol: ArrayLike
    decrease_factor: ArrayLike
    increase_factor: ArrayLike
    max_size: ArrayLike
    atol: ArrayLike
    rtol: ArrayLike
    store_grad: bool

    def init(self, params: base.Params) -> ScaleByBacktrackingLinesearchState:
        """Return the state before the first search."""
        dtype = real_dtype(params)
        return ScaleByBacktrackingLinesearchState(
            learning_rate=jnp.array(1.0, dtype=dtype),
            value=jnp.array(jnp.inf, dtype=dtype),
            grad=tree.zeros_like(params) if self.store_grad else None,
            info=BacktrackingLinesearchInfo(jnp.asarray(0), jnp.array(jnp.inf, dtype=dtype)),
        )

    def missed(self, size, slope, value, new_value):
        """Return the amount by which a step misses the required decrease."""
        error = new_value - (1.0 + self.rtol) * value - size * self.slope_rtol * slope
        return jnp.maximum(jnp.where(jnp.isnan(error), jnp.inf, error), 0.0)

    def attempt(self, search, loss, value, slope, params, updates):
        """Try one more step size; compute the gradient if this size is accepted or is the last."""
        shrunk = self.decrease_factor * search.learning_rate
        size = jnp.where(search.count > 0, shrunk, search.learning_rate)
        point, grad = tree.add_scale(params, size, updates), search.grad
        if self.store_grad:
            new_value, pushforward = linearize(loss, point)
            error = self.missed(size, slope, value, new_value)
            grad = lax.cond(
                (error <= self.atol) | (search.count == self.max_steps),
                lambda p: linear_transpose(pushforward, p)(jnp.ones_like(new_value))[0],
                lambda p: grad,
                point,
            )
        else:
            new_value = loss(point)
            error = self.missed(size, slope, value, new_value)
        new = _Search(size, new_value, grad, error, search.count + 1)
        return tree.cast_like(new, search)

    def run(self, last_size, loss, value, slope, params, updates):
        """Try smaller and smaller steps until one is accepted."""
        size = jnp.minimum(self.increase_factor * last_size, self.max_size)
        start = _Search(
            size, value, tree.zeros_like(params), decrease_error=jnp.array(jnp.inf),
            count=jnp.asarray(0),
        )
        return lax.while_loop(
            lambda s: ~(s.decrease_error <= self.atol) & (s.count <= self.max_steps),
            lambda s: self.attempt(s, loss, value, slope, params, updates),
            start,
        )

    def report(self, search, value, slope):
        """Print what went wrong, if anything did."""
        print_if(
            search.decrease_error > self.atol,
            "scale_by_backtracking_linesearch: no step size decreases the loss enough: value "
            "{value}, slope {slope}, last step size {size}, error {error}",
            value=value, slope=slope, size=search.learning_rate, error=search.decrease_error,
        )
        print_if(
            jnp.isinf(search.decrease_error),
            "scale_by_backtracking_linesearch: the loss is not finite; the step size is 0",
        )


def scale_by_backtracking_linesearch(
    max_backtracking_steps: ArrayLike, slope_rtol: ArrayLike = 1e-4,
    decrease_factor: ArrayLike = 0.8, increase_factor: ArrayLike = 1.5,
    max_learning_rate: ArrayLike = 1.0, atol: ArrayLike = 0.0, rtol: ArrayLike = 0.0,
    store_grad: bool = False, verbose: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Multiply updates by the first step size that decreases the loss enough.

    The step size `s` shrinks until
    `f(w + s * u) <= (1 + rtol) * f(w) + s * slope_rtol * dot(u, grad) + atol` (Armijo's rule). Here
    `f` is the loss, `w` are the parameters, and `u` are the updates, which must point downhill.
    Each search starts with the previous search's step size times `increase_factor`.

    The `update` of this transformation needs the keyword arguments `value` (the loss), `grad` (its
    gradient) and `value_fn` (the function of the parameters that computes the loss). All other
    keyword arguments are passed to `value_fn`.

    Args:
        max_backtracking_steps: maximum number of times that the step size is reduced.
        slope_rtol: required decrease, as a fraction of the decrease that the slope predicts;
            between 0 and 1.
        decrease_factor: factor by which a step size that is too large is multiplied; less than 1.
        increase_factor: factor by which the last step size is multiplied at the start of a search.
            With 1, step sizes never increase.
        max_learning_rate: maximum step size.
        atol: absolute tolerance for the required decrease.
        rtol: tolerance for the required decrease, relative to the loss.
        store_grad: whether to store the gradient at the new point in the state, so that
            `value_and_grad_from_state` can return it.
        verbose: whether to print the reason if a search fails.

    Returns:
        A gradient transformation whose `update` needs the parameters and the three keyword
        arguments above.

    Raises:
        TypeError: `update` receives a keyword argument that `value_fn` does not accept.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum(w**2)
    >>> tx = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(15))
    >>> w = jnp.array([1.0, 2.0])
    >>> value, grad = toile.value_and_grad(loss)(w)
    >>> updates, state = tx.update(grad, tx.init(w), w, value=value, grad=grad, value_fn=loss)
    >>> optim.apply_updates(w, updates).round(3), state[1].learning_rate.round(3)
    (Array([-0.6, -1.2], dtype=float32), Array(0.8, dtype=float32))
    """
    search_for = _Backtracking(
        max_backtracking_steps, slope_rtol, decrease_factor, increase_factor, max_learning_rate,
        atol, rtol, store_grad,
    )  # fmt: skip

    def update_fn(updates, state, params=None, *, value, grad, value_fn, **extra_args):
        keywords = keywords_of("scale_by_backtracking_linesearch", value_fn, extra_args)
        loss = functools.partial(value_fn, **keywords)
        slope = tree.real(tree.vdot(updates, tree.conj(grad)))
        found = search_for.run(state.learning_rate, loss, value, slope, params, updates)
        if verbose:
            search_for.report(found, value, slope)
        size = jnp.where(jnp.isinf(found.decrease_error), 0.0, found.learning_rate)
        grad = found.grad if store_grad else None
        info = BacktrackingLinesearchInfo(found.count, found.decrease_error)
        new = ScaleByBacktrackingLinesearchState(size, found.value, grad, info)
        return tree.scale(size, updates), tree.cast_like(new, state)

    return base.GradientTransformationExtraArgs(search_for.init, cast(Any, update_fn))


def value_and_grad_from_state(
    value_fn: Callable[..., ArrayLike]
) -> Callable[..., tuple[Array, base.Updates]]:
    """Compute a loss and its gradient, or read both from the state of a line search.

    A line search computes the loss, and often also the gradient, at the point where it ends, so the
    next step need not compute them again. The state must contain `value` and `grad`. The states of
    `scale_by_zoom_linesearch`, of `lbfgs`, and of `scale_by_backtracking_linesearch` with
    `store_grad=True` contain both.

    Args:
        value_fn: function of the parameters, and of any other arguments, that returns the loss.

    Returns:
        A function `f(params, *args, state=opt_state, **kwargs)` that returns the loss and the
        gradient. If the state's `value` is finite, the function reads both from the state.
        Otherwise, for instance in the first step, it computes them. It raises ValueError if the
        state does not contain `value` and `grad`.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum((w - 3.0) ** 2)
    >>> tx, w = optim.lbfgs(), jnp.array([1.0, 2.0])
    >>> state = tx.init(w)
    >>> value_and_grad = optim.value_and_grad_from_state(loss)
    >>> for _ in range(3):
    ...     value, grad = value_and_grad(w, state=state)
    ...     updates, state = tx.update(grad, state, w, value=value, grad=grad, value_fn=loss)
    ...     w = optim.apply_updates(w, updates)
    >>> w.round(3)
    Array([3., 3.], dtype=float32)
    """

    def of_state(params, *fn_args, state, **fn_kwargs):
        value, grad = tree.get(state, "value"), tree.get(state, "grad")
        if value is None or grad is None:
            raise ValueError(
                "value_and_grad_from_state: needed a state with `value` and `grad`, got neither "
                f"or only one (backtracking keeps the gradient with store_grad=True){here()}"
            )
        return lax.cond(
            ~jnp.isinf(value) & ~jnp.isnan(value),
            lambda params, args, kwargs: (value, grad),
            lambda params, args, kwargs: value_and_grad(value_fn)(params, *args, **kwargs),
            *(params, fn_args, fn_kwargs),
        )

    return of_state
