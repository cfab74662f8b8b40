"""The lifted transformations of modules that map, loop, branch, compile and view variables.

Targets are a class of modules (the result is a class), a method in a class body, or a function
whose first argument is a module. `toile.core.lift` transforms functions of scopes; the functions
here pass their arguments on to it by name (`locals()`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from toile.api.scopes import named_scope
from toile.core import lift, meta
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.frozen_dict import FrozenDict
from toile.core.lift import InOutAxis, InOutScanAxis
from toile.engine.trees import tree_map
from toile.linen.context import call_label, function_name, named_calls
from toile.linen.module import Module
from toile.linen.transforms.lifting import Target, lift_direct_transform, lift_transform

__all__ = [
    "add_metadata_axis", "checkpoint", "cond", "fold_rngs", "jit", "map_variables", "named_call",
    "remat", "remat_scan", "scan", "switch", "vmap", "while_loop",
]  # fmt: skip

M = TypeVar("M", bound=Module)
C = TypeVar("C")


def vmap(
    target: Target,
    variable_axes: Mapping[CollectionFilter, InOutAxis] = FrozenDict(),
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict(),
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    spmd_axis_name: str | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Any = None,
) -> Target:
    """A module over an added axis: of its arguments, and of the collections in `variable_axes`.

    None in `variable_axes` shares a collection. Streams in `split_rngs` are seen inside, one key
    for all (False) or one for each (True); collections and streams not listed are not seen.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> Dense3 = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
    >>> variables = Dense3(4).init(toile.random.key(0), jnp.ones((3, 5, 2)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3, 4), 'kernel': (3, 2, 4)}}
    """
    return lift_transform(lift.vmap, **locals())


def jit(
    target: Target,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    donate_argnums: int | Iterable[int] = (),
    device: Any = None,
    backend: str | None = None,
    methods: Any = None,
) -> Target:
    """A module whose method is traced once for each kind of fields, variables and arguments.

    `argnums` count the module as 0. The method's `why()` tells the cause of each trace, and which
    field changed.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> JitDense = nn.jit(nn.Dense)
    >>> x = jnp.ones((1, 2))
    >>> for features in (3, 3, 4):
    ...     v = JitDense(features).init(toile.random.key(0), x)
    >>> JitDense.__call__.why()
    ['first call', 'JitDense.features: 3 -> 4']
    """
    return lift_transform(lift.jit, cached=True, **locals())


def checkpoint(
    target: Target,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: int | tuple[int, ...] = (),
    policy: Callable[..., bool] | None = None,
    methods: Any = None,
) -> Target:
    """A module that is recomputed for its gradient instead of keeping what it computed.

    `static_argnums` count the module as 0.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.remat(nn.Dense)(2)(x)
    >>> toile.tree.map(jnp.shape, Model().init(toile.random.key(0), jnp.ones((1, 3))))
    {'params': {'CheckpointDense_0': {'bias': (2,), 'kernel': (3, 2)}}}
    """
    static_argnums = tree_map(lambda n: n - 1, static_argnums)
    return lift_transform(lift.checkpoint, **locals())


remat = checkpoint


def remat_scan(
    target: Target,
    lengths: Sequence[int] | None = (),
    policy: Callable[..., bool] | None = None,
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = FrozenDict({True: 0}),
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict({True: True}),
) -> Target:
    """A module applied prod(lengths) times, in nested loops whose steps are recomputed.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> Deep = nn.remat_scan(nn.Dense, lengths=(3, 4))
    >>> variables = Deep(2).init(toile.random.key(0), jnp.ones((1, 2)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3, 4, 2), 'kernel': (3, 4, 2, 2)}}
    """
    return lift_transform(lift.remat_scan, **locals())


def scan(
    target: Target,
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = FrozenDict(),
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict(),
    in_axes: Any = 0,
    out_axes: Any = 0,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    data_transform: Callable[..., Any] | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Any = None,
    _split_transpose: bool = False,
    check_constancy_invariants: bool = True,
) -> Target:
    """A loop whose body is a module: `(carry, *xs) -> (carry, ys)` over axes of xs and variables.

    Each collection is scanned along an axis (`variable_axes`: a layer of its own in each step),
    the same in every step (`variable_broadcast`) or carried (`variable_carry`). Arguments whose
    entry in `in_axes` is `nn.broadcast` are the same in every step.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Block(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x, _):
    ...         return nn.tanh(nn.Dense(4)(x)), None
    >>> Blocks = nn.scan(
    ...     Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
    >>> variables = Blocks().init(toile.random.key(0), jnp.ones((2, 4)), None)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'Dense_0': {'bias': (6, 4), 'kernel': (6, 4, 4)}}}
    """
    return lift_transform(lift.scan, **locals())


def map_variables(
    target: Target,
    mapped_collections: CollectionFilter = True,
    trans_in_fn: Callable[..., Any] = lift.id_fn,
    trans_out_fn: Callable[..., Any] = lift.id_fn,
    init: bool = False,
    mutable: bool = False,
    rngs: PRNGSequenceFilter = True,
    variables: CollectionFilter = True,
    methods: Any = None,
) -> Target:
    """A module that sees `trans_in_fn` of some collections, and stores through `trans_out_fn`.

    With `init` it runs once more when variables can be created; with `mutable` it may change the
    mapped collections.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> transposed = lambda xs: toile.tree.map(jnp.transpose, xs)
    >>> Tied = nn.map_variables(nn.Dense, "params", transposed, transposed, init=True)
    >>> variables = Tied(4).init(toile.random.key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (4, 3)}}
    """
    return lift_transform(
        lift.map_variables, target, mapped_collections, trans_in_fn, trans_out_fn, init, mutable,
        rngs, variables, methods=methods,
    )  # fmt: skip


def while_loop(
    cond_fn: Callable[[M, C], bool],
    body_fn: Callable[[M, C], C],
    mdl: M,
    init: C,
    carry_variables: CollectionFilter = False,
    broadcast_variables: CollectionFilter = True,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict(),
) -> C:
    """Repeat `c = body_fn(mdl, c)` while `cond_fn(mdl, c)`; variables must be there already.

    Only collections in `carry_variables` may change.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Doubling(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.while_loop(lambda m, x: x < 100, lambda m, x: 2 * x, self, x)
    >>> Doubling().apply({}, 3)
    Array(192, dtype=int32, weak_type=True)
    """
    return lift_direct_transform(
        lift.while_loop, (cond_fn, body_fn), mdl, init, carry_variables, broadcast_variables,
        split_rngs,
    )  # fmt: skip


def _cond(true_fun: Any, false_fun: Any, scope: Any, pred: Any, *operands: Any, **kw: Any) -> Any:
    return lift.cond(pred, true_fun, false_fun, scope, *operands, **kw)


def cond(
    pred: Any,
    true_fun: Callable[..., C],
    false_fun: Callable[..., C],
    mdl: Module,
    *operands: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """`true_fun(mdl, *operands)` if `pred`, else `false_fun(mdl, *operands)`.

    Both have to create and change the same variables: under `init`, run both."""
    return lift_direct_transform(
        _cond, (true_fun, false_fun), mdl, pred, *operands, variables=variables, rngs=rngs
    )


def _switch(*args: Any, count: int, **kw: Any) -> Any:
    scope, index, *operands = args[count:]
    return lift.switch(index, args[:count], scope, *operands, **kw)


def switch(
    index: Any,
    branches: Sequence[Callable[..., C]],
    mdl: Module,
    *operands: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """`branches[index](mdl, *operands)`; all have to create and change the same variables.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Heads(nn.Module):
    ...     def setup(self):
    ...         self.heads = [nn.Dense(n) for n in (3, 7)]
    ...     @nn.compact
    ...     def __call__(self, x, i):
    ...         branches = [lambda m, x, n=n: m.heads[n](x).sum() for n in range(2)]
    ...         if self.is_initializing():
    ...             for branch in branches:
    ...                 branch(self, x)
    ...         return nn.switch(i, branches, self, x)
    >>> variables = Heads().init(toile.random.key(0), jnp.ones((1, 2)), 0)
    >>> toile.tree.map(jnp.shape, variables)["params"]["heads_1"]
    {'bias': (7,), 'kernel': (2, 7)}
    """
    return lift_direct_transform(
        functools.partial(_switch, count=len(branches)), tuple(branches), mdl, index, *operands,
        variables=variables, rngs=rngs,
    )  # fmt: skip


def named_call(class_fn: Callable[..., Any], force: bool = True) -> Callable[..., Any]:
    """A method whose operations carry the name of the module, in programs and profiles."""

    @functools.wraps(class_fn)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (not force and not named_calls.enabled) or self._state.in_setup:
            return class_fn(self, *args, **kwargs)
        with named_scope(call_label(self, function_name(class_fn))):
            return class_fn(self, *args, **kwargs)

    return wrapped


def add_metadata_axis(
    target: Target,
    variable_axes: Mapping[CollectionFilter, InOutAxis] = FrozenDict(),
    metadata_params: Mapping[Any, Any] = {},
) -> Target:
    """A module whose boxes (`nn.Partitioned`) lose an axis inside and have it again outside.

    For code that adds the axis itself, such as a raw `vmap` around initializers."""
    for col, axis in variable_axes.items():
        target = map_variables(
            target,
            col,
            trans_in_fn=functools.partial(_change, meta.remove_axis, axis, metadata_params),
            trans_out_fn=functools.partial(_change, meta.add_axis, axis, metadata_params),
            mutable=True,
        )
    return target


def _change(change: Callable[..., Any], axis: Any, params: Any, variables: Any) -> Any:
    return change(variables, axis, params)


def fold_rngs(
    target: Target, variables: CollectionFilter = True, rngs: PRNGSequenceFilter = True
) -> Target:
    """A module that draws the random numbers it would draw under `nn.jit`, without it."""
    return lift_transform(lift.fold_rngs, cached=True, **locals())
