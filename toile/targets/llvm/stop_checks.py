"""Stopping a run: signals that arrive while native code is running.

Python runs signal handlers on its main thread, between bytecode instructions. A run of compiled
code has to call them itself: every LOOK_NS the main thread takes the GIL and calls
PyErr_CheckSignals; if a handler raises (Ctrl-C: KeyboardInterrupt), the run ends and the call
raises the exception. Runs on other threads are stopped by a `Stopper`. Kernels with long loops call
`toile_check()` at intervals, and so do the runner and its pool.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

LOOK_NS = 100_000_000  # between checks for signals, each of which takes the GIL
APART_NS = 1_000_000  # between readings of the clock, if commands are short
STOPPED = 0x73746F70  # the result of a run that was stopped

CHECK = "toile_check"
DECLARATION = f"declare i64 @{CHECK}() cold nounwind\n"
TURNS = 4096  # iterations of a kernel's loop between two checks ...
OUTER_TURNS = 16  # ... and of a loop that contains loops
FEW_TURNS = 64  # inner loops with no more iterations than this do not check

# What the runner can be asked to do when it is called without a table (see `@stop_control`).
RESET, FUNCTIONS, MAIN_THREAD, ROWS, FLAGGED, RAISED, RUNS = range(7)
_MOST_ROWS = 1024

_CONSTANTS = {"look_ns": LOOK_NS, "apart_ns": APART_NS, "stopped": STOPPED}


def text() -> str:
    """The text of `@toile_check()`, `@tick(state)` and the functions that belong to them."""
    body = _STUBS if sys.platform == "win32" else _STATE + _CHECK + _TICK
    for name, value in _CONSTANTS.items():
        body = body.replace(f"${name}$", str(value))
    return body


# Windows has other functions for threads and clocks: runs cannot be stopped there.
_STUBS = """
@stop.wanted = internal global i64 0
define i64 @toile_check() nounwind cold noinline {
  ret i64 0
}
define internal i64 @tick(ptr %state) nounwind alwaysinline {
  ret i64 0
}
define internal i64 @signals_now() nounwind alwaysinline {
  ret i64 0
}
define internal i64 @ended(i64 %code) nounwind alwaysinline {
  ret i64 %code
}
define internal i64 @stop_control(i64 %what, ptr %value) nounwind {
  %runs = load atomic i64, ptr @runs monotonic, align 8
  ret i64 %runs
}
"""

# `wanted`: bit 0 is set if the main thread's run should stop, bit 1 if a row of `rows` is flagged.
# Rows are (thread, flag), one for each thread that can be stopped.
_STATE = """
%line = type { i64, [120 x i8] }
%worker = type { i64, i64, [48 x i8], [64 x i8], [128 x i8] }
@stop.wanted = internal global %line zeroinitializer, align 128
@stop.main = internal global i64 0
@stop.next = internal global i64 0
@stop.functions = internal global [4 x ptr] zeroinitializer
@stop.raised = internal global [3 x ptr] zeroinitializer
@stop.rows = internal global ptr null
@stop.count = internal global i64 0
@stop.region = internal global i64 0
declare i64 @pthread_self()

define internal i64 @stop_control(i64 %what, ptr %value) nounwind {
entry:
  switch i64 %what, label %none [
    i64 1, label %functions
    i64 2, label %main
    i64 3, label %rows
    i64 4, label %flagged
    i64 5, label %raised
    i64 6, label %count_runs
  ]
functions:
  call void @llvm.memcpy.p0.p0.i64(ptr @stop.functions, ptr %value, i64 32, i1 false)
  br label %none
main:
  %ident = ptrtoint ptr %value to i64
  store i64 %ident, ptr @stop.main
  store atomic i64 0, ptr @stop.wanted seq_cst, align 8
  br label %none
rows:
  %count = load i64, ptr %value
  %first = getelementptr i64, ptr %value, i64 2
  store ptr %first, ptr @stop.rows
  store i64 %count, ptr @stop.count
  br label %none
flagged:
  %some = icmp ne ptr %value, null
  br i1 %some, label %set, label %unset
set:
  %before = atomicrmw or ptr @stop.wanted, i64 2 seq_cst
  br label %none
unset:
  %before2 = atomicrmw and ptr @stop.wanted, i64 -3 seq_cst
  br label %none
raised:
  call void @llvm.memcpy.p0.p0.i64(ptr %value, ptr @stop.raised, i64 24, i1 false)
  call void @llvm.memset.p0.i64(ptr @stop.raised, i8 0, i64 24, i1 false)
  br label %none
count_runs:
  %runs = load atomic i64, ptr @runs monotonic, align 8
  ret i64 %runs
none:
  ret i64 0
}

