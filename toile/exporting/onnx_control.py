"""How loops and branches are written in ONNX: as Loop and If nodes that read outer names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.avals import Aval
from toile.engine.program import Equation, Program
from toile.exporting import onnx_format as form
from toile.exporting.onnx_writer import OnnxWriter, Rule, free_shape

LAST = 2**63 - 1


def _loop_inputs(w: OnnxWriter, carry: Sequence[Aval]) -> tuple[list[str], list[bytes]]:
    """The names of a loop's counter, condition and carried values, and their types."""
    names = [w.fresh("i"), w.fresh("going"), *(w.fresh("carry") for _ in carry)]
    infos = [form.value_info(names[0], np.dtype(np.int64), ()),
             form.value_info(names[1], np.dtype(bool), ())]
    infos += [form.value_info(n, a.dtype, free_shape(a.shape))
              for n, a in zip(names[2:], carry, strict=True)]
    return names, infos


def _flipped(w: OnnxWriter, x: str) -> str:
    return w.slice(x, [-1], [-LAST], [0], [-1])


def _scan(w: OnnxWriter, op: Scan, xs: list[str], e: Equation) -> list[str]:
    a, b = op.consts, op.consts + op.carry
    consts, carry, rows = xs[:a], xs[a:b], xs[b:]
    outs = op.program.out_avals
    names, infos = _loop_inputs(w, outs[: op.carry])
    flag = Aval((), np.dtype(bool))

    def body() -> list[tuple[str, Aval]]:
        i = names[0]
        if op.reverse:
            last = w.node("Sub", [w.number(op.length), w.constant(1, np.int64)])
            i = w.node("Sub", [last, i])
        parts = [w.node("Gather", [x, i], axis=0) for x in rows]
        found = w.program(op.program, [*consts, *names[2:], *parts])
        return [(names[1], flag), *zip(found, outs, strict=True)]

    graph = w.subgraph("scan", infos, body)
    made = w.nodes("Loop", [w.number(op.length), w.constant(True, bool), *carry], len(outs),
                   body=graph)
    stacked = made[op.carry :]
    return [*made[: op.carry], *(_flipped(w, y) if op.reverse else y for y in stacked)]


def _while(w: OnnxWriter, op: While, xs: list[str], e: Equation) -> list[str]:
    a, b = op.cond_consts, op.cond_consts + op.body_consts
    first, second, carry = xs[:a], xs[a:b], xs[b:]
    outs = op.body.out_avals
    (begins,) = w.program(op.cond, [*first, *carry])
    names, infos = _loop_inputs(w, outs)
    flag = Aval((), np.dtype(bool))

    def body() -> list[tuple[str, Aval]]:
        found = w.program(op.body, [*second, *names[2:]])
        (going,) = w.program(op.cond, [*first, *found])
        return [(going, flag), *zip(found, outs, strict=True)]

    graph = w.subgraph("while", infos, body)
    return w.nodes("Loop", ["", begins, *carry], len(outs), body=graph)


def _cond(w: OnnxWriter, op: Cond, xs: list[str], e: Equation) -> list[str]:
    index = e.ins[0].aval
    outs = [v.aval for v in e.outs]

    def branch(program: Program) -> form.Graph:
        return w.subgraph("branch", [], lambda: [*zip(w.program(program, xs[1:]), outs,
                                                      strict=True)])

    def chosen(i: int) -> list[str]:
        if i == len(op.branches) - 1:
            return w.program(op.branches[i], xs[1:])
        test = w.node("LessOrEqual", [xs[0], w.like(i, index)])
        other = w.subgraph("branch", [], lambda: [*zip(chosen(i + 1), outs, strict=True)])
        return w.nodes("If", [test], len(outs), then_branch=branch(op.branches[i]),
                       else_branch=other)

    return chosen(0)


CONTROL: dict[type, Rule] = {Scan: _scan, While: _while, Cond: _cond}
