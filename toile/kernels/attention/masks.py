"""Masks that are known when a Program is compiled, because they are computed from indices only.

The equations that compute a mask are followed back as long as they depend on nothing but shapes.
Axes along which all elements are equal (batch, heads) are computed for one index only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.program import Atom, Equation, Literal, Var

MOST = 1 << 26  # distinct elements that are worth computing
EQUATIONS = 1 << 8  # examined for one mask

_known: dict[Any, tuple[Any, Any]] = {}  # the latest masks, by ids of variables
_KEPT = 64


def known_as(a: Atom, before: Sequence[Equation]) -> str | None:
    """What a mask is known to be: "causal" (query i sees keys up to i), "all" (all keys), or None.

    `a` is the mask, (..., queries, keys), and `before` are the equations that may have made it."""
    found = _known.get(id(a))
    if found is not None and found[0] is a:
        return found[1]
    kind = _kind_of_mask(a, before)
    while len(_known) >= _KEPT:
        _known.pop(next(iter(_known)))
    _known[id(a)] = (a, kind)
    return kind


def _kind_of_mask(a: Atom, before: Sequence[Equation]) -> str | None:
    made = {o: e for e in before for o in e.outs}
    token = ignore_errors()
    try:
        mask = _Values(made).of(a)
    finally:
        restore_errors(token)
    if mask is None or mask.ndim < 2:
        return None
    one = _without_copies(mask, mask.ndim - 2)
    if any(n != 1 for n in one.shape[:-2]):
        return None
    seen = one.reshape(mask.shape[-2:]).astype(bool)
    if seen.all():
        return "all"
    return "causal" if np.array_equal(seen, np.tri(len(seen), len(seen.T), dtype=bool)) else None


def _without_copies(x: np.ndarray, axes: int) -> np.ndarray:
    """The array with its first axes reduced to one index where it repeats along them."""
    return x[tuple(slice(0, 1) if i < axes and s == 0 else slice(None)
                   for i, s in enumerate(x.strides))]


class _Values:
    """The arrays of variables, with strides of 0 where they repeat; None if not known."""

    def __init__(self, made: dict[Any, Equation]):
        self.made = made
        self.found: dict[Any, Any] = {}

    def of(self, a: Atom) -> np.ndarray | None:
        """The values of a variable or a literal."""
        if isinstance(a, Literal):
            return a.val
        if a not in self.found:
            e = self.made.get(a)
            known = e is not None and len(self.found) < EQUATIONS
            self.found[a] = None  # while it is being computed
            self.found[a] = self._result(e, a) if known and e is not None else None
        return self.found[a]

    def _result(self, e: Equation, a: Var) -> np.ndarray | None:
        op = e.op
        if op.is_identity:
            return self.of(e.ins[e.outs.index(a)])
        if op.multiple or e.effects or op.axis_names or (
                e.ins and not (op.by_element or op.moves_axes)):
            return None
        xs = []
        for x in e.ins:
            value = self.of(x)
            if value is None:
                return None
            xs.append(value)
        if op.moves_axes:
            return _viewed(op, xs[0])
        if op.by_element:
            return _elementwise(op, xs, a.aval.shape)
        return np.asarray(op.eager(np))  # without operands: an iota


def _elementwise(op: Any, xs: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray | None:
    full = [x for x in xs if x.shape == shape]
    repeats = [all(x.strides[i] == 0 or n == 1 for x in full) for i, n in enumerate(shape)]
    one = tuple(slice(0, 1) if r else slice(None) for r in repeats)
    small = [x[one] if x.shape == shape else x for x in xs]
    if max((x.size for x in small), default=0) > MOST:
        return None
    return np.broadcast_to(np.asarray(op.eager(np, *small)), shape)


class _Strides(NamedTuple):
    """The attributes of an array that `Operation.view` changes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _viewed(op: Any, x: np.ndarray) -> np.ndarray | None:
    """The array with other axes, as a view if possible, which keeps strides of 0."""
    found = op.view(_Strides(x.shape, x.strides))
    if found is None:
        return op.eager(np, x) if x.size <= MOST else None
    return np.lib.stride_tricks.as_strided(x, found[0], found[1], writeable=False)
