"""Programs as text: one equation per line, with types, parameters and the user's line.

Carried Programs are printed indented below their equation. This module may import engine.program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toile.engine.program import Equation, Program, Var, hooks


class _Names:
    """Short names for variables in order of appearance: a, b ... z, aa, ab ..."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}

    def __call__(self, atom: Any) -> str:
        if atom.__class__ is not Var:
            return f"{atom.val}:{atom.aval.short()}"
        if atom not in self.known:
            self.known[atom] = _letters(len(self.known))
        return self.known[atom]


def _letters(n: int) -> str:
    text = ""
    n += 1
    while n:
        n, r = divmod(n - 1, 26)
        text = chr(97 + r) + text
    return text


_WIDTH = 100


def show(program: Program, indent: str = "") -> str:
    """A Program as text, on one line where it fits."""
    lines = list(_lines(program, indent))
    joined = " ".join(line.strip() for line in lines)
    if len(lines) <= 3 and len(indent + joined) <= _WIDTH:
        return indent + joined if program.equations else indent + joined.replace("let ", "let  ")
    return "\n".join(lines)


def _lines(program: Program, indent: str) -> Iterator[str]:
    name = _Names()
    typed = [f"{name(v)}:{v.aval.short()}" for v in program.inputs]
    hidden, given = " ".join(typed[: program.hidden]), " ".join(typed[program.hidden :])
    head = f"{hidden}; {given}"
    yield f"{indent}{{ lambda {head.rstrip()}. let"
    for e in program.equations:
        outs = " ".join(f"{name(o)}:{o.aval.short()}" for o in e.outs)
        fields, carried = _parameters(e)
        ins = " ".join(name(a) for a in e.ins)
        yield f"{indent}    {outs} = {e.op.name}{fields} {ins}".rstrip()
        for label, inner in carried:
            yield f"{indent}      {label}="
            yield from _lines(inner, indent + "        ")
    results = ", ".join(name(o) for o in program.outputs)
    comma = "," if len(program.outputs) == 1 else ""
    yield f"{indent}  in ({results}{comma}) }}"


def _parameters(e: Equation) -> tuple[str, list[tuple[str, Program]]]:
    """Fields of the operation in brackets, and the Programs among them."""
    shown, carried = [], []
    for key, value in e.op.fields().items():
        if isinstance(value, Program):
            carried.append((key, value))
        elif isinstance(value, tuple) and value and isinstance(value[0], Program):
            carried += [(f"{key}[{i}]", p) for i, p in enumerate(value)]
        elif value is not None and value is not False:
            shown.append(f"{key}={value}")
    program = getattr(e.op, "program", None)
    if not carried and isinstance(program, Program):
        carried.append(("program", program))
    return (f"[{' '.join(shown)}]" if shown else ""), carried


hooks.show = show
