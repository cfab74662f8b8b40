"""Fingerprints of Programs, which processes compare before they first run a Program together.

A fingerprint contains the collectives of a Program in order, each with its operation, axes, groups,
and the shapes and dtypes of its operands. It also contains the inputs and outputs, and the number
of times that every other operation occurs. The user's source lines are shown when two fingerprints
differ, but are not compared. This module may import primitives and the layers below it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toile.engine.program import Equation, Program
from toile.engine.source import user_source

SHOWN = 6  # number of collectives of each side in an error, from one before the first that differs


class Fingerprint:
    """A Program as other processes see it; `details` is shown if the compared `digest` differs."""

    __slots__ = ("name", "ranks", "digest", "details", "line", "summary")

    def __init__(self, program: Program, owners: Sequence[int]):
        self.name = program.name
        self.ranks = tuple(sorted(set(owners)))
        collectives = [(_described(e), str(e.source or "")) for e in _collectives(program)]
        counts: dict[str, int] = {}
        for e in program.equations:
            counts[e.op.name] = counts.get(e.op.name, 0) + 1
        found: dict[str, Any] = {
            "name": program.name,
            "inputs": [a.str_short() for a in program.in_avals],
            "outputs": [a.str_short() for a in program.out_avals],
            "collectives": [text for text, _ in collectives],
            "processes of the devices": [int(r) for r in owners],
            "operations": dict(sorted(counts.items())),
        }
        self.digest = digest_of(json.dumps(found))
        self.details = json.dumps({**found, "lines": [line for _, line in collectives]})
        self.line = user_source()
        told = [text for text, _ in collectives[:3]] + ["…"] * (len(collectives) > 3)
        self.summary = f"{program.name}({', '.join(found['inputs'])[:160]}) with {', '.join(told)}"


def digest_of(text: str) -> int:
    """A 63-bit hash of a text."""
    found = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(found, "little") >> 1


def _collectives(program: Program) -> Iterator[Equation]:
    """The collectives of a Program in order, including those of nested Programs."""
    for e in program.equations:
        if e.op.axis_names and not e.op.carries_programs:  # else: axes of its Programs
            yield e
        for value in e.op.fields().values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, Program):
                    yield from _collectives(inner)


def _described(e: Equation) -> str:
    """`psum over i of float32[4]`, with the other parameters of the operation."""
    told = e.op.fields()
    name = f"p{told.pop('kind')}" if "kind" in told else e.op.name
    axes = ", ".join(map(_plain, e.op.axis_names))
    for field in ("axes", "axis"):
        told.pop(field, None)
    rest = "".join(f" {key}={value}" for key, value in told.items() if value is not None)
    avals = [getattr(a, "aval", None) for a in e.ins]
    operands = ", ".join(a.str_short() for a in avals if a is not None)
    return f"{name} over {axes}{rest} of {operands}"


def _plain(name: Any) -> str:
    """The name of an axis; the class name if the axis is named by an object."""
    return str(name) if isinstance(name, (str, int)) else type(name).__name__


# ---- the error text


def disagreement(number: int, given: Mapping[str, str]) -> str:
    """The error text for fingerprints that differ; `given` has the details by process."""
    sides = {who: json.loads(text) for who, text in given.items()}
    first = _first_difference(list(sides.values()))
    lines = [f"needed the same program in all processes, got different ones for program {number}"]
    for who, side in sides.items():
        lines.append(f"  {who}: {side['name']}, inputs {', '.join(side['inputs'])}, called at "
                     f"{side['line']}")
        lines += [f"    {text}" for text in _shown(side, first)]
    return "\n".join(lines)


def _first_difference(sides: Sequence[Mapping[str, Any]]) -> int | str:
    """The number of the first collective that differs, or the key of another entry that differs."""
    lists = [side["collectives"] for side in sides]
    for i in range(max(map(len, lists))):
        if len({tuple(one[i : i + 1]) for one in lists}) > 1:
            return i
    for key in ("inputs", "outputs", "name", "processes of the devices", "operations"):
        if any(side[key] != sides[0][key] for side in sides):
            return key
    return "operations"


def _shown(side: Mapping[str, Any], first: int | str) -> list[str]:
    if isinstance(first, str):
        return [f"{first}: {side[first]}"]
    found, start = side["collectives"], max(first - 1, 0)
    if first >= len(found):
        return [f"no collective {first + 1}: there are {len(found)}"]
    texts = []
    for i in range(start, min(start + SHOWN, len(found))):
        mark = "  <- differs" if i == first else ""
        line = f" at {side['lines'][i]}" if side["lines"][i] else ""
        texts.append(f"collective {i + 1} of {len(found)}: {found[i]}{line}{mark}")
    return texts
