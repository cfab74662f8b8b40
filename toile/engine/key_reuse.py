"""Detect concrete random keys that are used twice, while `debug_key_reuse` is on.

May import the engine below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.arrays import KeyArray
from toile.engine.avals import aval_of
from toile.engine.errors import KeyReuseError
from toile.engine.key_uses import Mask, Places
from toile.engine.operation import Operation, run_eager
from toile.engine.program_keys import reuse_message
from toile.engine.source import user_source


def run(op: Operation, args: Sequence[Any]) -> Any:
    """Run an operation now, and record the keys it consumes."""
    if not op.carries_programs and not any(isinstance(a, KeyArray) for a in args):
        return run_eager(op, args)
    found = op.key_use([aval_of(a) for a in args])
    keys = [(i, args[i], m) for i, m in found.sinks.items()
            if isinstance(args[i], KeyArray) and args[i].size]
    for i, key, mask in keys:
        _check_unused(op, i, key, mask)
    result = run_eager(op, args)
    for _, key, mask in keys:
        used, source = getattr(key, "_spent", (False, None))
        key._spent = used | mask, source or user_source()
    for j, out in enumerate(result if op.multiple else [result]):
        if isinstance(out, KeyArray) and j not in found.sources:
            _follow(out, found.forwards.get(j), args)
    return result


def _check_unused(op: Operation, i: int, key: KeyArray, mask: Mask) -> None:
    """Raise if keys that an operation consumes were consumed before."""
    used, source = getattr(key, "_spent", (False, None))
    if np.any(used & mask):
        text = f"Previously-consumed key passed to {op.title} at index {i}"
        raise KeyReuseError(reuse_message(text, source))


def _follow(out: KeyArray, forward: tuple[int, Places] | None, args: Sequence[Any]) -> None:
    """Mark a result that is not a new key: as consumed, or like its operand."""
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
