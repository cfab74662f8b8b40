"""Generated Python code for repeated calls: the fast path to a compiled Program.

An `Entrance` is made for one structure of arguments. Its generated function unpacks the arguments
by direct indexing, checks that their structure is the same, looks up the signatures of the arrays,
and passes the arrays' pointers to an exit, which a platform makes for a Program
(`platforms.call_exits`). If the generated function returns `MISS`, the call takes the general path,
which can handle all arguments. This module may import the engine and platforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from toile.engine import config
from toile.engine.buffers import give_back
from toile.engine.trace import state
from toile.engine.treedefs import PyTreeDef
from toile.platforms.call_exits import MISS, adopted, written

MAX_SIGNATURES = 1024  # per structure
_MAX_CONTEXTS = 16


class Statics:
    """Which arguments of a call are static: positions, and names of keyword arguments."""

    __slots__ = ("numbers", "names")

    def __init__(self, numbers: tuple[int, ...] = (), names: tuple[str, ...] = ()):
        self.numbers, self.names = numbers, names


class Entrance:
    """The fast path for arguments of one structure.

    `others` are the leaves that were not arrays, `donated` are the leaves whose memory is donated,
    and `conditions` are variables that must have the same values as during tracing. There is one
    table of Exits for each configuration that has occurred. While checks need the arguments, the
    donated leaves are `deleted_later`."""

    __slots__ = ("enter", "others", "tables", "current", "deleted_later")

    def __init__(
        self, in_tree: PyTreeDef, statics: Statics, others: frozenset[int], donated: Sequence[int],
        conditions: Sequence[tuple[str, Any, Any]] = (),
    ):
        self.others = others
        self.deleted_later: tuple[int, ...] = ()
        self.tables: dict[Any, dict[Any, Any]] = {}
        self.current: tuple[Any, dict[Any, Any]] = ((None, ()), {})
        self.enter = _Unpacker(in_tree, statics, conditions).function(self, donated)

    def renew(self) -> dict[Any, Any]:
        """The table for this thread's configuration; an empty table under `no_execution`."""
        if config.flags.no_execution:
            return {}
        values = config.trace_context()
        table = self.tables.get(values)
        if table is None:
            if len(self.tables) >= _MAX_CONTEXTS:
                self.tables.clear()
            table = self.tables[values] = {}
        self.current = config.flags.context, table
        return table

    def add(self, leaves: Sequence[Any], statics: Sequence[Any], exit: Any) -> None:
        """Let calls with these kinds of leaves and static values use an Exit."""
        key: list[Any] = [adopted(x)._signature for x in leaves]
        for value in statics:
            key += [type(value), value]
        table = self.renew()
        if len(table) >= MAX_SIGNATURES:
            table.clear()
        table[tuple(key)] = exit

    @staticmethod
    def of(enter: Any) -> Entrance:
        """The Entrance whose function `enter` is."""
        return enter.__globals__["owner"]

    def forget(self) -> None:
        """Send all calls to the general path until they are added again."""
        self.tables.clear()
        self.current = (None, ()), {}


def _row(items: Sequence[str]) -> str:
    """The source text of a tuple."""
    return f"({', '.join(items)}{',' if items else ''})"


