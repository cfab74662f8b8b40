"""The thread pool, as LLVM text: worker threads that take chunks of a parallel region.

A region is published in one 64-bit word, `workers << 48 | chunks << 24 | next`; each participant
claims a chunk by adding one to the word (compare and exchange). The caller takes part too and waits
only for chunks that were claimed, never for a sleeping worker. Idle workers spin for a short while,
then sleep; a thread that begins to work wakes its two children in the tree of threads.
"""

from __future__ import annotations

import platform
import sys

from toile.platforms.cpu import chunk_texts
from toile.targets.llvm import stop_checks as stopping

MOST_WORKERS = 255
MOST_CHUNKS = 1 << 23  # of one publication; longer regions are published in parts
STACK_BYTES = 16 << 20

_IDLE_NS = 100_000  # a worker spins this long before it sleeps ...
_POLITE_NS = 20_000  # ... and yields to other threads after this long
_WAIT_NS = 50_000  # the caller spins this long for the last chunks, then yields ...
_NAP_NS = 2_000_000  # ... and after this long sleeps between checks

_MACOS = sys.platform == "darwin"
_CONSTANTS = {
    "most_workers": MOST_WORKERS,
    "most_chunks": MOST_CHUNKS,
    "stack_bytes": STACK_BYTES,
    "idle_ns": _IDLE_NS,
    "polite_ns": _POLITE_NS,
    "wait_ns": _WAIT_NS,
    "nap_ns": _NAP_NS,
    "field": (1 << 24) - 1,
    "monotonic": 6 if _MACOS else 1,  # CLOCK_MONOTONIC
    "detached": 2 if _MACOS else 1,  # PTHREAD_CREATE_DETACHED
    "setmask": 3 if _MACOS else 2,  # SIG_SETMASK
}


def _pause() -> str:
    """What a spinning thread runs, so that it does not starve its core's other hardware thread."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return "call void @llvm.aarch64.isb(i32 15)"  # `yield` does nothing on most cores
    if platform.machine().lower() in ("x86_64", "amd64"):
        return "call void @llvm.x86.sse2.pause()"
    return "fence seq_cst"


def text() -> str:
    """`@pool_region(records, chunks, buffers, threads, state)` and `@pool_reset()`.

    A region returns 0, or another value if the run of its thread should stop (`stop_checks`)."""
    body = stopping.text() + chunk_texts.TEXT
    # Windows has another thread API; regions run on the calling thread there.
    body += _STUBS if sys.platform == "win32" else _STATE + _CLAIM + _WORKER + _START + _REGION
    for name, value in (*_CONSTANTS.items(), ("turn", _TURN), ("pause", _pause())):
        body = body.replace(f"${name}$", str(value))
    return body


# One iteration of a spinning thread, which reads the clock every 64 iterations.
_TURN = """$pause$
  %turned = add i64 %turn, 1
  %low = and i64 %turned, 63
  %look = icmp eq i64 %low, 0"""

_STUBS = """
define internal i64 @pool_region(
  ptr %records, i64 %chunks, ptr %buffers, i64 %threads, ptr %state
) nounwind {
  %code = call i64 @serial_region(ptr %records, i64 %chunks, ptr %buffers, ptr %state)
  ret i64 %code
}
define internal void @pool_reset() nounwind {
  ret void
}
"""

# Words that different threads write are on separate cache lines. Sizes of pthread's types are upper
# bounds. `most` is reduced when the system refuses to create another thread.
_STATE = """
@word = internal global %line zeroinitializer, align 128
@done = internal global %line zeroinitializer, align 128
@owner = internal global %line zeroinitializer, align 128
@records = internal global ptr null
@buffers = internal global ptr null
@created = internal global i64 0
@most = internal global i64 $most_workers$
@workers = internal global [$most_workers$ x %worker] zeroinitializer, align 128

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @nanosleep(ptr, ptr)
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() nounwind noinline {
  %time = alloca { i64, i64 }
  %ignored = call i32 @clock_gettime(i32 $monotonic$, ptr %time)
  %fraction.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %seconds = load i64, ptr %time
  %fraction = load i64, ptr %fraction.at
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %fraction
  ret i64 %all
}

