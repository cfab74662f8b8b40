"""The native runner and its thread pool, on tables made by hand."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from toile.platforms.cpu import execution, runner
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm import thread_count as threads

pytest.importorskip("llvmlite")

THREADS = pytest.mark.parametrize("count", [1, 2, 5])


def adding_kernel():
    """x[lo:hi] += c, of int64; arguments: x (2 words), c."""
    f = ir.kernel()
    x, c = f.buffer(0), f.argument(2)
    with f.loop("%lo", "%hi") as i:
        at = f.at(x, i, "i64")
        f.store("i64", f.add(f.load("i64", at), c), at)
    return native.function(ir.module(f))


def below_kernel():
    """p[0] = x[0] < c; arguments: x (2 words), p (2 words), c."""
    f = ir.kernel()
    x, p = f.buffer(0), f.buffer(2)
    below = f.compare("slt", f.load("i64", x), f.argument(4))
    f.store("i8", f.value(f"zext i1 {below} to i8"), p)
    return native.function(ir.module(f))


def sum_kernel():
    """y[0] = a[0] + b[0], of int64; arguments: y, a, b (2 words each)."""
    f = ir.kernel()
    y, a, b = f.buffer(0), f.buffer(2), f.buffer(4)
    f.store("i64", f.add(f.load("i64", a), f.load("i64", b)), y)
    return native.function(ir.module(f))


class Memory:
    """Arrays in slots of a buffer table."""

    def __init__(self, *arrays, slots=8):
        self.arrays = arrays
        self.table = np.zeros(slots, np.int64)
        for i, array in enumerate(arrays):
            if array is not None:
                self.table[i] = array.ctypes.data

    def run(self, table, count):
        return runner.run(table.address, self.table.ctypes.data, count)


def words(*values):
    return np.array(values, np.int64)


def adding(slot, c, chunks=((0, 1),), offset=0):
    """A table that adds c to a buffer."""
    table = runner.Table()
    table.region([(adding_kernel(), words(slot, offset, c), lo, hi) for lo, hi in chunks])
    return table


def split(n, parts):
    edges = np.linspace(0, n, parts + 1).astype(int)
    return list(zip(edges[:-1], edges[1:], strict=True))


@THREADS
@pytest.mark.parametrize("parts", [1, 2, 3, 100])
def test_region_runs_each_chunk_once(count, parts):
    x = np.arange(1000)
    table = adding(0, 7, split(1000, parts))
    for _ in range(20):
        assert Memory(x).run(table, count) == 0
    np.testing.assert_array_equal(x, np.arange(1000) + 140)


def test_region_of_very_many_chunks():
    n = (1 << 23) + 5  # more than one publication holds
    rows = np.arange(len(range(0, n, 1000)))
    x, args = np.zeros(len(rows), np.int64), words(0, 0, 1)
    records = np.zeros((n, 4), np.int64)
    records[:, :2] = (adding_kernel(), args.ctypes.data)
    records[::1000, 2], records[::1000, 3] = rows, rows + 1  # the others are empty
    table = runner.Table()
    table.region(records)
    for count in (1, 2):
        assert Memory(x).run(table, count) == 0
        assert (x == count).all()


def test_finished_tables_stay():
    table = adding(0, 1)
    runner.Table().loop(2, table)
    with pytest.raises(ValueError, match="finished"):
        table.copy(0, 0, 0, 0, 0)


def test_empty_tables():
    table = runner.Table()
    table.region([])
    assert Memory().run(table, 2) == 0
    assert table.words == [runner.END]


def test_regions_follow_each_other():
    x = np.zeros(64, np.int64)
    table = runner.Table()
    fn = adding_kernel()
    for c in range(1, 50):
        table.region([(fn, words(0, 0, c), lo, hi) for lo, hi in split(64, 1 + c % 7)])
    Memory(x).run(table, 2)
    np.testing.assert_array_equal(x, 49 * 50 // 2)


@THREADS
def test_loop_slices_and_reverse(count):
    x, y = np.arange(12).reshape(6, 2), np.zeros((6, 2), np.int64)
    body = runner.Table()
    body.copy(3, 0, 2, 0, 16)
    body.region([(adding_kernel(), words(3, 0, 100), i, i + 1) for i in range(2)])
    table = runner.Table()
    # x forwards from its start, y backwards from its last row
    table.loop(6, body, slices=[(2, 0, 0, 16), (3, 1, 5 * 16, -16)])
    assert Memory(x, y).run(table, count) == 0
    np.testing.assert_array_equal(y, x[::-1] + 100)


@pytest.mark.parametrize("trips", [0, 1, 2, 7, 10])
def test_loop_swaps(trips):
    """Fibonacci: (a, b) -> (b, a + b) by a scratch and two swaps."""
    a, b, c = words(0), words(1), words(-1)
    body = runner.Table()
    body.region([(sum_kernel(), words(2, 0, 0, 0, 1, 0), 0, 1)])
    table = runner.Table()
    table.loop(trips, body, swaps=[(0, 1), (1, 2)])
    memory = Memory(a, b, c)
    memory.run(table, 2)
    x, y = 0, 1
    for _ in range(trips):
        x, y = y, x + y
    pointers = {array.ctypes.data: array for array in (a, b, c)}
    assert (pointers[memory.table[0]][0], pointers[memory.table[1]][0]) == (x, y)


@THREADS
def test_while(count):
    x, p = words(0), np.zeros(1, np.bool_)
    condition = runner.Table()
    condition.region([(below_kernel(), words(0, 0, 1, 0, 100), 0, 1)])
    table = runner.Table()
    table.while_(condition, 1, adding(0, 7))
    memory = Memory(x, p)
    memory.run(table, count)
    assert x[0] == 105 and not p[0]
    memory.run(table, count)
    assert x[0] == 105


@pytest.mark.parametrize("index, taken", [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (1 << 30, 2)])
def test_switch_clamps(index, taken):
    x, i = words(0), np.array([index], np.int32)
    table = runner.Table()
    table.switch(1, [adding(0, 1), adding(0, 10), adding(0, 100)])
    table.region([(adding_kernel(), words(0, 0, 1000), 0, 1)])
    Memory(x, i).run(table, 2)
    assert x[0] == 1000 + 10**taken


@THREADS
def test_nested_loops_in_switch_in_while(count):
    """while x < 1000: switch(0): 5 times (3 times (x += 1), x += 10)."""
    x, p, i = words(0), np.zeros(1, np.int8), np.zeros(1, np.int32)
    inner = runner.Table()
    inner.loop(3, adding(0, 1))
    fn = adding_kernel()
    inner.region([(fn, words(0, 0, 10), 0, 1), (fn, words(3, 0, 1), 0, 9)])
    outer = runner.Table()
    outer.loop(5, inner)
    body = runner.Table()
    body.switch(2, [outer])
    condition = runner.Table()
    condition.region([(below_kernel(), words(0, 0, 1, 0, 1000), 0, 1)])
    table = runner.Table()
    table.while_(condition, 1, body)
    y = np.zeros(9, np.int64)
    Memory(x, p, i, y).run(table, count)
    assert x[0] == 1040 and (y == 16 * 5).all()


def test_copy_and_place():
    arena, x = np.zeros(100, np.uint8), np.arange(10, dtype=np.uint8)
    table = runner.Table()
    table.place(1, [(2, 40), (3, 50)])
    table.copy(2, 0, 0, 0, 10)
    table.copy(3, 2, 2, 5, 3)
    table.copy(2, 1, 2, 0, 9)  # overlapping
    Memory(x, arena).run(table, 1)
    np.testing.assert_array_equal(arena[40:50], [0, *range(9)])
    np.testing.assert_array_equal(arena[50:56], [0, 0, 5, 6, 7, 0])


def test_callbacks_and_what_they_raise():
    x, seen = words(0), []

    def step(id, buffers):
        seen.append((id, int(x[0])))
        assert buffers == memory.table.ctypes.data
        if x[0] >= 3:
            raise KeyError("enough")

    body = runner.Table()
    body.region([(adding_kernel(), words(0, 0, 1), 0, 1)])
    body.callback(runner.callback(step), 42)
    table = runner.Table()
    table.loop(10, body)
    table.region([(adding_kernel(), words(0, 0, 100), 0, 1)])
    memory = Memory(x)
    with pytest.raises(KeyError, match="enough"):
        runner.execute(table.address, memory.table.ctypes.data, 2)
    assert seen == [(42, 1), (42, 2), (42, 3)] and x[0] == 3
    x[0] = -100
    runner.execute(table.address, memory.table.ctypes.data, 2)
    assert x[0] == 10


def test_callback_code_stops_the_run():
    stop = runner.CALLBACK_TYPE(lambda id, buffers: runner.GO_ON + id)
    table = runner.Table()
    table.callback(stop, 0)
    table.callback(stop, 17)
    table.callback(stop, 18)
    assert Memory().run(table, 1) == 17
    with pytest.raises(RuntimeError, match="17"):
        runner.execute(table.address, 0, 1)


@pytest.mark.parametrize("handler", ["default", "another"])
def test_an_interruption_that_nothing_could_catch(handler, monkeypatch):
    """A signal's handler runs before the first line of a callback: ctypes drops what it raises."""
    def raises(id, buffers):
        raise KeyboardInterrupt

    table = runner.Table()
    table.callback(runner.CALLBACK_TYPE(raises), 0)
    monkeypatch.setattr(sys, "unraisablehook", lambda *_: None)
    own = signal.default_int_handler if handler == "default" else lambda *_: None
    monkeypatch.setattr(signal, "getsignal", lambda number: own)
    wanted = KeyboardInterrupt if handler == "default" else RuntimeError
    with pytest.raises(wanted):
        runner.execute(table.address, 0, 1)
    with pytest.raises(wanted):
        raise execution.failure(-runner.GO_ON)


