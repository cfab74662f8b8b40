"""The native runner: one function that executes a table of commands, including loops.

`run(table, buffers, threads)` takes the address of a table of 64-bit words, that of the call's
table of base pointers ("slots"), and how many threads may take part. It returns 0, the code of the
callback that stopped it, or STOPPED (see `stop_checks`). Commands (`Table` writes them; addresses
are those of nested tables):

    END
    REGION    chunks, address of records (function or CHAIN, arguments, lo, hi each)
    LOOP      trips, body, slices, swaps, then (slot, base slot, offset, stride)..., (slot, slot)...
    WHILE     condition, slot of a 1-byte predicate, body, swaps, then (slot, slot)...
    SWITCH    slot of an int32 index, bodies, then body...   (the index is clamped)
    CALLBACK  function (i64 id, ptr buffers) -> i64, id
    COPY      slot, offset, source slot, source offset, bytes
    PLACE     arena slot, count, then (slot, offset)...

At iteration i of a LOOP each slice's slot points at buffers[base] + offset + i * stride; swaps
exchange two pointers after each iteration, including the last.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from toile.compiler.plan.place import aligned
from toile.engine.cached import cached_property
from toile.platforms.cpu import pool
from toile.targets.llvm import native
from toile.targets.llvm import stop_checks as stopping
from toile.targets.llvm.text import Function

END, REGION, LOOP, WHILE, SWITCH, CALLBACK, COPY, PLACE = range(8)

CHAIN = 0  # in place of a function: arguments are those of `chain`, units are blocks

Slice = tuple[int, int, int, int]
Swap = tuple[int, int]
Chunk = tuple[int, Any, int, int]

# What a callback returns if the run should continue, and if it should stop. Unlikely numbers: if an
# interruption ends a callback before its first line, ctypes may return anything.
GO_ON = 0x746F696C65
STOP = GO_ON + 1
_CODES = 1 << 20  # that callbacks may return to stop a run
CALLBACK_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_RUN_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def address(array: np.ndarray) -> int:
    """The address of an array's first element."""
    return array.ctypes.data


def chain(
    links: Sequence[tuple[int, int, int, int]], slots: Sequence[tuple[int, int, int]]
) -> np.ndarray:
    """The arguments of a chain: links that run in order on each block, with their own slots.

    A link is (function, arguments, units of a block, all units). A slot is (slot of the call, 0, 0)
    or (-1, start, bytes) for memory on the stack: that many bytes per block, the first of which
    would begin at byte `start` of a buffer."""
    room, rest = 0, []
    for slot, start, nbytes in slots:
        rest += [slot, room - start if slot < 0 else 0, nbytes]
        room += aligned(nbytes)
    words = [len(links), len(slots), room, *(w for link in links for w in link), *rest]
    return np.array(words, np.int64)


