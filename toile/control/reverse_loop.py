"""The backward pass of a while loop: visits to its iterations, from the last to the first.

The operation is a call to the Program that `control.loop_tape` makes. Its derivative and its mapped
form are visits to the iterations of the derived loop. This module may import control.call,
loop_bodies, loop_tape and the modules below them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import Call, leading, map_where, move_mapped
from toile.control.loop_bodies import advanced, again, widened
from toile.control.loop_tape import Room, Visits, cut
from toile.control.scan import backward_body
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.key_uses import reads
from toile.engine.operation import Axis, Dim
from toile.engine.program import Program, derive, evaluate, rearranged, used_vars, without_dead_code
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.families import instantiate
from toile.primitives.reductions import ReduceOr
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import Split
from toile.transforms.masks import fixed_point, nonzero_mask, pick, spread
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program

_BYTES = 2**17  # for the carries kept at each distance, and for the tape
_MOST_ROWS, _FEWEST_ROWS = 256, 8
_MOST_CHOSEN = 2**20  # rows that a user can choose


@dataclass(frozen=True)
class ReverseLoop(Call):
    """Runs a while loop, and then visits its iterations, the last one first."""

    visits: Visits | None = None

    name = "while_transpose"
    title = "backward pass of while_loop"
    key_use = reads  # the forward pass has already counted the uses

    def with_program(self, program: Program) -> Call:
        return Call(program, self.label)  # other derived forms are plain calls

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        v = self._visits()
        z_cond, z_body, z_visit, z_carry, z_state = v.parts(nonzero_mask(tangents))
        n, m, saved = v.carry, len(v.visit.outputs), len(v.saved)

        def step(held: list[bool]) -> tuple[Any, list[bool]]:
            made = jvp_program(v.body, z_body + held, held + [False] * saved)
            return made, made[1][:n]

        z_carry, (body, moving) = fixed_point(z_carry, step)
        z_saved = moving[n:]
        z_state, (visit, _) = fixed_point(
            z_state, lambda held: _with_mask(jvp_program(v.visit, z_visit + z_saved + held, held)))
        body = rearranged(body, _paired([len(z_body), n], [z_body, z_carry]),
                          _paired([n, saved], [z_carry, z_saved]))
        visit = rearranged(visit, _paired([len(z_visit), saved, m], [z_visit, z_saved, z_state]),
                           range(len(visit.outputs)))
        d_carry = [a.to_tangent_aval() for a in
                   pick(v.body.in_avals[v.body_consts :], z_carry)]
        made = v._replace(cond=widened(v.cond, d_carry), body=body, visit=visit,
                          body_consts=len(z_body) + sum(z_body),
                          visit_consts=len(z_visit) + sum(z_visit))
        ps, ts = v.parts(primals), v.parts(tangents)
        args = list(ps[0])
        for p, t, z in zip(ps[1:], ts[1:], (z_body, z_visit, z_carry, z_state), strict=True):
            args += [*p, *map(instantiate, pick(t, z))]
        outs = reverse_loop(made)(*args)
        return outs[:m], spread(outs[m:], z_state, outs[:m])

    def vmap(self, axis: Axis, args: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        v, size = self._visits(), axis[1]
        masks = v.parts([d is not None for d in dims])
        m_cond, m_body, m_visit, m_carry, m_state = masks
        n = v.carry

        def step(held: list[bool]) -> tuple[Any, list[bool]]:
            saved = [False] * len(v.saved)
            made = vmap_program(v.body, axis, leading(m_body + held), held + saved)
            return made, [d is not None for d in made[1][:n]]

        m_carry, (body, out_dims) = fixed_point(m_carry, step)
        cond, (pred_dim,) = vmap_program(v.cond, axis, leading(m_cond + m_carry))
        if pred_dim is not None:  # each example ends on its own
            made, m_carry, m_state = self._masked(axis, masks), [True] * n, [True] * len(m_state)
        else:
            m_saved = [d is not None for d in out_dims[n:]]

            def visiting(held: list[bool]) -> tuple[Any, list[bool]]:
                made, found = vmap_program(v.visit, axis, leading(m_visit + m_saved + held), held)
                return made, [d is not None for d in found]

            m_state, visit = fixed_point(m_state, visiting)
            made = v._replace(cond=cond, body=body, visit=visit)
        ps, ds = v.parts(args), v.parts(dims)
        consts = [move_mapped(p, d, size) for p, d in zip(ps[:3], ds[:3], strict=True)]
        if pred_dim is not None:
            consts[1] = consts[0] + consts[1]
        outs = reverse_loop(made)(*(x for part in consts for x in part),
                                  *map_where(ps[3], ds[3], size, m_carry),
                                  *map_where(ps[4], ds[4], size, m_state))
        return outs, leading(m_state)

    def _masked(self, axis: Axis, masks: Sequence[list[bool]]) -> Visits:
        """The loop that runs while any example continues; visits skip examples that had ended."""
        v = self._visits()
        m_cond, m_body, m_visit, m_carry, m_state = masks
        k, n, saved = v.cond_consts, v.carry, len(v.saved)
        every, states = [True] * n, [True] * len(m_state)
        going, _ = vmap_program(v.cond, axis, leading(m_cond + every), [True])
        body, _ = vmap_program(v.body, axis, leading(m_body + every), True)
        visit, _ = vmap_program(v.visit, axis, leading(m_visit + [True] * saved + states), states)

        def any_going(*xs: Any) -> list[Any]:
            return [ReduceOr((0,))(evaluate(going, xs)[0])]

        def next_carry(*xs: Any) -> list[Any]:
            c_consts, b_consts, carry = cut(xs, k, v.body_consts)
            (pred,) = evaluate(going, [*c_consts, *map(again, carry)])
            outs = evaluate(body, [*b_consts, *carry])
            carry = [advanced(pred, new, old) for new, old in zip(outs[:n], carry, strict=True)]
            return [*carry, *outs[n:], pred]

        def visited(*xs: Any) -> list[Any]:
            consts, values, (pred,), state = cut(xs, v.visit_consts, saved, 1)
            outs = evaluate(visit, [*consts, *values, *state])
            return [advanced(pred, new, old) for new, old in zip(outs, state, strict=True)]

        c, pred = going.in_avals[:k], going.out_avals
        at = v.visit_consts + saved
        return v._replace(
            cond=derive(any_going, going.in_avals, "while_cond"),
            body=derive(next_carry, [*c, *body.in_avals], "while_body"),
            visit=derive(visited, [*visit.in_avals[:at], *pred, *visit.in_avals[at:]], "visit"),
            body_consts=k + v.body_consts)

    def _visits(self) -> Visits:
        assert self.visits is not None
        return self.visits


def reverse_loop(v: Visits) -> ReverseLoop:
    return ReverseLoop(v.program(), "while_transpose", v)


def _with_mask(made: tuple[Program, list[bool]]) -> tuple[Any, list[bool]]:
    return made, made[1]


def _paired(sizes: Sequence[int], masks: Sequence[Sequence[bool]]) -> list[int]:
    """The order that puts each group's tangents, which come after all groups, behind the group."""
    order: list[int] = []
    start, tangent = 0, sum(sizes)
    for n, mask in zip(sizes, masks, strict=True):
        order += range(start, start + n)
        order += range(tangent, tangent + sum(mask))
        start, tangent = start + n, tangent + sum(mask)
    return order


