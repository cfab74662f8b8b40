"""On real GPUs: logical devices on one of them, NCCL with one rank, and two or more of them.

The first two need one GPU; the rest is skipped where there are fewer than two. Where there are
several: `TOILE_PLATFORM=gpu python -m pytest tests/multi_gpu`.
"""

import ctypes

import numpy as np
import pytest

import toile
from tests.multi_gpu.test_host import by_vmap, collectives, train, with_axes_elsewhere
from tests.parallel.programs import PATH, PROGRAMS, N
from toile import lax
from toile.engine.exchange import Span
from toile.platforms.gpu import devices as gpu
from toile.sharding import AxisType, NamedSharding
from toile.sharding import PartitionSpec as P
from toile.targets.cuda import libraries, nccl
from toile.targets.cuda.driver import driver

pytestmark = [pytest.mark.gpu,
              pytest.mark.skipif(not gpu.usable(), reason="needs a GPU and CuPy")]
several = pytest.mark.skipif(gpu.usable() < 2, reason="needs two GPUs or more")


@pytest.fixture
def logical():
    """As many devices on the GPUs as a table of programs maps over."""
    before = toile.config.read("jax_num_gpu_devices")
    toile.config.update("jax_num_gpu_devices", N)
    with toile.default_matmul_precision("highest"):
        yield toile.devices("gpu")
    toile.config.update("jax_num_gpu_devices", before)


def mapped(f, **options):
    return toile.pmap(f, axis_name="i", backend="gpu", **options)


def close(a, b):
    tolerance = 2e-2 if "bfloat16" in str(b.dtype) else 3e-5
    assert a.shape == b.shape and str(a.dtype) == str(b.dtype)
    a, b = np.asarray(a).astype("complex64"), np.asarray(b).astype("complex64")
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_pmap_over_logical_devices(name, logical):
    """On one GPU in its memory; on four by NCCL; on two some groups by either, some by the host."""
    with np.load(PATH) as file:
        wanted = [file[k] for k in sorted(file.files) if k.rpartition(".")[0] == name]
    build, args = PROGRAMS[name]
    for _ in range(2):
        found = toile.tree.leaves(build(toile, mapped)(*args))
        for a, b in zip(found, wanted, strict=False):
            close(a, b)


@pytest.mark.parametrize("f", [collectives, with_axes_elsewhere])
def test_collectives_of_logical_devices(f, logical):
    x = np.random.default_rng(0).normal(size=(4, 4, 8)).astype("float32")
    more = {name: np.asarray(x[:, 0] * 4).astype(name) for name in ("int8", "int16", "complex64")}
    args = (x, more) if f is collectives else (x,)
    with toile.default_device(toile.devices("cpu")[0]):
        wanted = by_vmap(f, args)
    found = toile.tree.leaves(mapped(f)(*args))
    for a, b in zip(found, wanted, strict=True):
        close(a, b)
        assert a.devices() == set(logical)


