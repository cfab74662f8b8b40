"""Several transformations as one: in a row, in a row with names, or each for its own leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from toile import tree as trees
from toile.optim import base, paths
from toile.optim.masking import masked, resolved
from toile.optim.tree.states import ParamsPlaceholder

__all__ = [
    "MultiTransformState", "PartitionState", "chain", "freeze", "multi_transform", "named_chain",
    "partition", "selective_transform",
]  # fmt: skip


def chain(*args: base.GradientTransformation) -> base.GradientTransformationExtraArgs:
    """Transformations applied one after the other; the state is the tuple of their states.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.chain(optim.clip(1.0), optim.scale(-0.1))
    >>> updates, _ = tx.update(jnp.array([5.0, 0.5]), tx.init(jnp.zeros(2)))
    >>> print(updates)
    [-0.1  -0.05]
    """
    inits, updaters = zip(*(base.with_extra_args_support(tx) for tx in args))

    init_fn = lambda params: tuple(init(params) for init in inits)

    def update_fn(updates, state, params=None, **extra_args):
        if len(state) != len(updaters):
            raise ValueError(
                f"chain: needed {len(updaters)} states, got {len(state)} "
                "(the state has to come from this chain's init)"
            )
        new_state = []
        for updater, inner in zip(updaters, state):
            updates, inner = updater(updates, inner, params, **extra_args)
            new_state.append(inner)
        return updates, tuple(new_state)

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


def named_chain(
    *args: tuple[str, base.GradientTransformation],
) -> base.GradientTransformationExtraArgs:
    """A chain of (name, transformation); the state is a dict by these names."""
    names = [name for name, _ in args]
    if len(names) != len(set(names)):
        raise ValueError(f"named_chain: needed different names, got {names}")
    steps = OrderedDict((name, base.with_extra_args_support(tx)) for name, tx in args)

    init_fn = lambda params: OrderedDict((name, tx.init(params)) for name, tx in steps.items())

    def update_fn(updates, state, params=None, **extra_args):
        new_state = OrderedDict()
        for name, tx in steps.items():
            updates, new_state[name] = tx.update(updates, state[name], params, **extra_args)
        return updates, new_state

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


class PartitionState(NamedTuple):
    """The states of the transformations, by label."""

    inner_states: Mapping[Hashable, base.OptState]


def partition(
    transforms: Mapping[Hashable, base.GradientTransformation],
    param_labels: base.PyTree | Callable[[base.PyTree], base.PyTree], *,
    mask_compatible_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Each leaf transformed by the transformation that its label names.

    Labels are a tree like the parameters (or a prefix of it), a function that makes one, or a dict
    from globs of paths to labels, of which the first that matches counts.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> groups = {"train": optim.sgd(0.1), "rest": optim.set_to_zero()}
    >>> tx = optim.partition(groups, {"head/**": "train", "**": "rest"})
    >>> params = {"body": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, _ = tx.update(params, tx.init(params))
    >>> print(updates["body"]["w"], updates["head"]["w"])
    [0.] [-0.1]
    """
    transforms = {group: base.with_extra_args_support(tx) for group, tx in transforms.items()}

    def labels_for(tree):
        labels: Any = param_labels
        if paths.is_labels(labels, tree):
            if isinstance(tree, ParamsPlaceholder):
                return tree
            return paths.label_tree(labels, tree)
        return labels(tree) if callable(labels) else labels

    def of_group(group, labels):
        mask = trees.map(lambda label: label == group, labels)
        tx = transforms[group]
        return masked(tx, mask, mask_compatible_extra_args=mask_compatible_extra_args)

    def init_fn(params):
        labels = labels_for(params)
        used = set(trees.leaves(labels))
        if not used <= transforms.keys():
            raise ValueError(
                f"partition: needed a transformation for each label, got labels "
                f"{sorted(used, key=str)} and transformations {sorted(transforms, key=str)}"
            )
        return PartitionState({g: of_group(g, labels).init(params) for g in transforms})

    def update_fn(updates, state, params=None, **extra_args):
        labels, inner_states = labels_for(updates), {}
        for group in transforms:
            updates, inner_states[group] = of_group(group, labels).update(
                updates, state.inner_states[group], params, **extra_args
            )
        return updates, PartitionState(inner_states)

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


multi_transform = partition
MultiTransformState = PartitionState


def freeze(mask: bool | base.ArrayTree) -> base.GradientTransformation:
    """Zero updates where the mask (or glob) holds; others pass unchanged.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.chain(optim.sgd(1.0), optim.freeze("encoder/**"))
    >>> params = {"encoder": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, _ = tx.update(params, tx.init(params), params)
    >>> print(updates["encoder"]["w"], updates["head"]["w"])
    [0.] [-1.]
    """
    return masked(base.set_to_zero(), mask)


def selective_transform(
    optimizer: base.GradientTransformation, *, freeze_mask: bool | base.ArrayTree
) -> base.GradientTransformation:
    """The optimizer for the leaves outside the mask (or glob); the others stay, without state."""

    def labels(params):
        if paths.globs_of(freeze_mask) is not None and isinstance(params, ParamsPlaceholder):
            return params
        mask = freeze_mask
        if paths.globs_of(mask) is not None:
            mask = resolved(mask, params, "selective_transform")
        return trees.map(lambda m: "freeze" if m else "train", mask)

    return partition({"train": optimizer, "freeze": base.set_to_zero()}, param_labels=labels)
