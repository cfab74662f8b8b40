"""Functions that apply several transformations, one after another or to different leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from toile import lax
from toile import tree as trees
from toile.engine.source import describe, here, name_call
from toile.optim import base, paths
from toile.optim.masking import call_with_tree, masked, resolved
from toile.optim.recorded_hyperparams import merge
from toile.optim.tree.states import ParamsPlaceholder
from toile.optim.update_errors import check_states, explained

__all__ = [
    "MultiTransformState", "PartitionState", "chain", "freeze", "multi_transform", "named_chain",
    "partition", "selective_transform", "stop_gradients",
]  # fmt: skip


def chain(*args: base.GradientTransformation) -> base.GradientTransformationExtraArgs:
    """Apply transformations one after another.

    The state is a tuple of the transformations' states. Keyword arguments of `update` are passed to
    each transformation that accepts them.

    Args:
        args: transformations, in the order in which they are applied.

    Returns:
        A transformation that applies all the given transformations.

    Raises:
        ValueError: `update` receives a state of the wrong length.

    >>> from toile import optim
    >>> tx = optim.chain(optim.clip(1.0), optim.scale(-0.5))
    >>> updates, state = tx.update(jnp.array([5.0, 0.5]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([-0.5 , -0.25], dtype=float32)
    """
    inits, updaters = zip(*(base.with_extra_args_support(tx) for tx in args))

    init_fn = lambda params: tuple(init(params) for init in inits)

    def update_fn(updates, state, params=None, **extra_args):
        check_states(len(updaters), updates, state)
        new_state = []
        for init, updater, inner in zip(inits, updaters, state):
            try:
                updates, inner = updater(updates, inner, params, **extra_args)
            except Exception as error:
                raise explained(error, updates, inner, init) from None
            new_state.append(inner)
        return updates, tuple(new_state)

    merge(update_fn, args)
    name_call(update_fn, "update")
    return base.GradientTransformationExtraArgs(init_fn, update_fn)


def named_chain(
    *args: tuple[str, base.GradientTransformation],
) -> base.GradientTransformationExtraArgs:
    """Apply transformations one after another, and store their states by name.

    Args:
        args: pairs (name, transformation), in the order in which they are applied.

    Returns:
        A transformation that applies all the given transformations. Its state is an ordered dict
        from names to states.

    Raises:
        ValueError: two names are equal.

    >>> from toile import optim
    >>> tx = optim.named_chain(("momentum", optim.trace(0.5)), ("rate", optim.scale(-0.5)))
    >>> state = tx.init(jnp.zeros(1))
    >>> updates, state = tx.update(jnp.array([4.0]), state)
    >>> updates, state["momentum"]
    (Array([-2.], dtype=float32), TraceState(trace=Array([4.], dtype=float32)))
    """
    names = [name for name, _ in args]
    if len(names) != len(set(names)):
        raise ValueError(f"named_chain: needed different names, got {names}{here()}")
    steps = OrderedDict((name, base.with_extra_args_support(tx)) for name, tx in args)

    init_fn = lambda params: OrderedDict((name, tx.init(params)) for name, tx in steps.items())

    def update_fn(updates, state, params=None, **extra_args):
        new_state = OrderedDict()
        for name, tx in steps.items():
            updates, new_state[name] = tx.update(updates, state[name], params, **extra_args)
        return updates, new_state

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


class PartitionState(NamedTuple):
    """State of `partition`.

    Args:
        inner_states: dict from labels to the corresponding transformations' states.

    >>> from toile import optim
    >>> tx = optim.partition({"a": optim.trace(0.9)}, {"w": "a"})
    >>> sorted(tx.init({"w": jnp.zeros(1)}).inner_states)
    ['a']
    """

    inner_states: Mapping[Hashable, base.OptState]


def partition(
    transforms: Mapping[Hashable, base.GradientTransformation],
    param_labels: base.PyTree | Callable[[base.PyTree], base.PyTree], *,
    mask_compatible_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Apply different transformations to leaves with different labels.

    Args:
        transforms: dict from labels to transformations. Each transformation sees only the leaves
            with its label; `MaskedNode` objects replace all other leaves.
        param_labels: a tree of labels with the structure of the parameters or a prefix of that
            structure, a function that returns such a tree for the parameters, or a dict from globs
            to labels. The globs match parameter paths, and the first glob that matches a leaf
            determines the leaf's label.
        mask_compatible_extra_args: whether to also mask the keyword arguments of `update` that have
            the same structure as the updates.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: a label has no transformation, a glob matches no leaf, or a leaf has no label.

    Differences:
        Optax does not accept globs.

    >>> from toile import optim
    >>> groups = {"train": optim.sgd(0.5), "rest": optim.set_to_zero()}
    >>> tx = optim.partition(groups, {"head/**": "train", "**": "rest"})
    >>> params = {"body": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, state = tx.update(params, tx.init(params))
    >>> updates
    {'body': {'w': Array([0.], dtype=float32)}, 'head': {'w': Array([-0.5], dtype=float32)}}
    """
    if not isinstance(transforms, Mapping):
        raise AttributeError(
            f"{type(transforms).__name__!r} object has no attribute 'items': partition needed a "
            f"dict of transformations by label, got {describe(transforms)} (write "
            f"{{'train': optim.adam(0.1), 'frozen': optim.set_to_zero()}}){here()}"
        )
    transforms = {group: base.with_extra_args_support(tx) for group, tx in transforms.items()}

    def labels_for(tree):
        labels: Any = param_labels
        if paths.is_labels(labels, tree):
            if isinstance(tree, ParamsPlaceholder):
                return tree
            return paths.label_tree(labels, tree)
        return call_with_tree(labels, tree, "a function of labels") if callable(labels) else labels

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
                f"{sorted(used, key=str)} and transformations {sorted(transforms, key=str)}{here()}"
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


def freeze(
    mask: base.PyTree | str | Sequence[str] | Callable[[base.Params], base.PyTree]
) -> base.GradientTransformation:
    """Freeze the parameters for which a mask is True: replace their updates with zeros.

    Args:
        mask: the parameters that stay unchanged, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"encoder/**"`.

    Returns:
        A gradient transformation. Put it last in a chain.

    Differences:
        Optax does not accept globs.

    >>> from toile import optim
    >>> tx = optim.chain(optim.sgd(0.5), optim.freeze("encoder/**"))
    >>> params = {"encoder": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, state = tx.update(params, tx.init(params), params)
    >>> updates
    {'encoder': {'w': Array([0.], dtype=float32)}, 'head': {'w': Array([-0.5], dtype=float32)}}
    """
    return masked(base.set_to_zero(), mask)


def stop_gradients(
    params: base.PyTree,
    mask: base.PyTree | str | Sequence[str] | Callable[[base.Params], base.PyTree]
) -> base.PyTree:
    """Freeze parameters inside a loss, so that no gradients are computed for them.

    Call this function in the loss: `loss(params) = f(stop_gradients(params, "encoder/**"))`. The
    gradients of frozen parameters are zeros, and no backward pass is run to compute them.
    `global_norm` of the gradients is therefore the norm over the trained parameters, and logging
    this norm needs no additional backward pass. To keep no optimizer state for frozen parameters,
    and to exempt them from weight decay, use `selective_transform` with the same mask.

    Args:
        params: tree of parameters.
        mask: the parameters to freeze, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"encoder/**"`.

    Returns:
        The parameters, with `lax.stop_gradient` applied to those that are frozen.

    Raises:
        ValueError: a glob matches no parameter.

    Differences:
        Optax does not have this function.

    >>> from toile import optim
    >>> params = {"encoder": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> def loss(params):
    ...     params = optim.stop_gradients(params, "encoder/**")
    ...     return jnp.sum(params["encoder"]["w"] * params["head"]["w"])
    >>> toile.grad(loss)(params)
    {'encoder': {'w': Array([0.], dtype=float32)}, 'head': {'w': Array([1.], dtype=float32)}}
    """
    frozen = resolved(mask, params, "stop_gradients")
    return trees.map(
        lambda m, part: trees.map(lax.stop_gradient, part) if m else part, frozen, params
    )


def selective_transform(
    optimizer: base.GradientTransformation, *, freeze_mask: base.PyTree | str | Sequence[str]
) -> base.GradientTransformation:
    """Apply an optimizer to the leaves where a mask is False, and freeze all other parameters.

    Args:
        optimizer: transformation for the leaves that are trained. It keeps no state for the other
            leaves.
        freeze_mask: the parameters that stay unchanged, given as a tree of bools with the structure
            of the parameters or a prefix of that structure, or as one or more globs that match
            parameter paths, such as `"encoder/**"`.

    Returns:
        A gradient transformation.

    Differences:
        Optax does not accept globs.

    >>> from toile import optim
    >>> tx = optim.selective_transform(optim.sgd(0.5), freeze_mask="encoder/**")
    >>> params = {"encoder": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, state = tx.update(params, tx.init(params))
    >>> updates
    {'encoder': {'w': Array([0.], dtype=float32)}, 'head': {'w': Array([-0.5], dtype=float32)}}
    """

    def labels(params):
        if paths.globs_of(freeze_mask) is not None and isinstance(params, ParamsPlaceholder):
            return params
        mask = freeze_mask
        if paths.globs_of(mask) is not None:
            mask = resolved(mask, params, "selective_transform")
        return trees.map(lambda m: "freeze" if m else "train", mask)

    return partition({"train": optimizer, "freeze": base.set_to_zero()}, param_labels=labels)