define internal i1 @is_main() nounwind alwaysinline {
  %self = call i64 @pthread_self()
  %main = load i64, ptr @stop.main
  %same = icmp eq i64 %self, %main
  ret i1 %same
}
"""

# The main thread checks for signals; a worker of the pool stops if it works on a region of the main
# thread, and the main thread's run should stop; any other thread stops if its row is flagged.
_CHECK = """
define internal i64 @look_for_signals() nounwind noinline {
entry:
  %ensure = load ptr, ptr @stop.functions
  %release.at = getelementptr ptr, ptr @stop.functions, i64 1
  %signals.at = getelementptr ptr, ptr @stop.functions, i64 2
  %fetch.at = getelementptr ptr, ptr @stop.functions, i64 3
  %release = load ptr, ptr %release.at
  %signals = load ptr, ptr %signals.at
  %fetch = load ptr, ptr %fetch.at
  %known = icmp ne ptr %ensure, null
  br i1 %known, label %ask, label %fine
ask:
  %lock = call i32 %ensure()
  %found = call i32 %signals()
  %raised = icmp ne i32 %found, 0
  br i1 %raised, label %keep, label %go_on
keep:
  %value.at = getelementptr ptr, ptr @stop.raised, i64 1
  %trace.at = getelementptr ptr, ptr @stop.raised, i64 2
  call void %fetch(ptr @stop.raised, ptr %value.at, ptr %trace.at)
  call void %release(i32 %lock)
  %before = atomicrmw or ptr @stop.wanted, i64 1 seq_cst
  ret i64 1
go_on:
  call void %release(i32 %lock)
  ret i64 0
fine:
  ret i64 0
}

define internal i64 @is_worker(i64 %self) nounwind noinline {
entry:
  %count = load i64, ptr @created
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %none
body:
  %worker = getelementptr [$most_workers$ x %worker], ptr @workers, i64 0, i64 %i
  %ident.at = getelementptr %worker, ptr %worker, i64 0, i32 1
  %ident = load atomic i64, ptr %ident.at monotonic, align 8
  %same = icmp eq i64 %ident, %self
  %next = add i64 %i, 1
  br i1 %same, label %found, label %test
found:
  ret i64 1
none:
  ret i64 0
}

define internal i64 @is_flagged(i64 %self) nounwind noinline {
entry:
  %count = load i64, ptr @stop.count
  %rows = load ptr, ptr @stop.rows
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %none
body:
  %twice = shl i64 %i, 1
  %row = getelementptr i64, ptr %rows, i64 %twice
  %thread = load atomic i64, ptr %row monotonic, align 8
  %same = icmp eq i64 %thread, %self
  %next = add i64 %i, 1
  br i1 %same, label %found, label %test
found:
  %flag.at = getelementptr i64, ptr %row, i64 1
  %flag = load atomic i64, ptr %flag.at monotonic, align 8
  ret i64 %flag
none:
  ret i64 0
}

define internal i64 @signals_now() nounwind noinline {
entry:
  %main = call i1 @is_main()
  br i1 %main, label %mine, label %other
mine:
  %code = call i64 @look_for_signals()
  ret i64 %code
other:
  ret i64 0
}

define i64 @toile_check() nounwind cold noinline {
entry:
  %wanted = load atomic i64, ptr @stop.wanted monotonic, align 8
  %bit = and i64 %wanted, 1
  %main = call i1 @is_main()
  br i1 %main, label %mine, label %other
mine:
  %stopped = icmp ne i64 %bit, 0
  br i1 %stopped, label %stop, label %clock
clock:
  %time = call i64 @now()
  %next = load i64, ptr @stop.next
  %early = icmp slt i64 %time, %next
  br i1 %early, label %go_on, label %look
look:
  %later = add i64 %time, $look_ns$
  store i64 %later, ptr @stop.next
  %code = call i64 @look_for_signals()
  ret i64 %code
other:
  %some = icmp ne i64 %wanted, 0
  br i1 %some, label %who, label %go_on
who:
  %self = call i64 @pthread_self()
  %worker = call i64 @is_worker(i64 %self)
  %works = icmp ne i64 %worker, 0
  br i1 %works, label %region, label %row
region:
  %ours = load atomic i64, ptr @stop.region monotonic, align 8
  %both = and i64 %ours, %bit
  ret i64 %both
row:
  %flag = call i64 @is_flagged(i64 %self)
  ret i64 %flag
stop:
  ret i64 1
go_on:
  ret i64 0
}

; What a run gives at its end: kernels that stopped early say nothing themselves.
define internal i64 @ended(i64 %code) nounwind alwaysinline {
entry:
  %wanted = load atomic i64, ptr @stop.wanted monotonic, align 8
  %some = icmp ne i64 %wanted, 0
  br i1 %some, label %whose, label %fine
whose:
  %stop = call i64 @was_stopped()
  %stopped = icmp ne i64 %stop, 0
  %found = select i1 %stopped, i64 $stopped$, i64 %code
  ret i64 %found
fine:
  ret i64 %code
}

