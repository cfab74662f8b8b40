"""Sources of data: your own files, files that come with the examples, and tensorflow-datasets.

`image_folder`, `csv_table`, `npz_arrays` and `mapped_arrays` read files into sources for a Loader,
and `split` divides any source. `shipped` finds a file beside an example or in the folders of the
examples, so that a copied example still runs. `tfds_sources` provides random access to a prepared
data set, without TensorFlow. It never downloads anything; if a data set is missing, the error
message explains how to prepare it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toile import random
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.training.array_files import mapped_arrays, npz_arrays
from toile.training.csv_tables import Column, CsvTable, csv_table
from toile.training.image_folders import ImageFolder, image_folder
from toile.training.loader import ArraySource, as_source

__all__ = [
    "Column", "CsvTable", "ImageFolder", "csv_table", "image_folder", "mapped_arrays",
    "npz_arrays", "shipped", "split", "tfds_sources",
]

_PACKAGE = Path(__file__).parents[1]
_EXAMPLES = (_PACKAGE / "command" / "examples", _PACKAGE.parent / "examples")  # wheel, checkout


class _Chosen:
    """Some examples of a source."""

    def __init__(self, source: Any, rows: np.ndarray):
        self._source, self._rows = source, rows.tolist()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._source[self._rows[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        rows = [self._rows[i] for i in indices]
        many = getattr(self._source, "__getitems__", None)
        return many(rows) if many is not None else [self._source[row] for row in rows]


def split(source: PyTree, test: float = 0.2, *, seed: int = 0) -> tuple[Any, Any]:
    """Divide a source of examples at random into a training part and a test part.

    The division depends only on the number of examples and the seed. No example is read or copied.

    Args:
        source: data for a Loader: a tree of arrays whose first axes have equal lengths, or a source
            of examples.
        test: fraction, between 0 and 1, of the examples that go into the test part.
        seed: seed that determines which examples are in the test part.

    Returns:
        A pair of sources (training, test) for Loaders. Examples keep their order. The parts of a
        table are tables, and the parts of an image folder are image folders.

    >>> train, test = split({"x": np.arange(10)}, test=0.3)
    >>> len(train), test.take(np.arange(3))["x"].tolist()
    (7, [0, 1, 8])
    """
    source = as_source(source)
    size = len(source)
    if not 0 < test < 1 or size < 2:
        raise ValueError(
            "split: needed a share between 0 and 1 of at least two examples, got "
            f"test={test!r} of {size}{here()}"
        )
    count = min(max(round(test * size), 1), size - 1)
    order = np.asarray(random.permutation(random.key(seed), size))
    parts = np.sort(order[count:]), np.sort(order[:count])
    if isinstance(source, (ArraySource, ImageFolder)):
        train, held_out = (source.subset(rows) for rows in parts)
        return train, held_out
    return _Chosen(source, parts[0]), _Chosen(source, parts[1])


def shipped(name: str, example: str | os.PathLike[str]) -> Path:
    """Find a data file or folder that comes with an example.

    The folder `data` beside the example is searched first, then the `data` folders of all examples
    that are installed with toile or are part of its source tree.

    Args:
        name: name of the file or folder.
        example: path of the example's module (its `__file__`).

    Returns:
        The path of the file or folder.

    Raises:
        FileNotFoundError: the file is in none of these folders.

    >>> from toile.training.datasets import shipped
    >>> shipped("python_topics", "my_example.py").name
    'python_topics'
    """
    beside = Path(example).parent / "data"
    folders = [beside]
    for examples in _EXAMPLES:
        folders += [examples / "data", *sorted(examples.glob("*/data"))]
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(
        f"shipped: needed the data file {name}, got none in {beside} or in the examples of this "
        f"installation (copy {name} from the repository's examples into {beside})"
    )


def tfds_sources(name: str, splits: Sequence[str]) -> list[Any]:
    """Open a data set that tensorflow-datasets has prepared, with random access to its examples.

    Nothing is downloaded. Data sets are looked up in `$TFDS_DATA_DIR`, or in
    `~/tensorflow_datasets` if this variable is not set.

    Args:
        name: name of the data set.
        splits: names of the splits, such as `["train", "test"]`.

    Returns:
        A list that contains one source for each split. A source can be passed to a `Loader`; its
        examples are dicts of arrays.

    Raises:
        ImportError: tensorflow-datasets is not installed.
        FileNotFoundError: the data set is not prepared.

    >>> from toile.training.datasets import tfds_sources
    >>> train, test = tfds_sources("mnist", ["train", "test"])  # doctest: +SKIP
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            f"tfds_sources: needed tensorflow-datasets to read {name!r}, which is not installed: "
            "pip install 'toile[datasets]'"
        ) from error
    try:
        return list(tfds.data_source(name, split=list(splits), download=False))
    except (AssertionError, FileNotFoundError, NotImplementedError, ValueError) as error:
        # The error that tfds raises for a missing data set depends on the data set and on the files
        # that exist.
        raise FileNotFoundError(
            f"tfds_sources: needed {name!r} prepared in the format array_record, got none where "
            "tensorflow-datasets looks ($TFDS_DATA_DIR, or ~/tensorflow_datasets); prepare it "
            f"with\n    tfds build {name} --file_format=array_record\n({error})"
        ) from error
