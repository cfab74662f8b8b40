"""The mechanism behind all lifted transforms: how scopes enter and leave a transform.

Outside the transform, the variables and random streams of the scopes are grouped by filters into
plain trees. Inside, new scopes are made from these trees, a function of scopes runs, and the
variables that may have changed are grouped again. Outside again, they are written to the original
scopes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toile.core.filters import (
    CollectionFilter,
    Filter,
    PRNGSequenceFilter,
    in_filter,
    intersect_filters,
    union_filters,
)
from toile.core.frozen_dict import freeze
from toile.core.scope import Scope
from toile.core.tracers import is_inside
from toile.engine import trees
from toile.engine.config import flags
from toile.engine.source import here

Groups = tuple[tuple[Any, ...], ...]  # by filter, then by scope


def _copied(x: Any) -> Any:
    """A tree in which the dicts are copied and the FrozenDicts and values are shared."""
    if x.__class__ is dict:
        return {k: _copied(v) for k, v in x.items()}
    return x


def _grouped(
    xs: Mapping[str, Any], filters: Sequence[Filter]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries of `xs`, grouped by the first filter that matches, and the unmatched names."""
    groups: list[dict[str, Any]] = [{} for _ in filters]
    left = []
    for name, value in xs.items():
        for col_filter, group in zip(filters, groups, strict=True):
            if in_filter(col_filter, name):
                group[name] = value
                break
        else:
            left.append(name)
    return groups, left


def _transposed(rows: Sequence[Sequence[Any]]) -> Groups:
    return tuple(zip(*rows, strict=True))


def _minimal(scopes: Sequence[Scope]) -> tuple[list[Scope], list[tuple[Scope, tuple[str, ...]]]]:
    """The scopes without an ancestor in `scopes`, and the path of each scope from one of them.

    The variables of a scope also belong to its ancestors, and each variable must enter the
    transform only once."""
    wanted = dict.fromkeys(scopes)
    ways = []
    for leaf in scopes:
        top = leaf
        way: tuple[str, ...] = ()
        path: list[str] = [leaf.name]
        scope = leaf.parent
        while scope is not None:
            if scope in wanted:
                top, way = scope, tuple(reversed(path))
            path.append(scope.name)
            scope = scope.parent
        ways.append((top, way))
    tops = dict.fromkeys(top for top, _ in ways)
    return [s for s in wanted if s in tops], ways


