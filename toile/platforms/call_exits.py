"""Exits: the code that runs a compiled Program and returns its results, written as Python text.

The code before it, which takes arguments apart, is in `staging.callpath`. An exit has
`leave(pointers, memory)`, which returns the tree of results, `pools` of donated memory,
`executable` (None once it is closed) and `close()`. This module has the pieces that platforms
share.
This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray, KeyArray
from toile.engine.avals import aval_of
from toile.engine.buffers import Placement, Signature, signature
from toile.engine.conversion import as_array
from toile.engine.sharded import class_over

MISS: Any = object()  # sends a call to the general path
MAX_LEAVES = 4096


def adopted(x: Any) -> Any:
    """An array for any argument that compiled code may read in place during the call."""
    if isinstance(x, ConcreteArray):
        return x
    if not isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)):
        raise TypeError("needed an array or a number")
    aval = aval_of(x)
    if x.__class__ is np.ndarray and x.dtype == aval.dtype and x.dtype.isnative:
        made = DeviceArray(x, aval.weak_type)  # not copied
    else:
        made = as_array(x)
    made._signature = signature(aval.shape, aval.dtype, aval.weak_type)
    return made


def hosted_leaves(leaves: Sequence[Any]) -> tuple[int, ...]:
    """The positions of arguments that are on the host."""
    return tuple(i for i, x in enumerate(leaves) if adopted(x)._signature.device is None)


def missed(pointers: Any, memory: Any) -> Any:
    """The `leave` of a closed exit."""
    return MISS


def signatures_of_results(
    program: Any, device: Any, placements: Sequence[Placement]
) -> list[Signature]:
    """The signatures of the results of a Program; `placements` is empty if they have none."""
    given = placements or (None,) * len(program.outputs)
    return [signature(o.aval.shape, o.aval.dtype, o.aval.weak_type, device, p)
            for o, p in zip(program.outputs, given, strict=True)]


def class_of_result(form: Signature, array: type[Any]) -> type[Any]:
    """The class of a result; `array` is that of results that are not sharded."""
    if form.placement is not None:
        return class_over(form.placement[0], form.dtype)
    return KeyArray if dtypes.is_extended(form.dtype) else array


def result_lines(
    scope: dict[str, Any], outs: Sequence[Signature], array: type[Any],
    places: Iterable[tuple[int, int]],
) -> list[str]:
    """Lines that create the arrays of results and return their tree.

    `array` is the class of results that are not sharded; `places` has, for each result, the number
    of its block (block 0 is memory `m0` at address `p0`) and the offset in it."""
    lines = []
    for i, (form, (block, offset)) in enumerate(zip(outs, places, strict=True)):
        kind = class_of_result(form, array)
        scope[f"s{i}"] = form
        scope[kind.__name__] = kind
        lines += [
            f"o{i} = new({kind.__name__})", f"o{i}._signature = s{i}", f"o{i}._memory = m{block}",
            f"o{i}._pointer = p{block} + {offset}" if offset else f"o{i}._pointer = p{block}",
        ]
    return [*lines, f"return build([{', '.join(f'o{i}' for i in range(len(outs)))}])"]


def written(text: str, what: str, scope: dict[str, Any], name: str) -> Any:
    """The function that a text defines.

    It is removed from the scope: if a function and a scope hold each other, they are freed late."""
    exec(compile(text, f"<toile {what}>", "exec"), scope)
    return scope.pop(name)
