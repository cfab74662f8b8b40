"""Masks, which restrict a transformation to some leaves.

`masked` replaces each leaf that the mask excludes with a `MaskedNode`, a tree without leaves. The
inner transformation therefore neither sees that leaf nor keeps state for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toile import tree as trees
from toile.engine.source import describe
from toile.engine.tracebacks import expect_error
from toile.optim import base, paths
from toile.optim.tree.states import ParamsPlaceholder

__all__ = ["MaskOrFn", "MaskedNode", "MaskedState", "masked"]

MaskOrFn = Any | Callable[[base.Params], Any] | None


class MaskedState(NamedTuple):
    """State of `masked`.

    Args:
        inner_state: state of the inner transformation; it has no entries for excluded leaves.

    >>> from toile import optim
    >>> tx = optim.masked(optim.trace(0.9), {"a": True, "b": False})
    >>> tx.init({"a": jnp.zeros(1), "b": jnp.zeros(1)})
    MaskedState(inner_state=TraceState(trace={'a': Array([0.], dtype=float32), 'b':
    MaskedNode()}))
    """

    inner_state: base.OptState


class MaskedNode(NamedTuple):
    """Placeholder for a leaf that a mask excludes; it is a tree without leaves.

    >>> from toile import optim
    >>> toile.tree.leaves({"a": optim.MaskedNode(), "b": 1.0})
    [1.0]
    """


def resolved(mask: Any, tree: Any, who: str = "masked") -> Any:
    """Return the tree of bools for a mask given as globs, a function or a tree."""
    if paths.globs_of(mask) is not None:
        return paths.mask_tree(mask, tree, who)
    callables = [callable(leaf) for leaf in trees.leaves(mask)]
    return call_with_tree(mask, tree, "a mask") if callables and all(callables) else mask


def call_with_tree(function: Callable[[Any], Any], tree: Any, what: str) -> Any:
    """Call a user's function of a whole tree; a note on its errors says what it was given."""
    try:
        return function(tree)
    except Exception as error:
        expect_error()
        error.add_note(
            f"  ({what} is called with the whole tree, here {describe(tree)}: to decide for each "
            "array, write lambda params: toile.tree.map(lambda p: ..., params))"
        )
        raise


def with_masked_nodes(mask: Any, tree: Any) -> Any:
    """Return the tree with a `MaskedNode` in place of each part that the mask excludes."""
    return trees.map(lambda m, part: part if m else MaskedNode(), mask, tree)


def masked(
    inner: base.GradientTransformation, mask: base.PyTree | Callable[[base.Params], base.PyTree], *,
    mask_compatible_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Apply a transformation to the leaves where a mask is True; all other leaves stay unchanged.

    The inner transformation sees a `MaskedNode` in place of each excluded leaf and keeps no state
    for that leaf.

    Args:
        inner: transformation to apply.
        mask: a tree of bools with the structure of the parameters or a prefix of that structure, a
            function that returns such a tree for the parameters, or one or more globs that match
            parameter paths, such as `"**/kernel"`. `*` matches any characters within one name, and
            `**` matches any number of names.
        mask_compatible_extra_args: whether to also mask the keyword arguments of `update` that have
            the same structure as the updates.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: a glob matches no leaf.

    Differences:
        Optax does not accept globs.

    >>> from toile import optim
    >>> tx = optim.masked(optim.scale(0.5), "**/bias")
    >>> params = {"dense": {"kernel": jnp.ones(2), "bias": jnp.ones(1)}}
    >>> updates, state = tx.update(params, tx.init(params))
    >>> updates["dense"]
    {'bias': Array([0.5], dtype=float32), 'kernel': Array([1., 1.], dtype=float32)}
    """
    inner = base.with_extra_args_support(inner)

    def init_fn(params):
        if not isinstance(params, ParamsPlaceholder):
            params = with_masked_nodes(resolved(mask, params), params)
        return MaskedState(inner_state=inner.init(params))

    def update_fn(updates, state, params=None, **extra_args):
        chosen = resolved(mask, updates)
        if mask_compatible_extra_args:
            alike = trees.structure(updates)
            extra_args = {
                name: with_masked_nodes(chosen, value) if trees.structure(value) == alike else value
                for name, value in extra_args.items()
            }
        inner_params = None if params is None else with_masked_nodes(chosen, params)
        new, inner_state = inner.update(
            with_masked_nodes(chosen, updates), state.inner_state, inner_params, **extra_args
        )
        pick = lambda m, new_part, old_part: new_part if m else old_part
        return trees.map(pick, chosen, new, updates), MaskedState(inner_state=inner_state)

    return base.GradientTransformationExtraArgs(init_fn, update_fn)
