"""The two kinds of errors that the command reports in one line: wrong usage, and failed work."""

from __future__ import annotations

from toile.engine.errors import UnreadableFileError
from toile.engine.source import message


class UsageError(Exception):
    """The command line is wrong: exit status 2."""


class Failure(Exception):
    """The command could not do its work: exit status 1."""


EXPECTED = (Failure, UsageError, OSError, UnreadableFileError)  # clear without a class name


def one_line(error: BaseException) -> str:
    """The message of an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename is not None else ""
        return f"{error.strerror}{place}"
    text = " ".join(message(error).split())
    if isinstance(error, EXPECTED):
        return text
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind
