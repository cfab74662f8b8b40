"""Loops: scan, map, while_loop, fori_loop, associative_scan.

Bodies are traced once, and carries must keep their structure, shapes and dtypes. This module may
import all layers below `lax`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.api import vmap
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine import config, dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.avals import Aval, aval_of
from toile.engine.errors import ConcretizationTypeError, call_error, called, conversion_error
from toile.engine.program import Program
from toile.engine.refs import store, values_of
from toile.engine.source import describe, here
from toile.engine.trace import Tracer, state, turns
from toile.engine.trees import flatten, structure, tree_map, unflatten
from toile.lax._computations import coefficient_of_recurrence
from toile.lax._operands import axis_of
from toile.lax._refs import (
    changed_refs,
    differentiates_in_python,
    refs_in,
    scan_program,
    while_programs,
    with_ref_values,
)
from toile.lax._traced_functions import (
    agree_on_weak,
    check_carry,
    flat_arrays,
    is_concrete,
    leaf,
    stage_with_refs,
    with_avals,
)
from toile.lax.loop_progress import reporting
from toile.primitives.bits import lt
from toile.primitives.cumulative import Cumprod
from toile.primitives.elementwise import convert
from toile.primitives.families import add, full_like, reshape
from toile.primitives.recurrences import LinearRecurrence
from toile.primitives.shapes import Concatenate, Rev, pad, slice_axis
from toile.staging.flat_functions import name_of

__all__ = ["associative_scan", "fori_loop", "map", "scan", "while_loop"]


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: PyTree, xs: PyTree = None,
         length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
         _split_transpose: bool = False, *,
         progress: bool | str | Callable[[int, int], None] = False) -> tuple[PyTree, PyTree]:
    """Loop over the leading axis of arrays, passing a value (the carry) from step to step.

    `scan` is equivalent to the following Python function, except that it traces `f` only once, so
    the compiled program does not grow with the number of steps.

    >>> def scan_in_python(f, carry, xs):
    ...     ys = []
    ...     for x in xs:
    ...         carry, y = f(carry, x)
    ...         ys.append(y)
    ...     return carry, jnp.stack(ys)

    Use `scan` for recurrent networks, simulations and sequences of layers. It can be differentiated
    in forward and reverse mode. Reverse mode stores the intermediate values of every step, unless
    `f` is wrapped in `toile.checkpoint`.

    Args:
        f: a function `f(carry, x)` that returns a pair `(carry, y)`. The returned carry must have
            the structure, shapes and dtypes of the carry that is passed in. `f` is traced, so a
            Python `if` on its arguments raises an error.
        init: the first carry: an array or number, or a tree of arrays and numbers.
        xs: an array or a tree of arrays with leading axes of equal size; each step passes one slice
            to `f`. If `xs` is None, `x` is None in every step, and `length` is required.
        length: number of steps; None for the size of the leading axes.
        reverse: whether to go from the last slice to the first. The result `y` for a slice is
            stored at the position of that slice in either case.
        unroll: number of steps to run in each iteration of the compiled loop; True for all steps.
            With larger numbers, the loop may run faster, but it takes longer to compile.
        progress: whether to show on the standard error stream how many steps have been completed.
            If `progress` is a string, the string is shown as a label. If it is a function,
            `progress(done, total)` is called at most 100 times, and nothing is shown. This option
            works under `jit`; under `grad`, it shows the forward pass.

    Returns:
        A pair of the last carry and the `y` values of all steps, stacked along a new leading axis.

    Raises:
        TypeError: `f` does not return a pair, or it changes the structure, shapes or dtypes of the
            carry.
        ValueError: the leading axes differ in size, or neither `xs` nor `length` determines the
            number of steps.

    Differences:
        JAX does not have `progress`.

    Compute running sums, with the total as the carry:

    >>> def step(total, x):
    ...     total = total + x
    ...     return total, total
    >>> last, sums = lax.scan(step, 0.0, jnp.array([1.0, 2.0, 3.0]))
    >>> last
    Array(6., dtype=float32)
    >>> sums
    Array([1., 3., 6.], dtype=float32)

    Compute powers of 2, without arrays to loop over:

    >>> lax.scan(lambda c, _: (2 * c, c), 1, length=5)[1]
    Array([ 1,  2,  4,  8, 16], dtype=int32, weak_type=True)
    """
    if not callable(f):
        raise TypeError(f"lax.scan: f argument should be a callable, got {describe(f)} (pass the "
                        f"function itself){here()}")
    refs = refs_in(init, xs)
    if refs:
        return _scan_with_refs(f, init, xs, length, reverse, unroll, progress)
    carry, init_tree = flat_arrays(init)
    rows, xs_tree = flat_arrays(xs)
    n = _scan_length(rows, xs_tree, length)
    if progress:
        carry, xs = scan(reporting(f, n, progress), (np.int32(0), init), xs, n, reverse, unroll)
        return carry[1], xs
    if config.flags.disable_jit and (n or state.stepper is None):
        if n == 0:
            raise ValueError("zero-length scan is not supported in disable_jit() mode because "
                             "the output type is unknown." + here())
        return _scan_in_python(f, init, rows, xs_tree, n, reverse)
    steps = _unroll_count(unroll, n)
    x_avals = [_row_aval(x) for x in rows]
    in_tree = structure((unflatten(init_tree, carry), unflatten(xs_tree, rows)))
    avals = [aval_of(c) for c in carry]
    staged = stage_with_refs(f, in_tree, avals + x_avals, carry + rows, "scan")
    out_avals = staged.program.out_avals
    _check_pair(staged.out_tree, out_avals[: staged.out_tree.num_leaves], f)
    k = init_tree.num_leaves
    promoted = agree_on_weak(avals, out_avals[:k]) if _fits(staged.out_tree, init_tree) else None
    if promoted is not None:
        avals = promoted
        staged = stage_with_refs(f, in_tree, avals + x_avals, carry + rows, "scan")
    carry_tree, ys_tree = staged.out_tree.children()
    check_carry("scan", f, init_tree, avals, carry_tree,
                staged.program.out_avals[:carry_tree.num_leaves])
    if differentiates_in_python([staged]):
        return _scan_in_python(f, init, rows, xs_tree, n, reverse)
    changed = changed_refs(staged)
    program, consts, c = scan_program(staged, changed, k)
    op = Scan(program, len(consts), c, n, reverse, steps)
    carry = with_avals(carry, avals)
    outs = op(*consts, *carry, *values_of(changed), *rows)
    store(changed, outs[k:c])
    final = _unless_constant(carry, outs, program, len(consts))
    return unflatten(init_tree, final), unflatten(ys_tree, outs[c:])


def _unless_constant(carry: Any, outs: Any, body: Program, first: int) -> list[Any]:
    """The final carry. While a function is traced, parts that the body returns as they are (its
    inputs from `first` on) are those of the initial carry: vmap then knows that they are equal."""
    if state.trace is None:
        return list(outs[: len(carry)])
    inputs = body.inputs[first : first + len(carry)]
    return [x if body.outputs[i] is inputs[i] else outs[i] for i, x in enumerate(carry)]


def _scan_with_refs(f: Any, init: Any, xs: Any, length: Any, reverse: bool, unroll: Any,
                    progress: Any) -> Any:
    """A scan over slices of Refs, which the body may change."""
    body, (init, xs), refs = with_ref_values(f, (init, xs), "scan")

    def step(carry: Any, x: Any) -> Any:
        pair, new = body(carry, x)
        return pair[0], (pair[1], new)

    carry, (ys, values) = scan(step, init, xs, length, reverse, unroll, progress=progress)
    store(refs, values)
    return carry, ys


def _fits(out_tree: Any, init_tree: Any) -> bool:
    return out_tree.children()[0] == init_tree


def _check_pair(out_tree: Any, avals: list[Aval], f: Any) -> None:
    if len(out_tree.children()) != 2 or out_tree.node_data() is None or (
        out_tree.node_data()[0] is not tuple and out_tree.node_data()[0] is not list
    ):
        raise TypeError("scan body output must be a pair, got "
                        f"{describe(unflatten(out_tree, avals))}. Needed {name_of(f)} to return "
                        f"(carry, y){here()}")


def _scan_length(rows: list[Any], xs_tree: Any, length: Any) -> int:
    """The number of steps, from the leading axes and the `length` argument."""
    for x in rows:
        if not hasattr(x, "shape") or not x.shape:
            raise ValueError("scan got value with no leading axis to scan over: needed arrays of "
                             f"rank >= 1 in xs, got {aval_of(x).str_short()} (to repeat f, "
                             f"pass None and length=...){here()}")
    sizes = {x.shape[0] for x in rows}
    if isinstance(length, Tracer) and length.concrete() is None:
        raise conversion_error(
            length, "length", "The `length` argument to `scan` expects a concrete `int` value: use "
            "while_loop or fori_loop for a dynamic number of steps")
    if length is not None:
        try:
            length = int(length)
        except Exception as e:
            raise TypeError(f"scan: needed length as a concrete integer, got {describe(length)} "
                            "(use while_loop for a traced number of steps)" + here()) from e
        if any(s != length for s in sizes):
            raise ValueError(f"scan got `length` argument of {length} which disagrees with leading "
                             f"axis sizes {sorted(sizes)}. (leave `length` out){here()}")
        return length
    if len(sizes) > 1:
        raise ValueError("scan got values with different leading axis sizes: "
                         f"{', '.join(str(x.shape[0]) for x in rows)}. (xs of structure "
                         f"{xs_tree}: slice or pad them to the same length){here()}")
    if not sizes:
        raise ValueError("scan got no values to scan over and `length` not provided (pass xs, or "
                         "length=)" + here())
    return sizes.pop()


def _unroll_count(unroll: Any, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if isinstance(unroll, Tracer) and unroll.concrete() is None:
        raise conversion_error(
            unroll, "unroll", "The `unroll` argument to `scan` expects a concrete `int` or `bool` "
            "value")
    count = operator.index(unroll)
    if count < 0:
        raise ValueError("`unroll` must be a `bool` or a non-negative `int`, got "
                         f"{unroll}.{here()}")
    return max(count, 1)


def _scan_in_python(f: Any, carry: Any, rows: list[Any], xs_tree: Any, n: int,
                    reverse: bool) -> tuple[Any, Any]:
    ys = []
    for i in turns(reversed(range(n)) if reverse else range(n)):
        if state.stepper is not None:  # as in a traced loop
            carry = tree_map(leaf, carry)
        carry, y = f(carry, unflatten(xs_tree, [row[i] for row in rows]))
        ys.append(y)
    if reverse:
        ys.reverse()
    stacked = tree_map(
        lambda *parts: Concatenate(0)(*[reshape(leaf(p), (1, *leaf(p).shape)) for p in parts]), *ys
    )
    return carry, stacked


def map(f: Callable[[Any], Any], xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """Apply a function to each slice along the leading axis, one slice after another.

    The result equals `toile.vmap(f)(xs)`. `vmap` processes all slices at once; `map` is slower, but
    needs less memory.

    Args:
        f: a function that is called with one slice. It is traced once, or twice if the number of
            slices is not a multiple of `batch_size`.
        xs: an array or a tree of arrays with leading axes of equal size.
        batch_size: number of slices to process at once with `toile.vmap`; if None, one slice is
            processed at a time.

    Returns:
        The results of `f`, stacked along a new leading axis.

    >>> lax.map(lambda row: row.sum(), jnp.array([[1, 2], [3, 4], [5, 6]]))
    Array([ 3,  7, 11], dtype=int32)
    """
    if not batch_size:
        return scan(lambda _, x: ((), f(x)), (), xs)[1]
    rows, tree = flat_arrays(xs)
    n = rows[0].shape[0]
    whole, rest = divmod(n, batch_size)
    batched = vmap(f)
    parts = []
    if whole:
        shaped = [
            reshape(slice_axis(r, 0, whole * batch_size, 0), (whole, batch_size, *r.shape[1:]))
            for r in rows
        ]
        out = scan(lambda _, x: ((), batched(x)), (), unflatten(tree, shaped))[1]
        parts.append(tree_map(lambda y: reshape(y, (whole * batch_size, *y.shape[2:])), out))
    if rest or not whole:
        parts.append(batched(unflatten(tree, [slice_axis(r, n - rest, n, 0) for r in rows])))
    if len(parts) == 1:
        return parts[0]
    return tree_map(lambda a, b: Concatenate(0)(a, b), *parts)


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any],
               init_val: PyTree, *, checkpoints: int | None = None) -> PyTree:
    """Repeatedly apply a function to a value while a condition holds.

    `while_loop` is equivalent to the following Python function, except that it traces `cond_fun`
    and `body_fun` only once, and that the number of steps may depend on traced values.

    >>> def while_in_python(cond_fun, body_fun, val):
    ...     while cond_fun(val):
    ...         val = body_fun(val)
    ...     return val

    Args:
        cond_fun: a function `cond_fun(val)` that returns a bool scalar; the loop ends when it
            returns False.
        body_fun: a function `body_fun(val)` that returns the next value, which must have the
            structure, shapes and dtypes of `val`.
        init_val: the first value: an array or number, or a tree of arrays and numbers.
        checkpoints: number of values that reverse mode (`toile.grad`) keeps at once, at least 2.
            The number is rounded down to a power of 2. If `checkpoints` is None, toile chooses a
            number between 8 and 256, depending on the size of the value. JAX does not have this
            argument.

    Returns:
        The first value for which `cond_fun` returns False.

    Raises:
        TypeError: `cond_fun` does not return a bool scalar, or `body_fun` changes the structure,
            shapes or dtypes of the value.
        ValueError: `checkpoints` is not an integer, or is less than 2.
        NotImplementedError: the loop is differentiated in reverse mode, and `cond_fun` or
            `body_fun` calls `io_callback`, which must not run twice.

    The loop can be differentiated in forward and reverse mode. The derivative does not take into
    account that a change in the operands may change the number of steps. In reverse mode, the loop
    runs again; some of the values are kept, and the values between them are recomputed. The memory
    that reverse mode needs does not depend on the number of steps, which must be less than 2**31.

    Find the first power of 2 above 100, and its exponent:

    >>> lax.while_loop(lambda v: v[0] <= 100, lambda v: (2 * v[0], v[1] + 1), (1, 0))
    (Array(128, dtype=int32, weak_type=True), Array(7, dtype=int32, weak_type=True))

    Double a number until it exceeds 100, and compute the derivative, here the product of 6 factors:

    >>> f = lambda x: lax.while_loop(lambda y: y <= 100, lambda y: 2 * y, x)
    >>> toile.value_and_grad(f)(3.0)
    (Array(192., dtype=float32, weak_type=True), Array(64., dtype=float32, weak_type=True))
    """
    if not (callable(cond_fun) and callable(body_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be "
                        "callable." + here())
    if refs_in(init_val):
        raise ValueError(
            "function body_fun traced for while_loop returned a mutable array reference: needed a "
            f"value of arrays, got {describe(init_val)} (use the Ref as a variable of the body, or "
            f"loop over its value){here()}")
    if config.flags.disable_jit:
        try:
            return _while_in_python(cond_fun, body_fun, init_val)
        except ConcretizationTypeError:
            pass  # the condition depends on a tracer, for example of vmap
    carry, tree = flat_arrays(init_val)
    in_tree = structure((init_val,))
    avals = [aval_of(c) for c in carry]
    both = lambda: (stage_with_refs(cond_fun, in_tree, avals, carry, "while_cond"),
                    stage_with_refs(body_fun, in_tree, avals, carry, "while_body"))
    cond, body = both()
    if body.out_tree == tree:
        promoted = agree_on_weak(avals, body.program.out_avals[: len(avals)])
        if promoted is not None:
            avals = promoted
            cond, body = both()
    _check_condition(cond.program.out_avals[: cond.out_tree.num_leaves], cond.out_tree, cond_fun)
    check_carry("while_loop", body_fun, tree, avals, body.out_tree,
                body.program.out_avals[: body.out_tree.num_leaves])
    if differentiates_in_python([body]):
        return _while_in_python(cond_fun, body_fun, init_val)
    changed = changed_refs(body)
    programs, consts = while_programs(cond, body, changed, name_of(cond_fun))
    op = While(*programs, len(consts[0]), len(consts[1]), _checkpoints(checkpoints))
    carry = with_avals(carry, avals)
    outs = op(*consts[0], *consts[1], *carry, *values_of(changed))
    store(changed, outs[len(carry):])
    return unflatten(tree, _unless_constant(carry, outs, programs[1], len(consts[1])))


def _checkpoints(count: Any) -> int | None:
    if count is None:
        return None
    if isinstance(count, bool) or not hasattr(count, "__index__") or operator.index(count) < 2:
        raise ValueError("lax.while_loop: needed checkpoints as an integer >= 2, the number of "
                         f"values to keep for the backward pass, got {describe(count)} (leave it "
                         f"out to let toile choose){here()}")
    return operator.index(count)


def _while_in_python(cond_fun: Any, body_fun: Any, init_val: Any) -> Any:
    value = tree_map(leaf, init_val)
    for _ in turns(itertools.count()):
        if not cond_fun(value):
            break
        value = tree_map(leaf, body_fun(value))
    return value


def _check_condition(avals: Any, tree: Any, fun: Any) -> None:
    if len(avals) != 1 or tree.num_leaves != 1 or tree.children():
        raise TypeError(f"cond_fun must return a boolean scalar, but got pytree {tree}. (from "
                        f"{name_of(fun)}){here()}")
    if avals[0].shape or avals[0].dtype != np.bool_:
        raise TypeError("cond_fun must return a boolean scalar, but got output type(s) "
                        f"[{avals[0]}]. (from {name_of(fun)}: compare scalars, or reduce with "
                        f"jnp.all or jnp.any){here()}")


def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Any, Any], Any],
              init_val: PyTree, *, unroll: int | bool | None = None,
              checkpoints: int | None = None) -> PyTree:
    """Run a function for each integer in a range, passing a value from step to step.

    `fori_loop` is equivalent to the following Python function, except that it traces `body_fun`
    only once.

    >>> def for_in_python(lower, upper, body_fun, val):
    ...     for i in range(lower, upper):
    ...         val = body_fun(i, val)
    ...     return val

    Args:
        lower: first integer; it may be traced.
        upper: end of the range, excluded; it must have the dtype of `lower` and may be traced. If
            it is not greater than `lower`, the result is `init_val`.
        body_fun: a function `body_fun(i, val)` that returns the next value, which must have the
            structure, shapes and dtypes of `val`. `i` is a traced integer, which can be used in
            `x[i]` or `x.at[i].set(...)`.
        init_val: the first value: an array or number, or a tree of arrays and numbers.
        unroll: number of steps to run in each iteration of the compiled loop; True for all steps.
            If `unroll` is given, the bounds must not be traced.
        checkpoints: for traced bounds, the number of values that reverse mode keeps at once, as in
            `while_loop`. JAX does not have this argument.

    Returns:
        The last value.

    Raises:
        ValueError: a bound is traced, but `unroll` is given; or `checkpoints` is not an integer or
            is less than 2.

    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    >>> lax.fori_loop(1, 5, lambda i, x: x.at[i].set(2 * x[i - 1]), jnp.ones(5))
    Array([ 1.,  2.,  4.,  8., 16.], dtype=float32)
    """
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable." + here())
    dtype = _bounds_dtype(aval_of(lower), aval_of(upper))
    low, high = (convert(leaf(v), dtype, aval_of(v).weak_type) for v in (lower, upper))
    known = is_concrete(low) and is_concrete(high)
    if config.flags.disable_jit and known and state.stepper is None:
        value = init_val
        for i in range(int(low), int(high)):
            value = body_fun(i, value)
        return value
    if known:
        count = max(int(high) - int(low), 0)

        def step(carry: Any, _: Any) -> Any:
            i, value = carry
            try:
                out = body_fun(i, value)
            except TypeError as error:
                raise call_error(error, body_fun, (i, value)) from error.__cause__
            return (add(i, full_like(i, 1)), out), None

        # The index is weakly typed, whatever the bounds are.
        return scan(step, (int(low), init_val), None, count, unroll=unroll or 1)[0][1]
    if unroll is not None and unroll is not False and unroll != 1:
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically "
                         "known." + here())

    def continues(carry: Any) -> Any:
        return lt(carry[0], carry[1])

    def body(carry: Any) -> Any:
        i, stop, value = carry
        return add(i, full_like(i, 1)), stop, body_fun(i, value)

    return while_loop(continues, body, (low, high, init_val), checkpoints=checkpoints)[2]


def _bounds_dtype(lower: Aval, upper: Aval) -> Any:
    """The common dtype of a loop's bounds; a weakly typed bound adopts the dtype of the other."""
    if lower.dtype == upper.dtype:
        return lower.dtype
    signed = dtypes.kind(lower.dtype) == dtypes.kind(upper.dtype) == "i"
    if signed and lower.weak_type != upper.weak_type:
        return upper.dtype if lower.weak_type else lower.dtype
    a, b = dtypes.name_of(lower.dtype), dtypes.name_of(upper.dtype)
    raise TypeError(f"lower and upper arguments to fori_loop must have equal types, got {a} and "
                    f"{b}: needed integers of one dtype (convert them with int){here()}")


