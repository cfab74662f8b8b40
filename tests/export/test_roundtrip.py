"""Exported functions give the values of the functions, bit for bit, also in another process."""

import contextlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

import toile
import toile.numpy as jnp
from benchmarks import zoo
from benchmarks.operation_cells import library
from tests import programs, seeds
from tests.test_operations import ROWS
from toile import export

# Operations that call Python, or that place values on the devices of this process.
REFUSED = {"PureCallback", "IoCallback", "OrderedIoCallback", "DebugCallback",
           "OrderedDebugCallback", "Spmd", "Constraint"}


def bits(x):
    """The bytes of an array, also of one of keys."""
    if jnp.issubdtype(x.dtype, toile.dtypes.prng_key):
        x = toile.random.key_data(x)
    return str(x.dtype), x.shape, np.asarray(x).tobytes()


def same(got, want):
    assert [bits(x) for x in toile.tree.leaves(got)] == [bits(x) for x in toile.tree.leaves(want)]


def loaded(f, *args, order=0):
    """A function after a round trip."""
    return export.deserialize(export.export(f)(*args).serialize(order))


@pytest.mark.parametrize("row", [r for r in ROWS if r.op.__name__ not in REFUSED], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_operation(row):
    dtype = row.dtypes[0]
    wide = "64" in dtype or "128" in dtype or "64" in row.label
    with toile.enable_x64(True) if wide else contextlib.nullcontext():
        xs = [jnp.asarray(x) for x in row.arguments(dtype)]
        f = toile.jit(lambda *args: row.run(*args))
        same(loaded(f, *xs).call(*xs), f(*xs))


@pytest.mark.parametrize("row", [r for r in ROWS if r.op.__name__ in REFUSED], ids=str)
def test_refused_operation(row):
    """The message names the operation and the line."""
    xs = [jnp.asarray(x) for x in row.arguments(row.dtypes[0])]
    with pytest.raises(NotImplementedError, match=r"\.py:\d+"):
        export.export(toile.jit(lambda *args: row.run(*args)))(*xs)


def stages(name):
    program = zoo.programs()[name]
    step, state, batch = program.make(library("toile"), **program.sizes["tiny"])
    leaves, tree = toile.tree.flatten((state, batch))

    def flat(leaves):
        state, batch = toile.tree.unflatten(tree, leaves)
        return toile.tree.leaves(step(state, *batch))

    return toile.jit(flat), leaves


FAST = ["mobilenet", "variational autoencoder", "recommender", "quantised inference",
        "rotary decoder", "beam search", "state space", "Kalman filter", "molecules"]


@pytest.mark.cpu
@pytest.mark.parametrize("name", [
    n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in zoo.names()])
@pytest.mark.filterwarnings("ignore")
def test_training_step(name):
    """Whole training steps, which contain derivatives, loops, random numbers and optimizers."""
    f, leaves = stages(name)
    same(loaded(f, leaves).call(leaves), f(leaves))


@settings(max_examples=100 if seeds.EVERYTHING else 10, deadline=None)
@given(programs.programs())
@pytest.mark.filterwarnings("ignore")
def test_random_program(program):
    """Values and gradients of random programs."""
    ns = SimpleNamespace(jnp=jnp, lax=toile.lax, nn=toile.nn, jax=toile)
    args = programs.arguments(dtype="float32")
    f = toile.jit(lambda *xs: programs.run(ns, program, *xs))
    g = loaded(f, *args)
    same(g.call(*args), f(*args))
    slope = lambda h: toile.jit(toile.grad(h, (0, 1, 2)))(*args)
    same(slope(g.call), slope(f))


DTYPES = ["bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "float32", "bfloat16",
          "float8_e4m3fn", "float8_e5m2", "complex64", "int4", "uint4"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(dtype):
    """Values that a function closes over are kept, with all dtypes."""
    table = jnp.asarray(np.arange(-3, 5).reshape(2, 4).clip(0 if dtype[0] == "u" else -3), dtype)
    f = toile.jit(lambda i: (table[i], table.T))
    same(loaded(f, 1).call(1), f(1))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys(impl):
    key = toile.random.key(7, impl=impl)
    f = toile.jit(lambda k: (toile.random.split(k, 3), toile.random.normal(key, (2,)), key))
    same(loaded(f, key).call(key), f(key))


SCRIPT = """
import sys
import toile
import toile.numpy as jnp
from toile import export
assert not {"jax", "tests", "optax"} & set(sys.modules)
loaded = export.load(sys.argv[1])
x = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)
loss = lambda y: sum(jnp.sum(r * r) for r in loaded.call(y))
rows = toile.vmap(lambda r: loaded.call(r[None])[0][0])(x)
for value in [*loaded.call(x), *toile.jit(loaded.call)(x), toile.jit(toile.grad(loss))(x), rows]:
    print(jnp.asarray(value).tobytes().hex())
"""


@toile.custom_vjp
def clipped(x):
    """The identity, whose gradient is limited."""
    return x * 1.0


clipped.defvjp(lambda x: (clipped(x), None), lambda _, ct: (jnp.clip(ct, -0.25, 0.25),))


def model(x):
    h = toile.nn.gelu(clipped(x) @ jnp.ones((3, 4)))
    h, _ = toile.lax.scan(lambda c, row: (toile.nn.relu(c + row), c), h[0], h)
    return jnp.sin(x), toile.checkpoint(jnp.tanh)(h)


def test_other_process(tmp_path):
    """Values and gradients in a process without the code that defined the function."""
    (b,) = export.symbolic_shape("b")
    exported = export.export(toile.jit(model))(toile.ShapeDtypeStruct((b, 3), "float32"))
    path = tmp_path / "model.toile"
    export.save(path, exported, vjp_order=1)
    assert [p.name for p in tmp_path.iterdir()] == ["model.toile"]
    found = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, text=True,
                           capture_output=True, cwd=toile.__path__[0] + "/..").stdout.split()
    x = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)
    loss = lambda y: sum(jnp.sum(r * r) for r in model(y))
    want = [*model(x), *toile.jit(model)(x), toile.jit(toile.grad(loss))(x), jnp.sin(x)]
    for line, value in zip(found, want, strict=True):
        got = np.frombuffer(bytes.fromhex(line), "float32").reshape(value.shape)
        np.testing.assert_allclose(got, value, rtol=1e-6, atol=1e-7)
    assert found[2:4] == [np.asarray(v).tobytes().hex() for v in toile.jit(model)(x)]


