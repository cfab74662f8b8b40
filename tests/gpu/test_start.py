"""Starting to use a GPU: nothing before a large array, then all at once, and errors later."""

import threading
import types

import pytest

import toile.numpy as jnp
from toile.engine import gpu, gpu_start


class Driver:
    """A driver that notes what it is asked, and by which thread."""

    def __init__(self, status=0):
        self.status, self.asked = status, []

    def cuDevicePrimaryCtxRetain(self, context, number):
        self.asked.append((number, threading.current_thread() is threading.main_thread()))
        return self.status


@pytest.fixture
def begun(monkeypatch):
    """A machine with one GPU that nothing has used; what was done there."""
    done = []
    device = types.SimpleNamespace(current=lambda: threading.Lock())
    fleet = types.SimpleNamespace(ordinals=None, local=lambda count: (device,))
    monkeypatch.delenv("TOILE_PLATFORM", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    for name, value in {
        "driver_library": lambda: driver, "driver_count": lambda: 1, "has_cupy": lambda: True,
        "cupy": lambda: done.append("cupy"), "fleet": fleet,
    }.items():
        monkeypatch.setattr(gpu, name, value)
    driver = Driver()
    monkeypatch.setattr(gpu.presence, "none", False)
    monkeypatch.setattr(gpu.hooks, "warm", lambda device: done.append("warm"), raising=False)
    monkeypatch.setattr(gpu_start, "_begun", [])
    return types.SimpleNamespace(done=done, driver=driver, fleet=fleet)


def ended():
    for thread in gpu_start._begun:
        thread.join()


def test_context_and_cupy_at_the_same_time_and_once(begun):
    for _ in range(3):
        gpu_start.soon()
    ended()
    assert begun.driver.asked == [(0, False)]
    assert sorted(begun.done) == ["cupy", "warm"]


def test_the_gpu_of_this_process(begun):
    begun.fleet.ordinals = (3,)
    gpu_start.soon()
    ended()
    assert begun.driver.asked == [(3, False)]


@pytest.mark.parametrize("why", ["cpu", "no driver", "no CuPy", "none of it ours"])
def test_not_where_there_is_none_to_use(why, begun, monkeypatch):
    if why == "cpu":
        monkeypatch.setenv("TOILE_PLATFORM", "cpu")
    if why == "no driver":
        monkeypatch.setattr(gpu, "driver_library", lambda: None)
    if why == "no CuPy":
        monkeypatch.setattr(gpu, "has_cupy", lambda: False)
    if why == "none of it ours":
        begun.fleet.ordinals = ()
    gpu_start.soon()
    assert not gpu_start._begun and not begun.done


def test_errors_are_left_to_the_first_use(begun, monkeypatch):
    begun.driver.status = 2
    gpu_start.soon()
    ended()
    assert begun.done == ["cupy"]


def test_small_arrays_start_nothing(begun, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_devices", lambda: ())
    jnp.asarray([1.0, 2.0]) + 1
    assert not gpu_start._begun
