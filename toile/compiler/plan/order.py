"""The order of fused groups: after what they read, and updates of an array after its other readers.

An update (a scatter, or a slice that is replaced) can be done in place if nothing reads its operand
afterwards. Where other readers of the operand can run first, they do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from toile.compiler.ir.groups import Group


def ordered(
    groups: Mapping[int, Group], position: Callable[[Group], int], base: Callable[[Any], Any]
) -> list[Group]:
    """The groups, each after those it depends on and near the place of its last equation.

    `position` gives the place of a group's last equation, `base` the variable that holds the
    elements of an atom."""
    missing = {g.id: g.direct.bit_count() for g in groups.values()}
    ready = [(position(g), g.id) for g in groups.values() if not missing[g.id]]
    heapq.heapify(ready)
    first = _other_readers(groups, base)
    waiting: list[tuple[int, int]] = []  # updates whose operands have other readers
    out: list[Group] = []
    placed: set[int] = set()
    while ready or waiting:
        if not ready:  # the readers of one operand wait for the update of another one
            entry = waiting.pop(0)
        else:
            entry = heapq.heappop(ready)
            if not first.get(entry[1], placed) <= placed:
                waiting.append(entry)
                continue
        group = groups[entry[1]]
        out.append(group)
        placed.add(group.id)
        for i in group.readers:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, (position(groups[i]), i))
        for again in [w for w in waiting if first[w[1]] <= placed]:
            waiting.remove(again)
            heapq.heappush(ready, again)
    assert len(out) == len(groups), "groups wait for each other"
    return out


def _other_readers(groups: Mapping[int, Group], base: Callable[[Any], Any]) -> dict[int, set[int]]:
    """The groups that read the operand of each update and do not depend on the update."""
    updates = {g.id: base(g.members[0].equation.ins[0]) for g in groups.values()
               if not g.fusible and g.members[0].equation.op.updates}
    wanted = set(updates.values())
    readers: dict[Any, set[int]] = {a: set() for a in wanted}
    if wanted:
        for g in groups.values():
            for member in g.members:
                for a in {base(a) for a in member.equation.ins} & wanted:
                    readers[a].add(g.id)
    return {u: {i for i in readers[a] if i != u and not groups[i].before >> u & 1}
            for u, a in updates.items()}
