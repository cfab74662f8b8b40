"""scan: a loop of known length with a carry, per-step inputs and per-step outputs.

Inputs are constants, the carry, and arrays whose first axis is the step; outputs are the last
carry and the stacked per-step results. Reverse mode runs a scan the other way over the residuals of
the forward one; residuals that are constants or per-step inputs are passed on, not saved.
May import control.call and below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.control.call import (
    LoopCarrier,
    move_mapped,
    nonzero_mask,
    pick,
    program_flops,
    pruned,
    spread,
)
from toile.engine.avals import Aval, Zero
from toile.engine.operation import Axis, Dim, Operation, instantiate
from toile.engine.program import Program, derive, evaluate, execute, rearranged
from toile.engine.records import dataclass
from toile.primitives.families import add, bdim_at, zeros
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import Split, split_program
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program


@dataclass(frozen=True)
class Scan(LoopCarrier):
    """Runs `program`: (consts, carry, x) -> (carry, y), `length` times."""

    program: Program
    consts: int
    carry: int
    length: int
    reverse: bool = False
    unroll: int = 1

    def programs(self) -> Sequence[Program]:
        return (self.program,)

    def _parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        a, b = self.consts, self.consts + self.carry
        return list(xs[:a]), list(xs[a:b]), list(xs[b:])

    def _with(self, program: Program, consts: int, carry: int, reverse: bool | None = None) -> Scan:
        back = self.reverse if reverse is None else reverse
        return Scan(program, consts, carry, self.length, back, self.unroll)

    def infer(self, *avals: Aval) -> list[Aval]:
        outs = self.program.out_avals
        stacked = [Aval((self.length, *y.shape), y.dtype, y.weak_type) for y in outs[self.carry :]]
        return outs[: self.carry] + stacked

    def eager(self, xp: Any, *args: Any) -> Any:
        consts, carry, xs = self._parts(args)
        avals = self.program.out_avals[self.carry :]
        ys = [xp.empty((self.length, *_physical_shape(a)), _physical_dtype(a)) for a in avals]
        steps = range(self.length - 1, -1, -1) if self.reverse else range(self.length)
        program, n = self.program, self.carry
        for i in steps:
            outs = execute(program, [*consts, *carry, *[x[i, ...] for x in xs]])
            carry = list(outs[:n])
            for y, value in zip(ys, outs[n:], strict=True):
                y[i, ...] = value
        return [*carry, *ys]

    # ---- forward mode
    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        z_consts, z_carry, z_xs = self._parts(nonzero_mask(tangents))
        n, c = len(self.program.inputs), self.carry
        while True:  # a carry whose tangent becomes nonzero in the body is nonzero from the start
            wanted = z_carry + [False] * (len(self.program.outputs) - c)
            program, moving = jvp_program(self.program, z_consts + z_carry + z_xs, wanted)
            if moving[:c] == z_carry:
                break
            z_carry = [a or b for a, b in zip(moving[:c], z_carry, strict=True)]
        z_ys = moving[c:]
        d_consts, d_carry, d_xs = sum(z_consts), sum(z_carry), sum(z_xs)
        a, b = self.consts, self.consts + c
        ins = _interleave((0, a, b, n), (n, n + d_consts, n + d_consts + d_carry,
                                         n + d_consts + d_carry + d_xs))
        m = len(self.program.outputs)
        outs = _interleave((0, c, m), (m, m + d_carry, m + d_carry + sum(z_ys)))
        op = self._with(rearranged(program, ins, outs), a + d_consts, c + d_carry)
        p, t = self._parts(primals), self._parts(tangents)
        t_carry = [instantiate(x) for x in pick(t[1], z_carry)]
        results = op(*p[0], *pick(t[0], z_consts), *p[1], *t_carry, *p[2], *pick(t[2], z_xs))
        carry, rest = results[:c], results[c + d_carry :]
        moved, ys = iter(results[c : c + d_carry]), rest[: m - c]
        dys = iter(rest[m - c :])
        douts = [next(moved) if z else Zero(x) for z, x in zip(z_carry, carry, strict=True)]
        douts += [next(dys) if z else Zero(y) for z, y in zip(z_ys, ys, strict=True)]
        return carry + ys, douts

    # ---- reverse mode
    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        l_consts, l_carry, l_xs = self._parts(linear)
        c = self.carry
        n_ys = len(self.program.outputs) - c
        passing = [False] * len(l_consts) + [True] * c + [False] * len(l_xs)
        while True:
            parts = split_program(
                self.program, l_consts + l_carry + l_xs, l_carry + [False] * n_ys, passing
            )
            if parts.is_linear[:c] == l_carry:
                break
            l_carry = [a or b for a, b in zip(parts.is_linear[:c], l_carry, strict=True)]
        consts, carry, xs = self._parts(args)
        known_consts, known_xs = pick(consts, l_consts, False), pick(xs, l_xs, False)
        known_carry = pick(carry, l_carry, False)
        op = self._with(parts.known, len(known_consts), len(known_carry))
        results = op(*known_consts, *known_carry, *known_xs)
        n_known = sum(not z for z in parts.is_linear)
        outs, saved = results[:n_known], results[n_known:]
        linear_op, residuals = self._linear(parts, saved, known_consts, len(known_carry),
                                            known_xs, l_consts, l_carry)
        linear_args = [*residuals[0], *pick(consts, l_consts), *pick(carry, l_carry),
                       *residuals[1], *pick(xs, l_xs)]
        return parts.known_outputs(outs), linear_op, linear_args

    def _linear(
        self, parts: Split, saved: Sequence[Any], known_consts: Sequence[Any], known_carry: int,
        known_xs: Sequence[Any], l_consts: Sequence[bool], l_carry: Sequence[bool],
    ) -> tuple[Scan, tuple[list[Any], list[Any]]]:
        """The scan over linear inputs, and its residuals: constant ones and per-step ones."""
        stacked = iter(saved)
        fixed: list[tuple[int, Any]] = []
        stepped: list[tuple[int, Any]] = []
        first_x = len(known_consts) + known_carry
        for i, f in enumerate(parts.forwarded):
            if f is None:
                stepped.append((i, next(stacked)))
            elif f < len(known_consts):
                fixed.append((i, known_consts[f]))
            elif f >= first_x:
                stepped.append((i, known_xs[f - first_x]))
            else:
                raise AssertionError("a carry is saved, never forwarded")
        r, n_consts, n_carry = len(parts.forwarded), sum(l_consts), sum(l_carry)
        n = len(parts.linear.inputs)
        order = [i for i, _ in fixed] + list(range(r, r + n_consts + n_carry))
        order += [i for i, _ in stepped] + list(range(r + n_consts + n_carry, n))
        program = rearranged(parts.linear, order, range(len(parts.linear.outputs)))
        op = self._with(program, len(fixed) + n_consts, n_carry)
        return op, ([v for _, v in fixed], [v for _, v in stepped])

    def transpose(self, ct: Any, *args: Any) -> Any:
        c = self.carry
        consts, carry, xs = self._parts(args)
        l_consts, l_xs = ([type(v) is Aval for v in vs] for vs in (consts, xs))
        linear = l_consts + [True] * c + l_xs
        z_carry, z_ys = nonzero_mask(ct[:c]), nonzero_mask(ct[c:])
        while True:  # a carry whose cotangent becomes nonzero in the body is nonzero from the start
            back, nonzero = transpose_program(self.program, linear, z_carry + z_ys)
            found = iter(nonzero)
            m_consts, m_carry, m_xs = self._parts([z and next(found) for z in linear])
            if all(a or not b for a, b in zip(z_carry, m_carry, strict=True)):
                break
            z_carry = [a or b for a, b in zip(z_carry, m_carry, strict=True)]
        known_consts, known_xs = pick(consts, l_consts, False), pick(xs, l_xs, False)
        avals = [a.strip_weak_type() for a in self.program.in_avals]
        k_carry = pick(avals[self.consts : self.consts + c], z_carry)
        program = self.program.memoized(
            ("scan_transpose", self.consts, c, *linear, *z_carry, *z_ys),
            lambda: _backward_body(back, len(known_consts), pick(avals[: self.consts], m_consts),
                                   k_carry, len(known_xs), pick(m_carry, z_carry)))
        ct_consts = [zeros(a) for a in pick(avals[: self.consts], m_consts)]
        ct_carry = [instantiate(v) for v in pick(ct[:c], z_carry)]
        op = self._with(program, len(known_consts), len(ct_consts) + len(ct_carry),
                        not self.reverse)
        outs = iter(op(*known_consts, *ct_consts, *ct_carry, *known_xs, *pick(ct[c:], z_ys)))
        result = [next(outs) if m else None for m in m_consts + z_carry + m_xs]
        # A linear carry may start from a known value: the zeros of an instantiated tangent.
        return tuple(r if type(v) is Aval else None for r, v in zip(result, args, strict=True))

    # ---- vmap and dead code
    def vmap(self, axis: Axis, args: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        m_consts, m_carry, m_xs = self._parts([d is not None for d in dims])
        c = self.carry
        n_ys = len(self.program.outputs) - c
        while True:
            mapped: list[Dim] = [0 if m else None for m in m_consts + m_carry + m_xs]
            program, out_dims = vmap_program(
                self.program, axis, mapped, m_carry + [False] * n_ys
            )
            found = [d is not None for d in out_dims[:c]]
            if found == m_carry:
                break
            m_carry = [a or b for a, b in zip(found, m_carry, strict=True)]
        size = axis[1]
        (consts, carry, xs), (d_consts, d_carry, d_xs) = self._parts(args), self._parts(dims)
        moved = move_mapped(consts, d_consts, size)
        moved += [bdim_at(x, d, size) if m else x
                  for x, d, m in zip(carry, d_carry, m_carry, strict=True)]
        moved += [x if d is None else bdim_at(x, d, size, 1)
                  for x, d in zip(xs, d_xs, strict=True)]
        outs = self._with(program, self.consts, c)(*moved)
        dims_out: list[Dim] = [0 if m else None for m in m_carry]
        return outs, dims_out + [None if d is None else 1 for d in out_dims[c:]]

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        c = self.carry
        live = list(used[:c])
        while True:  # a carry is live if it is used, or if a live result reads it
            program, kept = pruned(self.program, live + list(used[c:]))
            k_consts, k_carry, k_xs = self._parts(kept)
            if all(a or not b for a, b in zip(live, k_carry, strict=True)):
                break
            live = [a or b for a, b in zip(live, k_carry, strict=True)]
        keep_ins = k_consts + live + k_xs
        inputs = pick(self.program.inputs, keep_ins)
        program = Program(inputs, program.equations, program.outputs, program.name)
        op = self._with(program, sum(k_consts), sum(live))
        return op, keep_ins, live + list(used[c:])

    def flops(self, *avals: Aval) -> int:
        return self.length * program_flops(self.program)


def _backward_body(
    back: Program, known_consts: int, consts: Sequence[Aval], carry: Sequence[Aval],
    known_xs: int, returned: Sequence[bool],
) -> Program:
    """(known consts, ct_consts, ct_carry, known xs, ct_ys) -> (ct_consts, ct_carry, ct_xs).

    `back` takes what is known and then cotangents, and gives those of constants, of the carries
    that are `returned`, and of per-step inputs. Cotangents of constants are added up."""
    n_known, c, d = known_consts + known_xs, len(consts), len(carry)

    def body(*args: Any) -> list[Any]:
        a, b = known_consts + c, known_consts + c + d
        found = evaluate(back, [*args[:known_consts], *args[b : b + known_xs], *args[a:b],
                                *args[b + known_xs :]])
        moved = c + sum(returned)
        total = [add(x, y) for x, y in zip(args[known_consts:a], found[:c], strict=True)]
        return [*total, *map(instantiate, spread(found[c:moved], returned, carry)), *found[moved:]]

    ins = back.in_avals
    avals = [*ins[:known_consts], *consts, *carry, *ins[known_consts:n_known], *ins[n_known + d :]]
    return derive(body, avals, "scan_transpose")


def _interleave(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Runs [first[i], first[i+1]) and [second[i], second[i+1]) by turns."""
    order: list[int] = []
    for i in range(len(first) - 1):
        order += range(first[i], first[i + 1])
        order += range(second[i], second[i + 1])
    return order


def _physical_shape(aval: Aval) -> tuple[int, ...]:
    impl = getattr(aval.dtype, "impl", None)
    return aval.shape if impl is None else (*aval.shape, *impl.key_shape)


def _physical_dtype(aval: Aval) -> Any:
    return "uint32" if getattr(aval.dtype, "impl", None) is not None else aval.dtype
