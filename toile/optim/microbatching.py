"""Functions that process a large batch in small pieces and combine the results.

A loop over the pieces keeps the intermediate values of only one piece in memory. If there are `n`
pieces, piece `i` contains the examples `i`, `i + n`, `i + 2n` and so on. Concatenated results are
in the original order.
"""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api import value_and_grad, vmap
from toile.api.programs import eval_shape
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.optim import base
from toile.optim.base import ArrayLike

__all__ = [
    "AccumulationType", "Accumulator", "micro_grad", "micro_vmap", "microbatch",
    "reshape_batch_axis",
]  # fmt: skip

Function = Callable[..., Any]
IndividualOutputs = collections.namedtuple(  # type: ignore[name-match]
    "Aux", ["values", "metrics", "aux"]
)


@dataclass(frozen=True)
class Accumulator:
    """A set of functions that combine the results for the pieces of a batch.

    Args:
        init: function that maps the shapes and dtypes of one result to the initial carry of the
            loop.
        update: function `update(carry, result, index)` that returns the new carry; `index` is the
            position of the piece.
        finalize: function that maps the final carry to the combined result.
        aggregate: function that combines stacked results along their leading axis; `micro_vmap`
            uses this function to combine the results within a piece.

    >>> from toile.optim import microbatching
    >>> largest = microbatching.Accumulator(
    ...     lambda x: jnp.full(x.shape, -jnp.inf), lambda carry, x, i: jnp.maximum(carry, x),
    ...     lambda carry: carry, lambda xs: xs.max(0),
    ... )
    >>> microbatching.microbatch(jnp.max, 0, 2, largest)(jnp.array([1.0, 7.0, 5.0, 2.0]))
    Array(7., dtype=float32)
    """

    init: Callable[[base.ArrayTree], base.ArrayTree]
    update: Callable[[base.ArrayTree, base.ArrayTree, int], base.ArrayTree]
    finalize: Callable[[base.ArrayTree], base.ArrayTree]
    aggregate: Callable[[base.ArrayTree], base.ArrayTree]


class AccumulationType(enum.Enum):
    """Common ways to combine results: mean, sum, running mean and concatenation.

    `MEAN` adds up the results and divides by their number at the end. `RUNNING_MEAN` updates a mean
    with each result, so no sum can overflow. `CONCAT` concatenates results along their first axis,
    in the order of the batch.

    >>> from toile.optim import microbatching
    >>> mean = microbatching.microbatch(jnp.mean, 0, 2, microbatching.AccumulationType.MEAN)
    >>> mean(jnp.arange(4.0))
    Array(1.5, dtype=float32)
    """

    MEAN = enum.auto()
    SUM = enum.auto()
    RUNNING_MEAN = enum.auto()
    CONCAT = enum.auto()


def reshape_batch_axis(tree: base.ArrayTree, microbatch_size: int, axis: int = 0) -> base.ArrayTree:
    """Split the batch axis of each leaf into two axes of sizes (pieces, `microbatch_size`).

    If there are `n` pieces, piece `i` contains the examples `i`, `i + n`, `i + 2n` and so on.

    Args:
        tree: tree of arrays.
        microbatch_size: number of examples in a piece, a divisor of the size of the axis.
        axis: batch axis.

    Returns:
        A tree of arrays, each with one more axis.

    >>> from toile.optim import microbatching
    >>> microbatching.reshape_batch_axis(jnp.arange(6), 2)
    Array([[0, 3],
           [1, 4],
           [2, 5]], dtype=int32)
    """

    def on_leaf(x):
        shape = (*x.shape[:axis], -1, microbatch_size, *x.shape[axis + 1 :])
        return x.reshape(shape, order="F")

    return trees.map(on_leaf, tree)


def _floating_zeros(x):
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"microbatch: needed floating-point results for a mean, got {x.dtype}{here()}"
        )
    return jnp.zeros_like(x)


def _identity(x):
    return x


def _running(carry, value, i):
    weight = i / (i + 1)
    return carry * weight + value * (1 - weight)


def _leaf_accumulator(kind: AccumulationType, pieces: int) -> Accumulator:
    add = lambda carry, value, i: carry + value
    mean = functools.partial(jnp.mean, axis=0)
    if kind is AccumulationType.SUM:
        return Accumulator(jnp.zeros_like, add, _identity, functools.partial(jnp.sum, axis=0))
    if kind is AccumulationType.RUNNING_MEAN:
        return Accumulator(_floating_zeros, _running, _identity, mean)
    if kind not in (AccumulationType.MEAN, AccumulationType.CONCAT):
        raise ValueError(
            f"microbatch: needed an Accumulator or AccumulationType, got {kind!r}{here()}"
        )
    if pieces <= 0:
        raise ValueError(f"microbatch: needed one piece or more, got {pieces}{here()}")
    if kind is AccumulationType.MEAN:
        return Accumulator(_floating_zeros, add, lambda carry: carry / pieces, mean)
    return Accumulator(
        init=lambda x: jnp.broadcast_to(jnp.zeros_like(x), (pieces, *x.shape)),
        update=lambda carry, value, i: carry.at[i].set(value),
        finalize=lambda carry: carry.reshape(-1, *carry.shape[2:], order="F"),
        aggregate=_identity,
    )


