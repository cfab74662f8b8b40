"""Kernels of users in programs for a GPU: their plans, launches and results."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import host_driver
from tests.gpu.fake_user_kernels import FakeUserKernels
from tests.gpu.host_driver import compiled, host_gpu, run
from toile import ffi, lax
from toile.compiler.ir.steps import EagerStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.engine.avals import aval_of
from toile.engine.program import closed, trace_program
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import user_kernels

SOURCE = """
extern "C" __global__ void axpy(const float* x, const float* y, float* out, int n, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void sums(const double* x, double* rows, long long* counts, long long n) {
  int row = blockIdx.x + gridDim.x * blockIdx.y;
  if (threadIdx.x == 0) {
    rows[row] = 0;
    for (int j = 0; j < n; ++j) rows[row] += x[row * n + j];
    counts[row] = n;
  }
}
"""


def of_x(x, *_, **__):
    return x


axpy = ffi.cuda_kernel(SOURCE, "axpy", of_x, grid=lambda x, y, n, a: -(-n // 4), block=4)


def f(x, y, a=2.5):
    return axpy(x, y, n=x.size, a=a)


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """The engine that launches kernels; it knows when the driver of `host_gpu` captures."""
    fake = FakeUserKernels()
    with user_kernels.use(fake):
        yield fake


def results(fun, args, engine):
    """The results of the second call of a program for a GPU, which launches a graph."""
    program = closed(*trace_program(
        lambda *xs: toile.tree.leaves(fun(*xs)), [aval_of(x) for x in args], "program"))
    with pytest.MonkeyPatch.context() as patches, host_gpu(patches) as (driver, device):
        engine.driver = driver
        executable = compiled(program, device)
        data = [x._data for x in args]
        run(executable, data, device)
        return run(executable, data, device)


X, Y = jnp.arange(6.0), jnp.ones(6)
ROWS = jnp.arange(18.0).reshape(3, 6)
PROGRAMS = {
    "alone": (lambda x, y: f(x, y), (X, Y), 2.5 * X + Y),
    "between kernels": (lambda x, y: jnp.sin(f(x + 1, y) * 2), (X, Y),
                        jnp.sin((2.5 * (X + 1) + Y) * 2)),
    "strided operand": (lambda x, y: f(x.T[1], y[:3]), (ROWS, Y), 2.5 * ROWS.T[1] + 1),
    "mapped": (toile.vmap(f, (0, None)), (ROWS, Y), 2.5 * ROWS + Y),
    "mapped twice": (toile.vmap(toile.vmap(f, (None, 0)), (0, None)), (ROWS, ROWS),
                     2.5 * ROWS[:, None] + ROWS[None]),
    "in a loop": (lambda x, y: lax.fori_loop(0, 3, lambda i, x: f(x, y, a=1.0), x), (X, Y), X + 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name, engine):
    fun, args, want = PROGRAMS[name]
    (got,) = results(fun, args, engine)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert engine.launched
    assert engine.prepared.index("axpy") == 0


def test_several_results_and_types_of_numbers(engine):
    with toile.enable_x64(True):
        kernel = ffi.cuda_kernel(
            SOURCE, "sums", lambda x, n: [toile.ShapeDtypeStruct((6,), jnp.float64),
                                          toile.ShapeDtypeStruct((6,), jnp.int64)],
            grid=(3, 2), block=[2])
        x = jnp.arange(24.0).reshape(6, 4)
        rows, counts = results(lambda x: kernel(x, n=np.int64(4)), (x,), engine)
    np.testing.assert_array_equal(rows, np.arange(24.0).reshape(6, 4).sum(1))
    np.testing.assert_array_equal(counts, [4] * 6)
    assert engine.launched[-1][:2] == ((3, 2, 1), (2, 1, 1))


def test_the_kernel_is_part_of_the_graph(engine):
    program = optimize(toile.make_jaxpr(lambda x: f(x * 2, x) + 1)(X).jaxpr)
    steps = list(planned(program, TARGET).all_steps())
    assert not [s for s in steps if isinstance(s, EagerStep)]
    (call,) = [s.call for s in steps if hasattr(s, "call")]
    assert call.capturable
    assert call.nodes == 1
    assert (call.grid, call.block) == ((2, 1, 1), (4, 1, 1))
    assert host_driver  # the driver that captures it


def test_on_the_cpu_the_error_names_the_way_out():
    with pytest.raises(NotImplementedError, match="platform_dependent"):
        f(X, Y)
    y = toile.jit(lambda x: lax.platform_dependent(x, cpu=lambda x: 2 * x,
                                                   default=lambda x: f(x, x)))(X)
    np.testing.assert_array_equal(y, 2 * X)


WRONG = {
    "no kernel": (lambda: ffi.cuda_kernel("__global__ void axpy() {}", "axpy", of_x, grid=1,
                                          block=1), ValueError, 'extern "C"'),
    "grid": (lambda: ffi.cuda_kernel(SOURCE, "axpy", of_x, grid=0, block=1)(X, Y),
             ValueError, "positive numbers for grid"),
    "block": (lambda: ffi.cuda_kernel(SOURCE, "axpy", of_x, grid=1, block=(32, 33))(X, Y),
              ValueError, "at most 1024"),
    "four": (lambda: ffi.cuda_kernel(SOURCE, "axpy", of_x, grid=(1, 1, 1, 1), block=1)(X, Y),
             ValueError, "one to three"),
    "number": (lambda: f(X, Y, a=jnp.ones(3)), TypeError, "'a' needed to be a Python float"),
    "large": (lambda: axpy(X, Y, n=2**40, a=1.0), (TypeError, ValueError), "32 bits|grid"),
    "shape": (lambda: ffi.cuda_kernel(SOURCE, "axpy", lambda *_: 3, grid=1, block=1)(X, Y),
              TypeError, "shape and dtype of each result"),
    "gradient": (lambda: toile.grad(lambda x: f(x, Y).sum())(X), ValueError, "custom_jvp"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name):
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.gpu
def test_on_a_gpu(monkeypatch):
    monkeypatch.setattr(user_kernels.ENGINES, "used", [])  # not the fixture's
    got = toile.jit(lambda x, y: jnp.sin(f(x, y)))(X, Y)
    np.testing.assert_allclose(got, jnp.sin(2.5 * X + Y), rtol=1e-5, atol=1e-5)
