"""Running a plan: a native table of commands, a table of pointers and new outputs for each call.

A `Context` holds what one call needs for itself: the pointers and a small arena. Calls take a free
context or create one, so that several threads may run one Program at the same time. Large arenas
are shared between Programs. `__call__` serves operations that carry Programs; jit's own calls go
through `toile.platforms.cpu.exits`, which writes the pointers itself.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.compiler.index_tests import ReportIndices, Tested
from toile.engine.buffers import Block, allocate, release, signature
from toile.engine.cached import cached_property
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.operation import Operation
from toile.engine.program import Program
from toile.engine.records import dataclass
from toile.kernels.contraction import cpu_blas as blas
from toile.platforms import cpu
from toile.platforms.code_memory import Shelf
from toile.platforms.cpu import runner
from toile.platforms.cpu.tables import Assembly, Command
from toile.targets.llvm import native
from toile.targets.llvm import stop_checks as stopping
from toile.targets.llvm import thread_count as threads

_failure = threading.local()

Located = tuple[int, int, Any, Any, Any]  # slot, offset, shape, dtype, strides in bytes
PythonStep = tuple[Operation, tuple[Located, ...], tuple[Located, ...]]


# Results of at most this many bytes share blocks with others (see `assembly`).
SMALL = 1024
# Memory of a plan for each equation: steps, and descriptions of kernels.
EQUATION_BYTES = 3 << 10
# Larger arenas are shared by all Programs.
OWN_ARENA = 1 << 16


@dataclass
class Image:
    """A compiled Program without its kernels, as plain data.

    The first slots are its inputs, followed by the blocks of its results; `blocks` has the size of
    each block, and `places` the block of each result and its offset there."""

    inputs: int
    slots: int
    blocks: list[int]
    places: list[tuple[int, int]]
    arena_bytes: int
    in_arena: tuple[np.ndarray, np.ndarray]  # slots of temporaries, and their offsets
    constants: list[tuple[int, np.ndarray]]  # by slot
    commands: list[Command]
    words: np.ndarray
    calls_blas: bool


class Executable:
    """A compiled Program."""

    def __init__(
        self, program: Program, image: Image, addresses: Sequence[int],
        steps: Sequence[PythonStep] = (), tests: Tested | None = None,
    ):
        self.program, self.image = program, image
        self.inputs, self.blocks, self.places = image.inputs, image.blocks, image.places
        self.arena_bytes, self.in_arena = image.arena_bytes, image.in_arena
        results = program.outputs[: len(image.places)]
        outs = [signature(o.aval.shape, o.aval.dtype, False) for o in results]
        callbacks = [callback(*step, tests) for step in steps]
        self.out_specs = [(s.buffer_shape, s.buffer_dtype) for s in outs]  # for keys: of their data
        self.table = Assembly(addresses, image.words, callbacks).table(image.commands)
        self.address = self.table.address
        self.table.array[0] = runner.runs()
        self.exits: list[weakref.ref[Any]] = []  # of calls that hold this executable
        self.fixed = [(slot, runner.address(x)) for slot, x in image.constants]
        self.free: list[Context] = []
        self.in_python = any(step[0].__class__ is not ReportIndices for step in steps)
        self.guard = blas.guard() if image.calls_blas else None
        self.pack = struct.Struct(f"{self.inputs + len(self.blocks)}Q").pack_into

    def __call__(self, raws: Sequence[Any]) -> list[Any]:
        """The results for given buffers, each in its own memory."""
        held = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in raws]
        try:
            memory = [allocate(n) for n in self.blocks]
        except MemoryError:
            memory = cpu.allocated_again(self, self.blocks)
        context = self.context()
        self.pack(context.pointers, 0, *[x.ctypes.data for x in held], *[p for _, p in memory])
        self.run(context)
        self.free.append(context)
        return [
            np.ndarray(shape, dtype, memory[block][0], offset)
            for (shape, dtype), (block, offset) in zip(self.out_specs, self.places, strict=True)
        ]

    # ---- called by `code_memory`
    def held_bytes(self) -> int:
        """The approximate memory of its plan."""
        return self.plan_bytes

    @cached_property
    def plan_bytes(self) -> int:
        constants = sum(x.nbytes for _, x in self.image.constants)
        return self.table.nbytes + constants + EQUATION_BYTES * len(self.program.equations)

    def last_used(self) -> int:
        """The number of its last run, among the runs of all executables."""
        return int(self.table.array[0])

    def forget_exits(self) -> None:
        """Make calls that hold it go through its Program again."""
        for found in self.exits:
            exit = found()
            if exit is not None:
                exit.close()
        self.exits.clear()

    def context(self) -> Context:
        """Pointers for one call; put it back into `free` afterwards."""
        try:
            return self.free.pop()
        except IndexError:
            return Context(self)

    @property
    def is_simple(self) -> bool:
        """Whether a run is nothing but the native call."""
        return not (self.in_python or self.guard or self.arena_bytes > OWN_ARENA)

    def run(self, context: Context) -> None:
        """Run with the pointers of a context."""
        arena = None
        if self.arena_bytes > OWN_ARENA:
            try:
                arena = _arena(self.arena_bytes)
            except MemoryError:
                (arena,) = cpu.allocated_again(self, [self.arena_bytes + 64])
            context.place(self, arena)
        token = ignore_errors() if self.in_python else None
        if self.guard:
            self.guard[0]()
        try:
            code = runner.run(self.address, context.address, threads.current())
        finally:
            if self.guard:
                self.guard[1]()
            if token is not None:
                restore_errors(token)
            if arena is not None:
                _arenas.append(arena)
        if code:
            raise failure(code)


class Context:
    """The pointers of one call, and its temporaries if they are small."""

    __slots__ = ("pointers", "address", "arena", "spare")

    def __init__(self, owner: Executable):
        self.pointers: Any = np.zeros(max(owner.image.slots, 1), np.int64)
        self.address = runner.address(self.pointers)
        for slot, where in owner.fixed:
            self.pointers[slot] = where
        self.arena: Block | None = None
        if owner.arena_bytes <= OWN_ARENA:
            self.place(owner, allocate(owner.arena_bytes + 64))
        # For each block of results: the block of the call before the last, and that of the last.
        self.spare: list[list[Block | None]] = [[None, None] for _ in owner.blocks]

    def place(self, owner: Executable, arena: Block) -> None:
        """Point the temporaries into an arena."""
        if self.arena is None or self.arena[1] != arena[1]:
            slots, offsets = owner.in_arena
            self.pointers[slots] = offsets + -(-arena[1] // 64) * 64
            self.arena = arena if owner.arena_bytes <= OWN_ARENA else (_NOTHING, arena[1])


_NOTHING = np.empty(0, np.uint8)
ROOM_TO_GROW = 1 if sys.platform == "win32" else 2  # Windows counts reserved memory
_arenas: list[Block] = []


def _arena(nbytes: int) -> Block:
    """A large arena, to be put back into `_arenas` after the run.

    There is one for each concurrent run. It reserves more than was needed, and the system provides
    pages only when they are written: a larger batch then needs only the additional pages."""
    try:
        arena = _arenas.pop()
        if arena[0].nbytes >= nbytes + 64:
            return arena
        del arena  # before the larger one is allocated
    except IndexError:
        pass
    try:
        return allocate(ROOM_TO_GROW * nbytes + 64)
    except MemoryError:
        return allocate(nbytes + 64)


def release_arenas() -> None:
    """Free the memory of temporaries, and what is kept for results."""
    _arenas.clear()
    release()


def _forgotten(program: Program, made: Executable) -> None:
    native.forget_recent()
    if program.executable is made:
        program.executable = None


shelf = Shelf(lambda: native.Library.code_bytes, _forgotten)


def failure(code: int) -> BaseException:
    """The exception of the Python step or signal handler that stopped this thread's run."""
    error = _failure.__dict__.pop("error", None)
    if code == stopping.STOPPED:
        return stopping.interruption()
    return error or runner.interruption()


