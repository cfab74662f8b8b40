"""Starting to use a GPU: nothing before a large array, then all at once, and errors later."""

import contextlib
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import toile.numpy as jnp
from tests.gpu.fake_libraries import FakeCublas
from toile.engine.platform_registry import registry
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import late
from toile.platforms.gpu import start as gpu_start
from toile.platforms.gpu import warm_up as starting
from toile.targets.cuda import cublas, cudnn, driver, libraries
from toile.targets.cuda import starting as cuda_starting


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
        "driver_library": lambda: made, "driver_count": lambda: 1, "has_cupy": lambda: True,
        "cupy": lambda: done.append("cupy"), "fleet": fleet,
    }.items():
        monkeypatch.setattr(gpu, name, value)
    made = Driver()
    monkeypatch.setattr(registry, "active", (registry.names["gpu"],))
    warm = types.SimpleNamespace(begin=lambda device: done.append("warm"))
    backend = types.SimpleNamespace(ahead=lambda: done.append("names"))
    monkeypatch.setattr(late, "warm_up", lambda: warm)
    monkeypatch.setattr(late, "executables", lambda: done.append("backend") or backend)
    monkeypatch.setattr(cuda_starting, "begun", [])
    monkeypatch.setattr(gpu_start, "load_cublas", lambda: done.append("cuBLAS"))
    return types.SimpleNamespace(done=done, driver=made, fleet=fleet)


def ended():
    for thread in cuda_starting.begun:
        thread.join()


def test_captures_and_cudnn_wait_until_all_has_begun(begun, monkeypatch):
    """Calls that libraries make when they begin would end a capture."""
    go, said = threading.Event(), []
    made = SimpleNamespace(_do=lambda call, *_: said.append(call))
    monkeypatch.setattr(cudnn, "frontend", lambda: said.append("frontend") or (None, "none"))
    monkeypatch.setattr(cudnn, "warn_once", lambda *problem: None)
    warm = types.SimpleNamespace(begin=lambda device: (go.wait(10), gpu_start.wait()))
    monkeypatch.setattr(late, "warm_up", lambda: warm)
    gpu_start.soon()
    uses = [threading.Thread(target=driver.Driver.begin_capture, args=(made, 5)),
            threading.Thread(target=cudnn.make)]
    for each in uses:
        each.start()
    time.sleep(0.05)
    assert not said
    go.set()
    for each in uses:
        each.join(10)
    assert sorted(said) == ["cuStreamBeginCapture_v2", "frontend"]
    assert cuda_starting.begun and not any(x.is_alive() for x in cuda_starting.begun)


def test_context_and_cupy_at_the_same_time_and_once(begun):
    for _ in range(3):
        gpu_start.soon()
    ended()
    assert begun.driver.asked == [(0, False)]
    assert sorted(begun.done) == ["backend", "cuBLAS", "cupy", "names", "warm"]


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
    assert not cuda_starting.begun and not begun.done


