"""Row buffers: values of a row that a nest with several passes keeps from pass to pass."""

from __future__ import annotations

from dataclasses import replace

from toile.compiler.ir.loop_nests import Apply, LoopNest, Pick, Reduce, Total, levels

LONGEST_BUFFER = 1 << 14  # elements of a row buffer
MOST_BUFFERS = 4


def with_row_buffers(nest: LoopNest, row: int) -> LoopNest:
    """The nest with row buffers for costly values that are needed in more than one pass."""
    if nest.kind != "row" or nest.reduced != 1 or row > LONGEST_BUFFER:
        return nest
    costly: list[bool] = []
    for node in nest.nodes:
        costly.append(isinstance(node, Apply) and (
            node.op.costly or any(costly[a] for a in node.args)))
    stages = _passes_with(nest)
    again = [n for n in range(len(nest.nodes)) if costly[n] and len(stages[n]) > 1]
    # In a chain of such values, only the last one that all later passes start from is kept.
    kept = {n for n in again if not any(
        isinstance(m, Apply) and n in m.args and i in again and stages[i] == stages[n]
        for i, m in enumerate(nest.nodes))}
    return replace(nest, scratch=frozenset(sorted(kept)[:MOST_BUFFERS]))


def _passes_with(nest: LoopNest) -> list[set[int]]:
    """For each node that varies along a row, the passes that need it."""
    level, varies = levels(nest)
    stages: list[set[int]] = [set() for _ in nest.nodes]
    needed = [(node.arg, level[node.arg]) for node in nest.nodes if isinstance(node, Reduce)]
    needed += [(n, level[n]) for n, access in nest.stores if varies[n] or access.varies]
    while needed:
        n, stage = needed.pop()
        if stage in stages[n] or not varies[n]:
            continue
        stages[n].add(stage)
        node = nest.nodes[n]
        if isinstance(node, Apply):
            needed += [(a, stage) for a in node.args]
        elif isinstance(node, Pick):
            needed.append((node.index, stage))
        elif isinstance(node, Total):
            needed.append((node.arg, stage))
    return stages
