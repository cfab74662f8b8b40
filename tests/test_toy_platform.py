"""A platform of its own in one file: what a new kind of device needs, and that nothing else does.

Its buffers are NumPy arrays in a box, on devices that the rest of toile has never heard of.
"""

from functools import partial

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases_control import ROWS
from tests.closeness import nearly_equal
from toile.compat.faces.jax.extend.core import Primitive
from toile.engine.devices import Device
from toile.engine.platform_registry import FEW, platform_of, registry
from toile.platforms.base import ArrayElsewhere, Platform, ShardedElsewhere
from toile.platforms.reference import Executable

pytestmark = pytest.mark.cpu


class Box:
    """A buffer that only its device can look into."""

    def __init__(self, array, device):
        self._array, self.device = np.array(array), device
        self.shape, self.dtype = self._array.shape, self._array.dtype
        self.size, self.ndim, self.nbytes = self._array.size, self._array.ndim, self._array.nbytes

    def __getitem__(self, index):
        return Box(self._array[index], self.device)


class ToyDevice(Device):
    __slots__ = ()

    def put(self, data):
        return Box(data._array if isinstance(data, Box) else data, self)


class ToyArray(ArrayElsewhere):
    __slots__ = ()


class ShardedToyArray(ShardedElsewhere, ToyArray):
    __slots__ = ("_parts", "_sharding", "_aval", "_is_committed")


class Toy(Platform):
    name, array, sharded = "toy", ToyArray, ShardedToyArray

    def __init__(self, count):
        self.made = tuple(ToyDevice("toy", k, "toy") for k in range(count))
        self.runs = 0

    def devices(self):
        return self.made

    def owns(self, kind):
        return kind is Box

    def device_of(self, data):
        return data.device

    def get(self, data):
        return data._array.copy()

    def compiled(self, program, device):
        executable = program.memoized(device, lambda: Executable(program))

        def run(raws):
            self.runs += 1
            results = executable([r._array if isinstance(r, Box) else r for r in raws])
            return [device.put(np.asarray(r)) for r in results]

        return run


@pytest.fixture(params=[1, 2], ids=["one device", "two devices"])
def toy(request):
    before = registry.active
    registry.active = ()
    made = Toy(request.param)
    registry.add(made)
    yield made
    registry.remove(made)
    registry.active = before


def on_host(tree):
    return toile.tree.map(np.asarray, toile.device_get(tree))


def is_there(x):
    return isinstance(x, ToyArray) and (
        platform_of(x._data) is not None and x.devices() <= set(toile.devices("toy")))


def test_devices(toy):
    assert toile.devices("toy") == list(toy.made) and toile.devices()[0].platform == "cpu"
    with pytest.raises(RuntimeError, match="Platforms present are: cpu, toy"):
        toile.devices("abacus")


def test_there_and_back(toy):
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    y = toile.device_put(x, toy.made[-1])
    assert is_there(y) and y.shape == (2, 3) and y.dtype == np.float32
    assert y.devices() == {toy.made[-1]}
    np.testing.assert_array_equal(np.asarray(y), x)
    back = toile.device_put(y, toile.devices("cpu")[0])
    assert not is_there(back)
    np.testing.assert_array_equal(back, x)
    assert repr(y) == repr(back) and y.tolist() == x.tolist() and float(y[1, 2]) == 5.0


def test_operators_and_methods_stay_there(toy):
    x = toile.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), toy.made[0])
    for y in (x + 1, 2 * x, x @ x.T, x[1], x.at[0].set(7), x.sum(0), jnp.sin(x), jnp.max(x),
              jnp.where(x > 2, x, 0), x.astype(jnp.int32), jnp.concatenate([x, x]), x.copy()):
        assert is_there(y), y
    assert [float(row.sum()) for row in x] == [3.0, 12.0]


def test_large_arrays_are_there_by_default(toy):
    with toile.default_device(toy.made[0]):
        assert is_there(jnp.ones((64, 64)) + 1) and not is_there(jnp.ones(3) + 1)


