"""Several GPUs, and several devices on one, on the host: the devices, arrays, threads and calls.

NCCL is `fake_nccl`, CuPy `host_cupy`, the driver and kernels those of tests/gpu.
"""

import pickle

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.multi_gpu import host_cupy
from tests.multi_gpu.conftest import needs_compiler
from toile import lax, optim, training
from toile.distributed import share
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.program import derive
from toile.parallel import overlap as overlapping
from toile.parallel.spmd import bound_axes
from toile.platforms.gpu import devices as gpu
from toile.sharding import AxisType, NamedSharding
from toile.sharding import PartitionSpec as P
from toile.targets.cuda import libraries, nccl
from toile.training.train_state import TrainState

pytestmark = [needs_compiler, pytest.mark.cpu]
SLOW = pytest.mark.slow
FUNCTIONS = nccl.functions  # those of the library

# GPUs and devices: one device per GPU (NCCL), all on one GPU (its memory), mixed (the host).
ROUTES = {"nccl": (4, -1), "memory": (1, 4), "host": (2, 4)}
GROUPS = [[0, 2], [1, 3]]
SHIFT = [(0, 1), (1, 2), (3, 3)]


def collectives(x, more):
    """All of them, on arrays that lie as they are told to NCCL: with few kernels to compile."""
    return [
        lax.psum((x, more), "i"), lax.pmax((x, more["int8"], more["int16"]), "i"),
        lax.psum(x, "i", axis_index_groups=GROUPS), lax.axis_index("i"),
        lax.all_gather(x, "i"), lax.all_gather(x, "i", axis_index_groups=GROUPS),
        lax.ppermute(x, "i", SHIFT), lax.psum_scatter(x, "i"), lax.all_to_all(x, "i", 0, 0),
        lax.psum(more["complex64"][1:], "i"),  # not where kernels may read at once
    ]


def with_axes_elsewhere(x):
    return [
        lax.all_gather(x, "i", axis=1, tiled=True), lax.all_gather(x, "i", axis=1),
        lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
        lax.all_to_all(x, "i", 1, 0, tiled=True), lax.psum(x.T, "i"),
    ]


def arguments():
    x = np.random.default_rng(0).normal(size=(4, 4, 8)).astype("float32")
    more = {name: np.asarray(x[:, 0] * 4, jnp.dtype(name))
            for name in ("int8", "int16", "bool", "complex64", "bfloat16")}
    return x, more


def agrees(f, args, wanted):
    found = toile.tree.leaves(toile.pmap(f, axis_name="i")(*args))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.devices() == set(toile.devices())
        tolerance = 2e-2 if "bfloat16" in str(b.dtype) else 1e-5
        np.testing.assert_allclose(np.asarray(a).astype("complex64"), b.astype("complex64"),
                                   rtol=tolerance, atol=tolerance)


def by_vmap(f, args):
    return [np.asarray(x) for x in toile.tree.leaves(toile.vmap(f, axis_name="i")(*args))]


@pytest.mark.parametrize("route", ["nccl", "memory", pytest.param("host", marks=SLOW)])
def test_collectives(route, gpus):
    args = arguments()
    wanted = by_vmap(collectives, args)
    driver, library = gpus(*ROUTES[route])
    agrees(collectives, args, wanted)
    assert bool(library.log) == (route == "nccl")
    streams = {d.stream for d in toile.devices()}
    between = [e for e in driver.events if e[0] == "wait" and {*e[1:]} <= streams]
    assert bool(between) == (route != "nccl")  # the groups lie on one GPU each


@SLOW
def test_axes_elsewhere(gpus):
    args = arguments()[:1]
    wanted = by_vmap(with_axes_elsewhere, args)
    gpus(4)
    agrees(with_axes_elsewhere, args, wanted)


def test_what_nccl_is_told(gpus):
    _, library = gpus(3)
    stream, side = ({d.id: s for d, s in zip(toile.devices(), given)} for given in (
        [d.stream for d in toile.devices()], [d.side_stream for d in toile.devices()]))
    x = np.arange(3 * 3 * 5, dtype="float32").reshape(3, 3, 5)

    def f(x):
        return (lax.psum((x, x[0] + 1j), "i"), lax.all_gather(x[0], "i"), lax.psum_scatter(x, "i"),
                lax.all_to_all(x, "i", 0, 0), lax.ppermute(x, "i", [(0, 1)]), lax.pmax(x > 1, "i"))

    toile.pmap(f, axis_name="i")(x)
    log = library.log
    assert log[0][0] == "ncclGetUniqueId"
    made = [args for name, args in log if name == "ncclCommInitRank"]
    assert sorted(args[3] for args in made) == [0, 1, 2] and {args[1] for args in made} == {3}
    for rank in range(3):  # every communicator on the stream of its device
        handle = 1000 + rank + 1
        mine = [(n, a) for n, a in log if len(a) > 4 and a[-2] == handle]
        assert {a[-1] for n, a in mine if n != "ncclAllReduce"} == {stream[rank]}
        assert {a[-1] for n, a in mine if n == "ncclAllReduce"} == {side[rank]}
        told = [(n, a[2:-2] if n[4] in "AR" and "Recv" not in n else a[1:-2]) for n, a in mine]
        assert ("ncclAllReduce", (15, 7, 0)) in told  # float32, sum
        assert ("ncclAllReduce", (10, 7, 0)) in told  # complex64 as pairs
        assert ("ncclAllReduce", (15, 1, 2)) in told  # bool: uint8, max
        assert ("ncclAllGather", (20, 1)) in told  # bytes
        assert ("ncclReduceScatter", (5, 7, 0)) in told
        sent = [a for n, a in told if n == "ncclSend"]
        assert sent == [(20, 1, k) for k in range(3)] + [(60, 1, 1)] * (rank == 0)
    assert library.names().count("ncclCommInitRank") == 3  # one communicator for all of it