def test_no_thread_is_started_any_more(begun, monkeypatch):
    """An array that is made while the interpreter ends."""
    def refuses(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    for _ in range(2):
        gpu_start.soon()
        gpu_start.wait()
    assert not begun.done


def test_errors_are_left_to_the_first_use(begun, monkeypatch):
    begun.driver.status = 2
    gpu_start.soon()
    ended()
    assert sorted(begun.done) == ["backend", "cuBLAS", "cupy", "names"]


def test_small_arrays_start_nothing(begun, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_devices", lambda: ())
    jnp.asarray([1.0, 2.0]) + 1
    assert not cuda_starting.begun


@pytest.mark.parametrize("folder, major", [("cu13", 13), ("cublas", 12), ("other", 11)])
def test_cublas_is_loaded_from_its_wheel(folder, major, tmp_path, monkeypatch):
    loaded = []
    (tmp_path / folder / "lib").mkdir(parents=True)
    for name in ("cublas", "cublasLt"):
        (tmp_path / folder / "lib" / f"lib{name}.so.{major}").touch()
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(gpu_start.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(gpu_start, "load", lambda path: loaded.append(path.rsplit("/", 1)[1]))
    gpu_start.load_cublas()
    wanted = [f"libcublasLt.so.{major}", f"libcublas.so.{major}"]
    assert loaded == (wanted if folder != "other" else [])


@pytest.mark.parametrize("problem", [ImportError, ValueError, None])
def test_where_there_is_no_wheel_of_cublas(problem, monkeypatch):
    def find_spec(name):
        if problem is not None:
            raise problem(name)

    monkeypatch.setattr(gpu_start.importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(gpu_start, "load", lambda path: pytest.fail(path))
    gpu_start.load_cublas()


def test_libraries_that_do_not_load_are_left_alone(tmp_path):
    (tmp_path / "libx.so").write_text("no library")
    gpu_start.load(str(tmp_path / "libx.so"))


class Stream:
    """A stream of CuPy's, which knows whether somebody waited for it."""

    made = []

    def __init__(self, non_blocking):
        self.ptr, self.waited = 5, False
        self.made.append(self)

    def synchronize(self):
        self.waited = True


@pytest.fixture
def streams(monkeypatch):
    monkeypatch.setattr(Stream, "made", [])
    found = types.SimpleNamespace(cuda=types.SimpleNamespace(Stream=Stream))
    monkeypatch.setitem(sys.modules, "cupy", found)
    return Stream.made


def test_first_products_give_their_handle_up(streams):
    room = np.zeros(3 << 20, np.uint8)
    blas = cublas.Blas(FakeCublas(), room, room.ctypes.data, room.nbytes)
    starting.first_products(blas)
    assert blas.functions.names.count("cublasGemmEx") == 3
    assert blas.functions.names[-1] == "cublasDestroy_v2" and [s.waited for s in streams] == [True]


def test_first_products_that_a_gpu_has_not(streams, monkeypatch):
    def refuse(*args):
        raise libraries.LibraryError("not supported on this GPU")

    monkeypatch.setattr(cublas.Gemm, "issue", refuse)
    blas = cublas.Blas(FakeCublas(), None, 4096)
    starting.first_products(blas)
    assert blas.functions.names[-1] == "cublasDestroy_v2" and streams[0].waited


def test_handles_do_not_wait_for_other_kinds(monkeypatch):
    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setattr(cublas, "_locks", {})
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert go_on.wait(10)
        return "slow"

    found = []
    thread = threading.Thread(target=lambda: found.append(cublas.handle(slow, 0)))
    thread.start()
    assert begun.wait(10)
    assert cublas.handle(object, 0) is cublas.handle(object, 0)
    go_on.set()
    assert cublas.handle(slow, 0) == "slow"  # made once
    thread.join()
    assert found == ["slow"]


@pytest.mark.parametrize("status", [0, 1])
def test_the_first_handle_of_cudnn(status, monkeypatch):
    asked = []
    library = types.SimpleNamespace(
        cudnnCreate=lambda handle: asked.append("made") or status,
        cudnnDestroy=lambda handle: asked.append("given up"))
    monkeypatch.setattr(libraries, "load", lambda name: library)
    starting.first_handle()
    assert asked == ["made", "given up"][: 2 - status]


def test_parts_of_cudnn_that_lie_beside_it(tmp_path, monkeypatch):
    place = tmp_path / "libcudnn.so.9"
    monkeypatch.setattr(libraries, "candidates", lambda library: [str(place), "libcudnn.so.9"])
    starting.load_parts()  # there are none
    for part in starting._PARTS:
        (tmp_path / f"libcudnn_{part}.so.9").write_text("no library: the loader refuses it")
    starting.load_parts()
    monkeypatch.setattr(libraries, "candidates", lambda library: ["libcudnn.so.9"])
    starting.load_parts()  # what only the system's loader knows


@pytest.mark.parametrize("status", [0, 1])
def test_the_handle_of_the_frontend(status, monkeypatch):
    def create(made):
        made._obj.value = 77
        return status

    library = types.SimpleNamespace(cudnnCreate=create)
    monkeypatch.setattr(libraries, "load", lambda name: library)
    older = types.SimpleNamespace(create_handle=lambda: "its own")
    assert cudnn.handle_of(older, 3) == "its own"
    newer = types.SimpleNamespace(Handle=lambda *given: given, create_handle=lambda: "its own")
    assert cudnn.handle_of(newer, None) == "its own"
    if status:
        with pytest.raises(RuntimeError, match="cudnnCreate"):
            cudnn.handle_of(newer, 3)
    else:
        assert cudnn.handle_of(newer, 3) == (77, 3, 0)


@pytest.mark.parametrize("installed", [True, False])
def test_cudnn_beside_cublas(installed, monkeypatch):
    done, ended = [], threading.Event()
    spec = object() if installed else None
    monkeypatch.setattr(starting.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setattr(cublas, "blas", lambda: done.append(1))
    monkeypatch.setattr(cublas, "make", lambda: 2)
    monkeypatch.setattr(starting, "first_products", done.append)

    def handle():
        done.append(threading.current_thread().name)
        ended.set()
        raise libraries.LibraryError("too old")  # which the first use says

    monkeypatch.setattr(starting, "first_handle", handle)
    starting.begin(types.SimpleNamespace(current=lambda: threading.Lock()))
    if installed:
        assert ended.wait(10)
    names = ["toile: starting cuDNN"] if installed else []
    assert [x for x in done if isinstance(x, str)] == names and {1, 2} <= {*done}
    assert not any(x.name in names for x in threading.enumerate())
    cublas._handles["any"] = object()  # a library is in use: nothing begins beside it
    done.clear()
    starting.begin(types.SimpleNamespace(current=lambda: threading.Lock()))
    assert not done


def test_threads_that_begin_together_have_one_stream(monkeypatch):
    made = []

    class Stream:
        def __init__(self, non_blocking):
            time.sleep(0.02)
            made.append(self)
            self.ptr = len(made)

    cuda = SimpleNamespace(Device=lambda number: contextlib.nullcontext(), Stream=Stream)
    monkeypatch.setattr(gpu, "cupy", lambda: SimpleNamespace(cuda=cuda))
    device = gpu.GpuDevice(0)
    for name in ("stream", "capture_stream", "side_stream"):
        # A program holds the lock while it waits for devices which ask for its streams.
        with ThreadPoolExecutor(6) as pool, device.lock:
            asked = [pool.submit(getattr, device, name) for _ in range(6)]
            assert {x.result(10) for x in asked} == {len(made)}
    assert len(made) == 3


def test_a_thread_has_the_contexts_of_its_devices(monkeypatch):
    """CuPy's `Device` alone gives a new thread none for number 0."""
    said = []
    cuda = SimpleNamespace(Device=lambda number: contextlib.nullcontext(),
                           runtime=SimpleNamespace(setDevice=said.append))
    monkeypatch.setattr(gpu, "cupy", lambda: SimpleNamespace(cuda=cuda))
    devices = [gpu.GpuDevice(i) for i in range(2)]
    for each in devices:
        each.primary = each

    def work():
        for each in [*devices, *devices]:
            with each.current():
                pass

    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()
    assert said == [0, 1, 0, 1]