FREE = {  # arrays that nothing put on a device
    "few": lambda: jnp.ones(3), "scalar": lambda: jnp.float32(2),
    "key": lambda: toile.random.key(0), "weak": lambda: jnp.asarray(1.5),
    "many": lambda: jnp.ones((64, 64)), "sum": lambda: jnp.ones(3) + 1,
    "jitted": lambda: toile.jit(lambda: jnp.ones(3))(), "empty": lambda: jnp.zeros((0, 3)),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("toy", [1], indirect=True, ids=["one device"])
def test_every_array_is_on_the_default_device(toy, name):
    """As in JAX; where the values of few elements are is not visible."""
    with toile.default_device(toy.made[0]):
        x = FREE[name]()
        assert x.device is toy.made[0] and x.devices() == {toy.made[0]} and not x.committed
        assert x.sharding.device_set == {toy.made[0]}
        assert [s.device for s in x.addressable_shards] == [toy.made[0]]
        assert toile.device_put(jnp.ones(2), x.sharding).devices() == {toy.made[0]}
        assert toile.device_put(x, toile.devices("cpu")[0]).devices() == {toile.devices("cpu")[0]}
    with toile.default_device(toile.devices("cpu")[0]):
        assert FREE[name]().device is toile.devices("cpu")[0]


SHAPE = (64, 40)  # more elements than stay on the host
PARAMETERS = {  # arguments of samplers that need more than a key and a shape
    "ball": (2,), "bernoulli": (0.5,), "beta": (2.0, 3.0), "binomial": (5.0, 0.5),
    "categorical": (np.zeros(3, np.float32),), "chisquare": (2.0,), "choice": (7,),
    "dirichlet": (np.ones(2, np.float32),), "double_sided_maxwell": (0.0, 1.0), "f": (2.0, 3.0),
    "gamma": (2.0,), "generalized_normal": (2.0,), "geometric": (0.5,), "loggamma": (2.0,),
    "lognormal": (), "multinomial": (5.0, np.ones(2, np.float32) / 2),
    "multivariate_normal": (np.zeros(2, np.float32), np.eye(2, dtype=np.float32)), "pareto": (2.0,),
    "poisson": (3.0,), "randint": (0, 9), "rayleigh": (1.0,), "t": (2.0,),
    "triangular": (0.0, 0.5, 1.0),
    "truncated_normal": (-1.0, 1.0), "wald": (2.0,), "weibull_min": (1.0, 2.0),
}


def sampled(name):
    """Many numbers from a sampler of `toile.random`."""
    draw, key, given = getattr(toile.random, name), toile.random.key(0), PARAMETERS.get(name, ())
    if name == "permutation":
        return draw(key, np.arange(5000))
    if name == "orthogonal":
        return draw(key, 50)
    if name == "randint":
        return draw(key, SHAPE, *given)
    return draw(key, *given, shape=SHAPE)


NEW = {
    "zeros": lambda: jnp.zeros(SHAPE), "ones": lambda: jnp.ones(SHAPE),
    "full": lambda: jnp.full(SHAPE, 2), "empty": lambda: jnp.empty(SHAPE),
    "eye": lambda: jnp.eye(60), "tri": lambda: jnp.tri(60), "arange": lambda: jnp.arange(3000),
    "arange of floats": lambda: jnp.arange(0.0, 3000.0), "identity": lambda: jnp.identity(60),
    "linspace": lambda: jnp.linspace(0, 1, 3000), "logspace": lambda: jnp.logspace(0, 1, 3000),
    "geomspace": lambda: jnp.geomspace(1, 2, 3000), "array": lambda: jnp.array([1.5] * 3000),
    "asarray": lambda: jnp.asarray(np.ones(SHAPE)), "hamming": lambda: jnp.hamming(3000),
    "array of a dtype": lambda: jnp.array(np.ones(SHAPE), jnp.int8),
    "fromfunction": lambda: jnp.fromfunction(lambda i, j: i + j, SHAPE),
    "iota": lambda: toile.lax.iota(jnp.int32, 3000), "fftfreq": lambda: jnp.fft.fftfreq(3000),
    "initializer": lambda: toile.nn.initializers.orthogonal()(toile.random.key(0), SHAPE),
    "a layer": lambda: toile.linen.Dense(60).init(toile.random.key(0), jnp.ones((1, 50)))[
        "params"]["kernel"],
    "a layer under jit": lambda: toile.jit(toile.linen.Dense(60).init)(
        toile.random.key(0), jnp.ones((1, 50)))["params"]["kernel"],
} | {f"random.{name}": partial(sampled, name) for name in (
    "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice",
    "dirichlet", "double_sided_maxwell", "exponential", "f", "gamma", "generalized_normal",
    "geometric", "gumbel", "laplace", "loggamma", "logistic", "lognormal", "maxwell",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
    "randint", "rayleigh", "t", "triangular", "truncated_normal", "uniform", "wald",
    "weibull_min")}


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("toy", [1], indirect=True, ids=["one device"])
def test_new_arrays_are_on_the_default_device(toy, name):
    """Otherwise a function of them would run on the host, or copy them at every call."""
    with toile.default_device(toy.made[0]):
        made = NEW[name]()
    assert made.size > FEW and is_there(made), type(made)


def test_samplers_are_all_in_the_table():
    others = {"PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl",
              "multinomial", "random_gamma_p", "split", "wrap_key_data"}
    public = {n for n in toile.random.__all__ if n.islower() or n == "PRNGKey"}
    assert {n for n in public - others if f"random.{n}" not in NEW} == set()


@pytest.mark.parametrize("shape", [(3,), SHAPE], ids=["few", "many"])
@pytest.mark.parametrize("toy", [1], indirect=True, ids=["one device"])
def test_what_decides_the_device_of_a_call(toy, shape):
    """As in JAX: arrays that were put on a device; then the default device, whatever the size."""
    cpu, device = toile.devices("cpu")[0], toy.made[0]
    free, numbers = jnp.ones(shape), np.ones(shape, np.float32)
    put, there = toile.device_put(free, cpu), toile.device_put(free, device)
    assert put.committed and put.devices() == {cpu} and not free.committed

    def loop(*args):
        return toile.lax.fori_loop(0, 3, lambda i, x: x + i, sum(args))

    for jitted in (True, False):
        for default, args, expected in [
            (device, [free], True), (device, [numbers], True), (device, [free, 1.0], True),
            (device, [put], False), (device, [put, free], False), (device, [there], True),
            (cpu, [free], False), (cpu, [numbers], False), (cpu, [there], True),
            (cpu, [there, free], True), (cpu, [put, free], False),
        ]:
            how = toile.jit(lambda *args: sum(args) * 2) if jitted else loop
            with toile.default_device(default):
                for _ in range(4):  # the later calls take the fast path
                    got = how(*args)
                    assert (platform_of(got._data) is not None) is expected, (default, args)
                    assert got.committed is any(a is put for a in args), (type(got), default, args)
            np.testing.assert_array_equal(
                np.asarray(got), np.asarray(how(*[np.asarray(a) for a in args])))


@pytest.mark.parametrize("toy", [1], indirect=True, ids=["one device"])
def test_the_default_device_chooses_a_function(toy):
    functions = {"cpu": lambda x: x + 1, "toy": lambda x: x + 2}
    assert toile.lax.platform_dependent(1, **functions) == 2
    with toile.default_device(toy.made[0]):
        assert toile.lax.platform_dependent(1, **functions) == 3


def test_a_training_step(toy):
    def loss(w, x):
        return ((jnp.tanh(x @ w["a"]) @ w["b"]) ** 2).mean()

    w = {"a": np.ones((5, 7), np.float32) / 9, "b": np.ones((7, 1), np.float32) / 5}
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5)
    step = toile.jit(toile.value_and_grad(loss))
    there = toile.device_put((w, x), toy.made[0])
    for _ in range(4):
        got = step(*there)
    assert toy.runs and all(map(is_there, toile.tree.leaves(got)))
    toile.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), on_host(got),
                   on_host(step(w, x)))
    toile.clear_caches()
    assert float(step(*there)[0]) == float(got[0])


