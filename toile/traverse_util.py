"""Deprecated traversals, and functions that flatten, unflatten and map nested dictionaries.

New programs should use `flatten_dict`, `unflatten_dict` and `path_aware_map`. A `Traversal`, which
is deprecated, selects values in an object and can return a copy of the object in which these values
are changed.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toile import struct
from toile.core.frozen_dict import FrozenDict, unfreeze
from toile.engine import trees
from toile.engine.source import describe, here

__all__ = [
    "ModelParamTraversal", "Traversal", "TraverseAttr", "TraverseCompose", "TraverseEach",
    "TraverseFilter", "TraverseId", "TraverseItem", "TraverseMerge", "TraverseTree", "empty_node",
    "flatten_dict", "path_aware_map", "t_identity", "unflatten_dict",
]

Path = tuple[str, ...]


@struct.dataclass
class _EmptyNode:
    """Stands for an empty dict among flattened values; a tree without leaves."""


empty_node = _EmptyNode()


def flatten_dict(
    xs: Mapping[Any, Any], keep_empty_nodes: bool = False,
    is_leaf: Callable[[Path, Any], bool] | None = None, sep: str | None = None,
) -> dict[Any, Any]:
    """Turn a nested dict into a flat dict whose keys are paths.

    Args:
        xs: a nested dict or `FrozenDict`.
        keep_empty_nodes: whether each empty dict is kept in the result as the value `empty_node`;
            if False, empty dicts are left out.
        is_leaf: function `f(path, value)`. A dict for which it returns True is kept as a value and
            not flattened. If `is_leaf` is None, all dicts are flattened.
        sep: string that joins the keys of a path. If it is None, each path is a tuple of keys.

    Returns:
        A dict that maps paths to values.

    Raises:
        AssertionError: `xs` is not a dict.

    >>> from toile.traverse_util import flatten_dict
    >>> flatten_dict({"bias": 1, "dense": {"kernel": 2, "none": {}}})
    {('bias',): 1, ('dense', 'kernel'): 2}
    >>> flatten_dict({"dense": {"kernel": 2}}, sep="/")
    {'dense/kernel': 2}
    """
    if not isinstance(xs, (FrozenDict, dict)):
        raise AssertionError(f"flatten_dict: expected (frozen)dict; got {type(xs)}{here()}")
    flat: dict[Any, Any] = {}

    def visit(prefix: Path, x: Any) -> None:
        is_dict = isinstance(x, (FrozenDict, dict))
        if is_dict and not (is_leaf and is_leaf(prefix, x)):
            for key, value in x.items():
                visit((*prefix, key), value)
            if len(x) or not keep_empty_nodes or not prefix:
                return
            x = empty_node
        flat[prefix if sep is None else _joined(prefix, sep)] = x

    visit((), xs)
    return flat


def _joined(path: Path, sep: str) -> str:
    try:
        return sep.join(path)
    except TypeError as error:
        raise TypeError(
            f"{error}: flatten_dict with sep={sep!r} needed keys that are strings, got the path "
            f"{path} (leave sep out, or convert the keys with str){here()}"
        ) from None


def unflatten_dict(xs: dict[Any, Any], sep: str | None = None) -> dict[Any, Any]:
    """Turn a flat dict whose keys are paths into a nested dict: the inverse of `flatten_dict`.

    Args:
        xs: dict that maps paths to values. The value `empty_node` becomes an empty dict.
        sep: string that joins the keys of a path; None if each path is a tuple of keys.

    Returns:
        A nested dict.

    Raises:
        AssertionError: `xs` is not a dict.

    >>> from toile.traverse_util import unflatten_dict
    >>> unflatten_dict({("bias",): 1, ("dense", "kernel"): 2})
    {'bias': 1, 'dense': {'kernel': 2}}
    """
    if not isinstance(xs, dict):
        raise AssertionError(f"unflatten_dict: input is not a dict; it is a {type(xs)}{here()}")
    out: dict[Any, Any] = {}
    for path, value in xs.items():
        if sep is not None and not isinstance(path, str):
            raise AttributeError(
                f"{type(path).__name__!r} object has no attribute 'split': unflatten_dict with "
                f"sep={sep!r} needed keys that are strings, got {path!r} (leave sep out){here()}"
            )
        *outer, last = path if sep is None else path.split(sep)
        level = out
        try:
            for key in outer:
                level = level.setdefault(key, {})
            level[last] = {} if value is empty_node else value
        except (AttributeError, TypeError) as error:
            raise type(error)(
                f"{error}: unflatten_dict needed paths of which none is the start of another, got "
                f"{path!r} inside the value {describe(level)} (remove one of them){here()}"
            ) from None
    return out


def path_aware_map(
    f: Callable[[Path, Any], Any], nested_dict: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Apply a function to the path and value of each entry of a nested dict.

    Args:
        f: function `f(path, value)`, where `path` is a tuple of keys.
        nested_dict: a nested dict or `FrozenDict`; empty dicts are kept.

    Returns:
        A nested dict of the results.

    >>> from toile.traverse_util import path_aware_map
    >>> params = {"a": {"kernel": 10, "bias": 3}, "b": {"kernel": 20}}
    >>> path_aware_map(lambda path, x: x + 5 if "kernel" in path else -x, params)
    {'a': {'kernel': 15, 'bias': -3}, 'b': {'kernel': 25}}
    """
    flat = flatten_dict(nested_dict, keep_empty_nodes=True)
    return unflatten_dict({k: v if v is empty_node else f(k, v) for k, v in flat.items()})


