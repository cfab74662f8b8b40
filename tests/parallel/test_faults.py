"""A device that fails stops the others with its own error, at once; nothing hangs."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import toile
from toile.engine.locks import InterruptibleCondition

X = np.arange(8.0, dtype=np.float32).reshape(8, 1)
LIMIT = 10.0  # seconds; it takes milliseconds on an idle machine


class Broken(Exception):
    """What a device raises."""


def failing(at):
    """A function of each device that raises on one of them, in the middle of its collectives."""

    def check(index):
        if index == at:
            raise Broken(f"device {at} has had enough")
        return np.float32(index)

    def f(v):
        v = toile.lax.psum(v, "i")
        shape = toile.ShapeDtypeStruct((), np.float32)
        v = v + toile.pure_callback(check, shape, toile.lax.axis_index("i"))
        return toile.lax.all_gather(toile.lax.psum(v, "i"), "i")

    return toile.pmap(f, axis_name="i")


@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_device_that_raises(at):
    f = failing(at)
    began = time.monotonic()
    for _ in range(3):  # threads are as good as new afterwards
        with pytest.raises(Broken, match=f"device {at}") as found:
            f(X)
        assert any(f"i={at}" in note for note in found.value.__notes__)
    assert time.monotonic() - began < LIMIT
    np.testing.assert_allclose(toile.pmap(lambda v: toile.lax.psum(v, "i"), axis_name="i")(X), 28)
    good = failing(99)
    assert good(X).shape == (8, 8, 1)


def test_a_device_that_raises_inside_of_two_mappings():
    def check(i, j):
        if (i, j) == (1, 0):
            raise Broken("inner device")
        return np.float32(0)

    def inner(v):
        shape = toile.ShapeDtypeStruct((), np.float32)
        bad = toile.pure_callback(check, shape, toile.lax.axis_index("i"),
                                  toile.lax.axis_index("j"))
        return toile.lax.psum(v + bad, ("i", "j"))

    f = toile.pmap(lambda r: toile.pmap(inner, axis_name="j")(r), axis_name="i")
    began = time.monotonic()
    with pytest.raises(Broken, match="inner device"):
        f(X.reshape(4, 2))
    assert time.monotonic() - began < LIMIT


def test_a_collective_that_one_device_leaves_out():
    def f(v):
        own = toile.lax.axis_index("i") == 2
        return toile.lax.cond(own, lambda x: x, lambda x: toile.lax.psum(x, "i"), v)

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="psum.*finished without it"):
        toile.pmap(f, axis_name="i")(X)
    assert time.monotonic() - began < LIMIT


def test_different_collectives_on_two_devices():
    def f(v):
        own = toile.lax.axis_index("i") == 2
        return toile.lax.cond(own, lambda x: toile.lax.pmax(x, "i"),
                              lambda x: toile.lax.psum(x, "i"), v)

    with pytest.raises(RuntimeError, match="the same one on all devices"):
        toile.pmap(f, axis_name="i")(X)


def test_several_threads_use_the_devices_at_once():
    f = toile.pmap(lambda v, k: toile.lax.psum(v, "i") * k, axis_name="i", in_axes=(0, None))
    errors = []

    def work(k):
        try:
            for _ in range(20):
                np.testing.assert_allclose(f(X, np.float32(k)), 28 * k)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(timeout=60)
    assert not errors and not any(w.is_alive() for w in workers)


def test_ctrl_c_before_a_wait_has_its_lock_again(monkeypatch):
    """The interruption arrives between the wake-up and the lock."""
    condition = InterruptibleCondition()

    def interrupted(state):
        raise KeyboardInterrupt

    monkeypatch.setattr(condition, "_acquire_restore", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with condition:
            condition.wait(0.01)
    with pytest.raises(RuntimeError):  # not hidden where nothing was raised
        condition.__exit__(None, None, None)
    with condition:  # still usable
        condition.notify_all()


def test_all_conditions_can_be_interrupted():
    """Where Python's own is used, Ctrl-C may end as an error about a lock."""
    package = pathlib.Path(toile.__file__).parent
    found = [path.relative_to(package).as_posix() for path in package.rglob("*.py")
             if "Condition(" in path.read_text().replace("InterruptibleCondition(", "")]
    assert found == []
    base = "class InterruptibleCondition(threading.Condition)"
    assert base in (package / "engine" / "locks.py").read_text()


def test_ctrl_c():
    """An interruption ends a call whose devices would go on for very long."""
    code = textwrap.dedent("""
        import signal
        import numpy as np, toile
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
        def f(v):
            body = lambda c: (c[0] + 1, toile.lax.psum(c[1], "i") * 0.25)
            return toile.lax.while_loop(lambda c: c[0] < 10**9, body, (0, v))[1]
        f = toile.pmap(f, axis_name="i")
        print("ready", flush=True)
        try:
            f(np.ones((4, 2), np.float32))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TOILE_CPU_DEVICES": "4", "PYTHONPATH": root},
    )
    try:
        assert child.stdout.readline().strip() == "ready"
        time.sleep(2.0)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        assert "interrupted" in out and child.returncode == 0
    finally:
        child.kill()
        child.stdout.close()


def test_a_forked_child_has_threads_of_its_own():
    f = toile.pmap(lambda v: toile.lax.psum(v, "i"), axis_name="i")
    f(X)
    code = textwrap.dedent("""
        import os, numpy as np, toile
        f = toile.pmap(lambda v: toile.lax.psum(v, "i"), axis_name="i")
        f(np.ones((4, 1)))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if float(f(np.ones((4, 1)))[0, 0]) == 4 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    """)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120,
                   env={**os.environ, "TOILE_CPU_DEVICES": "4", "PYTHONPATH": root})


@pytest.mark.parametrize("setting", [
    {"TOILE_CPU_DEVICES": "3"}, {"JAX_NUM_CPU_DEVICES": "3"},
    {"XLA_FLAGS": "--xla_foo=1 --xla_force_host_platform_device_count=3"},
])
def test_the_number_of_devices_comes_from_the_environment(setting):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import toile; assert toile.device_count() == 3, toile.devices()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60,
                   env={**os.environ, **setting, "PYTHONPATH": root})
