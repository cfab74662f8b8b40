"""Move work out of loops: what does not depend on the previous step is computed before or after.

For each scan, in order:

  constants    inputs that are the same in every step, and carries that never change
  before       what depends on constants only; products of constants and per-step inputs, for all
               steps at once; results that are the same in every step are broadcast
  after        products that only a stacked result needs, for all steps at once; sums over the
               steps, acc' = acc + L(x_t y_t) with a linear L:   acc + L(Σ_t x_t y_t)
  residuals    what the loop that reads them can compute again (see `scan_residuals`)

A recurrent network keeps one product per step; the gradients of its weights are one large product.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from toile.compiler.passes.joined_products import join_products, stack_together
from toile.compiler.passes.rewriter import is_zero, splice
from toile.compiler.passes.scan_residuals import Residuals
from toile.control.scan import Scan
from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.primitives.families import BroadcastInDim, add
from toile.transforms.vmap import vmap_program

MOST_BYTES = 1 << 30  # of the values that are stacked for a product after the loop
MOST_STACKED = 4  # times the bytes of a sum of products, which would be stacked instead


class Loop:
    """A scan taken apart; each list has one entry per constant, carry, input or result."""

    def __init__(self, e: Equation, body: Program):
        op: Any = e.op
        a, b = op.consts, op.consts + op.carry
        self.equation, self.op = e, op
        self.consts = list(zip(body.inputs[:a], e.ins[:a], strict=True))
        self.xs = list(zip(body.inputs[b:], e.ins[b:], strict=True))
        n = op.carry
        self.carries = list(
            zip(body.inputs[a:b], e.ins[a:b], body.outputs[:n], e.outs[:n], strict=True))
        self.ys = list(zip(body.outputs[n:], e.outs[n:], strict=True))
        self.equations = list(body.equations)
        self.before: list[Equation] = []
        self.after: list[Equation] = []
        self.results: dict[Atom, Atom] = {}  # what replaces results of the scan

    # ---- building code outside the loop
    def outside(self, op: Operation, ins: Sequence[Atom], late: bool = False) -> Var:
        """Add an equation before or after the loop; returns its result."""
        out = Var(infer_list(op, [a.aval for a in ins])[0])
        e = Equation(op, list(ins), [out], self.equation.source, self.equation.scope)
        (self.after if late else self.before).append(e)
        return out

    def inlined(self, program: Program, args: Sequence[Atom], late: bool = False) -> list[Atom]:
        """Add the equations of a Program before or after the loop; returns its results."""
        keep = (self.after if late else self.before).append
        return splice(program, args, keep, self.equation, nested=True)

    def mapped(self, part: Program, args: Sequence[Atom], differ: Sequence[bool],
               late: bool = False) -> list[Atom]:
        """Compute a part of the body for all steps at once; `differ`: which arguments vary."""
        dims = [0 if d else None for d in differ]
        program, _ = vmap_program(part, (None, self.op.length), dims, True)
        return self.inlined(program, args, late)

    def producers(self) -> dict[Atom, Equation]:
        return {o: e for e in self.equations for o in e.outs}

    def uses(self) -> dict[Atom, int]:
        """How often each variable of the body is read, by equations and results."""
        atoms = [a for e in self.equations for a in e.ins]
        return Counter([*atoms, *(c[2] for c in self.carries), *(y for y, _ in self.ys)])

    # ---- all steps at once
    def stacked(self, a: Var) -> tuple[Atom, bool]:
        """The values of a body variable in all steps, and whether they differ from step to step."""
        for inside, value in self.consts:
            if inside is a:
                return value, False
        for inside, value in self.xs:
            if inside is a:
                return value, True
        for y, out in self.ys:
            if y is a:
                return out, True
        out = Var(Aval((self.op.length, *a.aval.shape), a.aval.dtype, a.aval.weak_type))
        self.ys.append((a, out))
        return out, True

    def stacking(self, atoms: Sequence[Var]) -> int:
        """The bytes of the variables that must be stacked to be available after the loop."""
        there = {inside for inside, _ in (*self.consts, *self.xs)} | {y for y, _ in self.ys}
        return sum(a.aval.nbytes for a in atoms if a not in there) * self.op.length

    def program(self) -> Program:
        """The current body, without dead code."""
        inputs = [c[0] for c in self.consts] + [c[0] for c in self.carries]
        inputs += [x[0] for x in self.xs]
        outputs = [c[2] for c in self.carries] + [y[0] for y in self.ys]
        return without_dead_code(Program(inputs, self.equations, outputs, self.op.program.name))

    def rebuilt(self) -> list[Equation]:
        """The equations that replace the scan."""
        body = self.program()
        read = {a for e in body.equations for a in e.ins} | set(body.outputs)
        self.consts = [c for c in self.consts if c[0] in read]
        self.xs = [x for x in self.xs if x[0] in read]
        body = self.program()
        op = Scan(body, len(self.consts), len(self.carries), self.op.length, self.op.reverse,
                  self.op.unroll)
        ins = [c[1] for c in self.consts] + [c[1] for c in self.carries] + [x[1] for x in self.xs]
        outs = [c[3] for c in self.carries] + [y[1] for y in self.ys]
        middle = [Equation(op, ins, outs, self.equation.source, self.equation.scope)]
        if not outs and not body.effects:
            middle = []
        return [*self.before, *middle, *self.after]


def hoist_from_scans(program: Program, prepare: Callable[[Program], Program],
                     joins_results: bool = False) -> Program:
    """The Program with less work in its scans; `prepare` runs the passes over their bodies, and
    `joins_results` says whether products with one operand are joined."""
    if not any(map(_is_counted, program.equations)):
        return program
    env: dict[Atom, Atom] = {}
    made: dict[Atom, Equation] = {}
    equations: list[Equation] = []
    residuals = Residuals(program, _is_counted)
    for e in program.equations:
        e = Equation(e.op, [env.get(a, a) for a in e.ins], e.outs, e.source, e.scope)
        new = [e]
        if _is_counted(e) and e.op.turns > 1:
            loop = Loop(e, prepare(e.op.programs()[0]))
            _find_constants(loop, made)
            _hoist_invariants(loop)
            _hoist_products(loop)
            parts = join_products(loop, joins_results)
            _sink_sums(loop, made)
            _sink_products(loop)
            stack_together(loop, parts)
            residuals.compute(loop)
            residuals.note(loop)
            new = loop.rebuilt()
            env.update(loop.results)
        equations += new
        made.update({o: x for x in new for o in x.outs})
    outputs = [env.get(o, o) for o in program.outputs]
    return without_dead_code(Program(program.inputs, equations, outputs, program.name))


def _is_counted(e: Equation) -> bool:
    """Whether an equation is a loop whose number of steps is known in advance: a scan."""
    return e.op.turns not in (None, math.inf)


# ---- constants


def _find_constants(loop: Loop, made: dict[Atom, Equation]) -> None:
    """Turn inputs that are the same in every step and unchanged carries into constants."""
    xs = []
    for inside, value in loop.xs:
        e = made.get(value)
        op = None if e is None else e.op.repeated()
        if e is not None and op is not None:
            one: Atom = e.ins[0]
            if one.aval.shape != inside.aval.shape:
                one = loop.outside(op, [one])
            loop.consts.append((inside, one))
        else:
            xs.append((inside, value))
    loop.xs = xs
    carries = []
    for inside, value, out, result in loop.carries:
        if out is inside:  # it never changes
            loop.consts.append((inside, value))
            loop.results[result] = value
        else:
            carries.append((inside, value, out, result))
    loop.carries = carries


# ---- before the loop


def _hoist_invariants(loop: Loop) -> None:
    """Compute what depends only on constants before the loop."""
    known: dict[Atom, Atom] = dict(loop.consts)
    waiting: dict[Atom, Equation] = {}  # views of constants: moved only with a reader
    for e in loop.equations:
        if e.effects or len(e.outs) != 1:
            continue
        read = [a for a in e.ins if a.__class__ is not Literal]
        if not read or not all(a in known or a in waiting for a in read):
            continue
        if e.op.is_free:
            waiting[e.outs[0]] = e
            continue
        known[e.outs[0]] = _moved_out(loop, e, known, waiting)
        loop.consts.append((e.outs[0], known[e.outs[0]]))
    loop.equations = [e for e in loop.equations if not e.outs or e.outs[0] not in known]
    _hoist_results(loop, known, waiting)


def _hoist_results(loop: Loop, known: dict[Atom, Atom], waiting: dict[Atom, Equation]) -> None:
    """Compute results that are the same in every step, or equal to an input, without the loop."""
    ys = []
    for y, result in loop.ys:
        if y in waiting and y not in known:
            known[y] = _moved_out(loop, waiting[y], known, waiting)
        same = y if y.__class__ is Literal else known.get(y)
        if same is not None:
            shape = (loop.op.length, *y.aval.shape)
            dims = tuple(range(1, len(shape)))
            loop.results[result] = loop.outside(BroadcastInDim(shape, dims), [same])
            continue
        source = next((v for x, v in loop.xs if x is y), None)
        if source is not None:  # an input that is stacked again
            loop.results[result] = source
            continue
        ys.append((y, result))
    loop.ys = ys


def _moved_out(loop: Loop, e: Equation, known: dict[Atom, Atom],
               waiting: dict[Atom, Equation]) -> Var:
    """Move an equation of the body, and the views that it reads, before the loop."""
    ins = [known.get(a, a) if a.__class__ is Literal or a in known
           else _moved_out(loop, waiting[a], known, waiting) for a in e.ins]
    return loop.outside(e.op, ins)


def _hoist_products(loop: Loop) -> None:
    """Compute products of per-step inputs and constants before the loop, for all steps at once."""
    by_step: set[Atom] = {x for x, _ in loop.xs}
    fixed: set[Atom] = {c for c, _ in loop.consts}
    made = loop.producers()
    moved = []
    for e in loop.equations:
        read = {a for a in e.ins if a.__class__ is Var}
        if e.effects or not all(a in by_step or a in fixed for a in read):
            continue
        if read & by_step:
            by_step.update(e.outs)
            if e.op.multiplies:
                moved.append(e)
        elif e.op.is_free and e.ins:
            fixed.update(e.outs)
    for e in moved:
        if e in loop.equations:
            _hoist_product(loop, e, made)


def _hoist_product(loop: Loop, e: Equation, made: dict[Atom, Equation]) -> None:
    """Move an equation and all it depends on before the loop, with the steps as a mapped axis."""
    needed = _ancestors(e, made)
    read = {a for x in needed for a in x.ins}
    consts = [c for c in loop.consts if c[0] in read]
    xs = [x for x in loop.xs if x[0] in read]
    part = Program([v for v, _ in (*consts, *xs)], needed, e.outs, "steps")
    differ = [False] * len(consts) + [True] * len(xs)
    outer = loop.mapped(part, [a for _, a in (*consts, *xs)], differ)
    loop.equations = [x for x in loop.equations if x is not e]
    loop.xs += list(zip(e.outs, outer, strict=True))


def _ancestors(e: Equation, made: dict[Atom, Equation]) -> list[Equation]:
    """The equations of the body that an equation depends on, itself last."""
    found: list[Equation] = []

    def visit(x: Equation) -> None:
        for a in x.ins:
            if a in made and made[a] not in found:
                visit(made[a])
        found.append(x)

    visit(e)
    return found


# ---- after the loop


def _sink_sums(loop: Loop, outside: dict[Atom, Equation]) -> None:
    """Replace carries that only accumulate a linear function of a product or sum; `outside` are the
    equations before the loop."""
    made, uses = loop.producers(), loop.uses()
    kept = []
    totals: dict[Atom, Atom] = {}
    for inside, value, out, result in loop.carries:
        chain = _accumulated(inside, out, made, uses)
        total = None if chain is None else _summed(loop, totals, *chain)
        if total is None:
            kept.append((inside, value, out, result))
            continue
        zero = _is_filled_with_zeros(value, outside)
        loop.results[result] = total if zero else loop.outside(add, [value, total], late=True)
    loop.carries = kept


def _is_filled_with_zeros(a: Atom, made: dict[Atom, Equation]) -> bool:
    """Whether an array was made from a literal that is zero."""
    e = made.get(a)
    return is_zero(a) or e is not None and e.op.is_view and is_zero(e.ins[0])


def _accumulated(inside: Var, out: Atom, made: dict[Atom, Equation],
                 uses: dict[Atom, int]) -> tuple[Equation, list[Operation]] | None:
    """What is added to a carry: a product or sum, and the linear operations applied to it."""
    if not isinstance(out, Var) or uses.get(inside) != 1 or uses.get(out) != 1:
        return None
    e = made.get(out)
    if e is None or not e.op.is_sum:
        return None
    others = [a for a in e.ins if a is not inside]
    if len(others) != 1:
        return None
    term = others[0]
    chain: list[Operation] = []
    while (source := made.get(term)) is not None:
        if source.op.commutes_with_sums:
            chain.insert(0, source.op)
            term = source.ins[0]
        else:
            return None if source.op.summed_over_steps() is None else (source, chain)
    return None


def _summed(loop: Loop, totals: dict[Atom, Atom], root: Equation,
            chain: list[Operation]) -> Atom | None:
    """The sum over all steps of a product or sum, followed by linear operations; `totals` are the
    sums that there are."""
    total = totals.get(root.outs[0])
    if total is None:
        ins = _variables(root)
        if ins is None or loop.stacking(ins) > MOST_BYTES:
            return None
        stacked = [loop.stacked(a) for a in ins]
        if not all(differs for _, differs in stacked):
            return None
        total = totals[root.outs[0]] = loop.outside(
            root.op.summed_over_steps(), [x for x, _ in stacked], late=True)
    for op in chain:
        total = loop.outside(op, [total], late=True)
    return total


def _variables(e: Equation) -> list[Var] | None:
    """The operands of an equation; None if one is a literal."""
    found = [a for a in e.ins if isinstance(a, Var)]
    return found if len(found) == len(e.ins) else None


def _sink_products(loop: Loop) -> None:
    """Compute products, and sums of products, that only a stacked result needs after the loop, for
    all steps at once."""
    made, uses = loop.producers(), loop.uses()
    ys = []
    for y, result in list(loop.ys):
        found = _sum_of_products(y, made, uses) or []
        ins = list(dict.fromkeys(a for e in found for a in e.ins
                                 if isinstance(a, Var) and made.get(a) not in found))
        most = MOST_BYTES if len(found) == 1 else MOST_STACKED * y.aval.nbytes * loop.op.length
        if not found or loop.stacking(ins) > min(MOST_BYTES, most):
            ys.append((y, result))
            continue
        before = len(loop.ys)
        stacked = [loop.stacked(v) for v in ins]
        ys += loop.ys[before:]
        part = Program(ins, found, [y], "steps")
        loop.results[result] = loop.mapped(
            part, [a for a, _ in stacked], [differs for _, differs in stacked], late=True)[0]
    loop.ys = ys


def _sum_of_products(y: Atom, made: dict[Atom, Equation],
                     uses: dict[Atom, int]) -> list[Equation] | None:
    """The equations of a product, or of a sum of products, that is read once; None if a variable is
    something else."""
    e = made.get(y) if uses.get(y) == 1 else None
    if e is None or e.effects or _variables(e) is None:
        return None
    if e.op.multiplies and e.op.summed_over_steps() is not None:
        return [e]
    parts = [_sum_of_products(a, made, uses) for a in e.ins] if e.op.is_sum else [None]
    found = [x for part in parts for x in part or ()]
    return None if None in parts else [*found, e]
