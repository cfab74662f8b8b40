"""Traces the function to be exported, as a Program of first-order operations with named weights.

Calls are inlined, random numbers become integer arithmetic, and known values are computed. This
module may import all layers below `exporting`.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.compiler import pipeline as passes
from toile.compiler.passes.rewriter import Rewriter, rewrite, splice
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.avals import Aval, aval_of
from toile.engine.keypaths import keystr
from toile.engine.program import (
    Atom,
    Equation,
    Program,
    Var,
    derive,
    trace_program,
    without_dead_code,
)
from toile.engine.source import describe, here
from toile.engine.treedefs import PyTreeDef
from toile.engine.trees import flatten, flatten_with_path
from toile.exporting.sizes import SAMPLES, Size, merged
from toile.primitives.shapes import Iota
from toile.random.keys import key_data
from toile.staging.flat_functions import FlatFunction, name_of

PASSES = (
    passes.inline_calls, passes.physical_keys, passes.fold_constants, passes.take_known_branches,
    passes.simplify, passes.join_pads, passes.merge_common, passes.cancel_moves, passes.simplify,
    passes.merge_common, without_dead_code,
)


@dataclass
class Model:
    """A traced function.

    `weights` maps unique names to the values of the leading inputs of the Program. `paths` says
    where the other inputs are in the arguments, for example `x` or `batch['image']`."""

    name: str
    program: Program
    weights: list[tuple[str, np.ndarray]]
    arguments: list[str]
    paths: list[str]
    out_tree: PyTreeDef
    free_batch: bool

    @property
    def inputs(self) -> list[Var]:
        """The inputs that are not weights."""
        return self.program.inputs[len(self.weights) :]

    def batch_source(self) -> tuple[int, int, int] | None:
        """An input, an axis and a factor: the axis has the size `batch size * factor`."""
        for i, v in enumerate(self.inputs):
            for axis, n in enumerate(v.aval.shape):
                if isinstance(n, Size) and not n.offset:
                    return i, axis, n.scale
        return None


def trace(
    fun: Callable[..., Any], args: Sequence[Any], params: Any, free_batch: bool, name: str
) -> Model:
    """Trace `fun(*args)`, or `fun(params, *args)` if there are parameters."""
    if not callable(fun):
        raise TypeError(f"export: needed a function, got {describe(fun)} (pass the function and "
                        f"then its arguments){here()}")
    given = args if params is None else (params, *args)
    paths, leaves = _paths(given)
    own = len(flatten(params)[0]) if params is not None else 0
    sizes = SAMPLES if free_batch else (None,)
    if free_batch:
        _check_batch(leaves[own:])
    traces = []
    for n in sizes:
        avals = [aval_of(x) for x in leaves]
        if n is not None:
            first = _batch_of(leaves[own:])
            avals[own:] = [_with_batch(a, first, n) for a in avals[own:]]
        flat = FlatFunction(fun, flatten((tuple(given), {}))[1])
        program, consts = trace_program(flat, avals, name_of(fun), kind="make_jaxpr")
        program = _prepared(program)
        traces.append((program, consts, flat.out_tree))
    program, consts, out_tree = traces[0]
    if free_batch:
        program, consts = _counted(merged([t[0] for t in traces]), [t[1] for t in traces])
    given = [*zip(paths, leaves, strict=True)]
    weights = _weights(program, consts, given[:own])
    arguments, places = _arguments(given[own:], len(args), params is not None)
    return Model(identifier(name), program, weights, arguments, places, out_tree,
                 free_batch)


def _prepared(program: Program) -> Program:
    """Apply the passes to the program, including the bodies of loops."""
    for step in PASSES:
        program = step(program)
    program = _decoded(program)
    equations = [Equation(_with_bodies(e.op), e.ins, e.outs, e.source, e.scope)
                 for e in program.equations]
    return Program(program.inputs, equations, program.outputs, program.name)


def _decoded(program: Program) -> Program:
    """Replace operations that are compositions of others, such as `Dequantize`."""
    if all(e.op.decoded is None for e in program.equations):
        return program
    return rewrite(program, _decoding)


def _decoding(new: Rewriter, e: Equation) -> list[Atom] | None:
    if e.op.decoded is None:
        return None
    body = derive(lambda *xs: [e.op.decoded(*xs)], [a.aval for a in e.ins], e.op.name)
    return splice(body, e.ins, new.keep, e)


def _with_bodies(op: Any) -> Any:
    if isinstance(op, Scan):
        return dataclasses.replace(op, program=_prepared(op.program))
    if isinstance(op, While):
        return dataclasses.replace(op, cond=_prepared(op.cond), body=_prepared(op.body))
    if isinstance(op, Cond):
        return Cond(tuple(map(_prepared, op.branches)))
    return op


def _paths(given: Sequence[Any]) -> tuple[list[str], list[Any]]:
    found = flatten_with_path(tuple(given))[0]
    return [keystr(path) for path, _ in found], [leaf for _, leaf in found]


def _batch_of(leaves: Sequence[Any]) -> int:
    return next((aval_of(x).shape[0] for x in leaves if aval_of(x).ndim), -1)


def _check_batch(leaves: Sequence[Any]) -> None:
    if _batch_of(leaves) < 0:
        raise ValueError(
            f"export: needed an argument with a batch axis for free_batch=True, got "
            f"{describe(list(leaves))} (its first axis is the batch){here()}")


def _with_batch(aval: Aval, old: int, new: int) -> Aval:
    if not aval.ndim or aval.shape[0] != old:
        return aval
    return aval.with_shape((new, *aval.shape[1:]))


def _counted(
    program: Program, constants: Sequence[Sequence[Any]]
) -> tuple[Program, list[Any]]:
    """Return the program, and the constants that do not depend on the batch size.

    Constants such as `numpy.arange(x.shape[0])` are replaced by equations."""
    kept: list[Any] = []
    inputs: list[Var] = []
    counts: list[Equation] = []
    for v, *values in zip(program.inputs, *constants, strict=False):
        raws = [_raw(x) for x in values]
        if all(x is values[0] or np.array_equal(r, raws[0])
               for x, r in zip(values, raws, strict=True)):
            kept.append(values[0])
            inputs.append(v)
            continue
        axis = _counting_axis(raws)
        if axis is None:
            raise ValueError(
                f"export: needed constants that do not depend on the batch size, got "
                f"{describe(values[0])} and {describe(values[1])} (compute them with "
                f"toile.numpy, or export with free_batch=False){here()}")
        iota = Iota(dtype=v.aval.dtype, shape=v.aval.shape, axis=axis)  # not interned
        counts.append(Equation(iota, [], [v]))
    rest = program.inputs[len(constants[0]) :]
    made = Program([*inputs, *rest], [*counts, *program.equations], program.outputs, program.name)
    return made, kept


def _counting_axis(raws: Sequence[np.ndarray]) -> int | None:
    """Return the axis along which constants count from 0, or None if they do not count."""
    first = raws[0]
    long = [i for i, n in enumerate(first.shape) if n > 1]
    if len(long) != 1 or any(r.dtype.kind not in "iuf" for r in raws):
        return None
    counts = all(np.array_equal(r.reshape(-1), np.arange(r.size)) for r in raws)
    return long[0] if counts else None


def _raw(x: Any) -> np.ndarray:
    aval = aval_of(x)
    if getattr(aval.dtype, "impl", None) is not None:
        x = key_data(x)
    return np.asarray(x)


def _weights(
    program: Program, consts: Sequence[Any], params: Sequence[tuple[str, Any]]
) -> list[tuple[str, np.ndarray]]:
    """Return unique names and the values of the leading inputs."""
    names = _const_names(program, len(consts)) + [_weight_name(path) for path, _ in params]
    values = [*consts, *(leaf for _, leaf in params)]
    return list(zip(_unique(names), map(_raw, values), strict=True))


def _arguments(
    given: Sequence[tuple[str, Any]], count: int, after_params: bool
) -> tuple[list[str], list[str]]:
    """Return the names of the arguments, and the expressions of their leaves."""
    names = [f"x{i}" if count > 1 else "x" for i in range(count)]
    places = []
    for path, _ in given:
        number, rest = _split(path)
        places.append(f"{names[number - after_params]}{rest}")
    return names, places


def _split(path: str) -> tuple[int, str]:
    """Return the index of the argument, and the path of a leaf in it."""
    found = re.match(r"\[(\d+)\](.*)", path, re.DOTALL)
    assert found is not None
    return int(found.group(1)), found.group(2)


def _weight_name(path: str) -> str:
    """`['params']['Dense_0']['kernel']` as `params/Dense_0/kernel`."""
    return "/".join(re.findall(r"\w+", _split(path)[1])) or "params"


def _const_names(program: Program, count: int) -> list[str]:
    """Name closed-over values by the first module that reads them."""
    homes: dict[Var, str] = {}
    for e in program.equations:
        for x in e.ins:
            if isinstance(x, Var):
                homes.setdefault(x, "/".join(map(str, e.scope)) or "constant")
    return [f"{homes.get(v, 'unused')}/{'kernel' if v.aval.ndim > 1 else 'vector'}"
            for v in program.inputs[:count]]


def _unique(names: Sequence[str]) -> list[str]:
    """Make names unique by adding numbers."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        made.append(name if count == 1 else f"{name}_{count}")
    return made


def identifier(text: str) -> str:
    """Convert a text to a Python name, such as BatchNorm_0 to `batch_norm_0`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "model"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