class _Unpacker:
    """The source of a function that unpacks arguments."""

    def __init__(self, in_tree: PyTreeDef, statics: Statics,
                 conditions: Sequence[tuple[str, Any, Any]] = ()):
        self.scope: dict[str, Any] = {
            "MISS": MISS, "state": state, "flags": config.flags, "config": config,
            "adopted": adopted, "give_back": give_back,
        }
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.made = 0
        for text, place, value in conditions:  # a change takes the general path, which reports it
            self._check(f"{text.format(self._object(place))} is not {self._object(value)}")
        args, kwargs = in_tree._children
        self.static: list[str] = []
        self._arguments(args, statics.numbers)
        self._keywords(kwargs, statics.names)

    def _constant(self, value: Any) -> str:
        return repr(value) if type(value) is str else self._object(value)

    def _object(self, value: Any) -> str:
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def _names(self, count: int) -> list[str]:
        self.made += count
        return [f"v{i}" for i in range(self.made - count, self.made)]

    def _check(self, wrong: str) -> None:
        self.lines.append(f"if {wrong}: return MISS")

    def _arguments(self, treedef: PyTreeDef, static: Sequence[int]) -> None:
        children = treedef._children
        names = self._names(len(children))
        self._check(f"len(args) != {len(children)}")
        if names:
            self.lines.append(f"{', '.join(names)}, = args")
        for i, (name, child) in enumerate(zip(names, children, strict=True)):
            if i not in static:
                self._take(child, name)
        self.static += [names[i] for i in static]

    def _keywords(self, treedef: PyTreeDef, static: Sequence[str]) -> None:
        keys = treedef.aux
        count = len(keys) + len(static)
        self._check(f"len(kwargs) != {count}" if count else "kwargs")
        names = self._names(count)
        for name, key in zip(names, (*keys, *static), strict=True):
            self.lines.append(f"{name} = kwargs[{key!r}]")
        for name, child in zip(names, treedef._children, strict=False):
            self._take(child, name)
        self.static += names[len(keys):]

    def _take(self, treedef: PyTreeDef, name: str) -> None:
        """Add lines that unpack one value, or return MISS."""
        entry = treedef.entry
        if entry is None:
            self.leaves.append(name)
            return
        if entry.kind == "none":
            self._check(f"{name} is not None")
            return
        builtin = entry.kind in ("dict", "list", "tuple")
        cls = entry.kind if builtin else self._constant(entry.cls)
        self._check(f"type({name}) is not {cls}")
        names = self._names(len(treedef._children))
        if entry.kind == "custom":
            split, aux = self._constant(entry.split), self._constant(treedef.aux)
            self.lines.append(f"{name}, aux = {split}({name})")
            self._check(f"aux is not {aux} and not aux == {aux}")
        if entry.kind == "dict" or not names:
            self._check(f"len({name}) != {len(names)}")
        if entry.kind == "dict" and len(names) == 1:
            self.lines.append(f"{names[0]} = {name}[{self._constant(treedef.aux[0])}]")
        elif entry.kind == "dict" and names:
            getter = self._constant(itemgetter(*treedef.aux))
            self.lines.append(f"{', '.join(names)} = {getter}({name})")
        elif names:
            self.lines.append(f"{', '.join(names)}, = {name}")
        for child, each in zip(treedef._children, names, strict=True):
            self._take(child, each)

    def function(self, owner: Entrance, donated: Sequence[int]) -> Callable[[Any, Any], Any]:
        """enter(args, kwargs) -> the result of the call, or MISS."""
        arrays = list(self.leaves)
        for i in sorted(owner.others):
            arrays[i] = f"a{i}"
            self.lines.append(f"a{i} = adopted({self.leaves[i]})")
        key = [f"{a}._signature" for a in arrays] + [f"type({s}), {s}" for s in self.static]
        body = "".join(f"        {line}\n" for line in self.lines)
        gone = _row([self.leaves[i] for i in donated])
        after = f"    if out is not MISS: give_back({gone}, exit.pools)\n" if donated else ""
        text = (
            "def enter(args, kwargs, type=type, len=len, dict=dict, list=list, tuple=tuple):\n"
            "    if state.trace is not None or state.axes: return MISS\n"
            f"    try:\n{body}"
            f"        key = {_row(key)}\n"
            # Held during the run, from before the pointers are read: another thread may delete the
            # arrays.
            f"        memory = {_row([f'{a}._memory' for a in arrays])}\n"
            f"        pointers = {_row([f'{a}._pointer' for a in arrays])}\n"
            "        known, table = owner.current\n"
            "        if flags.context is not known or known[0] is not config._generation:\n"
            "            table = owner.renew()\n"
            "        exit = table[key]\n"
            "    except Exception: return MISS\n"
            f"    out = exit.leave(pointers, memory)\n    del memory\n{after}    return out\n"
        )
        self.scope["owner"] = owner
        return written(text, "the way in", self.scope, "enter")
