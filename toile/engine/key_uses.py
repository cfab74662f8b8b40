"""What operations do to random keys: rules for `Operation.key_use`.

A rule gets the operation and the avals of its operands, and says which keys are used up, which
results are new keys, and which results are an operand's keys again. Operations without a rule use
up all keys that they are given, and return used ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval

Mask = Any  # which keys of an array: True for all of them, or an array of booleans
Places = Any  # the operand's element that each element of a result is; None: unknown


class KeyUse(NamedTuple):
    """What an operation does to keys, by the numbers of its operands and results."""

    sinks: dict[int, Mask] = {}  # operands that are used up
    sources: frozenset[int] = frozenset()  # results that are new keys
    forwards: dict[int, tuple[int, Places]] = {}  # results that are an operand's
    branches: bool = False  # whether uses are those of branches, of which one runs


def is_key(aval: Aval) -> bool:
    return dtypes.is_extended(aval.dtype)


def compact(mask: Any) -> Mask:
    """A mask as it is kept: True where it holds everywhere."""
    return True if mask is True or mask.all() else mask


def numbers(shape: Sequence[int]) -> Any:
    """The number of each element of an array."""
    return np.arange(math.prod(shape)).reshape(shape)


def uses_all(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that uses up all its keys."""
    return KeyUse({i: True for i, a in enumerate(avals) if is_key(a)})


def splits(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that makes new keys of all its keys, which it uses up."""
    return KeyUse(uses_all(op, avals).sinks, frozenset({0}))


def reads(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that uses up no keys."""
    return KeyUse()


def makes_keys(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation whose result is new keys."""
    return KeyUse(sources=frozenset({0}))


def keeps(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation whose results are its operands."""
    keys = [(i, a) for i, a in enumerate(avals) if is_key(a)]
    return KeyUse(forwards={i: (i, numbers(a.shape)) for i, a in keys})


def moves(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that moves elements about: so it moves their numbers."""
    if not is_key(avals[0]):
        return KeyUse()
    return KeyUse(forwards={0: (0, np.asarray(op.eager(np, numbers(avals[0].shape))))})


def takes(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """An operation that takes elements from places that are not known here."""
    return KeyUse(forwards={0: (0, None)})


def replaces(index: int) -> Any:
    """The first operand with some elements replaced by those of the operand at `index`."""

    def rule(op: Any, avals: Sequence[Aval]) -> KeyUse:
        if not is_key(avals[0]):
            return KeyUse()
        return KeyUse({index: True}, forwards={0: (0, numbers(avals[0].shape))})

    return rule
