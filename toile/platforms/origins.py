"""Where the values of a Program come from: the operation, the user's line and the module path.

Reports about memory name buffers by their origin. This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toile.engine.program import Equation, Program, Var
from toile.engine.source import Source


class Made(NamedTuple):
    """Where an array comes from."""

    by: str  # the operation, or another description
    program: str = ""
    source: Source | None = None
    scope: str = ""  # the path of the module

    def __str__(self) -> str:
        where = [f"by {self.by}" + (f" of {self.program}" if self.program else "")]
        if self.scope:
            where.append(f"in {self.scope}")
        if self.source is not None:
            line, text = f"at {self.source.file}:{self.source.line}", self.source.text()
            where.append(f"{line}: {text}" if text else line)
        return " ".join(where)


def results_of(program: Program) -> list[Made]:
    """The `Made` of each result of a Program."""
    makers: dict[Any, Equation] = {o: e for e in program.equations for o in e.outs}
    found = []
    for o in program.outputs:
        e = makers.get(o) if isinstance(o, Var) else None
        if e is None:
            found.append(Made("an argument that is returned", program.name))
            continue
        made = made_by(e, makers)
        found.append(made if program.name == made.by else made._replace(program=program.name))
    return found


def made_by(e: Equation, makers: Mapping[Any, Equation], around: Sequence[str] = ()) -> Made:
    """The `Made` of an equation's results; `around` is the module path of the loop it is in."""
    named = e if e.source is not None else _nearest(e, makers)
    scope = "/".join((*around, *(e.scope or named.scope)))
    return Made(e.op.name, source=named.source, scope=scope)


def _nearest(e: Equation, makers: Mapping[Any, Equation]) -> Equation:
    """The nearest earlier equation with a source line: those that passes add have none."""
    seen = {id(e)}
    level = [e]
    while level:
        before = [makers[a] for x in level for a in x.ins if a in makers]
        level = [x for x in before if id(x) not in seen]
        for x in level:
            if x.source is not None:
                return x
            seen.add(id(x))
    return e
