"""Detect concrete random keys that are used twice, if `debug_key_reuse` or the check is on.

This module may import the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.arrays import KeyArray
from toile.engine.avals import aval_of
from toile.engine.errors import KeyReuseError
from toile.engine.key_uses import Mask, Places
from toile.engine.operation import Operation, run_eager
from toile.engine.program_keys import reuse_message
from toile.engine.raw_keys import first_use, is_raw, note_use
from toile.engine.source import user_source


def run(
    op: Operation, args: Sequence[Any], how: Callable[[Operation, Sequence[Any]], Any] = run_eager
) -> Any:
    """Run an operation now, and record the keys it consumes; `how` runs it."""
    if not op.carries_programs and not any(map(_is_key, args)):
        return how(op, args)
    found = op.key_use([aval_of(a) for a in args])
    keys = [(i, args[i], m) for i, m in found.sinks.items() if _is_key(args[i]) and args[i].size]
    for i, key, mask in keys:
        _check_unused(op, i, key, mask)
    result = how(op, args)
    for _, key, mask in keys:
        _note(key, mask)
    for j, out in enumerate(result if op.multiple else [result]):
        if isinstance(out, KeyArray) and j not in found.sources:
            _follow(out, found.forwards.get(j), args)
    if found.words:
        result._of_words = True
    return result


def _is_key(x: Any) -> bool:
    return isinstance(x, KeyArray) or is_raw(x)


def _check_unused(op: Operation, i: int, key: Any, mask: Mask) -> None:
    """Raise if keys that an operation consumes were consumed before."""
    used, source = getattr(key, "_spent", (False, None))
    if not np.any(used & mask):
        source = first_use(key, mask) if _has_words(key) else None
        if source is None:
            return
    text = f"Previously-consumed key passed to {op.title} at index {i}"
    raise KeyReuseError(reuse_message(text, source))


def _note(key: Any, mask: Mask) -> None:
    """Record that keys are consumed."""
    source = user_source()
    if isinstance(key, KeyArray):
        used, first = getattr(key, "_spent", (False, None))
        key._spent = used | mask, first or source
    if _has_words(key):
        note_use(key, mask, source)


def _has_words(key: Any) -> bool:
    return not isinstance(key, KeyArray) or getattr(key, "_of_words", False)


def _follow(out: KeyArray, forward: tuple[int, Places] | None, args: Sequence[Any]) -> None:
    """Mark a result that is not a new key as consumed, or in the same way as its operand."""
    if forward is None:
        out._spent = True, user_source()
        return
    i, places = forward
    used, source = getattr(args[i], "_spent", (False, None))
    if used is False or out is args[i]:
        return
    if used is not True:
        used = False if places is None else used.ravel()[places]
    out._spent = used, source
