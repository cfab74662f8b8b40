"""The plural of English nouns, for counts and rates."""

from __future__ import annotations

IRREGULAR = {"axis": "axes", "epoch": "epochs", "index": "indices", "matrix": "matrices",
             "vertex": "vertices"}  # fmt: skip


def plural(noun: str) -> str:
    """Return the plural of a noun; if there are several words, the last one is changed.

    Symbols of units (`MB`, `s`) stay unchanged, and so do words that end in a single s, which are
    plurals already.

    >>> [plural(noun) for noun in ("step", "batch", "library call", "query", "key", "epoch")]
    ['steps', 'batches', 'library calls', 'queries', 'keys', 'epochs']
    >>> [plural(noun) for noun in ("loss", "examples", "MB", "tok.")]
    ['losses', 'examples', 'MB', 'tok.']
    """
    start, space, word = noun.rpartition(" ")
    if len(word) < 2 or not word.isalpha() or word[1:] != word[1:].lower():
        return noun
    if word in IRREGULAR:
        return f"{start}{space}{IRREGULAR[word]}"
    if word.endswith(("ss", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if word.endswith("s"):
        return noun
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
