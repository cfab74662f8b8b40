"""What operations do to random keys: rules for `Operation.key_use`.

A rule is called with the operation and the avals of its operands. It says which keys are consumed,
which results are new keys, and which results are keys of an operand. Operations without a rule
consume all their keys, and the keys that they return count as consumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.config import flags

Mask = Any  # which keys of an array: True for all of them, or an array of booleans
Places = Any  # the operand's element behind each element of a result; None: unknown


class KeyUse(NamedTuple):
    """What an operation does to keys; operands and results are given by their numbers."""

    sinks: dict[int, Mask] = {}  # operands that are consumed
    sources: frozenset[int] = frozenset()  # results that are new keys
    forwards: dict[int, tuple[int, Places]] = {}  # results that are an operand's keys
    branches: bool = False  # whether the uses belong to branches, of which one runs
    words: bool = False  # whether the operand contains the words of the resulting keys


def is_key(aval: Aval) -> bool:
    return dtypes.is_extended(aval.dtype)


def compact(mask: Any) -> Mask:
    """A mask in its stored form, which is True if all elements of the mask are True."""
    return True if mask is True or mask.all() else mask


def numbers(shape: Sequence[int]) -> Any:
    """The row-major index of each element of an array."""
    return np.arange(math.prod(shape)).reshape(shape)


def uses_all(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that consumes all its keys."""
    return KeyUse({i: True for i, a in enumerate(avals) if is_key(a)})


def splits(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that consumes all its keys and makes new ones from them."""
    return KeyUse(uses_all(op, avals).sinks, frozenset({0}))


def reads(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that consumes no keys."""
    return KeyUse()


def makes_keys(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation whose result is new keys."""
    return KeyUse(sources=frozenset({0}))


def wraps(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that makes keys from their words; `checks("keys")` follows the words."""
    return KeyUse(sources=frozenset({0}), words="keys" in flags.checks)


def keeps(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation whose results are its operands."""
    keys = [(i, a) for i, a in enumerate(avals) if is_key(a)]
    return KeyUse(forwards={i: (i, numbers(a.shape)) for i, a in keys})


def moves(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that rearranges elements: applied to their indices, it shows where they go."""
    if not is_key(avals[0]):
        return KeyUse()
    return KeyUse(forwards={0: (0, np.asarray(op.eager(np, numbers(avals[0].shape))))})


def takes(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that takes elements from unknown positions."""
    return KeyUse(forwards={0: (0, None)})


def replaces(index: int) -> Any:
    """The rule of an operation that replaces elements of operand 0 by those of operand `index`."""

    def rule(op: Any, avals: Sequence[Aval]) -> KeyUse:
        if not is_key(avals[0]):
            return KeyUse()
        return KeyUse({index: True}, forwards={0: (0, numbers(avals[0].shape))})

    return rule
