"""`checkpoint` (also called `remat`), its policies, and names for values.

A policy decides for each operation of the forward pass whether its results may be kept for the
backward pass. This module may import all layers below `api`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from toile.control.remat import Remat
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array
from toile.engine.program import trace_with_refs
from toile.engine.records import dataclass
from toile.engine.refs import (
    RefFunction,
    Staged,
    differentiating,
    must_run_in_python,
    ref_function,
    use_of_refs,
    value_of,
    values_of,
)
from toile.engine.source import describe, here
from toile.engine.trace import state
from toile.engine.trees import flatten, tree_map, unflatten
from toile.primitives.barriers import Name
from toile.staging.flat_functions import FlatFunction, dress, name_of

if TYPE_CHECKING:
    from toile.engine.operation import Operation

P = ParamSpec("P")
R = TypeVar("R")


def checkpoint_name(x: PyTree, name: str) -> PyTree:
    """Give a value a name to which policies for `checkpoint` can refer.

    Args:
        x: an array or a tree of arrays.
        name: the name, which is passed to policies such as
            `checkpoint_policies.save_only_these_names`.

    Returns:
        The values in `x`, unchanged.

    >>> policy = toile.checkpoint_policies.save_only_these_names("h")
    >>> f = lambda x: jnp.sin(toile.ad_checkpoint.checkpoint_name(jnp.cos(x), "h"))
    >>> float(toile.grad(toile.checkpoint(f, policy=policy))(0.0))
    -0.0
    """
    return tree_map(lambda v: Name(name)(as_array(v)), x)


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Any:
    """Make a function recompute its intermediate values in the backward pass to save memory.

    Reverse-mode differentiation keeps the intermediate values of a function until its gradient is
    computed. Under `checkpoint`, only the arguments and the values that `policy` selects are kept.
    This saves memory but requires more computation. `remat` is another name for this function.

    Args:
        fun: the function. If it is omitted, `checkpoint` returns a decorator.
        prevent_cse: whether to prevent the compiler from reusing values from the forward pass.
            Inside `lax.scan`, this protection is not needed, so set `prevent_cse` to False.
        policy: function that decides which intermediate values may be kept, such as
            `toile.checkpoint_policies.dots_saveable`; if None, only the arguments are kept.
        static_argnums: positions of arguments that are not traced.
        static_argnames: names of keyword arguments that are not traced.
        concrete: must be False; JAX has removed this option.

    Returns:
        A function with the same arguments and results.

    >>> f = toile.checkpoint(lambda x: jnp.sin(jnp.cos(x)))
    >>> float(toile.grad(f)(0.0))
    -0.0
    """
    if concrete:
        raise NotImplementedError(
            "The 'concrete' option to checkpoint is deprecated: needed static_argnums for "
            "arguments that Python control flow depends on" + here()
        )
    _check_policy(policy)
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy,
                                 static_argnums=static_argnums, static_argnames=static_argnames)

    def remat_f(*args: Any, **kwargs: Any) -> Any:
        if state.stepper is not None:
            return fun(*args, **kwargs)
        fixed = _static_arguments(args, static_argnums)
        given = tuple(None if i in fixed else a for i, a in enumerate(args))
        held = {k: kwargs.pop(k) for k in _names(static_argnames) if k in kwargs}
        leaves, in_tree = flatten((given, kwargs))

        def called(*xs: Any, **named: Any) -> Any:
            return fun(*[fixed.get(i, x) for i, x in enumerate(xs)], **named, **held)

        flat = FlatFunction(called, in_tree)
        of_values = ref_function(flat, leaves, (), name_of(fun), "checkpoint")
        xs = [as_array(value_of(x)) for x in leaves]
        avals = [aval_of(x) for x in xs]
        made = trace_with_refs(of_values or flat, avals, name_of(fun), kind="checkpoint")
        if made.inline and differentiating():
            return called(*given, **kwargs)
        op = Remat(made.program, name_of(fun), policy, prevent_cse)
        return unflatten(flat.out_tree, _run(op, made, of_values, leaves, xs))

    return dress(remat_f, fun)


def _static_arguments(args: Sequence[Any], static_argnums: int | Sequence[int]) -> dict[int, Any]:
    """The arguments that are not traced, by position."""
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    for n in nums:
        if not -len(args) <= n < len(args):
            raise ValueError(
                "the `static_argnums` argument to `checkpoint` can only take integer values "
                f"within the {len(args)} positional arguments, got {n}{here()}"
            )
    return {n % len(args): args[n] for n in nums}


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def _run(op: Remat, made: Staged, of_values: RefFunction | None, leaves: Sequence[Any],
         xs: Sequence[Any]) -> Sequence[Any]:
    """The results of a checkpointed function, which may use Refs."""
    outs = op(*values_of(made.consts), *xs)
    if made.inline:
        must_run_in_python()
    uses = use_of_refs(made, of_values)
    return outs if uses is None else uses.finished(leaves, outs)


def _check_policy(policy: Any) -> None:
    if policy is not None and not callable(policy):
        raise TypeError(f"checkpoint: {type(policy).__name__!r} object is not callable: needed a "
                        f"function as policy, got {describe(policy)} (use one of "
                        f"toile.checkpoint_policies){here()}")


remat = checkpoint


@dataclass(frozen=True)
class NamesPolicy:
    """Keeps the values with one of these names; if not `keep`, all other values. The name of a
    value that has none is None. As data, it can be exported with a function."""

    names: tuple[str | None, ...]
    keep: bool

    def __call__(self, prim: Operation, *_: Any, **__: Any) -> bool:
        return (prim.saved_name in self.names) == self.keep


@dataclass(frozen=True)
class BothPolicies:
    """Keeps what at least one of two policies keeps."""

    first: Callable[..., bool]
    second: Callable[..., bool]

    def __call__(self, prim: Operation, *args: Any, **params: Any) -> bool:
        return self.first(prim, *args, **params) or self.second(prim, *args, **params)


class checkpoint_policies:
    """Policies that decide which results of the forward pass `checkpoint` may keep.

    Some attributes, such as `dots_saveable`, are policies. Others, such as `save_only_these_names`,
    are functions that return a policy. A policy is a function that is called with an operation and
    returns True if the operation's results may be kept. The arguments of the checkpointed function
    are always kept.

    >>> policy = toile.checkpoint_policies.nothing_saveable
    >>> f = toile.checkpoint(lambda w, x: jnp.sin(x @ w), policy=policy)
    >>> toile.ad_checkpoint.print_saved_residuals(f, jnp.ones((2, 2)), jnp.ones((3, 2)))
    f32[2,2] from the argument w
    f32[3,2] from the argument x
    """

    @staticmethod
    def everything_saveable(prim: Operation, *_: Any, **__: Any) -> bool:
        """Keep every result, as if `checkpoint` were not used.

        Args:
            prim: the operation.

        Returns:
            True.
        """
        return True

    @staticmethod
    def nothing_saveable(prim: Operation, *_: Any, **__: Any) -> bool:
        """Keep no results, so that all of them are recomputed; this is the default.

        Args:
            prim: the operation.

        Returns:
            False.
        """
        return False

    @staticmethod
    def dots_saveable(prim: Operation, *_: Any, **__: Any) -> bool:
        """Keep the results of convolutions, matrix products and other contractions.

        Args:
            prim: the operation.

        Returns:
            True if the results of the operation may be kept.
        """
        return prim.multiplies

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(prim: Operation, *_: Any, **__: Any) -> bool:
        """Keep the results of contractions without batch axes.

        For example, products of activations and weights are such contractions.

        Args:
            prim: the operation.

        Returns:
            True if the results of the operation may be kept.
        """
        return prim.sums_shared_axes

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Callable[..., bool]:
        """Return a policy that keeps only values with one of the given names.

        Args:
            *names: names, set with `checkpoint_name`, of the values to keep.

        Returns:
            The policy.
        """
        return NamesPolicy(names, True)

    @staticmethod
    def save_any_names_but_these(*names: str) -> Callable[..., bool]:
        """Return a policy that keeps only values that have a name other than the given names.

        Args:
            *names: names of values that are not kept.

        Returns:
            The policy.
        """
        return NamesPolicy((None, *names), False)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Callable[..., bool]:
        """Return a policy that keeps every result except values with one of the given names.

        Args:
            *names: names of values that are not kept.

        Returns:
            The policy.
        """
        return NamesPolicy(names, False)

    @staticmethod
    def save_from_both_policies(
        first: Callable[..., bool], second: Callable[..., bool]
    ) -> Callable[..., bool]:
        """Return a policy that keeps the results that at least one of two policies keeps.

        Args:
            first, second: the policies.

        Returns:
            The policy.
        """
        return BothPolicies(first, second)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Callable[..., bool]:
        """Return a policy that is equivalent to `dots_with_no_batch_dims_saveable`.

        Args:
            offload_src, offload_dst: accepted for compatibility with JAX.

        Returns:
            The policy.

        Differences:
            JAX moves the results to the memory `offload_dst`; toile keeps them where they are.
        """
        return checkpoint_policies.dots_with_no_batch_dims_saveable

    @staticmethod
    def save_and_offload_only_these_names(
        *, names_which_can_be_saved: Sequence[str], names_which_can_be_offloaded: Sequence[str],
        offload_src: str, offload_dst: str,
    ) -> Callable[..., bool]:
        """Return a policy that keeps values whose name is in one of two lists.

        Args:
            names_which_can_be_saved: names of values to keep.
            names_which_can_be_offloaded: names of additional values to keep.
            offload_src, offload_dst: accepted for compatibility with JAX.

        Returns:
            The policy.

        Differences:
            JAX moves the values in the second list to the memory `offload_dst`; toile keeps them
            where they are.
        """
        return checkpoint_policies.save_only_these_names(
            *names_which_can_be_saved, *names_which_can_be_offloaded
        )
