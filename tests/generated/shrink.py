"""Makes a failing program small: every change that keeps the failure stays.

Nodes are removed (what used them gets another value of the same type), calls and branches are
replaced by what is inside of them, results and inputs are dropped, sizes are made smaller, and the
transformation of the whole program is made simpler.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator

from tests.generated.check import Failure, examine
from tests.generated.data import Block, Node, Program, nodes

INLINED = ("jit", "checkpoint", "custom_jvp", "custom_vjp")
TRIES = {"jit": ["jit", "copy", "copy", "copy"], "copy": ["copy"] * 4}


def blocks(p: Program) -> Iterator[Block]:
    yield p.main
    for n, _ in nodes(p.main):
        yield from n.blocks


def _substitute(p: Program, to: dict[int, int]) -> None:
    """Use other variables for some."""
    for b in blocks(p):
        b.outs = [to.get(v, v) for v in b.outs]
        for n in b.nodes:
            n.ins = [to.get(v, v) for v in n.ins]


def _used(p: Program) -> set[int]:
    found = set()
    for b in blocks(p):
        found |= set(b.outs)
        for n in b.nodes:
            found |= set(n.ins)
    return found


def clean(p: Program) -> Program:
    """Remove nodes whose results nothing uses."""
    while True:
        used, before = _used(p), sum(1 for _ in nodes(p.main))
        for b in blocks(p):
            b.nodes = [n for n in b.nodes if used & set(n.outs)]
        if sum(1 for _ in nodes(p.main)) == before:
            return p


def _constant(p: Program, v: int) -> Node:
    shape, dtype = p.types[v]
    text = f"({', '.join(shape)},)" if shape else "()"
    return Node("constant", [], [v], f"jnp.ones({text}, '{dtype}')")


def _scopes(b: Block, scope: list[int]) -> Iterator[tuple[Block, int, list[int]]]:
    """Each node as its block, its place there and the variables that it can use."""
    scope = [*scope, *b.params]
    for i, n in enumerate(b.nodes):
        yield b, i, list(scope)
        for inner in n.blocks:
            yield from _scopes(inner, scope)
        scope += n.outs


def _places(p: Program) -> list[tuple[int, int, list[int]]]:
    """Each node as the number of its block, its place there, and the variables in scope."""
    number = {id(b): i for i, b in enumerate(blocks(p))}
    return [(number[id(b)], i, scope) for b, i, scope in _scopes(p.main, [])]


def _without(p: Program, where: tuple[int, int, list[int]], constants: bool) -> Program:
    """The program without a node."""
    q = copy.deepcopy(p)
    at, i, scope = where
    block = list(blocks(q))[at]
    node = block.nodes.pop(i)
    to = {}
    for v in node.outs:
        same = [] if constants else [u for u in scope if q.types[u] == q.types[v]]
        if same:
            to[v] = same[-1]
        else:
            block.nodes.insert(i, _constant(q, v))
    _substitute(q, to)
    return q


def _inlined(p: Program, where: tuple[int, int, list[int]]) -> Iterator[Program]:
    """The program with what is inside of a call or a branch in its place."""
    at, i, _ = where
    node = list(blocks(p))[at].nodes[i]
    branches = node.op in ("cond", "switch")
    if node.op not in INLINED and not branches:
        return
    for k in range(len(node.blocks)):
        q = copy.deepcopy(p)
        block = list(blocks(q))[at]
        old = block.nodes[i]
        inner = old.blocks[k]
        block.nodes[i:i + 1] = inner.nodes
        _substitute(q, dict(zip(inner.params, old.ins[int(branches):])))
        inner.outs = [dict(zip(inner.params, old.ins[int(branches):])).get(v, v)
                      for v in inner.outs]
        _substitute(q, dict(zip(old.outs, inner.outs)))
        yield q


def _fewer_outs(p: Program, where: tuple[int, int, list[int]]) -> Iterator[Program]:
    """Without the results of a scan that are stacked."""
    at, i, _ = where
    node = list(blocks(p))[at].nodes[i]
    carried = re.search(r"split\(.*?, (\d+)\),", node.text) if node.op == "scan" else None
    if node.op in (*INLINED, "vmap", "map"):
        first = 0
    elif carried:
        first = int(carried.group(1))
    else:
        return
    used = _used(p)
    for j in range(first, len(node.outs)):
        if node.outs[j] not in used and len(node.outs) > 1:
            q = copy.deepcopy(p)
            n = list(blocks(q))[at].nodes[i]
            del n.outs[j], n.blocks[0].outs[j]
            yield q


def _whole(p: Program) -> Iterator[Program]:
    """Changes that do not speak of a node."""
    for i in range(len(p.main.outs)):
        if len(p.main.outs) > 1:
            q = copy.deepcopy(p)
            del q.main.outs[i]
            yield q
    for outer in ("value", "grad"):
        if p.outer not in ("value", outer):
            yield _changed(p, outer=outer)
    if p.passing != "plain":
        yield _changed(p, passing="plain")
    for name, n in p.sizes.items():
        for smaller in {1, n - 1}:
            if 0 < smaller < n:
                yield _changed(p, sizes=p.sizes | {name: smaller})
    used = _used(p)
    for i, v in enumerate(p.main.params):
        if v not in used:
            q = copy.deepcopy(p)
            del q.main.params[i]
            yield q


def _changed(p: Program, **fields: object) -> Program:
    q = copy.deepcopy(p)
    for name, value in fields.items():
        setattr(q, name, value)
    return q


def candidates(p: Program) -> Iterator[Program]:
    """Smaller programs, those that leave out most first."""
    yield from _whole(p)
    places = _places(p)
    for where in reversed(places):
        yield from _inlined(p, where)
        yield from _fewer_outs(p, where)
        if list(blocks(p))[where[0]].nodes[where[1]].op != "constant":
            yield _without(p, where, constants=False)
            yield _without(p, where, constants=True)


def still_fails(p: Program, failure: Failure) -> bool:
    """Whether a program fails in the same check."""
    kind = failure.kind.split()[0]
    checks = [] if kind == "eager" else TRIES.get(kind, [kind])
    found = examine(p, checks)[1]
    if found is None:
        return False
    if kind == "eager":
        return found.kind == "eager" and found.detail[:40] == failure.detail[:40]
    return found.kind == failure.kind or {found.kind, failure.kind} == {"jit", "copy"}


def shrink(p: Program, failure: Failure, seconds: float = 60.0,
           fails: Callable[[Program, Failure], bool] = still_fails) -> Program:
    """A small program that fails as this one does."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for q in candidates(p):
            if time.monotonic() > end:
                break
            clean(q)
            if not (q.main.nodes or q.main.outs) or size(q) >= size(p):
                continue
            if not q.float_outs() and q.outer != "value":
                continue
            if fails(q, failure):
                p, changed = q, True
                break
    return p


def size(p: Program) -> tuple[int, ...]:
    """What becomes smaller."""
    real = sum(1 + len(n.outs) + 2 * bool(n.blocks) for n, _ in nodes(p.main)
               if n.op != "constant")
    constants = sum(1 for n, _ in nodes(p.main) if n.op == "constant")
    outer = {"value": 0, "grad": 1}.get(p.outer, 2) + (p.passing != "plain")
    return (real + constants + outer + len(p.main.outs) + len(p.main.params)
            + sum(p.sizes.values()), real)
