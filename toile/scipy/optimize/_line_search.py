"""Line search for the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

A step `a` along the line `x + a·p` is acceptable if the function has decreased enough,
`phi(a) ≤ phi(0) + c1·a·phi'(0)`, and its slope has become small enough, `|phi'(a)| ≤ -c2·phi'(0)`.
The step is doubled until an interval is found that contains an acceptable step. The interval is
then shrunk by cubic and quadratic interpolation.
"""

from typing import Any, NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import value_and_grad
from toile.nn._promote import inexact


class Point(NamedTuple):
    """A step length, with the value and the slope of the function there."""

    a: Any
    phi: Any
    slope: Any


class LineSearchResults(NamedTuple):
    """The accepted step: its length, the value and gradient there, and the search's status."""

    failed: Any
    nfev: Any
    a_k: Any
    f_k: Any
    g_k: Any
    status: Any


class _Zoom(NamedTuple):
    done: Any
    failed: Any
    j: Any
    low: Point
    high: Point
    a_recent: Any
    phi_recent: Any
    star: Point
    gradient: Any


class _Search(NamedTuple):
    done: Any
    failed: Any
    i: Any
    last: Point
    nfev: Any
    star: Point
    gradient: Any


def _dot(a, b):
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


def _choose(flag, new, old):
    """Return `new` where `flag` is True and `old` elsewhere; both have the same structure."""
    if isinstance(new, tuple):
        return type(new)(*(_choose(flag, n, o) for n, o in zip(new, old)))
    return jnp.where(flag, new, old)


def _cubic_minimum(low, high, a, phi):
    """Find the minimum of the cubic through three values with a given slope at the first."""
    db, dc = high.a - low.a, a - low.a
    below = (db * dc) ** 2 * (db - dc)
    rb = high.phi - low.phi - low.slope * db
    rc = phi - low.phi - low.slope * dc
    third = (dc**2 * rb - db**2 * rc) / below
    second = (-(dc**3) * rb + db**3 * rc) / below
    radical = second * second - 3.0 * third * low.slope
    return low.a + (-second + jnp.sqrt(radical)) / (3.0 * third)


def _quadratic_minimum(low, high):
    d = high.a - low.a
    curvature = (high.phi - low.phi - low.slope * d) / d**2
    return low.a - low.slope / (2.0 * curvature)


class _Problem(NamedTuple):
    """The function along the line, and the two conditions for a step."""

    f: Any
    x: Any
    p: Any
    phi_0: Any
    slope_0: Any
    c1: float
    c2: float

    def at(self, a, like):
        """Return the point at step `a`, with the dtypes of the point `like`, and its gradient."""
        a = jnp.asarray(a, like.a.dtype)
        phi, g = value_and_grad(self.f)(self.x + a.astype(self.p.dtype) * self.p)
        slope = jnp.real(_dot(g, self.p))
        return Point(a, phi.astype(like.phi.dtype), slope.astype(like.slope.dtype)), g

    def too_high(self, point):
        return point.phi > self.phi_0 + self.c1 * point.a * self.slope_0

    def flat(self, point):
        return jnp.abs(point.slope) <= -self.c2 * self.slope_0


