"""Quick ways of operations outside of jit, without a GPU: what is learned, when it is taken."""

from types import SimpleNamespace

import numpy as np
import pytest

import toile
from tests.gpu import host_driver
from tests.gpu.fake_libraries import FakeCublas
from tests.gpu.test_programs import program_of
from toile.compiler.ir.operands import Ref
from toile.engine.buffers import signature
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import eager as gpu_eager
from toile.platforms.gpu.arrays import GpuArray, called, operators
from toile.platforms.gpu.execution import Executable
from toile.platforms.gpu.exits import GpuExit
from toile.platforms.gpu.live_arrays import Made
from toile.primitives import transcendental as curves
from toile.targets.cuda import cublas
from toile.targets.cuda import driver as driver_module
from toile.targets.cuda.driver import driver


def array(shape=(3, 4), pointer=64):
    made = object.__new__(GpuArray)
    made._signature = signature(shape, np.dtype("float32"), False, "a GPU")
    made._memory, made._pointer = ("memory", pointer), pointer
    return made


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    monkeypatch.setattr(operators, "known", (None, {}))
    monkeypatch.setattr(gpu_eager, "_ways", {})


def one_operation(calls):
    """A function that is one operation, and its quick way."""

    def way(pointers, memory):
        calls.append(("way", pointers, memory))
        return array()

    def fun(x, *args):
        calls.append(("fun", args))
        out = array()
        operators.first = (x,), out, way
        return out

    return fun


def test_a_call_is_learned_by_operand_and_arguments():
    calls = []
    fun, x = one_operation(calls), array()
    for _ in range(2):
        called(fun, x, "sum", 1)
    called(fun, x, "sum", 0)
    called(fun, array((5,)), "sum", 1)
    assert calls == [("fun", ("sum", 1)), ("way", (64,), (("memory", 64),)), ("fun", ("sum", 0)),
                     ("fun", ("sum", 1))]
    assert operators.first is None and not operators.watched


def test_several_operations_are_not_learned():
    calls = []
    other = array(pointer=128)

    def fun(x):
        calls.append("fun")
        operators.first = (other,), array(), None  # not on x, not the result
        return array()

    x = array()
    for _ in range(3):
        called(fun, x)
    assert calls == ["fun"] * 3


def test_another_default_device_and_deleted_arrays_take_the_long_way():
    calls = []
    fun, x = one_operation(calls), array()
    called(fun, x)
    with toile.default_device(toile.devices("cpu")[0]):
        called(fun, x)
    x._pointer = None
    called(fun, x)
    assert [c[0] for c in calls] == ["fun"] * 3


def test_an_operation_on_one_array(monkeypatch):
    x, seen = array(), []
    monkeypatch.setattr(type(curves.exp), "__call__", lambda op, x: seen.append(x))
    gpu_eager.unary(curves.exp, x)
    gpu_eager._ways[curves.exp, x._signature] = lambda pointers, memory: pointers
    assert gpu_eager.unary(curves.exp, x) == (64,)
    assert seen == [x]
    operators.watched = True
    try:
        out = gpu_eager.unary(curves.exp, x)
        args, result, way = operators.first
    finally:
        operators.watched, operators.first = False, None
    assert args == (x,) and result is out and way is gpu_eager._ways[curves.exp, x._signature]


def test_a_product_by_pointers():
    random = np.random.default_rng(0)
    a, b, c = random.normal(size=(4, 6)), random.normal(size=(6, 5)), np.zeros((4, 5))
    blas = cublas.Blas(FakeCublas(), None, 4096)
    at = [cublas.Matrix(Ref(name), "float64", x.shape[1])  # by columns: the other way round
          for name, x in (("b", b), ("a", a), ("c", c))]
    gemm = cublas.Gemm(5, 4, 6, *at, "float64")
    run = gemm.bound(blas, {"a": 0, "b": 1, "c": 2}, 7)
    for _ in range(2):
        run([x.ctypes.data for x in (a, b, c)])
        np.testing.assert_allclose(c, a @ b)
        a *= 2
    assert blas.used == (7, 0) and blas.functions.names.count("cublasSetStream_v2") == 1
    assert gemm.bound(blas, {"a": 0, "b": 1}, 7) is None