def flat_counts(counters: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> dict[Any, int]:
    """The counters of random draws as a dict with paths as keys."""
    found: dict[Any, int] = {}
    for key, value in counters.items():
        if isinstance(value, dict):
            found[(*path, key, None)] = 0  # a child, even one without streams
            found.update(flat_counts(value, (*path, key)))
        else:
            found[(*path, key)] = value
    return found


def _rewind(counters: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    """Set counters of random draws, and those of children, to earlier values."""
    for key, value in list(counters.items()):
        if isinstance(value, dict):
            _rewind(value, before.get(key, {}))
        elif key in before:
            counters[key] = before[key]
        else:
            counters[key] = 0


class Packed:
    """Scopes that are passed through a transform."""

    def in_errors(self) -> str:
        """Nothing: users do not pass scopes."""
        return ""

    def __init__(
        self,
        scope_tree: Any,
        in_filters: Sequence[CollectionFilter],
        out_filters: Sequence[CollectionFilter],
        rng_filters: Sequence[PRNGSequenceFilter],
        name: str | None,
    ):
        leaves, self.tree = trees.flatten(scope_tree)
        self.outer, self.ways = _minimal(leaves)
        self.out_filters, self.name = tuple(out_filters), name
        self.mutable: Filter = functools.reduce(union_filters, out_filters, False)
        self.variables = _transposed([self._collections(s, in_filters) for s in self.outer])
        self.rngs = _transposed([_grouped(s.rngs, rng_filters)[0] for s in self.outer])
        self.entered = False
        # No keys may be drawn inside a raw transform; the counts are compared at the end.
        self.before = [
            (s, flat_counts(s.rng_counters)) for s in self.outer if is_inside(s.trace_level)
        ]

    def _collections(self, scope: Scope, filters: Sequence[Filter]) -> list[dict[str, Any]]:
        """The variables of a scope, grouped by filter; those that cannot change are frozen."""
        scope._populate_collections()
        groups, _ = _grouped(scope._variables, filters)
        return [
            {
                col: _copied(xs) if in_filter(self.mutable, col) else freeze(xs)
                for col, xs in group.items()
            }
            for group in groups
        ]

    def inner_mutable(self, scope: Scope, mutable_filter: CollectionFilter = True) -> Filter:
        """A filter that selects the collections that are mutable inside."""
        return intersect_filters(intersect_filters(scope.mutable, self.mutable), mutable_filter)

    def scopes(self, variables: Any, rngs: Any, mutable_filter: CollectionFilter = True) -> Any:
        """Inside the transform: a tree of new scopes with these variables and streams."""
        self.entered = True
        nothing = ((),) * len(self.outer)  # where no group is lifted there is nothing to transpose
        by_scope = zip(
            self.outer, _transposed(variables) or nothing, _transposed(rngs) or nothing,
            strict=True,
        )  # fmt: skip
        made = {}
        for outer, groups, streams in by_scope:
            inner = Scope(
                {col: _copied(xs) for group in groups for col, xs in group.items()},
                name=outer.name,
                rngs={name: rng for group in streams for name, rng in group.items()},
                mutable=self.inner_mutable(outer, mutable_filter),
                path=outer.path,
                debug_path=self._debug_path(outer),
                flags=outer.flags,
            )
            inner.rng_counters = outer.rng_counters
            made[outer] = inner
        found = []
        for outer, way in self.ways:
            scope = made[outer]
            for step in way:
                scope = scope.push(step, reuse=True)
            found.append(scope)
        return trees.unflatten(self.tree, found)

    def run(
        self, fn: Callable[..., Any], variables: Any, rngs: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Groups]:
        """Inside the transform: the result of `fn(scopes, ...)`, and the changed variables."""
        scopes = self.scopes(variables, rngs)
        y = fn(scopes, *args, **kwargs)
        return y, self.repack(scopes)

    def steady(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The body of a loop, changed so that it draws the same keys in every iteration, as if it
        had been traced only once.

        Keys that must differ between iterations are split before the loop. Without `disable_jit`,
        the body is traced, and there is nothing to do."""
        if not flags.disable_jit:
            return fn
        counts: list[Any] = []

        def turn(*args: Any) -> Any:
            now = [s.rng_counters for s in self.outer]
            if counts:
                for counters, before in zip(now, counts, strict=True):
                    _rewind(counters, before)
            else:
                counts.extend(_copied(c) for c in now)
            return fn(*args)

        return turn

    def _debug_path(self, scope: Scope) -> tuple[str, ...]:
        """The path, in which the name of the transform encloses the last name."""
        path = scope.debug_path
        if not self.name:
            return path
        return (*path[:-1], f"{self.name}({path[-1]})") if path else (f"{self.name}()",)

    def repack(self, scope_tree: Any) -> Groups:
        """Inside the transform, at its end: the variables that may have changed, by filter."""
        inner, _ = _minimal(trees.flatten_up_to(self.tree, scope_tree))
        rows = []
        for scope in inner:
            scope.invalidate()
            changed = {k: v for k, v in scope._variables.items() if in_filter(scope.mutable, k)}
            groups, left = _grouped(changed, self.out_filters)
            if left:
                raise ValueError(
                    f"unmapped output variables: {tuple(left)}: needed a filter of {self.name} "
                    f"that matches each collection that may change{here()}"
                )
            rows.append([{k: _copied(v) for k, v in group.items()} for group in groups])
        return _transposed(rows)

    @staticmethod
    def completed(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        """A group of results, to which the collections that could not change are added.

        These collections are not among the results, but the next step of a loop needs them."""
        return tuple({**a, **b} for a, b in zip(before, after, strict=True))

    def publish(self, groups: Any) -> None:
        """Outside the transform: write the results to the original scopes."""
        for scope, counts in self.before:
            if flat_counts(scope.rng_counters) != counts:
                scope._check_writable(f"draws keys inside {self.name}")
        for scope, out in zip(self.outer, _transposed(groups), strict=False):
            for group in out:
                for col, variables in group.items():
                    if scope.is_mutable_collection(col):
                        for name, value in variables.items():
                            scope.put_variable(col, name, value)


def lifted(
    fn: Callable[..., Any],
    in_filters: Sequence[CollectionFilter],
    out_filters: Sequence[CollectionFilter],
    rng_filters: Sequence[PRNGSequenceFilter],
    name: str | None = None,
    enable_kwargs: bool = False,
) -> Callable[..., Any]:
    """A function of scopes made from `fn(packed, ...)`.

    `fn` returns the result and the changed variables, by filter."""

    @functools.wraps(fn)
    def wrapper(scope_tree: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs and not enable_kwargs:
            _warn_dropped(name, kwargs)
            kwargs = {}
        packed = Packed(scope_tree, in_filters, out_filters, rng_filters, name)
        y, changed = fn(packed, *args, **kwargs)
        packed.publish(changed)
        return y

    return wrapper


def _warn_dropped(name: str | None, kwargs: Mapping[str, Any]) -> None:
    names = ", ".join(kwargs)
    pronoun = "it" if len(kwargs) == 1 else "them"
    warnings.warn(
        f'kwargs are not supported in {name}, so "{names}" is(are) ignored: pass {pronoun} by '
        f"position (with an entry in in_axes: None under vmap, nn.broadcast under scan, for "
        f"arguments that are not mapped), or close over {pronoun}, as a field of the module or "
        f"with functools.partial{here()}",
        RuntimeWarning,
        stacklevel=3,
    )


def pack(
    fn: Callable[..., Any],
    in_variable_filters: Sequence[CollectionFilter],
    out_variable_filters: Sequence[CollectionFilter],
    rng_filters: Sequence[PRNGSequenceFilter],
    name: str | None = None,
    enable_kwargs: bool = False,
) -> Callable[..., Any]:
    """Lift a user-defined transform.

    `fn(scope_fn, repack_fn, variable_groups, rng_groups, *args)` is called outside the transform
    and returns the pair `(result, variable_groups)`. It calls
    `scope_fn(variable_groups, rng_groups)` and `repack_fn(scopes)` inside the transform.
    """

    @functools.wraps(fn)
    def inner(packed: Packed, *args: Any, **kwargs: Any) -> Any:
        return fn(packed.scopes, packed.repack, packed.variables, packed.rngs, *args, **kwargs)

    return lifted(
        inner, in_variable_filters, out_variable_filters, rng_filters, name, enable_kwargs
    )
