"""Ctrl-C during compiled calls: it stops them within a second and leaves everything usable."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.interrupted_programs import counting, interrupted

pytest.importorskip("llvmlite")
pytestmark = [
    pytest.mark.cpu,  # on a GPU the wait ends, not the work (docs/reliability.md)
    pytest.mark.skipif(sys.platform == "win32", reason="runs there end by themselves"),
]

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def late(arguments, timeout):
    """Seconds from signal to KeyboardInterrupt, by kind, of tests.interrupted_programs."""
    out = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.interrupted_programs", *arguments],
        cwd=ROOT, timeout=timeout, text=True, capture_output=True,
        env={**os.environ, "TOILE_CPU_DEVICES": "2", "TOILE_NUM_THREADS": "2",
             "PYTHONPATH": ROOT},
    )
    assert out.returncode == 0 and out.stdout.endswith("done\n"), out.stdout + out.stderr
    rows = [line.split(" ", 3) for line in out.stdout.splitlines()[:-1]]
    return [(float(seconds), int(signals), name) for seconds, _, signals, name in rows]


def test_each_kind_of_call():
    found = late([], 240)
    assert len(found) == 14 and all(signals == 1 for _, signals, _ in found)
    for _ in range(2):  # the machine may have been busy: slow ones again
        slow = [name for seconds, _, name in found if seconds >= 1]
        found = late(["0", "0", *slow], 120) if slow else []
    assert all(seconds < 1 for seconds, _, _ in found), found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_moments(seed):
    """50 interruptions each, compilations and clear_caches among them."""
    found = late(["50", str(seed)], 1800)
    times = sorted(seconds for seconds, _, _ in found if seconds >= 0)
    again = sum(signals > 1 for _, signals, _ in found)
    print(f"{len(found)} signals, {len(times)} during calls: the slowest after {times[-1]:.2f} s, "
          f"half of them after {times[len(times) // 2]:.3f} s; {again} needed another signal")
    assert len(found) == 50 and len(times) > 25
    assert sum(t > 1 for t in times) <= 2  # compilations, which are not stopped inside of LLVM


@pytest.fixture
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_the_main_thread():
    return threading.current_thread() is threading.main_thread()


def test_other_handlers_run_during_calls():
    """One that returns lets the call go on; what one raises stops it."""
    if not in_the_main_thread():
        pytest.skip("handlers belong to the main thread")
    f, x, seen = toile.jit(counting(jnp.sin)), jnp.ones(3), []
    f(x, 1.0)

    def handler(number, frame):
        seen.append(number)
        if len(seen) == 3:
            raise TimeoutError("three")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.15, 0.15)
    try:
        with pytest.raises(TimeoutError, match="three"):
            f(x, np.float32(1e30))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM] * 3
    np.testing.assert_allclose(f(x, 2.0), np.sin(np.sin(np.ones(3))), rtol=1e-6)


def test_runs_of_other_threads_go_on(default_handler):
    """KeyboardInterrupt is the main thread's."""
    if not in_the_main_thread():
        pytest.skip("handlers belong to the main thread")
    f, g = toile.jit(counting(jnp.sin)), toile.jit(counting(lambda v: v * 0.5 + 1))
    x, results = jnp.ones(3), []
    f(x, 1.0), g(x, 1.0)
    began = time.perf_counter()
    g(x, 1e6)
    turns = np.float32(min(1.5e6 / (time.perf_counter() - began), 2**24 - 1))  # about 1.5 s
    other = threading.Thread(target=lambda: results.append(g(x, turns)))
    other.start()
    seconds, _ = interrupted(lambda: f(x, np.float32(1e30)), 0.2)
    assert seconds is not None
    other.join()
    np.testing.assert_allclose(results[0], np.full(3, 2), rtol=1e-6)
    np.testing.assert_array_equal(results[0], g(x, turns))


def test_stopped_runs_of_threads_raise_nothing_elsewhere():
    """A Stopper ends the runs of its threads, and no others."""
    from toile.targets.llvm.stop_checks import Stopper

    f, x, ends = toile.jit(counting(jnp.sin)), jnp.ones(3), {}
    f(x, 1.0)
    stoppers = [Stopper(), Stopper()]

    def run(k, turns):
        with stoppers[k].stoppable():
            try:
                ends[k] = f(x, turns)
            except KeyboardInterrupt:
                ends[k] = "stopped"

    threads = [threading.Thread(target=run, args=(0, np.float32(1e30))),
               threading.Thread(target=run, args=(1, np.float32(3e6)))]
    for t in threads:
        t.start()
    time.sleep(0.05)
    stoppers[0].stop()
    for t in threads:
        t.join(timeout=60)
    assert ends[0] == "stopped" and ends[1].shape == (3,)
    f(x, 10.0)
