"""Where the data of an example comes from: files that ship with it, or tensorflow-datasets.

`shipped` finds a file beside the example or in the folders of the examples, so that a copied
example still runs. `tfds_sources` reads a prepared data set by random access, for which TensorFlow
is not needed, and says how to prepare one that is not there; it never downloads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["shipped", "tfds_sources"]

_PACKAGE = Path(__file__).parents[1]
_EXAMPLES = (_PACKAGE / "command" / "examples", _PACKAGE.parent / "examples")  # wheel, checkout


def shipped(name: str, example: str | os.PathLike[str]) -> Path:
    """The data file `name` of the example whose module is the file `example` (its `__file__`).

    It is looked for in `data/` beside that module, then in the folders `data` and `*/data` of the
    examples: those that were installed with toile, or those of its source tree.
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
    """A random-access source of examples for each split of a prepared data set.

    An example is a dict of arrays. `$TFDS_DATA_DIR` says where prepared data sets are.
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
