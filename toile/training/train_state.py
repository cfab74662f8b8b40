"""The state of a training run: parameters, optimizer and step, and what else a model carries.

`TrainState` is Flax's. With `trainable=` only some parameters are optimized, and `value_and_grad`
differentiates those only: the others have no gradient (their place holds None), so nothing that is
done to gradients costs anything for them. `ModelState` also carries every other collection and the
random streams, so that a loop does not change when BatchNorm or Dropout joins the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toile import api, lax, optim, random, struct, tree
from toile.engine.source import here
from toile.engine.trace import Array
from toile.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from toile.optim import paths
from toile.training import replicas

__all__ = ["ModelState", "TrainState", "value_and_grad"]


class TrainState(struct.PyTreeNode):
    """Step, parameters and the state of one optimizer.

    Example::

        >>> import toile, toile.numpy as jnp
        >>> from toile import linen as nn, optim, training
        >>> x, y = jnp.ones((1, 2)), jnp.ones((1, 2))
        >>> model = nn.Dense(2)
        >>> params = model.init(toile.random.key(0), x)["params"]
        >>> state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.sgd(0.1))
        >>> def loss(params):
        ...     return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)
        >>> before, grads = training.value_and_grad(loss, state)
        >>> state = state.apply_gradients(grads=grads)
        >>> bool(loss(state.params) < before), int(state.step)
        (True, 1)

    Subclasses add fields, such as further collections; `apply_gradients` replaces them too.
    """

    step: int | Array
    apply_fn: Callable[..., Any] = struct.field(pytree_node=False)
    params: Any = struct.field(pytree_node=True)
    tx: Any = struct.field(pytree_node=False)
    opt_state: Any = struct.field(pytree_node=True)
    # What `create` was given, in a form that can be compared. Subclasses may add fields without
    # defaults, hence keyword only.
    trainable: Any = struct.field(pytree_node=False, default=None, kw_only=True, repr=False)

    def apply_gradients(self, *, grads: Any, **kwargs: Any) -> Any:
        """The state after one update by `grads`; `kwargs` replace further fields.

        `grads` has the structure of `params`, or None for parameters that are not trainable. In a
        step that `training.replicated` runs on several devices, both are averaged over them.
        """
        grads, kwargs = replicas.average(grads), replicas.changed(self, kwargs)
        overwrites = _overwrites(grads)
        old, grads_in_use = _optimized(self.params), _optimized(grads)
        part = old
        if self.trainable is not None:
            mask = _mask(self.trainable, old)
            part = _pruned(old, mask)
            if tree.structure(grads_in_use) == tree.structure(old):
                grads_in_use = _pruned(grads_in_use, mask)
        updates, opt_state = self.tx.update(grads_in_use, self.opt_state, part)
        new = optim.apply_updates(part, updates)
        if self.trainable is not None:
            new = _merged(old, new)
        if overwrites:  # these are not parameters: their gradient is their next value
            new = {"params": new, OVERWRITE_WITH_GRADIENT: grads[OVERWRITE_WITH_GRADIENT]}
        return self.replace(step=self.step + 1, params=new, opt_state=opt_state, **kwargs)

    @classmethod
    def create(
        cls, *, apply_fn: Callable[..., Any], params: Any, tx: Any, trainable: Any = None,
        **kwargs: Any,
    ) -> Any:
        """A state at step 0 with a fresh optimizer state.

        `trainable` says which parameters are optimized (all unless given): a glob of paths
        (`"head/**"`) or several, a tree of bools or the beginning of one, or a function from
        parameters to such a tree. The optimizer has no state for the others.
        """
        in_use = _optimized(params)
        if trainable is not None:
            trainable = _comparable(trainable, in_use)
            in_use = _pruned(in_use, _mask(trainable, in_use))
            if not tree.leaves(in_use):
                raise ValueError(
                    "TrainState.create: needed a trainable parameter, got none: trainable= "
                    f"selects nothing{here()}"
                )
        return cls(
            step=0, apply_fn=apply_fn, params=params, tx=tx, opt_state=tx.init(in_use),
            trainable=trainable, **kwargs,
        )


def value_and_grad(
    fun: Callable[..., Any], state: Any, *args: Any, has_aux: bool = False, axis_name: Any = None,
    scale: Any = None, **kwargs: Any,
) -> Any:
    """`fun(state.params, *args, **kwargs)` and its gradient with respect to what is trainable.

    Gives `(value, grads)`; with `has_aux`, `fun` returns a pair and so does `value`. Parameters
    that are not trainable are constants of the computation; in `grads` None stands for them, so
    norms, clipping and optimizers do not see them. `axis_name` averages over a mapped axis.
    `scale`, a loss scale such as DynamicScale, makes the result `(scale, finite, value, grads)`.
    """
    mask = getattr(state, "trainable", None)
    params = state.params

    def over(part: Any) -> Any:
        return fun(part if mask is None else _join(params, part), *args, **kwargs)

    part = params
    if mask is not None:
        kept = _pruned(_optimized(params), _mask(mask, _optimized(params)))
        part = {**params, "params": kept} if _overwrites(params) else kept
    if scale is not None:
        return scale.value_and_grad(over, has_aux=has_aux, axis_name=axis_name)(part)
    value, grads = api.value_and_grad(over, has_aux=has_aux)(part)
    return value, grads if axis_name is None else lax.pmean(grads, axis_name)


class ModelState(TrainState):
    """A TrainState with every collection of a model and its random streams.

    The loop is the same whether or not the model has BatchNorm or Dropout::

        >>> import toile, toile.numpy as jnp
        >>> from toile import linen as nn, optim, training
        >>> noise = nn.Dropout(0.5, deterministic=False)
        >>> model = nn.Sequential([nn.Dense(4), nn.BatchNorm(False), noise])
        >>> x = jnp.ones((2, 3))
        >>> state = ModelState.init(model, optim.sgd(0.1), toile.random.key(0), x)
        >>> sorted(state.collections), sorted(state.rngs)
        (['batch_stats'], ['params'])
        >>> def loss(params):
        ...     y, changed = state.forward(params, x)
        ...     return jnp.mean(y**2), changed
        >>> (value, changed), grads = training.value_and_grad(loss, state, has_aux=True)
        >>> state = state.apply_gradients(grads=grads, collections=changed)

    Each step draws from its streams by folding the step into their keys: nothing has to be split
    or stored, and a resumed run continues with the same numbers.
    """

    collections: dict[str, Any]
    rngs: dict[str, Any]

    @classmethod
    def create(
        cls, *, apply_fn: Callable[..., Any], tx: Any, variables: Any = None, params: Any = None,
        rngs: Any = None, collections: Any = None, trainable: Any = None, **kwargs: Any,
    ) -> Any:
        """A state at step 0 from `variables` (or `params` and `collections`) and streams.

        `rngs` is a dict of keys by stream, or one key that serves every stream.
        """
        given = dict(variables or {})
        taken = given.pop("params", {})
        if OVERWRITE_WITH_GRADIENT in given:
            taken = {"params": taken, OVERWRITE_WITH_GRADIENT: given.pop(OVERWRITE_WITH_GRADIENT)}
        return super().create(
            apply_fn=apply_fn, params=taken if params is None else params, tx=tx,
            trainable=trainable, collections={**given, **(collections or {})},
            rngs=_streams(rngs), **kwargs,
        )

    @classmethod
    def init(
        cls, model: Any, tx: Any, rngs: Any, *args: Any, trainable: Any = None,
        apply_fn: Callable[..., Any] | None = None, **kwargs: Any,
    ) -> Any:
        """A state for a module: `model.init(rngs, *args, **kwargs)` makes its variables.

        The streams of the run are made from `rngs` too, and differ from those of the start.
        """
        streams = _streams(rngs)
        later = {name: random.fold_in(key, 1) for name, key in streams.items()}
        return cls.create(
            apply_fn=apply_fn or model.apply, variables=model.init(rngs, *args, **kwargs), tx=tx,
            rngs=later, trainable=trainable,
        )

    def variables(self, params: Any = None) -> dict[str, Any]:
        """Everything the model applies: parameters (others, if given) and collections."""
        chosen = self.params if params is None else params
        inside = dict(chosen) if _overwrites(chosen) else {"params": chosen}
        return {**inside, **self.collections}

    def forward(self, params: Any, *args: Any, mutable: Sequence[str] = (), **kwargs: Any) -> Any:
        """`(output, changed collections)` of the model in training, with this step's randomness.

        The collections of the state may change; `mutable` names more, such as "intermediates".
        """
        names = [*self.collections, *(n for n in mutable if n not in self.collections)]
        return self.apply_fn(
            self.variables(params), *args, **{"rngs": self.step_rngs(), **kwargs}, mutable=names
        )

    def step_rngs(self) -> dict[str, Any]:
        """A key for each stream, which depends on the step, and on the device where there are many.
        """
        keys = {name: random.fold_in(key, self.step) for name, key in self.rngs.items()}
        return replicas.fold(keys)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the model; nothing changes and nothing is random."""
        return self.apply_fn(self.variables(), *args, **kwargs)

    def apply_gradients(self, *, grads: Any, collections: Any = None, **kwargs: Any) -> Any:
        """The state after one update; `collections` is what `forward` said has changed.

        Collections that the state does not carry are left out.
        """
        changed = {k: v for k, v in (collections or {}).items() if k in self.collections}
        return super().apply_gradients(
            grads=grads, collections={**self.collections, **changed}, **kwargs
        )


