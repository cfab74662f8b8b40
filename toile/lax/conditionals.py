"""Conditionals: cond, switch, platform_dependent.

Each branch is traced once, and all branches must return the same structure, shapes and dtypes. This
module may import all layers below `lax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.control.cond import Cond
from toile.engine import config, dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.avals import aval_of
from toile.engine.platform_registry import first_or_default
from toile.engine.program import Program, Var
from toile.engine.program_keys import inherit_uses
from toile.engine.refs import store, values_of
from toile.engine.source import describe, here
from toile.engine.trace import state
from toile.engine.trees import structure, tree_map, unflatten
from toile.lax._refs import (
    Branch,
    branch_program,
    changed_refs,
    differentiates_in_python,
    refs_in,
    with_ref_values,
)
from toile.lax._traced_functions import (
    check_same_structure,
    check_same_types,
    flat_arrays,
    is_concrete,
    leaf,
    stage_with_refs,
    strengthened,
)
from toile.primitives.bits import ne
from toile.primitives.elementwise import clamp, convert
from toile.primitives.families import full_like, scalar

__all__ = ["cond", "platform_dependent", "switch"]

_UNSET = object()


def cond(pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any],
         *operands: PyTree, operand: PyTree = _UNSET) -> PyTree:
    """Run one of two functions, depending on a condition that may be traced.

    The result equals `true_fun(*operands) if pred else false_fun(*operands)`, but `pred` may be a
    traced value, for which Python's `if` raises an error. Both functions are traced, but only one
    of the two runs. Under `toile.vmap`, if `pred` differs between examples, both functions run, and
    each example receives the result for its own `pred`. To choose between existing arrays, use
    `jnp.where`.

    Args:
        pred: scalar; nonzero numbers count as True.
        true_fun: function to run if `pred` is True.
        false_fun: function to run if `pred` is False. Both functions must return the same
            structure, shapes and dtypes.
        operands: arguments for both functions: arrays, numbers, or trees of arrays and numbers. The
            functions may also use variables from the surrounding code.
        operand: a single argument, which can be passed by keyword instead of `operands`.

    Returns:
        The result of the function that runs.

    Raises:
        TypeError: `pred` is not a scalar, or the functions return different structures, shapes or
            dtypes.

    >>> def absolute(x):
    ...     return lax.cond(x < 0, lambda v: -v, lambda v: v, x)
    >>> absolute(-3.0)
    Array(3., dtype=float32, weak_type=True)
    >>> toile.grad(absolute)(-3.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    operands = _all_operands(operands, operand)
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(
        true_fun
    ):  # the old form: cond(pred, true_operand, true_fun, false_operand, false_fun)
        first, second = false_fun, operands[1]
        pair = (true_fun, operands[0])
        return cond(pred, lambda ops: first(ops[0]), lambda ops: second(ops[1]), pair)
    return _cond(pred, true_fun, false_fun, operands)


def _all_operands(operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    """The positional operands, or the single operand that is passed by keyword."""
    if operand is _UNSET:
        return operands
    if operands:
        raise TypeError("if 'operand' keyword is passed then no positional operands can be "
                        f"passed, got operand={describe(operand)} and positional "
                        f"{describe(operands)}{here()}")
    return (operand,)


def _cond(pred: Any, true_fun: Any, false_fun: Any, operands: Sequence[Any]) -> Any:
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError(
            "lax.cond: true_fun and false_fun arguments should be callable: got "
            f"{describe(true_fun)} and {describe(false_fun)} (pass functions, such as lambda x: x, "
            f"or select values with toile.numpy.where(pred, x, y)){here()}"
        )
    if pred is None:
        raise TypeError("cond predicate is None: needed a bool or a number (give it a value: a "
                        f"function that does not return one returns None){here()}")
    try:
        aval = aval_of(pred)
    except TypeError as e:
        if callable(pred):
            raise TypeError("Pred type must be either boolean or number, got "
                            f"{pred}.{here()}") from e
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)} (Pred type must "
                        f"be either boolean or number){here()}") from e
    if aval.shape:
        raise TypeError(f"Pred must be a scalar, got {aval.str_short()} of shape {aval.shape} "
                        "(reduce it with jnp.all or jnp.any, or use jnp.where for an elementwise "
                        f"choice).{here()}")
    if dtypes.kind(aval.dtype) not in "biuf":
        raise TypeError("Pred type must be either boolean or number, got "
                        f"{dtypes.name_of(aval.dtype)}.{here()}")
    index = leaf(pred)
    if config.flags.disable_jit and is_concrete(index):
        return _in_python(true_fun if bool(index) else false_fun, operands)
    if index.dtype != np.bool_:
        index = ne(index, full_like(index, 0))
    return _branched("cond", convert(index, np.int32), (false_fun, true_fun), operands,
                     ("false_fun", "true_fun"))


