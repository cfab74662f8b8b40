"""Kernels of a GPU go with the Programs that use them; waits for one can be interrupted."""

import gc
import signal
import threading

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu.host_driver import host_gpu
from toile.platforms.gpu import executables as backend
from toile.platforms.gpu.devices import wait_until
from toile.platforms.gpu.memory import shelf
from toile.targets.cuda import modules as kernels


def program_of(f, *args):
    return toile.make_jaxpr(f)(*args).jaxpr


X = np.linspace(0, 1, 8, dtype=np.float32)


@pytest.fixture
def host(monkeypatch):
    with host_gpu(monkeypatch) as found:
        yield found
        gc.collect()
        kernels._freed.clear()


def loaded(driver):
    return sum(source is not None for source in driver.sources)


def test_code_goes_with_its_program(host):
    driver, device = host
    programs = [program_of(lambda x, k=k: jnp.sin(x * k) + k, X) for k in range(2, 5)]
    for p in programs:
        backend.executable_of(p, device)
    before = loaded(driver)
    assert before >= 1 and kernels.Loaded.code_bytes > 0
    programs.clear()
    del p
    gc.collect()
    kernels.unload()
    assert loaded(driver) == 0


def test_code_that_goes_cannot_be_found(host, monkeypatch):
    """A thread that found it then would launch what is being unloaded."""
    driver, device = host
    seen = []

    class Freed(list):
        def append(self, x):
            seen.append(kernels.loaded(device))

    monkeypatch.setattr(kernels, "_freed", Freed())
    program = program_of(lambda x: jnp.sin(x * 7) + 7, X)
    backend.executable_of(program, device)
    assert kernels.loaded(device)
    del program
    gc.collect()
    assert seen and not any(seen)


def test_what_is_given_up_is_made_again(host):
    driver, device = host
    program = program_of(lambda x: jnp.cos(x * 3) + x.sum(), X)
    made = backend.executable_of(program, device)
    assert backend.executable_of(program, device) is made
    shelf.clear()
    kernels.unload()
    assert loaded(driver) > 0  # it is held here
    del made
    gc.collect()
    kernels.unload()
    assert loaded(driver) == 0
    backend.executable_of(program, device)
    assert loaded(driver) > 0


def test_ctrl_c_ends_a_wait():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("handlers belong to the main thread")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait_until(lambda: 600)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    answers = iter([600, 600, 0])
    wait_until(lambda: next(answers))
    assert next(answers, None) is None
    wait_until(lambda: 700)  # an error is for the driver's own wait to raise
