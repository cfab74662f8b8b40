"""Calls of functions with derivative rules: their arguments, and checks of what the rules return.

This module may import the engine and staging.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.errors import UnexpectedTracerError
from toile.engine.refs import Ref, check_aliases, refuse_returned, value_avals, value_of
from toile.engine.source import here
from toile.engine.trace import Tracer, runs_at_once, state
from toile.engine.trees import flatten, tree_map, unflatten
from toile.staging.flat_functions import argument_labels, name_of

SCALARS = (bool, int, float, complex)


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
        decorated = f"the {kind}-decorated function {name_of(fun)}"
        if kind == "custom_jvp":
            part, output = "JVP rule", "JVP rule"
            roles = f"(equal in value to the output of {decorated}, and in particular {alike})"
        else:
            part, output = "VJP fwd rule", "fwd rule"
            roles = (
                f"(equal to the output of {decorated}) and the second element represents residuals "
                "(i.e. values stored from the forward pass for use on the backward pass)"
            )
        raise TypeError(
            f"Custom {part} {name_of(rule)} for function {name_of(fun)} must produce a pair (list "
            f"or tuple of length two) where the first element represents the primal output {roles},"
            f" but instead the {output} output's first element had {what}:\n    "
            f"{_typed(tree, got)}\nwhile {decorated} had output {what}:\n    {needed}{here()}"
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


def signature_of(fun: Callable[..., Any]) -> inspect.Signature | None:
    """The signature for binding arguments; None for a `functools.partial`, as in JAX."""
    if isinstance(fun, functools.partial):
        return None
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def positional(
    kind: str, fun: Callable[..., Any], signature: inspect.Signature | None, args: Any, kwargs: Any
) -> tuple[Any, ...]:
    """Positional arguments, with defaults and keywords resolved by the signature.

    `kind` is the decorator of the function, for errors. Keyword-only parameters keep their
    defaults; an error is raised only if one of them is passed."""
    if signature is None:
        if kwargs:
            raise TypeError(
                f"{name_of(fun)}: needed positional arguments, got keywords {sorted(kwargs)} and "
                "no signature to resolve them with" + here()
            )
        return tuple(args)
    if not kwargs and len(args) == len(signature.parameters):
        return tuple(args)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as e:
        raise _unresolved(kind, fun, str(e)) from e
    bound.apply_defaults()
    given = sorted(name for name in bound.kwargs if name in kwargs)
    if given:
        raise _unresolved(kind, fun, "The following keyword arguments could not be resolved to "
                          f"positions: {', '.join(given)}")
    return bound.args


def _unresolved(kind: str, fun: Callable[..., Any], why: str) -> TypeError:
    return TypeError(
        f"The input arguments to the {kind}-decorated function {name_of(fun)} could not be "
        f"resolved to positional-only arguments. Binding failed with the error:\n{why}{here()}"
    )


def number_or_array(x: Any) -> Any:
    """A result of a function that is called directly: Python numbers stay as they are."""
    return x if type(x) in SCALARS else as_array(x)


class CustomCall:
    """One call to such a function: its flattened arguments, and the types of its results.

    `fixed` are the arguments that are not differentiated; `leaves` are the leaves of the others."""

    __slots__ = ("fun", "count", "numbers", "fixed", "leaves", "tree", "results", "refs", "inner",
                 "avals", "given")

    def __init__(self, of: Any, kind: str, args: Any, kwargs: Any):
        self.fun = of.fun
        args = self.given = positional(kind, of.fun, of._signature, args, kwargs)
        self.count = len(args)
        self.numbers = {n % self.count for n in of.nondiff_argnums} if args else set()
        self.fixed = [args[n] for n in sorted(self.numbers)]
        moving = tuple([a for i, a in enumerate(args) if i not in self.numbers])
        leaves, self.tree = flatten(moving)
        # Refs are passed to the rules as they are, unless their values are differentiated.
        self.refs = {i: x for i, x in enumerate(leaves) if x.__class__ is Ref}
        self.inner = {i for i, x in self.refs.items() if x._trace is not None and not
                      x._trace.keeps_refs}
        if self.refs:
            check_aliases(leaves, argument_labels(self.fun, args, {}), name_of(self.fun), kind)
        self.leaves = [as_array(value_of(x)) for i, x in enumerate(leaves) if self.is_operand(i)]
        self.avals = value_avals(leaves)
        self.results = RuleResults()

    def is_operand(self, i: int) -> bool:
        """Whether a leaf of the arguments is an operand of the operation."""
        return i not in self.refs or i in self.inner

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, with these leaves for the differentiated ones."""
        if self.refs:
            rest = iter(leaves)
            leaves = [(Ref(next(rest)) if i in self.inner else next(rest)) if self.is_operand(i)
                      else self.refs[i] for i in range(self.tree.num_leaves)]
        fixed, moving = iter(self.fixed), iter(unflatten(self.tree, leaves))
        return [next(fixed) if i in self.numbers else next(moving) for i in range(self.count)]

    def flat(self, *leaves: Any) -> list[Any]:
        """The function as a function of the leaves."""
        out = self.fun(*self.arguments(leaves))
        self.check_returned(out)
        return self.results.leaves(out)

    def check_fixed(self) -> None:
        """Raise an error for a tracer among the arguments that are not differentiated."""
        if any(isinstance(x, Tracer) for x in flatten(self.fixed)[0]):
            raise UnexpectedTracerError(
                "Found a JAX Tracer object passed as an argument to a custom_vjp function in a "
                "position indicated by nondiff_argnums as non-differentiable: needed values that "
                f"are not traced for {name_of(self.fun)} (make it an argument with a cotangent, "
                f"which may be None){here()}"
            )

    def is_direct(self) -> bool:
        """Whether the function is called directly, with its arguments as they are."""
        return runs_at_once() and state.stepper is None

    def direct(self) -> Any:
        """The result of the function itself."""
        out = self.fun(*self.given)
        self.check_returned(out)
        return tree_map(number_or_array, out)

    def check_returned(self, out: Any) -> None:
        """Raise an error if the function returns a Ref."""
        returned = next((x for x in flatten(out)[0] if x.__class__ is Ref), None)
        if returned is not None:
            raise refuse_returned(returned, name_of(self.fun), "custom_vjp")

    def run(self, op: Any) -> Any:
        """The results of an operation on the leaves, in the structure of the function's result.

        The leaves are dropped to avoid a reference cycle, because the operation refers to this
        call, and tracers refer to the operation.
        """
        leaves, self.leaves, self.given = self.leaves, [], ()
        outs = op(*leaves)
        return unflatten(self.results.tree, outs)
