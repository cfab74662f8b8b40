"""Kinds of processors for which kernels can be written besides that of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_V3 = ("avx2", "fma", "bmi2")
# By the names that LLVM has for them, the features that kernels and exported libraries ask for.
FEATURES_OF = {"x86-64-v3": _V3, "x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512vl")}

# This machine's processor without AMX, whose registers a process has to ask the system for.
HOST = "native"

# A hint of short loops for LLVM's vectorizer: their last iterations are lanes of one more vector,
# with a mask. Processors without such masks get the other hint instead.
MASKED = '"llvm.loop.vectorize.predicate.enable", i1 true'
UNMASKED = '"llvm.loop.interleave.count", i32 1'


def for_vectors(source: str, nbytes: int) -> str:
    """The text of a module for a processor with vector registers of a size."""
    if nbytes < 64:
        return source.replace(MASKED, UNMASKED)
    # Otherwise LLVM uses vectors of half the size on most CPUs.
    return source.replace(" nounwind", ' nounwind "prefer-vector-width"="512"')


@contextmanager
def own_texts() -> Iterator[None]:
    """Inside the block, forget the texts of kernels made outside, and after it those made inside.

    Texts depend on the size of vectors and on instructions."""
    try:
        _forget()
        yield
    finally:
        _forget()


def _forget() -> None:
    texts = [m for name, m in list(sys.modules.items())
             if name.startswith(("toile.kernels.", "toile.targets.llvm."))]
    for found in [x for m in texts for x in list(vars(m).values())]:
        if hasattr(found, "cache_clear"):
            found.cache_clear()
