"""FrozenDict, an immutable nested dictionary, and functions that accept dicts and FrozenDicts.

The levels below the top are plain dicts to which no other code has a reference. When such a dict is
read, it is wrapped in a FrozenDict but not copied. As a tree, a FrozenDict has sorted keys and
DictKey path entries like a dict, and its children are plain dicts. `freeze`, `copy` and `pop` do
not copy parts that are already frozen.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, TypeVar

from toile.engine import trees
from toile.engine.keypaths import DictKey
from toile.engine.source import describe, here
from toile.engine.tracebacks import expect_error

K = TypeVar("K")
V = TypeVar("V")


class FrozenKeysView(KeysView[K]):
    """A view of the keys of a FrozenDict; the view's repr lists the keys."""

    def __repr__(self) -> str:
        return f"frozen_dict_keys({list(self)})"


class FrozenValuesView(ValuesView[V]):
    """A view of the values of a FrozenDict; the view's repr lists the values."""

    def __repr__(self) -> str:
        return f"frozen_dict_values({list(self)})"


class FrozenDict(Mapping[K, V]):
    """An immutable nested dictionary.

    A `FrozenDict` is equal to a dict with the same items, is hashable if its values are hashable,
    and is a tree node like a dict. Reading a nested dict also returns a `FrozenDict`.

    Args:
        *args: a mapping or (key, value) pairs, as for `dict`.
        **kwargs: additional entries, as for `dict`.

    >>> from toile.core import FrozenDict
    >>> variables = FrozenDict({"params": {"kernel": 1.0}, "batch_stats": {"mean": 0.0}})
    >>> variables["params"]
    FrozenDict({
        kernel: 1.0,
    })
    >>> variables, stats = variables.pop("batch_stats")
    >>> list(variables)
    ['params']
    """

    __slots__ = ("_dict", "_hash")
    _dict: dict[Any, Any]
    _hash: int | None

    def __init__(self, *args: Any, __unsafe_skip_copy__: bool = False, **kwargs: Any) -> None:
        self._hash = None
        if len(args) == 1 and not kwargs and isinstance(args[0], FrozenDict):
            self._dict = args[0]._dict
            return
        xs = dict(*args, **kwargs)
        self._dict = xs if __unsafe_skip_copy__ else _private(xs)

    def __getitem__(self, key: K) -> V:
        try:
            value = self._dict[key]
        except KeyError as error:
            expect_error()
            error.add_note(f"  (needed one of the keys {describe([*self._dict])})")
            raise
        return _view(value) if isinstance(value, dict) else value

    def __setitem__(self, key: K, value: V) -> None:
        raise ValueError(
            f"FrozenDict is immutable. Setting {key!r} needs a new one: use"
            f" .copy({{{key!r}: ...}}), or .unfreeze() for a dict that can be changed{here()}"
        )

    def __delitem__(self, key: K) -> None:
        raise ValueError(f"FrozenDict is immutable. Use rest, value = x.pop({key!r}){here()}")

    def __contains__(self, key: object) -> bool:
        return key in self._dict

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __repr__(self) -> str:
        return self.pretty_repr()

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (self.unfreeze(),)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenDict):
            return self._dict == other._dict
        if isinstance(other, dict):
            return self._dict == other
        return super().__eq__(other)

    def __hash__(self) -> int:
        if self._hash is None:
            total = 0
            for pair in self.items():
                total ^= hash(pair)  # the order of keys does not matter to equality
            self._hash = total
        return self._hash

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if the key is missing."""
        return self[key] if key in self._dict else default

    def pretty_repr(self, num_spaces: int = 4) -> str:
        """Return a string with one line for each entry.

        Args:
            num_spaces: indentation of each level.
        """
        return f"FrozenDict({_pretty(self._dict, num_spaces)})"

    def copy(self, add_or_replace: Mapping[K, V] = MappingProxyType({})) -> FrozenDict[K, V]:
        """Return a copy as a `FrozenDict`, with some entries added or replaced.

        Args:
            add_or_replace: the new entries.
        """
        added: Any = add_or_replace
        return self._like({**self._dict, **_private(dict(unfreeze(added)))})

    def keys(self) -> FrozenKeysView[K]:
        """Return the keys, in the order of insertion."""
        return FrozenKeysView(self)

    def values(self) -> FrozenValuesView[V]:
        """Return the values; nested dictionaries are returned as `FrozenDict`."""
        return FrozenValuesView(self)

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the (key, value) pairs."""
        for key, value in self._dict.items():
            yield key, _view(value) if isinstance(value, dict) else value

    def pop(self, key: K) -> tuple[FrozenDict[K, V], V]:
        """Return a `FrozenDict` without `key`, and the value of `key`."""
        value = self[key]
        return self._like({k: v for k, v in self._dict.items() if k != key}), value

    def unfreeze(self) -> dict[K, V]:
        """Return a mutable nested dict with the same entries."""
        return unfreeze(self)

    def _like(self, xs: dict[Any, Any]) -> FrozenDict[Any, Any]:
        """A dictionary of this type around a dict to which no other code has a reference."""
        return _view(xs) if type(self) is FrozenDict else type(self)(xs)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Hashable]:
        """Return the values, ordered by their keys, and the sorted keys."""
        keys = tuple(sorted(self._dict))
        return tuple([self._dict[key] for key in keys]), keys

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], Hashable]:
        """Return the (path entry, value) pairs, ordered by their keys, and the sorted keys."""
        values, keys = self.tree_flatten()
        return tuple(zip(map(DictKey, sorted(self._dict)), values)), keys

    @classmethod
    def tree_unflatten(cls, keys: Any, values: Any) -> FrozenDict[Any, Any]:
        """Create a dictionary from its keys and values."""
        return cls(zip(keys, values), __unsafe_skip_copy__=True)


