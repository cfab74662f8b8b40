"""Where the data of an example comes from: files that ship with it, or tensorflow-datasets.

`shipped` finds a file beside the example or in the examples' folders of the source tree, so that a
copied example still runs. `tfds_sources` reads a prepared data set by random access, for which
TensorFlow is not needed, and says how to prepare one that is not there; it never downloads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["shipped", "tfds_sources"]

_EXAMPLES = Path(__file__).parents[2] / "examples"


def shipped(name: str, example: str | os.PathLike[str]) -> Path:
    """Find a data file that comes with an example.

    It is looked for in `data/` beside the example, then in the folders `examples/data` and
    `examples/*/data` of the source tree that toile was imported from.

    Args:
        name: name of the file or folder.
        example: path of the example's module: its `__file__`.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: there is none.

    >>> from toile.training.datasets import shipped
    >>> shipped("python_topics", "my_example.py").name
    'python_topics'
    """
    beside = Path(example).parent / "data"
    folders = [beside, _EXAMPLES / "data", *sorted(_EXAMPLES.glob("*/data"))]
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(
        f"shipped: needed the data file {name}, got none in {beside} or in the examples of the "
        f"source tree (copy {name} from the repository's examples into {beside})"
    )


def tfds_sources(name: str, splits: Sequence[str]) -> list[Any]:
    """Open a prepared data set of tensorflow-datasets by random access.

    Nothing is downloaded; data sets are looked for in `$TFDS_DATA_DIR`.

    Args:
        name: name of the data set.
        splits: names of the splits, such as `["train", "test"]`.

    Returns:
        For each split a source with `__len__` and `__getitem__`, whose examples are dicts of
        arrays; a `Loader` takes it.

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
        # What tfds raises for one that is absent depends on the data set and on what is there.
        raise FileNotFoundError(
            f"tfds_sources: needed {name!r} prepared in the format array_record, got none where "
            "tensorflow-datasets looks ($TFDS_DATA_DIR, or ~/tensorflow_datasets); prepare it "
            f"with\n    tfds build {name} --file_format=array_record\n({error})"
        ) from error
