"""Compiled functions in many threads and processes: at once, after fork, and killed at any moment.

What forks runs in a process of its own, so that neither the oracle's threads nor its warnings are
in the way there.
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.targets.llvm.thread_count import threads

pytest.importorskip("llvmlite")

FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def start(code, **environment):
    """A process that runs the code; warnings are errors, but for the one about fork."""
    code = textwrap.dedent(code)
    flags = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    return subprocess.Popen([sys.executable, *flags, "-c", PRELUDE + code], text=True,
                            env={**os.environ, **environment}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)


def python(code, **environment):
    """What the code prints."""
    process = start(code, **environment)
    try:
        out, error = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it forked, too
        raise
    assert process.returncode == 0, error
    return out


# A function with fused loops, a sum in chunks, a contraction and a loop, and what it gives.
PRELUDE = """
import multiprocessing, os, threading, time
import numpy as np
import toile
import toile.numpy as jnp

def work(x, salt=0):
    y = jnp.tanh(x * 0.5 + salt) @ jnp.cos(x).T
    y = toile.lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) + i, y)
    return y / (1 + y.var()), x.sum(0)

x = np.linspace(-1, 1, 300 * 301, dtype=np.float32).reshape(300, 301)

def right(results, salt=0):
    with toile.disable_jit():
        wanted = work(jnp.asarray(x), salt)
    for a, b in zip(results, wanted):
        np.testing.assert_allclose(a, b, 2e-3, 2e-3)
