"""Warnings about programs that JAX accepts without a warning.

A program written for JAX may turn warnings into errors. Where toile takes the place of jax
(`toile.interop.install`), such a program must not fail because toile warns more often. This module
may import nothing of toile.
"""

from __future__ import annotations

import sys
import warnings


class _Mode:
    """How advice is given in this process."""

    raises = True  # the user's filters may turn advice into errors

    def print_errors(self) -> None:
        """From now on, print advice that a filter would turn into an error."""
        self.raises = False


mode = _Mode()


def advise(text: str, category: type[Warning], file: str, line: int) -> None:
    """Issue a warning about a line; if it must not be an error, it is printed instead."""
    try:
        warnings.warn_explicit(text, category, file, line)
    except category:
        if mode.raises:
            raise
        sys.stderr.write(warnings.formatwarning(text, category, file, line))


def advise_caller(text: str, category: type[Warning], stacklevel: int) -> None:
    """Like `advise`, about the line of a caller; `stacklevel` counts as in `warnings.warn`."""
    try:
        warnings.warn(text, category, stacklevel=stacklevel + 1)
    except category:
        if mode.raises:
            raise
        sys.stderr.write(f"{category.__name__}: {text}\n")