def test_callback_may_run_tables():
    x = np.zeros(100, np.int64)
    memory = Memory(x)
    inner = adding(0, 1, split(100, 10))
    table = runner.Table()
    nested = runner.callback(lambda id, buffers: runner.execute(inner.address, buffers, 2))
    table.callback(nested, 0)
    table.region([(adding_kernel(), words(0, 0, 10), lo, hi) for lo, hi in split(100, 10)])
    runner.execute(table.address, memory.table.ctypes.data, 2)
    assert (x == 11).all()


def test_many_small_regions_do_not_hang():
    x = np.zeros(4, np.int64)
    table = runner.Table()
    table.loop(100_000, adding(0, 1, split(4, 4)))
    for count in (2, 4):
        Memory(x).run(table, count)
    assert (x == 200_000).all()


def test_sleeping_workers_wake():
    x = np.zeros(8, np.int64)
    table = adding(0, 1, split(8, 8))
    for i in range(20):
        time.sleep(0.002)
        Memory(x).run(table, 1 + i % 8)
    assert (x == 20).all()


def test_several_python_threads_at_once():
    """The pool serves one of them at a time; the others run by themselves, with equal results."""
    arrays = [np.zeros(1000, np.int64) for _ in range(6)]

    def work(x, parts):
        body = adding(0, 1, split(1000, parts))
        table = runner.Table()
        table.loop(200, body)
        for _ in range(10):
            Memory(x).run(table, 3)

    pythons = [threading.Thread(target=work, args=(x, 2 + i)) for i, x in enumerate(arrays)]
    for t in pythons:
        t.start()
    for t in pythons:
        t.join()
    for x in arrays:
        assert (x == 2000).all()


