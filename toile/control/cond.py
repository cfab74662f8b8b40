"""cond and switch: one of several Programs, chosen by an index.

The first operand is an int32 scalar, clamped to the indices of the branches. A mapped index runs
every branch and selects; a branch with loops or matrix decompositions runs only if at least one
example takes it. This module may import control.call and the modules below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.control import division
from toile.control.call import (
    Carrier,
    LoopCarrier,
    leading,
    map_where,
    move_mapped,
    program_flops,
)
from toile.engine import dtypes
from toile.engine import program_keys as key_uses
from toile.engine.avals import Aval
from toile.engine.equal_constants import given_twice, without_inputs
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import (
    Atom,
    Program,
    derive,
    evaluate,
    execute,
    used_vars,
    without_dead_code,
)
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trace import state
from toile.primitives.barriers import stop_gradient
from toile.primitives.bits import eq
from toile.primitives.bounds import unchecked
from toile.primitives.elementwise import clamp, convert, select_n
from toile.primitives.families import bdim_at, broadcast_in_dim, instantiate, scalar
from toile.primitives.linalg import MatrixOperation
from toile.primitives.random import blank
from toile.primitives.reductions import ReduceOr
from toile.primitives.rules import frame_rule
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import Split, split_program
from toile.transforms.masks import fill, nonzero_mask, pick, spread
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_flat, vmap_program


def _union(masks: Sequence[Sequence[bool]]) -> list[bool]:
    return [any(column) for column in zip(*masks, strict=True)]


@dataclass(frozen=True)
class Cond(Carrier):
    """The result of `branches[index](*operands)`; all branches accept and return the same avals."""

    branches: tuple[Program, ...]
    kernel_family = "control.cond"
    chooses_program = True
    divide = division.cond
    key_use = key_uses.cond
    taylor = sparse = frame_rule("cond")
    checked = in_registers = with_index_tests = frame_rule("cond")

    def programs(self) -> Sequence[Program]:
        return self.branches

    def taken(self, index: Any) -> Program:
        """The branch that an index selects; the index is clamped."""
        return self.branches[min(max(int(index), 0), len(self.branches) - 1)]

    def without_duplicates(self, operands: Sequence[Atom]) -> tuple[Cond, list[Atom]] | None:
        index, *xs = operands
        same = [given_twice(b, xs, range(len(xs))) for b in self.branches]
        if not same[0]:
            return None
        first = self.branches[0].inputs
        kept = [a for a, v in zip(xs, first, strict=True) if v not in same[0]]
        made = [without_inputs(b, s) for b, s in zip(self.branches, same, strict=True)]
        return Cond(tuple(made)), [index, *kept]

    def infer(self, index: Aval, *avals: Aval) -> list[Aval]:
        outs = [b.out_avals for b in self.branches]
        return [
            Aval(os[0].shape, os[0].dtype, all(o.weak_type for o in os))
            for os in zip(*outs, strict=True)
        ]

    def eager(self, xp: Any, index: Any, *xs: Any) -> Any:
        return execute(self.taken(index), xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        index, *xs = primals
        nonzero = nonzero_mask(tangents[1:])
        wanted = _union([jvp_program(b, nonzero)[1] for b in self.branches])
        programs = tuple(jvp_program(b, nonzero, wanted)[0] for b in self.branches)
        outs = Cond(programs)(index, *xs, *pick(tangents[1:], nonzero))
        n = len(wanted)
        return outs[:n], spread(outs[n:], wanted, outs[:n])

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        index, *xs = args
        moving = linear[1:]
        forced = _union([split_program(b, moving).is_linear for b in self.branches])
        passing = [True] * len(moving)
        parts = [split_program(b, moving, forced, passing) for b in self.branches]
        n = sum(not z for z in forced)
        residuals = [list(p.residuals) for p in parts]
        known = tuple(_padded_outputs(p.known, n, residuals, i) for i, p in enumerate(parts))
        outs = Cond(known)(index, *pick(xs, moving, False))
        if not any(forced):
            return outs[:n], None, None
        linear_branches = tuple(_offset_inputs(p, residuals, i) for i, p in enumerate(parts))
        linear_args = [index, *outs[n:], *pick(xs, moving)]
        return parts[0].known_outputs(outs[:n]), Cond(linear_branches), linear_args

    def transpose(self, ct: Any, index: Any, *xs: Any) -> Any:
        linear = [type(x) is Aval for x in xs]
        arriving = nonzero_mask(ct)
        made = [transpose_program(b, linear, arriving) for b in self.branches]
        wanted = _union([nonzero for _, nonzero in made])
        avals = [a.strip_weak_type() for a in pick(xs, linear)]
        programs = tuple(_filled(p, nz, wanted, avals) for p, nz in made)
        outs = Cond(programs)(index, *pick(xs, linear, False), *pick(ct, arriving))
        return (None, *fill(spread(outs, wanted, pick(xs, linear)), linear))

    def vmap(self, axis: Axis, args: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (index, *xs), (d_index, *d_xs) = args, dims
        size = axis[1]
        if d_index is not None:
            return self._vmap_index(axis, bdim_at(index, d_index, size), xs, d_xs)
        mapped = leading([d is not None for d in d_xs])
        found = [vmap_program(b, axis, mapped)[1] for b in self.branches]
        wanted = _union([[d is not None for d in ds] for ds in found])
        programs = tuple(vmap_program(b, axis, mapped, wanted)[0] for b in self.branches)
        outs = Cond(programs)(index, *move_mapped(xs, d_xs, size))
        return outs, leading(wanted)

    def _vmap_index(self, axis: Axis, index: Any, xs: Sequence[Any],
                    dims: Sequence[Dim]) -> tuple[Any, Any]:
        """Run all branches, and select for each example the result of its own index."""
        if "io" in self.effects:
            raise NotImplementedError(
                "IO effect not supported in vmap-of-cond. (with a mapped index, all "
                f"branches run: needed an index that is not mapped){here()}"
            )
        size = axis[1]
        results = []
        last = scalar(len(self.branches) - 1, np.int32)
        which = clamp(scalar(0, np.int32), index, last)
        for i, b in enumerate(self.branches):
            given, taken = xs, eq(which, scalar(i, np.int32))
            if state.trace is not None:  # the result may be differentiated
                given = [_moving_where(taken, x, d) for x, d in zip(xs, dims, strict=True)]
            run = unchecked(b)  # it also runs in examples that take another branch
            if _is_expensive(run):
                results.append(_vmap_if_taken(run, axis, taken, given, dims))
                continue
            outs, found = vmap_flat(lambda *a, b=run: evaluate(b, a), axis, given, dims)
            results.append(map_where(outs, found, size))
        chosen: list[Any] = []
        out_dims: list[Dim] = []
        for i, cases in enumerate(zip(*results, strict=True)):
            same = self._operand_of_result(i)
            if same is not None and dims[same] is None:
                chosen.append(xs[same])
                out_dims.append(None)
                continue
            out_dims.append(0)
            spread_index = broadcast_in_dim(which, cases[0].shape, (0,))
            chosen.append(select_n(spread_index, *cases))
        return chosen, out_dims

    def _operand_of_result(self, i: int) -> int | None:
        """The number of the operand that every branch returns unchanged as result `i`, if any."""
        places = {b.inputs.index(o) if (o := b.outputs[i]) in b.inputs else None
                  for b in self.branches}
        return places.pop() if len(places) == 1 else None

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        small = [without_dead_code(b, used) for b in self.branches]
        live = [used_vars(s) for s in small]
        kept = _union([[v in vs for v in s.inputs] for s, vs in zip(small, live, strict=True)])
        programs = tuple(Program(pick(s.inputs, kept), s.equations, s.outputs, s.name)
                         for s in small)
        return Cond(programs), [True, *kept], list(used)

    def flops(self, *avals: Aval) -> int:
        return max(program_flops(b) for b in self.branches)


def _moving_where(taken: Any, x: Any, dim: Dim) -> Any:
    """An operand whose derivatives are cut off in examples that do not take the branch.

    In these examples, the branch may divide by zero, which would turn a zero cotangent into NaN."""
    if dim is None or dtypes.kind(x.dtype) not in "fc":
        return x
    return select_n(broadcast_in_dim(taken, x.shape, (dim,)), stop_gradient(x), x)


def _is_expensive(branch: Program) -> bool:
    """Whether a branch is so long that testing whether any example takes it is worthwhile."""
    return not branch.effects and not branch.axis_names and _has_long_operations(branch)


def _has_long_operations(program: Program) -> bool:
    return any(isinstance(e.op, LoopCarrier | MatrixOperation)
               or any(map(_has_long_operations, e.op.programs())) for e in program.equations)


def _vmap_if_taken(branch: Program, axis: Axis, taken: Any, xs: Sequence[Any],
                   dims: Sequence[Dim]) -> Any:
    """The results of a branch for all examples, or zeros if no example takes it."""
    every, _ = vmap_program(branch, axis, leading([d is not None for d in dims]), True)
    none = derive(lambda *_: [blank(a) for a in every.out_avals], every.in_avals, branch.name)
    index = convert(ReduceOr((0,))(taken), np.dtype(np.int32))
    return Cond((none, every))(index, *move_mapped(xs, dims, axis[1]))


def _padded_outputs(program: Program, n: int, residuals: Sequence[Sequence[Aval]],
                    mine: int) -> Program:
    """A Program of the known outputs and then the residuals of all branches, where those of other
    branches are zeros."""

    def run(*xs: Any) -> list[Any]:
        outs = evaluate(program, xs)
        result, own = outs[:n], outs[n:]
        for i, avals in enumerate(residuals):
            result += own if i == mine else [blank(a) for a in avals]
        return result

    return derive(run, program.in_avals, program.name)


def _offset_inputs(part: Split, residuals: Sequence[Sequence[Aval]], mine: int) -> Program:
    """The linear part of a branch, as a function of the residuals of all branches."""
    before = sum(len(r) for r in residuals[:mine])
    count = len(residuals[mine])
    total = sum(len(r) for r in residuals)
    flat = [a for r in residuals for a in r]
    linear_avals = part.linear.in_avals[count:]

    def run(*xs: Any) -> list[Any]:
        return evaluate(part.linear, [*xs[before : before + count], *xs[total:]])

    return derive(run, [*flat, *linear_avals], part.linear.name)


def _filled(program: Program, nonzero: Sequence[bool], wanted: Sequence[bool],
            avals: Sequence[Aval]) -> Program:
    """The Program with arrays of zeros for cotangents that only other branches have."""

    def run(*xs: Any) -> list[Any]:
        found = spread(evaluate(program, xs), nonzero, avals)
        return [instantiate(f) for f, w in zip(found, wanted, strict=True) if w]

    return derive(run, program.in_avals, program.name)
