"""Filters, which select collections of variables or random streams by name.

A filter is True (everything), False (nothing), a name, a list or set of names, or a DenyList
(everything except some names). The union, intersection and difference of two filters are filters.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from toile import errors
from toile.engine import trees
from toile.engine.records import dataclass

Filter = Any  # bool | str | Collection[str] | DenyList; annotations use the names below
CollectionFilter = Filter
PRNGSequenceFilter = Filter


@dataclass(frozen=True)
class DenyList:
    """A filter that matches every collection except those that another filter selects.

    Args:
        deny: filter that selects the collections to exclude: a name, a list of names, or any other
            filter.

    >>> from toile.core.filters import DenyList, in_filter
    >>> in_filter(DenyList(["params"]), "batch_stats"), in_filter(DenyList("params"), "params")
    (True, False)
    """

    deny: Filter

    # Filters are keys of dicts, and dicts that are pytrees have sorted keys: names come first.
    def __lt__(self, other: Any) -> bool:
        if isinstance(other, str):
            return False
        return str(self.deny) < str(other.deny) if isinstance(other, DenyList) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, str):
            return True
        return str(self.deny) > str(other.deny) if isinstance(other, DenyList) else NotImplemented


def in_filter(filter_like: Filter, col: str) -> bool:
    """Return whether a filter matches the collection `col`."""
    if filter_like is True or filter_like is False:
        return filter_like
    if isinstance(filter_like, str):
        return col == filter_like
    if isinstance(filter_like, DenyList):
        return not in_filter(filter_like.deny, col)
    if isinstance(filter_like, Collection):
        return col in filter_like
    raise errors.InvalidFilterError(filter_like)


def is_filter_empty(filter_like: Filter) -> bool:
    """Return whether a filter matches nothing at all."""
    if isinstance(filter_like, str):
        return False
    if isinstance(filter_like, DenyList):
        return _takes_all(filter_like.deny)
    if isinstance(filter_like, bool | Collection):
        return not filter_like
    raise errors.InvalidFilterError(filter_like)


def _takes_all(filter_like: Filter) -> bool:
    if isinstance(filter_like, DenyList):
        return is_filter_empty(filter_like.deny)
    return filter_like is True


def filter_to_set(x: Filter) -> set[str]:
    """Return the set of names that a filter matches; the set must be finite."""
    assert x is not True and not isinstance(x, DenyList), "Infinite set"
    if x is False:
        return set()
    if isinstance(x, str):
        return {x}
    if isinstance(x, Collection):
        return set(x)
    raise errors.InvalidFilterError(x)


def union_filters(a: Filter, b: Filter) -> Filter:
    """Return a filter that matches the names that `a` or `b` matches."""
    if a is True or b is True:
        return True
    if isinstance(a, DenyList) and isinstance(b, DenyList):
        return DenyList(intersect_filters(a.deny, b.deny))
    if isinstance(a, DenyList):
        return DenyList(subtract_filters(a.deny, b))
    if isinstance(b, DenyList):
        return DenyList(subtract_filters(b.deny, a))
    return filter_to_set(a) | filter_to_set(b)


def subtract_filters(a: Filter, b: Filter) -> Filter:
    """Return a filter that matches the names that `a` matches and `b` does not match."""
    if b is True:
        return False
    if a is True:
        return DenyList(b)
    if isinstance(a, DenyList):
        if isinstance(b, DenyList):
            return subtract_filters(b.deny, a.deny)
        return DenyList(union_filters(a.deny, b))
    if isinstance(b, DenyList):
        return intersect_filters(a, b.deny)
    return filter_to_set(a) - filter_to_set(b)


def intersect_filters(a: Filter, b: Filter) -> Filter:
    """Return a filter that matches the names that both `a` and `b` match."""
    if a is True:
        return b
    if b is True:
        return a
    if isinstance(a, DenyList):
        if isinstance(b, DenyList):
            return DenyList(union_filters(b.deny, a.deny))
        return subtract_filters(b, a.deny)
    if isinstance(b, DenyList):
        return subtract_filters(a, b.deny)
    return filter_to_set(a) & filter_to_set(b)


def group_collections(
    xs: Any, col_filters: Sequence[CollectionFilter]
) -> tuple[dict[str, Any], ...]:
    """Group the collections of `xs` by the first filter that matches each of them.

    The dicts in the groups are copies, so changing them does not change `xs`."""
    left: Iterable[str] = list(xs)
    groups = []
    for col_filter in col_filters:
        taken = [col for col in left if in_filter(col_filter, col)]
        left = [col for col in left if col not in taken]
        groups.append({col: trees.tree_map(lambda x: x, xs[col]) for col in taken})
    return tuple(groups)
