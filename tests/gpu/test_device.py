"""On a real GPU: the programs of `test_programs`, eager operations, memory shared with others."""

import concurrent.futures
import importlib.util

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.gpu.test_programs import PROGRAMS, normal
from toile.engine.trees import flatten, tree_map
from toile.platforms.gpu.devices import gpu_devices

pytestmark = [pytest.mark.gpu,
              pytest.mark.skipif(not gpu_devices(), reason="needs a GPU and CuPy")]


def on(device, args):
    return toile.device_put(tree_map(np.asarray, args), device)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gpu_is_cpu(name):
    fun, args = PROGRAMS[name]
    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    with toile.default_matmul_precision("highest"):
        with toile.default_device(cpu):
            wanted = [np.asarray(x) for x in flatten(toile.jit(fun)(*on(cpu, args)))[0]]
        compiled = toile.jit(fun)
        for _ in range(5):
            results = flatten(compiled(*on(gpu, args)))[0]
            for a, b in zip(results, wanted, strict=True):
                nearly_equal(np.asarray(a), b, ulps=64)
                assert a.devices() == {gpu}


def test_two_runs_are_bit_equal():
    fun, args = PROGRAMS["gradient of softmax loss"]
    step = toile.jit(fun)
    first, second = step(*args), step(*args)
    for a, b in zip(flatten(first)[0], flatten(second)[0], strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_named_sharding_on_one_gpu():
    """It is kept by device_put and by compiled calls, which are as fast as for other arrays."""
    gpu = toile.devices("gpu")[0]
    place = toile.sharding.NamedSharding(
        toile.sharding.Mesh(np.array([gpu]), ("x",)), toile.P("x"))
    x, key = toile.device_put((normal(64, 64), toile.random.key(0)[None]), place)
    assert x.sharding == place and x.committed and key.sharding == place
    step = toile.jit(lambda x, key: (x * 2, x @ x.T, jnp.arange(5000), key))
    first = step(x, key)
    for _ in range(5):
        got = step(x, key)
        for a, b in zip(got, first, strict=True):
            assert type(a) is type(b) and a.sharding == b.sharding and a.devices() == {gpu}
            assert a.committed and str(a.aval) == str(b.aval)
            same = [np.asarray(toile.random.key_data(v) if v is a is got[3] or v is b is first[3]
                               else v) for v in (a, b)]
            assert same[0].tobytes() == same[1].tobytes()
    assert step.cache.paths[0]((x, key), {})[0].sharding == place
    assert [s.device for s in got[0].addressable_shards] == [gpu]


def test_training_of_a_small_model_runs_on_the_gpu():
    """Its parameters are drawn from a key, and its batches are small NumPy arrays."""
    model = toile.linen.Sequential([toile.linen.Dense(64), toile.linen.relu, toile.linen.Dense(64)])
    x = normal(5, 8)
    params = model.init(toile.random.key(0), x)
    assert params["params"]["layers_2"]["kernel"].devices() == {toile.devices("gpu")[0]}
    step = toile.jit(toile.grad(lambda p: (model.apply(p, x) ** 2).mean()))
    for tree in (params, toile.tree.map(np.asarray, params)):
        for leaf in toile.tree.leaves(step(tree)):
            assert leaf.devices() == {toile.devices("gpu")[0]}


def test_a_call_runs_where_its_arguments_were_put():
    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    x = toile.device_put(normal(64, 64), cpu)
    assert x.committed
    f = toile.jit(lambda x: x @ x)
    for _ in range(4):
        assert f(x).devices() == {cpu} and jnp.sin(x).devices() == {cpu}
    with toile.default_device(cpu):
        y = jnp.ones((64, 64))
    assert y.devices() == {cpu} and not y.committed
    for _ in range(4):
        assert f(y).devices() == {gpu}


def test_many_random_numbers_are_drawn_on_the_gpu():
    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    for draw in (toile.random.normal, toile.random.uniform,
                 lambda key, shape: toile.random.randint(key, shape, 0, 1000),
                 lambda key, shape: toile.random.truncated_normal(key, -2.0, 2.0, shape)):
        got = draw(toile.random.key(1), (600, 500))
        assert got.devices() == {gpu}
        with toile.default_device(cpu):
            nearly_equal(np.asarray(got), np.asarray(draw(toile.random.key(1), (600, 500))), ulps=8)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, 6e-8, -1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (100,)])
