"""Divisions of a whole row by one number, computed as products with its reciprocal."""

from __future__ import annotations

from toile.compiler.ir.loop_nests import Apply, LoopNest, Reduce, Total, levels


def reciprocal_products(nest: LoopNest) -> frozenset[int]:
    """The divisions of a row by one number that may become products with its reciprocal.

    That adds one rounding. It is allowed where the result has the rounding errors of a root or a
    transcendental function anyway: the numerator has them, or everything that the quotient leads to
    has them."""
    if nest.kind == "column":
        return frozenset()
    _, varies = levels(nest)
    inexact = _inexact(nest)
    passes = _only_inexact_users(nest, inexact)
    return frozenset(
        n for n, node in enumerate(nest.nodes)
        if isinstance(node, Apply) and node.op.is_quotient
        and varies[node.args[0]] and not varies[node.args[1]]
        and (inexact[node.args[0]] or passes[n]))


def _inexact(nest: LoopNest) -> list[bool]:
    """Which nodes have the rounding errors of a root or of a transcendental function."""
    found: list[bool] = []
    for node in nest.nodes:
        found.append(isinstance(node, Apply) and (
            node.op.costly or node.op.is_inexact
            or node.op.passes_errors and any(found[a] for a in node.args)))
    return found


def _only_inexact_users(nest: LoopNest, inexact: list[bool]) -> list[bool]:
    """Which nodes lead only to inexact results, directly or through other nodes."""
    users: list[list[int]] = [[] for _ in nest.nodes]
    for n, node in enumerate(nest.nodes):
        match node:
            case Apply(_, args, _):
                for a in args:
                    users[a].append(n)
            case Reduce(_, arg, _) | Total(_, arg, _):
                users[arg].append(n)
    found = [False] * len(nest.nodes)
    stored = {n for n, _ in nest.stores}
    for n in reversed(range(len(nest.nodes))):
        found[n] = n not in stored and all(
            isinstance(m := nest.nodes[u], Apply) and (
                inexact[u] or found[u] and (
                    m.op.keeps_relative_errors or m.op.is_sum and _adds_products(nest, m)))
            for u in users[n])
    return found


def _adds_products(nest: LoopNest, added: Apply) -> bool:
    """Whether a sum adds products. Such a sum may be rounded once more or less anyway, because a
    product and a sum may be contracted."""
    return all(isinstance(m := nest.nodes[a], Apply) and m.op.is_product for a in added.args)
