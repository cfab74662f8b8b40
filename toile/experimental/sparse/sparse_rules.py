"""Rules for operations with sparse operands, from which `Operation.sparse` chooses.

A rule receives an operation and its operands, at least one of which is sparse. It returns the
results, which may be sparse.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

import toile.lax as lax
from toile.api import eval_shape
from toile.engine.program import Program
from toile.engine.source import here
from toile.experimental.sparse import arithmetic
from toile.experimental.sparse.batches import remaining
from toile.experimental.sparse.bcoo_indices import bcoo_sum_duplicates
from toile.experimental.sparse.bcoo_layouts import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_reshape,
    bcoo_rev,
    bcoo_squeeze,
    bcoo_transpose,
)
from toile.experimental.sparse.bcoo_products import bcoo_dot_general
from toile.experimental.sparse.bcoo_slices import (
    bcoo_conv_general_dilated,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_reduce_sum,
    bcoo_slice,
)
from toile.experimental.sparse.bcsr_functions import (
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_sum_duplicates,
)
from toile.experimental.sparse.storage import BatchedStorage, BCOOStorage, BCSRStorage


def unsupported(op: Any, *xs: Any) -> NoReturn:
    """Raise the error for an operation without a rule."""
    given = ", ".join(map(repr, (x for x in xs if isinstance(x, BatchedStorage))))
    dense = " because it would result in dense output" if op.by_element else ""
    raise NotImplementedError(
        f"sparse rule for {op.name} is not implemented{dense}: got {given}. If this is your "
        f"intent, use sparse.todense() to convert your arguments to dense matrices.{here()}"
    )


def _of_bcoo(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that does not support BCSR arrays."""

    @functools.wraps(rule)
    def checked(self: Any, op: Any, *xs: Any) -> Any:
        if any(isinstance(x, BCSRStorage) for x in xs):
            unsupported(op, *xs)
        return rule(self, op, *xs)

    return checked


def _is_bcsr(x: Any) -> bool:
    return isinstance(x, BCSRStorage)


