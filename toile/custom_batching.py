"""Functions with a user-defined `vmap` rule: `custom_vmap` and `sequential_vmap`.

The rule is called as `rule(axis_size, in_batched, *args)` and returns `(out, out_batched)`. The
first axis of each mapped argument is the mapped axis. Derivatives are computed from the function
or, under `vmap`, from the rule.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from toile.api.custom import forwarded
from toile.api.custom_calls import positional, signature_of
from toile.api.linear_maps import jvp
from toile.control.call import Call, move_mapped, nonzero_mask, pick, spread
from toile.control.scan import Scan
from toile.engine.arrays import Array
from toile.engine.avals import aval_of
from toile.engine.cached import cached_property
from toile.engine.conversion import as_array
from toile.engine.operation import Axis, Dim
from toile.engine.program import trace_program
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import flatten, structure, unflatten
from toile.primitives.families import bdim_at
from toile.staging.flat_functions import FlatFunction, dress, name_of
from toile.transforms.jvp import jvp_program
from toile.transforms.vmap import vmap_flat

__all__ = ["custom_vmap", "sequential_vmap"]

# A rule on flat values: (size, mask of mapped values, values) -> (results, mask of mapped ones).
FlatRule = Callable[[int, Sequence[bool], Sequence[Any]], tuple[list[Any], list[bool]]]


@dataclass(frozen=True)
class CustomVmapCall(Call):
    """A call with a vmap rule; its first `consts` operands are values the function closes over."""

    rule: FlatRule | None = None
    consts: int = 0

    name = "custom_vmap_call"
    is_inlined = False

    def with_program(self, program: Any) -> Call:
        return Call(program, self.label)  # other derived Programs have no rule

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        size, k = axis[1], self.consts
        assert self.rule is not None
        if any(d is not None for d in dims[:k]):
            raise ValueError(
                f"custom_vmap: needed the mapped values of {self.label} as arguments, got one that "
                "it closes over" + here()
            )
        mapped = [d is not None for d in dims[k:]]
        outs, found = self.rule(size, mapped, move_mapped(xs, dims, size)[k:])
        return outs, [0 if m else None for m in found]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        nonzero = nonzero_mask(tangents)
        program, moving = jvp_program(self.program, nonzero)
        outs = self._moved(program, nonzero, moving)(*primals, *pick(tangents, nonzero))
        n = len(moving)
        return outs[:n], spread(outs[n:], moving, outs[:n])

    def _moved(self, program: Any, nonzero: Sequence[bool], moving: Sequence[bool]) -> Call:
        """The derivative; without a rule of its own if a closed-over value has a tangent."""
        k, rule = self.consts, self.rule
        assert rule is not None
        if any(nonzero[:k]):
            return Call(program, self.label)
        moved = functools.partial(_moved_rule, rule, nonzero[k:], moving)
        return CustomVmapCall(program, self.label, moved, k)


def _moved_rule(
    rule: FlatRule, mask: Sequence[bool], moving: Sequence[bool], size: int,
    mapped: Sequence[bool], xs: Sequence[Any],
) -> Any:
    """The derivative of a rule; the tangents of the operands in `mask` follow the operands."""
    n, rest = len(mask), iter(mapped[len(mask) :])
    tangents_mapped = [next(rest) if m else False for m in mask]
    pairs = list(zip(mapped[:n], tangents_mapped, strict=True))
    if not any(p and t for p, t in pairs):  # the rule is called for one example at a time
        moved = _moved_by_example(rule, mask, moving, size, mapped, xs)
        if moved is not None:
            return moved
    both = [p or t for p, t in pairs]
    wanted = [*both, *pick(both, mask)]
    full = [bdim_at(x, 0 if m else None, size) if w else x
            for x, m, w in zip(xs, mapped, wanted, strict=True)]
    return _derived_rule(rule, mask, moving, size, both, full)


def _moved_by_example(
    rule: FlatRule, mask: Sequence[bool], moving: Sequence[bool], size: int,
    mapped: Sequence[bool], xs: Sequence[Any],
) -> tuple[list[Any], list[bool]] | None:
    """Like `_moved_rule`, by mapping over the derivative of one example; None if the rule maps a
    result."""
    found: list[bool] = []

    def alone(*values: Any) -> list[Any]:
        outs, found[:] = _derived_rule(rule, mask, moving, size, [False] * len(mask), values)
        return outs

    dims: list[Dim] = [0 if m else None for m in mapped]
    outs, out_dims = vmap_flat(alone, (None, size), xs, dims)
    if any(found):
        return None
    moved = [o if d is None else bdim_at(o, d, size) for o, d in zip(outs, out_dims, strict=True)]
    return moved, [d is not None for d in out_dims]


def _derived_rule(
    rule: FlatRule, mask: Sequence[bool], moving: Sequence[bool], size: int,
    mapped: Sequence[bool], xs: Sequence[Any],
) -> tuple[list[Any], list[bool]]:
    """The derivative of a rule for values whose tangents are mapped like the values."""
    n = len(mask)
    found: list[bool] = []

    def run(*chosen: Any) -> list[Any]:
        given = iter(chosen)
        full = [next(given) if m else v for v, m in zip(xs[:n], mask, strict=True)]
        outs, found[:] = rule(size, mapped, full)
        return outs

    outs, douts = jvp(run, tuple(pick(xs[:n], mask)), tuple(xs[n:]))
    return [*outs, *pick(douts, moving)], [*found, *pick(found, moving)]


class custom_vmap:
    """A decorator for functions with a user-defined `vmap` rule.

    Set the rule with `def_vmap` before the first call. Derivatives are computed from the function
    or, under `vmap`, from the rule.

    Args:
        fun: function whose arguments are arrays or trees of arrays.

    Raises:
        AttributeError: the function is called before a rule has been set.

    >>> @toile.custom_batching.custom_vmap
    ... def total(x): return x.sum()
    >>> @total.def_vmap
    ... def total_rule(axis_size, in_batched, x):
    ...     print("mapped over", axis_size)
    ...     return x.sum(-1), True
    >>> toile.vmap(total)(jnp.arange(6).reshape(2, 3))
    mapped over 2
    Array([ 3, 12], dtype=int32)
    """

    def __init__(self, fun: Callable[..., Any]):
        dress(self, fun)
        self.fun = fun
        self.vmap_rule: Callable[..., Any] | None = None

    __getattr__ = forwarded

    @cached_property
    def _signature(self) -> inspect.Signature | None:
        return signature_of(self.fun)

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule for `vmap`.

        Args:
            vmap_rule: a function `f(axis_size, in_batched, *args)` that returns
                `(out, out_batched)`. `in_batched` is a list that contains a tree of booleans for
                each argument. The booleans specify whether the leaves of the argument are mapped.
                The first axis of a mapped leaf is the mapped axis. `out_batched` is such a tree for
                the result.

        Returns:
            The rule.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = positional("custom_vmap", self.fun, self._signature, args, kwargs)
        if self.vmap_rule is None:
            raise AttributeError(
                f"No batching rule defined for custom_vmap function {name_of(self.fun)} using "
                f"def_vmap (call it with the rule: f.def_vmap(rule)){here()}"
            )
        leaves, tree = flatten(args)
        leaves = _arrays(leaves)
        if state.trace is None:
            outs, out_tree = flatten(self.fun(*unflatten(tree, leaves)))
            return unflatten(out_tree, _arrays(outs))
        flat = FlatFunction(self.fun, structure((args, {})))
        program, consts = trace_program(flat, [aval_of(x) for x in leaves], name_of(self.fun))
        rule = functools.partial(self._flat_rule, tree, flat.out_tree)
        op = CustomVmapCall(program, name_of(self.fun), rule, len(consts))
        return unflatten(flat.out_tree, op(*consts, *leaves))

    def _flat_rule(
        self, in_tree: Any, out_tree: Any, size: int, mapped: Sequence[bool], xs: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        assert self.vmap_rule is not None
        label = name_of(self.vmap_rule)
        args, in_batched = unflatten(in_tree, xs), unflatten(in_tree, mapped)
        result = self.vmap_rule(size, list(in_batched), *args)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise ValueError(
                f"custom_vmap: needed (out, out_batched) from the rule {label}, got "
                f"{result!r}{here()}"
            )
        outs, tree = flatten(result[0])
        found, spec = flatten(result[1])
        if tree != spec:
            raise ValueError(
                "structure of output value and output batching specification returned by custom "
                f"vmap rule ({label}) do not match.\nOutput values: {tree}\nBatching spec: "
                f"{spec}{here()}"
            )
        if tree != out_tree:
            raise ValueError(
                f"structure of output returned by custom vmap rule ({label}) does not match that "
                f"of original custom-vmapped function.\nOriginal output: {out_tree}\n"
                f"Rule output: {tree}{here()}"
            )
        return _arrays(outs), [bool(b) for b in found]


def _arrays(xs: Sequence[Any]) -> list[Any]:
    return [x if isinstance(x, Array) else as_array(x) for x in xs]


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """Decorate a function so that `vmap` calls it once for each example, in a loop.

    A loop uses less memory than a vectorized call, and it also works for functions that cannot be
    vectorized.

    Args:
        f: function whose arguments are arrays or trees of arrays.

    Returns:
        A function with the same arguments and results.

    >>> @toile.custom_batching.sequential_vmap
    ... def square(x): return x * x
    >>> toile.vmap(square)(jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    made = custom_vmap(f)

    def rule(axis_size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        mapped = [bool(b) for b in flatten(in_batched)[0]]
        leaves, tree = flatten(args)
        flat = FlatFunction(made, structure((args, {})))
        avals = [_row(aval_of(x)) if m else aval_of(x) for x, m in zip(leaves, mapped, strict=True)]
        order = [i for i, m in enumerate(mapped) if not m] + [i for i, m in enumerate(mapped) if m]

        def body(*xs: Any) -> list[Any]:
            full = dict(zip(order, xs, strict=True))
            return flat(*[full[i] for i in range(len(leaves))])

        program, consts = trace_program(body, [avals[i] for i in order], name_of(f))
        fixed = len(consts) + mapped.count(False)
        outs = Scan(program, fixed, 0, axis_size)(*consts, *[leaves[i] for i in order])
        return unflatten(flat.out_tree, outs), unflatten(flat.out_tree, [True] * len(outs))

    made.def_vmap(rule)
    return made


def _row(aval: Any) -> Any:
    return aval.with_shape(aval.shape[1:])
