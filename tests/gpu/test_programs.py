"""Whole programs on the GPU's backend, its kernels run by the host: equal to the CPU's results.

Each program is called three times: issued step by step, captured into a graph, and launched again.
"""

import gc

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.engine.test_collecting import made_garbage
from tests.gpu import fibers, host_driver
from toile import lax
from toile import linen as nn
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array
from toile.engine.program import closed, trace_program
from toile.engine.trees import flatten, unflatten

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def program_of(fun, args):
    """The Program of a function on its flat arguments."""
    leaves, tree = flatten(args)
    leaves = [as_array(x) for x in leaves]

    def flat(*xs):
        return [as_array(o) for o in flatten(fun(*unflatten(tree, xs)))[0]]

    return closed(*trace_program(flat, [aval_of(x) for x in leaves], "program")), leaves


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def softmax_loss(x, w):
    return -jnp.mean(jnp.sum(nn.log_softmax(x @ w) * (jnp.arange(10) == 3), -1))


def layer_norm(x, s, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return ((x - m) * lax.rsqrt(v + 1e-6) * s + b).sum()


def mlp(params, x):
    for w, b in params:
        x = nn.relu(x @ w + b)
    return (x**2).mean()


def adam(p, m, v, g, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    scale = jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return p - 0.01 * scale * m / (jnp.sqrt(v) + 1e-8), m, v


def rnn(w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum()

    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)


def older_bits(key):
    """Threefry's older layout of counters: numbers of all widths, and keys."""
    with toile.threefry_partitionable(False):
        draw = lambda k: [toile.random.bits(k, (13,), f"uint{n}") for n in (8, 16, 32)]
        return draw(key), toile.random.split(key, 3), toile.vmap(draw)(toile.random.split(key, 2))


PROGRAMS = {
    "add": (lambda x, y: x + y * 2, [normal(33, 7), normal(33, 7, seed=1)]),
    "transposed sum": (lambda x: (x.T * 3).sum(0), [normal(40, 9)]),
    "columns less their sums": (lambda x: x.T - x.T.sum(1, keepdims=True), [normal(7, 5)]),
    "softmax": (lambda x: nn.softmax(x), [normal(17, 130)]),
    "gradient of softmax loss": (toile.value_and_grad(softmax_loss, (0, 1)),
                                 [normal(6, 12), normal(12, 10)]),
    "layer norm and its gradients": (toile.value_and_grad(layer_norm, (0, 1, 2)),
                                     [normal(9, 64), normal(64), normal(64)]),
    "mlp": (toile.value_and_grad(mlp), [[(normal(8, 16), normal(16)), (normal(16, 4), normal(4))],
                                        normal(5, 8)]),
    "adam": (adam, [normal(50), normal(50), abs(normal(50)), normal(50), np.float32(3)]),
    "many leaves": (lambda ps: [p * 2 - 1 for p in ps], [[normal(3 + i) for i in range(60)]]),
    "scan": (rnn, [normal(4, 4), normal(7, 3, 4)]),
    "gradient of a scan": (toile.grad(lambda w, xs: rnn(w, xs)[1].sum()),
                           [normal(4, 4), normal(7, 3, 4)]),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.5),
                                       (0, x)), [normal(6)]),
    "cond": (lambda i, x: lax.cond(i > 0, jnp.sin, jnp.cos, x), [np.int32(1), normal(9)]),
    "gather and its gradient": (
        toile.value_and_grad(lambda t, i: (t[i] ** 2).sum()),
        [normal(11, 5), np.array([1, 1, 3, 10, 0])]),
    "sort and top_k": (lambda x: (jnp.sort(x), lax.top_k(x, 3), jnp.argmax(x, -1)),
                       [normal(5, 37)]),
    "cumsum": (lambda x: jnp.cumsum(x, 0), [normal(19, 5)]),
    "older random bits": (lambda k: older_bits(k), [toile.random.PRNGKey(3)]),
    "random bits": (lambda k: toile.random.uniform(k, (40,)), [toile.random.PRNGKey(3)]),
    "dropout": (lambda k, x: jnp.where(toile.random.bernoulli(k, 0.5, x.shape), x, 0),
                [toile.random.PRNGKey(3), normal(8, 9)]),
    "svd on the host": (lambda x: jnp.linalg.svd(x @ x.T, compute_uv=False) + 1, [normal(4, 5)]),
    "concatenate, pad and slices": (
        lambda x: jnp.pad(jnp.concatenate([x[::-1, 1:], x[:, ::2]], 1), 1), [normal(4, 6)]),
    "max pool and its gradient": (
        toile.grad(lambda x: (nn.max_pool(x, (2, 2), (2, 2)) ** 2).sum()), [normal(2, 6, 6, 3)]),
    "complex": (lambda x: jnp.abs(x * (1 + 2j)) ** 2, [normal(7)]),
    "integers": (lambda x: (x // 3, x % 3, x >> 1, x.astype(jnp.int8)),
                 [np.arange(-20, 20, dtype=np.int32)]),
    "bfloat16": (lambda x: nn.gelu(x.astype(jnp.bfloat16)) * 3, [normal(65)]),
} | {
    # The rows of the outer loop begin at any multiple of the element, not of a pack.
    f"{name} of odd rows, {dtype}": (fun, [normal(5, 5).astype(dtype)])
    for dtype in ("bfloat16", "int8", "float32") for name, fun in {
        "slices": lambda x: lax.map(lambda r: lax.map(lambda y: y * 2, r[:4].reshape(2, 2)), x),
        "results": lambda x: lax.map(lambda r: lax.map(lambda y: y + r, r), x),
        "carries": lambda x: lax.map(
            lambda r: lax.fori_loop(0, 3, lambda i, y: y + r[i], r * 2), x),
        "updates": lambda x: lax.map(
            lambda r: lax.fori_loop(
                0, 3, lambda i, y: lax.dynamic_update_slice(y, r[:2] * 3, (i,)), r), x),
        "reverse": lambda x: lax.scan(
            lambda c, r: (c + r, lax.map(lambda y: y * c[:2], r[:4].reshape(2, 2))), x[0], x,
            reverse=True),
    }.items()
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, monkeypatch):
    fun, args = PROGRAMS[name]
    program, leaves = program_of(fun, args)
    wanted = [np.asarray(x) for x in flatten(toile.jit(fun)(*args))[0]]
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        for _ in range(3):
            got = host_driver.run(executable, [x._data for x in leaves], device)
            for a, b in zip(got, wanted, strict=True):
                nearly_equal(a, b)


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_nothing_is_left_to_the_collector(loop, monkeypatch):
    def scanned(x):
        return lax.scan(lambda c, r: (jnp.tanh(c * r), c), x[0], x)[1].sum()

    def doubled(x):
        return lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x)

    fun = {"scan": toile.grad(scanned), "while": doubled}[loop]

    def once():
        program, leaves = program_of(lambda x: fun(x * 2), (abs(normal(4, 4)),))
        executable = host_driver.compiled(program, device)
        return host_driver.run(executable, [np.asarray(x) for x in leaves], device)

    with host_driver.host_gpu(monkeypatch) as (_, device):
        once()  # what is made once
        left = made_garbage(once)  # some of it may be what other tests kept until now
    assert not [name for name in left if name.startswith("toile.platforms.gpu")]
    assert gc.isenabled()