def test_rules_of_custom_vjp():
    """With vjp_order, the rule is kept to that order; without it, the error says what to do."""
    x = jnp.linspace(-1.0, 1.0, 5)
    f = toile.jit(lambda x: jnp.sum(clipped(x) ** 2))
    exported = export.export(f)(x)
    without, once, twice = (export.deserialize(exported.serialize(n)) for n in (0, 1, 2))
    same(without.call(x), f(x))
    assert not without.has_vjp() and once.has_vjp()
    with pytest.raises(ValueError, match="No VJP is available.*clipped"):
        toile.grad(without.call)(x)
    with pytest.raises(ValueError, match="No VJP is available"):
        without.vjp()
    with pytest.raises(ValueError, match="vjp_order of at most 0"):
        without.serialize(1)
    for g in (once, twice, exported):
        same(toile.grad(g.call)(x), toile.grad(f)(x))
        same(g.vjp().call(x, jnp.float32(1.0))[0], toile.grad(f)(x))
    second = lambda h: toile.grad(lambda x: jnp.sum(toile.grad(h)(x) ** 2))(x)
    same(second(twice.call), second(f))


def test_rules_of_custom_jvp():
    """Rules of custom_jvp are always kept: those of nn.relu, and the user's own."""

    @toile.custom_jvp
    def halved(x, n):
        return jnp.sin(x)

    halved.defjvp(lambda primals, tangents: (halved(*primals), 0.5 * tangents[0]))
    x = jnp.linspace(-2.0, 2.0, 7)
    f = toile.jit(lambda x: jnp.sum(halved(x, 3) * toile.nn.relu(x)))
    g = loaded(f, x)
    same(g.call(x), f(x))
    same(toile.grad(g.call)(x), toile.grad(f)(x))
    same(toile.jvp(g.call, (x,), (x,)), toile.jvp(f, (x,), (x,)))
    same(toile.hessian(g.call)(x), toile.hessian(f)(x))


def test_remat_policies():
    x = jnp.linspace(-2.0, 2.0, 4)
    policies = toile.checkpoint_policies
    for policy in (None, policies.dots_saveable, policies.save_only_these_names("a"),
                   policies.save_any_names_but_these("a"),
                   policies.save_from_both_policies(policies.dots_saveable,
                                                    policies.save_only_these_names("b"))):
        body = lambda x: jnp.sum(jnp.sin(toile.ad_checkpoint.checkpoint_name(jnp.cos(x), "a")))
        f = toile.jit(toile.checkpoint(body, policy=policy))
        same(toile.grad(loaded(f, x).call)(x), toile.grad(f)(x))
    f = toile.jit(toile.checkpoint(body, policy=lambda *_, **__: True))
    with pytest.raises(NotImplementedError, match="checkpoint_policies"):
        export.export(f)(x)


def test_index_warning():
    """A check of indices is kept, with the place in the program that was exported."""
    f = toile.jit(lambda x, i: x[i])
    (b,) = export.symbolic_shape("b")
    g = export.deserialize(export.export(f)(
        toile.ShapeDtypeStruct((b,), "float32"), jnp.int32(0)).serialize())
    assert g.call(jnp.arange(5.0), 4) == 4.0
    with toile.checks("index"), pytest.raises(IndexError, match=r"test_roundtrip.py:\d+"):
        g.call(jnp.arange(5.0), 5).block_until_ready()


def test_wide_types_without_x64():
    """A function that was exported with 64-bit types keeps them."""
    with toile.enable_x64(True):
        g = loaded(toile.jit(lambda x: x * 2.0 + 1e-12), jnp.float64(1.0))
        x = jnp.float64(1.0)
    assert g.call(x).dtype == "float64" and float(g.call(x)) == 2.0 + 1e-12


def test_names_of_operations_are_unique():
    """An exported function refers to operations and parameters by name."""
    from toile.export import _permitted

    assert len(_permitted.operations()) > 150 and len(_permitted.parameters()) > 8
    assert not set(_permitted.operations()) & set(_permitted.parameters())
    for row in ROWS:
        assert row.op.__name__ in REFUSED or row.op.__name__ in {
            *_permitted.operations(), *_permitted.SPECIAL}, row
