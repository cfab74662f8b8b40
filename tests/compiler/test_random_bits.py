"""Random operations written out, and Programs on the buffers of keys: bit for bit as before."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, random
from toile.compiler.passes.random_bits import lower_random, physical_keys
from toile.compiler.pipeline import optimize
from toile.compiler.verify.programs import verify
from toile.engine import dtypes
from toile.engine.conversion import as_array, raw_operand
from toile.platforms.reference import Executable

KEY = random.key(1234567)
KEYS = random.split(KEY, (3, 2))
RANDOM = {"random_bits", "random_split", "random_fold_in", "random_seed"}


def program(f, *args):
    return toile.make_jaxpr(f)(*args).jaxpr


def everything(p):
    """Equations of a Program and of those its operations carry."""
    for e in p.equations:
        yield e
        for field in getattr(e.op, "__dataclass_fields__", {}):
            value = getattr(e.op, field)
            for inner in value if isinstance(value, tuple) else (value,):
                if hasattr(inner, "equations"):
                    yield from everything(inner)


def check(f, *args):
    """Both passes keep the results; after the second nothing is random or a key."""
    closed = toile.make_jaxpr(f)(*args)
    p = closed.jaxpr
    raws = [np.asarray(raw_operand(as_array(a))) for a in [*closed.consts, *args]]
    expected = Executable(p)(raws)
    written, plain = lower_random(p), physical_keys(p)
    for after in (written, plain):
        verify(after)
        for a, b in zip(Executable(after)(raws), expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    assert not RANDOM & {e.op.name for e in written.equations}
    for e in everything(plain):
        assert not any(dtypes.is_extended(a.aval.dtype) for a in [*e.ins, *e.outs])
        assert not e.op.name.startswith(("random_", "on_buffers")), e.op
    assert not any(dtypes.is_extended(a.aval.dtype) for a in [*plain.inputs, *plain.outputs])
    return plain


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,), (7, 3), (201,), (2, 1, 4)])
def test_bits(width, shape):
    dtype = f"uint{width}"
    with toile.enable_x64(True):
        check(lambda k: random.bits(k, shape, dtype), KEY)
        check(toile.vmap(toile.vmap(lambda k: random.bits(k, shape, dtype))), KEYS)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_older_layout(width):
    f = lambda k: [(random.bits(k, s, f"uint{width}"), random.split(k, s))
                   for s in [(), (0,), (1,), (7, 3), (202,)]]
    with toile.enable_x64(True), toile.threefry_partitionable(False):
        check(f, KEY)
        check(toile.vmap(toile.vmap(f)), KEYS)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 2), (250,), (0,)])
def test_split(shape):
    check(lambda k: random.split(k, shape), KEY)
    check(toile.vmap(toile.vmap(lambda k: random.split(k, shape))), KEYS)


def test_fold_in():
    check(lambda k: random.fold_in(k, 7), KEY)
    check(lambda k, i: random.fold_in(k, i), KEY, jnp.uint32(2**32 - 1))
    check(toile.vmap(random.fold_in, (0, None)), KEYS[:, 0], 3)
    check(toile.vmap(random.fold_in, (None, 0)), KEY, jnp.arange(4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_seed(dtype):
    with toile.enable_x64(True):
        info = np.iinfo(dtype)
        for seed in (0, 1, info.min, info.max, 77):
            check(random.key, jnp.asarray(seed, dtype))
        check(toile.vmap(random.key), jnp.asarray([0, info.max, info.min], dtype))


SHAPES = {
    "index": lambda k: k[1],
    "slice": lambda k: k[::2, 1:],
    "reshape": lambda k: k.reshape(-1),
    "transpose": lambda k: k.T,
    "broadcast": lambda k: jnp.broadcast_to(k[None], (2, *k.shape)),
    "concatenate": lambda k: jnp.concatenate([k, k[:1]]),
    "rev": lambda k: k[::-1],
    "take": lambda k: k[jnp.array([2, 0, 2])],
    "dynamic_slice": lambda k: lax.dynamic_slice(k, (1, 0), (2, 1)),
    "dynamic_update": lambda k: lax.dynamic_update_slice(k, k[:1, :1], (2, 1)),
    "set": lambda k: k.at[jnp.array([0, 2])].set(k[1]),
    "where": lambda k: jnp.where(jnp.array([[True], [False], [True]]), k, k[::-1]),
    "select": lambda k: lax.select(jnp.array(True), k, k[::-1]),
    "pad": lambda k: lax.pad(k, k[2, 1], ((1, 0, 1), (0, -1, 0))),
    "equal": lambda k: k == k[::-1],
    "not equal": lambda k: k != k[0, 0],
    "data": random.key_data,
    "wrap": lambda k: random.wrap_key_data(random.key_data(k)),
    "barrier": lambda k: lax.optimization_barrier(k),
}


@pytest.mark.parametrize("f", SHAPES.values(), ids=SHAPES)
def test_shape_operations(f):
    check(f, KEYS)


SAMPLERS = {
    "uniform": lambda k: random.uniform(k, (9, 5)),
    "normal": lambda k: random.normal(k, (11,)),
    "randint": lambda k: random.randint(k, (8,), -3, 40),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (6, 6)),
    "permutation": lambda k: random.permutation(k, 12),
    "categorical": lambda k: random.categorical(k, jnp.ones((4, 3))),
    "bfloat16": lambda k: random.uniform(k, (5,), jnp.bfloat16),
}


@pytest.mark.parametrize("f", SAMPLERS.values(), ids=SAMPLERS)
def test_samplers(f):
    plain = check(toile.jit(f), KEY)
    assert plain.equations


def test_programs_inside():
    def walk(key):
        def step(key, x):
            key, sub = random.split(key)
            return key, x + random.uniform(sub)

        key, ys = lax.scan(step, key, jnp.arange(4.0))
        key = lax.cond(ys[0] > 0, lambda k: random.fold_in(k, 1), lambda k: k, key)
        return lax.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), key), ys

    check(walk, KEY)
    check(toile.vmap(walk), KEYS[0])


def test_nothing_to_do_gives_the_program_back():
    p = program(lambda x: jnp.sin(x), jnp.ones(3))
    assert lower_random(p) is p and physical_keys(p) is p


LOOPS = {
    "constant of a scan": lambda k: lax.scan(lambda c, _: (c, random.gamma(c, 2.0)), k, None, 3)[1],
    "constant of a loop": lambda k: lax.fori_loop(
        0, 3, lambda i, s: s + random.gamma(k, 2.0), jnp.float32(0)),
    "carry": lambda k: lax.scan(
        lambda c, _: (random.split(c)[0], random.gamma(random.split(c)[1], 2.0)), k, None, 3)[1],
    "mapped": toile.vmap(
        lambda k: lax.fori_loop(0, 3, lambda i, s: s + random.gamma(k, 2.0), jnp.float32(0))),
}


@pytest.mark.parametrize("name", LOOPS)
def test_functions_with_derivative_rules_take_keys_in_loops(name):
    """Their Programs are on buffers as the loop's is; no step runs in Python."""
    f, key = LOOPS[name], KEYS[0] if name == "mapped" else KEY
    steps = [random.gamma(k, 2.0) for k in (key if name == "mapped" else [key])]
    found = np.asarray(toile.jit(f)(key))
    if name == "constant of a scan":
        np.testing.assert_array_equal(found, [steps[0]] * 3)
    elif name != "carry":
        total = np.add(np.add(steps, steps), steps)
        np.testing.assert_array_equal(found, total if name == "mapped" else total[0])
    names = [e.op.__class__.__name__ for e in optimized(program(f, key))]
    assert names and "OnBuffers" not in names


def optimized(p):
    """The equations of a Program after all passes, and of those in its loops."""
    for e in optimize(p).equations:
        yield e
        for inner in e.op.programs():
            yield from optimized(inner)
