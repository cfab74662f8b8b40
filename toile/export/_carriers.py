"""Checks that `infer` does not do: the number and types of the operands of loops and calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.control.attention import Attention, AttentionGradient, AttentionTangent
from toile.control.call import Call
from toile.control.cond import Cond
from toile.control.custom import CustomCall
from toile.control.linear_solve import LinearSolve
from toile.control.remat import RematLinear
from toile.control.scan import Scan
from toile.control.while_loop import LinearWhile, While
from toile.engine.avals import Aval
from toile.engine.program import Program
from toile.export._permitted import operands
from toile.export._records import wrong

Avals = Sequence[Aval]


def _types(avals: Avals) -> list[Any]:
    return [(tuple(a.shape), a.dtype) for a in avals]


def _same(a: Avals, b: Avals, what: str) -> None:
    if _types(a) != _types(b):
        raise wrong(
            f"{what}: the operands are {[x.str_short() for x in a]}, and the function takes "
            f"{[x.str_short() for x in b]}")


def _need(holds: Any, what: str) -> None:
    if not holds:
        raise wrong(f"{what}: the numbers of operands and results do not fit")


def _call(op: Any, ins: Avals) -> None:
    _same(ins, op.program.in_avals, op.name)


def _scan(op: Scan, ins: Avals) -> None:
    a, b = op.consts, op.consts + op.carry
    own, outs = op.program.in_avals, op.program.out_avals
    _need(op.consts >= 0 and op.carry >= 0 and len(own) >= b and len(outs) >= op.carry
          and op.length >= 0 and op.unroll >= 1, "scan")
    rows = [x.with_shape((op.length, *x.shape)) for x in own[b:]]
    _same(ins, [*own[:b], *rows], "scan")
    _same(outs[:op.carry], own[a:b], "scan")


def _while(op: While, ins: Avals) -> None:
    a, b = op.cond_consts, op.body_consts
    _need(a >= 0 and b >= 0 and len(op.cond.inputs) >= a and len(op.body.inputs) >= b, "while")
    carry = op.body.in_avals[b:]
    _same(op.body.out_avals, carry, "while")
    _same(op.cond.in_avals[a:], carry, "while")
    _need(_types(op.cond.out_avals) == [((), op.cond.out_avals[0].dtype)]
          and op.cond.out_avals[0].dtype == bool, "while")
    _need(op.checkpoints is None or op.checkpoints > 0, "while")
    _same(ins, [*op.cond.in_avals[:a], *op.body.in_avals], "while")


def _cond(op: Cond, ins: Avals) -> None:
    _need(op.branches and ins and ins[0].shape == () and ins[0].dtype.kind in "iu", "cond")
    for branch in op.branches:
        _same(ins[1:], branch.in_avals, "cond")
        _same(branch.out_avals, op.branches[0].out_avals, "cond")


def _linear_while(op: LinearWhile, ins: Avals) -> None:
    _while(op.loop, ins)
    _need(len(op.keep) == len(op.loop.body.outputs), "while_linear")


def _linear_solve(op: LinearSolve, ins: Avals) -> None:
    k, n = op.params, op.unknowns
    _need(0 <= k <= len(ins) and len(ins) == k + n, "custom_linear_solve")
    every: list[Program] = [op.matvec, op.solve]
    every += [p for p in (op.vecmat, op.transpose_solve) if p is not None]
    for program in every:
        _same(ins, program.in_avals, "custom_linear_solve")
        _same(ins[k:], program.out_avals[:n], "custom_linear_solve")


def _remat_linear(op: RematLinear, ins: Avals) -> None:
    known = op.replay.in_avals
    _same(ins[:len(known)], known, "checkpoint_linear")
    fresh = iter(op.replay.out_avals)
    _need(op.forwarded.count(None) == len(op.replay.outputs) and op.saved >= 0
          and all(f is None or 0 <= f + op.saved < len(known) for f in op.forwarded),
          "checkpoint_linear")
    residuals = [next(fresh) if f is None else known[op.saved + f] for f in op.forwarded]
    _same([*residuals, *ins[len(known):]], op.linear.in_avals, "checkpoint_linear")


def _attention(op: Any, ins: Avals) -> None:
    _call(op, ins)
    count = len(op.form.operands)
    _need(count >= 3 and op.form.operands[:3] == ("q", "k", "v") and len(ins) >= count
          and len(set(op.form.operands)) == count, op.name)
    q, k, v = ins[:3]
    heads_fit = (len(q.shape) == len(k.shape) >= 3 and k.shape == v.shape
                 and q.shape[:-3] == k.shape[:-3] and q.shape[-1] == k.shape[-1]
                 and (k.shape[-2] and q.shape[-2] % k.shape[-2] == 0))
    _need(heads_fit and q.dtype == k.dtype == v.dtype, op.name)
    full = (*q.shape[:-3], q.shape[-2], q.shape[-3], k.shape[-3])
    for name, x in zip(op.form.operands[3:], ins[3:count], strict=True):
        if name in ("bias", "mask"):
            _need(len(x.shape) == len(full) and all(
                n in (1, m) for n, m in zip(x.shape, full, strict=True)), op.name)
        else:
            _need(name in ("query_lengths", "key_lengths") and x.shape == q.shape[:-3], op.name)


_CHECKS: dict[type, Callable[[Any, Avals], None]] = {
    Scan: _scan, While: _while, Cond: _cond, LinearWhile: _linear_while,
    LinearSolve: _linear_solve, RematLinear: _remat_linear, Attention: _attention,
    AttentionTangent: _attention, AttentionGradient: _attention,
}


def check_operands(op: Any, ins: Avals) -> None:
    """Raise an error if the operands do not fit the Programs that the operation carries."""
    kind: Any = type(op)
    count = operands(kind)
    if count is not None and count != len(ins):
        raise wrong(f"{op.name} of {len(ins)} operands")
    check = _CHECKS.get(kind)
    if check is None and isinstance(op, (Call, CustomCall)):
        check = _call
    if check is not None:
        check(op, ins)
    elif op.carries_programs:
        raise wrong(f"{op.name}: an exported function cannot contain it")
