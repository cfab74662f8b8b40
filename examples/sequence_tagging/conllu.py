"""Read CoNLL-U, the format of the Universal Dependencies treebanks.

A line is a word with ten columns separated by tabs, a blank line ends a sentence, and a line with
`#` is a comment. Ranges (`3-4 don't`) and empty nodes (`8.1`) are not words and are left out.
"""

import os
from collections.abc import Iterable

COLUMNS = "id form lemma upos xpos feats head deprel deps misc".split()


def sentences(lines: Iterable[str]) -> list[list[dict[str, str]]]:
    """Yield sentences: lists of words, each a dict by column.

    >>> rest = "\\t_" * 6
    >>> lines = ["# text = Go on", f"1\\tGo\\tgo\\tVERB{rest}", f"2\\ton\\ton\\tADV{rest}"]
    >>> [[(word["form"], word["upos"]) for word in s] for s in sentences(lines)]
    [[('Go', 'VERB'), ('on', 'ADV')]]
    """
    found: list[list[dict[str, str]]] = [[]]
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            found.append([])
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != len(COLUMNS):
            raise ValueError(
                f"CoNLL-U: needed {len(COLUMNS)} tab-separated columns in line {number}, got "
                f"{len(cells)}: {line!r}"
            )
        if cells[0].isdigit():
            found[-1].append(dict(zip(COLUMNS, cells)))
    return [words for words in found if words]


def read(path: str | os.PathLike[str], column: str = "upos") -> list[list[tuple[str, str]]]:
    """Return the sentences of a file as (form, tag) pairs; `_` means no tag."""
    if column not in COLUMNS:
        raise ValueError(f"CoNLL-U: needed one of the columns {COLUMNS}, got {column!r}")
    with open(path, encoding="utf-8") as file:
        found = sentences(file)
    return [[(w["form"], "" if w[column] == "_" else w[column]) for w in words] for words in found]
