"""while: a loop that runs as long as a condition, a Program of its carry, holds.

Inputs are the condition's constants, the body's constants and the carry. In forward mode, the
tangents are part of the carry. Reverse mode runs the loop again from its inputs, see
`control.reverse_loop`. This module may import control.reverse_loop and the modules below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toile.control import division
from toile.control.call import Carrier, LoopCarrier, leading, map_where, move_mapped
from toile.control.loop_bodies import advanced, again, narrowed, widened
from toile.control.reverse_loop import check_effects, reverse_loop, transposed
from toile.engine import program_keys as key_uses
from toile.engine.avals import Aval
from toile.engine.equal_constants import given_twice, without_inputs
from toile.engine.key_uses import reads
from toile.engine.operation import Axis, Dim
from toile.engine.program import (
    Atom,
    Program,
    derive,
    evaluate,
    execute,
    rearranged,
    without_dead_code,
)
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.bounds import unchecked
from toile.primitives.families import instantiate, zeros
from toile.primitives.reductions import ReduceOr
from toile.primitives.rules import frame_rule
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import Split, split_program
from toile.transforms.masks import fill, fixed_point, nonzero_mask, pick, spread
from toile.transforms.vmap import vmap_program


@dataclass(frozen=True)
class While(LoopCarrier):
    """A loop that replaces the carry with `body(carry)` while `cond(carry)` is True."""

    cond: Program
    body: Program
    cond_consts: int
    body_consts: int
    # How many carries the backward pass keeps at each distance; None: it depends on their size.
    checkpoints: int | None = None
    jax_names = {"cond": "cond_jaxpr", "body": "body_jaxpr", "cond_consts": "cond_nconsts",
                 "body_consts": "body_nconsts"}
    kernel_family = "control.while"
    divide = division.while_loop
    key_use = key_uses.while_loop
    taylor = sparse = frame_rule("while_loop")
    checked = in_registers = with_index_tests = frame_rule("while_loop")

    turns = math.inf

    def programs(self) -> Sequence[Program]:
        return self.cond, self.body

    @property
    def overwrites(self) -> slice:
        return slice(self.cond_consts + self.body_consts, None)

    def _parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        a, b = self.cond_consts, self.cond_consts + self.body_consts
        return list(xs[:a]), list(xs[a:b]), list(xs[b:])

    def _with(self, cond: Program, body: Program, cond_consts: int, body_consts: int) -> While:
        return While(cond, body, cond_consts, body_consts, self.checkpoints)

    def without_duplicates(self, operands: Sequence[Atom]) -> tuple[While, list[Atom]] | None:
        c_consts, b_consts, carry = self._parts(operands)
        parts = []
        for program, consts in (self.cond, c_consts), (self.body, b_consts):
            same = given_twice(program, consts, range(len(consts)))
            kept = [a for a, v in zip(consts, program.inputs, strict=False) if v not in same]
            parts.append((without_inputs(program, same) if same else program, kept))
        (cond, c_kept), (body, b_kept) = parts
        if cond is self.cond and body is self.body:
            return None
        return self._with(cond, body, len(c_kept), len(b_kept)), [*c_kept, *b_kept, *carry]

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.body.out_avals

    def eager(self, xp: Any, *xs: Any) -> Any:
        c_consts, b_consts, carry = self._parts(xs)
        cond, body = self.cond, self.body
        while bool(execute(cond, [*c_consts, *carry])[0]):
            carry = list(execute(body, [*b_consts, *carry]))
        return carry

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        _, z_consts, z_carry = self._parts(nonzero_mask(tangents))
        c_consts, b_consts, carry = self._parts(primals)
        _, t_consts, t_carry = self._parts(tangents)
        z_carry, program = fixed_point(
            z_carry, lambda held: jvp_program(self.body, z_consts + held, held))
        k, n, d = self.body_consts, len(self.body.inputs), sum(z_consts)
        ins = [*range(k), *range(n, n + d), *range(k, n), *range(n + d, n + d + sum(z_carry))]
        body = rearranged(program, ins, range(len(program.outputs)))
        d_avals = [a.to_tangent_aval() for a in pick(self.body.in_avals[k:], z_carry)]
        cond = widened(self.cond, d_avals)
        op = self._with(cond, body, self.cond_consts, k + d)
        outs = op(*c_consts, *b_consts, *pick(t_consts, z_consts), *carry,
                  *map(instantiate, pick(t_carry, z_carry)))
        m = len(carry)
        return outs[:m], spread(outs[m:], z_carry, outs[:m])

    # ---- reverse mode
    def parts(self, l_consts: list[bool], l_carry: list[bool]) -> tuple[list[bool], Split]:
        """The carries that depend on linear inputs, and the body split by them."""
        passing = [False] * len(l_consts) + [True] * len(l_carry)

        def step(held: list[bool]) -> tuple[Split, list[bool]]:
            made = split_program(self.body, l_consts + held, held, passing)
            return made, made.is_linear

        return fixed_point(l_carry, step)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Run the carries that do not depend on linear inputs now; the others are one linear
        operation of all inputs."""
        check_effects(self.effects)
        _, l_consts, l_carry = self._parts(linear)
        l_carry, parts = self.parts(l_consts, l_carry)
        c_consts, b_consts, carry = self._parts(args)
        keep = [not z for z in l_carry]
        known_body = without_dead_code(Program(
            parts.known.inputs, parts.known.equations, parts.known.outputs[: sum(keep)],
            self.body.name))
        known_cond = narrowed(self.cond, [True] * self.cond_consts + keep)
        op = self._with(known_cond, known_body, self.cond_consts, l_consts.count(False))
        outs = op(*c_consts, *pick(b_consts, l_consts, False), *pick(carry, keep))
        return fill(outs, keep), LinearWhile(self, tuple(l_carry)), list(args)

    def vmap(self, axis: Axis, args: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        m_cond, m_body, m_carry = self._parts([d is not None for d in dims])

        def step(held: list[bool]) -> tuple[Program, list[bool]]:
            made, out_dims = vmap_program(self.body, axis, leading(m_body + held), held)
            return made, [d is not None for d in out_dims]

        m_carry, body = fixed_point(m_carry, step)
        cond, (pred_dim,) = vmap_program(self.cond, axis, leading(m_cond + m_carry))
        if pred_dim is not None and "io" in self.effects:
            raise NotImplementedError(
                "Unordered IO effects not supported in while_loop with batched predicate (the body "
                "also runs for examples that have stopped: needed a condition that is not mapped)"
                + here()
            )
        if pred_dim is not None:  # each example stops on its own: all carries are mapped
            m_carry = [True] * len(m_carry)
            body, _ = vmap_program(self.body, axis, leading(m_body + m_carry), m_carry)
            cond, _ = vmap_program(self.cond, axis, leading(m_cond + m_carry), [True])
        parts, part_dims = self._parts(args), self._parts(dims)
        c_consts, b_consts = (move_mapped(parts[i], part_dims[i], axis[1]) for i in (0, 1))
        carry = map_where(parts[2], part_dims[2], axis[1], m_carry)
        if pred_dim is None:
            op = self._with(cond, body, self.cond_consts, self.body_consts)
            return op(*c_consts, *b_consts, *carry), leading(m_carry)
        op = self._with_mapped_condition(cond, body)
        return op(*c_consts, *c_consts, *b_consts, *carry), leading(m_carry)

    def _with_mapped_condition(self, cond: Program, body: Program) -> While:
        """Loop while any example continues; finished examples keep their carry."""
        k = self.cond_consts
        alone = cond.out_avals[0].shape == (1,)  # the only example: it continues, or the loop ends

        def any_cond(*xs: Any) -> list[Any]:
            (pred,) = evaluate(cond, xs)
            return [ReduceOr((0,))(pred)]

        def masked(*xs: Any) -> list[Any]:
            c_consts, b_consts, carry = self._parts(xs)
            if alone:
                return evaluate(body, [*b_consts, *carry])
            (pred,) = evaluate(cond, [*c_consts, *map(again, carry)])
            outs = evaluate(unchecked(body), [*b_consts, *carry])  # also in finished examples
            return [
                advanced(pred, new, old)
                for new, old in zip(outs, carry, strict=True)
            ]

        c_avals = cond.in_avals[:k]
        new_cond = derive(any_cond, cond.in_avals, "while_cond")
        new_body = derive(masked, [*c_avals, *body.in_avals], "while_body")
        return self._with(new_cond, new_body, k, k + self.body_consts)


@dataclass(frozen=True)
class LinearWhile(Carrier):
    """The results of a while loop that depend on linear inputs."""

    loop: While
    keep: tuple[bool, ...]

    name = "while_linear"
    is_inlined = True
    key_use = reads  # the forward pass has already counted the uses

    def programs(self) -> Sequence[Program]:
        loop = self.loop
        avals = [*loop.cond.in_avals[: loop.cond_consts], *loop.body.in_avals]
        run = lambda *xs: pick(loop(*xs), self.keep)
        return (loop.body.memoized(("linear", self), lambda: derive(run, avals, "while_linear")),)

    def called_program(self) -> Program:
        return self.programs()[0]

    def infer(self, *avals: Aval) -> list[Aval]:
        return pick(self.loop.infer(*avals), self.keep)

    def eager(self, xp: Any, *xs: Any) -> Any:
        return execute(self.called_program(), xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs, douts = self.loop.jvp(primals, tangents)
        return pick(outs, self.keep), pick(douts, self.keep)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        outs, out_dims = self.loop.vmap(axis, xs, dims)
        return pick(outs, self.keep), pick(out_dims, self.keep)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        loop = self.loop
        c_consts, b_consts, carry = loop._parts(xs)
        l_consts = [type(v) is Aval for v in b_consts]
        l_carry, parts = loop.parts(l_consts, list(self.keep))
        keep = [not z for z in l_carry]
        cond = narrowed(loop.cond, [True] * loop.cond_consts + keep)
        visits, fixed, m_consts, m_carry = transposed(
            While, loop.checkpoints, cond, parts, l_consts, l_carry, nonzero_mask(ct))
        known = pick(b_consts, l_consts, False)
        state = [zeros(a.strip_weak_type()) for a in pick(pick(b_consts, l_consts), m_consts)]
        state += [instantiate(c) for c in pick(ct, m_carry)]
        found = reverse_loop(visits)(*c_consts, *known, *[known[i] for i in fixed],
                                     *pick(carry, keep), *state)
        rest = iter(fill(found, m_consts + m_carry))
        back = [next(rest) if z else None for z in [*l_consts, *l_carry]]
        # A linear carry may start from a known value: the zeros of an instantiated tangent.
        return tuple(r if type(v) is Aval else None
                     for r, v in zip([None] * len(c_consts) + back, xs, strict=True))
