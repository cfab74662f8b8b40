"""Filters: which collections, or which random streams, something applies to.

A filter is True (all), False (none), a name, a collection of names, or a DenyList (all but). They
form an algebra: union, intersection and difference of filters are filters.
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
    """Filter that matches every collection except some.

    Args:
        deny: filter of the collections that are not matched: a name, a list of names, or another
            filter.

    >>> from toile.core.filters import DenyList, in_filter
    >>> in_filter(DenyList(["params"]), "batch_stats"), in_filter(DenyList("params"), "params")
    (True, False)
    """

    deny: Filter

    # Filters are keys of dicts that are pytrees, whose keys are sorted: names come first.
    def __lt__(self, other: Any) -> bool:
        if isinstance(other, str):
            return False
        return str(self.deny) < str(other.deny) if isinstance(other, DenyList) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, str):
            return True
        return str(self.deny) > str(other.deny) if isinstance(other, DenyList) else NotImplemented


def in_filter(filter_like: Filter, col: str) -> bool:
    """Tell whether a filter matches the collection `col`."""
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
    """Tell whether a filter matches nothing at all."""
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
    """Return the names of a filter that matches finitely many."""
    assert x is not True and not isinstance(x, DenyList), "Infinite set"
    if x is False:
        return set()
    if isinstance(x, str):
        return {x}
    if isinstance(x, Collection):
        return set(x)
    raise errors.InvalidFilterError(x)


def union_filters(a: Filter, b: Filter) -> Filter:
    """Return a filter of what either filter matches."""
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
    """Return a filter of what `a` matches and `b` does not."""
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
    """Return a filter of what both filters match."""
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
    """Distribute the collections of `xs`, each to the first filter that matches it.

    The dicts of every group are copies, so that changing one does not change `xs`."""
    left: Iterable[str] = list(xs)
    groups = []
    for col_filter in col_filters:
        taken = [col for col in left if in_filter(col_filter, col)]
        left = [col for col in left if col not in taken]
        groups.append({col: trees.tree_map(lambda x: x, xs[col]) for col in taken})
    return tuple(groups)
