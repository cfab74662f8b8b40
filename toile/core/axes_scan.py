"""A scan over any axis of its arguments and results, with values that all steps share.

The body has the form `(shared, carry, *args) -> (shared, carry, ys)`. The shared values that the
body returns must not depend on the step. They are computed once before the loop and passed to every
step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.core.partial_eval import constant_outputs
from toile.engine.arrays import Array
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.engine.trees import flatten, leaves, tree_map, unflatten

ScanAxis = int | None


class _Broadcast:
    """Marks an argument or a result of a scan that is the same in every step."""

    def __repr__(self) -> str:
        return "broadcast"


broadcast = _Broadcast()


def _to_front(axis: Any, xs: Any) -> Any:
    if axis is broadcast:
        return ()
    return xs if axis == 0 else tree_map(lambda x: jnp.moveaxis(x, axis, 0), xs)


def _from_front(axis: Any, xs: Any) -> Any:
    if axis is broadcast:
        return ()
    return xs if axis == 0 else tree_map(lambda x: jnp.moveaxis(x, 0, axis), xs)


def _chosen(axis: Any, shared: Any, own: Any) -> Any:
    return shared if axis is broadcast else own


def _row(x: Any) -> Aval:
    """The abstract value of one slice of a scanned array."""
    aval = aval_of(x)
    return Aval(aval.shape[1:], aval.dtype, aval.weak_type)


def scan(
    fn: Callable[..., Any],
    in_axes: Any,
    out_axes: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    _split_transpose: bool = False,
    check_constancy_invariants: bool = True,
    steady: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda body: body,
) -> Callable[..., Any]:
    """Loop over the axes `in_axes` of the arguments, and stack the results along `out_axes`.

    If `check_constancy_invariants` is False, the body is traced one time fewer, the shared values
    that the body returns are ignored, and `out_axes` cannot contain `broadcast`. `steady` is a
    decorator for the body; if the body is not traced, it makes all calls of the body draw the same
    keys.

    >>> import toile.numpy as jnp
    >>> loop = scan(lambda b, c, x: (b + 2, c + 1, 2 * x), in_axes=0, out_axes=0)
    >>> loop(1, 2, jnp.arange(3))
    (Array(3, dtype=int32, weak_type=True), Array(5, dtype=int32, weak_type=True), \
Array([0, 2, 4], dtype=int32))
    """
    if not check_constancy_invariants and any(a is broadcast for a in leaves(out_axes)):
        raise ValueError(
            "nn.scan run with check_constancy_invariants=False does not support broadcast "
            f"non-carry function outputs.  out_axes was given as {out_axes}{here()}"
        )

    def looped(shared: Any, init: Any, *args: Any) -> Any:
        xs = tree_map(_to_front, in_axes, args)

        def step(shared: Any, carry: Any, xs: Any) -> Any:
            return fn(shared, carry, *tree_map(_chosen, in_axes, args, xs))

        constant_ys = None
        if check_constancy_invariants:
            shared, constant_ys = _shared_results(step, shared, init, xs, out_axes)

        def body(carry: Any, xs: Any) -> Any:
            _, carry, ys = step(shared, carry, xs)
            return carry, tree_map(lambda axis, y: _chosen(axis, (), y), out_axes, ys)

        carry, ys = lax.scan(
            steady(body), init, xs, length=length, reverse=reverse, unroll=unroll
        )
        ys = tree_map(_from_front, out_axes, ys)
        if constant_ys is not None:
            ys = tree_map(_chosen, out_axes, constant_ys, ys)
        return shared, carry, ys

    return looped


def _shared_results(
    step: Callable[..., Any], shared: Any, init: Any, xs: Any, out_axes: Any
) -> tuple[Any, Any]:
    """The body's shared values and its results with axis `broadcast`, computed without the loop."""
    carry, carry_tree = flatten(init)
    rows, rows_tree = flatten(xs)
    rows = [x if isinstance(x, Array) else as_array(x) for x in rows]
    n = len(carry)
    out_tree: list[Any] = []

    def run(*unknown: Any) -> list[Any]:
        out, _, ys = step(
            shared, unflatten(carry_tree, unknown[:n]), unflatten(rows_tree, unknown[n:])
        )
        ys = tree_map(lambda axis, y: _chosen(axis, y, ()), out_axes, ys)
        outs, tree = flatten((out, ys))
        out_tree.append(tree)
        return outs

    values = constant_outputs(run, [*map(aval_of, carry), *map(_row, rows)])
    if any(v is None for v in values):
        raise ValueError(
            "broadcasted variable has a data dependency on the scan body. Needed values that are "
            "the same in every step, got one that depends on the carry, a scanned input or a "
            "split random stream: carry it (variable_carry), scan it (variable_axes), or do not "
            f"split the stream that it is drawn from{here()}"
        )
    return unflatten(out_tree[0], values)