class Rules:
    """The rules for one call; `shared` tells that two sparse operands have the same indices.

    `run(program, xs)` evaluates a Program."""

    def __init__(self, run: Callable[[Program, Sequence[Any]], list[Any]], shared: bool):
        self.run, self.shared = run, shared

    # ---- element by element

    def linear(self, op: Any, x: Any) -> Any:
        return x._with_data(op(x.data))

    def converted(self, op: Any, x: Any) -> Any:
        if not x.unique_indices:  # f(x + y) is not f(x) + f(y)
            summed = bcsr_sum_duplicates if _is_bcsr(x) else bcoo_sum_duplicates
            x = summed(x, x.nse)
        return x._with_data(op(x.data))

    def unary(self, op: Any, *xs: Any) -> Any:
        """A function of one operand that maps zero to zero."""
        if len(xs) > 1:
            unsupported(op, *xs)
        with np.errstate(all="ignore"):
            zero = op.eager(np, np.zeros(1, xs[0].dtype))
        if zero.dtype == bool or zero[0] != 0:
            unsupported(op, *xs)
        return (self.linear if op.commutes_with_sums else self.converted)(op, *xs)

    def whole_power(self, op: Any, x: Any) -> Any:
        return self.unary(op, x)

    @_of_bcoo
    def sum(self, op: Any, x: Any, y: Any) -> Any:
        return arithmetic.add(x, y, self.shared)

    @_of_bcoo
    def difference(self, op: Any, x: Any, y: Any) -> Any:
        return arithmetic.subtract(x, y, self.shared)

    @_of_bcoo
    def product(self, op: Any, x: Any, y: Any) -> Any:
        return arithmetic.multiply(x, y, self.shared)

    @_of_bcoo
    def quotient(self, op: Any, x: Any, y: Any) -> Any:
        return arithmetic.divide(x, y)

    def dense(self, op: Any, x: Any) -> Any:
        return x.todense()

    # ---- axes

    @_of_bcoo
    def transpose(self, op: Any, x: Any) -> Any:
        return bcoo_transpose(x, permutation=op.perm)

    @_of_bcoo
    def reduce_sum(self, op: Any, x: Any) -> Any:
        found = bcoo_reduce_sum(x, axes=op.axes)
        return found if found.shape else found.data.sum()

    def broadcast_in_dim(self, op: Any, x: Any) -> Any:
        fun: Any = bcsr_broadcast_in_dim if _is_bcsr(x) else bcoo_broadcast_in_dim
        return fun(x, shape=op.shape, broadcast_dimensions=op.dims)

    def reshape(self, op: Any, x: Any) -> Any:
        """A reshape; one that only adds or removes axes of size 1 keeps the other axes' kinds."""
        axes = _without_ones(x.shape, op.shape)
        if axes is not None:
            fun = bcsr_broadcast_in_dim if _is_bcsr(x) else bcoo_broadcast_in_dim
            return fun(x, shape=op.shape, broadcast_dimensions=axes)
        if _is_bcsr(x):
            unsupported(op, x)
        axes = _without_ones(op.shape, x.shape)
        if axes is None:
            return bcoo_reshape(x, new_sizes=op.shape)
        return bcoo_squeeze(x, dimensions=remaining(range(x.ndim), axes))

    @_of_bcoo
    def rev(self, op: Any, x: Any) -> Any:
        return bcoo_rev(x, op.axes)

    def concatenate(self, op: Any, *xs: Any) -> Any:
        fun = bcsr_concatenate if all(map(_is_bcsr, xs)) else bcoo_concatenate
        return fun(xs, dimension=op.axis)

    # ---- parts

    @_of_bcoo
    def slice(self, op: Any, x: Any) -> Any:
        return bcoo_slice(x, start_indices=op.starts, limit_indices=op.limits, strides=op.strides)

    @_of_bcoo
    def dynamic_slice(self, op: Any, x: Any, *starts: Any) -> Any:
        return bcoo_dynamic_slice(x, starts, op.sizes)

    @_of_bcoo
    def gather(self, op: Any, x: Any, indices: Any) -> Any:
        if isinstance(indices, BatchedStorage):
            unsupported(op, x, indices)
        return bcoo_gather(x, indices, op.dimension_numbers, op.slice_sizes, mode=op.mode)

    # ---- products

    def dot_general(self, op: Any, x: Any, y: Any) -> Any:
        """A contraction by labels: batch labels are in both operands and the result."""
        batch = [c for c in op.lhs if c in op.rhs and c in op.out]
        summed = [c for c in op.lhs if c in op.rhs and c not in op.out]
        free = [c for labels in (op.lhs, op.rhs) for c in labels if c not in batch + summed]
        numbers: Any = [[[labels.index(c) for c in some] for labels in (op.lhs, op.rhs)]
                        for some in (summed, batch)]
        fun: Any = bcsr_dot_general if _is_bcsr(x) or _is_bcsr(y) else bcoo_dot_general
        found = fun(x, y, dimension_numbers=numbers, preferred_element_type=op.dtype)
        order = tuple([*batch, *free].index(c) for c in op.out)
        if isinstance(found, BCOOStorage):
            in_order = order == tuple(range(len(order)))
            return found if in_order else bcoo_transpose(found, permutation=order)
        return lax.transpose(found, order)

    @_of_bcoo
    def convolution(self, op: Any, x: Any, y: Any) -> Any:
        return bcoo_conv_general_dilated(
            x, y, window_strides=op.window_strides, padding=op.padding,
            lhs_dilation=op.lhs_dilation, rhs_dilation=op.rhs_dilation,
            dimension_numbers=op.dimension_numbers, feature_group_count=op.feature_group_count,
            batch_group_count=op.batch_group_count)

    # ---- functions

    def call(self, op: Any, *xs: Any) -> Any:
        return self.run(op.program, xs)

    def cond(self, op: Any, index: Any, *xs: Any) -> Any:
        branches = [functools.partial(self.run, program) for program in op.branches]
        return lax.switch(index, branches, list(xs))

    def while_loop(self, op: Any, *xs: Any) -> Any:
        a, b = op.cond_consts, op.cond_consts + op.body_consts

        def body(carry: Any) -> list[Any]:
            return self.run(op.body, [*xs[a:b], *carry])

        carry = _settled(body, xs[b:])
        return lax.while_loop(lambda carry: self.run(op.cond, [*xs[:a], *carry])[0],
                              lambda carry: _flagged(body(carry), carry), carry)

    def scan(self, op: Any, *xs: Any) -> Any:
        """A loop whose carry may be sparse."""
        a, b = op.consts, op.consts + op.carry
        if any(isinstance(x, BatchedStorage) for x in xs[b:]):
            unsupported(op, *xs[b:])

        def body(carry: Any, steps: Any) -> Any:
            outs = self.run(op.program, [*xs[:a], *carry, *steps])
            if any(isinstance(x, BatchedStorage) for x in outs[op.carry :]):
                unsupported(op, *outs[op.carry :])
            return outs[: op.carry], outs[op.carry :]

        def first(carry: Any) -> list[Any]:
            return body(carry, [x[0] for x in xs[b:]])[0]

        carry, ys = lax.scan(
            lambda carry, steps: (lambda outs: (_flagged(outs[0], carry), outs[1]))(
                body(carry, steps)),
            _settled(first, xs[a:b]), list(xs[b:]), op.length, reverse=op.reverse,
            unroll=op.unroll)
        return [*carry, *ys]


def _without_ones(few: Sequence[int], many: Sequence[int]) -> list[int] | None:
    """For each axis of `few`, that of `many`, which has additional axes of size 1; else None."""
    axes: list[int] = []
    for i, n in enumerate(many):
        if len(axes) < len(few) and few[len(axes)] == n:
            axes.append(i)
        elif n != 1:
            return None
    return axes if len(axes) == len(few) else None


def _flagged(new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    """Sparse arrays with the weaker of their own statements about indices and others'."""
    found = []
    for x, y in zip(new, old, strict=True):
        if isinstance(x, BatchedStorage) and isinstance(y, BatchedStorage):
            aux = {name: value and getattr(y, name) if name != "shape" else value
                   for name, value in x._aux.items()}
            x = x.tree_unflatten(aux, x._bufs)
        found.append(x)
    return found


def _settled(body: Callable[[Any], list[Any]], carry: Sequence[Any]) -> list[Any]:
    """The start of a loop, with only those statements about indices that hold after each step."""
    while True:
        weaker = _flagged(carry, eval_shape(body, list(carry)))
        if all(x._aux == y._aux for x, y in zip(weaker, carry, strict=True)
               if isinstance(x, BatchedStorage)):
            return weaker
        carry = weaker
