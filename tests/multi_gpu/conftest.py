"""GPUs that are the host: `gpus(count, devices)` puts so many in place for a test."""

import threading

import pytest

import toile
from tests.gpu import fibers, host_driver
from tests.multi_gpu import host_cupy
from tests.multi_gpu.fake_nccl import FakeNccl
from toile.engine.platform_registry import registry
from toile.parallel import gpu_exchange
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu.execution import Executable
from toile.targets.cuda import cublas, nccl
from toile.targets.cuda import modules as kernels

GPU_DEVICES = gpu.gpu_devices  # tests of the CPU have another one in its place
needs_compiler = pytest.mark.skipif(not fibers.available(), reason="needs g++")


class Driver(host_driver.HostDriver):
    """One thread at a time, each on a stream of its own; `events` has what was done where."""

    def __init__(self):
        super().__init__()
        self.lock, self.events = threading.Lock(), []

    def launch(self, function, blocks, threads, shared, stream, words):
        with self.lock:
            self.events.append(("launch", stream))
            super().launch(function, blocks, threads, shared, stream, words)

    def wait(self, stream, other):
        self.events.append(("wait", stream, other))
        self.library.finish(other)


def aligned(run):
    """A run whose operands must be where kernels may read several elements at a time."""

    def checked(self, pointers, *more):
        assert not any(p % 64 for p in pointers)
        return run(self, pointers, *more)

    return checked


@pytest.fixture
def gpus(monkeypatch):
    """gpus(count, devices) -> the fake driver and NCCL."""
    before = toile.config.read("jax_num_gpu_devices"), registry.active
    with host_driver.host_gpu(monkeypatch):
        driver = Driver()
        library = driver.library = FakeNccl(driver.events)
        host_driver.driver_module.use(driver)
        blas = cublas.Blas(host_driver.RecordedCublas(driver), None, 4096)
        monkeypatch.setattr(cublas, "blas", lambda: blas)
        # Kernels may be given up when their fake device is gone: nothing unloads them.
        monkeypatch.setattr(kernels, "_released", lambda *args: None)
        monkeypatch.setattr(Executable, "run", aligned(Executable.run))

        def make(count, devices=-1):
            monkeypatch.setattr(gpu, "gpu_devices", GPU_DEVICES)
            monkeypatch.setattr(gpu, "cupy", lambda: host_cupy.module)
            monkeypatch.setattr(gpu, "fleet", gpu.Fleet(range(count)))
            monkeypatch.setattr(gpu_exchange, "_communicators", {})
            monkeypatch.setattr(nccl, "functions", lambda: library)
            toile.config.update("jax_num_gpu_devices", devices)
            registry.active = (registry.names["gpu"],)
            return driver, library

        yield make
        toile.config.update("jax_num_gpu_devices", before[0])
        registry.active = before[1]
