"""The valid name that is most similar to an unknown one, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelled name probably means; None if no known name is close."""
    import difflib  # takes 2 ms, and only errors need it

    known = list(known)
    letters = sorted(name)
    near = difflib.get_close_matches(name, known, 5, 0.75)  # the best match first
    near += [n for n in known if n.lower() == name.lower()]  # ReLU, for relu
    near += [n for n in known if len(n) == len(name) and sorted(n) == letters]  # nwe, for new
    return min(near, key=lambda n: (sorted(n) != letters, abs(len(n) - len(name))), default=None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """" (did you mean 'zeros'?)", or nothing."""
    near = nearest(name, known)
    return f" (did you mean {near!r}?)" if near else ""
