"""Solve systems of ordinary differential equations with an adaptive step size.

The solver uses the Dormand-Prince method of order 5(4). A polynomial for each step interpolates the
values at times within the step. Gradients are computed by solving the adjoint system backward in
time, so the steps are not stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import toile.lax as lax
import toile.numpy as jnp
from toile.api import custom_vjp, jit, vjp, vmap
from toile.engine import dtypes
from toile.engine.annotations import Array, PyTree
from toile.engine.avals import aval_of
from toile.engine.program import evaluate, trace_program
from toile.engine.scoped_options import default_matmul_precision
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.engine.trees import flatten, structure, tree_map, unflatten
from toile.flatten_util import ravel_pytree
from toile.staging.flat_functions import FlatFunction, name_of

__all__ = ["odeint"]

Dynamics = Callable[..., Any]  # (state as a vector, time, more) -> the state's time derivative

# The tableau: the position of each stage in the step, its weights of the preceding slopes, and the
# weights of all seven for the solution, its error and the solution at half the step.
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_SOLUTION = (*_STAGES[-1], 0)
_FOURTH = (1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60)
_ERROR = tuple(a - b for a, b in zip(_SOLUTION, _FOURTH))
_MIDDLE = (
    6025192743 / 30085553152 / 2,
    0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
# The polynomial of degree 4 with the values and slopes at both ends and the value at the middle:
# the weights of dt*slope0, dt*slope1, y0, y1 and the middle in its first three coefficients.
_QUARTIC = (
    (-2.0, 2.0, -8.0, -8.0, 16.0),
    (5.0, -3.0, 18.0, 14.0, -32.0),
    (-4.0, 1.0, -11.0, -5.0, 16.0),
)


class _Options(NamedTuple):
    """Parameters of the integration."""

    rtol: Any
    atol: Any
    mxstep: Any
    hmax: Any


def odeint(
    func: Callable[..., PyTree], y0: PyTree, t: Array | np.ndarray, *args: PyTree,
    rtol: float = 1.4e-8, atol: float = 1.4e-8, mxstep: float = jnp.inf, hmax: float = jnp.inf,
) -> PyTree:
    """Solve the ordinary differential equation `dy/dt = func(y, t, *args)` from `y0`.

    The solver uses the Dormand-Prince method of order 5 with an adaptive step size. A step is
    accepted if the root mean square of `error / (atol + rtol * abs(y))` over all elements is at
    most 1, where `error` is the estimated error of the step. Derivatives are computed by solving
    the adjoint equation backward in time.

    Args:
        func: a function `func(y, t, *args)` that returns the derivative of the state, with the
            structure of `y0`.
        y0: state at the time `t[0]`, an array or a tree of arrays.
        t: array of floats with the times at which to compute the state, in increasing order.
        *args: arrays, numbers, or trees of arrays and numbers that are passed to `func`. The result
            can be differentiated with respect to these arguments too.
        rtol: relative tolerance.
        atol: absolute tolerance.
        mxstep: maximum number of steps from one time in `t` to the next. If this number is reached,
            the result is inaccurate, but no error is raised.
        hmax: maximum size of a step.

    Returns:
        The states at the times `t`: a tree with the structure of `y0`. Its arrays have an
        additional first axis for the times.

    Raises:
        TypeError: `t` is not an array of floats, or `args` contains an object that is neither an
            array nor a number.

    >>> from toile.experimental.ode import odeint
    >>> y = odeint(lambda y, t, rate: -rate * y, 1.0, jnp.array([0.0, 1.0]), 2.0)
    >>> print(y.round(4))
    [1.     0.1353]
    """
    for arg in flatten(args)[0]:
        try:
            aval_of(arg)
        except TypeError:
            raise TypeError(
                f"The contents of odeint *args must be arrays or scalars, but got {arg}.{here()}"
            ) from None
    if not jnp.issubdtype(t.dtype, jnp.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.{here()}")
    t = jnp.asarray(t)
    explicit, hidden = _explicit(func, y0, t[0], *args)
    if not hidden and func.__hash__ is not None:
        explicit = func  # the key of the compiled integration
    return _solve(explicit, _Options(rtol, atol, mxstep, hmax), y0, t, args, hidden)


def _explicit(func: Callable[..., Any], *examples: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`func` with the traced values that it closes over as its last arguments, and these values.

    `closure_convert` leaves integers in place, where the gradient cannot reach them."""
    flat = FlatFunction(func, structure((examples, {})))
    program, consts = trace_program(flat, [aval_of(x) for x in flatten(examples)[0]], name_of(func))
    hidden = [c for c in consts if isinstance(c, Tracer)]

    def explicit(*args: Any) -> Any:
        n = len(args) - len(hidden)
        given = iter(args[n:])
        full = [next(given) if isinstance(c, Tracer) else c for c in consts]
        return unflatten(flat.out_tree, evaluate(program, [*full, *flatten(args[:n])[0]]))

    return explicit, hidden


