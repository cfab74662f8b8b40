"""Writes a traced function as Python statements that need only NumPy.

`NumpyWriter` writes equations; the rules of the operations are in `numpy_rules` and
`numpy_control`. A module with several equations becomes a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.engine.source import here
from toile.exporting.broadcasting import implied_broadcasts
from toile.exporting.sizes import Size, SizeLiteral
from toile.exporting.tracing import identifier

_WEIGHT = re.compile(r"W\['[^']*'\]")
Rule = Callable[["NumpyWriter", Any, list[str], Equation], Any]
BATCH = "n"  # the variable that holds the batch size
FEWEST = 3  # smallest number of equations in a module that becomes a function
NATIVE = "?bhilqBHILQefdFD"  # characters of NumPy's own dtypes
ONE_LINE = 100


class NumpyWriter:
    """The lines of a file, the names of variables and the support functions in use."""

    def __init__(self, rules: dict[type, Rule]):
        self.rules = rules
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Var, str] = {}
        self.support: set[str] = set()
        self.functions: list[str] = []
        self.count = 0
        self.taken: set[str] = set()
        self.source = ""
        self.elided: set[Var] = set()  # broadcasts that NumPy's operators do anyway

    # ---- text
    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def fresh(self, start: str = "v") -> str:
        """Return a name for a variable that is not in use."""
        self.count += 1
        return f"{start}{self.count}"

    def use(self, name: str) -> str:
        """Return the name of a support function, and include its text in the file."""
        self.support.add(name)
        return name

    def atom(self, a: Atom) -> str:
        """The expression of an operand."""
        if isinstance(a, SizeLiteral):
            text = a.size.text(BATCH)
            return f"{self.dtype(a.aval.dtype)}({f'1 / ({text})' if a.inverted else text})"
        if isinstance(a, Literal):
            return number(a.val, a.aval.dtype)
        return self.names[a]

    def dtype(self, dtype: Any) -> str:
        """The expression of a dtype."""
        return dtype_text(dtype)

    def size(self, n: int) -> str:
        """The expression of a size."""
        return n.text(BATCH) if isinstance(n, Size) else str(int(n))

    def shape(self, shape: Sequence[int]) -> str:
        """The expression of a shape."""
        inner = ", ".join(map(self.size, shape))
        return f"({inner},)" if len(shape) == 1 else f"({inner})"

    def pairs(self, config: Sequence[Sequence[int]]) -> str:
        """The expression of a tuple of tuples."""
        inner = ", ".join(map(self.shape, config))
        return f"({inner},)" if len(config) == 1 else f"({inner})"

    # ---- equations
    def program(self, program: Program, args: Sequence[str]) -> list[str]:
        """Write the equations of a program inside a loop or a branch; return the results."""
        self.names.update(zip(program.inputs, args, strict=True))
        for e in program.equations:
            self.equation(e)
        return [self.atom(o) for o in program.outputs]

    def equation(self, e: Equation) -> None:
        """Write an equation, and the line of the user's program if it has changed."""
        for v in e.outs:
            check_native(v.aval, e)
        rule = self.rules.get(type(e.op))
        if rule is None:
            raise missing_rule("to_numpy", e)
        source = short_source(e)
        if source != self.source:
            self.source = source
            self.line(f"# {source}")
        found = rule(self, e.op, [self.atom(a) for a in e.ins], e)
        if found is None:
            return
        results = [found] if isinstance(found, str) else list(found)
        for var, text in zip(e.outs, results, strict=True):
            if text.isidentifier() or _WEIGHT.fullmatch(text):
                self.names[var] = text
            else:
                self.names[var] = name = self.fresh()
                self.line(f"{name} = {text}")

    def results(self, e: Equation, text: str) -> None:
        """Write a statement that assigns all results of an equation."""
        names = [self.fresh() for _ in e.outs]
        self.names.update(zip(e.outs, names, strict=True))
        self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}")

    # ---- modules as functions
    def body(self, program: Program) -> None:
        """Write the equations of the exported function, and functions for its modules before it."""
        runs = _runs(program.equations)
        self.elided = implied_broadcasts(program)
        last: dict[Var, int] = {}  # the last run that reads each variable
        for i, run in enumerate(runs):
            for v in _read(run):
                last[v] = i
        last.update((o, len(runs)) for o in program.outputs if isinstance(o, Var))
        for i, run in enumerate(runs):
            scope = run[0].scope
            if len(scope) < 2 or len(run) < FEWEST:
                if scope:
                    self.line(f"# {'/'.join(map(str, scope))}")
                for e in run:
                    self.equation(e)
            else:
                made = {v for e in run for v in e.outs}
                outs = [v for e in run for v in e.outs if last.get(v, -1) > i]
                ins = [v for v in dict.fromkeys(_read(run)) if v not in made]
                self.function(run, ins, outs)

    def function(self, run: Sequence[Equation], ins: Sequence[Var], outs: Sequence[Var]) -> None:
        """Write a run of equations as a function, and a call to it."""
        scope = "/".join(map(str, run[0].scope))
        name = start = identifier("_".join(map(str, run[0].scope[1:])))
        number_ = 1
        while name in self.taken:
            number_ += 1
            name = f"{start}_{number_}"
        self.taken.add(name)
        outer, self.lines = self.lines, []
        depth, self.depth, self.source = self.depth, 1, ""
        given = [v for v in ins if not self.names[v].startswith("W[")]
        before = {v: self.names[v] for v in given}
        for i, v in enumerate(given):
            self.names[v] = "x" if len(given) == 1 else f"x{i}"
        for e in run:
            self.equation(e)
        returned = ", ".join(self.atom(v) for v in outs)
        self.line(f"return {returned}")
        body, self.lines = self.lines, outer
        self.depth, self.source = depth, ""
        uses_batch = any(_uses_batch(line) for line in body)
        extra = [BATCH] if uses_batch else []
        params = ", ".join([*(self.names[v] for v in given), *extra])
        head = [f"def {name}({params}):", f'    """{scope}: {_types(given)} -> {_types(outs)}."""']
        self.functions.append("\n".join([*head, *body]))
        self.names.update(before)
        call = f"{name}({', '.join([*before.values(), *extra])})"
        names = [self.fresh() for _ in outs]
        self.names.update(zip(outs, names, strict=True))
        self.line(f"{', '.join(names)} = {call}" if names else call)