def test_many_steps_do_not_mix_up_memory(logical):
    """Streams run side by side; what one has freed, the other must not write to."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(N, 256, 256)), random.normal(size=(N, 256, 256)) / 16

    def f(x, w):
        for _ in range(4):
            x = lax.pmean(toile.numpy.tanh(x @ w), "i") + x
        return x / 5

    step = mapped(f, donate_argnums=0)
    a, b = x.astype("float32"), w.astype("float32")
    wanted = a
    for _ in range(20):
        a = step(a, b)
        assert float(toile.numpy.abs(a[0]).max()) < 10
    with toile.default_device(toile.devices("cpu")[0]):
        plain = toile.jit(toile.vmap(f, axis_name="i"))
        for _ in range(20):
            wanted = plain(wanted, b)
    np.testing.assert_allclose(np.asarray(a), np.asarray(wanted), rtol=2e-3, atol=2e-4)


def test_replicated_on_two_logical_devices(logical):
    wanted = train(1)
    np.testing.assert_allclose(train(2), wanted, rtol=1e-4)


def test_sharded_jit_over_logical_devices(logical):
    mesh = toile.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=logical)
    random = np.random.default_rng(0)
    a, w = (random.normal(size=s).astype("float32") for s in ((8, 16), (16, 12)))
    f = toile.jit(lambda a, w: (toile.numpy.tanh(a @ w), (a @ w).sum()))
    out, total = f(toile.device_put(a, NamedSharding(mesh, P("x", "y"))),
                   toile.device_put(w, NamedSharding(mesh, P("y"))))
    assert out.devices() == set(logical) and out.sharding.spec == P("x")
    np.testing.assert_allclose(np.asarray(out), np.tanh(a @ w), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(float(total), (a @ w).sum(), rtol=1e-4)


# ---- NCCL itself, with one rank


@pytest.mark.parametrize("kind", ["sum", "max", "gather", "scatter", "exchange", "permute"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "bool", "int8"])
def test_nccl_with_one_rank(kind, dtype):
    if libraries.version("nccl") is None:
        pytest.skip("NCCL is not installed")
    if kind == "max" and dtype == "complex64":
        return
    device = toile.devices("gpu")[0]
    values = np.arange(24).reshape(1, 24).astype(toile.numpy.dtype(dtype))
    with device.current():
        calls = nccl.functions()
        rank = _communicator(calls)
        source, target = device.allocate(values.nbytes), device.allocate(values.nbytes)
        driver().upload(source[1], values.ctypes.data, values.nbytes, device.stream)
        x, y = (Span(m[1], values.shape, values.dtype) for m in (source, target))
        one = y._replace(shape=(24,)) if kind == "scatter" else y
        assert rank.issue(kind, [x], [one], [(0, 0)], device.stream)
        if kind in ("sum", "max"):
            rank.issue(kind, [x, x], [y, y], (), device.stream)
        found = np.empty_like(values)
        driver().download(found.ctypes.data, target[1], found.nbytes, device.stream)
    np.testing.assert_array_equal(found, values)


_made = []


def _communicator(calls):
    if not _made:
        _made.append(nccl.Communicator(calls, nccl.unique_id(calls), 1, 0))
    return _made[0]


def test_nccl_says_what_is_wrong():
    if libraries.version("nccl") is None:
        pytest.skip("NCCL is not installed")
    wrong = pytest.raises(libraries.LibraryError, match="NCCL_DEBUG")
    with toile.devices("gpu")[0].current(), wrong:
        nccl.functions().ncclCommInitRank(
            ctypes.addressof(ctypes.c_void_p()), 1, nccl.UniqueId(), 7)


# ---- two GPUs or more


@several
def test_pmap_over_gpus():
    count = gpu.usable()
    x = np.random.default_rng(0).normal(size=(count, count, 6)).astype("float32")

    def f(x):
        return (lax.psum(x, "i"), lax.pmax(x, "i"), lax.all_gather(x, "i"), lax.axis_index("i"),
                lax.psum_scatter(x, "i"), lax.all_to_all(x, "i", 0, 0),
                lax.ppermute(x, "i", [(i, (i + 1) % count) for i in range(count)]),
                lax.ppermute(x, "i", [(0, 1)]), toile.numpy.tanh(lax.pmean(x * 2, "i")))

    with toile.default_device(toile.devices("cpu")[0]):
        wanted = by_vmap(f, (x,))
    for _ in range(3):
        found = mapped(f)(x)
        for a, b in zip(found, wanted, strict=True):
            close(a, b)
            assert a.devices() == set(toile.devices("gpu")[:count])


@several
def test_gradients_of_groups_of_gpus():
    groups = [[0, 1]]
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")

    def loss(x):
        return (lax.psum(toile.numpy.sin(x), "i", axis_index_groups=groups) ** 2).sum()

    with toile.default_device(toile.devices("cpu")[0]):
        wanted = by_vmap(toile.grad(loss), (x,))
    close(mapped(toile.grad(loss))(x), wanted[0])


@several
def test_replicated_over_gpus():
    wanted = train(1)
    np.testing.assert_allclose(train(2), wanted, rtol=1e-4)


@several
def test_arrays_move_between_gpus():
    first, second = toile.devices("gpu")[:2]
    x = toile.device_put(np.arange(6.0, dtype="float32").reshape(2, 3), first)
    y = toile.device_put(x.T, second)
    assert y.devices() == {second} and (y + 1).devices() == {second}
    np.testing.assert_array_equal(np.asarray(toile.device_put(y + 1, first)), np.asarray(x).T + 1)
