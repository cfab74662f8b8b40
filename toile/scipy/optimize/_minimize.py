"""BFGS and limited-memory BFGS.

Both methods step along `p = -H·g`, where `g` is the gradient and `H` is an estimate of the inverse
Hessian. BFGS stores `H` and applies rank-two updates to it. Limited-memory BFGS computes `H·g` from
the last few steps and changes of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import value_and_grad
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.scipy.optimize._line_search import _dot, line_search


class OptimizeResults(NamedTuple):
    """The result of `minimize`, a named tuple of arrays.

    Args:
        x: the point that was found.
        success: whether the algorithm converged.
        status: number that indicates why the algorithm stopped: 0 if it converged, 1 if it reached
            the maximum number of iterations, and other numbers for other reasons, such as a failed
            line search.
        fun: value of the function at `x`.
        jac: gradient at `x`.
        hess_inv: estimate of the inverse Hessian; None for the limited-memory method.
        nfev: number of evaluations of the function.
        njev: number of evaluations of the gradient.
        nit: number of iterations.
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


class _BFGS(NamedTuple):
    converged: Any
    failed: Any
    k: Any
    nfev: Any
    x: Any
    f: Any
    g: Any
    H: Any
    f_before: Any
    search_status: Any


def _counter(n=0):
    return jnp.asarray(n, jnp.result_type(int))


def _minimize_bfgs(fun, x0, maxiter=None, norm=np.inf, gtol=1e-5, line_search_maxiter=10):
    d = x0.shape[0]
    maxiter = d * 200 if maxiter is None else maxiter
    f, g = value_and_grad(fun)(x0)
    init = _BFGS(jnp.linalg.norm(g, ord=norm) < gtol, jnp.zeros((), bool), _counter(), _counter(1),
                 x0, f, g, jnp.eye(d, dtype=x0.dtype), f + jnp.linalg.norm(g) / 2, _counter())

    def running(s):
        return ~s.converged & ~s.failed & (s.k < maxiter)

    def body(s):
        p = -_dot(s.H, s.g)
        found = line_search(fun, s.x, p, s.f, s.g, old_old_fval=s.f_before,
                            maxiter=line_search_maxiter)
        step = found.a_k.astype(p.dtype) * p
        change = found.g_k - s.g
        rho = 1 / _dot(change, step)
        w = jnp.eye(d, dtype=rho.dtype) - rho * step[:, None] * change[None, :]
        H = _dot(_dot(w, s.H), w.T) + rho * step[:, None] * step[None, :]
        return _BFGS(jnp.linalg.norm(found.g_k, ord=norm) < gtol, found.failed, s.k + 1,
                     s.nfev + found.nfev.astype(s.nfev.dtype), s.x + step, found.f_k, found.g_k,
                     jnp.where(jnp.isfinite(rho), H, s.H), s.f,
                     found.status.astype(s.search_status.dtype))

    s = lax.while_loop(running, body, init)
    failure = jnp.where(s.failed, 2 + s.search_status, -1)
    status = jnp.where(s.converged, 0, jnp.where(s.k == maxiter, 1, failure))
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, status, s.f, s.g, s.H, s.nfev, s.nfev, s.k)


class _LBFGS(NamedTuple):
    converged: Any
    failed: Any
    k: Any
    nfev: Any
    x: Any
    f: Any
    g: Any
    steps: Any
    changes: Any
    rhos: Any
    gamma: Any
    status: Any


def _direction(s):
    """Compute `-H·g` by the two-loop recursion over the stored steps, the newest being last."""
    size = len(s.rhos)
    used = jnp.minimum(s.k, size)
    dtype = s.rhos.dtype

    def down(j, carry):
        q, alphas = carry
        i = size - 1 - j
        alpha = s.rhos[i] * _dot(jnp.conj(s.steps[i]), q).real.astype(dtype)
        return q - alpha * jnp.conj(s.changes[i]), alphas.at[i].set(alpha)

    q = -jnp.conj(s.g)
    q, alphas = lax.fori_loop(0, used, down, (q, jnp.zeros_like(s.rhos)))
    q = s.gamma * q

    def up(j, q):
        i = size - used + j
        beta = s.rhos[i] * _dot(s.changes[i], q).real.astype(dtype)
        return q + (alphas[i] - beta) * s.steps[i]

    return lax.fori_loop(0, used, up, q)


def _push(history, new):
    return jnp.concatenate([history[1:], new[None].astype(history.dtype)])


def _limit(count):
    """A maximum number as an integer; None and numbers that are too large mean no limit."""
    most = np.iinfo(np.int32).max
    if isinstance(count, Tracer):
        return count
    return most if count is None or count > most else int(math.ceil(count))


