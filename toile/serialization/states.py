"""Conversion of trees to and from state dicts, which are nested dicts with string keys.

Each type is registered with a pair of functions; `toile.struct` dataclasses need no registration.
Restoring follows the target's structure. A different structure raises an error immediately, with
Flax's message. Arrays of the wrong shape or dtype are collected and reported together, with their
paths.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toile.core.frozen_dict import FrozenDict
from toile.engine.annotations import PyTree
from toile.engine.arrays import KeyArray
from toile.engine.sharded import ShardedKeyArray
from toile.engine.source import here
from toile.numpy import asarray
from toile.random import key_data, key_impl, wrap_key_data
from toile.serialization.differences import Differences, by_field, describe, fill, leaf_mismatch
from toile.tree_util import Partial

ToState = Callable[[Any], Any]
FromState = Callable[[Any, Any], Any]
registered: dict[type, tuple[ToState, FromState]] = {}


class _NamedTuple:
    """The type under which the functions for all named tuples are registered."""


class _Context(threading.local):
    """The current path of a restoration, its checks, and the mismatches found so far."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.mismatches: list[str] = []
        self.checks = (True, False)


_context = _Context()


@contextlib.contextmanager
def _entered(name: str) -> Iterator[None]:
    _context.path.append(name)
    try:
        yield
    finally:
        _context.path.pop()


def current_path() -> str:
    """Return the path of the entry that is being restored.

    Functions passed to `register_serialization_state` can use this path in their error messages.

    Returns:
        The keys joined by "/", or an empty string if nothing is being restored.
    """
    return "/".join(_context.path)


def _handlers(cls: type) -> tuple[ToState, FromState] | None:
    """The functions that convert a type: the registered ones, or those for dataclasses."""
    found = registered.get(cls)
    if found is None and "_toile_dataclass_fields" in vars(cls):
        return _dataclass_state, _restore_dataclass
    return found


def _kind(x: Any) -> type:
    return _NamedTuple if isinstance(x, tuple) and hasattr(x, "_fields") else type(x)


def to_state_dict(target: PyTree) -> PyTree:
    """Convert a tree to a state dict: nested dicts with string keys, as saved in checkpoints.

    Args:
        target: tree of dicts, lists, tuples, named tuples, `toile.struct` dataclasses and
            registered types.

    Returns:
        The state dict, or `target` itself if it is a leaf.

    >>> from toile import serialization
    >>> serialization.to_state_dict({"a": [1.0, 2.0], "b": None})
    {'a': {'0': 1.0, '1': 2.0}, 'b': None}
    """
    handlers = _handlers(_kind(target))
    if handlers is None:
        return target
    state = handlers[0](target)
    if isinstance(state, dict):
        odd = [key for key in state if not isinstance(key, str)]
        if odd:
            raise AssertionError(
                f"to_state_dict: A state dict must only have string keys, got {odd} from a"
                f" {type(target).__name__}"
            )
    return state


def from_state_dict(
    target: PyTree, state: PyTree, name: str = ".", *, check_shapes: bool = True,
    check_dtypes: bool = False,
) -> PyTree:
    """Restore a tree from a state dict.

    Args:
        target: a tree with the same structure as the tree from which the state dict was created.
        state: the state dict.
        name: name of this part of the tree in error messages. Functions that restore a registered
            type pass the name of each part that they restore.
        check_shapes: whether each array must have the shape of the corresponding array in `target`.
        check_dtypes: whether each array must have the dtype of the corresponding array in `target`.
            Unlike in `from_bytes` and `restore_checkpoint`, the default is False, because state
            dicts written by hand often contain float64 arrays where the parameters are float32.

    Returns:
        A copy of `target` with the values of `state`.

    Raises:
        ValueError: the structure differs from that of `target`, or some arrays have the wrong shape
            or dtype. The message lists all of these arrays.

    Differences:
        Flax does not compare shapes and dtypes.

    >>> from toile import serialization
    >>> serialization.from_state_dict((0, {"a": 0}), {"0": 1, "1": {"a": 2}})
    (1, {'a': 2})
    """
    if _context.path:
        return _restore(target, state, name)
    _context.mismatches, _context.checks = [], (check_shapes, check_dtypes)
    try:
        restored = _restore(target, state, name)
    except ValueError as error:
        _note_other_differences(error, target, state)
        raise
    if _context.mismatches:
        raise ValueError(_mismatch_message(_context.mismatches))
    return restored


def _restore(target: Any, state: Any, name: str) -> Any:
    handlers = _handlers(_kind(target))
    if handlers is not None:
        with _entered(name):
            return handlers[1](target, state)
    problem = leaf_mismatch(target, state, *_context.checks)
    if problem:
        _context.mismatches.append("/".join([*_context.path, name]) + ": " + problem)
    return state


