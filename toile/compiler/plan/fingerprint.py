"""Fingerprints of Programs: equal fingerprints mean equal machine code, in any process.

The fingerprint of a Program covers its operations with their parameters, how they are connected,
shapes, dtypes and literals, but not names and source lines. An operation that holds a user's
function has no fingerprint: what the function does is not known before it runs.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import Any

import numpy as np

from toile.engine.dtypes import ExtendedDType
from toile.engine.operation import Operation
from toile.engine.program import Atom, Literal, Program

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Unknown(Exception):
    """A parameter without a stable representation."""


class _Fingerprints:
    """Computes fingerprints of Programs that share operations and inner Programs."""

    def __init__(self) -> None:
        self.operations: dict[int, str] = {}  # by identity: equal operations are mostly one object
        self.programs: dict[int, str] = {}

    def of(self, program: Program) -> str:
        """A hexadecimal digest."""
        found = self.programs.get(id(program))
        if found is None:
            text = "\n".join(self._lines(program))
            found = self.programs[id(program)] = hashlib.sha256(text.encode()).hexdigest()
        return found

    def _lines(self, program: Program) -> list[str]:
        number: dict[Atom, int] = {}
        lines = []
        for v in program.inputs:
            number[v] = len(number)
            lines.append(f"{v.aval.dtype}{v.aval.shape}")
        for e in program.equations:
            op = self.operations.get(id(e.op))
            if op is None:
                op = self.operations[id(e.op)] = self._operation(e.op)
            ins = _names(e.ins, number)
            for o in e.outs:  # their avals follow from the operation and its operands
                number[o] = len(number)
            lines.append(f"{op} {ins} {len(e.outs)}")
        lines.append(_names(program.outputs, number))
        return lines

    def _operation(self, op: Operation) -> str:
        kind = type(op)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if op.is_inlined:  # its Program determines the code, whatever rules the operation carries
            return f"{name}:{self.of(op.programs()[0])}"
        if dataclasses.is_dataclass(op):
            values = [(f.name, getattr(op, f.name)) for f in dataclasses.fields(op)]
            return f"{name}:{','.join([f'{n}={self._value(v)}' for n, v in values])}"
        if getattr(op, "__dict__", None):
            raise Unknown(name)
        return name

    def _value(self, x: Any) -> str:
        if x.__class__ in _PLAIN:
            return repr(x)
        match x:
            case tuple() | list():
                return f"{type(x).__name__}({','.join([self._value(y) for y in x])})"
            case frozenset() | set():
                return f"set({','.join(sorted(self._value(y) for y in x))})"
            case dict():
                return f"dict({','.join(sorted(map(self._value, x.items())))})"
            case np.dtype() | ExtendedDType():
                return f"dtype {x.name}"
            case np.ndarray() | np.generic():
                return f"{x.dtype}{x.shape}{hashlib.sha256(x.tobytes()).hexdigest()}"
            case enum.Enum():
                return f"{type(x).__qualname__}.{x.name}"
            case type():
                return f"{x.__module__}.{x.__qualname__}"
            case Program():
                return self.of(x)
            case Operation():
                return self._operation(x)
        if dataclasses.is_dataclass(x):
            fields = [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x)]
            return f"{type(x).__qualname__}{self._value(fields)}"
        raise Unknown(repr(x))


def _names(atoms: list[Atom], number: dict[Atom, int]) -> str:
    return " ".join([
        f"{a.val.dtype} {a.val.tobytes().hex()}" if isinstance(a, Literal) else str(number[a])
        for a in atoms])


def fingerprint(program: Program) -> str | None:
    """The fingerprint of a Program; None if an operation has no stable representation."""
    try:
        return _Fingerprints().of(program)
    except Unknown:
        return None