def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: PyTree,
           operand: PyTree = _UNSET) -> PyTree:
    """Run one of several functions, chosen by an index that may be traced.

    The result equals `branches[index](*operands)`. All functions are traced, but only the chosen
    function runs. Under `toile.vmap`, if `index` differs between examples, all functions run, and
    each example receives the result for its own `index`.

    Args:
        index: integer scalar. An index that is out of range is replaced with the nearest valid
            index.
        branches: the functions to choose from, at least one. All must return the same structure,
            shapes and dtypes.
        operands: arguments for the functions: arrays, numbers, or trees of arrays and numbers.
        operand: a single argument, which can be passed by keyword instead of `operands`.

    Returns:
        The result of the function that runs.

    Raises:
        TypeError: `index` is not an integer scalar, or the functions return different structures,
            shapes or dtypes.

    >>> branches = [lambda x: x, lambda x: x**2, lambda x: x**3]
    >>> [lax.switch(i, branches, 3.0).item() for i in (0, 1, 2, 7)]
    [3.0, 9.0, 27.0, 27.0]
    """
    operands = _all_operands(operands, operand)
    if not np.iterable(branches) or not all(callable(b) for b in branches):
        said = "" if np.iterable(branches) else (
            f"'{type(branches).__name__}' object is not iterable: ")
        raise TypeError(f"{said}lax.switch: branches argument should be a sequence of callables, "
                        f"got {describe(branches)} (pass one list of functions, or select values "
                        f"with toile.numpy.choose){here()}")
    try:
        aval = aval_of(index)
    except TypeError as e:
        if isinstance(index, (tuple, list)):
            raise TypeError(f"Branch index must be scalar, got {index} of shape {np.shape(index)}."
                            f"{here()}") from e
        raise TypeError(f"Index type must be an integer, got {index}.{here()}") from e
    if aval.shape:
        raise TypeError(f"Branch index must be scalar, got {index} of shape "
                        f"{aval.shape} (index it, or use toile.vmap).{here()}")
    if dtypes.kind(aval.dtype) not in "iu":
        raise TypeError(f"Index type must be an integer, got {describe(index)} as "
                        f"{dtypes.name_of(aval.dtype)} (needed int32){here()}")
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence (give at least one function)" + here())
    if len(branches) == 1:
        return branches[0](*operands)
    which = convert(leaf(index), np.int32)
    if config.flags.disable_jit and is_concrete(which):
        return _in_python(branches[min(max(int(which), 0), len(branches) - 1)], operands)
    which = clamp(scalar(0, np.int32), which, scalar(len(branches) - 1, np.int32))
    names = ("branch 0", *(f"branch{i}" for i in range(1, len(branches))))
    return _branched("switch", which, branches, operands, names)


