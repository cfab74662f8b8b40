"""Transformations of some leaves only: masks; the other leaves are hidden.

Inside `masked`, a leaf that the mask leaves out is a MaskedNode, a tree without leaves: the inner
transformation neither sees it nor keeps state for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toile import tree as trees
from toile.optim import base, paths
from toile.optim.tree.states import ParamsPlaceholder

__all__ = ["MaskOrFn", "MaskedNode", "MaskedState", "masked"]

MaskOrFn = Any | Callable[[base.Params], Any] | None


class MaskedState(NamedTuple):
    """The state of the masked transformation."""

    inner_state: Any


class MaskedNode(NamedTuple):
    """The place of a leaf that a mask leaves out."""


def resolved(mask: Any, tree: Any, who: str = "masked") -> Any:
    """The tree of bools that a mask means: of globs, of a function, or itself."""
    if paths.globs_of(mask) is not None:
        return paths.mask_tree(mask, tree, who)
    callables = [callable(leaf) for leaf in trees.leaves(mask)]
    return mask(tree) if callables and all(callables) else mask


def with_masked_nodes(mask: Any, tree: Any) -> Any:
    """The tree with a MaskedNode for each part that the mask leaves out."""
    return trees.map(lambda m, part: part if m else MaskedNode(), mask, tree)


def masked(
    inner: base.GradientTransformation, mask: base.PyTree | Callable[[base.Params], base.PyTree], *,
    mask_compatible_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """The transformation of the leaves where the mask is True; others pass unchanged.

    The mask is a tree of bools (or a prefix of it), a function that makes one of the parameters,
    or globs of their paths.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.masked(optim.scale(0.0), "**/bias")
    >>> params = {"dense": {"kernel": jnp.ones(2), "bias": jnp.ones(1)}}
    >>> updates, _ = tx.update(params, tx.init(params))
    >>> print(updates["dense"]["kernel"], updates["dense"]["bias"])
    [1. 1.] [0.]
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
