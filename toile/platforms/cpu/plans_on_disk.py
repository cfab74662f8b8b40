"""Plans on disk: a Program that was planned before, in any process, is not planned again.

The `Image` of an executable is stored next to the objects of its kernels, under a key made of the
fingerprint of the Program, the number of threads, the machine, and the state of toile's source.
Programs that call users' functions are not stored; TOILE_PLANS=off stores none.
"""

from __future__ import annotations

import hashlib
from typing import Any

from toile.compiler.index_tests import Tested
from toile.compiler.plan.fingerprint import fingerprint
from toile.disk.object_cache import ObjectCache
from toile.disk.plan_schema import Damaged, Unencodable
from toile.disk.source_state import source_state
from toile.engine.config import flags
from toile.engine.program import Program
from toile.engine.records import dataclass
from toile.kernels.contraction import cpu_blas as blas
from toile.platforms import recall
from toile.platforms.cpu import images
from toile.platforms.cpu.execution import Executable
from toile.targets.llvm import native
from toile.targets.llvm import thread_count as threads


@dataclass
class Place:
    """Where the image of a Program is stored, or would be."""

    program: Program
    cache: ObjectCache
    key: str
    tests: Tested | None = None

    def recalled(self) -> Executable | None:
        """The executable, if everything that it needs is on disk."""
        data = self.cache.get(self.key)
        if data is None:
            return None
        try:
            kept = images.read(data, self.program, self.tests is not None)
        except Damaged as problem:
            self.cache.refuse(self.key, str(problem))
            return None
        blas.add_symbols(kept.symbols)
        try:
            addresses = native.recalled(kept.kernels, kept.symbols)
        except RuntimeError as problem:  # LLVM cannot load one of the objects
            for _, key in kept.kernels:
                self.cache.refuse(key, str(problem))
            return None
        if addresses is None:
            return None
        return Executable(self.program, kept.image, addresses, kept.steps, self.tests)

    def keep(self, made: Any) -> None:
        """Write the image of an `assembly.PlannedExecutable`."""
        texts = [*made.described.kernels, *sorted(made.plan.also)]
        kernels = native.names_on_disk(texts)
        symbols = sorted(native.symbols_of(texts))
        try:
            data = images.written(images.Kept(made.image, kernels, symbols, made.in_steps))
        except Unencodable:  # operations that hold Programs
            return
        self.cache.put(self.key, data)


def place(program: Program, tests: Tested | None = None) -> Place | None:
    """Where a Program's image is stored; None if it is not. `tests`: the tests of its indices."""
    if recall.is_off():
        return None
    engine = native.engine()
    if engine.cache is None:
        return None
    found = fingerprint(program)
    if found is None:
        return None
    parts = ("plan", found, str(threads.current()), engine.key(""), source_state(),
             str(flags.allow_excess_precision), str(tests is not None))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return Place(program, engine.cache, key, tests)
