"""Zoom line search, which finds a step size that satisfies the strong Wolfe conditions.

The step size is increased until an interval is found that contains a good step size. The interval
is then narrowed by cubic interpolation, quadratic interpolation or bisection (Nocedal and Wright,
Numerical Optimization, algorithms 3.5 and 3.6, with the approximate decrease condition of Hager and
Zhang). If no good step size is found, the search uses the best step size that decreased the loss
enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

from toile import lax
from toile import numpy as jnp
from toile.api import value_and_grad
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.optim import base, tree
from toile.optim.backtracking import keywords_of, print_if, real_dtype
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment

__all__ = ["ScaleByZoomLinesearchState", "ZoomLinesearchInfo", "scale_by_zoom_linesearch"]


class ZoomLinesearchInfo(NamedTuple):
    """The outcome of the last zoom line search.

    Args:
        num_linesearch_steps: number of step sizes tried.
        decrease_error: amount by which the decrease in loss fell short of the required decrease; 0
            if the decrease sufficed.
        curvature_error: amount by which the slope exceeded its limit; 0 if the slope was within
            the limit.

    >>> from toile import optim
    >>> optim.scale_by_zoom_linesearch(15).init(jnp.zeros(1)).info.decrease_error
    Array(inf, dtype=float32, weak_type=True)
    """

    num_linesearch_steps: ArrayLike
    decrease_error: ArrayLike
    curvature_error: ArrayLike


class ScaleByZoomLinesearchState(NamedTuple):
    """State of `scale_by_zoom_linesearch`.

    Args:
        learning_rate: step size found by the last search.
        value: loss at the point that the search reached.
        grad: gradient at that point.
        info: outcome of the search.

    >>> from toile import optim
    >>> state = optim.scale_by_zoom_linesearch(15).init(jnp.zeros(1))
    >>> state.learning_rate, state.value
    (Array(1., dtype=float32), Array(inf, dtype=float32))
    """

    learning_rate: ArrayLike
    value: ArrayLike
    grad: base.Updates
    info: ZoomLinesearchInfo


class _Point(NamedTuple):
    """A step size, with the loss and its slope at that step."""

    size: ArrayLike
    value: ArrayLike
    slope: ArrayLike


class _Best(NamedTuple):
    """The best step that decreases the loss enough; size 0 while there is none."""

    size: ArrayLike
    value: ArrayLike
    grad: base.Updates


class _Search(NamedTuple):
    count: ArrayLike
    now: _Point
    grad: base.Updates
    decrease_error: ArrayLike
    curvature_error: ArrayLike
    interval_found: ArrayLike
    done: ArrayLike
    failed: ArrayLike
    low: _Point
    high: _Point
    third: tuple[ArrayLike, ArrayLike]  # another step size with its value, for the cubic
    best: _Best


def _cubic_minimum(low: _Point, high: _Point, third: tuple) -> ArrayLike:
    """Return the minimizer of the cubic with three given values and the slope at `low`."""
    db, dc = high.size - low.size, third[0] - low.size
    below = (db * dc) ** 2 * (db - dc)
    matrix = jnp.array([[dc**2, -(db**2)], [-(dc**3), db**3]])
    rest = jnp.array(
        [high.value - low.value - low.slope * db, third[1] - low.value - low.slope * dc]
    )
    a, b = jnp.dot(matrix, rest, precision=lax.Precision.HIGHEST) / below
    radical = b * b - 3.0 * a * low.slope
    return low.size + (-b + jnp.sqrt(radical)) / (3.0 * a)


def _quadratic_minimum(low: _Point, high: _Point) -> ArrayLike:
    """Return the minimizer of the parabola with two given values and the slope at `low`."""
    db = high.size - low.size
    b = (high.value - low.value - low.slope * db) / (db**2)
    return low.size - low.slope / (2.0 * b)


@dataclass(frozen=True)
class _Zoom:
    """The settings of the search; the methods receive the line to search as an argument."""

    max_steps: ArrayLike
    max_size: ArrayLike | None
    tol: ArrayLike
    increase_factor: ArrayLike
    slope_rtol: ArrayLike
    curv_rtol: ArrayLike
    approx_dec_rtol: ArrayLike | None
    interval_threshold: ArrayLike
    verbose: bool

    def errors(self, point: _Point, start: _Point) -> tuple[ArrayLike, ArrayLike]:
        """Return the amounts by which a point misses the required decrease and slope."""
        decrease = point.value - start.value - self.slope_rtol * point.size * start.slope
        if self.approx_dec_rtol is not None:
            by_slope = point.slope - (2 * self.slope_rtol - 1.0) * start.slope
            by_value = point.value - start.value - self.approx_dec_rtol * jnp.abs(start.value)
            decrease = jnp.minimum(jnp.maximum(by_slope, by_value), decrease)
        curvature = jnp.abs(point.slope) - self.curv_rtol * jnp.abs(start.slope)
        worst = lambda error: jnp.where(jnp.isnan(error), jnp.inf, error)
        return worst(jnp.maximum(decrease, 0.0)), worst(jnp.maximum(curvature, 0.0))

    def widen(self, search: _Search, line: Callable, start: _Point, guess: ArrayLike) -> _Search:
        """Try a larger step, and record whether an interval with a good step is found."""
        last, tol = search.now, self.tol
        size = jnp.where(search.count == 0, guess, self.increase_factor * last.size)
        at_limit = jnp.asarray(False)
        if self.max_size is not None:
            at_limit = size >= self.max_size
            size = jnp.minimum(size, self.max_size)
        new, grad = line(size)
        decrease_error, curvature_error = self.errors(new, start)
        error = jnp.maximum(decrease_error, curvature_error)
        best = tree.where(decrease_error <= tol, _Best(new.size, new.value, grad), search.best)

        rises = (decrease_error > 0.0) | ((new.value >= last.value) & (search.count > 0))
        turns = (new.slope >= 0.0) & ~rises
        low, high = tree.where(turns, (new, last), (last, new))
        found = rises | turns | (error <= tol)
        done = (error <= tol) | (at_limit & ~found)
        failed = (search.count + 1 >= self.max_steps) & ~done
        if self.verbose:
            print_if(
                at_limit & ~found,
                "scale_by_zoom_linesearch: uses the largest step size {size}: the loss still "
                "decreases there, with slope {slope}", size=size, slope=new.slope,
            )
        return _after(
            search, new, grad, (decrease_error, curvature_error), best, low, high,
            third=(low.size, low.value), interval_found=jnp.asarray(found),
            done=jnp.asarray(done), failed=jnp.asarray(failed),
        )

    def guess_inside(self, search: _Search) -> ArrayLike:
        """Guess a step inside the interval by a cubic or a parabola, or else take the middle."""
        low, high = search.low, search.high
        length = jnp.abs(high.size - low.size)
        left, right = jnp.minimum(high.size, low.size), jnp.maximum(high.size, low.size)
        inside = lambda x, margin: (x > left + margin) & (x < right - margin)
        cubic = _cubic_minimum(low, high, search.third)
        quadratic = _quadratic_minimum(low, high)
        use_cubic = inside(cubic, 0.2 * length)
        use_quadratic = ~use_cubic & inside(quadratic, 0.1 * length)
        middle = jnp.where(use_cubic, cubic, search.third[0])
        middle = jnp.where(use_quadratic, quadratic, middle)
        return jnp.where(~use_cubic & ~use_quadratic, (low.size + high.size) / 2.0, middle)

    def narrow(self, search: _Search, line: Callable, start: _Point) -> _Search:
        """Try a step inside the interval, and make this step one of the ends of the interval."""
        low, high, tol = search.low, search.high, self.tol
        too_small = jnp.abs(high.size - low.size) <= self.interval_threshold
        new, grad = line(self.guess_inside(search))
        decrease_error, curvature_error = self.errors(new, start)
        done = jnp.maximum(decrease_error, curvature_error) <= tol
        better = (decrease_error <= tol) & (new.value < search.best.value)
        best = tree.where(better, _Best(new.size, new.value, grad), search.best)

        rises = (decrease_error > 0.0) | (new.value >= low.value)
        turns = (new.slope * (high.size - low.size) >= 0.0) & ~rises
        end = tree.where(turns, low, tree.where(rises, new, high))
        third = tree.where(rises | turns, high[:2], low[:2])
        spent = jnp.asarray(search.count + 1 >= self.max_steps)
        failed = (spent | (too_small & (best.size > 0.0))) & ~done
        return _after(
            search, new, grad, (decrease_error, curvature_error), best,
            tree.where(rises, low, new), end, third=third, done=done, failed=failed,
        )

    def run(self, start: _Search, line: Callable, guess: ArrayLike) -> _Search:
        """Try steps until one is good enough or the search fails."""
        origin = start.low

        def fall_back(search):
            if self.verbose:
                _report(self.interval_threshold, search, origin)
            use_best = (search.best.size > 0.0) | jnp.isinf(search.decrease_error)
            tried = _Best(search.now.size, search.now.value, search.grad)
            size, value, grad = tree.where(use_best, search.best, tried)
            now = search.now._replace(size=size, value=value)
            return tree.cast_like(search._replace(now=now, grad=grad), search)

        def step(search):
            new = lax.cond(
                search.interval_found,
                lambda s: self.narrow(s, line, origin),
                lambda s: self.widen(s, line, origin, guess),
                search,
            )
            new = lax.cond(new.failed, fall_back, lambda s: s, new)
            return tree.cast_like(new, search)

        return lax.while_loop(lambda s: ~(s.done | s.failed), step, start)


def _after(
    search: _Search, now: _Point, grad: Any, errors: tuple[ArrayLike, ArrayLike], best: _Best,
    low: _Point, high: _Point, **changes: Any,
) -> _Search:
    """Return the search after one more point, with the dtypes unchanged."""
    new = search._replace(
        count=safe_increment(search.count), now=now, grad=grad, decrease_error=errors[0],
        curvature_error=errors[1], best=best, low=low, high=high, **changes,
    )
    return tree.cast_like(new, search)


def _report(threshold: ArrayLike, search: _Search, start: _Point) -> None:
    """Print why a search failed."""
    length = jnp.abs(search.low.size - search.high.size)
    has_best, descends = search.best.size > 0.0, start.slope < 0.0
    lost, outside = ~has_best & descends, jnp.isinf(search.decrease_error)
    values = {
        "value": start.value, "slope": start.slope, "size": search.now.size, "length": length,
        "decrease": search.decrease_error, "curvature": search.curvature_error,
        "best": search.best.size,
    }
    for condition, text in (
        (jnp.asarray(True), "failed; value {value}, slope {slope}, step size reached {size}, which "
                            "violates the decrease by {decrease} and the slope by {curvature}"),
        (length <= threshold, "the interval has shrunk to {length}"),
        (has_best, "taking step size {best}: the loss decreases, the slope is still large"),
        (~has_best & ~descends,
         "not a descent direction: the slope at 0 should be negative, got {slope}"),
        (lost, "found no decrease; more steps may find one"),
        (lost & (search.now.size < jnp.finfo(jnp.float32).eps),
         "step size {size} is below the resolution of float32; enable x64"),
        (lost & (jnp.abs(start.slope) > 1e16),
         "the slope {slope} is very steep; rescale the parameters"),
        (~has_best & outside, "the loss is not finite; no step is made"),
        (~has_best & ~outside, "making a step that does not decrease the loss"),
    ):
        shown = {name: x for name, x in values.items() if f"{{{name}}}" in text}
        print_if(condition, f"scale_by_zoom_linesearch: {text}", **shown)


def _initial_state(params: base.Params) -> ScaleByZoomLinesearchState:
    dtype = real_dtype(params)
    return ScaleByZoomLinesearchState(
        learning_rate=jnp.asarray(1.0, dtype=dtype),
        value=jnp.asarray(jnp.inf, dtype=dtype),
        grad=tree.zeros_like(params),
        info=ZoomLinesearchInfo(jnp.asarray(0), jnp.asarray(jnp.inf), jnp.asarray(jnp.inf)),
    )


def scale_by_zoom_linesearch(
    max_linesearch_steps: ArrayLike, max_learning_rate: ArrayLike | None = None,
    tol: ArrayLike = 0.0, increase_factor: ArrayLike = 2.0, slope_rtol: ArrayLike = 1e-4,
    curv_rtol: ArrayLike = 0.9, approx_dec_rtol: ArrayLike | None = 1e-6,
    stepsize_precision: ArrayLike = 1e-5, initial_guess_strategy: Literal["one", "keep"] = "keep",
    verbose: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Multiply updates by a step size that satisfies the strong Wolfe conditions.

    The conditions ensure that the loss decreases enough and that it is flatter at the new point.
    For a step size `s`, they are `f(w + s * u) <= f(w) + slope_rtol * s * slope(0) + tol` and
    `|slope(s)| <= curv_rtol * |slope(0)| + tol`. Here `f` is the loss, `w` are the parameters, `u`
    are the updates, which must point downhill, and `slope(s)` is the derivative of `f(w + s * u)`
    with respect to `s`.

    The search first increases the step size until it finds an interval in which some step size
    satisfies the conditions, and then narrows the interval. If no such step size is found, the
    search uses the best step size that decreased the loss enough. If no step size decreased the
    loss enough, the search uses the last step size tried, or 0 if the loss is not finite there.

    The `update` of this transformation needs the keyword arguments `value` (the loss), `grad` (its
    gradient) and `value_fn` (the function of the parameters that computes the loss). All other
    keyword arguments are passed to `value_fn`. The state contains the loss and the gradient at the
    new point, so that `value_and_grad_from_state` can return them.

    Args:
        max_linesearch_steps: maximum number of step sizes to try, for instance 15.
        max_learning_rate: maximum step size; if None, there is no limit.
        tol: tolerance for both conditions.
        increase_factor: factor by which step sizes increase; greater than 1.
        slope_rtol: required decrease, as a fraction of the decrease that the slope predicts; less
            than `curv_rtol`.
        curv_rtol: maximum slope at the new point, relative to the slope at the start; between
            `slope_rtol` and 1. With smaller values, the search is more precise.
        approx_dec_rtol: tolerance, relative to the loss, for an alternative decrease condition,
            which compares slopes and is more reliable near a minimum (Hager and Zhang, 2006). If
            None, the alternative condition is not used.
        stepsize_precision: interval length at or below which the search ends, provided that a step
            size that decreases the loss enough has been found.
        initial_guess_strategy: step size that a search tries first: "keep" for the step size that
            the last search found, or "one" for 1, which quasi-Newton methods need.
        verbose: whether to print the reason if a search fails.

    Returns:
        A gradient transformation whose `update` needs the parameters and the three keyword
        arguments above.

    Raises:
        ValueError: `initial_guess_strategy` is not supported.
        TypeError: `update` receives a keyword argument that `value_fn` does not accept.

    >>> from toile import optim
    >>> loss = lambda w: jnp.sum(w**2)
    >>> tx = optim.chain(optim.sgd(1.0), optim.scale_by_zoom_linesearch(15))
    >>> w = jnp.array([1.0, 2.0])
    >>> value, grad = toile.value_and_grad(loss)(w)
    >>> updates, state = tx.update(grad, tx.init(w), w, value=value, grad=grad, value_fn=loss)
    >>> optim.apply_updates(w, updates).round(3), state[1].learning_rate.round(3)
    (Array([0., 0.], dtype=float32), Array(0.5, dtype=float32))
    """
    if initial_guess_strategy not in ("one", "keep"):
        raise ValueError(
            "scale_by_zoom_linesearch: needed initial_guess_strategy 'one' or 'keep', got "
            f"{initial_guess_strategy!r}{here()}"
        )
    zoom = _Zoom(
        max_linesearch_steps, max_learning_rate, tol, increase_factor, slope_rtol, curv_rtol,
        approx_dec_rtol, stepsize_precision, verbose,
    )  # fmt: skip

    def update_fn(updates, state, params=None, *, value, grad, value_fn, **extra_args):
        keywords = keywords_of("scale_by_zoom_linesearch", value_fn, extra_args)
        loss_and_grad = value_and_grad(value_fn)

        def line(size):
            value, grad = loss_and_grad(tree.add_scale(params, size, updates), **keywords)
            slope = tree.real(tree.vdot(tree.conj(grad), updates))
            return _Point(size, value, slope), grad

        # The loop's numbers have the default precision, whatever dtype the parameters have.
        guess = jnp.asarray(1.0, float) if initial_guess_strategy == "one" else state.learning_rate
        search = zoom.run(_beginning(updates, params, value, grad), line, guess)
        info = ZoomLinesearchInfo(search.count, search.decrease_error, search.curvature_error)
        new = ScaleByZoomLinesearchState(search.now.size, search.now.value, search.grad, info)
        return tree.scale(search.now.size, updates), tree.cast_like(new, state)

    return base.GradientTransformationExtraArgs(_initial_state, cast(Any, update_fn))


def _beginning(updates: Any, params: Any, value: ArrayLike, grad: Any) -> _Search:
    """Return the search before its first step."""
    value = jnp.asarray(value)
    value = lax.convert_element_type(value, value.dtype)
    slope = tree.real(tree.vdot(updates, grad))
    dtype = real_dtype(params)
    start = _Point(jnp.asarray(0.0, float), value, slope)
    infinite, no = jnp.asarray(jnp.inf, float), jnp.asarray(False)
    return _Search(
        count=jnp.asarray(0, int), now=_Point(jnp.asarray(0.0, dtype), value.astype(dtype), slope),
        grad=grad, decrease_error=infinite, curvature_error=infinite, interval_found=no, done=no,
        failed=no, low=start, high=start, third=(start.size, value),
        best=_Best(start.size, value, grad),
    )
