"""Key paths: where a leaf sits in a tree, and how such a path is written.

A path is a tuple of entries, one per level: DictKey, SequenceKey, GetAttrKey, FlattenedIndexKey, or
any object a registered type names its children with. `str` of an entry is the Python expression
that would reach the child, so that `name + keystr(path)` reads like code.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar


class _Key:
    """An immutable path entry that holds one value, compared by class and value."""

    __slots__ = ("_value",)
    _field = ""
    _value: Any

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}: entries are immutable, cannot set {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._field}={self._value!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._value,)


class SequenceKey(_Key):
    """An entry of a path: the position of a child in a list or tuple.

    Args:
        idx: position, from 0.
    """

    __slots__ = ()
    _field = "idx"
    __match_args__ = ("idx",)

    def __init__(self, idx: int) -> None:
        _Key.__init__(self, idx)

    @property
    def idx(self) -> int:
        """The position."""
        return self._value

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class DictKey(_Key):
    """An entry of a path: the key of a child in a dictionary.

    Args:
        key: key of the dictionary.
    """

    __slots__ = ()
    _field = "key"
    __match_args__ = ("key",)

    def __init__(self, key: Hashable) -> None:
        _Key.__init__(self, key)

    @property
    def key(self) -> Hashable:
        """The key."""
        return self._value

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class GetAttrKey(_Key):
    """An entry of a path: the name of the attribute that holds a child.

    Args:
        name: name of the attribute.
    """

    __slots__ = ()
    _field = "name"
    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        _Key.__init__(self, name)

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self._value

    def __str__(self) -> str:
        return f".{self._value}"


class FlattenedIndexKey(_Key):
    """An entry of a path: the position of a child of a registered type that gives no names.

    Args:
        key: position among the children, from 0.
    """

    __slots__ = ()
    _field = "key"
    __match_args__ = ("key",)

    def __init__(self, key: int) -> None:
        _Key.__init__(self, key)

    @property
    def key(self) -> int:
        """The position among the flattened children."""
        return self._value

    def __str__(self) -> str:
        return f"[<flat index {self._value}>]"


KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]


def simple_keystr(key: Any) -> str:
    """Write one entry without brackets, quotes or dots."""
    return str(key._value) if isinstance(key, _Key) else str(key)


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Write the path of a leaf as text.

    Args:
        keys: path, as `tree_flatten_with_path` returns it.
        simple: whether to write the bare keys, positions and names, without brackets, quotes and
            dots.
        separator: text between the entries.

    Returns:
        Text such as `['a'][0].b`, or `a/0/b` with `simple=True, separator='/'`.

    >>> from toile.tree_util import DictKey, SequenceKey, keystr
    >>> keystr((DictKey('a'), SequenceKey(0)))
    "['a'][0]"
    >>> keystr((DictKey('a'), SequenceKey(0)), simple=True, separator='/')
    'a/0'
    """
    return separator.join(map(simple_keystr if simple else str, keys))