def _over_leaves(acc: Accumulator) -> Accumulator:
    return Accumulator(
        init=lambda value: trees.map(acc.init, value),
        update=lambda carry, value, i: trees.map(lambda c, v: acc.update(c, v, i), carry, value),
        finalize=lambda carry: trees.map(acc.finalize, carry),
        aggregate=lambda values: trees.map(acc.aggregate, values),
    )


def _tree_accumulator(tree: Any, pieces: int) -> Accumulator:
    """Make one accumulator from a tree of accumulators or types that is a prefix of the results."""

    def of(acc):
        if isinstance(acc, Accumulator):
            return acc
        return _over_leaves(_leaf_accumulator(acc, pieces))

    parts = trees.map(of, tree)
    return Accumulator(
        init=lambda values: trees.map(lambda a, v: a.init(v), parts, values),
        update=lambda carry, values, i: trees.map(
            lambda a, c, v: a.update(c, v, i), parts, carry, values
        ),
        finalize=lambda carry: trees.map(lambda a, c: a.finalize(c), parts, carry),
        aggregate=lambda values: trees.map(lambda a, v: a.aggregate(v), parts, values),
    )


def _batch_size(values: list[Any], axes: Sequence[int], microbatch_size: int) -> int:
    sizes = [x.shape[ax] for value, ax in zip(values, axes) for x in trees.leaves(value)]
    if len(set(sizes)) > 1:
        raise ValueError(f"microbatch: needed batch axes of one size, got {sizes}{here()}")
    if sizes[0] % microbatch_size:
        raise ValueError(
            f"microbatch: needed a batch size divisible by {microbatch_size}, got {sizes[0]}"
            f"{here()}"
        )
    return sizes[0]


def microbatch(
    fun: Function, argnums: int | Sequence[int], microbatch_size: int | None,
    accumulator: base.PyTree = AccumulationType.SUM, *, argnames: str | Sequence[str] = (),
    in_axes: int | Sequence[int] = 0, num_real_microbatches: ArrayLike | None = None,
) -> Function:
    """Run a function on pieces of its batched arguments in a loop, and combine the results.

    Only the intermediate values of one piece are in memory at a time. If there are `n` pieces,
    piece `i` contains the examples `i`, `i + n`, `i + 2n` and so on.

    Args:
        fun: function whose result for a batch can be computed from its results for the pieces, for
            instance by a sum or a mean.
        argnums: positions of the arguments that have a batch axis.
        microbatch_size: number of examples in a piece, a divisor of the batch size. If None, `fun`
            itself is returned.
        accumulator: how to combine the results: an `AccumulationType`, an `Accumulator`, or a tree
            of such objects with the structure of the results or a prefix of that structure.
        argnames: names of the keyword arguments that have a batch axis.
        in_axes: one batch axis for all arguments in `argnums` and `argnames`, or a sequence with
            the batch axis of each of these arguments, positional arguments first.
        num_real_microbatches: number of pieces to process. It may be traced, so it can vary without
            recompilation. If `num_real_microbatches` is None, all pieces are processed.

    Returns:
        A function that accepts the arguments of `fun` and returns the combined results.

    Raises:
        ValueError: the batch axes differ in size, or the size is not a multiple of
            `microbatch_size`; raised by the returned function.

    >>> from toile import optim
    >>> total = optim.microbatch(lambda x: jnp.sum(x**2), argnums=0, microbatch_size=2)
    >>> total(jnp.arange(4.0))
    Array(14., dtype=float32)
    """
    if microbatch_size is None:
        return fun
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    slots: tuple[Any, ...] = (*positions, *names)
    axes = (in_axes,) * len(slots) if isinstance(in_axes, int) else tuple(in_axes)

    def in_pieces(*args, **kwargs):
        values = [args[s] if isinstance(s, int) else kwargs[s] for s in slots]
        pieces = _batch_size(values, axes, microbatch_size) // microbatch_size
        split = [reshape_batch_axis(v, microbatch_size, ax) for v, ax in zip(values, axes)]
        gather = _tree_accumulator(accumulator, pieces)

        def piece(i):
            some: Any = list(args)
            named: Any = dict(kwargs)
            for slot, value, ax in zip(slots, split, axes):
                part = trees.map(functools.partial(jnp.take, indices=i, axis=ax), value)
                (some if isinstance(slot, int) else named)[slot] = part
            return fun(*some, **named)

        bound = pieces if num_real_microbatches is None else num_real_microbatches
        start = gather.init(eval_shape(piece, 0))
        body = lambda i, carry: gather.update(carry, piece(i), i)
        return gather.finalize(lax.fori_loop(0, bound, body, start))

    return in_pieces


