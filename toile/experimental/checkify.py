"""Run-time checks that work in jitted and mapped functions.

`checkify(f)` is a function that returns an `Error` and the result of `f`. The `Error` identifies
the first check that failed, if any. Checks are calls to `check`. On request, operations are also
checked for NaNs, divisions by zero and indices out of bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.arrays import Array
from toile.engine.conversion import as_array
from toile.engine.program import trace_program
from toile.engine.source import here
from toile.engine.trees import flatten, register, structure, tree_map, unflatten
from toile.experimental._checks import (
    Check,
    DivisionByZeroError,
    FailedCheckError,
    JaxException,
    JaxRuntimeError,
    NaNError,
    OOBError,
    Resumed,
    UserSite,
)
from toile.experimental._ledger import Ledger, evaluate_checked
from toile.random.keys import key_data
from toile.staging.flat_functions import FlatFunction, name_of

__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check",
    "check_error", "checkify", "debug_check", "div_checks", "float_checks", "index_checks",
    "init_error", "nan_checks", "user_checks",
]

ErrorCategory = type[JaxException]

user_checks: frozenset[Any] = frozenset({FailedCheckError})
nan_checks: frozenset[Any] = frozenset({NaNError})
index_checks: frozenset[Any] = frozenset({OOBError})
div_checks: frozenset[Any] = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Error:
    """The outcome of the checks in a call: the first check that failed, if any.

    Functions that `checkify` has transformed return an `Error`. It is a tree of arrays, so jitted
    and mapped functions can return it too. `error.throw()` raises an exception if a check failed,
    and `error.get()` returns the message of the failed check, or None.

    Args:
        sites: places in the program where a check may fail.
        codes: for each group of sites, the index of the first site that failed, or -1. All sites in
            a group insert values of the same shapes and dtypes into their messages.
        payloads: for each group, the values to insert into the message.
    """

    def __init__(self, sites: Sequence[Any] = (), codes: Sequence[Any] = (),
                 payloads: Sequence[Sequence[Any]] = ()):
        self.sites, self.codes = tuple(sites), list(codes)
        self.payloads = [list(p) for p in payloads]

    def _first(self, index: tuple[int, ...]) -> JaxException | None:
        best: tuple[int, int] | None = None
        for i, code in enumerate(self.codes):
            k = int(np.asarray(code)[index])
            if k >= 0 and (best is None or k < best[0]):
                best = (k, i)
        if best is None:
            return None
        site, payload = self.sites[best[0]], self.payloads[best[1]]
        return site.exception([as_array(np.asarray(p)[index]) for p in payload])

    def get_exception(self) -> JaxException | None:
        """Return the failed check as an exception.

        Returns:
            The exception; for a batch, the exception for the first example that failed. If no check
            failed, the result is None.
        """
        shape = self.codes[0].shape if self.codes else ()
        for index in np.ndindex(*shape):
            found = self._first(index)
            if found is not None:
                return found
        return None

    def get(self) -> str | None:
        """Return the message of the failed check.

        Returns:
            The message; for a batch, one line for each example that failed. If no check failed, the
            result is None.
        """
        shape = self.codes[0].shape if self.codes else ()
        if not shape:
            found = self._first(())
            return None if found is None else str(found)
        lines = []
        for index in np.ndindex(*shape):
            found = self._first(index)
            if found is not None:
                at = ", ".join(map(str, index))
                lines.append(f"at mapped index {at}: {found}")
        return "\n".join(lines) or None

    def throw(self) -> None:
        """Raise a `JaxRuntimeError` if a check failed."""
        check_error(self)

    def __str__(self) -> str:
        return f"Error({self.get()})"

    def __repr__(self) -> str:
        return f"Error(sites={len(self.sites)}, codes={self.codes})"


def _flatten_error(error: Error) -> tuple[list[Any], Any]:
    counts = tuple(len(p) for p in error.payloads)
    return [*error.codes, *(x for p in error.payloads for x in p)], (error.sites, counts)


def _unflatten_error(aux: Any, leaves: Sequence[Any]) -> Error:
    sites, counts = aux
    rest = iter(leaves)
    codes = [next(rest) for _ in counts]
    return Error(sites, codes, [[next(rest) for _ in range(n)] for n in counts])


register(Error, _flatten_error, _unflatten_error)
init_error = Error()


def checkify(
    f: Callable[..., Any], errors: frozenset[Any] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """Turn a function with checks into a function that also reports which check failed, if any.

    A failed check does not raise an exception, so checks work on any device and in mapped
    functions.

    Args:
        f: the function, which may call `check`.
        errors: kinds of checks to perform. The default, `user_checks`, performs only the checks
            that the code makes by calling `check`. `nan_checks`, `div_checks` and `index_checks`
            check the operations of `f` for NaNs, divisions by zero and indices out of bounds.
            `float_checks` combines `nan_checks` and `div_checks`, `automatic_checks` adds
            `index_checks` to these two, and `all_checks` combines all kinds of checks.

    Returns:
        A function with the same arguments that returns the pair (error, result of `f`); the error
        is an `Error`.

    >>> from toile.experimental import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "needed x > 0, got {x}", x=x)
    ...     return jnp.log(x)
    >>> error, result = checkify.checkify(f)(-1.0)
    >>> error.get()
    'needed x > 0, got -1.0 (`check` failed)'
    >>> checkify.checkify(jnp.log, errors=checkify.nan_checks)(-1.0)[0].get()
    'nan generated by primitive: log.'
    """
    if not callable(f):
        raise TypeError(f"checkify: needed a callable, got {f!r}{here()}")
    enabled = frozenset(errors)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        # The arguments are variables of the traced function, which receives them as they are, but
        # NumPy arrays become arrays, whose operations are checked.
        args, kwargs = tree_map(_checkable, (args, kwargs))
        flat = FlatFunction(lambda: f(*args, **kwargs), structure(((), {})))
        program, consts = trace_program(flat, [], name_of(f))
        ledger = Ledger()
        outs = evaluate_checked(program, consts, ledger, enabled)
        groups = list(ledger.groups.values())
        error = Error(ledger.sites, [g.code for g in groups], [g.payload for g in groups])
        return error, unflatten(flat.out_tree, outs)

    return checked


def _checkable(x: Any) -> Any:
    return as_array(x) if isinstance(x, np.ndarray) else x


def _check_scalar(name: str, pred: Any) -> None:
    """Raise an error unless a condition is one boolean."""
    shape, dtype = np.shape(pred), getattr(pred, "dtype", np.asarray(pred).dtype
                                           if not isinstance(pred, Array) else None)
    if shape != () or dtype != np.bool_:
        raise TypeError(f"{name} takes a scalar pred as argument, got {pred}{here()}")


def check(
    pred: ArrayLike, msg: str, *fmt_args: PyTree, debug: bool = False, **fmt_kwargs: PyTree
) -> None:
    """Check a condition at run time, and report a failure if the condition is false.

    In a function that `checkify` has transformed, the failure is recorded and the function
    continues. In other functions, a failed check raises a `JaxRuntimeError` when the check runs.

    Args:
        pred: the condition, a boolean of shape ().
        msg: message, with fields such as `{}` or `{x}` for the formatting arguments.
        *fmt_args: trees of arrays for the unnamed fields.
        debug: whether to check only in functions that `checkify` has transformed.
        **fmt_kwargs: trees of arrays for the named fields.

    Raises:
        JaxRuntimeError: the check fails in a function that `checkify` has not transformed.
        TypeError: `pred` is not a boolean of shape (), or a formatting argument is not an array.

    Differences:
        Unlike toile, JAX raises an error if a function with checks is jitted without being
        transformed by `checkify`.
    """
    _check_scalar("check", pred)
    leaves, tree = flatten((fmt_args, fmt_kwargs))
    payload = []
    for x in leaves:
        if not isinstance(x, (Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise TypeError(
                "Formatting arguments to checkify.check need to be PyTrees of arrays, but got "
                f"{x!r} of type {type(x)}.{here()}"
            )
        x = x if isinstance(x, Array) else as_array(x)
        payload.append(key_data(x) if dtypes.is_extended(x.dtype) else x)  # keys by their bits
    ok = pred if isinstance(pred, Array) else as_array(pred)
    Check(UserSite(msg, tree), debug)(ok, *payload)


def debug_check(pred: ArrayLike, msg: str, *fmt_args: PyTree, **fmt_kwargs: PyTree) -> None:
    """Check a condition only in functions that `checkify` has transformed.

    In other functions, `debug_check` does nothing.

    Args:
        pred: the condition, a boolean of shape ().
        msg: message, with fields such as `{}` or `{x}` for the formatting arguments.
        *fmt_args: trees of arrays for the unnamed fields.
        **fmt_kwargs: trees of arrays for the named fields.
    """
    _check_scalar("debug_check", pred)
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise an error if a check has failed.

    In a function that `checkify` has transformed, the failure is recorded instead.

    Args:
        error: an `Error` that a function transformed by `checkify` returned.

    Raises:
        JaxRuntimeError: a check failed.
    """
    if not isinstance(error, Error):
        raise TypeError(
            f"check_error takes an Error as argument, got type {type(error)} instead.{here()}"
        )
    for code, payload in zip(error.codes, error.payloads, strict=True):
        code = code if isinstance(code, Array) else as_array(code)
        if code.ndim:  # the errors of a batch: take the first
            bad = (code >= 0).reshape(-1)
            at = bad.argmax()
            rank = code.ndim
            payload = [p.reshape((-1, *p.shape[rank:]))[at] for p in payload]
            code = code.reshape(-1)[at]
        Check(Resumed(error.sites))(code < 0, code, *payload)