class Table:
    """Commands, in order; the Table keeps what they refer to alive."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.kept: list[Any] = []

    def _add(self, *words: int) -> None:
        if "array" in self.__dict__:
            raise ValueError("Table: needed a table that is not in use yet, got a finished one")
        self.words.extend(words)

    def _keep(self, thing: Any) -> int:
        """The address of an array or a Table, which is kept alive; an int is already an address."""
        if isinstance(thing, (int, np.integer)):
            return int(thing)
        self.kept.append(thing)
        return thing.address if isinstance(thing, Table) else address(thing)

    @cached_property
    def array(self) -> np.ndarray:
        """The finished table, preceded by a word for the number of its last run."""
        self._add(END)
        return np.array([0, *self.words], np.int64)

    @property
    def address(self) -> int:
        """The address of the finished table."""
        return address(self.array) + 8

    @property
    def nbytes(self) -> int:
        """The memory that it takes, including nested tables and records."""
        inner = sum(x.nbytes for x in self.kept if isinstance(x, (Table, np.ndarray)))
        return 8 * len(self.words) + inner

    def region(self, chunks: Iterable[Chunk] | np.ndarray) -> None:
        """Chunks (function address, arguments, lo, hi) that may run in any order, in parallel.

        Arguments are an int64 array or its address; an array of records is used as it is."""
        if isinstance(chunks, np.ndarray):
            records = np.ascontiguousarray(chunks, np.int64).reshape(-1, 4)
        else:
            rows = [(fn, self._keep(args), lo, hi) for fn, args, lo, hi in chunks]
            self.kept += [fn for fn, _, _, _ in rows]
            records = np.array(rows, np.int64).reshape(-1, 4)
        if len(records):
            self._add(REGION, len(records), self._keep(records))

    def loop(
        self, trips: int, body: Table, slices: Sequence[Slice] = (), swaps: Sequence[Swap] = ()
    ) -> None:
        """Run the body `trips` times; slices are (slot, base slot, offset, stride), in bytes."""
        self._add(LOOP, trips, self._keep(body), len(slices), len(swaps))
        self._add(*(w for s in slices for w in s), *(w for s in swaps for w in s))

    def while_(self, condition: Table, slot: int, body: Table, swaps: Sequence[Swap] = ()) -> None:
        """Run the condition; while the byte in `slot` is then not 0, run the body and repeat."""
        self._add(WHILE, self._keep(condition), slot, self._keep(body), len(swaps))
        self._add(*(w for s in swaps for w in s))

    def switch(self, slot: int, bodies: Sequence[Table]) -> None:
        """Run the body selected by the int32 in `slot`."""
        self._add(SWITCH, slot, len(bodies), *(self._keep(b) for b in bodies))

    def callback(self, function: Any, id: int) -> None:
        """Call `function(id, buffers)`, an address or a ctypes function (see `callback`)."""
        if not isinstance(function, int):
            self.kept.append(function)
            function = ctypes.cast(function, ctypes.c_void_p).value
        self._add(CALLBACK, function, id)

    def copy(self, slot: int, offset: int, source: int, source_offset: int, nbytes: int) -> None:
        """Copy bytes from one buffer to another; they may overlap."""
        self._add(COPY, slot, offset, source, source_offset, nbytes)

    def place(self, arena: int, places: Sequence[tuple[int, int]]) -> None:
        """Point each (slot, offset) into the buffer of slot `arena`."""
        self._add(PLACE, arena, len(places), *(w for p in places for w in p))


# ---- the native side


class _Walk(Function):
    """The function that executes one table; it calls itself for nested tables."""

    def __init__(self) -> None:
        params = ("ptr %table", "ptr %buffers", "i64 %threads", "ptr %state")
        super().__init__("walk", params, "i64", True)
        self.pc = self.variable("ptr", "%table")

    def word(self, index: int | str) -> str:
        """Operand `index` of the command (0 is its code)."""
        return self.load("i64", self.at(self.load("ptr", self.pc), index, "i64"))

    def pointer(self, index: int | str) -> str:
        return self.value(f"inttoptr i64 {self.word(index)} to ptr")

    def slot(self, number: str) -> str:
        return self.at("%buffers", number, "ptr")

    def base(self, number: str) -> str:
        return self.load("ptr", self.slot(number))

    def finish(self, length: int | str) -> None:
        """Continue with the command that begins `length` words further on."""
        self.store("ptr", self.at(self.load("ptr", self.pc), length, "i64"), self.pc)
        self.do("br label %next")

    def stop_if_failed(self, code: str) -> None:
        n = self.count = self.count + 1
        failed = self.compare("ne", code, 0)
        self.do(f"br i1 {failed}, label %fail{n}, label %fine{n}")
        self.label(f"fail{n}")
        self.do(f"ret i64 {code}")
        self.label(f"fine{n}")

    def nested(self, table: str) -> None:
        """Execute another table; if that is stopped, stop this one."""
        code = self.value(f"call i64 @walk(ptr {table}, ptr %buffers, i64 %threads, "
                          "ptr %state)")
        self.stop_if_failed(code)

    def turn(self) -> None:
        """Check for a stop at the end of a loop iteration, which may have had no region."""
        self.stop_if_failed(self.value("call i64 @tick(ptr %state)"))

    def swap(self, first: int | str, count: str) -> None:
        """Exchange the pointers of `count` pairs of slots, listed from operand `first`."""
        with self.loop(0, count) as i:
            at = self.add(first, self.mul(i, 2))
            a, b = self.slot(self.word(at)), self.slot(self.word(self.add(at, 1)))
            x, y = self.load("ptr", a), self.load("ptr", b)
            self.store("ptr", y, a)
            self.store("ptr", x, b)

    # ---- commands
    def write_region(self) -> None:
        self.stop_if_failed(self.value(
            f"call i64 @pool_region(ptr {self.pointer(2)}, i64 {self.word(1)}, ptr %buffers, "
            "i64 %threads, ptr %state)"
        ))
        self.finish(3)

    def write_loop(self) -> None:
        trips, body, slices, swaps = self.word(1), self.pointer(2), self.word(3), self.word(4)
        first_swap = self.add(5, self.mul(slices, 4))
        with self.loop(0, trips) as i:
            with self.loop(0, slices) as j:
                at = self.add(5, self.mul(j, 4))
                slot, base, offset, stride = (self.word(self.add(at, k)) for k in range(4))
                moved = self.add(offset, self.mul(i, stride))
                self.store("ptr", self.offset(self.base(base), moved), self.slot(slot))
            self.nested(body)
            self.swap(first_swap, swaps)
            self.turn()
        self.finish(self.add(first_swap, self.mul(swaps, 2)))

    def write_while(self) -> None:
        condition, slot, body, swaps = self.pointer(1), self.word(2), self.pointer(3), self.word(4)
        self.do("br label %again")
        self.label("again")
        self.nested(condition)
        goes_on = self.compare("ne", self.load("i8", self.base(slot)), 0, "i8")
        self.do(f"br i1 {goes_on}, label %turn, label %over")
        self.label("turn")
        self.nested(body)
        self.swap(5, swaps)
        self.turn()
        self.do("br label %again")
        self.label("over")
        self.finish(self.add(5, self.mul(swaps, 2)))

    def write_switch(self) -> None:
        slot, count = self.word(1), self.word(2)
        given = self.value(f"sext i32 {self.load('i32', self.base(slot))} to i64")
        index = self.smax(self.smin(given, self.sub(count, 1)), 0)
        self.nested(self.pointer(self.add(index, 3)))
        self.finish(self.add(count, 3))

    def write_callback(self) -> None:
        function, id = self.pointer(1), self.word(2)
        # Otherwise an exception of a signal handler before the callback's first line would be lost.
        self.stop_if_failed(self.value("call i64 @signals_now()"))
        found = self.value(f"call i64 {function}(i64 {id}, ptr %buffers)")
        self.stop_if_failed(self.sub(found, GO_ON))
        self.finish(3)

    def write_copy(self) -> None:
        target = self.offset(self.base(self.word(1)), self.word(2))
        source = self.offset(self.base(self.word(3)), self.word(4))
        self.do(
            f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {source}, i64 {self.word(5)}, "
            "i1 false)"
        )
        self.finish(6)

    def write_place(self) -> None:
        arena, count = self.base(self.word(1)), self.word(2)
        with self.loop(0, count) as i:
            at = self.add(3, self.mul(i, 2))
            place = self.offset(arena, self.word(self.add(at, 1)))
            self.store("ptr", place, self.slot(self.word(at)))
        self.finish(self.add(3, self.mul(count, 2)))

    def write(self) -> str:
        writers = {
            "region": self.write_region, "loop": self.write_loop, "while": self.write_while,
            "switch": self.write_switch, "callback": self.write_callback, "copy": self.write_copy,
            "place": self.write_place,
        }
        self.do("br label %next")
        self.label("next")
        cases = " ".join(f"i64 {n}, label %{name}" for n, name in enumerate(writers, REGION))
        self.do(f"switch i64 {self.word(0)}, label %end [ {cases} ]")
        for name, write in writers.items():
            self.label(name)
            write()
        self.label("end")
        return self.text()


# A table of 0 selects one of the functions numbered in `stop_checks`. The state of a run is three
# words (see there). The word before a table is the number of its last run.
_ENTRY = """
@runs = internal global i64 0
define i64 @kernel(ptr %table, ptr %buffers, i64 %threads) nounwind {
  %none = icmp eq ptr %table, null
  br i1 %none, label %control, label %walk
control:
  %resets = icmp eq i64 %threads, 0
  br i1 %resets, label %reset, label %other
reset:
  call void @pool_reset()
  ret i64 0
other:
  %found = call i64 @stop_control(i64 %threads, ptr %buffers)
  ret i64 %found
walk:
  %before = load atomic i64, ptr @runs monotonic, align 8
  %run = add i64 %before, 1
  store atomic i64 %run, ptr @runs monotonic, align 8
  %run.at = getelementptr i64, ptr %table, i64 -1
  store atomic i64 %run, ptr %run.at monotonic, align 8
  %state = alloca [3 x i64]
  %last.at = getelementptr i64, ptr %state, i64 2
  store i64 64, ptr %state
  store i64 0, ptr %last.at
  %code = call i64 @walk(ptr %table, ptr %buffers, i64 %threads, ptr %state)
  %ended = call i64 @ended(i64 %code)
  ret i64 %ended
}
"""


def text() -> str:
    """The module of the runner."""
    return native.WRITTEN_OUT + pool.text() + _Walk().write() + _ENTRY


_function: Callable[[int, int, int], int] | None = None


def function() -> Callable[[int, int, int], int]:
    """The runner as a ctypes function, which releases the GIL while it runs."""
    global _function
    if _function is None:
        made = _RUN_TYPE(native.function(text()))
        stopping.connect(lambda what, value: made(0, value, what))
        _function = made
    return _function


def runs() -> int:
    """The number of runs so far."""
    return function()(0, 0, stopping.RUNS)


def missing() -> list[str]:
    """The runner's module if it is not loaded yet, to be compiled together with others."""
    return [text()] if _function is None else []


