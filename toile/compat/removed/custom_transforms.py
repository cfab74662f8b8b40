"""`custom_transforms`, with which JAX defined derivatives of functions before `custom_jvp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import toile
from toile.tree_util import tree_map

__all__ = ["custom_transforms", "defjvp", "defjvp_all", "defvjp", "defvjp_all"]


class custom_transforms:
    """A function whose derivative can be set with `defjvp`, `defvjp` and the like."""

    def __init__(self, fun: Callable[..., Any]):
        self.fun = self.run = fun
        functools.update_wrapper(self, fun)

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)


def defjvp_all(fun: custom_transforms, custom_jvp: Callable[..., Any]) -> None:
    """Set `custom_jvp(primals, tangents)`, which returns the result and its tangent."""
    made = toile.custom_jvp(fun.fun)
    made.defjvp(custom_jvp)
    fun.run = made


def defvjp_all(fun: custom_transforms, custom_vjp: Callable[..., Any]) -> None:
    """Set `custom_vjp(*args)`, which returns the result and a function of its cotangent."""
    def forward(*args: Any) -> Any:
        out, vjp = custom_vjp(*args)
        return out, toile.tree_util.Partial(vjp)

    def backward(vjp: Any, ct: Any) -> tuple[Any, ...]:
        cts = vjp(ct)
        return cts if isinstance(cts, tuple) else tuple(cts)

    made = toile.custom_vjp(fun.fun)
    made.defvjp(forward, backward)
    fun.run = made


def defjvp(fun: custom_transforms, *jvprules: Callable[..., Any] | None) -> None:
    """Set rules `rule(tangent, result, *args)`, one for each argument, or None for zero."""
    def jvp(primals: Any, tangents: Any) -> Any:
        ans = fun.fun(*primals)
        parts = [rule(t, ans, *primals) for rule, t in zip(jvprules, tangents, strict=True)
                 if rule is not None]
        if not parts:
            return ans, tree_map(toile.numpy.zeros_like, ans)
        return ans, functools.reduce(lambda a, b: tree_map(toile.numpy.add, a, b), parts)

    defjvp_all(fun, jvp)


def defvjp(fun: custom_transforms, *vjprules: Callable[..., Any] | None) -> None:
    """Set rules `rule(cotangent, result, *args)`, one for each argument, or None for zero."""
    def forward(*args: Any) -> Any:
        ans = fun.fun(*args)
        return ans, (ans, args)

    def backward(kept: Any, ct: Any) -> tuple[Any, ...]:
        ans, args = kept
        return tuple(tree_map(toile.numpy.zeros_like, x) if rule is None else rule(ct, ans, *args)
                     for rule, x in zip(vjprules, args, strict=True))

    made = toile.custom_vjp(fun.fun)
    made.defvjp(forward, backward)
    fun.run = made
