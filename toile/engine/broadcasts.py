"""Operands that are broadcast against each other by mistake, such as (N, 1) and (N,).

The shapes (N, 1) and (N,) give the shape (N, N): the second operand gains a leading axis, and the
last axis of the first one is repeated. In a loss, this is nearly always a mistake, because the
mean over N * N pairs has the right shape but the wrong value. `shapes_conflict` is the rule for
shapes. `note` records such operations while a function is traced; `transforms.loss_shapes` decides
whether a loss depends on them. This module may import the modules of the engine below it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toile.engine.check_switch import enabled
from toile.engine.errors import BroadcastWarning, ShapeError
from toile.engine.extra_warnings import advise, advise_caller
from toile.engine.source import Source, here, module_path, user_source

Shape = tuple[int, ...]


class Suspect(NamedTuple):
    """An operation with operands that are broadcast against each other."""

    name: str
    shapes: tuple[Shape, Shape]
    result: Shape
    source: Source | None
    module: str


class _Recent(threading.local):
    """The suspects in the function that is being differentiated; None outside `grad`."""

    suspects: list[Suspect] | None = None


_recent = _Recent()
# Suspects in Programs, by the place of their equations: a Program is traced once, and may be
# differentiated later.
_staged: dict[tuple[str, int, int], Suspect] = {}
_MOST = 1024
# Words that show that the user's line adds axes on purpose.
_ON_PURPOSE = ("None", "newaxis", "keepdims", "expand_dims", "reshape", "outer", "atleast")


def both_grow(a: Shape, b: Shape, result: Shape) -> bool:
    """Whether operands of different rank are both broadcast, given the shape of the result."""
    return len(a) != len(b) and bool(a and b) and a != result and b != result


def shapes_conflict(a: Shape, b: Shape, result: Shape) -> bool:
    """Whether two shapes look like those of the same data, except for an extra axis of size 1.

    Shapes of equal rank are fine: in `x[:, None] - y[None, :]`, axes of size 1 were added
    explicitly. So are single numbers, operands of which only one is broadcast, and shapes that do
    not agree without their axes of size 1, such as positions (T, 1) times frequencies (F,).
    """
    data = _squeezed(a)
    return bool(data) and both_grow(a, b, result) and data == _squeezed(b)


def _squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def note(name: str, shapes: Sequence[Shape], result: Shape) -> None:
    """Record an operation if two of its operands look like the same data in different shapes."""
    for i, b in enumerate(shapes):
        for a in shapes[:i]:
            if shapes_conflict(a, b, result):
                _add(Suspect(name, (a, b), result, user_source(), module_path()))
                return


def _add(found: Suspect) -> None:
    source = found.source
    if source is None or any(word in source.text() for word in _ON_PURPOSE):
        return
    if _recent.suspects is not None:
        _recent.suspects.append(found)
    if len(_staged) >= _MOST:
        _staged.clear()
    _staged[source.place] = found


def suspect_at(source: Source | None, shape: Shape) -> Suspect | None:
    """The suspect that an equation with a result of this shape belongs to, if there is one."""
    if source is None:
        found = [s for s in _recent.suspects or () if s.result == shape]
        return found[0] if found else None
    there = _staged.get(source.place)
    return there if there is not None and there.result == shape else None


def begin_loss() -> list[Suspect] | None:
    """Begin to differentiate a loss. The result must be passed to `end_loss`."""
    before, _recent.suspects = _recent.suspects, []
    return before


def end_loss(before: list[Suspect] | None) -> None:
    _recent.suspects = before


def any_suspects() -> bool:
    return bool(_staged)


# ---------------------------------------------------------------------------------------- reports

_ADVICE = (
    "needed operands of the same shape: remove the axis of size 1 with x.squeeze(-1), or reshape "
    "one operand to the shape of the other (if every pair is intended, write both axes: "
    "x[:, None] and y[None, :])"
)


def report_suspect(found: Suspect) -> None:
    """Warn about an operation in a loss, or raise an error if the check "shapes" is on."""
    text = f"{found.name}: {_broadcast(found.shapes, found.result)} in a loss; {_ADVICE}"
    text += found.module
    source = found.source
    if source is not None:
        line = source.text()
        text += f"\n  at {source.file}:{source.line} in {source.function}"
        text += f"\n    {line}" if line else ""
    _report(text, source)


def check_pair(name: str, **operands: Shape) -> None:
    """Report the operands of a loss if both are broadcast although their ranks differ.

    Args:
        name: name of the loss.
        **operands: shapes of the two operands by argument name.
    """
    (a, b) = operands.values()
    if len(a) == len(b):
        return
    try:
        result = _joined(a, b)
    except ValueError:  # the operation itself raises the error
        return
    if both_grow(a, b, result):
        text = _broadcast((a, b), result, tuple(operands))
        _report(f"{name}: {text}; {_ADVICE}{here()}", user_source())


def _broadcast(shapes: Sequence[Shape], result: Shape, names: Sequence[str] = ()) -> str:
    what = [f"{n} {s}" for n, s in zip(names, shapes)] or [f"shapes {shapes[0]}", str(shapes[1])]
    return f"{what[0]} and {what[1]} were broadcast against each other to {result}"


def _joined(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(s)) + s for s in (a, b))
    out = []
    for m, n in zip(a, b, strict=True):
        if m != n and 1 not in (m, n):
            raise ValueError
        out.append(n if m == 1 else m)
    return tuple(out)


_reported: set[tuple[str, int]] = set()  # warned about once per line


def forget_reports(places: Iterable[tuple[str, int]] | None = None) -> None:
    """Forget which lines were warned about."""
    _reported.difference_update(list(_reported) if places is None else places)


def _report(text: str, source: Source | None) -> None:
    if enabled("shapes"):
        raise ShapeError(text)
    place = ("", 0) if source is None else (source.file, source.line)
    if place in _reported:
        return
    _reported.add(place)
    text += '\n  toile.checks("shapes") makes this an error'
    if source is None:
        advise_caller(text, BroadcastWarning, stacklevel=2)
    else:
        advise(text, BroadcastWarning, source.file, source.line)