define internal void @nap() nounwind noinline {
  %time = alloca { i64, i64 }
  %fraction.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  store i64 0, ptr %time
  store i64 50000, ptr %fraction.at
  %ignored = call i32 @nanosleep(ptr %time, ptr null)
  ret void
}

; A child of a fork has none of its parent's threads, and perhaps half of a region's state.
define internal void @pool_reset() nounwind {
  store atomic i64 0, ptr @word seq_cst, align 8
  store i64 0, ptr @created
  store i64 $most_workers$, ptr @most
  store atomic i64 0, ptr @owner seq_cst, align 8
  ret void
}
"""

# The caller is thread 0, workers count from 1. A claim reads the description of the region after
# the exchange succeeded: the region cannot end before that, because its caller waits for the chunk.
# So it does no harm if the word has changed and now has the same value again.
_CLAIM = """
define internal i1 @has_work(i64 %self, i64 %word) nounwind alwaysinline {
  %allowed = lshr i64 %word, 48
  %member = icmp ule i64 %self, %allowed
  %high = lshr i64 %word, 24
  %chunks = and i64 %high, $field$
  %next = and i64 %word, $field$
  %left = icmp ult i64 %next, %chunks
  %both = and i1 %member, %left
  ret i1 %both
}

define internal void @wake(i64 %thread, i64 %word) nounwind noinline {
entry:
  %allowed = lshr i64 %word, 48
  %member = icmp ule i64 %thread, %allowed
  br i1 %member, label %look, label %done
look:
  %index = sub i64 %thread, 1
  %worker = getelementptr [$most_workers$ x %worker], ptr @workers, i64 0, i64 %index
  %asleep = load atomic i64, ptr %worker seq_cst, align 8
  %sleeps = icmp ne i64 %asleep, 0
  br i1 %sleeps, label %call, label %done
call:
  %mutex = getelementptr %worker, ptr %worker, i64 0, i32 3
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 4
  %r1 = call i32 @pthread_mutex_lock(ptr %mutex)
  %r2 = call i32 @pthread_cond_signal(ptr %condition)
  %r3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}