def associative_scan(fn: Callable[[Any, Any], Any], elems: PyTree, reverse: bool = False,
                     axis: int = 0) -> PyTree:
    """Combine the elements of every prefix of a sequence in parallel, as in a running sum.

    The result at position `i` combines elements 0 to `i` with the function `fn`. First, neighboring
    elements are combined, then neighboring pairs, and so on. Therefore, a sequence of length `n`
    needs only about `2 * log2(n)` steps, each of which processes many elements at once. `fn` must
    be associative: `fn(fn(a, b), c)` must equal `fn(a, fn(b, c))`. If `fn` composes the steps of a
    linear recurrence, as in the last example, then the recurrence is computed directly.

    Args:
        fn: a function `fn(a, b)` that combines two arrays, or two trees like `elems`, element by
            element. It is called with slices of `elems` along the axis and must accept slices of
            any length.
        elems: an array or a tree of arrays, which must have equal sizes along the axis.
        reverse: whether to scan from the end, so that the result at position `i` combines element
            `i` and all elements after it.
        axis: the axis of the sequence; negative axes count from the end.

    Returns:
        An array or a tree with the structure and shapes of `elems`.

    >>> lax.associative_scan(lax.add, jnp.array([1, 2, 3, 4]))
    Array([ 1,  3,  6, 10], dtype=int32)

    Compute the recurrence `h[t] = a[t] * h[t - 1] + b[t]`, with `h[-1] = 0`, as a scan over pairs:

    >>> def combine(first, second):
    ...     return first[0] * second[0], first[1] * second[0] + second[1]
    >>> a, b = jnp.array([0.5, 0.5, 0.5]), jnp.array([1.0, 1.0, 1.0])
    >>> lax.associative_scan(combine, (a, b))[1]
    Array([1.  , 1.5 , 1.75], dtype=float32)
    """
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable." + here())
    leaves, tree = flat_arrays(elems)
    if not leaves:
        return elems
    axis = axis_of(axis, leaves[0].ndim)
    sizes = {x.shape[axis] for x in leaves}
    if len(sizes) != 1:
        raise ValueError("Array inputs to associative_scan must have the same first dimension. "
                         f"(saw: {[x.shape for x in leaves]}){here()}")
    if min(sizes) > 1 and not config.flags.disable_jit:
        i = coefficient_of_recurrence(fn, tree, leaves, axis)
        if i is not None:
            outs = [Cumprod(axis, reverse)(leaves[i]),
                    LinearRecurrence(axis, reverse)(leaves[i], leaves[1 - i])]
            return unflatten(tree, outs[::-1] if i else outs)
    if reverse:
        leaves = [Rev((axis,))(x) for x in leaves]

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        out = called(fn, (unflatten(tree, a), unflatten(tree, b)))
        return [leaf(x) for x in flatten(out)[0]]

    outs = _prefixes(combine, leaves, axis)
    if reverse:
        outs = [Rev((axis,))(x) for x in outs]
    return unflatten(tree, outs)


