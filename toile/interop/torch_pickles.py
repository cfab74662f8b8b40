"""An interpreter for the pickles of `torch.save`, with few instructions and bounded work.

Functions and classes are represented by their names, and a subclass decides which values replace
them. The memory that each instruction allocates is counted. All instructions together may allocate
`FACTOR` bytes for each byte of the pickle, plus `FLOOR`. Keys are checked before they are hashed.
The resulting tree is measured before it is walked: shared parts count each time they occur, and
cycles raise an error.
"""

from __future__ import annotations

import collections
import contextlib
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from toile.engine.file_reader import MAX_DEPTH, brief, unreadable

FACTOR = 128  # maximum bytes of Python objects for each byte of a pickle
FLOOR = 1 << 20  # bytes that are always allowed in addition
TREE_FACTOR, TREE_FLOOR = 16, 1 << 16  # the same for tree nodes; shared nodes count repeatedly
_MOST_EQUAL_HASHES = 64
_KEY_NODES, _KEY_BITS = 64, 1024

__all__ = ["FACTOR", "Machine", "Name", "check_tree", "fail", "global_names", "shown"]


class Name(NamedTuple):
    """The name of a function or class in a pickle, which is never imported."""

    text: str


class Mark:
    """A marker on the stack, before the first item of a tuple, list or dict."""


MARK = Mark()


def fail(needed: str, got: str, hint: str = "") -> NoReturn:
    """Raise an error because the file cannot be read."""
    raise unreadable("torch_files.load", needed, got, hint)