@pytest.mark.parametrize("multiple", [False, True])
def test_results_of_a_package_that_are_on_a_device(toy, multiple):
    """A primitive's implementation, run as a step of a Program, may compute on any device."""
    primitive = Primitive("there")
    primitive.multiple_results = multiple
    primitive.def_abstract_eval(lambda x: [x] if multiple else x)

    def there(x):
        y = toile.device_put(x, toy.made[-1]) + 1
        return [y] if multiple else y

    primitive.def_impl(there)
    x, out = np.ones(3, np.float32), toile.jit(primitive.bind)(np.ones(3, np.float32))
    np.testing.assert_array_equal(*toile.tree.leaves(out), x + 1)


@pytest.mark.parametrize("toy", [2], indirect=True, ids=["two devices"])
def test_several_devices(toy):
    x = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    mean = toile.pmap(lambda x: x - toile.lax.pmean(x, "i"), "i", devices=toy.made)(x)
    assert is_there(mean) and mean.devices() == set(toy.made)
    np.testing.assert_array_equal(mean, x - x.mean(0))
    mesh = toile.sharding.Mesh(np.array(toy.made), ("i",))
    rows = toile.device_put(x, toile.sharding.NamedSharding(mesh, toile.P("i")))
    assert is_there(rows) and [s.data.shape for s in rows.addressable_shards] == [(1, 4)] * 2
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(toile.jit(lambda x: (x * 2).sum(0))(rows), 2 * x.sum(0))
    np.testing.assert_array_equal(rows + 1, x + 1)


@pytest.mark.parametrize("toy", [1], indirect=True, ids=["one device"])
def test_every_operation_of_the_table(toy):
    """Outside of jit and inside, an operation gives there what it gives on the host."""
    device, wrong = toy.made[0], []
    for row in ROWS:
        if row.op.__name__ in ("Spmd", "Constraint"):  # about devices of the CPU
            continue
        for dtype in row.dtypes[:1]:
            with toile.enable_x64(dtype in ("float64", "int64", "uint64", "complex128")):
                args = row.arguments(dtype)
                there = [toile.device_put(a, device) for a in args]
                want = toile.tree.leaves(row.run(*map(jnp.asarray, args)))
                for how, f in (("eager", row.run), ("jit", toile.jit(partial(row.run)))):
                    try:
                        got = toile.tree.leaves(f(*there))
                        for g, w in zip(got, want, strict=True):
                            assert is_there(g) or not args, "it is on the host"
                            nearly_equal(np.asarray(g), np.asarray(w), f"{row} {dtype} {how}")
                    except Exception as error:
                        wrong.append(f"{row} {dtype} {how}: {str(error)[:200]}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
