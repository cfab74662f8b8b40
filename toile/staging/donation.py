"""Donated arguments: which leaves they are, and which of them a call deletes.

`jit`, its compiled stages and `pmap` share these rules, which are JAX's. This module may import the
engine.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval
from toile.engine.program import Program, used_vars
from toile.engine.promotion import user_stack_level
from toile.engine.trace import runs_at_once
from toile.engine.trees import flatten


def donated_leaves(
    args: Sequence[Any], kwargs: dict[str, Any], numbers: Iterable[int],
    names: Collection[str] = (), static: Collection[Any] = (),
) -> list[int]:
    """The positions, among all leaves of (args, kwargs), of those that are donated.

    `static` has the numbers and names of the static arguments, which have no leaves."""
    chosen = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    found: list[int] = []
    start = 0
    for name, value in [*enumerate(args), *sorted(kwargs.items())]:
        if name in static:
            continue
        count = len(flatten(value)[0])
        if name in chosen or name in names:
            found += range(start, start + count)
        start += count
    return found


def used_arguments(program: Program) -> set[int]:
    """The positions of the arguments that results or effects depend on."""
    used = used_vars(program)
    return {i for i, v in enumerate(program.invars) if v in used}


def taken_over(donated: Sequence[Aval], outs: Sequence[Aval]) -> list[Aval | None]:
    """For each donated buffer, the result that may reuse it; None if no result is left for it.

    As in JAX, results of the same shape and dtype come first, then those with the same number of
    elements."""
    found: list[Aval | None] = [None] * len(donated)
    left: list[Aval | None] = list(outs)
    for kind in (lambda a: (a.shape, a.dtype), lambda a: a.size):
        places: dict[Any, deque[int]] = {}
        for j, out in enumerate(left):
            if out is not None:
                places.setdefault(kind(out), deque()).append(j)
        for i, a in enumerate(donated):
            if found[i] is None and places.get(kind(a)):
                j = places[kind(a)].popleft()
                found[i], left[j] = left[j], None
    return found


def given_up(
    donated: Sequence[int], program: Program, keep_unused: bool = False
) -> tuple[int, ...]:
    """The donated arguments that the call deletes, because a result has the same size in bytes.

    The other donated arguments are kept. Outside a trace, a warning lists those that no result can
    reuse; arguments that nothing depends on are ignored unless `keep_unused` is True."""
    if donated and not keep_unused:
        used = used_arguments(program)
        donated = [i for i in donated if i in used]
    avals = [program.invars[i].aval for i in donated]
    served = taken_over(avals, program.out_avals)
    unused = [a.str_short() for a, out in zip(avals, served, strict=True) if out is None]
    if unused and runs_at_once():
        warnings.warn(
            f"Some donated buffers were not usable: {', '.join(unused[:8])} (needed a result of the"
            " same shape and dtype for each: donate arguments that results replace)",
            stacklevel=user_stack_level(),
        )
    return tuple([i for i, a, out in zip(donated, avals, served, strict=True)
                  if out is not None and out.nbytes == a.nbytes])


def delete_donated(leaves: Sequence[Any], positions: Sequence[int]) -> None:
    """Delete the arrays at some positions after a call, unless a trace has only recorded the call.

    Traces that check values run a call at once. There, the results do not overwrite the arguments,
    because the checks need the arguments until the results are known."""
    if runs_at_once():
        for i in positions:
            if isinstance(leaves[i], ConcreteArray):
                leaves[i].delete()
