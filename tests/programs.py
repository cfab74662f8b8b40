"""Random programs as plain data, and their meaning on a namespace.

A program is a list of steps (name, operands, parameter); operands are indices into the list of
values so far, which are matrices. Decisions (predicates, orders, indices) come from integers only,
so that rounding cannot change which way a program goes. `programs()` is a hypothesis strategy.
"""

import numpy as np
from hypothesis import strategies as st

INPUTS = ((3, 4), (2, 4), (4, 3))
COUNT = 4  # integers that decide


def arguments(salt=0, dtype="float64"):
    """Floats for the inputs of every program, and its integers."""
    rng = np.random.default_rng(salt)
    floats = [rng.uniform(-1, 1, shape).astype(dtype) for shape in INPUTS]
    return [*floats, rng.integers(-3, 8, COUNT).astype(np.int32)]


# ---------------------------------------------------------------------------- steps of one operand


def sin(ns, x, n, k):
    return ns.jnp.sin(x)


def tanh(ns, x, n, k):
    return ns.jnp.tanh(x * (k + 1))


def exp(ns, x, n, k):
    return ns.jnp.exp(-x * x)


def rational(ns, x, n, k):
    return x / (1.5 + x**2)


def root(ns, x, n, k):
    return ns.jnp.sqrt(1.0 + abs(x)) - ns.jnp.log1p(x**2)


def transpose(ns, x, n, k):
    return x.T


def reduce(ns, x, n, k):
    reducer = (ns.jnp.sum, ns.jnp.mean, ns.jnp.var, ns.nn.logsumexp)[k % 4]
    return ns.jnp.tanh(reducer(x, axis=k % 2, keepdims=True))


def largest(ns, x, n, k):
    """Largest of well separated values."""
    steps = ns.jnp.arange(x.shape[1], dtype=x.dtype) * (20.0 if k % 2 else -20.0)
    return ns.jnp.max(x + steps, axis=1, keepdims=True) / 20.0


def cumsum(ns, x, n, k):
    return ns.jnp.tanh(ns.lax.cumsum(x, k % 2, reverse=k > 1))


def cumprod(ns, x, n, k):
    return ns.jnp.cumprod(1.0 + 0.1 * x, axis=k % 2) - 1.0


def softmax(ns, x, n, k):
    return ns.nn.softmax(x, axis=k % 2)


def rows(ns, x, n, k):
    """Rows chosen by the integers, out of range ones too."""
    return x[n[: 2 + k % 3] % x.shape[0]] if k % 2 else ns.jnp.take(x, n, axis=0, mode="clip")


def along(ns, x, n, k):
    index = (ns.jnp.arange(x.shape[1]) + n[k]) % x.shape[1]
    return ns.jnp.take_along_axis(x, index[None] + 0 * ns.jnp.arange(x.shape[0])[:, None], axis=1)


def order(ns, x, n, k):
    """Sorted by integer keys that are all different."""
    keys = (ns.jnp.arange(x.shape[0]) * 7 + n[k]) % 11
    return x[ns.jnp.argsort(keys)]


def sort_pair(ns, x, n, k):
    keys = (ns.jnp.arange(x.size).reshape(x.shape) * 5 + n[k] + 20) % 97
    return ns.lax.sort((keys, x), dimension=k % 2, num_keys=1)[1]


def sort_apart(ns, x, n, k):
    """Sorted by values that lie well apart."""
    steps = ns.jnp.arange(x.shape[1]) * 3 % 7 * 20.0
    return ns.jnp.sort(ns.jnp.tanh(x) + steps, axis=1) / 20.0


def window(ns, x, n, k):
    size = (max(1, x.shape[0] - 1), max(1, x.shape[1] - 1))
    return ns.lax.dynamic_slice(x, (n[k], n[(k + 1) % COUNT]), size)


def flip(ns, x, n, k):
    return ns.jnp.concatenate([x[::-1], ns.jnp.pad(x, ((0, 0), (1, 0)))[:1, :-1]])[: x.shape[0]]


def reshape(ns, x, n, k):
    return x.reshape(x.shape[1], x.shape[0])


def cond(ns, x, n, k):
    return ns.lax.cond(n[k] > 2, lambda a: ns.jnp.sin(a) * a, lambda a: a - 0.5, x)


def switch(ns, x, n, k):
    branches = [ns.jnp.cos, lambda a: a * a, lambda a: ns.jnp.zeros_like(a) + a.mean()]
    return ns.lax.switch(n[k] % 4, branches, x)


def scan(ns, x, n, k):
    def step(carry, row):
        new = ns.jnp.tanh(carry * 0.7 + row)
        return new, (new * row if k > 1 else carry)

    last, kept = ns.lax.scan(step, ns.jnp.mean(x, axis=0), x, reverse=bool(k % 2))
    return kept + last


