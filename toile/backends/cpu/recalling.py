"""Plans on disk: a Program that was planned before, in any process, is not planned again.

What is kept is the `Image` of an executable, next to the objects of its kernels, under the
fingerprint of the Program, the number of threads, the machine, and the state of toile's own source.
Programs that call users' functions are not kept; TOILE_PLANS=off keeps none.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import pickle
from typing import Any

import numpy as np

from toile.backends.cpu import blas, native, threads
from toile.backends.cpu.execution import Executable, Image, PythonStep, callback
from toile.backends.object_cache import ObjectCache
from toile.backends.source_state import source_state
from toile.compiler.fingerprint import fingerprint
from toile.engine.buffers import allocate
from toile.engine.config import flags
from toile.engine.program import Program
from toile.engine.records import dataclass


@dataclass
class Place:
    """Where the image of a Program is, or would be."""

    program: Program
    cache: ObjectCache
    key: str

    def recalled(self) -> Executable | None:
        """The executable, if all that it needs is on disk."""
        data = self.cache.get(self.key)
        if data is None:
            return None
        try:
            image, kernels, symbols, steps = _read(data)
        except (ValueError, EOFError, TypeError, pickle.UnpicklingError):  # of another format
            self.cache.remove(self.key)
            return None
        if symbols:
            blas.library()  # adds them
        addresses = native.recalled(kernels, symbols)
        if addresses is None:
            return None
        return Executable(self.program, image, addresses, [callback(*step) for step in steps])

    def keep(self, made: Any) -> None:
        """Write the image of a `making.PlannedExecutable`."""
        try:
            steps = pickle.dumps(made.in_steps) if made.in_steps else b""
        except (pickle.PicklingError, TypeError, AttributeError):  # operations that hold Programs
            return
        texts = [*made.described.kernels, *sorted(made.plan.also)]
        kernels = native.names_on_disk(texts)
        symbols = sorted(native.symbols_of(texts))
        self.cache.put(self.key, _written(made.image, kernels, symbols, steps))


def place(program: Program) -> Place | None:
    """Where a Program's image is kept; None where it is not."""
    off = os.environ.get("TOILE_PLANS", "") == "off" or "TOILE_DEBUG" in os.environ
    if off:
        return None
    engine = native.engine()
    if engine.cache is None:
        return None
    found = fingerprint(program)
    if found is None:
        return None
    parts = ("plan", found, str(threads.current()), engine.key(""), source_state(),
             str(flags.allow_excess_precision))
    return Place(program, engine.cache, hashlib.sha256("\0".join(parts).encode()).hexdigest())


def _written(image: Image, kernels: list[Any], symbols: list[str], steps: bytes) -> bytes:
    constants = [(slot, x.tobytes()) for slot, x in image.constants]
    slots, offsets = image.in_arena
    return marshal.dumps((
        image.inputs, image.slots, image.blocks, image.places, image.arena_bytes,
        slots.tobytes(), offsets.tobytes(), constants, image.commands, image.words.tobytes(),
        image.calls_blas, kernels, symbols, steps,
    ))


def _read(data: bytes) -> tuple[Image, list[Any], list[str], list[PythonStep]]:
    (inputs, slots, blocks, places, arena_bytes, arena_slots, offsets, constants, commands, words,
     calls_blas, kernels, symbols, steps) = marshal.loads(data)
    image = Image(
        inputs, slots, blocks, places, arena_bytes,
        (np.frombuffer(arena_slots, np.int64), np.frombuffer(offsets, np.int64)),
        [(slot, _aligned(x)) for slot, x in constants], commands,
        np.frombuffer(words, np.int64), calls_blas,
    )
    return image, kernels, symbols, pickle.loads(steps) if steps else []


def _aligned(data: bytes) -> np.ndarray:
    """Bytes as an array in memory that kernels may read."""
    made = allocate(len(data))[0][: len(data)]
    made[...] = np.frombuffer(data, np.uint8)
    return made
