"""Forks while other threads compile, import and multiply: the child uses toile, and ends in time.

Each program runs in a process of its own, with busy processes beside it where that matters: what a
child inherits in the middle of something depends on who was interrupted when. The counts of the
loops are printed (`-s`).
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import toile
from tests.conftest import TEST_ALL

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PRELUDE = """
import faulthandler, multiprocessing, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import toile
import toile.linen as nn
import toile.numpy as jnp
from toile.engine import locks

LIMIT = 40  # seconds that a child has; it takes one on an idle machine

def work(x, salt=0.0):
    y = jnp.tanh(x * 0.5 + salt) @ jnp.cos(x).T
    y = toile.lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) + i, y)
    return y / (1 + y.var()), x.sum(0)

x = np.linspace(-1, 1, 40 * 41, dtype=np.float32).reshape(40, 41)

def check(salt=0.5):
    with toile.disable_jit():
        wanted = work(jnp.asarray(x), salt)
    for a, b in zip(toile.jit(lambda x: work(x, salt))(x), wanted):
        np.testing.assert_allclose(a, b, 2e-3, 2e-3)

def forked(use):
    pid = os.fork()
    if pid == 0:
        code = 1
        faulthandler.dump_traceback_later(LIMIT, exit=True)  # says where it waits
        try:
            use()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]
"""


def python(code, *arguments, limit=150, busy=0, **environment):
    """What a program prints that runs beside so many busy processes."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)],
            env={**os.environ, "TOILE_PLATFORM": "cpu", "TOILE_NUM_THREADS": "2", **environment},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, error = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it forked, too
            out, error = process.communicate()
            pytest.fail(f"more than {limit} s\n{out}\n{error}")
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert process.returncode == 0, error
    return out


IMPORTS = [
    # the module that takes long to load, who loads it, and how long forks wait
    ("toile.linen.convolution", "nn.Conv", 0.1),
    ("toile.kernels.contraction.cpu", "f(x)", 5.0),
    ("llvmlite.binding", "f(x)", 0.1),
    ("scipy", "f(x)", 5.0),
]


@pytest.mark.parametrize("module, use, longest", [
    pytest.param(*row, marks=() if i < 2 else pytest.mark.slow) for i, row in enumerate(IMPORTS)])
def test_while_another_thread_imports(module, use, longest, tmp_path):
    """A module that does not finish in time is imported anew in the child."""
    python("""
        import importlib.abc, importlib.machinery
        module, use, locks.LONGEST = sys.argv[1], sys.argv[2], float(sys.argv[3])
        begun, real = threading.Event(), importlib.machinery.SourceFileLoader.exec_module
        def slowly(self, made):
            if made.__name__ == module and not begun.is_set():
                begun.set()
                time.sleep(1)
            return real(self, made)
        importlib.machinery.SourceFileLoader.exec_module = slowly
        f = toile.jit(lambda x: x @ x.T)
        other = threading.Thread(target=lambda: exec(use, globals()))
        other.start()
        assert begun.wait(60), "it was not loaded"
        assert forked(lambda: exec(use, globals())) == 0
        other.join()
    """, module, use, longest, TOILE_CACHE_DIR=str(tmp_path), TOILE_PLANS="off")


def test_while_another_thread_computes_a_cached_property():
    """Python's own has a lock for all objects of a class (until 3.12), which the child inherits."""
    python("""
        from toile.engine.cached import cached_property
        begun = threading.Event()
        class Plan:
            @cached_property
            def users(self):
                begun.set()
                time.sleep(0.5)
                return 3
        plan = Plan()
        other = threading.Thread(target=lambda: plan.users)
        other.start()
        begun.wait()
        assert forked(lambda: Plan().users) == 0
        other.join()
        assert plan.users == 3 and "users" in vars(plan)
    """)


def test_compilers_have_no_other_cached_properties():
    """GPUs aside: a process that uses one cannot go on in a child."""
    root = Path(toile.__file__).parent
    for path in root.rglob("*.py"):
        if not {"gpu", "cuda"} & set(re.split(r"[/_.\\]", str(path.relative_to(root)))):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"functools(?: import .*|\.)cached_property", text), path