def _mismatch_message(lines: list[str]) -> str:
    one = len(lines) == 1
    return (
        f"from_state_dict: {len(lines)} {'array does' if one else 'arrays do'} not fit the target"
        " (check_shapes=False or check_dtypes=False takes them as they are, partial=True of"
        " restore_checkpoint leaves them out)\n  " + "\n  ".join(lines) + here()
    )


def _note_other_differences(error: ValueError, target: Any, state: Any) -> None:
    """Add a list of all differences to the error that reports the first one."""
    # Users' functions run here a second time, on a state that is known to be wrong.
    with contextlib.suppress(Exception):
        found = fill(
            to_state_dict(target),
            state,
            check_shapes=_context.checks[0],
            check_dtypes=_context.checks[1],
        )[1]
        if len(found.missing) + len(found.unexpected) + len(found.misshaped) > 1:
            error.add_note(f"All differences between the target and the state dict: {found}")


def restore_partially(
    target: PyTree, state: PyTree, *, check_shapes: bool = True, check_dtypes: bool = True
) -> tuple[PyTree, Differences]:
    """Restore a tree from those values of a state dict that fit the tree, ignoring all others.

    Args:
        target: the tree. Its values are kept wherever the state dict has no value that fits.
        state: the state dict. Entries of the tree may be missing, and other entries may be present.
        check_shapes: if True, an array fits only if it has the shape of the corresponding array in
            `target`.
        check_dtypes: if True, an array fits only if it has the dtype of the corresponding array in
            `target`.

    Returns:
        The pair (restored tree, differences): a copy of `target` that contains the values that fit,
        and a `Differences` object.

    >>> from toile import serialization
    >>> tree, found = serialization.restore_partially({"a": 0, "b": 0}, {"b": 1, "c": 2})
    >>> tree, found.missing, found.unexpected
    ({'a': 0, 'b': 1}, ('a',), ('c',))
    """
    merged, found = fill(
        to_state_dict(target), state, check_shapes=check_shapes, check_dtypes=check_dtypes
    )
    return from_state_dict(target, merged, check_shapes=False), found


def is_serializable(target: object) -> bool:
    """Return whether conversion to a state dict is registered for a type.

    Args:
        target: a type, or an object of that type.

    Returns:
        True for dicts, lists, tuples, `toile.struct` dataclasses and registered types. False for
        named tuples, although `to_state_dict` converts them.
    """
    return _handlers(target if isinstance(target, type) else type(target)) is not None


def register_serialization_state(
    ty: type, ty_to_state_dict: ToState, ty_from_state_dict: FromState, override: bool = False
) -> None:
    """Define how objects of a type are converted to a state dict and restored from a state dict.

    Args:
        ty: the type.
        ty_to_state_dict: function `f(obj)` that returns a dict with string keys, or a leaf. It
            should call `to_state_dict` on the values that the object contains.
        ty_from_state_dict: function `f(obj, state)` that returns a copy of the object with the
            given state. It should call `from_state_dict` on the values that the object contains.
        override: whether to replace functions that are already registered for the type.

    Raises:
        ValueError: the type is already registered, and `override` is False.

    >>> import fractions
    >>> from toile import serialization
    >>> serialization.register_serialization_state(
    ...     fractions.Fraction,
    ...     lambda x: {"top": x.numerator, "bottom": x.denominator},
    ...     lambda x, state: fractions.Fraction(state["top"], state["bottom"]),
    ...     override=True,
    ... )
    >>> data = serialization.to_bytes(fractions.Fraction(2, 3))
    >>> serialization.from_bytes(fractions.Fraction(0), data)
    Fraction(2, 3)
    """
    if not override and _handlers(ty) is not None:
        raise ValueError(
            f'a serialization handler for "{ty.__name__}" is already registered (override=True'
            f" replaces it){here()}"
        )
    registered[ty] = (ty_to_state_dict, ty_from_state_dict)


def _needs_dict(x: Any, state: Any) -> None:
    if not isinstance(state, Mapping):
        raise ValueError(
            f"from_state_dict: needed a dict for a {type(x).__name__}, got {describe(state)} at"
            f" path {current_path()}{here()}"
        )


def _list_state(xs: Any) -> dict[str, Any]:
    return {str(i): to_state_dict(x) for i, x in enumerate(xs)}


def _restore_list(xs: Any, state: Any) -> list[Any]:
    _needs_dict(xs, state)
    if len(state) != len(xs):
        raise ValueError(
            "The size of the list and the state dict do not match,"
            f" got {len(xs)} and {len(state)} at path {current_path()} (give a target like the "
            f"one that was saved, or None to get the saved tree){here()}"
        )
    absent = [i for i in range(len(xs)) if str(i) not in state]
    if absent:
        raise ValueError(
            f"The indices {absent} of the list are not in the state dict, which has"
            f" {describe(state)}, at path {current_path()}{here()}"
        )
    return [from_state_dict(x, state[str(i)], name=str(i)) for i, x in enumerate(xs)]


