"""Lifted transforms of modules: conversion of variables, mapping, loops, branches and compilation.

The target is a module class (the result is then a class), a method in a class body, or a function
whose first argument is a module. `toile.core.lift` transforms functions of scopes, and the
functions here pass their arguments on to it by name (`locals()`).
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
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.devices import Device
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
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    spmd_axis_name: str | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Target:
    """Vectorize a module over an additional axis of its arguments and variables.

    The resulting class or function computes in one pass what a loop over the axis would compute.
    Variable collections that are not listed in `variable_axes`, and random streams that are not
    listed in `split_rngs`, are not visible inside the transform.

    Args:
        target: a module class, in which case its `methods` are transformed, or a function whose
            first argument is a module.
        variable_axes: dict that maps each collection to the axis over which its variables are
            mapped, or to None if the same variables are used for all indices. The keys are
            collection names or other filters.
        split_rngs: dict that maps each random stream to True if every index gets a different key,
            or to False if all indices get the same key.
        in_axes: axis to map over in each argument: one entry for all arguments, or a tuple with an
            entry or a tree of entries for each argument. An entry is an int, or None for arguments
            that are not mapped.
        out_axes: position of the mapped axis in each result, in the same form as `in_axes`.
        axis_size: size of the mapped axis; required only if no argument and no variable has this
            axis.
        axis_name: name by which collectives such as `toile.lax.pmean` refer to the mapped axis.
        spmd_axis_name: name of the mesh axis along which the mapped axis is split.
        metadata_params: information about the new axis, such as `{nn.PARTITION_NAME: "layers"}`,
            that is passed to the boxes around variables (see `nn.Partitioned`).
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> Dense3 = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
    >>> x = jnp.ones((3, 5, 2))
    >>> variables = Dense3(4).init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3, 4), 'kernel': (3, 2, 4)}}
    >>> Dense3(4).apply(variables, x).shape
    (3, 5, 4)
    """
    return lift_transform(lift.vmap, **locals())


def jit(
    target: Target,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    donate_argnums: int | Iterable[int] = (),
    device: Device | None = None,
    backend: str | None = None,
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Target:
    """Compile a module, tracing it again only for new field values, shapes or dtypes.

    Usually, the whole training step is compiled with `toile.jit` instead. Use `nn.jit` for a part
    of a model that occurs many times, since equal modules share one trace.

    Args:
        target: a module class, in which case its `methods` are transformed, or a function whose
            first argument is a module.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        static_argnums: positions of arguments that are constants in the trace; the module has
            position 0.
        static_argnames: names of keyword arguments that are constants in the trace.
        donate_argnums: positions of arguments whose memory may be reused; the module has position
            0.
        device: device to run on; if None, the default device is used.
        backend: name of the platform to run on; if None, the default platform is used.
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`. Call
        `why()` on this function, or on the transformed method of the class, to list the cause of
        each trace.

    >>> import toile.linen as nn
    >>> JitDense = nn.jit(nn.Dense)
    >>> x = jnp.ones((1, 2))
    >>> for features in (3, 3, 4):
    ...     v = JitDense(features).init(key(0), x)
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
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Target:
    """Recompute a module in the backward pass instead of storing its intermediate results.

    Args:
        target: a module class, in which case its `methods` are transformed, or a function whose
            first argument is a module.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        concrete: must be False; use `static_argnums` instead.
        prevent_cse: whether to prevent the compiler from merging the recomputation with the
            original computation. Inside `scan`, this protection is not needed, so `prevent_cse` can
            be False.
        static_argnums: positions of arguments that are not traced; the module has position 0.
        policy: function that selects the intermediate results to keep, such as one of
            `toile.checkpoint_policies`; if None, no results are kept.
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.remat(nn.Dense)(2)(x)
    >>> toile.tree.map(jnp.shape, Model().init(key(0), jnp.ones((1, 3))))
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
    """Apply a module repeatedly in nested loops, recomputing the steps in the backward pass.

    There are `prod(lengths)` calls in total. With `d` nested loops of equal length and `n` calls,
    about `d * n ** (1 / d)` intermediate results are stored for the backward pass instead of `n`.
    The module must take one argument, the carry, and return the new carry.

    Args:
        target: a module class, or a function whose first argument is a module.
        lengths: number of steps of each loop, from the outermost to the innermost.
        policy: function that selects the intermediate results to keep, such as one of
            `toile.checkpoint_policies`; if None, no results are kept.
        variable_broadcast: filter that selects the collections that are the same in every step.
        variable_carry: filter that selects the collections that each step may change and pass on to
            the next step.
        variable_axes: dict that maps each collection to the axis along which each step reads and
            writes its slice of the variables. By default, this is axis 0 for all collections.
        split_rngs: dict that maps each random stream to True if every step gets a different key, or
            to False if all steps get the same key. By default, all streams are split.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> Deep = nn.remat_scan(nn.Dense, lengths=(3, 4))
    >>> variables = Deep(2).init(key(0), jnp.ones((1, 2)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3, 4, 2), 'kernel': (3, 4, 2, 2)}}
    >>> Deep(2).apply(variables, jnp.ones((1, 2))).shape
    (1, 2)
    """
    return lift_transform(lift.remat_scan, **locals())


def scan(
    target: Target,
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = FrozenDict(),
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict(),
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    data_transform: Callable[..., Any] | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Sequence[str] | Mapping[str, Any] | None = None,
    _split_transpose: bool = False,
    check_constancy_invariants: bool = True,
) -> Target:
    """Call a module in a loop; each step passes a carry to the next.

    The method of the module must have the form `(carry, *xs) -> (carry, ys)`. The loop slices `xs`
    and the variables along an axis, and stacks the results `ys`. If a deep stack of identical
    layers is written as such a loop, the layer is traced and compiled only once. A variable
    collection is visible inside the transform only if `variable_axes`, `variable_broadcast` or
    `variable_carry` selects it. The random stream "params" is visible only if it is listed in
    `split_rngs`.

    Args:
        target: a module class, in which case its `methods` are transformed, or a function whose
            first argument is a module.
        variable_axes: dict that maps each collection to the axis along which each step reads and
            writes its slice of the variables. The keys are collection names or other filters.
        variable_broadcast: filter that selects the collections that are the same in every step.
        variable_carry: filter that selects the collections that each step may change and pass on to
            the next step.
        split_rngs: dict that maps each random stream to True if every step gets a different key, or
            to False if all steps get the same key. Streams that are not listed, other than
            "params", are split, so that each step has its own dropout mask.
        in_axes: axis to loop over in each of `xs`. One int applies to all of them. A tuple has one
            entry for each of `xs`: an int, or a tree of ints for an argument that is a tree. The
            entry `nn.broadcast` passes the same value to every step.
        out_axes: axis along which each of `ys` is stacked, in the same form as `in_axes`.
        length: number of steps; required only if no argument is sliced.
        reverse: whether the loop runs from the last slice to the first.
        unroll: number of steps that one iteration of the compiled loop computes.
        data_transform: function `f(variables, rngs)` that returns the variables and random streams
            that each step sees; if None, they are not changed.
        metadata_params: information about the new axis, such as `{nn.PARTITION_NAME: "layers"}`,
            that is passed to the boxes around variables (see `nn.Partitioned`).
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.
        check_constancy_invariants: whether to raise an error if variables selected by
            `variable_broadcast` depend on the step.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`. A call
        returns the pair `(last carry, stacked ys)`.

    Differences:
        In Flax, streams that are not listed in `split_rngs` are not visible.

    >>> import toile.linen as nn
    >>> class Block(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x, _):
    ...         return nn.tanh(nn.Dense(4)(x)), None
    >>> Blocks = nn.scan(
    ...     Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
    >>> variables = Blocks().init(key(0), jnp.ones((2, 4)), None)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'Dense_0': {'bias': (6, 4), 'kernel': (6, 4, 4)}}}
    >>> carry, _ = Blocks().apply(variables, jnp.ones((2, 4)), None)
    >>> carry.shape
    (2, 4)
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
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Target:
    """Convert a module's variables between the stored form and the form that the module uses.

    `trans_in_fn` converts the stored form to the form that the module uses, and `trans_out_fn` does
    the reverse.

    Args:
        target: a module class, in which case its `methods` are transformed, or a function whose
            first argument is a module.
        mapped_collections: filter that selects the collections to convert.
        trans_in_fn: function `f(collections)` that takes the dict of stored collections and returns
            the dict of collections that the module uses.
        trans_out_fn: function `f(collections)` that takes the dict of collections that the module
            created or changed, and returns the dict of collections to store.
        init: whether to run the module once beforehand to create its variables. The module is run
            only if some of the converted collections are mutable.
        mutable: whether the module may change the converted collections.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> transposed = lambda xs: toile.tree.map(jnp.transpose, xs)
    >>> Tied = nn.map_variables(nn.Dense, "params", transposed, transposed, init=True)
    >>> variables = Tied(4).init(key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (4, 3)}}
    >>> Tied(4).apply(variables, jnp.ones((1, 3))).shape
    (1, 4)
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
    """Repeat `c = body_fn(mdl, c)` while `cond_fn(mdl, c)` is true.

    The loop cannot create variables. If the module needs variables, call it once before the loop
    when the model is being initialized.

    Args:
        cond_fn: function `f(mdl, carry)` that returns a boolean scalar.
        body_fn: function `f(mdl, carry)` that returns the next carry, with the same shapes and
            dtypes as `carry`.
        mdl: the module.
        init: initial carry, a tree of arrays.
        carry_variables: filter that selects the collections that each step may change and pass on
            to the next step.
        broadcast_variables: filter that selects the collections that the loop can only read; True
            selects all other collections.
        split_rngs: dict that maps each random stream to True if every step gets a different key, or
            to False if all steps get the same key. Streams that are not listed are not visible
            inside the loop.

    Returns:
        The last carry.

    >>> import toile.linen as nn
    >>> class Doubling(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.while_loop(lambda m, x: x < 100, lambda m, x: 2 * x, self, x)
    >>> Doubling().apply({}, jnp.int32(3))
    Array(192, dtype=int32)
    """
    return lift_direct_transform(
        lift.while_loop, (cond_fn, body_fn), mdl, init, carry_variables, broadcast_variables,
        split_rngs,
    )  # fmt: skip


def _cond(true_fun: Any, false_fun: Any, scope: Any, pred: Any, *operands: Any, **kw: Any) -> Any:
    return lift.cond(pred, true_fun, false_fun, scope, *operands, **kw)


def cond(
    pred: ArrayLike,
    true_fun: Callable[..., C],
    false_fun: Callable[..., C],
    mdl: Module,
    *operands: PyTree,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """Call one of two functions of a module, selected by a boolean.

    Both functions must create and change the same variables. If they use different submodules, call
    both of them directly under `if self.is_initializing():`.

    Args:
        pred: boolean scalar, which may be a traced value.
        true_fun: function `f(mdl, *operands)` that is called if `pred` is true.
        false_fun: function `f(mdl, *operands)` that is called otherwise. Its result must have the
            same shapes and dtypes as the result of `true_fun`.
        mdl: the module.
        *operands: arguments of both functions, trees of arrays.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The result of the function that is called.

    >>> import toile.linen as nn
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x, big):
    ...         return nn.cond(big, lambda m, x: 10 * x, lambda m, x: x + 1, self, x)
    >>> Model().apply({}, jnp.float32(2), True), Model().apply({}, jnp.float32(2), False)
    (Array(20., dtype=float32), Array(3., dtype=float32))
    """
    return lift_direct_transform(
        _cond, (true_fun, false_fun), mdl, pred, *operands, variables=variables, rngs=rngs
    )


def _switch(*args: Any, count: int, **kw: Any) -> Any:
    scope, index, *operands = args[count:]
    return lift.switch(index, args[:count], scope, *operands, **kw)


def switch(
    index: ArrayLike,
    branches: Sequence[Callable[..., C]],
    mdl: Module,
    *operands: PyTree,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """Call one of several functions of a module, selected by an integer.

    All functions must create and change the same variables. If they use different submodules, call
    all of them directly under `if self.is_initializing():`, as in the example.

    Args:
        index: integer scalar. An index that is out of range selects the first or last function.
        branches: functions `f(mdl, *operands)`. Their results must have the same shapes and dtypes.
        mdl: the module.
        *operands: arguments of the functions, trees of arrays.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The result of the function that is called.

    >>> import toile.linen as nn
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
    >>> variables = Heads().init(key(0), jnp.ones((1, 2)), 0)
    >>> toile.tree.map(jnp.shape, variables)["params"]["heads_1"]
    {'bias': (7,), 'kernel': (2, 7)}
    """
    return lift_direct_transform(
        functools.partial(_switch, count=len(branches)), tuple(branches), mdl, index, *operands,
        variables=variables, rngs=rngs,
    )  # fmt: skip


def named_call(class_fn: Callable[..., Any], force: bool = True) -> Callable[..., Any]:
    """Label a method's operations with the module's name in traced programs and profiles.

    All methods of modules are labeled automatically, unless `disable_named_call` was called.

    Args:
        class_fn: method of a module.
        force: whether to label the operations even if labels are disabled.

    Returns:
        A method with the arguments of `class_fn`.

    >>> import toile.linen as nn
    >>> class Model(nn.Module):
    ...     @nn.named_call
    ...     def __call__(self, x):
    ...         return 2 * x
    >>> Model().apply({}, jnp.float32(3))
    Array(6., dtype=float32)
    """

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
    """Add an axis name to the boxes around a module's variables.

    Use this function if your code adds an axis to the variables, for example by applying
    `toile.vmap` to `init`. Seen from outside the module, boxes such as `nn.Partitioned` then
    include the name of the added axis; seen from inside, they do not. `nn.vmap` and `nn.scan`
    already name the axes that they add.

    Args:
        target: a module class, or a function whose first argument is a module.
        variable_axes: dict that maps each collection to the position of the added axis.
        metadata_params: information about the axis, such as `{nn.PARTITION_NAME: "layers"}`, that
            is passed to the boxes.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> Stacked = nn.add_metadata_axis(nn.Dense, {"params": 0}, {nn.PARTITION_NAME: "layers"})
    >>> init = nn.with_partitioning(nn.initializers.ones, (None, "model"))
    >>> layer = Stacked(3, kernel_init=init, use_bias=False)
    >>> keys = toile.random.split(key(0), 4)
    >>> variables = toile.vmap(lambda key: layer.init(key, jnp.ones((1, 2))))(keys)
    >>> kernel = variables["params"]["kernel"]
    >>> kernel.names, kernel.value.shape
    (('layers', None, 'model'), (4, 2, 3))
    """
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
    """Make a module draw the same random numbers as under `nn.jit`, without compiling the module.

    Args:
        target: a module class, or a function whose first argument is a module.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> folded = nn.fold_rngs(nn.Dense)(2).init(key(0), jnp.ones((1, 3)))
    >>> jitted = nn.jit(nn.Dense)(2).init(key(0), jnp.ones((1, 3)))
    >>> (folded["params"]["kernel"] == jitted["params"]["kernel"]).all()
    Array(True, dtype=bool)
    """
    return lift_transform(lift.fold_rngs, cached=True, **locals())
