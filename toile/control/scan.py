"""scan: a loop of known length with a carry, per-step inputs and per-step outputs.

Inputs are constants, the carry, and arrays whose first axis is the step; outputs are the last
carry and the stacked per-step results. Reverse mode runs a scan in the other direction over the
residuals of the forward scan; residuals that are constants or per-step inputs are passed on, not
saved. This module may import control.call and the modules below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.control import division
from toile.control.call import LoopCarrier, leading, map_where, move_mapped, program_flops, pruned
from toile.engine import program_keys as key_uses
from toile.engine.avals import Aval
from toile.engine.equal_constants import given_twice, without_inputs
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import Atom, Program, derive, evaluate, execute, rearranged
from toile.engine.records import dataclass
from toile.engine.trace import turns
from toile.primitives.families import add, instantiate, zeros
from toile.primitives.rules import frame_rule
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import Split, split_program
from toile.transforms.masks import fill, fixed_point, nonzero_mask, pick, spread
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program


@dataclass(frozen=True)
class Scan(LoopCarrier):
    """A loop that runs `program`, which maps (consts, carry, x) to (carry, y), `length` times."""

    program: Program
    consts: int
    carry: int
    length: int
    reverse: bool = False
    unroll: int = 1
    jax_names = {"program": "jaxpr", "consts": "num_consts", "carry": "num_carry"}
    kernel_family = "control.scan"
    divide = division.scan
    key_use = key_uses.scan
    taylor = sparse = frame_rule("scan")
    checked = in_registers = with_index_tests = frame_rule("scan")

    def programs(self) -> Sequence[Program]:
        return (self.program,)

    @property
    def turns(self) -> int:
        return self.length

    @property
    def overwrites(self) -> slice:
        return slice(self.consts, self.consts + self.carry)

    def _parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        a, b = self.consts, self.consts + self.carry
        return list(xs[:a]), list(xs[a:b]), list(xs[b:])

    def _with(self, program: Program, consts: int, carry: int, reverse: bool | None = None) -> Scan:
        back = self.reverse if reverse is None else reverse
        return Scan(program, consts, carry, self.length, back, self.unroll)

    def without_duplicates(self, operands: Sequence[Atom]) -> tuple[Scan, list[Atom]] | None:
        same = given_twice(self.program, operands, range(self.consts))
        if not same:
            return None
        kept = [a for a, v in zip(operands, self.program.inputs, strict=True) if v not in same]
        op = self._with(without_inputs(self.program, same), self.consts - len(same), self.carry)
        return op, kept

    def infer(self, *avals: Aval) -> list[Aval]:
        outs = self.program.out_avals
        stacked = [Aval((self.length, *y.shape), y.dtype, y.weak_type) for y in outs[self.carry :]]
        return outs[: self.carry] + stacked

    def eager(self, xp: Any, *args: Any) -> Any:
        consts, carry, xs = self._parts(args)
        avals = self.program.out_avals[self.carry :]
        ys = [_empty(xp, self.length, a) for a in avals]
        steps = range(self.length - 1, -1, -1) if self.reverse else range(self.length)
        program, n = self.program, self.carry
        for i in turns(steps):
            outs = execute(program, [*consts, *carry, *[x[i, ...] for x in xs]])
            carry = list(outs[:n])
            for y, value in zip(ys, outs[n:], strict=True):
                y[i, ...] = value
        return [*carry, *ys]

    # ---- forward mode
    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        z_consts, z_carry, z_xs = self._parts(nonzero_mask(tangents))
        n, c = len(self.program.inputs), self.carry

        def step(carry: list[bool]) -> tuple[Any, list[bool]]:
            wanted = carry + [False] * (len(self.program.outputs) - c)
            made = jvp_program(self.program, z_consts + carry + z_xs, wanted)
            return made, made[1][:c]

        z_carry, (program, moving) = fixed_point(z_carry, step)
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
        carry, moved, rest = results[:c], results[c : c + d_carry], results[c + d_carry :]
        ys, dys = rest[: m - c], rest[m - c :]
        return carry + ys, spread(moved, z_carry, carry) + spread(dys, z_ys, ys)

    # ---- reverse mode
    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        l_consts, l_carry, l_xs = self._parts(linear)
        c = self.carry
        n_ys = len(self.program.outputs) - c
        passing = [False] * len(l_consts) + [True] * c + [False] * len(l_xs)

        def step(carry: list[bool]) -> tuple[Split, list[bool]]:
            forced = carry + [False] * n_ys
            made = split_program(self.program, l_consts + carry + l_xs, forced, passing)
            return made, made.is_linear[:c]

        l_carry, parts = fixed_point(l_carry, step)
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

    def _linear(self, parts: Split, saved: Sequence[Any], known_consts: Sequence[Any],
                known_carry: int, known_xs: Sequence[Any], l_consts: Sequence[bool],
                l_carry: Sequence[bool]) -> tuple[Scan, tuple[list[Any], list[Any]]]:
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

        def step(carry: list[bool]) -> tuple[Any, list[bool]]:
            back, nonzero = transpose_program(self.program, linear, carry + z_ys)
            parts = self._parts([bool(m) for m in fill(nonzero, linear)])
            return (back, parts), parts[1]

        z_carry, (back, (m_consts, m_carry, m_xs)) = fixed_point(z_carry, step)
        known_consts, known_xs = pick(consts, l_consts, False), pick(xs, l_xs, False)
        avals = [a.strip_weak_type() for a in self.program.in_avals]
        k_carry = pick(avals[self.consts : self.consts + c], z_carry)
        program = self.program.memoized(
            ("scan_transpose", self.consts, c, *linear, *z_carry, *z_ys),
            lambda: backward_body(back, len(known_consts), pick(avals[: self.consts], m_consts),
                                   k_carry, len(known_xs), pick(m_carry, z_carry)))
        ct_consts = [zeros(a) for a in pick(avals[: self.consts], m_consts)]
        ct_carry = [instantiate(v) for v in pick(ct[:c], z_carry)]
        n_carry = len(ct_consts) + len(ct_carry)
        op = self._with(program, len(known_consts), n_carry, not self.reverse)
        outs = op(*known_consts, *ct_consts, *ct_carry, *known_xs, *pick(ct[c:], z_ys))
        result = fill(outs, m_consts + z_carry + m_xs)
        # A linear carry may start from a known value: the zeros of an instantiated tangent.
        return tuple(r if type(v) is Aval else None for r, v in zip(result, args, strict=True))

    # ---- vmap and dead code
    def vmap(self, axis: Axis, args: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        m_consts, m_carry, m_xs = self._parts([d is not None for d in dims])
        c = self.carry
        n_ys = len(self.program.outputs) - c

        def step(held: list[bool]) -> tuple[Any, list[bool]]:
            mapped = leading(m_consts + held + m_xs)
            made = vmap_program(self.program, axis, mapped, held + [False] * n_ys)
            return made, [d is not None for d in made[1][:c]]

        m_carry, (program, out_dims) = fixed_point(m_carry, step)
        size = axis[1]
        (consts, carry, xs), (d_consts, d_carry, d_xs) = self._parts(args), self._parts(dims)
        moved = [*move_mapped(consts, d_consts, size), *map_where(carry, d_carry, size, m_carry),
                 *move_mapped(xs, d_xs, size, 1)]
        outs = self._with(program, self.consts, c)(*moved)
        return outs, leading(m_carry) + [None if d is None else 1 for d in out_dims[c:]]

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        c = self.carry

        def step(live: list[bool]) -> tuple[Any, list[bool]]:
            program, kept = pruned(self.program, live + list(used[c:]))
            parts = self._parts(kept)
            return (program, parts), parts[1]

        # A carry is live if its final value is used, or if a live result reads it.
        live, (program, (k_consts, _, k_xs)) = fixed_point(used[:c], step)
        keep_ins = k_consts + live + k_xs
        inputs = pick(self.program.inputs, keep_ins)
        program = Program(inputs, program.equations, program.outputs, program.name)
        op = self._with(program, sum(k_consts), sum(live))
        return op, keep_ins, live + list(used[c:])

    def flops(self, *avals: Aval) -> int:
        return self.length * program_flops(self.program)


def backward_body(back: Program, known_consts: int, consts: Sequence[Aval], carry: Sequence[Aval],
                   known_xs: int, returned: Sequence[bool]) -> Program:
    """Make the Program that maps (known consts, ct_consts, ct_carry, known xs, ct_ys) to
    (ct_consts, ct_carry, ct_xs).

    `back` takes the known values and then cotangents, and returns those of constants, of the
    carries that are `returned`, and of per-step inputs. Cotangents of constants are accumulated."""
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
    """Runs [first[i], first[i+1]) and [second[i], second[i+1]), alternating."""
    order: list[int] = []
    for i in range(len(first) - 1):
        order += range(first[i], first[i + 1])
        order += range(second[i], second[i + 1])
    return order


def _empty(xp: Any, length: int, aval: Aval) -> Any:
    """A buffer for `length` values; keys have a last axis of uint32 words."""
    impl = getattr(aval.dtype, "impl", None)
    words, dtype = ((), aval.dtype) if impl is None else (impl.key_shape, "uint32")
    return xp.empty((length, *aval.shape, *words), dtype)
