"""Compiled code goes with the functions that use it, and never takes more than it may."""

import ast
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.interrupted_programs import counting
from toile import lax
from toile.platforms import code_memory as keeping
from toile.platforms.cpu import runner
from toile.targets.llvm import native

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.cpu  # modules of a GPU: tests/gpu/test_unloading.py
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def many(count, how, timeout, **environment):
    """MB: at the beginning, at most, of code and plans at most, of code left; libraries left."""
    out = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.many_structures", str(count), how],
        cwd=ROOT, timeout=timeout, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": ROOT, **environment},
    )
    assert out.returncode == 0, out.stdout + out.stderr
    return [float(x) for x in out.stdout.split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_many_structures_stay_within_the_bound():
    """Results stay right, old ones come back, another thread goes on calling."""
    base, peak, code, _, libraries = many(40, "keep", 240, TOILE_KERNEL_MEMORY="1.5M",
                                          TOILE_OPTIMIZE="0")
    assert code <= 1.5 * 1.048576 + 0.5  # the newest one may be above it
    assert peak - base < 60 and libraries == 1  # that of the runner


@pytest.mark.slow
def test_5000_structures():
    base, peak, code, left, libraries = many(5000, "keep", 7200)
    print(f"5,000 structures: {base:.0f} MB before, {peak:.0f} MB at most, of which code and plans "
          f"{code:.0f} MB; code at the end {left:.0f} MB, {libraries:.0f} library left")
    assert code <= 1.1 * (1 << 30) / 1e6 and peak - base < 1.25 * (1 << 30) / 1e6


def libraries_of(make, *args):
    """A function that was called some times, and what it added to the code in memory."""
    runner.function()  # which stays
    before = set(native._libraries)
    f = make()
    for _ in range(4):
        f(*args)
    return f, [x for x in native._libraries if x not in before]


def dead(libraries):
    """Whether they were unloaded: nobody else has them."""
    digests = [d for x in libraries for d in x.addresses]
    libraries.clear()
    gc.collect()
    for k in range(native._recent.maxlen):  # those used last stay a while
        native.functions([f"define void @kernel() {{ ret void }} ; {os.urandom(8).hex()} {k}"])
    gc.collect()
    native.unload()
    return not any(d in native._code for d in digests)


X = np.linspace(0.1, 0.9, 7, dtype=np.float32)


def test_code_goes_with_its_function():
    f, found = libraries_of(lambda: toile.jit(lambda x: jnp.sin(x * 0.1234) + x.sum() * 5.4), X)
    assert found
    del f
    assert dead(found)


def test_clear_cache_frees_code_and_functions_come_back():
    f, found = libraries_of(lambda: toile.jit(lambda x: jnp.cos(x * 0.4321) + x.max() * 6.1), X)
    want = np.asarray(f(X))
    assert found
    f.clear_cache()
    assert dead(found)
    np.testing.assert_array_equal(f(X), want)


def test_clear_caches_frees_what_loops_outside_of_jit_compiled():
    def eager(x):
        return lax.scan(lambda c, _: (jnp.sin(c) * 0.777 + 0.111, c * 3.3), x, None, length=4)[0]

    f, found = libraries_of(lambda: eager, X)
    want = np.asarray(f(X))
    toile.clear_caches()
    assert dead(found)
    np.testing.assert_array_equal(f(X), want)


def test_code_that_goes_cannot_be_found(monkeypatch):
    """A thread that found it then would run what is being unloaded."""
    f, found = libraries_of(lambda: toile.jit(lambda x: jnp.cos(x * 0.5432) - x.min() * 3.3), X)
    trackers = {x.tracker: list(x.addresses) for x in found}
    seen = []

    def unload():
        for tracker, _ in native._freed:
            seen.extend(native._code.get(d) is None for d in trackers.pop(tracker, ()))

    monkeypatch.setattr(native, "unload", unload)
    found.clear()
    del f
    gc.collect()
    native.forget_recent()
    assert seen and all(seen)


def test_what_is_found_by_weak_references_has_no_finalizer():
    """While a `__del__` runs, other threads may still find the object: `weakref.finalize` is for
    those. Allowed are classes whose objects are found so by none, or only to be counted."""
    allowed = {("engine/buffers.py", "_Memory"), ("platforms/gpu/execution.py", "Executable")}
    root = Path(toile.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                if any(getattr(x, "name", "") == "__del__" for x in node.body):
                    found.add((path.relative_to(root).as_posix(), node.name))
    assert found == allowed


def test_code_that_runs_stays():
    """Another thread's call goes on though all is given up meanwhile."""
    f = toile.jit(counting(lambda v: v * 0.5 + 1))
    results = []
    for _ in range(4):
        f(X, 1.0)
    thread = threading.Thread(target=lambda: results.append(f(X, np.float32(1e6))))
    thread.start()
    for _ in range(20):
        toile.clear_caches()
    gc.collect()
    thread.join()
    np.testing.assert_allclose(results[0], np.full(7, 2), rtol=1e-6)


LEAST_RECENT = """
import numpy as np
import toile
import toile.numpy as jnp
from toile.platforms import code_memory
from toile.platforms.cpu.execution import shelf

X = np.linspace(0, 1, 8, dtype=np.float32)

def made(k):
    f = toile.jit(lambda x: jnp.sin(x * k) + (x - k).sum())
    for _ in range(4):
        f(X)
    return f

functions = [made(1.5 + k) for k in range(4)]
functions[0](X)  # by the way that counts nothing in Python
programs = [next(iter(f.cache.entries.values())).program for f in functions]
total = shelf.total()
code_memory.limit = lambda: total
code_memory._LEFT = 1
made(9.5)
kept = [p.executable is not None for p in programs]
assert kept[0] and not kept[1], kept
for k, f in enumerate(functions):
    np.testing.assert_allclose(f(X), np.sin(X * (1.5 + k)) + (X - (1.5 + k)).sum(), rtol=1e-5)
"""


def test_the_least_recently_used_go_first():
    """In a process of its own: there is no code of other tests, which may go first."""
    run = subprocess.run([sys.executable, "-c", LEAST_RECENT], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": ROOT, "TOILE_PLATFORM": "cpu"},
                         cwd=ROOT, check=False)
    assert not run.returncode, run.stderr


def test_sizes(monkeypatch):
    sizes = {"": 1 << 30, "500M": 500 << 20, "1G": 1 << 30, "2 GiB": 2 << 30, "1000": 1000}
    for text, wanted in sizes.items():
        monkeypatch.setenv(keeping.VARIABLE, text)
        keeping.limit.cache_clear()
        assert keeping.limit() == wanted
    monkeypatch.setenv(keeping.VARIABLE, "much")
    keeping.limit.cache_clear()
    with pytest.raises(ValueError, match="TOILE_KERNEL_MEMORY: needed a size such as"):
        keeping.limit()
    monkeypatch.delenv(keeping.VARIABLE)
    keeping.limit.cache_clear()