define internal i64 @was_stopped() nounwind noinline {
entry:
  %self = call i64 @pthread_self()
  %main = call i1 @is_main()
  br i1 %main, label %mine, label %other
mine:
  %before = atomicrmw and ptr @stop.wanted, i64 -2 seq_cst
  %bit = and i64 %before, 1
  ret i64 %bit
other:
  %flag = call i64 @is_flagged(i64 %self)
  ret i64 %flag
}
"""

# A run's state: how many commands are left until the clock is next read, how many there are between
# two readings, and the time of the last one. Commands take from 20 ns to a second, so their number
# between two readings is adapted to how long they take.
_TICK = """
define internal i64 @tick(ptr %state) nounwind alwaysinline {
entry:
  %count = load i64, ptr %state
  %left = sub i64 %count, 1
  store i64 %left, ptr %state
  %more = icmp sgt i64 %left, 0
  %wanted = load atomic i64, ptr @stop.wanted monotonic, align 8
  %none = icmp eq i64 %wanted, 0
  %wait = and i1 %more, %none
  br i1 %wait, label %go_on, label %look
look:
  %code = call i64 @ticked(ptr %state)
  ret i64 %code
go_on:
  ret i64 0
}

define internal i64 @ticked(ptr %state) nounwind noinline cold {
entry:
  %period.at = getelementptr i64, ptr %state, i64 1
  %last.at = getelementptr i64, ptr %state, i64 2
  %time = call i64 @now()
  %last = load i64, ptr %last.at
  %period = load i64, ptr %period.at
  store i64 %time, ptr %last.at
  %first = icmp eq i64 %last, 0
  %passed = sub i64 %time, %last
  %long = icmp sgt i64 %passed, $apart_ns$
  %fewer = lshr i64 %period, 3
  %more = shl i64 %period, 1
  %next = select i1 %long, i64 %fewer, i64 %more
  %most = call i64 @llvm.smin.i64(i64 %next, i64 4096)
  %least = call i64 @llvm.smax.i64(i64 %most, i64 1)
  %chosen = select i1 %first, i64 4, i64 %least
  store i64 %chosen, ptr %period.at
  store i64 %chosen, ptr %state
  %code = call i64 @toile_check()
  ret i64 %code
}
"""


# ---- the Python side

Control = Callable[[int, int], int]  # what, value


class _Rows:
    """A table of threads that can be stopped, which the runner reads; callers hold the lock."""

    def __init__(self) -> None:
        # Two words (the number of rows, 0), then rows of thread and flag.
        self.words = np.zeros(2 + 2 * _MOST_ROWS, np.int64)
        self.words[0] = _MOST_ROWS
        self.lock = threading.Lock()

    def take(self) -> int | None:
        """Take a row for the current thread; None if all are taken."""
        free = np.flatnonzero(self.words[2::2] == 0)
        if not len(free):
            return None
        at = 2 + 2 * int(free[0])
        self.words[at + 1] = 0
        self.words[at] = threading.get_ident()
        return at

    def give_back(self, at: int) -> None:
        self.words[at : at + 2] = 0
        self._publish()

    def flag(self, at: int) -> None:
        self.words[at + 1] = 1
        self._publish()

    def _publish(self) -> None:
        if _control is not None:
            _control(FLAGGED, int(self.words[3::2].any()))


_rows = _Rows()
_control: Control | None = None


class Stopper:
    """Stops the runs of threads that are in a `stoppable` block."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.wanted = False

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Runs of this thread inside the block end soon after `stop`."""
        with _rows.lock:
            at = _rows.take()
            if at is not None:
                self.rows.append(at)
                if self.wanted:
                    _rows.flag(at)
        try:
            yield
        finally:
            if at is not None:
                with _rows.lock:
                    self.rows.remove(at)
                    _rows.give_back(at)

    def stop(self) -> None:
        """End the runs in `stoppable` blocks, and those that begin there later."""
        with _rows.lock:
            self.wanted = True
            for at in self.rows:
                _rows.flag(at)


def connect(control: Control) -> None:
    """Give a newly loaded runner Python's C functions, the table of threads and the main thread."""
    global _control
    api = ctypes.pythonapi
    names = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")
    words = np.array(
        [ctypes.cast(getattr(api, name), ctypes.c_void_p).value for name in names], np.uint64)
    control(FUNCTIONS, words.ctypes.data)
    control(ROWS, _rows.words.ctypes.data)
    _control = control
    _set_main_thread()


def _set_main_thread() -> None:
    if _control is not None:
        _control(MAIN_THREAD, threading.main_thread().ident or 0)


def forked() -> None:
    """Reset the state in the child of a fork, which has one thread."""
    _rows.lock = threading.Lock()
    _rows.words[2:] = 0
    _set_main_thread()


_restore = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyErr_Restore", ctypes.pythonapi)
)


def interruption() -> BaseException:
    """The error of the signal handler that stopped this thread's run; else a KeyboardInterrupt."""
    words = np.zeros(3, np.uint64)
    if _control is not None and threading.get_ident() == threading.main_thread().ident:
        _control(RAISED, words.ctypes.data)
    if words[0]:
        try:
            _restore(*[int(w) or None for w in words])
        except BaseException as error:
            return error
    return KeyboardInterrupt()