# ------------------------------------------------------------------------------------ traversals

_DEPRECATED = (
    "Traversals are deprecated: use flatten_dict or path_aware_map for nested dicts, and"
    " toile.cursor for other objects"
)


class Traversal(abc.ABC):
    """Selects values in an object, either to read them or to create a changed copy of the object.

    Attributes and items of a traversal are also traversals, as in `t_identity["a"].each()`.
    Traversals are deprecated: use `path_aware_map` or `toile.cursor` instead.

    Args:
        *args, **kwargs: arguments of the subclass.

    >>> from toile.traverse_util import t_identity
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     values = t_identity["a"].each()
    >>> list(values.iterate({"a": [1, 2], "b": 3}))
    [1, 2]
    >>> values.update(lambda x: 10 * x, {"a": [1, 2], "b": 3})
    {'a': [10, 20], 'b': 3}
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Traversal:
        warnings.warn(_DEPRECATED, DeprecationWarning, stacklevel=2)
        return super().__new__(cls)

    @abc.abstractmethod
    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        """Return a copy of `inputs` in which each selected value is replaced by `fn(value)`."""

    @abc.abstractmethod
    def iterate(self, inputs: Any) -> Iterator[Any]:
        """Iterate over the selected values of `inputs`."""

    def set(self, values: Any, inputs: Any) -> Any:
        """Return a copy of `inputs` in which the selected values are replaced by new values.

        Args:
            values: the new values, one for each selected value, in order.
            inputs: the object.

        Raises:
            ValueError: the number of new values differs from the number of selected values.
        """
        left = list(values)

        def following(_: Any) -> Any:
            if not left:
                raise ValueError(
                    f"Traversal.set: Not enough values provided, got {len(values)}{here()}"
                )
            return left.pop(0)

        out = self.update(following, inputs)
        if left:
            used = len(values) - len(left)
            raise ValueError(
                f"Traversal.set: Too many values provided, {len(values)} for {used}{here()}"
            )
        return out

    def compose(self, other: Traversal) -> Traversal:
        """Return a traversal that applies `other` to each value that this traversal selects."""
        return TraverseCompose(self, other)

    def merge(self, *traversals: Traversal) -> Traversal:
        """Return a traversal that applies all `traversals` to each value selected by this one."""
        return self.compose(TraverseMerge(*traversals))

    def each(self) -> Traversal:
        """Return a traversal that selects the items of the selected containers."""
        return self.compose(TraverseEach())

    def tree(self) -> Traversal:
        """Return a traversal that selects the leaves of the selected trees."""
        return self.compose(TraverseTree())

    def filter(self, fn: Callable[[Any], bool]) -> Traversal:
        """Return a traversal that selects only the values for which `fn` returns True."""
        return self.compose(TraverseFilter(fn))

    def __getattr__(self, attr: str) -> Traversal:
        if attr.startswith("__"):  # copying and pickling look up such methods
            raise AttributeError(attr)
        return self.compose(TraverseAttr(attr))

    def __getitem__(self, key: Any) -> Traversal:
        return self.compose(TraverseItem(key))


class TraverseId(Traversal):
    """Selects the object itself; deprecated.

    Args:
        *args, **kwargs: not accepted.
    """

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        return fn(inputs)

    def iterate(self, inputs: Any) -> Iterator[Any]:
        yield inputs


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    t_identity = TraverseId()


class TraverseMerge(Traversal):
    """Applies several traversals in order and selects all values that they select; deprecated.

    Args:
        *traversals: the traversals.
    """

    def __init__(self, *traversals: Traversal) -> None:
        self._traversals = traversals

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        for traversal in self._traversals:
            inputs = traversal.update(fn, inputs)
        return inputs

    def iterate(self, inputs: Any) -> Iterator[Any]:
        for traversal in self._traversals:
            yield from traversal.iterate(inputs)


class TraverseCompose(Traversal):
    """Applies a second traversal to each value that the first traversal selects; deprecated.

    Args:
        x: the first traversal.
        y: the second traversal, which is applied to each value that `x` selects.
    """

    def __init__(self, x: Traversal, y: Traversal) -> None:
        self._x, self._y = x, y

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        return self._x.update(lambda part: self._y.update(fn, part), inputs)

    def iterate(self, inputs: Any) -> Iterator[Any]:
        for part in self._x.iterate(inputs):
            yield from self._y.iterate(part)


class TraverseFilter(Traversal):
    """Selects the object if a function returns True for it; deprecated.

    Args:
        fn: function `f(obj)` that returns a bool.
    """

    def __init__(self, fn: Callable[[Any], bool]) -> None:
        self._fn = fn

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        return fn(inputs) if self._fn(inputs) else inputs

    def iterate(self, inputs: Any) -> Iterator[Any]:
        if self._fn(inputs):
            yield inputs


def _is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


class TraverseAttr(Traversal):
    """Selects an attribute of a named tuple, a dataclass or another object; deprecated.

    Args:
        attr: name of the attribute.
    """

    def __init__(self, attr: str) -> None:
        self._attr = attr

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        change = {self._attr: fn(getattr(inputs, self._attr))}
        if _is_namedtuple(type(inputs)):
            return inputs._replace(**change)
        if dataclasses.is_dataclass(inputs) and not isinstance(inputs, type):
            return dataclasses.replace(inputs, **change)
        out = copy.copy(inputs)
        setattr(out, self._attr, change[self._attr])
        return out

    def iterate(self, inputs: Any) -> Iterator[Any]:
        yield getattr(inputs, self._attr)


class TraverseItem(Traversal):
    """Selects an item of a container; deprecated.

    Args:
        key: key or index of the item, or a slice to select several items.
    """

    def __init__(self, key: Any) -> None:
        self._key = key

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        if not isinstance(inputs, tuple):
            out = copy.copy(inputs)
            out[self._key] = fn(out[self._key])
            return out
        selected = range(len(inputs))[self._key]
        selected = selected if isinstance(selected, range) else [selected]
        items = [fn(x) if i in selected else x for i, x in enumerate(inputs)]
        cls = type(inputs)
        return cls(*items) if _is_namedtuple(cls) else cls(items)

    def iterate(self, inputs: Any) -> Iterator[Any]:
        if isinstance(self._key, slice):
            yield from inputs[self._key]
        else:
            yield inputs[self._key]


class TraverseEach(Traversal):
    """Selects each item of a list or tuple, or each value of a dict; deprecated.

    Args:
        *args, **kwargs: not accepted.
    """

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        cls = type(inputs)
        if cls is dict:
            return {key: fn(value) for key, value in inputs.items()}
        if cls not in (list, tuple):
            raise ValueError(
                "TraverseEach: Only the entries of a list or tuple can be traversed, or the values"
                f" of a dict; got {cls}{here()}"
            )
        return cls(fn(x) for x in inputs)

    def iterate(self, inputs: Any) -> Iterator[Any]:
        yield from inputs.values() if isinstance(inputs, dict) else inputs


class TraverseTree(Traversal):
    """Selects each leaf of a tree; deprecated.

    Args:
        *args, **kwargs: not accepted.
    """

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        return trees.tree_map(fn, inputs)

    def iterate(self, inputs: Any) -> Iterator[Any]:
        yield from trees.leaves(inputs)


class ModelParamTraversal(Traversal):
    """Selects the parameters of a nested dict that satisfy a condition; deprecated.

    Args:
        filter_fn: function `f(path, value)`. The parameters for which it returns True are selected,
            in the sorted order of their paths. `path` is a string such as
            `"/module/submodule/kernel"`.
    """

    def __init__(self, filter_fn: Callable[[str, Any], bool]) -> None:
        self._filter_fn = filter_fn

    def _items(self, inputs: Any) -> list[tuple[Path, Any, bool]]:
        """The (path, value, selected) triples in order."""
        if not isinstance(inputs, (dict, FrozenDict)):
            raise ValueError(
                "ModelParamTraversal: Can only traverse a flax Model instance or a nested dict,"
                f" not {type(inputs)}{here()}"
            )
        flat = flatten_dict(unfreeze(inputs), keep_empty_nodes=True)
        ordered = sorted(flat.items(), key=lambda item: item[0])
        return [
            (key, x, x is not empty_node and self._filter_fn("/" + "/".join(key), x))
            for key, x in ordered
        ]

    def update(self, fn: Callable[[Any], Any], inputs: Any) -> Any:
        items = self._items(inputs)
        out = unflatten_dict({key: fn(x) if chosen else x for key, x, chosen in items})
        return FrozenDict(out) if isinstance(inputs, FrozenDict) else out

    def iterate(self, inputs: Any) -> Iterator[Any]:
        yield from (x for _, x, chosen in self._items(inputs) if chosen)