@functools.partial(jit, static_argnums=(0, 1))
def _solve(
    func: Callable[..., Any], options: _Options, y0: Any, ts: Any, args: Any, hidden: Any
) -> Any:
    """Solve for a tree, whose arrays are joined into one vector; the arguments become a list."""
    leaves, tree = flatten((args, hidden))
    moves = [dtypes.is_inexact(aval_of(x).dtype) for x in leaves]
    y0, unravel = ravel_pytree(y0)

    def vector(y: Any, t: Any, moving: Any, fixed: Any) -> Any:
        moving, fixed = iter(moving), iter(fixed)
        xs, more = unflatten(tree, [next(moving if m else fixed) for m in moves])
        return ravel_pytree(func(unravel(y), t, *xs, *more))[0]

    moving = [x for x, m in zip(leaves, moves) if m]
    fixed = [x for x, m in zip(leaves, moves) if not m]
    with default_matmul_precision("highest"):
        return vmap(unravel)(_integrate(vector, options, y0, ts, moving, fixed))


# ------------------------------------------------------------------------------------ integration


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def _integrate(
    func: Dynamics, options: _Options, y0: Any, ts: Any, moving: Any, fixed: Any
) -> Any:
    """The states, as rows, at the times `ts`; `moving` are the differentiable arguments."""
    rtol, atol, mxstep, hmax = options

    def slope(y: Any, t: Any) -> Any:
        return func(y, t, moving, fixed)

    def bounded(dt: Any) -> Any:
        return jnp.clip(dt, min=0.0, max=hmax)

    def to_time(carry: Any, target: Any) -> Any:
        def goes_on(state: Any) -> Any:
            i, (_, _, t, dt, _, _) = state
            return (t < target) & (i < mxstep) & (dt > 0)

        def step(state: Any) -> Any:
            i, (y, f, t, dt, before, quartic) = state
            end, error, slopes = _step(slope, y, f, t, dt)
            ratio = _error_ratio(error, y, end, options)
            size = bounded(_next_size(dt, ratio))
            made = (end, slopes[-1], t + dt, size, t, _quartic(y, end, slopes, dt))
            kept = (y, f, t, size, before, quartic)
            return i + 1, tree_map(functools.partial(jnp.where, ratio <= 1.0), made, kept)

        _, carry = lax.while_loop(goes_on, step, (0, carry))
        _, _, t, _, before, quartic = carry
        place = (target - before) / (t - before)
        return carry, _horner(quartic, place.astype(quartic[0].dtype))

    t0 = ts[0]
    f0 = slope(y0, t0)
    dt = bounded(_first_size(slope, t0, y0, f0, rtol, atol))
    start = (y0, f0, t0, dt, t0, (y0,) * 5)
    _, ys = lax.scan(to_time, start, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _weighted(weights: tuple[float, ...], xs: list[Any]) -> Any:
    """The weighted sum of vectors; terms with weight 0 are skipped."""
    terms = [x * w for w, x in zip(weights, xs) if w]
    return functools.reduce(jnp.add, terms)


def _step(slope: Dynamics, y: Any, f: Any, t: Any, dt: Any) -> tuple[Any, Any, list[Any]]:
    """One step: the state at its end, an estimate of the error, and the seven slopes."""
    size = dt.astype(f.dtype)
    slopes = [f]
    for node, weights in zip(_NODES, _STAGES):
        slopes.append(slope(y + size * _weighted(weights, slopes), t + dt * node))
    return size * _weighted(_SOLUTION, slopes) + y, size * _weighted(_ERROR, slopes), slopes


def _quartic(y0: Any, y1: Any, slopes: list[Any], dt: Any) -> tuple[Any, ...]:
    """Coefficients, highest first, of the state along a step, as a polynomial on [0, 1]."""
    dt = dt.astype(y0.dtype)
    middle = y0 + dt * _weighted(_MIDDLE, slopes)
    first = dt * slopes[0]
    known = [first, dt * slopes[-1], y0, y1, middle]
    return (*(_weighted(row, known) for row in _QUARTIC), first, y0)


def _horner(coefficients: tuple[Any, ...], x: Any) -> Any:
    """The value of a polynomial; NaN at infinity, which occurs for a step of size zero."""
    start = jnp.zeros_like(coefficients[0])
    return functools.reduce(lambda total, c: total * x + c, coefficients, start)


def _first_size(slope: Dynamics, t0: Any, y0: Any, f0: Any, rtol: Any, atol: Any) -> Any:
    """The size of the first step, after Hairer, Norsett and Wanner, section II.4, for order 4."""
    dtype = jnp.result_type(y0, f0, float)
    y0, f0 = y0.astype(dtype), f0.astype(dtype)
    scale = (atol + jnp.abs(y0) * rtol).astype(dtype)
    d0, d1 = jnp.linalg.norm(y0 / scale), jnp.linalg.norm(f0 / scale)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    f1 = slope(y0 + h0.astype(dtype) * f0, t0 + h0)
    d2 = jnp.linalg.norm((f1 - f0) / scale) / h0
    still = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = (0.01 / jnp.maximum(d1, d2)) ** (1.0 / 5.0)
    return jnp.minimum(100.0 * h0, jnp.where(still, jnp.maximum(1e-6, h0 * 1e-3), h1))


def _error_ratio(error: Any, y0: Any, y1: Any, options: _Options) -> Any:
    """The error of a step relative to the tolerance, as a root mean square."""
    allowed = options.atol + options.rtol * jnp.maximum(jnp.abs(y0), jnp.abs(y1))
    ratio = error / allowed.astype(error.dtype)
    squares = ratio.real**2 + ratio.imag**2 if jnp.iscomplexobj(ratio) else ratio**2
    return jnp.sqrt(jnp.mean(squares))


def _next_size(dt: Any, ratio: Any) -> Any:
    """The size of the next step, which is 10% smaller than the error would allow, within bounds."""
    least = jnp.where(ratio < 1, 1.0, 0.2)
    factor = jnp.minimum(10.0, jnp.maximum(ratio ** (-1.0 / 5.0) * 0.9, least))
    return jnp.where(ratio == 0, dt * 10.0, dt * factor)


# --------------------------------------------------------------------------------------- gradient


def _forward(
    func: Dynamics, options: _Options, y0: Any, ts: Any, moving: Any, fixed: Any
) -> tuple[Any, Any]:
    ys = _integrate(func, options, y0, ts, moving, fixed)
    return ys, (ys, ts, moving, fixed)


def _backward(func: Dynamics, options: _Options, residuals: Any, ct: Any) -> tuple[Any, ...]:
    """The cotangents of y0, ts and `moving`, from the last time to the first.

    Between two times, a joint system is solved backward. It consists of the state, the cotangent of
    the state, and integrals that accumulate the cotangents of the time and of the arguments."""
    ys, ts, moving, fixed = residuals

    def joint(state: Any, minus_t: Any, moving: Any, fixed: Any) -> Any:
        y, y_ct, _, _ = state
        f, pull = vjp(lambda y, t, xs: func(y, t, xs, fixed), y, -minus_t, moving)
        return (-f, *pull(y_ct))

    def to_previous(carry: Any, i: Any) -> Any:
        y_ct, t_ct, moving_ct = carry
        # Shifting an output time moves the state along its slope.
        moved = jnp.dot(func(ys[i], ts[i], moving, fixed), ct[i]).real.astype(ts.dtype)
        start = (ys[i], y_ct, t_ct - moved, moving_ct)
        span = -jnp.stack([ts[i], ts[i - 1]])
        found = odeint(joint, start, span, moving, fixed, **options._asdict())
        _, y_ct, t_ct, moving_ct = tree_map(lambda x: x[1], found)
        return (y_ct + ct[i - 1], t_ct, moving_ct), moved

    with default_matmul_precision("highest"):
        carry = (ct[-1], jnp.zeros((), ts.dtype), tree_map(jnp.zeros_like, moving))
        (y_ct, t_ct, moving_ct), moved = lax.scan(
            to_previous, carry, jnp.arange(len(ts) - 1, 0, -1)
        )
    return y_ct, jnp.concatenate([t_ct[None], moved[::-1]]), moving_ct, None


_integrate.defvjp(_forward, _backward)
