"""Answers of the oracles that take long to compute, and how they are kept.

A file holds trees of arrays by name: one block of bytes, compressed, and an index. Tools next to
the tests record them; every run asks the oracles again about a sample (`is_sampled`, each day
another one), and about all with TOILE_TEST_ALL=1.
"""

import json
import pathlib
import zlib
from dataclasses import dataclass

import ml_dtypes  # noqa: F401  gives NumPy the names of its dtypes
import numpy as np

from tests import seeds

FOLDER = pathlib.Path(__file__).parent
ALL_LIVE = seeds.EVERYTHING


@dataclass
class Leaf:
    """An array as an oracle gave it."""

    value: np.ndarray
    weak_type: bool = False

    @property
    def dtype(self):
        return self.value.dtype

    @property
    def shape(self):
        return self.value.shape

    def __array__(self, dtype=None, copy=None):
        return np.array(self.value, dtype, copy=copy)


def is_sampled(name, one_in=12):
    """Whether this run asks the oracle itself."""
    return ALL_LIVE or seeds.is_chosen(name, one_in)


def save(file, answers):
    """Write {name: {part: [Leaf, ...]}}."""
    blocks, index, at = [], {}, 0
    for name, parts in sorted(answers.items()):
        index[name] = rows = {}
        for part, leaves in parts.items():
            rows[part] = []
            for leaf in leaves:
                data = np.ascontiguousarray(leaf.value).tobytes()
                rows[part].append([str(leaf.dtype), list(leaf.shape), bool(leaf.weak_type), at])
                blocks.append(data)
                at += len(data)
    packed = zlib.compress(b"".join(blocks), 9)
    head = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
    (FOLDER / file).write_bytes(len(head).to_bytes(8, "little") + head + packed)


def load(file):
    """Read what `save` wrote; nothing if there is no file."""
    path = FOLDER / file
    if not path.exists():
        return {}
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    index = json.loads(zlib.decompress(data[8 : 8 + size]))
    block = zlib.decompress(data[8 + size :])
    return {
        name: {part: [_leaf(block, *row) for row in rows] for part, rows in parts.items()}
        for name, parts in index.items()
    }


def _leaf(block, dtype, shape, weak, at):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    return Leaf(np.frombuffer(block, dtype, count, at).reshape(shape), weak)