def test_bits_survive(dtype, shape):
    """Arrays arrive on a device as they were: CuPy fills an array without axes with a number."""
    for value in SPECIAL:
        with toile.enable_x64(True):
            x = np.full(shape, value).astype(jnp.dtype(dtype))
            given = jnp.asarray(x)
            for f in (toile.jit(lambda x: (x, -x)), lambda x: (x, -x)):
                for argument in (x, given, toile.device_put(x, toile.devices("gpu")[0])):
                    for got, want in zip(f(argument), (x, -x), strict=True):
                        assert np.array_equal(np.asarray(got), want, equal_nan=True)
                        if value == value:
                            assert np.asarray(got).tobytes() == want.tobytes()


def test_eager():
    x = toile.device_put(normal(64, 64), toile.devices("gpu")[0])
    y = (x + 1) * 2 - jnp.sin(x)
    assert y.devices() == {toile.devices("gpu")[0]}
    nearly_equal(np.asarray(y), (normal(64, 64) + 1) * 2 - np.sin(normal(64, 64)), ulps=64)
    assert float(y[3, 4]) == float(np.asarray(y)[3, 4])


def test_cupy_shares_memory():
    cupy = pytest.importorskip("cupy")
    x = toile.device_put(normal(5, 6), toile.devices("gpu")[0])
    c = cupy.asarray(x)
    assert c.data.ptr == x.unsafe_buffer_pointer()
    back = jnp.asarray(c * 2)
    np.testing.assert_array_equal(np.asarray(back), normal(5, 6) * 2)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_dlpack(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(library)
    x = toile.device_put(normal(5, 6), toile.devices("gpu")[0])
    if library == "torch":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("torch has no GPU")
        t = torch.from_dlpack(x)
        assert t.is_cuda and t.data_ptr() == x.unsafe_buffer_pointer()
        doubled = t * 2
        back = toile.dlpack.from_dlpack(doubled)
        same = jnp.from_dlpack(doubled)
        assert same.unsafe_buffer_pointer() == back.unsafe_buffer_pointer() == doubled.data_ptr()
    else:
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip("jax has no GPU")
        t = jax.dlpack.from_dlpack(x)
        back = toile.dlpack.from_dlpack(t * 2)
    np.testing.assert_array_equal(np.asarray(back), normal(5, 6) * 2)


def test_asking_for_what_is_not_there():
    with pytest.raises(RuntimeError, match="tpu"):
        toile.devices("tpu")


def test_copies_are_not_donated_with_what_they_copy():
    x = toile.device_put(normal(64, 64), toile.devices("gpu")[0])
    y = jnp.array(x)
    assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    toile.jit(lambda a: a + 1, donate_argnums=0)(y)
    np.testing.assert_array_equal(np.asarray(x), normal(64, 64))


def test_gradients_are_as_weak_as_their_arguments():
    with toile.default_device(toile.devices("gpu")[0]):
        g = toile.grad(lambda x: toile.lax.cond(x > 1, jnp.sin, jnp.cos, x))(1.0)
    assert g.weak_type


def test_threads_call_while_graphs_are_captured():
    device = toile.devices("gpu")[0]
    f = toile.jit(lambda x: jnp.tanh(x @ x) + jnp.sum(x, 0))
    given = [toile.device_put(normal(64, 64) + i, device) for i in range(4)]
    want = [np.asarray(f(x)) for x in given]

    def call(x):
        return [np.asarray(f(x)) for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(call, given), want, strict=True):
            for each in found:
                np.testing.assert_array_equal(each, right)


def test_donated_leaves_of_one_size_take_turns_in_two_places():
    """Where no result can lie in its argument's place: two graphs serve all calls."""
    def step(state, scale):
        total = sum(state)
        return [total * scale + state[i - 1] for i in range(len(state))]

    device = toile.devices("gpu")[0]
    jitted = toile.jit(step, donate_argnums=0)
    state = [toile.device_put(normal(64, 64) + i, device) for i in range(6)]
    want = [np.asarray(x, np.float64) for x in state]
    scale = toile.device_put(np.float32(0.125), device)
    places = set()
    for turn in range(16):
        state = jitted(state, scale)
        want = step(want, 0.125)
        if turn >= 4:
            places.add(tuple(x.unsafe_buffer_pointer() for x in state))
    assert len(places) <= 2
    for x, y in zip(state, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4)
