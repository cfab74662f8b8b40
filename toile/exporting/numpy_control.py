"""How loops and branches are written in NumPy files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Equation, Program
from toile.exporting.numpy_writer import NumpyWriter, Rule


def _scan(w: NumpyWriter, op: Scan, xs: list[str], e: Equation) -> None:
    consts, carry, rows = _split(xs, op.consts, op.carry)
    names = _assigned(w, carry)
    ys = [w.fresh("ys") for _ in op.program.outputs[op.carry :]]
    for y, v in zip(ys, e.outs[op.carry :], strict=True):
        w.line(f"{y} = np.empty({w.shape(v.aval.shape)}, {w.dtype(v.aval.dtype)})")
    i = w.fresh("i")
    count = f"range({w.size(op.length)})"
    w.line(f"for {i} in {f'reversed({count})' if op.reverse else count}:")
    w.depth += 1
    parts = _assigned(w, [f"{x}[{i}]" for x in rows])
    outs = w.program(op.program, [*consts, *names, *parts])
    for y, out in zip(ys, outs[op.carry :], strict=True):
        w.line(f"{y}[{i}] = {out}")
    _replace(w, names, outs[: op.carry])
    w.depth -= 1
    w.names.update(zip(e.outs, [*names, *ys], strict=True))


def _while(w: NumpyWriter, op: While, xs: list[str], e: Equation) -> None:
    first, second, carry = _split(xs, op.cond_consts, op.body_consts)
    names = _assigned(w, carry)
    w.line("while True:")
    w.depth += 1
    (going,) = w.program(op.cond, [*first, *names])
    w.line(f"if not {going}:")
    w.line("    break")
    _replace(w, names, w.program(op.body, [*second, *names]))
    w.depth -= 1
    w.names.update(zip(e.outs, names, strict=True))


def _cond(w: NumpyWriter, op: Cond, xs: list[str], e: Equation) -> None:
    names = [w.fresh() for _ in e.outs]
    last = len(op.branches) - 1
    for i, branch in enumerate(op.branches):
        test = f"if {xs[0]} <= {i}:" if i == 0 else f"elif {xs[0]} == {i}:"
        w.line("else:" if i == last and i else test if last else "if True:")
        w.depth += 1
        _replace(w, names, _branch(w, branch, xs[1:]))
        w.depth -= 1
    w.names.update(zip(e.outs, names, strict=True))


def _branch(w: NumpyWriter, branch: Program, xs: Sequence[str]) -> list[str]:
    outs = w.program(branch, xs)
    w.source = ""
    if not outs:
        w.line("pass")
    return outs


def _assigned(w: NumpyWriter, values: Sequence[str]) -> list[str]:
    names = [w.fresh() for _ in values]
    for name, value in zip(names, values, strict=True):
        w.line(f"{name} = {value}")
    return names


def _replace(w: NumpyWriter, names: Sequence[str], values: Sequence[str]) -> None:
    changed = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
    if changed:
        w.line(f"{', '.join(n for n, _ in changed)} = {', '.join(v for _, v in changed)}")


def _split(xs: Sequence[Any], a: int, b: int) -> tuple[list[Any], list[Any], list[Any]]:
    return list(xs[:a]), list(xs[a : a + b]), list(xs[a + b :])


CONTROL: dict[type, Rule] = {Scan: _scan, While: _while, Cond: _cond}
