"""vmap and scan of functions of scopes, and scans whose steps are recomputed for gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toile import api
from toile.core import axes_scan, meta
from toile.core.filters import CollectionFilter, DenyList, PRNGSequenceFilter
from toile.core.lift.axes import (
    InOutAxis,
    InOutScanAxis,
    in_and_out,
    one_size,
    sizes,
    split_streams,
    streams,
    unzipped,
    with_axes,
)
from toile.core.lift.packing import Packed, lifted
from toile.core.lift.staging import remat
from toile.engine.annotations import PyTree
from toile.engine.source import describe, here


def vmap(
    fn: Callable[..., Any],
    variable_axes: Mapping[CollectionFilter, InOutAxis],
    split_rngs: Mapping[PRNGSequenceFilter, bool],
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    spmd_axis_name: str | None = None,
    metadata_params: Mapping[Any, Any] = {},
) -> Callable[..., Any]:
    """Vectorize a function of a scope over an additional axis of its arguments and variables.

    Variable collections that are not listed in `variable_axes`, and random streams that are not
    listed in `split_rngs`, are not visible inside the transform.

    Args:
        fn: function `f(scope, *args)`.
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
        metadata_params: dict with information about the new axis; it is passed to boxes around
            variables, such as `nn.Partitioned`.

    Returns:
        A function with the arguments of `fn`.
    """
    (in_groups, var_in), (out_groups, var_out) = in_and_out(variable_axes)
    rng_groups, splits = unzipped(streams(split_rngs))
    rng_axes = tuple(0 if split else None for split in splits)

    def inner(packed: Packed, *args: Any) -> Any:
        variables = with_axes(meta.remove_axis, packed.variables, var_in, metadata_params)
        found = sizes((var_in, in_axes), (variables, args), None)
        size = one_size(found, axis_size, "batch axis sizes", "axis_size")

        @functools.wraps(fn)
        def mapped(variables: Any, rngs: Any, args: Any) -> Any:
            return packed.run(fn, variables, rngs, *args)

        run = api.vmap(
            mapped, in_axes=(var_in, rng_axes, in_axes), out_axes=(out_axes, var_out),
            axis_name=axis_name, axis_size=axis_size, spmd_axis_name=spmd_axis_name,
        )  # fmt: skip
        y, changed = run(variables, split_streams(packed.rngs, splits, size), args)
        return y, with_axes(meta.add_axis, changed, var_out, metadata_params)

    return lifted(inner, in_groups, out_groups, rng_groups, name="vmap")


def scan(
    fn: Callable[..., Any],
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = {},
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = {},
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    _split_transpose: bool = False,
    data_transform: Callable[..., Any] | None = None,
    metadata_params: Mapping[Any, Any] = {},
    check_constancy_invariants: bool = True,
) -> Callable[..., Any]:
    """Call a function of a scope in a loop that passes a carry from step to step.

    The function has the form `(scope, carry, *xs) -> (carry, ys)`. Each step gets a slice of `xs`,
    and the results `ys` are stacked. A variable collection is visible inside the transform only if
    `variable_axes`, `variable_broadcast` or `variable_carry` selects it. The random stream "params"
    is visible only if it is listed in `split_rngs`.

    Args:
        fn: function `f(scope, carry, *xs)`.
        variable_axes: dict that maps each collection to the axis along which each step reads and
            writes its slice of the variables. The keys are collection names or other filters.
        variable_broadcast: filter that selects the collections that are the same in every step.
        variable_carry: filter that selects the collections that each step may change and pass on to
            the next step.
        split_rngs: dict that maps each random stream to True if every step gets a different key, or
            to False if all steps get the same key. Streams that are not listed, other than
            "params", are split.
        in_axes: axis to loop over in each of `xs`: one int for all of them, or a tuple with an
            entry or a tree of entries for each of them. The entry `broadcast` passes the same value
            to every step.
        out_axes: axis along which each of `ys` is stacked, in the same form as `in_axes`.
        length: number of steps; required only if no argument is sliced.
        reverse: whether the loop runs from the last slice to the first.
        unroll: number of steps that one iteration of the compiled loop computes.
        data_transform: function `f(variables, rngs)` that returns the variables and random streams
            that each step sees; if None, they are not changed.
        metadata_params: dict with information about the new axis; it is passed to boxes around
            variables, such as `nn.Partitioned`.
        check_constancy_invariants: whether to raise an error if variables selected by
            `variable_broadcast` depend on the step.

    Differences:
        In Flax, streams that are not listed in `split_rngs` are not visible.

    Returns:
        A function `f(scope, carry, *xs)` that returns the pair `(last carry, stacked ys)`.
    """
    (in_groups, var_in), (out_groups, var_out) = in_and_out(variable_axes)
    assert all(isinstance(axis, int) for axis in (*var_in, *var_out))
    rng_groups, splits = unzipped([*streams(split_rngs), (DenyList("params"), True)])
    rng_axes = tuple(0 if split else axes_scan.broadcast for split in splits)

    def inner(packed: Packed, init: Any, *args: Any) -> Any:
        found = sizes(in_axes, args, axes_scan.broadcast)
        n = one_size(found, length, "scan lengths", "length")

        def body(shared: Any, carry: Any, scanned: Any, rngs: Any, args: Any) -> Any:
            carried, c = carry
            variables = (shared, carried, *scanned)
            if data_transform is not None:
                variables, rngs = data_transform(variables, rngs)
            pair, (shared_out, carried_out, *scanned_out) = packed.run(
                fn, variables, rngs, c, *args
            )
            try:
                c, y = pair
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"{error}: scan: needed a function that returns the pair (carry, y), got "
                    f"{describe(pair)} (return carry, None if there are no outputs){here()}"
                ) from None
            shared = packed.completed(shared, shared_out)
            carried = packed.completed(carried, carried_out)
            return shared, (carried, c), (y, tuple(scanned_out))

        run = axes_scan.scan(
            body, in_axes=(var_in, rng_axes, in_axes), out_axes=(out_axes, var_out),
            length=length, reverse=reverse, unroll=unroll, _split_transpose=_split_transpose,
            check_constancy_invariants=check_constancy_invariants, steady=packed.steady,
        )  # fmt: skip
        shared, carried, *scanned = packed.variables
        shared, (carried, c), (ys, stacked) = run(
            shared,
            (carried, init),
            with_axes(meta.remove_axis, scanned, var_in, metadata_params),
            split_streams(packed.rngs, splits, n),
            args,
        )
        stacked = with_axes(meta.add_axis, stacked, var_out, metadata_params)
        return (c, ys), (shared, carried, *stacked)

    return lifted(
        inner, (variable_broadcast, variable_carry, *in_groups),
        (variable_broadcast, variable_carry, *out_groups), rng_groups, name="scan",
    )  # fmt: skip


def remat_scan(
    body_fn: Callable[..., Any],
    lengths: Sequence[int],
    policy: Callable[..., bool] | None = None,
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = {True: 0},
    split_rngs: Mapping[PRNGSequenceFilter, bool] = {True: True},
) -> Callable[..., Any]:
    """Call a function of a scope in nested loops, and recompute the steps in the backward pass.

    There are `prod(lengths)` calls in total. With `d` nested loops of equal length and `n` calls,
    about `d * n ** (1 / d)` intermediate results are stored for the gradients, instead of `n`.

    Args:
        body_fn: function `f(scope, carry)` that returns the next carry.
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
        A function `f(scope, carry)` that returns the last carry.
    """
    loop = functools.partial(
        scan, variable_broadcast=variable_broadcast, variable_carry=variable_carry,
        variable_axes=variable_axes, split_rngs=split_rngs, length=lengths[0],
    )  # fmt: skip

    def one_step(scope: Any, carry: Any) -> Any:
        return body_fn(scope, carry), ()

    def inner_loop(scope: Any, carry: Any) -> Any:
        rest = remat_scan(
            body_fn, lengths[1:], policy, variable_broadcast, variable_carry, variable_axes,
            split_rngs,
        )  # fmt: skip
        return rest(scope, carry), ()

    if len(lengths) == 1:
        step: Callable[..., Any] = one_step
    else:
        step = remat(inner_loop, policy=policy, prevent_cse=False)
    return lambda scope, carry: loop(step)(scope, carry)[0]
