"""Functions with while loops and branches, each with several arguments of the same shapes."""

import numpy as np

import toile
import toile.numpy as jnp
from tests.gpu.test_programs import normal
from toile import lax

COUNTS = [np.int32(n) for n in (3, 0, 1, 2, 7, 40)]


def counted(n, x):
    """As many turns as are asked for."""
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 1.5 + c[0]), (0, x))


def exchanged(n, x, y):
    """Carries that change places at each turn."""
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[2] + 1, c[1]), (0, x, y))


def kept(n, x, y):
    """Carries that no turn changes, one of them in an inner loop only."""
    def outer(c):
        i, x, y, z = c
        z, y = lax.while_loop(lambda d: d[0].sum() < 9, lambda d: (d[0] + d[1] ** 2, d[1]), (z, y))
        return i + 1, x, y * 0.5 + x, z * 0.25

    return lax.while_loop(lambda c: c[0] < n, outer, (0, x, y, jnp.zeros(5)))


def nested(n, x):
    def outer(c):
        i, x = c
        x = lax.while_loop(lambda d: d[0] < i, lambda d: (d[0] + 1, d[1] * 2 - 1), (0, x))[1]
        return i + 1, x + 1

    return lax.while_loop(lambda c: c[0] < n, outer, (0, x))


def in_scan(n, x):
    def step(c, i):
        c = lax.while_loop(lambda d: d[0] < n + i, lambda d: (d[0] + 1, d[1] * 1.25), (0, c))[1]
        return c, c.sum()

    return lax.scan(step, x, jnp.arange(3))


def scan_inside(n, x):
    def body(c):
        i, x = c
        x, ys = lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x, jnp.stack([x, x * 2, x * 3]))
        return i + 1, x * 0.5 + ys.sum(0) * 0.1

    return lax.while_loop(lambda c: c[0] < n, body, (0, x))


def written(n, x):
    """A carry that is updated in place beside one that is not."""
    def body(c):
        i, x, total = c
        return i + 1, lax.dynamic_update_index_in_dim(x, i * 2.0, i % x.shape[0], 0), total + i

    return lax.while_loop(lambda c: c[0] < n, body, (0, x, 0.0))


def gradient(checkpoints):
    """The gradient of a loop, which runs it again and visits its turns in reverse."""
    def loss(x, n):
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.25 + x * 0.5)
        return lax.while_loop(lambda c: c[0] < n, body, (0, x), checkpoints=checkpoints)[1].sum()

    return lambda n, x: toile.grad(loss)(x, n)


def chosen(i, x):
    return lax.switch(i, [jnp.sin, jnp.cos, lambda x: x, lambda x: x[::-1] + 1], x)


def chosen_inside(n, x):
    def body(c):
        i, x = c
        return i + 1, lax.cond(i % 3 == 1, lambda x: x * 2, lambda x: x + 1, x)

    return lax.while_loop(lambda c: c[0] < n, body, (0, x))


def loop_in_branch(n, x):
    more = lambda x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 0.5), (0, x))[1]
    return lax.cond(n % 2 == 1, more, jnp.cos, x) * 2


def unmoved(n, x):
    """Branches that give an operand, a constant and something twice."""
    return lax.cond(n > 2, lambda x: (x, x, jnp.zeros(3)), lambda x: (x * 2, x, jnp.ones(3)), x)


def many(n, xs):
    """More carries than one launch copies."""
    return lax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, [x + i for i, x in enumerate(c[1])]), (0, xs))


def through_turns(n, x):
    """Derivatives through turns that are counted, with a loop that is not beside them."""
    def loss(x):
        return lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * (i + 1), x).sum()

    return toile.value_and_grad(loss)(lax.fori_loop(0, n, lambda i, c: c + i, x))


def products(n, x):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ x)), (0, x))


def _with(counts, *others):
    return [(n, *others) for n in counts]


INDICES = [np.int32(i) for i in (0, 1, 2, 3, -5, 9)]
FUNCTIONS = {
    "while": (counted, _with(COUNTS, normal(6))),
    "a while of many blocks": (counted, _with(COUNTS[:3], normal(70, 333))),
    "a while of odd bytes": (
        lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1][::-1]), (0, x)),
        _with(COUNTS, np.arange(21, dtype=np.int8))),
    "carries that change places": (exchanged, _with(COUNTS, normal(5), normal(5, seed=1))),
    "carries that do not change": (kept, _with(COUNTS[:5], normal(5), normal(5, seed=1))),
    "a while in a while": (nested, _with(COUNTS[:5], normal(6))),
    "a while in a scan": (in_scan, _with(COUNTS[:5], normal(6))),
    "a scan in a while": (scan_inside, _with(COUNTS[:5], normal(6))),
    "a carry written in place": (written, _with(COUNTS, normal(7))),
    "switch": (chosen, _with(INDICES, normal(9))),
    "cond": (lambda i, x: lax.cond(i > 1, jnp.sin, jnp.cos, x), _with(INDICES, normal(9))),
    "a cond in a while": (chosen_inside, _with(COUNTS[:5], normal(9))),
    "a while in a cond": (loop_in_branch, _with(COUNTS[:5], normal(9))),
    "branches that compute nothing": (unmoved, _with(COUNTS[:5], normal(9))),
    "many carries": (many, _with(COUNTS[:4], [normal(2 + i % 3) for i in range(130)])),
    "derivatives through counted turns": (through_turns, _with(COUNTS[:5], normal(9))),
    "gradient of a while": (gradient(64), _with(COUNTS, normal(9))),
    "gradient of a while that is repeated": (gradient(2), _with(COUNTS, normal(9))),
    "products": (products, _with(COUNTS[:5], 0.3 * normal(8, 8))),
}