def _uses_batch(line: str) -> bool:
    code = line.partition("#")[0]
    return any(word == BATCH for word in
               "".join(c if c.isalnum() or c == "_" else " " for c in code).split())


def _types(vs: Sequence[Var]) -> str:
    return ", ".join(v.aval.dtype.name + shape_text(v.aval.shape) for v in vs)


def shape_text(shape: Sequence[int]) -> str:
    """A shape such as `[n, 3]`."""
    return f"[{', '.join(n.text(BATCH) if isinstance(n, Size) else str(n) for n in shape)}]"


def _runs(equations: Sequence[Equation]) -> list[list[Equation]]:
    """Consecutive equations of one module."""
    runs: list[list[Equation]] = []
    for e in equations:
        if runs and runs[-1][0].scope == e.scope:
            runs[-1].append(e)
        else:
            runs.append([e])
    return runs


def _read(run: Sequence[Equation]) -> list[Var]:
    return [a for e in run for a in e.ins if isinstance(a, Var)]


def number(value: Any, dtype: Any) -> str:
    """The expression of a number."""
    item = np.asarray(value).item()
    if dtype.kind == "b":
        return f"np.bool_({item})"
    if dtype.kind == "c" and not np.isfinite(item):
        return f"np.{dtype.name}(complex({str(item)!r}))"
    if dtype.kind in "f" and not np.isfinite(item):
        return f"np.{dtype.name}({str(item)!r})"
    if dtype.kind == "f":
        scalar: Any = np.asarray(value).astype(dtype)[()]
        text = np.format_float_positional(scalar, trim="0", unique=True)
        text = text if len(text) < 12 else str(scalar)
        return f"np.{dtype.name}({text})"
    return f"np.{dtype.name}({item!r})"


def dtype_text(dtype: Any) -> str:
    """The expression of a dtype of NumPy."""
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"


def short_source(e: Equation) -> str:
    """Return the file name and line of an equation, without folders."""
    text = str(e.source or "")
    return text.replace("\\", "/").rpartition("/")[2]


def check_native(aval: Aval, e: Equation | None) -> None:
    """Raise an error for a dtype that NumPy does not have."""
    if dtypes.is_extended(aval.dtype) or np.dtype(aval.dtype).char not in NATIVE:
        where = f" of `{e.op.name}` at {e.source or 'an unknown line'}" if e else ""
        raise NotImplementedError(
            f"to_numpy: needed dtypes that NumPy has, got {aval.str_short()}{where} (convert the "
            f"parameters to float32, and compute in float32){here()}")


def missing_rule(function: str, e: Equation) -> NotImplementedError:
    """Return the error for an operation that a target does not support."""
    return NotImplementedError(
        f"{function}: needed operations that this target has, got `{e.op.name}` at "
        f"{e.source or 'an unknown line'} (remove it from the function that is exported, or "
        f"compute it with other operations){here()}")
