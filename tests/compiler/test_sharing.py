"""Programs whose values share memory: results that are operands, views, carries or each other.

Each is compared with the reference backend at two sizes and two numbers of threads; operands that
are not donated stay as they are, and what one call gave is not changed by the next.
"""

import functools

import numpy as np
import pytest

import toile
import toile.nn
import toile.numpy as jnp
from tests.compiler.test_programs import close, referred
from toile import lax
from toile.targets.llvm.thread_count import threads

# What is donated is often of another shape than the results here.
pytestmark = pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")

pytest.importorskip("llvmlite")


def rotated(x, y, z):
    """Carries that change places."""
    turn = lambda c, r: ((c[1], c[2], c[0] + r), (c[0], c[2]))
    return lax.scan(turn, (x, y, z), jnp.stack([x, y, z, x, y]))


def rotated_until(x, y, z):
    turn = lambda c: (c[0] + 1, c[2], c[3], c[1])
    return lax.while_loop(lambda c: c[0] < 4, turn, (jnp.int32(0), x, y, z))


def nested(x, y, z):
    """A loop in a branch in a loop, with carries that are constants of the inner ones."""
    def inner(a, b):
        return lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) + a, b)

    def step(c, r):
        a, b = c
        new = lax.cond(r[0] > 0, lambda: inner(a, b), lambda: inner(b, a) * 0.5)
        return (b, new), (new.sum(), a)

    return lax.scan(step, (x, y), jnp.stack([x, z, -z, y]))


def kept_carries(x, y, z):
    """Carries that stay, that are replaced at once, and that are given out as they were."""
    step = lambda c, r: ((c[0], r, c[1] * 2), (c[0], c[1], r))
    return lax.scan(step, (x, y, z), jnp.stack([y, z, x]), reverse=True)


def updated_in_place(x, y, z):
    """A carry that is written to in part, and read after and before."""
    def step(i, c):
        table, last = c
        new = table.at[i].set(last[i] + table[i - 1])
        return new, table

    return lax.fori_loop(1, x.shape[0], step, (x, y)), x


# Each takes three vectors.
SHARED = {
    "an operand twice": lambda x, y, z: (x, x, y, x),
    "a result twice": lambda x, y, z: (lambda a: (a, a, a.reshape(-1, 1), a[::-1]))(x + y),
    "a constant": lambda x, y, z: (jnp.zeros(3), jnp.arange(4), 2.5, x * 0),
    "views of operands": lambda x, y, z: (x[::-1], x.reshape(-1, 1).T, x[2:], x[:0], x[1]),
    "views of results": lambda x, y, z: (lambda a: (a[1:], a[:-1], a.sum()))(jnp.tanh(x)),
    "nothing": lambda x, y, z: (),
    "no steps": lambda x, y, z: lax.scan(lambda c, r: (c + 1, c * r), x, jnp.zeros((0, 4))[:, :1]),
    "one step": lambda x, y, z: lax.scan(lambda c, r: (c + r, c), x, y[None]),
    "never": lambda x, y, z: lax.while_loop(lambda c: c[0] < 0, lambda c: c, (x.size, x)),
    "carries swap": lambda x, y, z: lax.fori_loop(0, 5, lambda i, c: (c[1], c[0]), (x, y)),
    "a carry is a constant": lambda x, y, z: lax.fori_loop(
        0, 3, lambda i, c: (y, c[0] + c[1]), (x, z)),
    "a branch gives its operand": lambda x, y, z: lax.cond(
        x[0] > 0, lambda: (x, y), lambda: (y, x)),
    "a branch gives constants": lambda x, y, z: lax.cond(
        x[0] > 0, lambda: (jnp.zeros_like(x), 1), lambda: (z, 2)),
    "a scan over itself": lambda x, y, z: lax.scan(lambda c, r: (c + r, x * c.sum()), x[0], x),
    "a loop in a map": lambda x, y, z: toile.vmap(lambda a, b: lax.while_loop(
        lambda c: c[0] < 3 + (a > 0), lambda c: (c[0] + 1, jnp.sin(c[1]) + b), (0, a)))(x, y),
    "rotated": rotated, "rotated until": rotated_until, "nested": nested,
    "kept carries": kept_carries, "updated in place": updated_in_place,
    "slope of nested": toile.grad(lambda x, y, z: sum(
        jnp.sum(o) for o in toile.tree_util.tree_leaves(nested(x, y, z))), (0, 1, 2)),
    "slope of rotated": toile.grad(lambda x, y, z: sum(
        jnp.sum(o * o) for o in toile.tree_util.tree_leaves(rotated(x, y, z))), (0, 1, 2)),
    "written twice": lambda x, y, z: (lambda a: (a, a.at[1].set(7.0), a.at[1].add(1.0)))(x * 2),
    "written into an operand": lambda x, y, z: (x.at[2].set(0.0), lax.dynamic_update_slice(
        y, z[:2], (1,)), y),
    "many": lambda x, y, z: [x * k + y for k in range(70)],
    "a long chain": lambda x, y, z: functools.reduce(
        lambda a, k: jnp.sin(a) * 0.9 + x, range(60), y),
    "a wide sum": lambda x, y, z: sum(jnp.tanh(x + k) * (y - k) for k in range(60)),
    "many joined": lambda x, y, z: jnp.concatenate([(x, y, z)[k % 3] * k for k in range(40)]),
    "not numbers": lambda x, y, z: (
        jnp.max(x / 0), jnp.min((x - x) / 0), jnp.maximum(x / 0, y), jnp.sign(-x * 0),
        toile.nn.softmax(jnp.where(y > 0, -jnp.inf, x)), jnp.sort(y / (x * 0)),
        jnp.argmax(y / 0 * 0), toile.nn.logsumexp(jnp.full(4, -jnp.inf)), jnp.cumsum(x / 0),
        jnp.exp(x * 1e9)),
}  # fmt: skip


@pytest.mark.parametrize("donated", [(), (0, 2)], ids=["kept", "donated"])
@pytest.mark.parametrize("size", [5, 70_001], ids=["short", "long"])
@pytest.mark.parametrize("name", SHARED)
def test_shared(name, size, donated):
    rng = np.random.default_rng(size)
    if size > 1000 and name in ("a scan over itself", "updated in place"):
        size = 41  # the square of it, and as many steps
    args = [jnp.asarray(rng.uniform(-1, 1, size).astype(np.float32)) for _ in range(3)]
    f = SHARED[name]
    wanted = referred(f, args)
    for count in (1, 2):
        with threads(count):
            jitted = toile.jit(lambda *xs: f(*xs), donate_argnums=donated)
            kept = []
            for _ in range(3):
                given = [jnp.array(x) for x in args]
                kept.append((given, toile.tree_util.tree_leaves(jitted(*given))))
        for given, outs in kept:
            for (want, _), got in zip(wanted, outs, strict=True):
                close(got, want, 1e-4 if "slope" in name else 2e-5, name)
            for i, x in enumerate(given):
                assert i in donated or (np.asarray(x) == np.asarray(args[i])).all(), name