def test_a_group_of_calls_is_one_operation(gpus):
    _, library = gpus(2)
    tree = {"a": np.ones((2, 3), "float32"), "b": np.ones((2, 4), "float32")}
    toile.pmap(lambda t: lax.pmean(t, "i"), axis_name="i")(tree)
    rest = library.names()[3:]
    assert rest.count("ncclGroupStart") == rest.count("ncclGroupEnd") == 2
    assert rest.count("ncclAllReduce") == 4


def test_sums_run_beside_what_does_not_need_them(gpus, monkeypatch):
    driver, _ = gpus(2)
    x = np.arange(8, dtype="float32").reshape(2, 4)

    def f(x):
        twice, other = x * 2, jnp.sort(-x)
        return lax.psum(x, "i") + other, lax.pmean(twice, "i")

    for bucket in (1, 1 << 20):
        monkeypatch.setattr(overlapping, "BUCKET", bucket)
        driver.events.clear()
        total, mean = toile.pmap(lambda x: f(x), axis_name="i")(x)
        np.testing.assert_array_equal(np.asarray(total), x.sum(0) + np.sort(-x))
        np.testing.assert_array_equal(np.asarray(mean)[1], x.mean(0) * 2)
        for d in toile.devices():
            mine = [e for e in driver.events if d.stream in e or d.side_stream in e]
            begins = [i for i, e in enumerate(mine) if e[0] == "ncclAllReduce"]
            ends = [i for i, e in enumerate(mine) if e == ("wait", d.stream, d.side_stream)]
            assert ("wait", d.side_stream, d.stream) in mine[: begins[0]]
            assert len(begins) == 2 and len(ends) == (2 if bucket == 1 else 1)
            if bucket == 1:  # the sort is between the first beginning and its end
                assert ("launch", d.stream) in mine[begins[0] : ends[0]]


def test_sums_of_sums_and_of_constants():
    avals = [Aval((4,), np.dtype("float32"))]

    def f(x):
        a = lax.psum(x, "i")
        b = lax.psum(a * a, "i")
        c = lax.psum(a, "i")
        return [b + c, lax.psum(jnp.float32(2), "i"), a]

    with bound_axes((("i", 2),)):
        program = derive(lambda *xs: [as_array(o) for o in f(*xs)], avals, "f")
        made = overlapping.overlapped(program)
    known = set(made.inputs)
    for e in made.equations:
        assert all(a in known for a in e.ins if not hasattr(a, "val")), e
        known.update(e.outs)
    assert all(o in known for o in made.outputs if not hasattr(o, "val"))
    names = [e.op.name for e in made.equations]
    assert names.count("psum_begin") == names.count("psum_end") and "psum" not in names


def test_a_device_that_fails_ends_the_others(gpus):
    _, library = gpus(2)

    def host(i):
        if i == 1:
            raise ArithmeticError("device 1 has had enough")
        return i

    def f(x):
        shape = toile.ShapeDtypeStruct((), "int32")
        i = toile.pure_callback(host, shape, lax.axis_index("i"))
        return lax.psum(x + i, "i")

    with pytest.raises(ArithmeticError, match="had enough"):
        toile.pmap(f, axis_name="i")(np.ones(2, "float32"))
    assert "ncclAllReduce" not in library.names()


def test_an_error_of_nccl_aborts_the_communicators(gpus, monkeypatch):
    _, library = gpus(2)
    f = toile.pmap(lambda x: lax.psum(x, "i"), axis_name="i")
    f(np.ones(2, "float32"))
    monkeypatch.setattr(type(library), "_ncclAllReduce", _fails, raising=False)
    with pytest.raises(RuntimeError, match="remote"):
        f(np.ones(2, "float32"))
    assert len(library.aborted) == 2
    monkeypatch.undo()


def _fails(self, *args):
    raise RuntimeError("remote error")


