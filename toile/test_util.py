"""Checking forward-mode and reverse-mode derivatives of any order against finite differences.

`check_jvp` compares a directional derivative with a central difference along a fixed random
direction. `check_vjp` compares inner products, so one finite difference is enough for any number of
outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from toile import numpy as jnp
from toile.api import jvp, linearize, vjp
from toile.engine.annotations import DTypeLike, PyTree
from toile.tree_util import tree_leaves, tree_map

__all__ = ["check_grads", "check_jvp", "check_vjp"]

EPS = 1e-4
Tolerance = float | Mapping[DTypeLike, float] | None

_FLOAT0 = np.dtype([("float0", np.void, 0)])

# Relative and absolute tolerance of a gradient by output dtype; narrow floats have larger
# tolerances.
_TOLERANCE = {
    np.dtype(ml_dtypes.bfloat16): 1e-1,
    np.dtype(np.float16): 1e-2,
    np.dtype(np.float32): 2e-3,
    np.dtype(np.float64): 1e-5,
    np.dtype(np.complex64): 1e-3,
    np.dtype(np.complex128): 1e-5,
}


def _is_scalar(x):
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def _dtype(x):
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.dtype(jnp.result_type(type(x)))


def _tolerance(dtype, given):
    if given is not None and not isinstance(given, dict):
        return given
    table = {**_TOLERANCE, **{np.dtype(k): v for k, v in (given or {}).items()}}
    coarse = 0.0 if dtype.kind in "biu" else 1e-1
    return table.get(dtype, coarse)


def _comparable(x):
    x = np.asarray(x)
    # NumPy's comparison supports built-in float formats only.
    return x.astype(np.float32) if x.dtype.kind == "V" and x.dtype != _FLOAT0 else x


def _check_close(got, want, atol, rtol, message):
    def check(a, b):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            raise AssertionError(f"{message}: shapes {a.shape} and {b.shape} differ")
        if a.dtype == b.dtype == _FLOAT0:
            return
        near = max(_tolerance(a.dtype, atol), _tolerance(b.dtype, atol)) * a.size
        ratio = max(_tolerance(a.dtype, rtol), _tolerance(b.dtype, rtol)) * b.size
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(
                _comparable(a), _comparable(b), atol=near, rtol=ratio, err_msg=message
            )

    tree_map(check, got, want)


def _check_dtypes(xs, ys):
    def check(x, y):
        if _dtype(x) != _dtype(y):
            raise AssertionError(f"dtypes differ: {_dtype(x)} and {_dtype(y)}")

    tree_map(check, xs, ys)


def _like(x, value):
    """`value` in the dtype of `x`, as a Python scalar if `x` is one."""
    out = np.asarray(value, dtype=_dtype(x))
    return out.item() if _is_scalar(x) else out


def _random_like(rng, x):
    shape = np.shape(x)
    value = rng.randn(*shape)
    if _dtype(x).kind == "c":
        value = value + 1j * rng.randn(*shape)
    return _like(x, value)


def _step(primals, tangents, eps):
    return tree_map(
        lambda x, t: _like(x, np.asarray(x) + _like(x, np.asarray(t) * eps)), primals, tangents
    )


def _difference(f, primals, tangents, eps):
    """The central difference (f(x + eps·t) - f(x - eps·t)) / (2 eps)."""

    def slope(a, b):
        a, b = np.asarray(a), np.asarray(b)
        with np.errstate(invalid="ignore"):  # inf - inf counts as no change
            change = np.where(a == b, np.zeros((), a.dtype), a - b)
        return np.asarray(change * np.asarray(0.5 / eps, a.dtype), a.dtype)

    return tree_map(slope, f(*_step(primals, tangents, eps)), f(*_step(primals, tangents, -eps)))


def _inner(xs, ys):
    products = tree_map(lambda x, y: np.real(np.vdot(np.asarray(x), np.asarray(y))), xs, ys)
    return sum(tree_leaves(products))


def _label(message, part):
    return f"{message} {part}" if message else part


def check_jvp(
    f: Callable[..., PyTree], f_jvp: Callable[..., tuple[PyTree, PyTree]], args: Sequence[PyTree],
    atol: Tolerance = None, rtol: Tolerance = None, eps: float = EPS, err_msg: str = "",
) -> None:
    """Raise an error unless directional derivatives agree with finite differences.

    The direction is random but is the same in every run.

    Args:
        f: a function that is called with `args` and returns a tree of arrays.
        f_jvp: a function `f_jvp(args, tangents)` that returns the result of `f` and the tangent of
            the result, such as `functools.partial(toile.jvp, f)`.
        args: tuple of arguments, which are trees of arrays.
        atol, rtol: absolute and relative tolerance; each is a number, or a dict that maps dtypes to
            numbers. The defaults depend on the dtype of the results. The tolerances are multiplied
            by the number of elements.
        eps: step size of the finite differences.
        err_msg: text at the beginning of the error message.

    Raises:
        AssertionError: the results of `f` and `f_jvp` differ, dtypes differ, or a derivative does
            not agree with the finite difference.
    """
    rng = np.random.RandomState(0)
    tangents = tree_map(functools.partial(_random_like, rng), args)
    y, dy = f_jvp(args, tangents)
    _check_dtypes(y, dy)
    want = f(*args)
    _check_dtypes(y, want)
    _check_close(y, want, atol, rtol, _label(err_msg, "primal"))
    slope = _difference(f, args, tangents, eps)
    _check_close(dy, slope, atol, rtol, _label(err_msg, "tangent"))


def check_vjp(
    f: Callable[..., PyTree], f_vjp: Callable[..., tuple[PyTree, Callable[..., PyTree]]],
    args: Sequence[PyTree], atol: Tolerance = None, rtol: Tolerance = None, eps: float = EPS,
    err_msg: str = "",
) -> None:
    """Raise an error unless gradients agree with finite differences.

    The inner product of a random direction and the gradient is compared with a finite difference
    along that direction. The direction is the same in every run.

    Args:
        f: a function that is called with `args` and returns a tree of arrays.
        f_vjp: a function `f_vjp(*args)` that returns the result and the pullback of `f`, such as
            `functools.partial(toile.vjp, f)`. The pullback maps a cotangent of the result to
            cotangents of the arguments.
        args: tuple of arguments, which are trees of arrays.
        atol, rtol: absolute and relative tolerance; each is a number, or a dict that maps dtypes to
            numbers. The defaults depend on the dtype of the results. The tolerances are multiplied
            by the number of elements.
        eps: step size of the finite differences.
        err_msg: text at the beginning of the error message.

    Raises:
        AssertionError: the results of `f` and `f_vjp` differ, or a derivative does not agree with
            the finite difference.
    """
    draw = functools.partial(_random_like, np.random.RandomState(0))
    y, pullback = f_vjp(*args)
    _check_close(y, f(*args), atol, rtol, _label(err_msg, "primal"))
    tangents = tree_map(draw, args)
    slope = _difference(f, args, tangents, eps)
    ct = tree_map(draw, y)
    conj = functools.partial(tree_map, lambda x: _like(x, np.conj(np.asarray(x))))
    pulled = conj(pullback(conj(ct)))
    # <t, pullback(ct)> = <df(t), ct> is the definition of the transpose.
    got, want = _inner(tangents, pulled), _inner(slope, ct)
    _check_close(got, want, atol, rtol, _label(err_msg, "cotangent projection"))


def _linearized(f, primals, tangents):
    y, f_lin = linearize(f, *primals)
    return y, f_lin(*tangents)


def check_grads(
    f: Callable[..., PyTree], args: Sequence[PyTree], order: int,
    modes: Sequence[str] = ("fwd", "rev"), atol: Tolerance = None, rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Raise an error unless the derivatives of a function agree with finite differences.

    Args:
        f: a function that is called with `args` and returns a tree of float arrays.
        args: tuple of arguments, which are trees of float arrays.
        order: highest order of derivatives to check.
        modes: kinds of derivatives to check: "fwd" for `toile.jvp`, "rev" for `toile.vjp`, and
            "lin" for `toile.linearize`.
        atol, rtol: absolute and relative tolerance; each is a number, or a dict that maps dtypes to
            numbers. The defaults depend on the dtype of the results. The tolerances are multiplied
            by the number of elements.
        eps: step size of the finite differences; 1e-4 by default.

    Raises:
        AssertionError: a derivative does not agree with the finite difference.

    >>> from toile.test_util import check_grads
    >>> check_grads(jnp.sin, (1.0,), order=2)
    """
    eps = EPS if not eps else eps
    options: dict[str, Any] = {"atol": atol, "rtol": rtol, "eps": eps}

    def check(f, args, order, message):
        if "fwd" in modes:
            label = f"JVP of {message}" if message else "JVP"
            forward = functools.partial(jvp, f)
            check_jvp(f, forward, args, err_msg=label, **options)
            if order > 1:
                check(forward, (args, args), order - 1, label)
        if "rev" in modes:
            label = f"VJP of {message}" if message else "VJP"
            check_vjp(f, functools.partial(vjp, f), args, err_msg=label, **options)
            if order > 1:

                def pulled(*args):
                    y, pullback = vjp(f, *args)
                    return pullback(y)

                check(pulled, args, order - 1, label)
        if "lin" in modes:
            label = f"LIN of {message}" if message else "LIN"
            forward = functools.partial(_linearized, f)
            check_jvp(f, forward, args, err_msg=label, **options)
            if order > 1:
                check(forward, (args, args), order - 1, label)

    check(f, tuple(args), order, "")
