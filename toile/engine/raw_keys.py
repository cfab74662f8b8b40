"""Keys in the older form, arrays of uint32 words, while `checks("keys")` is on.

In a Program, words are followed back to the value that they are a part of: an input, or the words
of typed keys. Concrete words are recognized by their place in memory and their value, because each
`keys[0]` is a new array. This module may import the modules of the engine below it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from toile.engine import key_uses
from toile.engine.arrays import KeyArray
from toile.engine.avals import Aval
from toile.engine.key_uses import is_key, numbers
from toile.engine.operation import Operation
from toile.engine.program import Equation, Program, Var

_UINT32 = np.dtype("uint32")
_WORDS = (2, 4)  # the numbers of words in a key of some generator


def may_be_words(aval: Aval) -> bool:
    """Whether a value of this type can be the words of keys."""
    return aval.dtype == _UINT32 and bool(aval.shape) and aval.shape[-1] in _WORDS


def key_shape(aval: Aval) -> tuple[int, ...]:
    """The shape of an array of keys; the aval is that of the keys or that of their words."""
    return aval.shape if is_key(aval) else aval.shape[:-1]


# -------------------------------------------------------------------------------------- Programs


def words_root(program: Program, var: Var) -> tuple[Var, Any]:
    """The variable that words are a part of, and the positions of their keys in it.

    The variable has either typed keys or words. The positions are None if they are unknown."""
    made = program.memoized("equation by result", lambda: _made(program))
    path: list[Equation] = []
    root = var
    while root in made and _moves(made[root].op):
        path.append(made[root])
        source = made[root].ins[0]
        if not isinstance(source, Var):
            return var, None
        root = source
    index = numbers(root.aval.shape)
    for e in reversed(path):
        index = np.asarray(e.op.eager(np, index))
    words = root.aval.shape[-1] if root.aval.shape else 0
    if words not in _WORDS or index.shape[-1:] != (words,):
        return var, None
    first = index[..., :1]
    if not np.array_equal(index, first + np.arange(words)) or (first % words).any():
        return var, None  # the words are mixed
    creator = made.get(root)
    if creator is not None and creator.op.retypes_keys and isinstance(creator.ins[0], Var):
        root = creator.ins[0]
    elif creator is not None:
        return var, None  # computed by other means: not known to be keys
    return root, index[..., 0] // words


def _moves(op: Operation) -> bool:
    """Whether a result consists of elements of the only operand, at positions that are known."""
    return op.views_part or type(op).key_use is key_uses.moves


def _made(program: Program) -> dict[Var, Equation]:
    return {out: e for e in program.equations for out in e.outs}


# --------------------------------------------------------------------------------- concrete words

# The first use of keys, by the address of their words, with the words and an object that owns the
# memory. Memory that is released, or that holds other words now, is forgotten.
_uses: dict[int, tuple[Any, bytes, Any]] = {}


def first_use(array: Any, mask: Any = True) -> Any:
    """Where one of the keys of an array was first used; None if none of them was."""
    for place, value, wanted in _keys(array, mask):
        found = _uses.get(place)
        if wanted and found is not None and found[0]() is not None and found[1] == value:
            return found[2]
    return None


def note_use(array: Any, mask: Any, source: Any) -> None:
    """Record that keys of an array are used."""
    owner = _owner(array)
    if owner is None:
        return
    for place, value, wanted in _keys(array, mask):
        if wanted:
            forget = lambda _, place=place: _uses.pop(place, None)
            _uses[place] = weakref.ref(owner, forget), value, source


def _owner(array: Any) -> Any:
    """The NumPy array that owns the memory; None if there is none."""
    data = getattr(array, "_data", None)
    while isinstance(data, np.ndarray) and data.base is not None:
        data = data.base
    return data if isinstance(data, np.ndarray) else None


_MOST = 4096  # keys of one array that are followed


def _keys(array: Any, mask: Any) -> Iterator[tuple[int, bytes, bool]]:
    """The address and the words of each key, and whether the mask contains the key."""
    data = getattr(array, "_data", None)
    if not isinstance(data, np.ndarray) or data.dtype != _UINT32 or data.ndim < 1:
        return
    shape = data.shape[:-1]
    wanted = np.broadcast_to(np.asarray(mask), shape)
    start = data.__array_interface__["data"][0]
    for count, index in enumerate(np.ndindex(shape)):
        if count == _MOST:
            return
        offset = sum(i * step for i, step in zip(index, data.strides[:-1], strict=True))
        yield start + offset, data[index].tobytes(), bool(wanted[index])


def is_raw(array: Any) -> bool:
    """Whether a concrete argument can be the words of keys."""
    data = getattr(array, "_data", None)
    return not isinstance(array, KeyArray) and isinstance(data, np.ndarray) and (
        data.dtype == _UINT32 and data.ndim > 0 and data.shape[-1] in _WORDS
    )