# --------------------------------------------------------------------- from the parts of a loop


def transposed(loop: Callable[..., Any], checkpoints: int | None, cond: Program, parts: Split,
               l_consts: Sequence[bool], l_carry: Sequence[bool], arriving: Sequence[bool]
               ) -> tuple[Visits, list[int], list[bool], list[bool]]:
    """Make the visits that transpose the linear part of a loop whose body is split into `parts`.

    Returns the visits; which known constants of the body they read, in this order; and which linear
    constants and which linear carries have cotangents, which together are the state."""
    known, n_consts = parts.known, l_consts.count(False)
    fixed = [f for f in parts.forwarded if f is not None]
    assert all(f < n_consts for f in fixed), "a carry is saved, never forwarded"
    r, d, c = len(parts.forwarded), sum(l_consts), sum(l_carry)
    stays = [f is not None for f in parts.forwarded]
    order = [*pick(range(r), stays), *range(r, r + d + c), *pick(range(r), stays, False)]
    linear = rearranged(parts.linear, order, range(c))
    is_linear = [False] * len(fixed) + [True] * (d + c) + [False] * stays.count(False)

    def step(held: list[bool]) -> tuple[Any, list[bool]]:
        back, nonzero = transpose_program(linear, is_linear, held)
        return (back, nonzero), nonzero[d:]

    held, (back, nonzero) = fixed_point(arriving, step)
    m_consts, m_carry = nonzero[:d], nonzero[d:]
    avals = [a.strip_weak_type() for a in linear.in_avals[len(fixed) : len(fixed) + d + c]]
    visit = backward_body(back, len(fixed), pick(avals[:d], m_consts), pick(avals[d:], held),
                          stays.count(False), pick(m_carry, held))
    n_state = sum(m_consts) + sum(held)
    a, b = len(fixed), len(fixed) + n_state
    # (constants, state, saved) -> (constants, saved that is read, state)
    used = used_vars(visit)
    read = [v in used for v in visit.inputs[b:]]
    inputs = [*visit.inputs[:a], *pick(visit.inputs[b:], read), *visit.inputs[a:b]]
    visit = Program(inputs, visit.equations, visit.outputs, "while_transpose")
    k = l_carry.count(False)
    outputs = [*known.outputs[:k], *pick(known.outputs[k:], read)]
    body = _without_debugging(Program(known.inputs, known.equations, outputs, known.name))
    room = _room(checkpoints, body.in_avals[n_consts:], body.out_avals[k:])
    v = Visits(loop, cond, body, visit, len(cond.inputs) - k, n_consts, a, room)
    return v, fixed, m_consts, held


def _without_debugging(body: Program) -> Program:
    """The body without debug callbacks, which ran in the forward pass."""
    equations = [e for e in body.equations if e.outs]
    return without_dead_code(Program(body.inputs, equations, body.outputs, body.name))


def _room(checkpoints: int | None, carry: Sequence[Aval], saved: Sequence[Aval]) -> Room:
    """How much the backward pass keeps, by the size of the values or by the user's choice."""
    if checkpoints is not None:
        rows = tape = min(checkpoints, _MOST_CHOSEN).bit_length() - 1
    else:
        rows, tape = _exponent(carry), _exponent(saved)
    return Room(rows, tape, 2 if rows >= 6 else 3)


def _exponent(avals: Sequence[Aval]) -> int:
    size = sum(math.prod(a.shape) * _itemsize(a.dtype) for a in avals)
    rows = min(max(_BYTES // max(size, 1), _FEWEST_ROWS), _MOST_ROWS)
    return rows.bit_length() - 1


def _itemsize(dtype: Any) -> int:
    return 8 if dtypes.is_extended(dtype) else dtype.itemsize


def check_effects(effects: frozenset[str]) -> None:
    """Raise an error if the loop has effects that must not be repeated."""
    if "io" in effects:
        raise NotImplementedError(
            "Effects not supported in reverse mode of while_loop, which runs the loop again: "
            "needed a body and a condition without io_callback, which must not run twice (use "
            f"toile.debug.callback, or call io_callback outside the loop){here()}"
        )