"""


def together(*jobs):
    """Run functions in threads that begin at the same moment; raise what they raise."""
    failures, barrier = [], threading.Barrier(len(jobs))

    def run(job):
        barrier.wait()
        try:
            job()
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for t in started:
        t.start()
    for t in started:
        t.join()
    if failures:
        raise failures[0]


def busy(x, w):
    """Loops in chunks, a contraction, a temporary larger than a context keeps."""
    y = jnp.exp(-x * x) * w
    z = jnp.sort(jnp.tanh(y @ y.T), axis=0)
    return z - z.mean(), jnp.cumsum(y, 1), y.sum()


def inputs(seed):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.uniform(-1, 1, s).astype(np.float32)) for s in ((200, 403), (403,))]


def bits(out):
    return [np.asarray(x).tobytes() for x in toile.tree_util.tree_leaves(out)]


# ---------------------------------------------------------------------------------------- threads


def test_one_function_in_many_threads():
    """They meet at the first call, which traces and compiles."""
    once = toile.jit(lambda x, w: busy(x, w))
    with threads(2):
        wanted = [bits(once(*inputs(i))) for i in range(5)]
    f, traces = toile.jit(lambda x, w: (traces.append(1), busy(x, w))[1]), []

    def job(i):
        with threads(2):
            for _ in range(15):
                assert bits(f(*inputs(i))) == wanted[i]

    together(*[lambda i=i: job(i) for i in range(5)])
    assert len(f.why()) == len(traces) == 1


def test_different_functions_in_many_threads():
    def job(i):
        f = toile.jit(lambda x, w: busy(x * (i + 1), w))
        with threads(1 + i % 3):
            first = bits(f(*inputs(i)))
            for _ in range(10):
                assert bits(f(*inputs(i))) == first
        alone.append((i, first))

    alone = []
    together(*[lambda i=i: job(i) for i in range(4)])
    seen, alone = dict(alone), []
    for i in range(4):
        job(i)
    assert dict(alone) == seen


def test_results_of_threads_are_their_own():
    """Small results share memory from call to call: only while nobody holds them."""
    f = toile.jit(lambda x: (x + 1, x * 2, x.sum()))

    def job(i):
        x = jnp.full(16, float(i))
        kept = [f(x) for _ in range(300)]
        for a, b, c in kept:
            assert (np.asarray(a) == i + 1).all() and (np.asarray(b) == 2 * i).all()
            assert float(c) == 16 * i

    together(*[lambda i=i: job(i) for i in range(4)])


def test_donation_in_many_threads():
    f = toile.jit(lambda x, w: (x * w + 1, (x * w).sum()), donate_argnums=0)

    def job(i):
        x, w = inputs(i)
        y = np.asarray(x).astype(np.float64)
        for _ in range(30):
            x, _ = f(x, w)
            y = y * np.asarray(w) + 1
        np.testing.assert_allclose(np.asarray(x), y, 1e-4, 1e-4)

    together(*[lambda i=i: job(i) for i in range(4)])


def test_python_steps_and_what_they_raise():
    """A failure belongs to the thread whose step failed."""
    def step(x):
        if x[0] < 0:
            raise KeyError("below zero")
        return x + 1

    @toile.jit
    def f(x):
        return toile.pure_callback(step, toile.ShapeDtypeStruct(x.shape, x.dtype), x * 2) * 3

    def fails():
        for _ in range(30):
            with pytest.raises(Exception, match="below zero"):
                f(jnp.full(8, -1.0)).block_until_ready()

    def works():
        for _ in range(30):
            assert (np.asarray(f(jnp.full(8, 1.0))) == 9).all()

    together(fails, works, fails, works)


def test_compiled_calls_inside_of_python_steps():
    inner = toile.jit(lambda x: jnp.tanh(x).sum())
    f = toile.jit(lambda x: toile.pure_callback(
        lambda v: np.asarray(inner(v)), toile.ShapeDtypeStruct((), x.dtype), x * 2))
    x = jnp.asarray(np.linspace(-1, 2, 100_000, dtype=np.float32))
    wanted = np.tanh(2 * np.asarray(x, np.float64)).sum()
    together(*[lambda: np.testing.assert_allclose(float(f(x)), wanted, 1e-4)] * 4)


# ------------------------------------------------------------------------------------------- fork


@FORK
@pytest.mark.parametrize("when", ["idle", "busy"])
def test_fork(when):
    """A child runs what its parent compiled, compiles more, and has threads of its own."""
    out = python(f"""
        f = toile.jit(work)
        right(f(x))
        stop = threading.Event()
        def keep_busy():
            while not stop.is_set():
                f(x)
        count = 2 * ({when!r} == "busy")
        others = [threading.Thread(target=keep_busy, daemon=True) for _ in range(count)]
        for t in others: t.start()
        for i in range(6):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    right(f(x))
                    right(toile.jit(lambda x: work(x, 2))(x), 2)
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0, i
        stop.set()
        for t in others: t.join()
        right(f(x))
        print("well")
    """, TOILE_NUM_THREADS="2")
    assert out.strip() == "well"


@FORK
def test_fork_while_another_thread_has_a_lock():
    """Nobody in the child would release it: the child finds it free."""
    python("""
        from toile.kernels.contraction import cpu_blas as blas
        from toile.engine import devices
        from toile.parallel import meshes
        f = toile.jit(work)
        right(f(x))
        locks = [f.cache.lock, blas._lock, devices._lock, meshes._lock]
        held, done = threading.Event(), threading.Event()
        def hold():
            for lock in locks: lock.acquire()
            held.set()
            done.wait()
            for lock in locks: lock.release()
        other = threading.Thread(target=hold)
        other.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            right(f(x))
            f(x[:20])
            for lock in locks: assert lock.acquire(blocking=False)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        done.set()
        other.join()
        right(f(x))
    """, TOILE_NUM_THREADS="2")


@FORK
def test_grandchildren():
    python("""
        f = toile.jit(work)
        right(f(x))
        for depth in range(3):
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
                os._exit(0)
            right(f(x))
    """, TOILE_NUM_THREADS="2")


@FORK
def test_pool_of_forked_processes():
    out = python("""
        f = toile.jit(work)
        wanted = [np.asarray(y).tobytes() for y in f(x)]
        def job(i):
            again = [np.asarray(y).tobytes() for y in f(x)] == wanted
            right(toile.jit(lambda x: work(x, i % 3))(x), i % 3)
            return again
        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(all(pool.map(job, range(9))))
    """, TOILE_NUM_THREADS="2")
    assert out.strip() == "True"


@FORK
@pytest.mark.slow
def test_workers_of_a_torch_loader():
    pytest.importorskip("torch")
    out = python("""
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
        from torch.utils.data import DataLoader, Dataset
        f = toile.jit(work)
        right(f(x))

        class Rows(Dataset):
            def __len__(self):
                return 12
            def __getitem__(self, i):
                return np.array(toile.jit(lambda x: x * i + 1)(x[i])), np.array(f(x)[1])

        total = 0
        for epoch in range(2):
            for rows, sums in DataLoader(Rows(), batch_size=4, num_workers=2,
                                         multiprocessing_context="fork"):
                total += len(rows)
                np.testing.assert_allclose(sums[0], x.sum(0), 1e-3, 1e-3)
                right(f(x))
        print(total)
    """, TOILE_NUM_THREADS="2")
    assert out.strip() == "24"


# ------------------------------------------------------------------------- killed while compiling

MANY = """
print("begun", flush=True)
for i in range(1000):
    f = lambda x: (jnp.sin(x) * i ** 0.5 + jnp.cos(x + i), x.T.reshape(-1)[i % 7:], work(x, i))
    toile.jit(f)(x[:, : 40 + i])
