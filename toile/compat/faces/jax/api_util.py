"""`jax.api_util`: functions of flat arguments, and the numbers and names of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable
from typing import Any

from toile import tree_util
from toile.compat.faces.jax.extend import linear_util
from toile.compat.faces.jax.util import safe_map
from toile.engine.avals import aval_of

__all__ = [
    "argnums_partial", "debug_info", "flatten_axes", "flatten_fun", "flatten_fun_nokwargs",
    "infer_argnums_and_argnames", "safe_map", "shaped_abstractify",
]

shaped_abstractify = aval_of


def debug_info(*args: Any, **kwargs: Any) -> None:
    """None: toile finds the places of a function in the user's code by itself."""


@linear_util.transformation_with_aux
def flatten_fun(in_tree: Any, *flat: Any) -> Generator[Any, Any, None]:
    """A function of the leaves of (args, kwargs), with leaves as its result."""
    args, kwargs = tree_util.tree_unflatten(in_tree, flat)
    yield tree_util.tree_flatten((yield args, kwargs))


@linear_util.transformation_with_aux
def flatten_fun_nokwargs(in_tree: Any, *flat: Any) -> Generator[Any, Any, None]:
    """A function of the leaves of its positional arguments, with leaves as its result."""
    yield tree_util.tree_flatten((yield tree_util.tree_unflatten(in_tree, flat), {}))


def argnums_partial(
    f: Any, dyn_argnums: int | Iterable[int], args: Iterable[Any], **_: Any
) -> tuple[Any, tuple[Any, ...]]:
    """A function of some of the arguments, and these arguments."""
    given = tuple(args)
    wanted = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    numbers = [n % len(given) for n in wanted]

    def partial(*dynamic: Any, **kwargs: Any) -> Any:
        every = list(given)
        for n, value in zip(numbers, dynamic, strict=True):
            every[n] = value
        return call(*every, **kwargs)

    wrapped = isinstance(f, linear_util.WrappedFun)
    call = f.call_wrapped if wrapped else f
    made = linear_util.wrap_init(partial) if wrapped else partial
    return made, tuple(given[n] for n in numbers)


def flatten_axes(name: str, treedef: Any, axis_tree: Any, **_: Any) -> list[Any]:
    """The axis of each leaf of a tree; `axis_tree` is a prefix of it, in which None is a leaf."""
    leaves = tree_util.tree_unflatten(treedef, range(treedef.num_leaves))
    axes, prefix = tree_util.tree_flatten(axis_tree, is_leaf=lambda x: x is None)
    parts = prefix.flatten_up_to(leaves)
    return [axis for axis, part in zip(axes, parts, strict=True)
            for _ in tree_util.tree_leaves(part)]


def infer_argnums_and_argnames(
    signature: inspect.Signature, argnums: int | Iterable[int] | None,
    argnames: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The numbers and the names of arguments, each found from the other if it is not given."""
    if argnums is None and argnames is None:
        return (), ()
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    parameters = list(signature.parameters.items())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if argnums is None:
        numbers = tuple(i for i, (name, p) in enumerate(parameters)
                        if p.kind in positional and name in names)
    elif argnames is None:
        count = len(parameters)
        wanted = {i + count if i < 0 else i for i in numbers}
        names = tuple(name for i, (name, p) in enumerate(parameters)
                      if p.kind in named and i in wanted)
    return numbers, names