def scan_counted(ns, x, n, k):
    """A scan whose carry has an integer that decides."""
    def step(carry, row):
        i, total = carry
        total = ns.jnp.where(i % 2 == 0, total + row, total * row)
        return (i + 1, total), total

    return ns.jnp.tanh(ns.lax.scan(step, (n[k], ns.jnp.ones_like(x[0])), x)[1])


def loop(ns, x, n, k):
    return ns.lax.fori_loop(0, k + 1, lambda i, a: ns.jnp.sin(a) + 0.1 * i, x)


def mapped(ns, x, n, k):
    return ns.jax.vmap(lambda row: row * ns.jnp.tanh(row.sum()), k % 2, k % 2)(x)


def rematerialized(ns, x, n, k):
    return ns.jax.checkpoint(lambda a: ns.jnp.sin(ns.jnp.tanh(a) * 2))(x)


def jitted(ns, x, n, k):
    return ns.jax.jit(lambda a, i: ns.jnp.where(i > k, a, ns.jnp.sin(a)))(x, n[k])


def slope(ns, x, n, k):
    """A derivative inside the program."""
    return ns.jax.grad(lambda a: ns.jnp.sum(ns.jnp.sin(a) * a))(x)


# ---------------------------------------------------------------------------- steps of two operands


def matmul(ns, x, y, n, k):
    return ns.jnp.tanh(x @ y.T)


def einsum(ns, x, y, n, k):
    return ns.jnp.tanh(ns.jnp.einsum("ij,kj->ki", x, y))


def add(ns, x, y, n, k):
    return x + y[:1] * 0.5


def mul(ns, x, y, n, k):
    return x * y[-1:]


def where(ns, x, y, n, k):
    keep = (ns.jnp.arange(x.shape[1]) + n[k]) % 3 > 0
    return ns.jnp.where(keep, x, y[:1])


def scatter(ns, x, y, n, k):
    index = n[: y.shape[0]] % x.shape[0]
    y = y[: n.shape[0]]
    return ns.jnp.tanh(x.at[index].add(y) if k % 2 else x.at[index[0]].set(y[0]))


def stack(ns, x, y, n, k):
    return ns.jnp.concatenate([x, y])[-5:]


def select(ns, x, y, n, k):
    return ns.lax.cond(n[k] % 2 == 0, lambda: x * y[:1], lambda: x - y[:1])


ONE = (sin, tanh, exp, rational, root, transpose, reduce, largest, cumsum, cumprod, softmax, rows,
       along, order, sort_pair, sort_apart, window, flip, reshape, cond, switch, scan,
       scan_counted, loop, mapped, rematerialized, jitted, slope)  # fmt: skip
TWO = (matmul, einsum, add, mul, where, scatter, stack, select)
STEPS = {f.__name__: f for f in (*ONE, *TWO)}
TWO_NAMES = {f.__name__ for f in TWO}
# Shapes of results that are not the first operand's.
SHAPE = {
    "transpose": lambda k, x: x[::-1],
    "reshape": lambda k, x: x[::-1],
    "reduce": lambda k, x: (1, x[1]) if k % 2 == 0 else (x[0], 1),
    "largest": lambda k, x: (x[0], 1),
    "rows": lambda k, x: (2 + k % 3 if k % 2 else COUNT, x[1]),
    "window": lambda k, x: (max(1, x[0] - 1), max(1, x[1] - 1)),
    "matmul": lambda k, x, y: (x[0], y[0]),
    "einsum": lambda k, x, y: (y[0], x[0]),
    "stack": lambda k, x, y: (min(5, x[0] + y[0]), x[1]),
}


@st.composite
def programs(draw, low=5, high=25):
    """Programs of `low` to `high` steps; every operand exists and has a fitting shape."""
    shapes, steps = list(INPUTS), []
    for _ in range(draw(st.integers(low, high))):
        name = draw(st.sampled_from(sorted(STEPS)))
        # Late values are more likely, so that programs are deep and not only wide.
        first = len(shapes) - 1 - min(draw(st.integers(0, 5)), len(shapes) - 1)
        k = draw(st.integers(0, 3))
        operands = [first]
        if name in TWO_NAMES:
            fitting = [i for i, s in enumerate(shapes) if s[1] == shapes[first][1]]
            operands.append(draw(st.sampled_from(fitting)))
        given = [shapes[i] for i in operands]
        shapes.append(SHAPE[name](k, *given) if name in SHAPE else given[0])
        steps.append((name, tuple(operands), k))
    return tuple(steps)


def run(ns, program, *args):
    """A number: the mean of the last values, on the library of the namespace."""
    *values, n = [ns.jnp.asarray(a) for a in args]
    for name, operands, k in program:
        values.append(STEPS[name](ns, *[values[i] for i in operands], n, k))
    return sum(ns.jnp.mean(v) for v in values[-4:])


def shapes_of(ns, program, *args):
    """The shapes of all values, for a check of `SHAPE`."""
    *values, n = [ns.jnp.asarray(a) for a in args]
    for name, operands, k in program:
        values.append(STEPS[name](ns, *[values[i] for i in operands], n, k))
    return [v.shape for v in values]
