"""while: a loop that runs as long as a condition, a Program of its carry, holds.

Inputs are the condition's constants, the body's constants and the carry. In forward mode, the
tangents are part of the carry. Reverse mode raises an error, because the number of steps is not
known in advance. May import control.call and below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toile.control import division
from toile.control.call import LoopCarrier, leading, map_where, move_mapped
from toile.engine import dtypes
from toile.engine import program_keys as key_uses
from toile.engine.avals import Aval
from toile.engine.check_switch import keys_checked
from toile.engine.key_uses import reads
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import Program, derive, evaluate, execute, rearranged
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.elementwise import select
from toile.primitives.families import broadcast_in_dim, instantiate
from toile.primitives.random import random_clone
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
    kernel_family = "control.while"
    divide = division.while_loop
    key_use = key_uses.while_loop
    taylor = frame_rule("while_loop")
    checked = in_registers = frame_rule("while_loop")

    turns = math.inf

    def programs(self) -> Sequence[Program]:
        return self.cond, self.body

    @property
    def overwrites(self) -> slice:
        return slice(self.cond_consts + self.body_consts, None)

    def _parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        a, b = self.cond_consts, self.cond_consts + self.body_consts
        return list(xs[:a]), list(xs[a:b]), list(xs[b:])

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
        op = While(cond, body, self.cond_consts, k + d)
        outs = op(*c_consts, *b_consts, *pick(t_consts, z_consts), *carry,
                  *map(instantiate, pick(t_carry, z_carry)))
        m = len(carry)
        return outs[:m], spread(outs[m:], z_carry, outs[:m])

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Run the carries that do not depend on linear inputs now; the loop runs again for the
        others, as one operation that can be applied but not transposed."""
        _, l_consts, l_carry = self._parts(linear)

        def step(held: list[bool]) -> tuple[Split, list[bool]]:
            made = split_program(self.body, l_consts + held, held)
            return made, made.is_linear

        l_carry, parts = fixed_point(l_carry, step)
        c_consts, b_consts, carry = self._parts(args)
        keep = [not z for z in l_carry]
        known_body = Program(parts.known.inputs, parts.known.equations,
                             parts.known.outputs[: sum(keep)], self.body.name)
        known_cond = narrowed(self.cond, [True] * self.cond_consts + keep)
        op = While(known_cond, known_body, self.cond_consts, l_consts.count(False))
        outs = op(*c_consts, *pick(b_consts, l_consts, False), *pick(carry, keep))
        return fill(outs, keep), LinearWhile(self, tuple(l_carry)), list(args)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        raise reverse_mode_error()

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
            op = While(cond, body, self.cond_consts, self.body_consts)
            return op(*c_consts, *b_consts, *carry), leading(m_carry)
        op = self._with_mapped_condition(cond, body)
        return op(*c_consts, *c_consts, *b_consts, *carry), leading(m_carry)

    def _with_mapped_condition(self, cond: Program, body: Program) -> While:
        """Loop while any example continues; finished examples keep their carry."""
        k = self.cond_consts

        def any_cond(*xs: Any) -> list[Any]:
            (pred,) = evaluate(cond, xs)
            return [ReduceOr((0,))(pred)]

        def masked(*xs: Any) -> list[Any]:
            c_consts, b_consts, carry = self._parts(xs)
            (pred,) = evaluate(cond, [*c_consts, *map(_again, carry)])
            outs = evaluate(body, [*b_consts, *carry])
            return [
                _advanced(broadcast_in_dim(pred, new.shape, (0,)), new, old)
                for new, old in zip(outs, carry, strict=True)
            ]

        c_avals = cond.in_avals[:k]
        new_cond = derive(any_cond, cond.in_avals, "while_cond")
        new_body = derive(masked, [*c_avals, *body.in_avals], "while_body")
        return While(new_cond, new_body, k, k + self.body_consts)


def _again(x: Any) -> Any:
    """A carry that more than one step reads; keys are cloned if their uses are counted."""
    return random_clone(x) if keys_checked() and dtypes.is_extended(x.dtype) else x


def _advanced(going: Any, new: Any, old: Any) -> Any:
    """The new carry for examples that continue, the old one for the others."""
    return _again(select(going, new, _again(old)))


def reverse_mode_error() -> Exception:
    return ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with "
        "dynamic start/stop values: needed a number of steps that is known while tracing, got a "
        "condition on the carry (use lax.scan, or fori_loop with Python integer bounds, or "
        f"forward mode: jvp, jacfwd){here()}"
    )


def widened(program: Program, extra: Sequence[Aval]) -> Program:
    """The Program with more inputs at the end, which it ignores."""
    n = len(program.inputs)
    return derive(lambda *xs: evaluate(program, xs[:n]), [*program.in_avals, *extra], program.name)


def narrowed(program: Program, keep: Sequence[bool]) -> Program:
    """The Program without some inputs, which it must not read."""
    return Program(pick(program.inputs, keep), program.equations, program.outputs, program.name)


@dataclass(frozen=True)
class LinearWhile(Operation):
    """The results of a while loop that depend on linear inputs."""

    loop: While
    keep: tuple[bool, ...]
    multiple = True
    interned = False
    key_use = reads  # the forward pass has already counted the uses

    def infer(self, *avals: Aval) -> list[Aval]:
        return pick(self.loop.infer(*avals), self.keep)

    def eager(self, xp: Any, *xs: Any) -> Any:
        return pick(self.loop.eager(xp, *xs), self.keep)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs, douts = self.loop.jvp(primals, tangents)
        return pick(outs, self.keep), pick(douts, self.keep)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        outs, out_dims = self.loop.vmap(axis, xs, dims)
        return pick(outs, self.keep), pick(out_dims, self.keep)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        raise reverse_mode_error()