"""
FEW = """
for i in range(3):
    right(toile.jit(work, static_argnums=1)(x, i), i)
print(len(os.listdir(os.environ["TOILE_CACHE_DIR"] + "/kernels")))
"""


def test_killed_while_compiling(tmp_path):
    """Whatever a process leaves behind, the next one computes the right results."""
    rng = random.Random(5)
    for attempt in range(3):
        process = start(MANY, TOILE_CACHE_DIR=str(tmp_path))
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.05 + rng.random() * (1 + attempt))
        process.kill()
        process.communicate()
    assert int(python(FEW, TOILE_CACHE_DIR=str(tmp_path))) > 0
    python(FEW, TOILE_CACHE_DIR=str(tmp_path))


def test_processes_share_a_cache(tmp_path):
    """Several compile the same at once; each has its results, and one copy is left."""
    each = [start(FEW, TOILE_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    for process in each:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    names = os.listdir(tmp_path / "kernels")
    assert names and not [n for n in names if n.startswith(".")]
    python(FEW, TOILE_CACHE_DIR=str(tmp_path))
    assert sorted(os.listdir(tmp_path / "kernels")) == sorted(names)


# ------------------------------------------------------------------------------ number of threads

COUNT = """
def count():
    return len(os.listdir("/proc/self/task"))

f = toile.jit(lambda x: jnp.tanh(jnp.sin(x)) * 2)
y = np.zeros(1 << 20, np.float32)
before = count()
f(y).block_until_ready()
for _ in range(50):  # on a busy machine, a short-lived thread of the system may still be there
    used = count() - before
    if used == int(os.environ["TOILE_NUM_THREADS"]) - 1:
        break
    time.sleep(0.1)
with toile.threads(4):
    for _ in range(3):
        f(y).block_until_ready()
print(used, count() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_number_of_threads(n):
    # Where CuPy is installed, a thread that looks for GPUs would be counted, too.
    told = {"TOILE_NUM_THREADS": str(n), "TOILE_PLATFORM": "cpu"}
    used, more = map(int, python(COUNT, **told).split())
    assert used == n - 1 and more == 3


@pytest.mark.parametrize("wrong", ["0", "many"])
def test_wrong_number_of_threads(wrong):
    process = start("toile.jit(work)(x)", TOILE_NUM_THREADS=wrong)
    _, error = process.communicate(timeout=300)
    assert process.returncode
    assert f"TOILE_NUM_THREADS: needed a positive integer, got '{wrong}'" in error


def test_threads_of_a_block():
    """`with toile.threads(n)` is the current Python thread's, and the plan keeps its results."""
    f = toile.jit(lambda x: (jnp.sin(x).sum(), jnp.cumsum(x)))
    x = jnp.asarray(np.linspace(0, 1, 200_001, dtype=np.float32))
    with toile.threads(2):
        wanted = bits(f(x))
    for n in (1, 2, 3):
        with toile.threads(n):
            assert bits(f(x)) == wanted
