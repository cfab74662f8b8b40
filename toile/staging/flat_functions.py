"""Python functions of trees as flat functions of leaves, and back.

`FlatFunction` stores the structure of the function's latest result for its caller.
This module may import only the engine.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import aval_of
from toile.engine.errors import call_error
from toile.engine.keypaths import keystr
from toile.engine.source import describe, here, message
from toile.engine.treeerrors import prefix_errors
from toile.engine.trees import flatten, flatten_with_path, structure, unflatten


class FlatFunction:
    """`fun(*args, **kwargs)` as a function of the leaves of (args, kwargs)."""

    __slots__ = ("fun", "in_tree", "out_tree")

    def __init__(self, fun: Callable[..., Any], in_tree: Any):
        self.fun, self.in_tree = fun, in_tree
        self.out_tree: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = unflatten(self.in_tree, leaves)
        try:
            out = self.fun(*args, **kwargs)
        except TypeError as error:
            raise call_error(error, self.fun, args) from error.__cause__
        flat, self.out_tree = flatten(out)
        return flat


def is_index(x: Any) -> bool:
    """Whether `x` is one number, rather than several."""
    try:
        operator.index(x)
    except TypeError:
        return False
    return True


def index_tuple(x: Any) -> tuple[int, ...]:
    """One integer or several as a tuple."""
    return (operator.index(x),) if is_index(x) else tuple([operator.index(n) for n in x])


def given_argnums(
    argnums: int | Sequence[int], what: str, name: str = "argnums"
) -> tuple[int, ...]:
    """Argument numbers as they were given, all of them integers."""
    try:
        return index_tuple(argnums)
    except TypeError as e:
        raise TypeError(
            f"{message(e)}: {what} needed {name} as int or tuple of int, got {describe(argnums)} "
            f"({_advice(argnums, what)}){here()}"
        ) from None


def _advice(argnums: Any, what: str) -> str:
    if isinstance(argnums, str) and what == "jit":
        return "names of parameters are given as static_argnames or donate_argnames"
    if getattr(argnums, "shape", None) is not None:
        return f"pass the arguments to the result: {what}(f)(x)"
    return "count the positional arguments from 0"


def argnums_of(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Canonical argument numbers."""
    found = []
    for n in given_argnums(argnums, what):
        if what == "grad" and n >= count:
            raise TypeError(
                f"differentiating with respect to argnums={argnums} requires at least {n + 1} "
                f"positional arguments to be passed by the caller, but got only {count} positional "
                f"arguments (pass them by position, not by keyword).{here()}"
            )
        if not -count <= n < count:
            raise ValueError(
                "Positional argument indices must have value greater than or equal to -len(args) "
                f"and less than len(args), but got value {n} for len(args) == {count}: {what} "
                f"needed argnums within the {count} positional arguments{here()}"
            )
        found.append(n % count)
    return tuple(found)


def check_axes(what: str, name: str, axes: Any) -> None:
    """Raise an error if mapped axes (`in_axes`, `out_axes`) are not integers."""
    for leaf in flatten(axes)[0]:
        if not isinstance(leaf, int) or isinstance(leaf, bool):
            raise TypeError(
                f"{what} {name} must be an int, None, or (nested) container with those types as "
                f"leaves, but got {axes!r}{here()}"
            )


def prefix_error(
    what: str, given: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> ValueError:
    """The error for a specification that is not a prefix of a tree, with each difference."""
    found = [str(make(what)) for make in prefix_errors(given, tree, is_leaf)]
    details = "".join(f"\n  {' '.join(text.split())}" for text in found[:8])
    return ValueError(
        f"{what} specification must be a tree prefix of the corresponding value; got specification "
        f"{given!r} for value tree {structure(tree)}.\nMismatch details ({len(found)} found):"
        f"{details}\n(give it the containers of the value, or one entry for all of it){here()}"
    )


def name_of(fun: object) -> str:
    """A function's name for messages and Programs; a partial has the name of its function."""
    while isinstance(fun, functools.partial) and not hasattr(fun, "__name__"):
        fun = fun.func
    name = getattr(fun, "__name__", None)
    return name if name and isinstance(name, str) else type(fun).__name__


def dress(wrapper: Any, fun: Callable[..., Any]) -> Any:
    """Give a wrapper the name, docstring and attributes of the wrapped function; return it."""
    with contextlib.suppress(TypeError):  # a name that is not a string
        functools.update_wrapper(wrapper, fun, updated=())
    wrapper.__wrapped__ = fun
    if not isinstance(getattr(fun, "__name__", None), str):
        wrapper.__name__ = wrapper.__qualname__ = name_of(fun)
    for name, value in _attributes_of(fun).items():
        if not hasattr(type(wrapper), name):
            wrapper.__dict__.setdefault(name, value)
    return wrapper


def _attributes_of(fun: Any) -> dict[str, Any]:
    """The attributes that users have set on a function; a wrapper of toile has those of its own
    function."""
    while type(fun).__module__.startswith("toile.") and hasattr(fun, "__wrapped__"):
        fun = fun.__wrapped__
    return getattr(fun, "__dict__", {})


def reference_to(wrapper: Any, fun: Any) -> str | None:
    """The name under which the module of `fun` has its wrapper, as a decorated function has."""
    name = getattr(fun, "__qualname__", "")
    found: Any = sys.modules.get(getattr(fun, "__module__", ""))
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is wrapper else None


def argument_labels(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
    by_keyword: str | None = None,
) -> list[str]:
    """A label for each leaf of (args, kwargs): `x`, `params['w']`, `batch[0]`.

    If `by_keyword` is given, keyword arguments are labeled as its entries: `kwargs['x']`."""
    names: list[str] = []
    rest, known = "args", None
    try:
        for p in inspect.signature(fun).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
            elif p.kind is p.VAR_POSITIONAL:
                rest = p.name
            elif p.kind is p.VAR_KEYWORD:
                known = p.name
    except (TypeError, ValueError):
        pass
    labels = []
    for i, arg in enumerate(args):
        base = names[i] if i < len(names) else f"{rest}[{i - len(names)}]"
        labels += [base + keystr(path) for path, _ in flatten_with_path(arg)[0]]
    for key in sorted(kwargs):
        if by_keyword is not None:
            base = f"{by_keyword}[{key!r}]"
        else:
            base = key if known is None or key in names else f"{known}[{key!r}]"
        labels += [base + keystr(path) for path, _ in flatten_with_path(kwargs[key])[0]]
    return labels


def bad_argument(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """The error for the first argument of a jitted function that is no array and no number."""
    labels = argument_labels(fun, args, kwargs)
    for label, leaf in zip(labels, flatten((args, kwargs))[0], strict=False):
        try:
            aval_of(leaf)
        except OverflowError:
            return OverflowError(
                "An overflow was encountered while parsing an argument to a jitted computation,"
                f" whose argument path is {label}. Got {type(leaf)} with value {leaf}: it is "
                "too large for the default integer dtype (pass an array whose dtype holds it, "
                f"or enable jax_enable_x64){here()}"
            )
        except TypeError:
            return TypeError(
                f"Error interpreting argument to {fun} as an abstract array. The "
                f"problematic value is of type {type(leaf)} and was passed to the function at "
                f"path {label}.\njit: needed arrays or numbers, got {label} = {describe(leaf)} "
                f"of type {type(leaf).__name__} (mark it with static_argnums or "
                f"static_argnames, or register its type as a pytree){here()}"
            )
    return TypeError(f"jit: an argument of {name_of(fun)} is not an array{here()}")