def _in_python(branch: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Run one branch without tracing it; `toile.debug.step` gives it arrays, as tracing does."""
    if state.stepper is None:
        return branch(*operands)
    return tree_map(leaf, branch(*tree_map(leaf, tuple(operands))))


def _branched(what: str, index: Any, branches: Sequence[Any], operands: Sequence[Any],
              names: Sequence[str]) -> Any:
    """Stage all branches on the same operands and their own closed-over values."""
    if refs_in(*operands):
        pairs = [with_ref_values(b, tuple(operands), what) for b in branches]
        out, values = _branched(what, index, [p[0] for p in pairs], pairs[0][1], names)
        store(pairs[0][2], values)
        return out
    xs, _ = flat_arrays(tuple(operands))
    in_tree = structure(tuple(operands))
    avals = [aval_of(x) for x in xs]
    order = (1, 0) if what == "cond" else tuple(range(len(branches)))  # of cond: the one for True
    found = {i: stage_with_refs(branches[i], in_tree, avals, xs, what) for i in order}
    changed = changed_refs(*[found[i] for i in order])
    if differentiates_in_python(found.values()):
        return _one_in_python(what, index, branches, operands)
    staged = [branch_program(found[i], changed) for i in range(len(branches))]
    first = staged[0]
    _check_alike(what, staged, order, names)
    outs = first[0].out_avals  # weak where the first branch is (of cond: the one for False)
    programs = tuple(
        _with_all_consts(strengthened(p, outs), [len(c) for _, c, _ in staged], i, staged)
        for i, (p, _, _) in enumerate(staged)
    )
    consts = [c for _, cs, _ in staged for c in cs]
    results = Cond(programs)(index, *consts, *xs, *values_of(changed))
    n = first[2].num_leaves
    store(changed, results[n:])
    return unflatten(first[2], results[:n])


def _check_alike(what: str, staged: Sequence[Branch], order: Sequence[int],
                 names: Sequence[str]) -> None:
    """Raise an error unless all branches return the same structure, shapes and dtypes."""
    lead = staged[order[0]]
    for i in order[1:]:
        one, other = names[order[0]], names[i]
        check_same_structure(f"{what} branch outputs", lead[2], staged[i][2],
                             (lead.out_avals, staged[i].out_avals),
                             (f"{one} output{{at}}", f"{other} output{{at}}"),
                             f"Return the same from {one} and {other}.")
        check_same_types(f"{what} branches must have equal output types but they differ.", lead[2],
                         lead.out_avals, staged[i].out_avals,
                         (f"the output of {one}{{at}}", f"the corresponding output of {other}"),
                         f"The shapes and dtypes that {one} and {other} return must agree.")


def _one_in_python(what: str, index: Any, branches: Sequence[Any], operands: Sequence[Any]) -> Any:
    """Differentiate a conditional that must run in Python, because a rule in it changes a Ref."""
    if not is_concrete(index):
        raise NotImplementedError(
            f"{what}: needed an index with a value to differentiate branches in which a rule of "
            f"custom_vjp changes a Ref, got {describe(index)} (differentiate outside jit, or change"
            f" the Ref outside the conditional){here()}")
    return _in_python(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _with_all_consts(program: Program, counts: Sequence[int], mine: int, staged: Any) -> Program:
    """A branch that accepts the closed-over values of all branches and uses only its own."""
    before = [Var(aval_of(c)) for _, cs, _ in staged[:mine] for c in cs]
    after = [Var(aval_of(c)) for _, cs, _ in staged[mine + 1 :] for c in cs]
    n = counts[mine]
    inputs = [*before, *program.inputs[:n], *after, *program.inputs[n:]]
    made = Program(inputs, program.equations, program.outputs, program.name)
    inherit_uses(made, program)
    return made


def platform_dependent(*args: PyTree, default: Callable[..., Any] | None = None,
                       **per_platform: Callable[..., Any]) -> PyTree:
    """Call one of several functions, depending on the platform of the default device.

    Args:
        args: arguments for the function that is called.
        default: the function for platforms that are not in `per_platform`.
        per_platform: the functions for particular platforms, passed as `cpu=`, `cuda=` or `gpu=`.

    Returns:
        The result of the function that is called.

    Raises:
        NotImplementedError: there is no function for the platform, and `default` is None.

    Differences:
        JAX chooses the function when the code is compiled; toile chooses it when
        `platform_dependent` is called.

    >>> lax.platform_dependent(3, cpu=lambda x: x + 1, cuda=lambda x: x + 1)
    4
    """
    if state.exporting is not None:
        platform, asked = state.exporting
        asked.append("platform_dependent")
    else:
        platform = first_or_default().platform
    names = ("cuda", "gpu") if platform in ("cuda", "gpu") else (platform,)
    chosen = next((per_platform[n] for n in names if n in per_platform), default)
    if chosen is None:
        raise NotImplementedError(f"platform_dependent: needed {platform}= or default=, got "
                                  f"{sorted(per_platform)}{here()}")
    return chosen(*args)