; Run chunks until none is left, or take them without running where the run is to stop; their
; number. Workers have no state.
define internal i64 @claim(i64 %self, ptr %state) nounwind noinline {
entry:
  %first = load atomic i64, ptr @word acquire, align 8
  br label %test
test:
  %word = phi i64 [ %first, %entry ], [ %seen, %try ], [ %again, %ran ]
  %count = phi i64 [ 0, %entry ], [ %count, %try ], [ %more, %ran ]
  %work = call i1 @has_work(i64 %self, i64 %word)
  br i1 %work, label %try, label %done
try:
  %taken = add i64 %word, 1
  %pair = cmpxchg ptr @word, i64 %word, i64 %taken acq_rel acquire
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %mine, label %test
mine:
  %begins = icmp eq i64 %count, 0
  br i1 %begins, label %family, label %run
family:
  %twice = shl i64 %self, 1
  %left = add i64 %twice, 1
  %right = add i64 %twice, 2
  call void @wake(i64 %left, i64 %word)
  call void @wake(i64 %right, i64 %word)
  br label %run
run:
  %wanted = load atomic i64, ptr @stop.wanted monotonic, align 8
  %ours = load atomic i64, ptr @stop.region monotonic, align 8
  %both = and i64 %wanted, %ours
  %stop = icmp ne i64 %both, 0
  br i1 %stop, label %ran, label %chunk
chunk:
  %records = load ptr, ptr @records
  %buffers = load ptr, ptr @buffers
  %index = and i64 %word, $field$
  %record = getelementptr %record, ptr %records, i64 %index
  call void @run_chunk(ptr %record, ptr %buffers)
  %worker = icmp eq ptr %state, null
  br i1 %worker, label %ran, label %caller
caller:
  %ignored = call i64 @tick(ptr %state)
  br label %ran
ran:
  %more = add i64 %count, 1
  %again = load atomic i64, ptr @word acquire, align 8
  br label %test
done:
  ret i64 %count
}
"""

# Going to sleep: the worker sets a flag, then reads the word once more; the publisher writes the
# word, then reads the flags. Both are sequentially consistent, so one of them sees the other.
_WORKER = """
define internal ptr @worker_main(ptr %argument) nounwind {
entry:
  %self = ptrtoint ptr %argument to i64
  %index = sub i64 %self, 1
  %worker = getelementptr [$most_workers$ x %worker], ptr @workers, i64 0, i64 %index
  %mutex = getelementptr %worker, ptr %worker, i64 0, i32 3
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 4
  %ident = call i64 @pthread_self()
  %ident.at = getelementptr %worker, ptr %worker, i64 0, i32 1
  store atomic i64 %ident, ptr %ident.at monotonic, align 8
  br label %fresh
fresh:
  %since = call i64 @now()
  br label %spin
spin:
  %turn = phi i64 [ 0, %fresh ], [ %turned, %idle ], [ %turned, %clock ], [ %turned, %polite ]
  %word = load atomic i64, ptr @word acquire, align 8
  %work = call i1 @has_work(i64 %self, i64 %word)
  br i1 %work, label %run, label %idle
run:
  %count = call i64 @claim(i64 %self, ptr null)
  %sum = atomicrmw add ptr @done, i64 %count acq_rel
  br label %fresh
idle:
  $turn$
  br i1 %look, label %clock, label %spin
clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %since
  %brief = icmp slt i64 %spent, $polite_ns$
  br i1 %brief, label %spin, label %long
long:
  %patient = icmp slt i64 %spent, $idle_ns$
  br i1 %patient, label %polite, label %sleep
polite:
  %y = call i32 @sched_yield()
  br label %spin
sleep:
  %r1 = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %worker seq_cst, align 8
  br label %asleep
asleep:
  %word2 = load atomic i64, ptr @word seq_cst, align 8
  %work2 = call i1 @has_work(i64 %self, i64 %word2)
  br i1 %work2, label %awake, label %wait
wait:
  %r2 = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %asleep
awake:
  store atomic i64 0, ptr %worker seq_cst, align 8
  %r3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %fresh
}
"""

# Workers block all signals: Python's handlers must run on its main thread.
_START = """
define internal void @start_workers(i64 %wanted) nounwind noinline {
entry:
  %thread = alloca [16 x i8], align 16
  %attributes = alloca [128 x i8], align 16
  %all = alloca [256 x i8], align 16
  %before = alloca [256 x i8], align 16
  %r1 = call i32 @sigfillset(ptr %all)
  %r2 = call i32 @pthread_sigmask(i32 $setmask$, ptr %all, ptr %before)
  %r3 = call i32 @pthread_attr_init(ptr %attributes)
  %r4 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $stack_bytes$)
  %r5 = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 $detached$)
  br label %test
test:
  %count = load i64, ptr @created
  %more = icmp slt i64 %count, %wanted
  br i1 %more, label %create, label %done
create:
  %worker = getelementptr [$most_workers$ x %worker], ptr @workers, i64 0, i64 %count
  %mutex = getelementptr %worker, ptr %worker, i64 0, i32 3
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 4
  store atomic i64 0, ptr %worker seq_cst, align 8
  %r6 = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %r7 = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %number = add i64 %count, 1
  %self = inttoptr i64 %number to ptr
  %r8 = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker_main, ptr %self)
  %made = icmp eq i32 %r8, 0
  br i1 %made, label %counted, label %refused
counted:
  store i64 %number, ptr @created
  br label %test
refused:
  store i64 %count, ptr @most
  br label %done
