"""Computing those results of a function that do not depend on its unknown arguments.

The function is traced with abstract arguments, and equations that no result needs are removed from
the program. If a result still uses an unknown argument, it depends on that argument.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile import errors
from toile.engine.avals import Aval, aval_of
from toile.engine.program import Program, evaluate, trace_program, without_dead_code
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trees import flatten, unflatten


def constant_outputs(fun: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> list[Any]:
    """The flat results of `fun` for unknown arguments, or None for a result that depends on them.

    Values that `fun` closes over are known. The results are computed in the current trace."""
    program, captured = trace_program(fun, avals, name="constants")
    unknown = set(program.inputs[len(captured) :])
    live = _without_effects(program)
    depends: set[Any] = set(unknown)
    for e in live.equations:
        if any(a in depends for a in e.ins):
            depends.update(e.outs)
    free = [o not in depends for o in live.outputs]
    if not all(free):  # a call with one unknown argument may have results that do not need it
        free = [_is_free(program, i, unknown) for i in range(len(program.outputs))]
    known = _without_effects(without_dead_code(program, free))
    values = iter(evaluate(known, [*captured, *(None for _ in avals)]))
    return [next(values) if f else None for f in free]


def _without_effects(program: Program) -> Program:
    """The program without equations that only have effects, which must wait for the real run."""
    live: set[Any] = set(program.outputs)
    kept = []
    for e in reversed(program.equations):
        if any(o in live for o in e.outs):
            live.update(e.ins)
            kept.append(e)
    return Program(program.inputs, kept[::-1], program.outputs, program.name)


def _is_free(program: Program, index: int, unknown: set[Any]) -> bool:
    """Whether one output can be computed without the unknown inputs."""
    keep = [i == index for i in range(len(program.outputs))]
    alone = _without_effects(without_dead_code(program, keep))
    used = {a for e in alone.equations for a in e.ins} | set(alone.outputs)
    return not any(u in used for u in unknown)


def lazy_init(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let `fn` accept a ShapeDtypeStruct for each argument that no result depends on."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = flatten((args, kwargs))
        hidden = [i for i, x in enumerate(leaves) if isinstance(x, ShapeDtypeStruct)]
        out_tree: list[Any] = []

        def flat(*unknown: Any) -> list[Any]:
            given = list(leaves)
            for i, tracer in zip(hidden, unknown, strict=True):
                given[i] = tracer
            args, kwargs = unflatten(in_tree, given)
            outs, tree = flatten(fn(*args, **kwargs))
            out_tree.append(tree)
            return outs

        avals = [aval_of(leaves[i]) for i in hidden]
        outs: list[Any] = constant_outputs(flat, avals)
        for i, value in enumerate(outs):
            if value is None:
                raise errors.LazyInitError(_output_aval(flat, avals, i))
        return unflatten(out_tree[0], outs)

    return wrapper


def _output_aval(fun: Callable[..., Sequence[Any]], avals: Sequence[Aval], index: int) -> Aval:
    """The shape and dtype of one result, for the error message."""
    program, _ = trace_program(fun, avals, name="constants")
    return program.outputs[index].aval
