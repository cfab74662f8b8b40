"""The state of a training run: its step, its optimizer and the model's variables.

`TrainState` is like the class of the same name in Flax. With `trainable=`, only some parameters are
optimized, and `value_and_grad` differentiates only with respect to these parameters. The gradients
of all other parameters are None and are not computed. `ModelState` also contains all other
collections and the random streams, so the training loop need not change when BatchNorm or Dropout
is added to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toile import api, lax, optim, random, struct, tree
from toile.engine.annotations import Array, PyTree
from toile.engine.locks import loading
from toile.engine.nan_notices import notices
from toile.engine.source import here
from toile.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from toile.optim import paths
from toile.training import replicas

if TYPE_CHECKING:
    from toile.linen.module import Module
    from toile.training.dynamic_scale import DynamicScale
    from toile.training.mixed_precision import NoScale, StaticScale

__all__ = ["ModelState", "TrainState", "value_and_grad"]


class TrainState(struct.PyTreeNode):
    """State of a training run: the step, the parameters and the optimizer's state.

    Create a state with `TrainState.create`. Subclasses can add fields, such as other collections;
    `apply_gradients` accepts new values for these fields.

    Args:
        step: number of updates so far.
        apply_fn: the model's `apply` method.
        params: the parameters.
        tx: the optimizer, such as `toile.optim.adam(1e-3)`.
        opt_state: state of the optimizer.
        trainable: which parameters are optimized; if None, all parameters are optimized. See
            `create`.

    >>> import toile.linen as nn
    >>> from toile import optim, training
    >>> from toile.training.train_state import TrainState
    >>> x, y = jnp.ones((1, 2)), jnp.ones((1, 2))
    >>> model = nn.Dense(2)
    >>> params = model.init(key(0), x)["params"]
    >>> state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.sgd(0.1))
    >>> def loss(params):
    ...     return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)
    >>> before, grads = training.value_and_grad(loss, state)
    >>> state = state.apply_gradients(grads=grads)
    >>> bool(loss(state.params) < before), int(state.step)
    (True, 1)
    """

    step: int | Array
    apply_fn: Callable[..., Any] = struct.field(pytree_node=False)
    params: PyTree = struct.field(pytree_node=True)
    tx: optim.GradientTransformation = struct.field(pytree_node=False)
    opt_state: PyTree = struct.field(pytree_node=True)
    # The argument `trainable` of `create`, in a form that can be compared. Subclasses may add
    # fields without defaults, hence keyword only.
    trainable: PyTree = struct.field(pytree_node=False, default=None, kw_only=True, repr=False)

    def _repr_html_(self) -> str:
        with loading:
            from toile.training.state_html import state_html

        return state_html(self)

    def _trained(self) -> Any:
        """The parameters that the optimizer updates, with None in place of the others."""
        in_use = _optimized(self.params)
        if self.trainable is None:
            return in_use
        return _pruned(in_use, _mask(self.trainable, in_use))

    def apply_gradients(self, *, grads: PyTree, **kwargs: Any) -> Any:
        """Return the state after one optimizer update.

        In a step that `training.replicated` runs on several devices, gradients and new field values
        are averaged over the devices.

        Args:
            grads: gradients, a tree with the structure of `params`. The gradients of parameters
                that are not trainable are None.
            **kwargs: new values for other fields.
        """
        notices.begin()
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
        cls, *, apply_fn: Callable[..., Any], params: PyTree, tx: optim.GradientTransformation,
        trainable: PyTree = None, **kwargs: Any,
    ) -> Any:
        """Create the state at step 0, and initialize the optimizer.

        Args:
            apply_fn: the model's `apply` method.
            params: the parameters.
            tx: the optimizer.
            trainable: which parameters are optimized: one or more path patterns, such as
                `"head/**"`; a tree of bools with the structure of the parameters or a prefix of
                that structure; or a function that maps the parameters to such a tree. The optimizer
                keeps no state for the other parameters. If `trainable` is None, all parameters are
                optimized.
            **kwargs: values for a subclass's fields.

        Raises:
            ValueError: no parameter is trainable.
        """
        optim.base.check_transformation(tx)
        if not kwargs.keys() <= cls.__dataclass_fields__.keys():
            name = next(iter(kwargs.keys() - cls.__dataclass_fields__.keys()))
            fix = f" (declare it: class MyState(train_state.TrainState): {name}: Any)"
            raise TypeError(struct.unknown_fields(cls, kwargs, fix) + here())
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
    fun: Callable[..., Any], state: TrainState, *args: PyTree, has_aux: bool = False,
    axis_name: str | None = None, scale: DynamicScale | StaticScale | NoScale | None = None,
    **kwargs: PyTree,
) -> Any:
    """Compute a loss and its gradients with respect to the trainable parameters of a state.

    Parameters that are not trainable are treated as constants. Their gradients are None, so norms,
    clipping and optimizers ignore them.

    Args:
        fun: a function `f(params, *args, **kwargs)` that returns a scalar or, if `has_aux` is True,
            a pair (scalar, aux).
        state: a `TrainState`, or any object with an attribute `params`.
        *args, **kwargs: the remaining arguments of `fun`.
        has_aux: whether `fun` returns a pair (scalar, aux); `aux` is not differentiated.
        axis_name: mapped axis over which gradients are averaged; if None, gradients are not
            averaged.
        scale: a loss scale, such as a `DynamicScale`; if None, the loss is not scaled.

    Returns:
        A pair (value, gradients). If `has_aux` is True, the value is itself a pair (value, aux). If
        `scale` is given, the result is (new scale, finite, value, gradients), where `finite` is
        True if all gradients are finite.

    >>> from toile import optim, training
    >>> from toile.training.train_state import TrainState
    >>> params = {"w": jnp.float32(3), "b": jnp.float32(1)}
    >>> state = TrainState.create(
    ...     apply_fn=None, params=params, tx=optim.sgd(0.1), trainable="w")
    >>> training.value_and_grad(lambda p: p["w"] ** 2 + p["b"], state)
    (Array(10., dtype=float32), {'b': None, 'w': Array(6., dtype=float32)})
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
    """A `TrainState` that also contains the model's other collections and its random streams.

    The training loop is the same whether or not the model has `BatchNorm` or `Dropout`. The keys
    for each step are derived by folding the step number into the streams' keys. The training loop
    therefore need not split or store keys, and a resumed run uses the same random numbers as a run
    that was not interrupted. Create a state with `ModelState.init` or `ModelState.create`.

    Args:
        step: number of updates so far.
        apply_fn: the model's `apply` method.
        params: the parameters.
        tx: the optimizer, such as `toile.optim.adam(1e-3)`.
        opt_state: state of the optimizer.
        collections: a dict of the collections other than the parameters.
        rngs: a dict from the names of random streams to keys.
        trainable: which parameters are optimized; if None, all parameters are optimized. See
            `TrainState.create`.

    >>> import toile.linen as nn
    >>> from toile import optim, training
    >>> from toile.training.train_state import ModelState
    >>> noise = nn.Dropout(0.5, deterministic=False)
    >>> model = nn.Sequential([nn.Dense(4), nn.BatchNorm(False), noise])
    >>> x = jnp.ones((2, 3))
    >>> state = ModelState.init(model, optim.sgd(0.1), key(0), x)
    >>> sorted(state.collections), sorted(state.rngs)
    (['batch_stats'], ['params'])
    >>> def loss(params):
    ...     y, changed = state.forward(params, x)
    ...     return jnp.mean(y**2), changed
    >>> (value, changed), grads = training.value_and_grad(loss, state, has_aux=True)
    >>> state = state.apply_gradients(grads=grads, collections=changed)
    >>> int(state.step)
    1
    """

    collections: dict[str, PyTree]
    rngs: dict[str, Array]

    @classmethod
    def create(
        cls, *, apply_fn: Callable[..., Any], tx: optim.GradientTransformation,
        variables: Mapping[str, PyTree] | None = None, params: PyTree = None,
        rngs: Array | Mapping[str, Array] | None = None,
        collections: Mapping[str, PyTree] | None = None, trainable: PyTree = None, **kwargs: Any,
    ) -> Any:
        """Create the state at step 0 from variables.

        Args:
            apply_fn: the model's `apply` method.
            tx: the optimizer.
            variables: all variables, as returned by `model.init`; None if `params` and
                `collections` are given instead.
            params: parameters to use instead of those in `variables`.
            rngs: a dict from the names of random streams to keys, or one key for all streams; if
                None, there are no keys.
            collections: collections other than the parameters, by name.
            trainable: which parameters are optimized; see `TrainState.create`.
            **kwargs: values for a subclass's fields.
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
        cls, model: Module, tx: optim.GradientTransformation, rngs: Array | Mapping[str, Array],
        *args: PyTree, trainable: PyTree = None, apply_fn: Callable[..., Any] | None = None,
        **kwargs: PyTree,
    ) -> Any:
        """Initialize a module's variables, and create the state at step 0.

        Args:
            model: the module.
            tx: the optimizer.
            rngs: one key, or a dict from the names of random streams to keys. The training run's
                random streams are also derived from these keys, but differ from those used for
                initialization.
            *args, **kwargs: arguments for `model.init`.
            trainable: which parameters are optimized; see `TrainState.create`.
            apply_fn: function to use instead of `model.apply`.
        """
        streams = _streams(rngs)
        later = {name: random.fold_in(key, 1) for name, key in streams.items()}
        return cls.create(
            apply_fn=apply_fn or model.apply, variables=model.init(rngs, *args, **kwargs), tx=tx,
            rngs=later, trainable=trainable,
        )

    def variables(self, params: PyTree = None) -> dict[str, PyTree]:
        """Return all variables of the model: parameters and collections.

        Args:
            params: parameters to use instead of those in the state.
        """
        chosen = self.params if params is None else params
        inside = dict(chosen) if _overwrites(chosen) else {"params": chosen}
        return {**inside, **self.collections}

    def forward(
        self, params: PyTree, *args: PyTree, mutable: Sequence[str] = (), **kwargs: PyTree
    ) -> Any:
        """Apply the model for training, with the random numbers for this step.

        Args:
            params: the parameters.
            *args, **kwargs: arguments for the model.
            mutable: names of collections, such as `"intermediates"`, that may change in addition to
                those in the state.

        Returns:
            A pair (output, changed collections).
        """
        names = [*self.collections, *(n for n in mutable if n not in self.collections)]
        return self.apply_fn(
            self.variables(params), *args, **{"rngs": self.step_rngs(), **kwargs}, mutable=names
        )

    def step_rngs(self) -> dict[str, Array]:
        """Return a key for each stream; the keys depend on the step and the device."""
        keys = {name: random.fold_in(key, self.step) for name, key in self.rngs.items()}
        return replicas.fold(keys)

    def predict(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """Apply the model for evaluation, without random streams and without changing collections.

        Args:
            *args, **kwargs: arguments for the model.
        """
        return self.apply_fn(self.variables(), *args, **kwargs)

    def apply_gradients(
        self, *, grads: PyTree, collections: Mapping[str, PyTree] | None = None, **kwargs: Any
    ) -> Any:
        """Return the state after one optimizer update.

        Args:
            grads: gradients, a tree with the structure of `params`. The gradients of parameters
                that are not trainable are None.
            collections: changed collections, as returned by `forward`. Collections that are not in
                the state are ignored.
            **kwargs: new values for other fields.
        """
        changed = {k: v for k, v in (collections or {}).items() if k in self.collections}
        return super().apply_gradients(
            grads=grads, collections={**self.collections, **changed}, **kwargs
        )


def _streams(rngs: Any) -> dict[str, Any]:
    """A dict from names to keys; a single key becomes the default stream."""
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
    """`trainable=` in a form that can be compared: a tree of bools is replaced by its paths."""
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
    """The tree with its leaves replaced by those of `part`, where `part` has any."""
    return tree.map(lambda p, q: p if q is None else q, params, part, is_leaf=_is_none)


def _join(params: Any, part: Any) -> Any:
    """Like `_merged`, but ignores variables without an optimizer."""
    if not _overwrites(params):
        return _merged(params, part)
    return {**part, "params": _merged(params["params"], part["params"])}