@pytest.mark.parametrize("route", [pytest.param("nccl", marks=SLOW), "memory"])
def test_arrays_on_devices(route, gpus):
    gpus(*{"nccl": (2, -1), "memory": (1, 2)}[route])
    first, second = toile.devices()
    x, y = (toile.device_put(np.ones(3, "float32"), d) for d in (second, first))
    assert x.devices() == {second} and (x + 1).devices() == {second} and y.devices() == {first}
    assert toile.jit(lambda x: x * 2)(x).devices() == {second}
    with pytest.raises(ValueError, match="incompatible devices"):
        x + y
    assert toile.device_put(x, first).devices() == {first}
    assert pickle.loads(pickle.dumps(second)) is second
    mesh = toile.make_mesh((2,), ("a",), axis_types=(AxisType.Auto,))
    values = np.arange(8.0, dtype="float32").reshape(4, 2)
    rows = toile.device_put(values, NamedSharding(mesh, P("a")))
    columns = toile.device_put(rows, NamedSharding(mesh, P(None, "a")))
    assert [p.shape for p in rows._parts] == [(2, 2)] * 2
    assert [p.shape for p in columns._parts] == [(4, 1)] * 2
    np.testing.assert_array_equal(np.asarray(columns), values)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(columns))), values)
    total, twice = toile.jit(lambda x: (x.sum(), x * 2))(rows)
    assert float(total) == 28 and twice.sharding == rows.sharding
    assert float(rows[3, 1]) == 7 and rows.addressable_shards[1].device is second


def test_shard_map_in_jit_takes_any_array(gpus):
    _, library = gpus(2)
    mesh = toile.make_mesh((2,), ("a",), axis_types=(AxisType.Auto,))
    f = toile.shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P())
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(np.asarray(toile.jit(f)(x)), [2, 4])
    assert "ncclAllReduce" in library.names()

    def with_effects(x):
        toile.debug.callback(lambda _: None, x)
        return f(x * 1)

    np.testing.assert_array_equal(np.asarray(toile.jit(with_effects)(x)), [2, 4])


def train(count):
    def step(state, batch):
        def loss_of(p):
            return ((jnp.tanh(batch["x"] @ p["a"]) @ p["b"] - batch["y"]) ** 2).mean()

        loss, grads = toile.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=grads), {"loss": loss}

    params = {"a": jnp.ones((3, 4)), "b": jnp.ones((4, 2))}
    state = TrainState.create(apply_fn=None, params=params, tx=optim.sgd(0.1))
    run = training.replicated(step, devices=toile.devices()[:count])
    random, losses = np.random.default_rng(0), []
    for _ in range(4):
        x = random.normal(size=(8, 3)).astype("float32")
        state, metrics = run(state, {"x": x, "y": x[:, :2]})
        losses.append(float(metrics["loss"]))
    training.check_replicas(state)
    return losses


@pytest.mark.parametrize("count", [pytest.param(1, marks=SLOW), 2])
def test_replicated_training(count, gpus, monkeypatch):
    wanted = train(1)
    gpus(count, 2)
    monkeypatch.setattr(overlapping, "BUCKET", 40)
    np.testing.assert_allclose(train(2), wanted, rtol=1e-5)


def test_memory_of_a_logical_device_is_its_own(gpus):
    gpus(1, 2)
    second = toile.devices()[1]
    host_cupy.Memory.log.clear()
    out = toile.pmap(lambda x: x * 2)(np.ones((2, 3), "float32"))
    assert {stream for _, stream in host_cupy.Memory.log} == {0, second.stream}
    assert np.asarray(out).tolist() == [[2, 2, 2]] * 2


def test_too_few_devices(gpus):
    gpus(1)
    with pytest.raises(ValueError, match="TOILE_GPU_DEVICES=2"):
        toile.pmap(lambda x: x)(np.ones(2))
    with pytest.raises(ValueError, match="TOILE_GPU_DEVICES=2"):
        toile.make_mesh((2,), ("a",))


def test_without_nccl(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setattr(nccl, "functions", FUNCTIONS)
    monkeypatch.setattr(libraries, "candidates", lambda library: [])
    libraries.load.cache_clear()
    with pytest.raises(libraries.LibraryError, match=r"NCCL.*pip install .toile\[cuda"):
        toile.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.ones(2, "float32"))


@pytest.mark.parametrize("gpus_, index, count, ids, wanted", [
    (8, 1, 2, None, [4, 5, 6, 7]), (4, 3, 4, None, [3]), (1, 1, 2, None, [0]),
    (2, 4, 5, None, [0]), (4, 0, 2, [3, 1], [3, 1]), (5, 1, 2, None, [2, 3]),
])
def test_processes_divide_the_gpus(gpus_, index, count, ids, wanted):
    assert share(gpus_, index, count, ids) == wanted


def test_processes_know_each_others_gpus(gpus):
    gpus(2)
    own = gpu.gpu_devices()
    gpu.fleet.join(1, [["a 0"], [d.hardware for d in own], ["b 0", "b 1"]])
    found = toile.devices()
    assert [d.id for d in found] == [0, 1, 2, 3, 4] and found[1:3] == list(own)
    assert [d.process_index for d in found if d not in own] == [0, 2, 2]
    gpu.fleet.leave()
    assert [d.id for d in toile.devices()] == [0, 1]