class Machine:
    """A machine that runs the instructions of a pickle on a stack of plain values."""

    def __init__(self, text: bytes):
        self.text, self.at = text, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.left = FACTOR * len(text) + FLOOR
        self.equal_hashes: dict[tuple[int, int], int] = {}

    def named(self, text: str) -> Any:
        """Return the value that represents a name."""
        raise NotImplementedError

    def applied(self, name: Name, arguments: tuple[Any, ...]) -> Any:
        """Return the value that represents a call to the named function."""
        raise NotImplementedError

    def persistent(self, row: Any) -> Any:
        """Return the value of an object that is stored outside the pickle."""
        raise NotImplementedError

    def run(self) -> Any:
        """Run all instructions and return the value that the pickle describes."""
        text, size = self.text, len(self.text)
        while self.at < size:
            code = text[self.at]
            self.at += 1
            if code == _STOP:
                (value,) = self.popped(1)
                check_tree(value, TREE_FACTOR * size + TREE_FLOOR)
                return value
            operation = _OPERATIONS.get(code)
            if operation is None:
                fail("instructions for trees of tensors", f"{code:#04x} at byte {self.at - 1}")
            self.left -= operation.cost
            if self.left < 0:
                self.charge(0)
            operation.step(self)
        return fail("a whole pickle", "one without an end")

    def charge(self, size: int) -> None:
        """Count the memory that an instruction allocates; raise an error above the limit."""
        self.left -= size
        if self.left < 0:
            most = FACTOR * len(self.text) + FLOOR
            fail(f"a pickle of {len(self.text)} bytes to make at most {most} bytes", "more")

    def take(self, n: int) -> bytes:
        """Read the next `n` bytes of the pickle."""
        data = self.text[self.at : self.at + n]
        if len(data) < n:
            fail(f"a whole pickle, with {n} bytes at byte {self.at}", f"{len(data)} (truncated?)")
        self.at += n
        return data

    def number(self, n: int) -> int:
        """Read the next `n` bytes as an integer."""
        return int.from_bytes(self.take(n), "little")

    def line(self) -> str:
        """Read the text up to the end of the line."""
        end = self.text.find(b"\n", self.at)
        if end < 0:
            fail(f"a line of text at byte {self.at} of the pickle", "no line end (truncated?)")
        data = self.text[self.at : end]
        self.at = end + 1
        return data.decode("ascii")

    def top(self) -> Any:
        """Return the last value on the stack without removing it."""
        if not self.stack:
            fail("a whole pickle", "one that pops from an empty stack")
        return self.stack[-1]

    def popped(self, n: int) -> list[Any]:
        """Remove the last `n` values from the stack and return them."""
        values = self.stack[-n:]
        if len(values) < n or any(v is MARK for v in values):
            fail("a whole pickle", "one that pops from an empty stack")
        del self.stack[len(self.stack) - n :]
        return values

    def marked(self) -> list[Any]:
        """Remove the last mark and the values after it from the stack, and return the values."""
        at = len(self.stack) - 1
        while at >= 0 and self.stack[at] is not MARK:
            at -= 1
        if at < 0:
            fail("a whole pickle", "one without a mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        self.charge(16 * len(values))
        return values

    def check_key(self, container: Any, key: Any) -> Any:
        """Return the key after checking that it is cheap to hash and to compare."""
        kind = type(key)
        if kind is str or kind is bytes or kind is bool or key is None:
            return key
        if kind is int and -(2**60) < key < 2**60:
            return key
        _check_key_size(key)
        # Many numbers and tuples with the same hash can be made on purpose.
        if key not in container:
            self.charge(200)
            place = (id(container), hash(key))
            count = self.equal_hashes[place] = self.equal_hashes.get(place, 0) + 1
            if count > _MOST_EQUAL_HASHES:
                fail(f"at most {_MOST_EQUAL_HASHES} keys with one hash", "more")
        return key

    def put(self, target: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        """Add items to a dict and return it."""
        for key, value in pairs:
            self.charge(100)
            target[self.check_key(target, key)] = value
        return target

    def add(self, target: set[Any], values: Iterable[Any]) -> set[Any]:
        """Add values to a set and return it."""
        for value in values:
            self.charge(100)
            target.add(self.check_key(target, value))
        return target


def _check_key_size(key: Any) -> None:
    """Raise an error unless a key is a number, text, a dtype, or a small tuple or set of these."""
    todo, count = [key], 0
    while todo:
        x = todo.pop()
        kind = type(x)
        count += 1
        if kind is tuple or kind is frozenset:
            if count + len(todo) + len(x) > _KEY_NODES:
                fail(f"keys of at most {_KEY_NODES} parts", "a larger one")
            todo.extend(x)
        elif kind is int:
            if x.bit_length() > _KEY_BITS:
                fail(f"keys of at most {_KEY_BITS} bits", brief(x))
        elif kind not in _KEY_TYPES and not isinstance(x, np.dtype):
            fail("keys that can be hashed: texts, numbers and tuples of them", brief(x))


_KEY_TYPES = frozenset((str, bytes, bool, type(None), float, complex))


def check_tree(root: Any, most: int) -> None:
    """Raise an error if a tree is too deep, has a cycle, or has too many nodes when walked.

    A list that occurs in two places counts twice. If each of thirty lists contains the previous one
    twice, the lists need little memory, but code that walks the tree visits a billion nodes.
    """
    measures: dict[int, tuple[int, int]] = {}  # by id: nodes and levels
    open_nodes: set[int] = set()
    todo = [root]
    while todo:
        x = todo[-1]
        at = id(x)
        inner = [] if at in measures else _inner(x)  # it may be in several places
        missing = [y for y in inner if id(y) not in measures]
        if missing and at not in open_nodes:
            open_nodes.add(at)
            todo.extend(missing)
            continue
        if missing:
            fail("a tree", "one that contains itself")
        todo.pop()
        if at in measures:
            continue
        open_nodes.discard(at)
        below = [measures[id(y)] for y in inner]
        count = 1 + (len(x) if type(x) in _CONTAINERS else 0) + sum(n for n, _ in below)
        levels = 1 + max((level for _, level in below), default=0)
        if levels > MAX_DEPTH:
            fail(f"at most {MAX_DEPTH} levels of nesting", "more")
        if count > most:
            fail(f"a tree of at most {most} nodes for a pickle of its size", "more")
        measures[at] = count, levels


_LEAVES = frozenset((*_KEY_TYPES, int, np.ndarray))
_CONTAINERS = frozenset((dict, collections.Counter, list, tuple, set, frozenset))


def _inner(x: Any) -> list[Any]:
    """List the parts of a value to check: nonempty containers and values of unexpected types."""
    kind = type(x)
    if kind in _CONTAINERS:
        values = x.values() if isinstance(x, dict) else x
        return [
            y for y in values if (kind := type(y)) not in _LEAVES and (y or kind not in _CONTAINERS)
        ]
    if kind not in _LEAVES and not isinstance(x, np.dtype):
        fail("a tree of tensors, numbers and texts", f"{shown(x)} among its values")
    return []


def shown(x: Any) -> str:
    """Describe a value briefly for an error message."""
    return x.text[:200] if isinstance(x, Name) else brief(x)


class Operation(NamedTuple):
    """An instruction: its action, and the number of bytes that are always counted for it."""

    step: Callable[[Machine], Any]
    cost: int


def _push_text(size: int, coding: str) -> Callable[[Machine], None]:
    def step(m: Machine) -> None:
        n = m.number(size)
        data = m.take(n)
        m.charge(4 * n)
        text = data.decode(coding, "surrogatepass") if coding == "utf-8" else data.decode(coding)
        m.stack.append(text)

    return step


def _push_bytes(size: int) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(m.take(m.number(size)))


def _push_long(size: int) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(int.from_bytes(m.take(m.number(size)), "little", signed=True))


def _push(make: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(make(m))


def _append(m: Machine, values: list[Any]) -> None:
    target = m.top()
    if type(target) is not list:
        fail("a list to append to", shown(target))
    target.extend(values)


def _set_items(m: Machine, values: list[Any]) -> None:
    target = m.top()
    if type(target) is not dict or len(values) % 2:
        fail("a dict to put items in", shown(target))
    m.put(target, zip(values[::2], values[1::2], strict=True))


def _add_items(m: Machine, values: list[Any]) -> None:
    target = m.top()
    if type(target) is not set:
        fail("a set to add to", shown(target))
    m.add(target, values)


def _stack_global(m: Machine) -> None:
    module, name = m.popped(2)
    if type(module) is not str or type(name) is not str:
        fail("the name of a function or class", shown(module))
    m.stack.append(m.named(f"{module}.{name}"))


def _reduce(m: Machine) -> None:
    name, arguments = m.popped(2)
    if not isinstance(name, Name) or type(arguments) is not tuple:
        fail("a known function and its arguments", shown(name))
    m.stack.append(m.applied(name, arguments))


def _build(m: Machine) -> None:
    """Discard the state of an object, which must be a dict; state dicts store versions there."""
    target, _ = m.popped(2)
    if type(target) is not dict:
        fail("a state for a dict", f"one for {shown(target)}")
    m.stack.append(target)


def _remembered(m: Machine, index: int) -> None:
    if index not in m.memo:
        fail("a whole pickle", "one that reads a memo entry it has not stored")
    m.stack.append(m.memo[index])


def _float(m: Machine) -> float:
    (value,) = struct.unpack(">d", m.take(8))
    return value


def _signed(m: Machine) -> int:
    return int.from_bytes(m.take(4), "little", signed=True)


_STOP = 0x2E
_OPERATIONS: dict[int, Operation] = {
    ord(code) if isinstance(code, str) else code: Operation(step, cost)
    for code, step, cost in list[tuple[Any, Any, int]]([
        (0x80, lambda m: m.take(1), 0),  # PROTO
        (0x95, lambda m: m.take(8), 0),  # FRAME
        ("(", _push(lambda m: MARK), 8),
        ("N", _push(lambda m: None), 8),
        (0x88, _push(lambda m: True), 8),
        (0x89, _push(lambda m: False), 8),
        ("J", _push(_signed), 40),  # BININT
        ("K", _push(lambda m: m.number(1)), 8),
        ("M", _push(lambda m: m.number(2)), 40),
        (0x8A, _push_long(1), 50),  # LONG1, LONG4
        (0x8B, _push_long(4), 50),
        ("G", _push(_float), 40),  # BINFLOAT
        ("X", _push_text(4, "utf-8"), 80),  # BINUNICODE and its kin
        (0x8C, _push_text(1, "utf-8"), 80),
        (0x8D, _push_text(8, "utf-8"), 80),
        ("T", _push_text(4, "latin-1"), 80),  # BINSTRING
        ("U", _push_text(1, "latin-1"), 80),
        ("B", _push_bytes(4), 50),  # BINBYTES
        ("C", _push_bytes(1), 50),
        (0x8E, _push_bytes(8), 50),
        (")", _push(lambda m: ()), 8),
        ("]", _push(lambda m: []), 100),
        ("}", _push(lambda m: {}), 100),
        (0x8F, _push(lambda m: set()), 240),
        (0x85, _push(lambda m: tuple(m.popped(1))), 70),  # TUPLE1, TUPLE2, TUPLE3
        (0x86, _push(lambda m: tuple(m.popped(2))), 80),
        (0x87, _push(lambda m: tuple(m.popped(3))), 90),
        ("t", _push(lambda m: tuple(m.marked())), 70),
        ("l", _push(lambda m: m.marked()), 70),
        (0x91, _push(lambda m: frozenset(m.add(set(), m.marked()))), 240),
        ("a", lambda m: _append(m, m.popped(1)), 16),
        ("e", lambda m: _append(m, m.marked()), 16),
        ("s", lambda m: _set_items(m, m.popped(2)), 0),
        ("u", lambda m: _set_items(m, m.marked()), 100),
        (0x90, lambda m: _add_items(m, m.marked()), 100),
        ("q", lambda m: m.memo.__setitem__(m.number(1), m.top()), 100),  # BINPUT and its kin
        ("r", lambda m: m.memo.__setitem__(m.number(4), m.top()), 100),
        (0x94, lambda m: m.memo.__setitem__(len(m.memo), m.top()), 100),
        ("h", lambda m: _remembered(m, m.number(1)), 8),  # BINGET
        ("j", lambda m: _remembered(m, m.number(4)), 8),
        ("c", _push(lambda m: m.named(f"{m.line()}.{m.line()}")), 100),  # GLOBAL
        (0x93, _stack_global, 100),
        ("Q", _push(lambda m: m.persistent(m.popped(1)[0])), 100),  # BINPERSID
        ("R", _reduce, 100),
        (0x81, _reduce, 100),  # NEWOBJ
        ("b", _build, 0),
    ])
}


def global_names(text: bytes) -> list[str]:
    """List the names in a pickle's GLOBAL instructions, as far as the pickle can be read."""
    reader = Machine(text)
    names = set()
    with contextlib.suppress(ValueError):  # the rest is damaged
        while reader.at < len(text) and text[reader.at] != _STOP:
            code = text[reader.at]
            reader.at += 1
            if code == ord("c"):
                names.add(f"{reader.line()}.{reader.line()}")
            elif code in _COUNTED:
                reader.take(reader.number(_COUNTED[code]))
            else:
                reader.take(_FIXED.get(code, 0))
    return sorted(names)


# The number of bytes of the length that precedes an argument, and of an argument without a length.
_COUNTED = dict(zip(b"XTBUC\x8a\x8b\x8c\x8d\x8e", (4, 4, 4, 1, 1, 1, 4, 1, 8, 8), strict=True))
_FIXED = dict(zip(b"\x80\x95JKMGqrhj", (1, 8, 4, 1, 2, 8, 1, 4, 1, 4), strict=True))