def _zoom(problem, low, high, gradient, needed):
    """Shrink the interval between `low`, the better end, and `high` until a step is acceptable."""
    threshold = 1e-5 if jnp.finfo(low.a.dtype).bits < 64 else 1e-10
    no = jnp.zeros((), bool)
    init = _Zoom(no, no, jnp.zeros((), np.int32), low, high, (low.a + high.a) / 2.0,
                 (low.phi + high.phi) / 2.0, Point(jnp.ones_like(low.a), low.phi, low.slope),
                 gradient)

    def body(s):
        width = jnp.abs(s.high.a - s.low.a)  # the better end may lie on either side
        left, right = jnp.minimum(s.high.a, s.low.a), jnp.maximum(s.high.a, s.low.a)
        failed = s.failed | (width <= threshold)
        cubic = _cubic_minimum(s.low, s.high, s.a_recent, s.phi_recent)
        margin = 0.2 * width
        use_cubic = (s.j > 0) & (cubic > left + margin) & (cubic < right - margin)
        quadratic = _quadratic_minimum(s.low, s.high)
        margin = 0.1 * width
        use_quadratic = ~use_cubic & (quadratic > left + margin) & (quadratic < right - margin)
        middle = (s.low.a + s.high.a) / 2.0
        a = jnp.where(use_cubic, cubic, jnp.where(use_quadratic, quadratic, middle))
        point, g = problem.at(a, s.low)
        to_high = problem.too_high(point) | (point.phi >= s.low.phi)
        accept = problem.flat(point) & ~to_high
        to_low = ~to_high & ~accept
        turn = to_low & (point.slope * (s.high.a - s.low.a) >= 0.0)
        # The end that leaves the bracket serves the next cubic.
        leaves_high = to_high | turn
        a_recent = jnp.where(leaves_high, s.high.a, jnp.where(to_low, s.low.a, s.a_recent))
        phi_recent = jnp.where(leaves_high, s.high.phi, jnp.where(to_low, s.low.phi, s.phi_recent))
        high = _choose(to_high, point, _choose(turn, s.low, s.high))
        return _Zoom(s.done | accept, failed | (s.j + 1 >= 30), s.j + 1,
                     _choose(to_low, point, s.low), high, a_recent, phi_recent,
                     _choose(accept, point, s.star),
                     jnp.where(accept, g.astype(s.gradient.dtype), s.gradient))

    return lax.while_loop(lambda s: ~s.done & needed & ~s.failed, body, init)


def line_search(f, x, p, phi_0, gradient, old_old_fval=None, c1=1e-4, c2=0.9, maxiter=20):
    """Find a step from `x` along `p` that satisfies the strong Wolfe conditions."""
    x, p = inexact("line_search", x, p)
    slope_0 = jnp.real(_dot(gradient, p))
    problem = _Problem(f, x, p, phi_0, slope_0, c1, c2)
    kind = jnp.result_type(phi_0.dtype, slope_0.dtype)
    start = jnp.ones((), kind)
    if old_old_fval is not None:  # the step that would repeat the last decrease
        guess = 1.01 * 2 * (phi_0 - old_old_fval) / slope_0
        start = jnp.where(guess > 1, 1.0, guess).astype(kind)
    no = jnp.zeros((), bool)
    origin = Point(jnp.zeros((), kind), phi_0, slope_0)
    zero = jnp.zeros((), np.int32)
    init = _Search(no, no, zero + 1, origin, zero, origin, gradient)

    def body(s):
        a = jnp.where(s.i == 1, start, s.last.a * 2.0)
        point, g = problem.at(a, s.last)
        first = problem.too_high(point) | ((point.phi >= s.last.phi) & (s.i > 1))
        accept = problem.flat(point) & ~first
        second = (point.slope >= 0.0) & ~first & ~accept
        zoom1 = _zoom(problem, s.last, point, gradient, first)
        zoom2 = _zoom(problem, point, s.last, gradient, second)
        star, best = s.star, s.gradient
        for flag, new, slope in (
            (first, zoom1.star, zoom1.gradient),
            (accept, point, g.astype(best.dtype)),
            (second, zoom2.star, zoom2.gradient),
        ):
            star, best = _choose(flag, new, star), jnp.where(flag, slope, best)
        return _Search(s.done | first | accept | second,
                       s.failed | (first & zoom1.failed) | (second & zoom2.failed), s.i + 1, point,
                       s.nfev + 1 + zoom1.j + zoom2.j, star, best)

    s = lax.while_loop(lambda s: ~s.done & (s.i <= maxiter) & ~s.failed, body, init)
    status = jnp.where(s.failed, 1, jnp.where(s.i > maxiter, 3, 0))
    a = s.star.a
    if jnp.finfo(kind).bits != 64:  # too small a step would leave x unchanged in low precision
        a = jnp.where(jnp.abs(a) < 1e-8, jnp.sign(a) * 1e-8, a)
    return LineSearchResults(s.failed | ~s.done, s.nfev, a, s.star.phi, s.gradient, status)