def _dict_state(xs: Mapping[Any, Any]) -> dict[str, Any]:
    names = {str(key) for key in xs}
    if len(names) != len(xs):
        raise ValueError(
            f"Dict keys do not have a unique string representation: {names} vs given: {xs}{here()}"
        )
    return {str(key): to_state_dict(value) for key, value in xs.items()}


def _restore_dict(xs: Mapping[Any, Any], state: Any) -> dict[Any, Any]:
    _needs_dict(xs, state)
    absent = {str(key) for key in xs} - set(state)
    if absent:
        raise ValueError(
            "The target dict keys and state dict keys do not match, target dict contains keys"
            f" {absent} which are not present in state dict at path {current_path()}: needed "
            f"{sorted(map(str, xs))}, got {sorted(state)} (give a target with the keys that were "
            f"saved, or target=None to get the saved dict){here()}"
        )
    return {key: from_state_dict(x, state[str(key)], name=str(key)) for key, x in xs.items()}


def _namedtuple_state(xs: Any) -> dict[str, Any]:
    return {key: to_state_dict(getattr(xs, key)) for key in xs._fields}


def _listed(names: set[Any]) -> str:
    return f"{{{', '.join(sorted(map(repr, names)))}}}"


def _restore_namedtuple(xs: Any, state: Any) -> Any:
    _needs_dict(xs, state)
    state = by_field(state, xs._fields)
    have, want = set(state), set(xs._fields)
    if have != want:
        raise ValueError(
            "The field names of the state dict and the named tuple do not match, got"
            f" {_listed(have)} and {_listed(want)} at path {current_path()} (give a target like "
            "the one that was saved, such as a state of the same optimizer, or None to get the "
            f"saved tree){here()}"
        )
    return type(xs)(
        **{key: from_state_dict(getattr(xs, key), state[key], name=key) for key in xs._fields}
    )


def _dataclass_state(x: Any) -> dict[str, Any]:
    return {name: to_state_dict(getattr(x, name)) for name in type(x)._toile_dataclass_fields}


def _restore_dataclass(x: Any, state: Any) -> Any:
    _needs_dict(x, state)
    fields = type(x)._toile_dataclass_fields
    about = f"in state dict while restoring an instance of {type(x).__name__}"
    for name in fields:
        if name not in state:
            raise ValueError(f"Missing field {name} {about}, at path {current_path()}{here()}")
    updates = {name: from_state_dict(getattr(x, name), state[name], name=name) for name in fields}
    unknown = ",".join(str(name) for name in state if name not in fields)
    if unknown:
        raise ValueError(f'Unknown field(s) "{unknown}" {about} at path {current_path()}{here()}')
    return x.replace(**updates)


def _partial_state(x: Partial) -> dict[str, Any]:
    return {"args": to_state_dict(x.args), "keywords": to_state_dict(x.keywords)}


def _restore_partial(x: Partial, state: Any) -> Partial:
    _needs_dict(x, state)
    if not {"args", "keywords"} <= set(state):
        raise ValueError(
            f"from_state_dict: needed args and keywords of a Partial, got {describe(state)} at path"
            f" {current_path()}{here()}"
        )
    args = from_state_dict(x.args, state["args"], name="args")
    keywords = from_state_dict(x.keywords, state["keywords"], name="keywords")
    return Partial(x.func, *args, **keywords)


register_serialization_state(dict, _dict_state, _restore_dict)
register_serialization_state(
    FrozenDict, _dict_state, lambda xs, state: FrozenDict(_restore_dict(xs, state))
)
register_serialization_state(list, _list_state, _restore_list)
register_serialization_state(tuple, _list_state, lambda xs, state: tuple(_restore_list(xs, state)))
register_serialization_state(_NamedTuple, _namedtuple_state, _restore_namedtuple)
register_serialization_state(Partial, _partial_state, _restore_partial)


def _restore_key(key: KeyArray, state: Any) -> Any:
    """A key restored from its words, with the target's implementation."""
    if isinstance(state, KeyArray):
        return state
    words = key_data(key)
    one = words.shape[key.ndim :]
    shape, dtype = getattr(state, "shape", ()), getattr(state, "dtype", None)
    if dtype != words.dtype or tuple(shape[len(shape) - len(one) :]) != one:
        raise ValueError(
            f"from_state_dict: needed the words of a key, {describe(words)}, got {describe(state)}"
            f" at path {current_path()}{here()}"
        )
    return wrap_key_data(asarray(state), impl=key_impl(key))


# Random keys are stored as their words, which Flax reads as an array.
register_serialization_state(KeyArray, key_data, _restore_key)
register_serialization_state(ShardedKeyArray, key_data, _restore_key)