trees.register(
    FrozenDict,
    FrozenDict.tree_flatten,
    FrozenDict.tree_unflatten,
    FrozenDict.tree_flatten_with_keys,
)


def _view(xs: dict[Any, Any]) -> Any:
    """A FrozenDict around a dict that will not change, without a copy."""
    out = object.__new__(FrozenDict)
    out._dict, out._hash = xs, None
    return out


def _private(xs: Any) -> Any:
    """A copy of nested dicts to which no caller has a reference; frozen parts are not copied."""
    if isinstance(xs, FrozenDict):
        return xs._dict
    if not isinstance(xs, dict):
        return xs
    return {key: _private(value) for key, value in xs.items()}


def _pretty(x: Any, num_spaces: int, depth: int = 0) -> str:
    if not isinstance(x, dict):
        # A leaf's own line breaks are indented along with it.
        return repr(x).replace("\n", "\n" + " " * (num_spaces * depth))
    if not x:
        return "{}"
    pad, inner = " " * (num_spaces * depth), " " * (num_spaces * (depth + 1))
    lines = [
        f"{inner}{key}: {_pretty(value, num_spaces, depth + 1)},\n" for key, value in x.items()
    ]
    return "{\n" + "".join(lines) + pad + "}"


def freeze(xs: Mapping[Any, Any]) -> FrozenDict[Any, Any]:
    """Turn a nested dict into a `FrozenDict`.

    Args:
        xs: the dict. It is copied, except for parts that are already frozen.

    Returns:
        A `FrozenDict` with the same entries.

    >>> from toile.core import freeze
    >>> freeze({"a": 1}) == {"a": 1}
    True
    """
    return FrozenDict(xs)


def unfreeze(x: FrozenDict[Any, Any] | dict[str, Any]) -> dict[Any, Any]:
    """Turn a `FrozenDict` into a mutable nested dict.

    Args:
        x: a `FrozenDict`, or a dict, which is copied.

    Returns:
        A dict with the same entries, in which all levels are plain dicts.

    >>> from toile.core import freeze, unfreeze
    >>> unfreeze(freeze({"a": {"b": 1}}))
    {'a': {'b': 1}}
    """
    if isinstance(x, FrozenDict):
        leaves, treedef = trees.flatten(x._dict)
        return treedef.unflatten(leaves)
    if isinstance(x, dict):
        return {key: unfreeze(value) for key, value in x.items()}
    return x


_EMPTY: FrozenDict[str, Any] = FrozenDict({})


def copy(
    x: FrozenDict[Any, Any] | dict[str, Any],
    add_or_replace: FrozenDict[str, Any] | dict[str, Any] = _EMPTY,
) -> FrozenDict[Any, Any] | dict[str, Any]:
    """Copy a dict or `FrozenDict`, and add or replace entries in the copy.

    Args:
        x: a `FrozenDict` or a dict.
        add_or_replace: the new entries.

    Returns:
        A dictionary of the same type as `x`.

    Raises:
        TypeError: `x` is not a dictionary.

    >>> from toile.core import copy
    >>> copy({"a": 1, "b": 2}, {"b": 3})
    {'a': 1, 'b': 3}
    """
    if isinstance(x, FrozenDict):
        return x.copy(add_or_replace)
    out = _plain_copy("copy", x)
    out.update(add_or_replace)
    return out


def pop(
    x: FrozenDict[Any, Any] | dict[str, Any], key: str
) -> tuple[FrozenDict[Any, Any] | dict[str, Any], Any]:
    """Copy a dict or `FrozenDict` without one entry.

    Args:
        x: a `FrozenDict` or a dict.
        key: key of the entry to leave out.

    Returns:
        A dictionary of the same type as `x` without the entry, and the value of the entry.

    Raises:
        KeyError: `x` has no entry with this key.
        TypeError: `x` is not a dictionary.

    >>> from toile.core import pop
    >>> pop({"a": 1, "b": 2}, "a")
    ({'b': 2}, 1)
    """
    if isinstance(x, FrozenDict):
        return x.pop(key)
    out = _plain_copy("pop", x)
    value = out.pop(key)
    return out, value


def _plain_copy(name: str, x: Any) -> dict[Any, Any]:
    """A copy of a dict in which every container is copied too."""
    if not isinstance(x, dict):
        raise TypeError(f"{name}: Expected FrozenDict or dict, got {type(x)}{here()}")
    leaves, treedef = trees.flatten(x)
    return treedef.unflatten(leaves)


def pretty_repr(x: object, num_spaces: int = 4) -> str:
    """Format a nested dictionary as a string with one line for each entry.

    Args:
        x: a `FrozenDict` or a dict. For any other value, the result is `repr(x)`.
        num_spaces: indentation of each level.

    Returns:
        The string.

    >>> from toile.core import pretty_repr
    >>> print(pretty_repr({"a": {"b": 1}}))
    {
        a: {
            b: 1,
        },
    }
    """
    if isinstance(x, FrozenDict):
        return x.pretty_repr(num_spaces)
    return _pretty(x, num_spaces)