class Pool:
    """CuPy, whose memory ends."""

    def __init__(self, most):
        self.most = most
        self.cuda = SimpleNamespace(alloc=self.alloc)

    def alloc(self, nbytes):
        if nbytes > self.most:
            raise MemoryError
        return SimpleNamespace(ptr=256)


@pytest.mark.parametrize("sole", [True, False])
def test_rooms_of_results(sole, monkeypatch):
    pool = Pool(100)
    monkeypatch.setattr(gpu, "cupy", lambda: pool)
    asked = []
    executable = SimpleNamespace(
        device=SimpleNamespace(sole=sole), made=[Made("add")] * 2, out_bytes=[0, 400],
        room=lambda nbytes, index: asked.append((nbytes, index)) or ("memory", 512))
    small, large = (Executable.maker(executable, i) for i in range(2))
    memory, where = small(0)
    assert large(400) == ("memory", 512)
    if sole:
        assert where == 256 and memory.nbytes == 0 and memory.made == Made("add")
        assert asked == [(400, 1)]
    else:
        assert asked == [(0, 0), (400, 1)]


def test_threads_enter_the_only_gpu_once(monkeypatch):
    said = []
    runtime = SimpleNamespace(setDevice=said.append)
    monkeypatch.setattr(gpu, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(gpu.entered, "here", False)
    device = gpu.GpuDevice(0)
    device.enter()
    assert said == [0] and gpu.entered.here
    for count, expected in ((1, True), (2, False)):
        monkeypatch.setattr(gpu, "driver_count", lambda count=count: count)
        one = gpu.GpuDevice(0)
        one.primary = one
        assert one.sole is expected


# ---- arguments on the host


@pytest.mark.parametrize("nbytes", [4, 4096, 1 << 20])
@pytest.mark.parametrize("locked", [True, False])
def test_host_memory_has_been_read_when_an_upload_returns(nbytes, locked, monkeypatch):
    """The driver reads page-locked memory when the stream gets there, and other memory at once."""
    source, target = np.full(nbytes, 7, np.uint8), np.zeros(nbytes, np.uint8)
    with host_driver.cuda_library(monkeypatch, 227 << 10) as library:
        if locked:
            library.locked.append((source.ctypes.data, source.ctypes.data + nbytes - 1))
        driver().upload(target.ctypes.data, source.ctypes.data, nbytes, 9)
        source[:] = 0  # the loader's next batch
        assert library.names.count("cuStreamSynchronize") == locked  # else nothing is waited for
        driver().synchronize(9)
    assert (target == 7).all()


def test_arguments_in_page_locked_memory(monkeypatch):
    batch = np.arange(1000, dtype=np.float32)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        with host_driver.cuda_library(monkeypatch, 227 << 10) as library:
            library.locked.append((batch.ctypes.data, batch.ctypes.data + batch.nbytes - 1))
            program, _ = program_of(lambda x: x + 1, [batch])
            executable = host_driver.compiled(program, device)
            outs = [signature(batch.shape, batch.dtype, False)]
            way = GpuExit(executable, [], [0], outs, lambda results: results, [])
            way.leave([batch.ctypes.data], [batch])
            batch[:] = 0
            driver().synchronize(device.stream)
            ((_, _, (memory, _)),) = way.hosted
    np.testing.assert_array_equal(memory.array((1000,), np.float32, 0), np.arange(1000))


def test_an_error_of_the_stream_is_not_taken_for_pageable_memory(monkeypatch):
    source = np.ones(4, np.uint8)
    with host_driver.cuda_library(monkeypatch, 227 << 10) as library:
        library.cuPointerGetAttribute = lambda *args: 700  # an illegal address, of work before
        library.cuStreamSynchronize = lambda stream: 700
        library.cuGetErrorName = library.cuGetErrorString = lambda *args: 1
        before = driver_module.use(driver_module.Driver())
        try:
            with pytest.raises(driver_module.CudaError, match="cuStreamSynchronize"):
                driver().upload(source.ctypes.data, source.ctypes.data, 4, 9)
        finally:
            driver_module.use(before)
