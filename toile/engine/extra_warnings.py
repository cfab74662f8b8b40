"""Warnings about programs that JAX accepts without a warning.

A program written for JAX may turn warnings into errors, and may use a Python integer that is out
of bounds as an index. Where toile takes the place of jax (`toile.interop.install`), such a program
must not fail because toile warns more often and checks more. It may also rely on values that stay
known while a function is traced, because they are NumPy arrays. This module may import nothing of
toile.
"""

from __future__ import annotations

import sys
import warnings


class _Mode:
    """How advice is given in this process."""

    raises = True  # the user's filters may turn advice into errors
    clamps_integers = False  # x[i] treats Python integers that are out of bounds like arrays
    keeps_numpy = False  # `jnp.reshape` of a NumPy array returns a NumPy array

    def print_errors(self) -> None:
        """From now on, print advice that a filter would turn into an error, clamp integers, and
        keep NumPy arrays."""
        self.raises = False
        self.clamps_integers = self.keeps_numpy = True


mode = _Mode()


def doubt(error: Exception) -> None:
    """Raise an error about an argument that is almost certainly a mistake. JAX accepts it, so where
    toile takes the place of jax, this is only a warning."""
    if mode.raises:
        raise error
    advise_caller(str(error), UserWarning, 2)


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
