"""Why fusion stopped: for each value that a group stores, the groups that read it, and the reason.

The reasons are reconstructed from the finished groups. The tests and their order are those of the
fusion pass.
"""

from __future__ import annotations

from toile.compiler.ir.groups import Fused, Group
from toile.engine.program import Atom, Literal, Var


def borders(fused: Fused, group: Group, labels: dict[int, str]) -> list[str]:
    """List why a group's results are stored; `labels` maps the `id()` of each group to a name."""
    if not group.fusible:
        return [f"{_short(group)} is a kernel of its own"]
    out: dict[str, None] = {}
    results = {made_of(fused, o) for o in fused.program.outputs}
    readers = _readers(fused, group)
    for v in group.maps:
        if v not in fused.stored:
            continue
        shown = v.aval.str_short()
        if v in results:
            out[f"{shown} is a result"] = None
        for reader in readers.get(v, ()):
            label = labels.get(id(reader), "another kernel")
            out[f"{shown} is read by {label}: {_reason(fused, group, reader, v)}"] = None
    return list(out)


def made_of(fused: Fused, a: Atom) -> Var | None:
    """Return the variable of an operand, which may be a view of it; None for a constant."""
    base = a if isinstance(a, Literal) else fused.bases.get(a, a)
    return None if isinstance(base, Literal) else base


def _readers(fused: Fused, group: Group) -> dict[Var, list[Group]]:
    found: dict[Var, list[Group]] = {}
    for other in fused.groups:
        if other is group:
            continue
        for member in other.members:
            for a in member.equation.ins:
                base = made_of(fused, a)
                if base is not None and fused.group_of.get(base) is group:
                    known = found.setdefault(base, [])
                    if other not in known:
                        known.append(other)
    return found


def _reason(fused: Fused, group: Group, reader: Group, v: Var) -> str:
    """Return the reason why the reader of `v` is not fused with the group that computes `v`."""
    if not reader.fusible:
        return f"{_short(reader)} is a kernel of its own"
    if group.weight + reader.weight > fused.limits.members:
        return "a kernel with all of their operations would take long to compile"
    between = dict.fromkeys(_short(g) for g in _between(fused, group, reader))
    if between:
        return f"{', '.join(list(between)[:3])} must run between them"
    if v in group.totals:
        return "a sum over outer axes is complete only when the kernel ends"
    if group.reduced is not None and group.is_reduced(group.maps[v]):
        if not group.rows:
            return "a sum over outer axes is complete only when the kernel ends"
        if _sums(reader):
            return "it sums over other axes"
        return "the sum is over rows too long for one thread, or it is used in another shape"
    if _sums(group) and _sums(reader):
        return "it sums over other axes"
    ours, theirs = _extents(group), _extents(reader)
    if ours != theirs:
        return f"it runs over {theirs}, not over {ours}"
    return "its elements are needed in another order"


def _between(fused: Fused, first: Group, last: Group) -> list[Group]:
    """Return the groups that must run between two groups."""
    others = (g for g in fused.groups if g is not first and g is not last)
    return [g for g in others if g.before >> first.id & 1 and last.before >> g.id & 1]


def _short(g: Group) -> str:
    return g.members[0].equation.op.name if not g.fusible else "another kernel"


def _sums(g: Group) -> bool:
    return any(m.equation.op.is_reduction for m in g.members)


def _extents(g: Group) -> tuple[int, ...]:
    """Return the sorted extents of a group; the order of axes does not matter for fusion."""
    return tuple(sorted(g.extents[a] for a in g.order))