def check_in_child():
    x = np.zeros(1000, np.int64)
    table = runner.Table()
    table.loop(50, adding(0, 1, split(1000, 20)))
    Memory(x).run(table, 2)
    assert (x == 50).all()
    text = "define void @kernel(i64 %lo, i64 %hi, ptr %a, ptr %b) { ret void }"
    assert native.function(text + f" ; {os.getpid()}")  # compiling works in a child, too


def fork_while_busy():
    check_in_child()
    busy = threading.Event()

    def keep_busy():
        x = np.zeros(1000, np.int64)
        table = adding(0, 1, split(1000, 20))
        while not busy.is_set():
            Memory(x).run(table, 2)

    # forks while another thread owns the pool: the child must not inherit that state
    other = threading.Thread(target=keep_busy)
    other.start()
    try:
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    check_in_child()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        busy.set()
        other.join()
    check_in_child()


def fork_a_pool():
    check_in_child()
    with multiprocessing.get_context("fork").Pool(2) as processes:
        processes.starmap(check_in_child, [()] * 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("what", [fork_while_busy, fork_a_pool])
def test_forked_children_make_their_own_pool(what):
    """In a process where nothing else was loaded that minds forks."""
    code = f"import tests.compiler.test_runner as t; t.{what.__name__}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_exit_with_spinning_workers():
    """A process that ends right after a parallel region ends well."""
    code = (
        "import tests.compiler.test_runner as t, numpy as np\n"
        "t.Memory(np.zeros(100, np.int64)).run(t.adding(0, 1, t.split(100, 10)), 4)\n"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr


def test_number_of_threads(monkeypatch):
    default = threads.current()
    assert default >= 1
    with threads.threads(3):
        assert threads.current() == 3
        seen = []
        other = threading.Thread(target=lambda: seen.append(threads.current()))
        other.start()
        other.join()
        assert seen == [default]
        with threads.threads(1):
            assert threads.current() == 1
        assert threads.current() == 3
    assert threads.current() == default
    with pytest.raises(ValueError, match="positive"), threads.threads(0):
        pass
    monkeypatch.setenv("TOILE_NUM_THREADS", "5")
    assert threads._default() == 5
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv("TOILE_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match="TOILE_NUM_THREADS"):
            threads._default()