def _prefixes(combine: Callable[..., list[Any]], xs: list[Any], axis: int) -> list[Any]:
    """The prefix combinations: first those that end at odd positions, then the others."""
    n = xs[0].shape[axis]
    if n < 2:
        return xs
    even = [slice_axis(x, 0, n - 1, axis, 2) for x in xs]
    odd = [slice_axis(x, 1, n, axis, 2) for x in xs]
    odd_prefixes = _prefixes(combine, combine(even, odd), axis)
    m = odd_prefixes[0].shape[axis]
    before = odd_prefixes if n % 2 else [slice_axis(p, 0, m - 1, axis) for p in odd_prefixes]
    rest = [slice_axis(x, 2, n, axis, 2) for x in xs]
    even_rest = combine(before, rest) if n > 2 else rest
    first = [slice_axis(x, 0, 1, axis) for x in xs]
    even_prefixes = [Concatenate(axis)(a, b) for a, b in zip(first, even_rest, strict=True)]
    return [_interleaved(a, b, axis) for a, b in zip(even_prefixes, odd_prefixes, strict=True)]


def _interleaved(a: Any, b: Any, axis: int) -> Any:
    """a0 b0 a1 b1 ... along an axis; `a` may be longer by one element."""
    n, m = a.shape[axis], b.shape[axis]
    zero = full_like(a, False if a.dtype == np.bool_ else 0)
    config_a: list[Any] = [(0, 0, 0)] * a.ndim
    config_b: list[Any] = [(0, 0, 0)] * a.ndim
    config_a[axis] = (0, 1 if n == m else 0, 1)
    config_b[axis] = (1, 0 if n == m else 1, 1)
    spread_a, spread_b = pad(a, zero, tuple(config_a)), pad(b, zero, tuple(config_b))
    return add(spread_a, spread_b)




def _row_aval(x: Any) -> Aval:
    aval = aval_of(x)
    return Aval(aval.shape[1:], aval.dtype, aval.weak_type)
