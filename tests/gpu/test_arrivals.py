"""Arrays that are made while a GPU starts: what is known of them is known at once."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine.buffers import coming
from toile.engine.platform_registry import registry
from toile.platforms.gpu import arrays as gpu_arrays
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import start as gpu_start
from toile.platforms.gpu.arrays import GpuArray
from toile.targets.cuda import starting as cuda_starting


class Numbers:
    """What CuPy would have made."""

    __module__ = "cupy.fake"

    def __init__(self, numbers):
        self.numbers, self.nbytes = numbers, numbers.nbytes


class Gpu:
    """A device that is known, and not yet ready."""

    platform, ordinal = "gpu", 0

    def __init__(self):
        self.primary, self.uploads = self, []


@pytest.fixture
def starting(monkeypatch):
    """A GPU that goes on starting until `go` is set; `uploads` are the arrays it was given."""
    go, device = threading.Event(), Gpu()
    thread = threading.Thread(target=go.wait, args=(30,))
    thread.start()

    def upload(data, to):
        assert go.is_set() and to is device
        device.uploads.append(data)
        return Numbers(data)

    monkeypatch.setattr(registry, "active", (registry.names["gpu"],))
    monkeypatch.setattr(gpu, "gpu_devices", lambda: (device,))
    monkeypatch.setattr(cuda_starting, "begun", [thread])
    monkeypatch.setattr(gpu, "upload", upload)
    yield SimpleNamespace(go=go, uploads=device.uploads, device=device)
    go.set()
    thread.join()


def test_shapes_are_known_and_numbers_arrive_once(starting):
    given = np.arange(2000.0, dtype=np.float32).reshape(40, 50)
    x = jnp.asarray(given)
    assert type(x) is GpuArray and not starting.uploads
    assert (x.shape, x.dtype, x.ndim, x.size, x.weak_type) == ((40, 50), np.float32, 2, 2000, False)
    assert len(x) == 40 and x._signature.device is starting.device
    shape = toile.eval_shape(lambda x: (x @ x.T).sum(0), x)
    assert shape.shape == (40,) and not starting.uploads
    given[:] = 0  # the array has numbers of its own
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(getattr, x, name) for name in ("_data", "_memory", "_data", "_data")]
        starting.go.set()
        found = {id(each.result(10)) for each in asked}
    assert found == {id(x._data)} and len(starting.uploads) == 1
    np.testing.assert_array_equal(x._data.numbers.ravel(), np.arange(2000.0, dtype=np.float32))


def test_nothing_is_kept_of_arrays_that_are_gone(starting):
    before = len(coming)
    x = jnp.asarray(np.ones(3000, np.float32))
    assert len(coming) == before + 1
    del x
    gc.collect()
    assert len(coming) == before and not starting.uploads


def test_deleted_before_it_arrived(starting):
    x = jnp.asarray(np.ones(3000, np.float32))
    x.delete()
    assert x.is_deleted() and not starting.uploads
    with pytest.raises(RuntimeError, match="deleted"):
        x.block_until_ready()


def test_large_arrays_wait(starting, monkeypatch):
    """The report of memory that is short names the lines that brought them."""
    asked = []
    monkeypatch.setattr(gpu_arrays, "placed", lambda x, device: asked.append(x.shape) or x)
    jnp.asarray(np.zeros(gpu.LARGE // 4, np.float32))
    jnp.asarray(np.zeros(gpu.LARGE // 4 - 1, np.float32))
    assert asked == [(gpu.LARGE // 4,)]


def test_after_the_start_arrays_go_at_once(starting, monkeypatch):
    asked, before = [], len(coming)
    monkeypatch.setattr(gpu_arrays, "placed", lambda x, device: asked.append(x.shape) or x)
    starting.go.set()
    gpu_start.wait_for_context()
    jnp.asarray(np.ones(2000, np.float32))
    jnp.asarray(np.ones(10, np.float32))  # so few elements stay on the host
    assert asked == [(2000,)] and len(coming) == before


def test_an_upload_that_fails_is_tried_again(starting, monkeypatch):
    x = jnp.asarray(np.ones(3000, np.float32))
    works = gpu.upload

    def fails(data, to):
        raise RuntimeError("no context")

    starting.go.set()
    monkeypatch.setattr(gpu, "upload", fails)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no context"):
            x._data  # noqa: B018
    monkeypatch.setattr(gpu, "upload", works)
    assert x._data.nbytes == 12000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_does_not_wait_for_ever(starting):
    child = os.fork()
    if child == 0:
        gpu_start.wait_for_context()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert gpu_start.is_starting()


USES = {
    "jit": "toile.jit(lambda x: x * 2)(x) / 2",
    "an operation": "x + 0",
    "a method": "x.reshape(100, 20).reshape(40, 50)",
    "gradients": "toile.grad(lambda x: (x * x).sum() / 2)(x)",
    "a donated argument": "toile.jit(lambda x: x * 1, donate_argnums=0)(x)",
    "NumPy": "np.asarray(x)",
    "pickles": "pickle.loads(pickle.dumps(x))",
    "a copy": "toile.device_put(x, toile.devices()[0])",
}


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed")
@pytest.mark.parametrize("use", USES)
def test_first_uses_of_a_gpu(use, tmp_path):
    """In a process of its own, whose GPU seems to be starting when the array is made."""
    text = textwrap.dedent("""
        import pickle
        import numpy as np
        import toile, toile.numpy as jnp
        from toile.platforms.gpu import start as gpu_start
        from toile.engine.buffers import coming
        starts, gpu_start.is_starting = gpu_start.is_starting, lambda: True
        given = np.arange(2000.0, dtype=np.float32).reshape(40, 50)
        x = jnp.asarray(given)
        gpu_start.is_starting = starts
        assert type(x).__name__ == "GpuArray" and x.shape == (40, 50) and len(coming) == 1
        y = {use}
        np.testing.assert_array_equal(np.asarray(y), given)
        if not x.is_deleted():
            assert {{d.platform for d in x.devices()}} == {{"gpu"}}
            assert float(x.sum()) == given.sum()
    """)
    environment = {**os.environ, "TOILE_PLATFORM": "gpu", "TOILE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", text.format(use=USES[use])], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