def _streams(rngs: Any) -> dict[str, Any]:
    """Streams by name; a single key is the stream that the others fall back to."""
    if rngs is None:
        return {}
    return dict(rngs) if isinstance(rngs, Mapping) else {"params": rngs}


def _overwrites(params: Any) -> bool:
    """Whether a tree holds variables that are overwritten with their gradients (fp8 scales)."""
    return isinstance(params, Mapping) and OVERWRITE_WITH_GRADIENT in params


def _optimized(params: Any) -> Any:
    """The part of a tree that the optimizer updates."""
    return params["params"] if _overwrites(params) else params


@dataclass(frozen=True)
class _Chosen:
    """The paths of the trainable leaves of a tree of bools: compared by value, hashed once."""

    paths: frozenset[str]


def _comparable(trainable: Any, params: Any) -> Any:
    """`trainable=` as structure: globs and functions as they are, a tree of bools by its paths."""
    globs = paths.globs_of(trainable)
    if globs is not None:
        return globs
    if callable(trainable) or isinstance(trainable, _Chosen):
        return trainable
    flags = tree.leaves(tree.broadcast(trainable, params, is_leaf=_is_none), is_leaf=_is_none)
    names, _ = paths.paths(params)
    return _Chosen(frozenset(name for name, flag in zip(names, flags, strict=True) if flag))


def _mask(trainable: Any, params: Any) -> Any:
    """Which leaves are trainable, as a tree of bools."""
    if isinstance(trainable, _Chosen):
        names, structure = paths.paths(params)
        return tree.unflatten(structure, [name in trainable.paths for name in names])
    if callable(trainable):
        return tree.broadcast(trainable(params), params, is_leaf=_is_none)
    return paths.mask_tree(trainable, params, "TrainState.create(trainable=...)")


def _is_none(x: Any) -> bool:
    return x is None


def _pruned(params: Any, mask: Any) -> Any:
    """The tree with None where the mask is false."""
    return tree.map(lambda p, keep: p if keep else None, params, mask, is_leaf=_is_none)


def _merged(params: Any, part: Any) -> Any:
    """The tree with the leaves of `part` where it has any."""
    return tree.map(lambda p, q: p if q is None else q, params, part, is_leaf=_is_none)


def _join(params: Any, part: Any) -> Any:
    """`_merged`, past the variables that have no optimizer."""
    if not _overwrites(params):
        return _merged(params, part)
    return {**part, "params": _merged(params["params"], part["params"])}
