"""The results of functions with derivative rules, and checks that the rules return the same.

This module may import the engine and staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.engine.trees import flatten, unflatten
from toile.staging.flat_functions import name_of


class RuleResults:
    """The structure of a function's result, and its avals once the function itself has run."""

    __slots__ = ("tree", "avals")

    def __init__(self) -> None:
        self.tree: Any = None
        self.avals: list[Aval] | None = None

    def leaves(self, out: Any) -> list[Any]:
        """The leaves of the function's result; records their structure and avals."""
        leaves, self.tree = flatten(out)
        found = [as_array(o) for o in leaves]
        self.avals = [aval_of(o) for o in found]
        return found

    def check(self, kind: str, rule: Any, fun: Any, tree: Any, outs: Sequence[Any]) -> None:
        """Raise an error if a rule's primal output differs from the function's known output."""
        got = [aval_of(o) for o in outs]
        if self.tree is not None and tree != self.tree:
            alike, what = "of the same container/pytree structure", "container/pytree structure"
            needed = f"{_typed(self.tree, self.avals)}."
        elif self.avals is not None and _types(got) != _types(self.avals):
            alike, what = "with leaves of the same shape/dtype", "shapes/dtypes of"
            needed = _typed(tree, self.avals)
        else:
            self.tree = tree
            return
        part = "JVP rule" if kind == "custom_jvp" else "VJP fwd rule"
        decorated = f"{kind}-decorated function {name_of(fun)}"
        raise TypeError(
            f"Custom {part} {name_of(rule)} for function {name_of(fun)} must produce a pair (list "
            f"or tuple of length two) whose first element is what {name_of(fun)} returns, {alike}: "
            f"the first element had {what}:\n    {_typed(tree, got)}\nwhile the {decorated} had "
            f"output {what}:\n    {needed}{here()}"
        )


def _typed(tree: Any, avals: Sequence[Aval] | None) -> str:
    """A tree with types in place of its leaves; only the structure if types are unknown."""
    if avals is None:
        return str(tree)
    return str(unflatten(tree, [_Typed(a.str_short()) for a in avals]))


class _Typed(str):
    """A type in the printed form of a tree."""

    __repr__ = str.__str__


def _types(avals: Sequence[Aval]) -> list[Any]:
    """Shapes and dtypes, without the weak bit."""
    return [(a.shape, a.dtype) for a in avals]
