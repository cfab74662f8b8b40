"""Key paths, which say where a leaf is in a tree, and their conversion to text.

A path is a tuple with one entry for each level: a DictKey, SequenceKey, GetAttrKey or
FlattenedIndexKey, or any object with which a registered type names its children. `str` of an entry
is the Python expression that leads to the child, so that `name + keystr(path)` reads like code.
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
    """The position of a child in a list or tuple, as an entry of a key path.

    Args:
        idx: the position.
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
    """The key of a child in a dictionary, as an entry of a key path.

    Args:
        key: the key.
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
    """The name of the attribute that contains a child, as an entry of a key path.

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
        """The name of the attribute."""
        return self._value

    def __str__(self) -> str:
        return f".{self._value}"


class FlattenedIndexKey(_Key):
    """The position of a child in a node of a registered type that does not name its children.

    Args:
        key: position among the children, in the order in which the type's flatten function returns
            them.
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
    """Format a key path as text.

    Args:
        keys: entries of the path, as returned by `toile.tree_util.tree_flatten_with_path`.
        simple: whether to leave out brackets, quotes and dots.
        separator: text to put between the entries.

    Returns:
        The text, which is by default the Python expression that leads from the tree to the leaf.

    >>> from toile.tree_util import keystr, tree_leaves_with_path
    >>> ((path, leaf),) = tree_leaves_with_path({"a": [5]})
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['a'][0]", 'a/0')
    """
    return separator.join(map(simple_keystr if simple else str, keys))