def test_while_another_thread_is_inside_of_llvm(tmp_path):
    """Outside of the compiler's lock: an object of LLVM that is freed."""
    python("""
        begun = threading.Event()
        import llvmlite.binding.ffi as ffi
        def hold():
            with ffi.lib._lock:
                begun.set()
                time.sleep(0.5)
        other = threading.Thread(target=hold)
        other.start()
        begun.wait()
        assert forked(lambda: check(1.5)) == 0
        other.join()
    """, TOILE_CACHE_DIR=str(tmp_path))


def test_while_other_threads_multiply():
    """NumPy's OpenBLAS leaves its locks to the child, and threads of the parent without an end."""
    out = python("""
        a = jnp.asarray(np.ones((300, 300), np.float32))
        stop, made = threading.Event(), [0, 0]
        def multiply(k):
            while not stop.is_set():
                (a @ a).block_until_ready()
                made[k] += 1
        others = [threading.Thread(target=multiply, args=(k,), daemon=True) for k in range(2)]
        for t in others: t.start()
        for i in range(10):
            assert forked(lambda: np.asarray(a @ a)) == 0, i
        stop.set()
        for t in others: t.join(20)
        assert not any(t.is_alive() for t in others)
        print("well")
    """, OPENBLAS_NUM_THREADS="2")
    assert out == "well\n"


def test_forks_go_first():
    """Threads that take the compiler's lock again at once do not keep a fork waiting."""
    out = python("""
        stop, taken = threading.Event(), [0]
        def compile():
            while not stop.is_set():
                with locks.compiling:
                    time.sleep(0.05)
                    taken[0] += 1
        others = [threading.Thread(target=compile, daemon=True) for _ in range(4)]
        for t in others: t.start()
        time.sleep(0.2)
        before = 0
        for i in range(12):
            began = taken[0]
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            before += taken[0] - began
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for t in others: t.join()
        print(before)
    """)
    assert int(out) <= 24, out  # the one that has it, and perhaps one more; in turn it was 40


FORKS = """
    count, threads = int(sys.argv[1]), int(sys.argv[2])
    stop, made = threading.Event(), [0] * threads
    def compile(k):
        i = 0
        while not stop.is_set():
            i += 1
            salt = float(k * 100000 + i)
            toile.jit(lambda x: work(x, salt))(x[: 5 + i % 30])
            made[k] += 1
    f = toile.jit(work)
    f(x)
    others = [threading.Thread(target=compile, args=(k,), daemon=True) for k in range(threads)]
    for t in others: t.start()
    longest = [0.0, 0.0]
    for i in range(count):
        began = time.monotonic()
        if i % 10 == 9:  # as multiprocessing forks
            with multiprocessing.get_context("fork").Pool(2) as pool:
                found = pool.map_async(check, [0.25, 0.75])
                found.get(LIMIT)
        else:
            assert forked(lambda: (f(x), check())) == 0, i
        longest[i % 10 == 9] = max(longest[i % 10 == 9], time.monotonic() - began)
    stop.set()
    for t in others: t.join(60)
    assert not any(t.is_alive() for t in others)
    print(f"{count} forks beside {threads} threads that compiled {sum(made)} functions: the "
          f"longest took {longest[0]:.1f} s, a pool of two {longest[1]:.1f} s")
"""


@pytest.mark.parametrize("count, threads, busy", [
    (10, 2, 1), pytest.param(200, 3, 3, marks=pytest.mark.slow),
    pytest.param(200, 2, 0, marks=pytest.mark.slow),
])
def test_while_other_threads_compile(count, threads, busy, tmp_path):
    began = time.monotonic()
    out = python(FORKS, count, threads, busy=busy, limit=900 if TEST_ALL else 100,
                 TOILE_CACHE_DIR=str(tmp_path))
    print(f"\n{out.strip()} ({busy} busy processes, {time.monotonic() - began:.0f} s)")
    assert out.startswith(f"{count} forks")