def _minimize_lbfgs(fun, x0, maxiter=None, norm=np.inf, maxcor=10, ftol=2.220446049250313e-09,
                    gtol=1e-5, maxfun=None, maxgrad=None, maxls=20):
    d = len(x0)
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = d * 200
    maxiter, maxfun, maxgrad = map(_limit, (maxiter, maxfun, maxgrad))
    f, g = value_and_grad(fun)(x0)
    history = jnp.zeros((maxcor, d), dtype=x0.dtype)
    init = _LBFGS(jnp.zeros((), bool), jnp.zeros((), bool), _counter(), _counter(1), x0, f, g,
                  history, history, jnp.zeros((maxcor,), dtype=x0.dtype), jnp.ones((), g.dtype),
                  _counter())

    def body(s):
        p = _direction(s)
        found = line_search(fun, s.x, p, s.f, s.g, maxiter=maxls)
        step = found.a_k.astype(p.dtype) * p
        change = found.g_k - s.g
        curvature = jnp.real(_dot(change, step))
        gamma = curvature / jnp.real(_dot(jnp.conj(change), change))
        status = jnp.zeros((), s.status.dtype)
        status = jnp.where(s.f - found.f_k < ftol, 4, status)
        status = jnp.where(s.nfev >= maxgrad, 3, status)
        status = jnp.where(s.nfev >= maxfun, 2, status)
        status = jnp.where(s.k >= maxiter, 1, status)
        status = jnp.where(found.failed, 5, status)
        converged = jnp.linalg.norm(found.g_k, ord=norm) < gtol
        return _LBFGS(
            converged, (status > 0) & ~converged, s.k + 1, s.nfev + found.nfev.astype(s.nfev.dtype),
            (s.x + step).astype(s.x.dtype), found.f_k.astype(s.f.dtype),
            found.g_k.astype(s.g.dtype), _push(s.steps, step), _push(s.changes, change),
            _push(s.rhos, 1 / curvature), gamma.astype(s.gamma.dtype),
            jnp.where(converged, 0, status).astype(s.status.dtype),
        )

    s = lax.while_loop(lambda s: ~s.converged & ~s.failed, body, init)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, s.status, s.f, s.g, None, s.nfev, s.nfev, s.k)


def minimize(fun: Callable[..., Array], x0: ArrayLike, args: tuple[Any, ...] = (), *, method: str,
             tol: float | None = None, options: Mapping[str, Any] | None = None) -> OptimizeResults:
    """Find a local minimum of a function of a vector.

    Args:
        fun: a function `fun(x, *args)` that returns a scalar and can be differentiated.
        x0: vector to start from.
        args: tuple of additional arguments for `fun`.
        method: `"BFGS"`, or `"l-bfgs-experimental-do-not-rely-on-this"` for limited-memory BFGS,
            which does not store a matrix.
        tol: ignored; use the option `gtol`.
        options: dict of options. Both methods accept `maxiter`, `gtol` and `norm`. `maxiter` is the
            maximum number of iterations, by default 200 times the length of `x0`. The algorithm
            stops when the norm of the gradient is below `gtol`, by default 1e-5. `norm` is the
            order of that norm, by default inf. BFGS also accepts `line_search_maxiter`, the maximum
            number of steps in a line search, by default 10. Limited-memory BFGS also accepts
            `maxcor`, `ftol`, `maxfun`, `maxgrad` and `maxls`. `maxcor` is the number of steps to
            store, by default 10. The algorithm stops when a step decreases the function by less
            than `ftol`, by default 2.2e-9. `maxfun` and `maxgrad` are the maximum numbers of
            evaluations of the function and of its gradient, by default unlimited. If one of them is
            given, `maxiter` is unlimited by default. `maxls` is the maximum number of steps in a
            line search, by default 20.

    Returns:
        An `OptimizeResults`, a named tuple whose fields include the point `x`, the function's value
        `fun` at that point, and `success`.

    Raises:
        TypeError: `args` is not a tuple.
        ValueError: `method` is invalid.

    Differences:
        SciPy supports more methods, as well as bounds and constraints. It computes gradients by
        finite differences if they are not given, whereas toile differentiates `fun` automatically.

    >>> from toile.scipy.optimize import minimize
    >>> result = minimize(lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS")
    >>> result.x.round(3)
    Array([1., 1.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError("args argument to jax.scipy.optimize.minimize must be a tuple, got "
                        f"{args}{here()}")
    x0 = jnp.asarray(x0)
    methods: dict[str, Any] = {
        "bfgs": _minimize_bfgs,
        "l-bfgs-experimental-do-not-rely-on-this": _minimize_lbfgs,
    }
    if method.lower() not in methods:
        raise ValueError(f"Method {method} not recognized{here()}")
    return methods[method.lower()](lambda x: fun(x, *args), x0, **(options or {}))
