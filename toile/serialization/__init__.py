"""Functions that convert trees to bytes in Flax's msgpack format and back.

toile and Flax can read each other's files. `to_bytes` and `from_bytes` work on any tree of
registered types. `msgpack_serialize` and `msgpack_restore` work on nested dicts and lists of arrays
and Python values. Restored arrays are ordinary writable NumPy arrays. `from_bytes` compares their
shapes and dtypes with those of its target.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.arrays import KeyArray
from toile.engine.lazy import attach_table
from toile.engine.source import describe, here
from toile.engine.trace import Array
from toile.errors import UnreadableFileError
from toile.serialization import array_codes as encoding
from toile.serialization.differences import Differences
from toile.serialization.states import (
    current_path,
    from_state_dict,
    is_serializable,
    register_serialization_state,
    restore_partially,
    to_state_dict,
)
from toile.serialization.structure import check, wrong
from toile.tree_util import tree_map

__all__ = [
    "MAX_CHUNK_SIZE", "Differences", "current_path", "from_bytes", "from_state_dict",
    "is_serializable", "msgpack_restore", "msgpack_serialize", "register_serialization_state",
    "restore_partially", "to_bytes", "to_state_dict",
]

__getattr__, __dir__ = attach_table(__name__, {}, __path__[0])  # Flax's private names: toile.compat

# Arrays with more bytes are written in pieces of this size.
MAX_CHUNK_SIZE = 2**30


def to_bytes(target: PyTree) -> bytes:
    """Convert a tree to bytes in Flax's msgpack format.

    Args:
        target: tree of dicts, lists, tuples, named tuples, `toile.struct` dataclasses and
            registered types, with arrays and Python values as leaves.

    Returns:
        The bytes, from which `from_bytes` restores the tree.

    >>> from toile import serialization
    >>> data = serialization.to_bytes({"w": jnp.arange(3)})
    >>> serialization.from_bytes({"w": jnp.zeros(3, int)}, data)
    {'w': array([0, 1, 2], dtype=int32)}
    """
    return msgpack_serialize(to_state_dict(target), in_place=True)


def from_bytes(
    target: PyTree, encoded_bytes: bytes, *, check_shapes: bool = True, check_dtypes: bool = True
) -> PyTree:
    """Restore a tree from bytes that `to_bytes` returned.

    Args:
        target: a tree with the structure of the saved tree, such as newly initialized parameters.
        encoded_bytes: the bytes.
        check_shapes: whether each array must have the shape of the corresponding array in `target`.
        check_dtypes: whether each array must have the dtype of the corresponding array in `target`.

    Returns:
        A copy of `target` with the decoded values. Its arrays are NumPy arrays.

    Raises:
        ValueError: the structure differs from that of `target`, or some arrays have the wrong shape
            or dtype. The message lists all of these arrays.
        toile.errors.UnreadableFileError: the bytes are not in this format.

    Differences:
        Flax does not compare shapes and dtypes.

    >>> from toile import serialization
    >>> data = serialization.to_bytes((1, {"a": 2}))
    >>> serialization.from_bytes((0, {"a": 0}), data)
    (1, {'a': 2})
    """
    state = msgpack_restore(encoded_bytes)
    return from_state_dict(target, state, check_shapes=check_shapes, check_dtypes=check_dtypes)


def msgpack_serialize(pytree: PyTree, in_place: bool = False) -> bytes:
    """Convert nested dicts and lists of arrays and Python values to bytes in Flax's msgpack format.

    Args:
        pytree: the tree, which is not changed.
        in_place: if True, the keys of dicts are written in their current order; if False, in sorted
            order.

    Returns:
        The bytes, from which `msgpack_restore` restores the tree.

    Raises:
        TypeError: the tree contains a value of an unsupported type, such as a tuple. `to_bytes`
            accepts more types.

    >>> from toile import serialization
    >>> serialization.msgpack_restore(serialization.msgpack_serialize({"a": [1, 2.5]}))
    {'a': [1, 2.5]}
    """
    if not in_place:
        pytree = tree_map(lambda x: x, pytree)
    pytree = _chunk_array_leaves_in_place(_as_numpy(pytree))
    try:
        return msgpack.packb(pytree, default=encoding.pack, strict_types=True)
    except TypeError as error:
        raise TypeError(
            f"msgpack_serialize: {error} (needed dicts and lists of arrays and Python values;"
            f" to_bytes takes tuples and registered types){here()}"
        ) from None


def msgpack_restore(encoded_pytree: bytes) -> PyTree:
    """Restore nested dicts and lists from bytes that `msgpack_serialize` or `to_bytes` returned.

    Args:
        encoded_pytree: the bytes.

    Returns:
        The tree. Its arrays are writable NumPy arrays.

    Raises:
        toile.errors.UnreadableFileError: the bytes are not in this format.

    >>> from toile import serialization
    >>> serialization.msgpack_restore(serialization.to_bytes((1, {"a": 2})))
    {'0': 1, '1': {'a': 2}}
    """
    try:
        data = memoryview(encoded_pytree).cast("B")
    except TypeError as error:
        raise TypeError(
            f"{error}: needed the bytes that to_bytes returned, got {describe(encoded_pytree)} "
            "(call from_bytes(target, data), with the contents of a file: open(path, 'rb').read())"
            f"{here()}"
        ) from None
    check(data)
    try:
        tree = msgpack.unpackb(
            data, ext_hook=encoding.unpack, raw=False, strict_map_key=False
        )
        return _unchunk_array_leaves_in_place(tree)
    except UnreadableFileError as error:
        reason = str(error).removeprefix("msgpack_restore: ").partition("\n")[0]
        raise wrong(len(data), reason) from error
    # The structure is complete; strings may still not be UTF-8, and keys not hashable.
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise wrong(len(data), str(error)[:300] or type(error).__name__) from error


def _as_numpy(x: Any, path: str = "") -> Any:
    """The tree with NumPy arrays in place of toile's arrays that are entries of dicts."""
    if isinstance(x, KeyArray):
        raise TypeError(
            "msgpack_serialize: random keys have no NumPy form: needed numbers, got an array of"
            f" {x.dtype} at path {path or '.'} (save toile.random.key_data(key), and restore the"
            f" key with toile.random.wrap_key_data){here()}"
        )
    if isinstance(x, Array):
        return np.asarray(x)
    if type(x) is dict:  # msgpack raises an error for subclasses
        return {key: _as_numpy(y, f"{path}/{key}" if path else str(key)) for key, y in x.items()}
    return x


def _chunk_array_leaves_in_place(x: Any) -> Any:
    """The tree with pieces in place of large arrays that are entries of dicts."""
    if isinstance(x, np.ndarray):
        return encoding.chunk(x, MAX_CHUNK_SIZE) if x.nbytes > MAX_CHUNK_SIZE else x
    if type(x) is dict:
        return {key: _chunk_array_leaves_in_place(y) for key, y in x.items()}
    return x


def _unchunk_array_leaves_in_place(x: Any) -> Any:
    """The tree with arrays in place of their pieces."""
    if type(x) is not dict:
        return x
    if encoding.CHUNKED in x:
        return encoding.unchunk(x)
    for key, value in x.items():
        if type(value) is dict:
            x[key] = _unchunk_array_leaves_in_place(value)
    return x