def micro_vmap(
    fun: Function, in_axes: int | Sequence[int | None] = 0, out_axes: int = 0, *,
    microbatch_size: int | None = None, vmap_fn: Function = vmap,
    accumulator: base.PyTree = AccumulationType.CONCAT,
    num_real_microbatches: ArrayLike | None = None,
) -> Function:
    """Map a function over a batch like `toile.vmap`, but process only a few examples at a time.

    Args:
        fun: function of one example.
        in_axes: tuple with one entry per positional argument: the argument's batch axis, or None if
            the argument has no batch axis. For a function of a single argument, an int is also
            allowed. The batch axis of keyword arguments is 0.
        out_axes: batch axis of the results, which must be 0.
        microbatch_size: number of examples that are mapped at once. If `microbatch_size` is None,
            all examples are processed at once.
        vmap_fn: transformation to use in place of `toile.vmap`.
        accumulator: how to combine the results, as in `microbatch`. By default, the results are
            concatenated along axis 0.
        num_real_microbatches: number of pieces, each with `microbatch_size` examples, to process.
            If `num_real_microbatches` is None, all pieces are processed.

    Returns:
        The mapped function.

    Raises:
        NotImplementedError: `out_axes` is not 0.

    >>> from toile.optim import microbatching
    >>> square = microbatching.micro_vmap(lambda x: x**2, microbatch_size=2)
    >>> square(jnp.arange(4.0))
    Array([0., 1., 4., 9.], dtype=float32)
    """
    if out_axes != 0:
        raise NotImplementedError(f"micro_vmap: needed out_axes=0, got {out_axes}")
    axes = (in_axes,) if isinstance(in_axes, int) else tuple(in_axes)

    def reduced(*args, kwargs):
        results = vmap_fn(fun, axes, out_axes)(*args, **kwargs)
        size = trees.leaves(results)[0].shape[0]
        return _tree_accumulator(accumulator, size).aggregate(results)

    run = microbatch(
        reduced,
        argnums=tuple(i for i, ax in enumerate(axes) if ax is not None),
        argnames="kwargs",
        microbatch_size=microbatch_size,
        accumulator=accumulator,
        in_axes=(*(ax for ax in axes if ax is not None), 0),
        num_real_microbatches=num_real_microbatches,
    )
    return lambda *args, **kwargs: run(*args, kwargs=kwargs)


def micro_grad(
    fun: Function, has_aux: bool = False, argnums: int | Sequence[int] = 0, *,
    batch_argnums: int | Sequence[int] = 1, keep_batch_dim: bool = True,
    microbatch_size: int | None = None, accumulator: base.PyTree = AccumulationType.SUM,
    transform_fn: Function = _identity, metrics_fn: Function = lambda grad: None,
    num_real_microbatches: ArrayLike | None = None,
) -> Function:
    """Compute the gradient for each example, transform it, and combine the results over the batch.

    Args:
        fun: loss function, which is called with one example, or with a batch of one example if
            `keep_batch_dim` is True.
        has_aux: whether `fun` returns a pair (loss, aux).
        argnums: positions of the arguments to differentiate with respect to.
        batch_argnums: positions of the arguments with a batch axis, which is axis 0.
        keep_batch_dim: if True, `fun` receives batches of one example; if False, it receives
            examples without a batch axis.
        microbatch_size: number of examples whose gradients are computed at once. If
            `microbatch_size` is None, all examples are processed at once.
        accumulator: how to combine the transformed gradients, as in `microbatch`. By default, the
            gradients are summed.
        transform_fn: function that is applied to each example's gradient, for instance to clip the
            gradient.
        metrics_fn: function that maps one example's gradient to metrics for that example.
        num_real_microbatches: number of pieces, each with `microbatch_size` examples, to process.
            If `num_real_microbatches` is None, all pieces are processed.

    Returns:
        A function that accepts the arguments of `fun`. It returns the combined gradients and a
        named tuple (values, metrics, aux), which contains the loss, the metrics and the auxiliary
        results for each example.

    >>> from toile.optim import microbatching
    >>> loss = lambda w, x: jnp.sum(w * x)
    >>> gradient = microbatching.micro_grad(loss, microbatch_size=1)
    >>> grads, outputs = gradient(jnp.array(2.0), jnp.array([1.0, 3.0]))
    >>> grads, outputs.values
    (Array(4., dtype=float32), Array([2., 6.], dtype=float32))
    """
    batched = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    with_aux = fun if has_aux else lambda *args, **kwargs: (fun(*args, **kwargs), None)
    of_example = value_and_grad(with_aux, argnums, has_aux=True)

    def one(*args, **kwargs):
        (value, aux), grad = of_example(*args, **kwargs)
        return transform_fn(grad), IndividualOutputs(value, metrics_fn(grad), aux)

    axes: list[Any] = [0 if i in batched else None for i in range(max(batched) + 1)]
    run = micro_vmap(
        one,
        in_axes=axes,
        accumulator=(accumulator, AccumulationType.CONCAT),
        microbatch_size=microbatch_size,
        num_real_microbatches=num_real_microbatches,
    )
    if not keep_batch_dim:
        return run

    def with_batch_axis(*args, **kwargs):
        expand = lambda arg: trees.map(lambda x: jnp.expand_dims(x, axis=1), arg)
        return run(*(expand(a) if i in batched else a for i, a in enumerate(args)), **kwargs)

    return with_batch_axis
