"""`main`: reads the command line, runs the subcommand, and turns errors into one line.

The exit status is 0 if the command succeeds, 1 if it fails, and 2 if the command line is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from toile.command import actions, parsers
from toile.command.failures import EXPECTED, UsageError, one_line

INTERRUPTED = 130  # the exit status that shells report for Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `toile`.

    Args:
        argv: the command-line arguments; by default, those of the process.

    Returns:
        The exit status.
    """
    try:
        args = parsers.parse(sys.argv[1:] if argv is None else list(argv))
    except UsageError as error:
        return _tell(one_line(error), 2)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Run the command; an error is printed in one line, unless a traceback is requested."""
    name = f"toile {args.command}"
    try:
        if args.command == "run":  # the program prints its own warnings and errors
            return int(actions.run(args))
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = getattr(actions, args.action)(args)
            sys.stdout.flush()
        return int(status or 0)
    except UsageError as error:
        return _tell(f"{name}: {one_line(error)}", 2)
    except KeyboardInterrupt:
        return _tell(f"{name}: interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has gone; the rest of the output goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if args.debug:
            raise
        hint = "" if isinstance(error, EXPECTED) else " (--debug shows the traceback)"
        return _tell(f"{name}: {one_line(error)}{hint}", 1)


def _tell(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:
    """Print a warning in one line, without its location in the source."""
    print(f"toile: {' '.join(str(message).split())}", file=sys.stderr)
