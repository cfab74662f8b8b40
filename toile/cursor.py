"""Cursors, which build changed copies of nested immutable objects.

A cursor refers to a value inside a nested object of dicts, lists, tuples and dataclasses. The items
and attributes of a cursor are also cursors. Assigning to an item or attribute records a change, and
`build` returns a copy of the object with all recorded changes. Operators on a cursor act on its
value, so `c["step"] += 1` records an increment.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from toile.core.frozen_dict import FrozenDict
from toile.engine.source import describe, here
from toile.errors import CursorFindError, TraverseTreeError

__all__ = [
    "A", "AccessType", "Cursor", "CursorFindError", "FrozenDict", "Indexable", "ParentKey",
    "TraverseTreeError", "cursor", "is_named_tuple",
]  # fmt: skip

A = TypeVar("A")
Key = Any


@runtime_checkable
class Indexable(Protocol):
    """Protocol for objects whose items can be read with `obj[key]`.

    Args:
        *args, **kwargs: not used; a protocol has no instances.
    """

    def __getitem__(self, key: Any) -> Any: ...


class AccessType(enum.Enum):
    """The way in which a part of an object is accessed: as an item or as an attribute."""

    ITEM = enum.auto()
    ATTR = enum.auto()


@dataclasses.dataclass
class ParentKey(Generic[A]):
    """The position of a cursor within its parent cursor.

    Args:
        parent: the parent cursor.
        key: index, dict key or attribute name.
        access_type: whether the cursor's value is an item or an attribute of the parent's value.
    """

    parent: Cursor[A]
    key: Key
    access_type: AccessType


def is_named_tuple(obj: object) -> bool:
    """Test whether a value is a named tuple.

    Args:
        obj: any value.

    Returns:
        True if `obj` is a named tuple.
    """
    return isinstance(obj, tuple) and all(
        hasattr(obj, name) for name in ("_fields", "_asdict", "_replace")
    )


def _parts(obj: Any) -> tuple[AccessType, list[tuple[Any, Any]]]:
    """The immediate parts of an object with their keys, and how they are accessed."""
    if isinstance(obj, (FrozenDict, dict)):
        return AccessType.ITEM, list(obj.items())
    if is_named_tuple(obj):
        return AccessType.ATTR, list(zip(obj._fields, obj))
    if isinstance(obj, (list, tuple)):
        return AccessType.ITEM, list(enumerate(obj))
    if dataclasses.is_dataclass(obj):
        names = [field.name for field in dataclasses.fields(obj) if field.init]
        return AccessType.ATTR, [(name, getattr(obj, name)) for name in names]
    return AccessType.ITEM, []


def _traverse_tree(
    path: tuple[tuple[Key, AccessType], ...], obj: Any, *,
    update_fn: Callable[[str, Any], Any] | None = None,
    cond_fn: Callable[[str, Any], bool] | None = None,
) -> Iterator[Any]:
    """Yield outermost pairs (path, new value) from update_fn, or paths that satisfy cond_fn.

    Exactly one of the two functions is given. It is not called for the root, whose path is empty.
    """
    if bool(update_fn) == bool(cond_fn):
        raise TraverseTreeError(update_fn, cond_fn)
    if path:
        name = "/".join(str(key) for key, _ in path)
        if update_fn:
            new = update_fn(name, obj)
            if new is not obj:
                yield path, new
                return
        elif cond_fn and cond_fn(name, obj):
            yield path
            return
    access, parts = _parts(obj)
    for key, value in parts:
        below = (*path, (key, access))
        yield from _traverse_tree(below, value, update_fn=update_fn, cond_fn=cond_fn)


class Cursor(Generic[A]):
    """Refers to a value inside a nested object, and records changes to parts of the value.

    The function `cursor` creates cursors. The items and attributes of a cursor are also cursors.
    Assigning to an item or attribute records a change, and operators act on the value:
    `c["step"] += 1` records an increment.

    Args:
        obj: the value.
        parent_key: the parent cursor, and the key of this value within the parent; None for the
            root.

    >>> from toile.cursor import cursor
    >>> c = cursor({"a": 1, "b": (2, 3)})
    >>> c["b"][0] = 10
    >>> c.build()
    {'a': 1, 'b': (10, 3)}
    """

    _obj: Any
    _parent_key: ParentKey[A] | None
    _changes: dict[Any, Cursor[A]]

    def __init__(self, obj: A, parent_key: ParentKey[A] | None) -> None:
        # Assigning attributes records changes, so the cursor's own attributes bypass __setattr__.
        vars(self).update(_obj=obj, _parent_key=parent_key, _changes={})

    @property
    def _root(self) -> Cursor[A]:
        """The cursor at the start of the path to this one."""
        here_now = self
        while here_now._parent_key is not None:
            here_now = here_now._parent_key.parent
        return here_now

    @property
    def _path(self) -> str:
        """The expression that leads from the root to here, such as `.params['b'][0]`."""
        if self._parent_key is None:
            return ""
        above, key = self._parent_key.parent._path, self._parent_key.key
        if self._parent_key.access_type is AccessType.ATTR:
            return f"{above}.{key}"
        return f"{above}['{key}']" if isinstance(key, str) else f"{above}[{key}]"

    def _reach(self, key: Key, access: AccessType) -> Cursor[A]:
        return self[key] if access is AccessType.ITEM else getattr(self, key)

    def __getitem__(self, key: Any) -> Cursor[A]:
        if key in self._changes:
            return self._changes[key]
        obj: Any = self._obj
        if not isinstance(obj, Indexable):
            raise TypeError(f"cursor: Cannot index into {_shown(obj)} at {_at(self)}{here()}")
        if isinstance(obj, Mapping) and key not in obj:
            raise KeyError(f"Key {key} not found in {_shown(obj)} at {_at(self)}")
        if is_named_tuple(obj):
            return getattr(self, self._obj._fields[key])
        self._changes[key] = Cursor(obj[key], ParentKey(self, key, AccessType.ITEM))
        return self._changes[key]

    def __getattr__(self, name: str) -> Cursor[A]:
        if name.startswith("__") or "_changes" not in vars(self):
            raise AttributeError(name)  # copying and pickling look up such methods
        if name in self._changes:
            return self._changes[name]
        if not hasattr(self._obj, name):
            raise AttributeError(
                f"Attribute {name} not found in {_shown(self._obj)} at {_at(self)}{here()}"
            )
        value = getattr(self._obj, name)
        self._changes[name] = Cursor(value, ParentKey(self, name, AccessType.ATTR))
        return self._changes[name]

    def __setitem__(self, key: Any, value: Any) -> None:
        if is_named_tuple(self._obj):
            setattr(self, self._obj._fields[key], value)
        else:
            self._changes[key] = Cursor(value, ParentKey(self, key, AccessType.ITEM))

    def __setattr__(self, name: str, value: Any) -> None:
        self._changes[name] = Cursor(value, ParentKey(self, name, AccessType.ATTR))

    def set(self, value: Any) -> A:
        """Record a new value for this cursor, and return a changed copy of the whole object.

        The copy contains all changes recorded so far. Because the new value is also recorded, the
        results of later calls to `set` and `build` contain it too. On the root cursor, `set` only
        returns `value`: it ignores recorded changes and records nothing.

        Args:
            value: the new value.

        >>> from toile.cursor import cursor
        >>> cursor({"a": 1, "b": (2, 3)})["b"][0].set(10)
        {'a': 1, 'b': (10, 3)}
        """
        if self._parent_key is None:
            return value
        parent = self._parent_key.parent
        parent._changes[self._parent_key.key] = Cursor(value, self._parent_key)
        return parent._root.build()

    def build(self) -> A:
        """Return a copy of this cursor's value with all recorded changes.

        >>> from toile.cursor import cursor
        >>> c = cursor({"a": 1, "b": (2, 3)})
        >>> c["b"][0] = 10
        >>> c["a"] += 5
        >>> c.build()
        {'a': 6, 'b': (10, 3)}
        """
        changes = {
            key: child.build() if isinstance(child, Cursor) else child
            for key, child in self._changes.items()
        }
        return _changed(self._obj, changes)

    def apply_update(self, update_fn: Callable[[str, Any], Any]) -> Cursor[A]:
        """Call a function for each part of the object, and record the new values that it returns.

        The function is not called for the root or for the parts of a value that it replaced. To
        change a container, it must return a new object, because changes in place are not detected.

        Args:
            update_fn: function `f(path, value)`, where `path` is a string of keys joined by "/". If
                it returns an object other than `value`, that object is recorded as the new value.

        Returns:
            This cursor.

        >>> from toile.cursor import cursor
        >>> params = {"dense": {"kernel": 2, "bias": 1}}
        >>> double = lambda path, x: 2 * x if "kernel" in path else x
        >>> cursor(params).apply_update(double).build()
        {'dense': {'kernel': 4, 'bias': 1}}
        """
        for path, value in _traverse_tree((), self._obj, update_fn=update_fn):
            *above, (last, access) = path
            holder = self
            for step in above:
                holder = holder._reach(*step)
            if access is AccessType.ITEM:
                holder[last] = value
            else:
                setattr(holder, last, value)
        return self

    def find(self, cond_fn: Callable[[str, Any], bool]) -> Cursor[A]:
        """Return the cursor for the single part that satisfies a condition.

        Args:
            cond_fn: function `f(path, value)`, where `path` is a string of keys joined by "/". It
                is not called for the parts of a value for which it returned True.

        Raises:
            toile.errors.CursorFindError: `cond_fn` returns True for no part, or for more than one
                part.

        >>> from toile.cursor import cursor
        >>> params = {"a": {"bias": 1}, "b": {"bias": 2}}
        >>> cursor(params).find(lambda path, x: path == "b")["bias"].set(0)
        {'a': {'bias': 1}, 'b': {'bias': 0}}
        """
        found: list[Cursor[A]] = []
        for child in self.find_all(cond_fn):
            found.append(child)
            if len(found) == 2:
                break
        if len(found) != 1:
            raise CursorFindError(*found)
        return found[0]

    def find_all(self, cond_fn: Callable[[str, Any], bool]) -> Generator[Cursor[A], None, None]:
        """Iterate over the cursors for all parts that satisfy a condition.

        Args:
            cond_fn: function `f(path, value)`, where `path` is a string of keys joined by "/". It
                is not called for the parts of a value for which it returned True.

        >>> from toile.cursor import cursor
        >>> c = cursor({"a": {"bias": 1}, "b": {"bias": 2}})
        >>> for bias in c.find_all(lambda path, x: "bias" in path):
        ...     _ = bias.set(bias + 1)
        >>> c.build()
        {'a': {'bias': 2}, 'b': {'bias': 3}}
        """
        for path in _traverse_tree((), self._obj, cond_fn=cond_fn):
            child = self
            for step in path:
                child = child._reach(*step)
            yield child

    def __str__(self) -> str:
        return str(self._obj)

    def __repr__(self) -> str:
        return self._pretty_repr()

    def _pretty_repr(self, indent: int = 2, _prefix_indent: int = 0) -> str:
        pad = " " * (_prefix_indent + indent)
        value = repr(self._obj).replace("\n", "\n" + pad)
        entries = []
        for key, child in self._changes.items():
            label = f"{' ' * (_prefix_indent + 2 * indent)}{key!r}: "
            entries.append(label + child._pretty_repr(indent, len(label)))
        changes = "\n" + ",\n".join(entries) + "\n" + pad if entries else ""
        end = " " * _prefix_indent + ")"
        return f"Cursor(\n{pad}_obj={value},\n{pad}_changes={{{changes}}}\n{end}"

    def __len__(self) -> int:
        return len(self._obj)

    def __iter__(self) -> Iterator[Cursor[A]]:
        return self._children("__iter__", range)

    def __reversed__(self) -> Iterator[Cursor[A]]:
        return self._children("__reversed__", lambda n: reversed(range(n)))

    def _children(self, name: str, order: Callable[[int], Any]) -> Iterator[Cursor[A]]:
        if not isinstance(self._obj, (tuple, list)):
            raise NotImplementedError(
                f"{name} method only implemented for tuples and lists, not type {type(self._obj)}"
            )
        return (self[i] for i in order(len(self._obj)))

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self._obj, ndigits)

    __hash__ = None  # type: ignore[assignment]


def _changed(obj: Any, changes: dict[Any, Any]) -> Any:
    """A copy of an object with some parts replaced."""
    if isinstance(obj, FrozenDict):
        return obj.copy(changes)
    if is_named_tuple(obj):
        return obj._replace(**changes)
    if isinstance(obj, (dict, list, tuple)):
        out: Any = list(obj) if isinstance(obj, tuple) else obj.copy()
        for key, value in changes.items():
            out[key] = value
        return tuple(out) if isinstance(obj, tuple) else out
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return dataclasses.replace(obj, **changes)
    return obj


def _shown(obj: Any) -> str:
    return f"{describe(obj)} ({type(obj).__name__})"


def _at(cursor: Cursor[Any]) -> str:
    return cursor._path or "the root"


def _method(name: str, function: Callable[..., Any], swapped: bool = False) -> Any:
    """The operator method `name` that applies a function to the cursor's value."""

    def method(self: Cursor[Any], *others: Any) -> Any:
        return function(*others, self._obj) if swapped else function(self._obj, *others)

    method.__name__ = name
    method.__qualname__ = f"Cursor.{name}"
    return method


_BINARY = {
    **{n: getattr(operator, f"__{n}__") for n in ("add", "sub", "mul", "matmul", "truediv")},
    **{n: getattr(operator, f"__{n}__") for n in ("floordiv", "mod", "pow", "lshift", "rshift")},
    **{n: getattr(operator, f"__{n}__") for n in ("and", "xor", "or")},
    "divmod": divmod,
}
for _name, _function in _BINARY.items():
    setattr(Cursor, f"__{_name}__", _method(f"__{_name}__", _function))
    setattr(Cursor, f"__r{_name}__", _method(f"__r{_name}__", _function, swapped=True))
for _name in ("neg", "pos", "abs", "invert", "lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Cursor, f"__{_name}__", _method(f"__{_name}__", getattr(operator, f"__{_name}__")))


def cursor(obj: A) -> Cursor[A]:
    """Create a cursor, which builds a copy of a nested object with some of its parts changed.

    Assignments and `.apply_update` record changes, and `.build()` returns a copy with all recorded
    changes. `.set(value)` on an item or attribute does both: it records one change and returns a
    copy of the whole object with all recorded changes. (On the cursor returned here, which refers
    to the whole object, `.set(value)` just returns `value`.) The object itself is not changed.

    Args:
        obj: nested object of dicts, lists, tuples and dataclasses.

    Returns:
        A cursor that refers to the whole object.

    >>> from toile.cursor import cursor
    >>> c = cursor(((1, 2), (3, 4)))
    >>> for pair in c:
    ...     pair[1] *= -1
    >>> c.build()
    ((1, -2), (3, -4))
    """
    return Cursor(obj, None)