def callback(
    op: Operation, ins: Sequence[Located], outs: Sequence[Located], tests: Tested | None = None
) -> Any:
    """A callback for the runner that computes an operation with NumPy, or reports bad indices."""
    keeps = op.keeps_operands  # a user's function may keep its arguments
    run = op.eager
    if tests is not None and op.__class__ is ReportIndices:
        run = tests.reported

    def call(_: int, buffers: int) -> int:
        try:
            given = [_array(buffers, *x) for x in ins]
            results = run(np, *[x.copy() for x in given] if keeps else given)
            for x, r in zip(outs, results if op.multiple else [results], strict=True):
                target = _array(buffers, *x)
                if target.size:
                    target[...] = r
        except BaseException as error:
            _failure.error = error
            return runner.STOP
        return runner.GO_ON

    return runner.CALLBACK_TYPE(call)


def _array(buffers: int, slot: int, offset: int, shape: Any, dtype: Any, strides: Any) -> Any:
    """A NumPy array on memory that the table of pointers refers to."""
    pointer = ctypes.c_int64.from_address(buffers + 8 * slot).value + offset
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    size = high - low + dtype.itemsize
    memory = (ctypes.c_char * size).from_address(pointer + low)
    return np.ndarray(shape, dtype, memory, -low, strides)