def run(table: int, buffers: int, threads: int) -> int:
    """Execute the table at an address; returns 0, or another value if the run was stopped."""
    return function()(table, buffers, threads)


def _forked() -> None:
    if _function is not None:
        _function(0, 0, stopping.RESET)
        stopping.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# ---- callbacks into Python

_raised = threading.local()


def callback(function: Callable[[int, int], None]) -> Any:
    """A native callback that calls `function(id, buffers)`; if that raises, the run stops."""

    def guarded(id: int, buffers: int) -> int:
        try:
            function(id, buffers)
        except BaseException as error:
            _raised.error = error
            return STOP
        return GO_ON

    return CALLBACK_TYPE(guarded)


def execute(table: int, buffers: int, threads: int) -> None:
    """Execute the table at an address; raises what a callback raised."""
    code = run(table, buffers, threads)
    if code:
        stopped = RuntimeError(f"runner: a callback stopped the run with {code}")
        lost = stopped if 0 < code < _CODES else interruption()
        raised = _raised.__dict__.pop("error", None)
        raise stopping.interruption() if code == stopping.STOPPED else raised or lost


def interruption() -> BaseException:
    """What replaces a signal handler's error at the edge of a callback, where nothing caught it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return KeyboardInterrupt()
    return RuntimeError("runner: a signal's handler raised an error (Python has printed it)")
