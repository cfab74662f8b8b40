"""Recomputing values in the backward pass: `checkpoint`, its policies, `print_saved_residuals`.

`print_saved_residuals` prints the values that reverse-mode differentiation of a function keeps, and
the origin of each: an argument, a constant, or the output of an operation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from toile.api.checkpoint import checkpoint, checkpoint_name, checkpoint_policies, remat
from toile.api.linear_maps import vjp
from toile.api.programs import make_jaxpr
from toile.control.call import Call
from toile.control.remat import Offloadable, Recompute, Saveable
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.keypaths import keystr
from toile.engine.program import Var
from toile.engine.trees import flatten, flatten_with_path, unflatten
from toile.primitives.barriers import Name

__all__ = [
    "Offloadable", "Recompute", "Saveable", "checkpoint", "checkpoint_name", "checkpoint_policies",
    "print_saved_residuals", "remat",
]


def print_saved_residuals(f: Callable[..., Any], *args: PyTree, **kwargs: PyTree) -> None:
    """Print the values that reverse-mode differentiation of a function keeps for the backward pass.

    Each line shows the dtype, the shape and the origin of a value. The origin is an argument, a
    constant, or an operation and its line in the source code.

    Args:
        f: function whose arguments are arrays or trees of arrays.
        args: arguments of the function.
        kwargs: keyword arguments of the function.

    >>> toile.ad_checkpoint.print_saved_residuals(lambda x, y: x * y, 2.0, 3.0)
    f32[] from the argument x
    f32[] from the argument y
    """
    for aval, origin in _saved_residuals(f, args, kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {origin}")


def _saved_residuals(f, args, kwargs):
    leaves, tree = flatten((args, kwargs))

    def of_leaves(*leaves):
        args, kwargs = unflatten(tree, leaves)
        return f(*args, **kwargs)

    program = make_jaxpr(lambda *xs: vjp(of_leaves, *xs)[1])(*leaves).program
    names = _argument_names(f, args, kwargs)
    inputs = program.inputs[len(program.inputs) - len(names) :]  # after the constants
    origins = {v: f"from the argument {n}" for v, n in zip(inputs, names, strict=True)}
    for equation in program.equations:
        for out in equation.outs:
            origins[out] = f"{_made_by(equation.op)} from {equation.source}"
    kept = list(dict.fromkeys(v for v in program.outputs if isinstance(v, Var)))
    order = {v: i for i, v in enumerate(origins)}
    literals = [(aval_of(v), "from a literal") for v in program.outputs if not isinstance(v, Var)]
    constants = [(v.aval, "from a constant") for v in kept if v not in origins]
    made = sorted((v for v in kept if v in origins), key=order.__getitem__)
    return [*literals, *constants, *((v.aval, origins[v]) for v in made)]


def _made_by(op):
    if isinstance(op, Name):
        return f"named '{op.label}'"
    if isinstance(op, Call):
        return f"output of jitted function '{op.label}'"
    return f"output of {op.name}"


def _argument_names(f, args, kwargs):
    """Labels for the leaves of the arguments, such as `x` or `params['w']`."""
    try:
        given = inspect.signature(f).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {}
    positional = [n for n in given if n not in kwargs] or ["args"]
    found = []
    for path, _ in flatten_with_path((args, kwargs))[0]:
        of_kwargs, key, rest = path[0].idx, path[1], path[2:]
        if of_kwargs:
            name = str(key.key)
        elif key.idx < len(positional) and given:
            name = positional[key.idx]
        else:
            name = f"args[{key.idx}]"
        found.append(name + keystr(rest))
    return found
