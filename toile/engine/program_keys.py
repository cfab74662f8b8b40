"""What Programs, and operations that carry them, do to random keys.

The key use of a Program follows from the key uses of its equations; consuming a key twice raises an
error. This module may import only the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine.avals import Aval
from toile.engine.errors import KeyReuseError
from toile.engine.key_uses import KeyUse, Mask, Places, compact, is_key, numbers, uses_all
from toile.engine.program import Equation, Program, Var, hooks
from toile.engine.raw_keys import key_shape, may_be_words, words_root
from toile.engine.source import here

# ------------------------------------------------------------------------- operations with Programs


def call(op: Any, avals: Sequence[Aval]) -> KeyUse:
    """The key use of the Program that an operation calls."""
    program = getattr(op, "program", None)
    if not isinstance(program, Program) or len(program.inputs) != len(avals):
        return uses_all(op, avals)
    found = program_use(program)
    if not op.divided:
        return found
    # Each device has an unknown subset of the elements.
    forwards = {j: (i, None) for j, (i, _) in found.forwards.items()}
    return KeyUse({i: m for i, m in found.sinks.items() if m is True}, found.sources, forwards)


def cond(op: Any, avals: Sequence[Aval]) -> KeyUse:
    each = [program_use(b) for b in op.branches]
    sinks: dict[int, Mask] = {}
    for found in each:
        for i, m in found.sinks.items():
            sinks[i + 1] = _joined(sinks.get(i + 1), m)
    forwards: dict[int, tuple[int, Places]] = {}
    for j, (i, places) in each[0].forwards.items():
        others = [s.forwards.get(j, (-1, None)) for s in each[1:]]
        if all(other == i for other, _ in others):
            same = places is not None and all(np.array_equal(places, p) for _, p in others)
            forwards[j] = (i + 1, places if same else None)
    sources = frozenset[int]().union(*(s.sources for s in each)) - forwards.keys()
    return KeyUse(sinks, sources, forwards, branches=True)


def _joined(a: Mask, b: Mask) -> Mask:
    if a is None or a is True or b is True:
        return b if a is None else True
    return compact(a | b)


def scan(op: Any, avals: Sequence[Aval]) -> KeyUse:
    found = program_use(op.program)
    first_x = op.consts + op.carry
    if any(i < op.consts for i in found.sinks):
        raise _in_loop("scan body", "consumes a key that it closes over")
    if any(op.consts <= i < first_x and i - op.consts not in found.sources for i in found.sinks):
        raise _in_loop("scan body", "consumes a key of the carry and does not return a new one")
    sinks = {i: m if i < first_x or m is True else np.broadcast_to(m, avals[i].shape)
             for i, m in found.sinks.items()}
    forwards = {}
    for j, (i, places) in found.forwards.items():
        returned = op.consts <= i < first_x and j == i - op.consts  # the carry does not change
        forwards[j] = (i, places if returned else None)
    return KeyUse(sinks, found.sources, forwards)


def while_loop(op: Any, avals: Sequence[Aval]) -> KeyUse:
    cond, body = program_use(op.cond), program_use(op.body)
    in_cond = {i - op.cond_consts: m for i, m in cond.sinks.items()}
    in_body = {i - op.body_consts: m for i, m in body.sinks.items()}
    for name, used in ("cond", in_cond), ("body", in_body):
        if any(i < 0 for i in used):
            raise _in_loop(f"while_loop {name}", "consumes a key that it closes over")
        if used.keys() - body.sources:
            raise _in_loop(f"while_loop {name}", "consumes a key that the body does not replace")
    if in_cond.keys() & in_body.keys():
        raise _in_loop("while_loop cond", "consumes a key of the carry, as the body does")
    first = op.cond_consts + op.body_consts
    sinks = {i + first: m for i, m in (in_cond | in_body).items()}
    forwards = {j: (i + op.cond_consts, p) for j, (i, p) in body.forwards.items()}
    return KeyUse(sinks, body.sources, forwards)


def _in_loop(what: str, why: str) -> KeyReuseError:
    return KeyReuseError(
        f"{what} function leads to key reuse when repeatedly executed: it {why} (carry the key and "
        f"split it in each step, or fold the step number into it){here()}"
    )


# ---------------------------------------------------------------------------------- Programs' keys


class _Origin:
    """Keys of one origin: which of them are consumed, and where the first use was."""

    __slots__ = ("var", "shape", "used", "unknown", "parts", "source")

    def __init__(self, var: Var):
        self.var = var
        self.shape = key_shape(var.aval)
        self.used = np.zeros(math.prod(self.shape), bool)
        self.unknown = False  # whether an unknown subset was consumed
        self.parts: dict[Var, Any] = {}  # uses of views at unknown positions
        self.source: Any = None


class _View(NamedTuple):
    """The keys of a variable: which keys of their origin they are."""

    origin: _Origin
    places: Places

    def is_used(self) -> bool:
        """Whether one of the keys was consumed."""
        used = self.origin.used
        return bool((used if self.places is None else used[self.places]).any())

    def use(self, var: Var, mask: Mask) -> bool:
        """Consume some of the keys; returns whether one of them was consumed before."""
        origin, used = self.origin, self.origin.used
        if self.places is not None:
            where = self.places.ravel() if mask is True else self.places[mask]
            again = bool(used[where].any()) or (origin.unknown and mask is True)
            used[where] = True
        elif mask is True:
            again = bool(used.any()) or origin.unknown
            used[:] = True
        else:
            before = origin.parts.get(var, False)
            again = bool(used.size and used.all()) or bool(np.any(before & mask))
            origin.parts[var], origin.unknown = before | mask, True
        return again


class _Uses(NamedTuple):
    """The key uses of a Program, by variable."""

    sinks: dict[Var, Mask]
    sources: frozenset[int]
    forwards: dict[int, tuple[Var, Places]]


def _new(var: Var, used: bool = False) -> _View:
    made = _Origin(var)
    made.used[:] = used
    return _View(made, numbers(made.shape))


class _Views(dict[Any, _View]):
    """The views of variables; those of variables that contain the words of keys are made here."""

    def __init__(self, program: Program):
        super().__init__({v: _new(v) for v in program.inputs if is_key(v.aval)})
        self.program = program

    def of_words(self, var: Any) -> _View | None:
        """The keys whose words a variable contains; None if it does not come from such a value."""
        if not isinstance(var, Var) or not may_be_words(var.aval):
            return None
        root, places = words_root(self.program, var)
        if places is None:
            return None
        if root not in self:
            self[root] = _new(root)
        view = self[root]
        known = view.places is not None
        return _View(view.origin, view.places.ravel()[places] if known else None)

    def consumed(self, var: Any) -> _View | None:
        """The keys of an operand that an equation consumes."""
        return self.get(var) if is_key(var.aval) else self.of_words(var)


def program_use(program: Program) -> KeyUse:
    """What a Program does to keys; KeyReuseError if it consumes one twice."""
    uses = _uses(program)
    index = {v: i for i, v in enumerate(program.inputs)}
    sinks = {index[v]: m for v, m in uses.sinks.items() if v in index}
    forwards = {j: (index[v], p) for j, (v, p) in uses.forwards.items() if v in index}
    return KeyUse(sinks, uses.sources, forwards)


def keys_used(program: Program) -> Iterable[Var]:
    """The inputs that a Program consumes."""
    return _uses(program).sinks


def inherit_uses(program: Program, old: Program) -> None:
    """Keep the uses found for a Program with the same equations, before dead code was removed."""
    if _KNOWN in old.memo:
        program.memo[_KNOWN] = old.memo[_KNOWN]


_KNOWN = "key reuse"


def _uses(program: Program) -> _Uses:
    return program.memoized(_KNOWN, lambda: _counted(program))


def _counted(program: Program) -> _Uses:
    views = _Views(program)
    for e in program.equations:
        if any(is_key(a.aval) for a in (*e.ins, *e.outs)) or e.op.carries_programs:
            _count(e, views)
    given = {id(views[v].origin) for v in program.inputs if v in views}
    origins = [views[v].origin for v in program.inputs if v in views]
    sinks = {o.var: _used_up(o) for o in origins if o.used.any() or o.unknown}
    sources, forwards = set(), {}
    for j, out in enumerate(program.outputs):
        view = views.consumed(out)
        if view is None:
            if may_be_words(out.aval):  # of unknown origin: not an error
                sources.add(j)
        elif id(view.origin) in given:
            forwards[j] = view.origin.var, view.places
        elif not view.is_used():
            sources.add(j)
    return _Uses(sinks, frozenset(sources), forwards)


def _used_up(origin: _Origin) -> Mask:
    """The consumed keys of an input; all of them if it is not known which."""
    return True if origin.unknown else compact(origin.used.reshape(origin.shape))


def _count(e: Equation, views: _Views) -> None:
    """Record what an equation does to keys."""
    found = e.op.key_use([a.aval for a in e.ins])
    sinks = [(i, e.ins[i], m) for i, m in found.sinks.items()]
    for i, var, mask in _by_variable(sinks) if found.branches else sinks:
        view = views.consumed(var)
        if not isinstance(var, Var) or view is None:
            continue
        if view.use(var, mask):
            raise KeyReuseError(reuse_message(
                f"In {e.op.name}, argument {i} is already consumed", view.origin.source, e.source
            ))
        view.origin.source = view.origin.source or e.source
    for j, out in enumerate(e.outs):
        if is_key(out.aval):
            views[out] = _result_view(e, j, found, views)


def _result_view(e: Equation, j: int, found: KeyUse, views: _Views) -> _View:
    """The keys of a result: those of an operand, or new ones."""
    words = views.of_words(e.ins[0]) if found.words else None
    if words is not None:
        return words
    i, places = found.forwards.get(j, (-1, None))
    given = None if i < 0 else views.get(e.ins[i])
    if given is None:
        return _new(e.outs[j], used=j not in found.sources)
    known = given.places is not None and places is not None
    return _View(given.origin, given.places.ravel()[places] if known else None)


def _by_variable(sinks: Sequence[tuple[int, Any, Mask]]) -> Iterable[tuple[int, Any, Mask]]:
    """Uses by branches, of which one runs: a key that several of them consume counts once."""
    found: dict[Any, tuple[int, Any, Mask]] = {}
    for i, var, mask in sinks:
        found[var] = i, var, _joined(found.get(var, (i, var, None))[2], mask)
    return found.values()


def reuse_message(text: str, first: Any, second: Any = None) -> str:
    """The text of an error with the locations of the two uses."""
    text += ": needed a key that was not used before (split it, or random.clone it on purpose)"
    if first is not None:
        text += f"\n  it was first used at {first}"
    if second is not None:
        text += f"\n  it is used again at {second}"
    return text + here()


hooks.keys_used = keys_used