done:
  %r9 = call i32 @pthread_attr_destroy(ptr %attributes)
  %r10 = call i32 @pthread_sigmask(i32 $setmask$, ptr %before, ptr null)
  ret void
}
"""

# One caller owns the pool during a region; other callers run their regions alone.
_REGION = """
define internal void @publish(
  ptr %records, i64 %chunks, ptr %buffers, i64 %workers, ptr %state
) nounwind {
entry:
  store ptr %records, ptr @records
  store ptr %buffers, ptr @buffers
  store atomic i64 0, ptr @done monotonic, align 8
  %high = shl i64 %workers, 48
  %middle = shl i64 %chunks, 24
  %word = or i64 %high, %middle
  store atomic i64 %word, ptr @word seq_cst, align 8
  %count = call i64 @claim(i64 0, ptr %state)
  %others = sub i64 %chunks, %count
  br label %wait
wait:
  %turn = phi i64 [ 0, %entry ], [ %turned, %spin ], [ %turned, %clock ], [ %turned, %give ],
                  [ %turned, %doze ]
  %since = phi i64 [ 0, %entry ], [ %since, %spin ], [ %start, %clock ], [ %start, %give ],
                   [ %start, %doze ]
  %done = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %over, label %spin
spin:
  $turn$
  br i1 %look, label %clock, label %wait
clock:
  %time = call i64 @now()
  %unset = icmp eq i64 %since, 0
  %start = select i1 %unset, i64 %time, i64 %since
  %spent = sub i64 %time, %start
  %brief = icmp slt i64 %spent, $wait_ns$
  br i1 %brief, label %wait, label %long
long:
  %stop = call i64 @toile_check()
  %soon = icmp slt i64 %spent, $nap_ns$
  br i1 %soon, label %give, label %doze
give:
  %y = call i32 @sched_yield()
  br label %wait
doze:
  call void @nap()
  br label %wait
over:
  ret void
}

define internal i64 @pool_region(
  ptr %records, i64 %chunks, ptr %buffers, i64 %threads, ptr %state
) nounwind {
entry:
  %several = icmp sgt i64 %chunks, 1
  %many = icmp sgt i64 %threads, 1
  %parallel = and i1 %several, %many
  br i1 %parallel, label %acquire, label %serial
acquire:
  %pair = cmpxchg ptr @owner, i64 0, i64 1 acq_rel acquire
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %owned, label %serial
owned:
  %main = call i1 @is_main()
  %ours = zext i1 %main to i64
  store atomic i64 %ours, ptr @stop.region monotonic, align 8
  %fewer = sub i64 %chunks, 1
  %helpers = sub i64 %threads, 1
  %most = load i64, ptr @most
  %least = call i64 @llvm.smin.i64(i64 %fewer, i64 %helpers)
  %workers = call i64 @llvm.smin.i64(i64 %least, i64 %most)
  %created = load i64, ptr @created
  %lacking = icmp slt i64 %created, %workers
  br i1 %lacking, label %start, label %part
start:
  call void @start_workers(i64 %workers)
  br label %part
part:
  %created2 = load i64, ptr @created
  %workers2 = call i64 @llvm.smin.i64(i64 %workers, i64 %created2)
  br label %test
test:
  %at = phi ptr [ %records, %part ], [ %at2, %body ]
  %left = phi i64 [ %chunks, %part ], [ %left2, %body ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %body, label %release
body:
  %now = call i64 @llvm.smin.i64(i64 %left, i64 $most_chunks$)
  call void @publish(ptr %at, i64 %now, ptr %buffers, i64 %workers2, ptr %state)
  %at2 = getelementptr %record, ptr %at, i64 %now
  %left2 = sub i64 %left, %now
  br label %test
release:
  %wanted = load atomic i64, ptr @stop.wanted monotonic, align 8
  %stop = and i64 %wanted, %ours
  store atomic i64 0, ptr @owner release, align 8
  ret i64 %stop
serial:
  %code = call i64 @serial_region(ptr %records, i64 %chunks, ptr %buffers, ptr %state)
  ret i64 %code
}
"""
