"""Random programs: compiled code against the reference backend, which fuses nothing.

A program is plain data, a list of (step, numbers); a step chooses its operands, axes and sizes from
what there is by its numbers, so that every list is a program. Floats never decide anything, so that
rounding cannot change which way a program goes. Each program runs with 1 and 2 threads, with a few
results and with all of them, which changes what fuses. TOILE_TEST_ALL=1 makes 25 times as many.
"""

import hashlib
import os

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.nn
import toile.numpy as jnp
from tests.closeness import is_inexact, spacing
from toile import lax
from toile.engine.program import Var
from toile.platforms import reference
from toile.targets.llvm.thread_count import threads

pytest.importorskip("llvmlite")

ALL = os.environ.get("TOILE_TEST_ALL", "0") not in ("", "0")
EXAMPLES = 1000 if ALL else 40
HEALTH = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large,
          hypothesis.HealthCheck.large_base_example]
FLOATS = ("float32", "float64", "bfloat16", "float16")
MOST = 1 << 17  # elements of a value


class Choice:
    """The numbers of a step, taken one after another, each as one of so many."""

    def __init__(self, numbers):
        self.numbers, self.at = numbers, 0

    def __call__(self, n):
        number = self.numbers[self.at % len(self.numbers)] + self.at // len(self.numbers)
        self.at += 1
        return number % n if n > 0 else 0

    def axes(self, x):
        """Some axes of a value, at least one if it has any."""
        kept = self(1 << x.ndim) or (1 << x.ndim) - 1
        return tuple(a for a in range(x.ndim) if kept >> a & 1)


def bounded(x):
    """Values that stay moderate, so that errors do not grow."""
    return x / (1 + abs(x))


def floating(values, c):
    """A float value, a late one more likely."""
    found = [v for v in values if jnp.issubdtype(v.dtype, jnp.floating)]
    return found[-1 - min(c(6), len(found) - 1)]


def whole(values, c):
    found = [v for v in values if v.dtype == jnp.int32]
    return found[-1 - min(c(4), len(found) - 1)]


def fitted(y, shape):
    """A value cut and broadcast to a shape."""
    y = y.reshape((1,) * (len(shape) - y.ndim) + y.shape) if y.ndim < len(shape) else y
    while y.ndim > len(shape):
        y = y[0] if y.shape[0] else jnp.zeros(y.shape[1:], y.dtype)
    for axis, n in enumerate(shape):
        if y.shape[axis] != n:
            y = lax.slice_in_dim(y, 0, n, axis=axis) if y.shape[axis] > n else lax.slice_in_dim(
                y, 0, min(1, y.shape[axis]), axis=axis)
    if any(m == 0 < n for m, n in zip(y.shape, shape)):
        return jnp.zeros(shape, y.dtype)
    return jnp.broadcast_to(y, shape)


def small(x):
    """A value cut to a size that other steps can enlarge."""
    for axis in range(x.ndim):
        if x.size > MOST // 16:
            x = lax.slice_in_dim(x, 0, min(x.shape[axis], 5), axis=axis)
    return x


# ------------------------------------------------------------------------------------------ steps


def unary(values, c):
    x = floating(values, c)
    return (jnp.sin, jnp.tanh, lambda x: jnp.exp(-x * x), lambda x: x / (1.5 + x**2), jnp.cos,
            lambda x: jnp.sqrt(1 + abs(x)) - jnp.log1p(x**2), toile.nn.gelu, toile.nn.sigmoid,
            lambda x: bounded(x) ** 3, toile.nn.softplus, lambda x: -x)[c(11)](x)


def binary(values, c):
    x, y = floating(values, c), floating(values, c)
    y = fitted(y, x.shape)
    return (lambda x, y: x + y * 0.5, lambda x, y: bounded(x) * y, lambda x, y: x / (2 + abs(y)),
            lambda x, y: x - bounded(y), jnp.arctan2, lambda x, y: jnp.logaddexp(x, y) / 2)[c(6)](
                x, y)


def scaled_integers(values, c):
    n = whole(values, c)
    return (n + whole(values, c).sum(), n * 3 - 7, n ^ (n >> 2), n % 5, jnp.maximum(n, 2),
            jnp.where(n > 1, n, -n), jnp.clip(n, -4, 4), n // 3)[c(8)]  # fmt: skip


def to_float(values, c):
    return jnp.sin(whole(values, c).astype(FLOATS[c(4)]) / 4)


def cast(values, c):
    return floating(values, c).astype(FLOATS[c(4)])


def select(values, c):
    x, y = floating(values, c), floating(values, c)
    y = fitted(y, x.shape)
    kept = fitted(whole(values, c), x.shape) % 3 > 0
    return jnp.where(kept, x, y) if c(2) else jnp.where(kept, x, 0.25)


def reduced(values, c):
    x = floating(values, c)
    axes, keep = c.axes(x), bool(c(2))
    if 0 in x.shape:
        return jnp.sum(x, axes, keepdims=keep)
    how = (jnp.sum, jnp.mean, jnp.var, jnp.max, jnp.min, toile.nn.logsumexp)[c(6)]
    return bounded(how(x, axis=axes, keepdims=keep))


def normalized(values, c):
    x = floating(values, c)
    if not x.ndim or 0 in x.shape:
        return x
    axis = c(x.ndim)

    def centred(x):
        y = x - jnp.mean(x, axis, keepdims=True)
        return y * lax.rsqrt(jnp.mean(y * y, axis, keepdims=True) + 0.1)

    return (lambda x: toile.nn.softmax(x, axis), lambda x: bounded(toile.nn.log_softmax(x, axis)),
            centred)[c(3)](x)


def counted(values, c):
    x = floating(values, c)
    if not x.ndim:
        return x
    n = jnp.cumsum(fitted(whole(values, c), x.shape) % 7, axis=c(x.ndim))
    return x + 0.1 * jnp.sin(n.astype(x.dtype))


def cumulated(values, c):
    x = floating(values, c)
    if not x.ndim:
        return x
    return bounded((lax.cumsum, lax.cummax, lax.cumlogsumexp)[c(3)](x, c(x.ndim), bool(c(2))))


def reshaped(values, c):
    x = floating(values, c)
    kind = c(4)
    if kind == 0 or x.ndim < 2:
        return x.reshape(-1)
    if kind == 1:
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    if kind == 2 and x.shape[-1] and x.shape[-1] % 2 == 0:
        return x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
    return jnp.expand_dims(x, c(x.ndim + 1)) if x.ndim < 4 else x


def transposed(values, c):
    x = floating(values, c)
    order = list(range(x.ndim))
    for i in range(x.ndim):
        j = c(x.ndim)
        order[i], order[j] = order[j], order[i]
    return x.transpose(order)


def sliced(values, c):
    x = floating(values, c)
    at = []
    for n in x.shape:
        start = c(3)
        at.append((slice(None), slice(min(start, n - 1) if n else 0, None), slice(None, None, -1),
                   slice(start, None, 2) if n > 4 else slice(None))[c(4)])
    return x[tuple(at)]


def joined(values, c):
    x = small(floating(values, c))
    if not x.ndim:
        return jnp.stack([x, x * 0.5])
    axis = c(x.ndim)
    y = fitted(floating(values, c), x.shape).astype(x.dtype)
    return jnp.concatenate([x, y, x] if c(2) else [y[:1] if axis == 0 else y, x], axis)


def padded(values, c):
    x = small(floating(values, c))
    config = [((0, 0, 0), (1, 0, 0), (2, 1, 0), (0, 1, 1), (-1, 2, 0))[c(5)] for _ in x.shape]
    config = [(max(lo, -n), hi, inside) for (lo, hi, inside), n in zip(config, x.shape)]
    return lax.pad(x, jnp.asarray(0.5, x.dtype), config)


def spread(values, c):
    x = small(floating(values, c))
    if c(2) or x.ndim > 3:
        return x + jnp.zeros((2, *x.shape[1:]) if x.shape[:1] == (1,) else x.shape, x.dtype)
    return jnp.broadcast_to(x[..., None], (*x.shape, 3)) if c(2) else jnp.broadcast_to(
        x, (3, *x.shape))


def matmul(values, c):
    x, y = floating(values, c), floating(values, c)
    x = x.reshape(1, -1)[:, :64] if x.ndim < 2 else x
    width = x.shape[-1]
    y = fitted(y, (3 + c(9), width)).astype(x.dtype)
    forms = ("...k,jk->...j", "...k,jk->j...", "...k,jk->...kj")[: 2 + (x.size < 999)]
    product = jnp.einsum(forms[c(len(forms))], x, y)
    return bounded(product / max(1, width) ** 0.5)


def batched(values, c):
    x = small(floating(values, c))
    if x.ndim < 3:
        return x
    return bounded(jnp.einsum("b...ij,b...kj->b...ik", x, jnp.flip(x, -1)))


def gathered(values, c):
    x, n = floating(values, c), whole(values, c)
    if not x.ndim or 0 in x.shape:
        return x
    axis, index = c(x.ndim), n.reshape(-1)[:9]
    return jnp.take(x, index % x.shape[axis] if c(2) else index, axis=axis, mode="clip")


def scattered(values, c):
    x, n = floating(values, c), whole(values, c)
    if not x.ndim or 0 in x.shape:
        return x
    index = n.reshape(-1)[:7] % (x.shape[0] + 1)  # the last is out of bounds, and dropped
    y = fitted(floating(values, c), (len(index), *x.shape[1:])).astype(x.dtype)
    return bounded(x.at[index].add(y) if c(2) else x.at[index[:1]].set(y[:1]))


def moved(values, c):
    x, n = floating(values, c), whole(values, c)
    if not x.ndim or 0 in x.shape:
        return x
    size = [max(1, k - c(3)) for k in x.shape]
    start = [n.reshape(-1)[i % max(1, n.size)] if n.size else 0 for i in range(x.ndim)]
    y = lax.dynamic_slice(x, start, size)
    return lax.dynamic_update_slice(x, y * 0.5, [0] * x.ndim) if c(2) else y


def ordered(values, c):
    x = floating(values, c)
    if not x.ndim or 0 in x.shape:
        return x
    axis = c(x.ndim)
    keys = (lax.broadcasted_iota(jnp.int32, x.shape, axis) * 7 + 3) % 11
    return lax.sort((keys, x), dimension=axis, num_keys=1)[1]


def noisy(values, c):
    x, n = floating(values, c), whole(values, c)
    key = toile.random.key(n.sum() if n.size else 3)
    if c(2):
        kept = toile.random.bits(key, x.shape, jnp.uint32) % 4 > 0
        return jnp.where(kept, x, jnp.zeros((), x.dtype))
    return x + toile.random.uniform(key, x.shape, jnp.float32).astype(x.dtype)


def decided(values, c):
    x, n = floating(values, c), whole(values, c)
    y = fitted(floating(values, c), x.shape).astype(x.dtype)
    if c(2):
        return lax.cond(n.sum() % 2 == 0, lambda: jnp.sin(x) * y, lambda: x - 0.5)
    branches = [lambda x, y: jnp.cos(x), lambda x, y: x * 0.5 + y, lambda x, y: y]
    return lax.switch(n.sum() % 3, branches, x, y)


def scanned(values, c):
    x = floating(values, c)
    if not x.ndim or x.shape[0] > 64:
        x = small(x)[:7] if x.ndim else x[None]
    w, kind = floating(values, c), c(3)
    w = fitted(w, x.shape[1:]).astype(x.dtype)

    def step(carry, row):
        i, total = carry
        new = jnp.tanh(total * 0.7 + row * w)
        if kind == 1:
            new = jnp.where(i % 2 == 0, new, total)
        return (i + 1, new), (new * row if kind else total)

    (i, last), kept = lax.scan(step, (jnp.int32(0), jnp.zeros_like(w)), x, reverse=bool(c(2)))
    return kept + last + 0.1 * i.astype(x.dtype)


def repeated(values, c):
    x = floating(values, c)
    return lax.fori_loop(0, 1 + c(4), lambda i, a: jnp.sin(a) + 0.1 * i.astype(a.dtype), x)


def until(values, c):
    """A while loop; it is not there for derivatives in reverse."""
    x, n = floating(values, c), whole(values, c)
    n = n.sum() % 5
    return lax.stop_gradient(lax.while_loop(lambda s: s[0] < n + 1, lambda s: (
        s[0] + 1, jnp.cos(s[1])), (jnp.int32(0), lax.stop_gradient(x)))[1])


def mapped(values, c):
    x = floating(values, c)
    if not x.ndim:
        return x
    axis = c(x.ndim)
    return toile.vmap(lambda row: row * jnp.tanh(row.sum()), axis, axis)(x)


def slope(values, c):
    return bounded(toile.grad(lambda a: jnp.sum(jnp.sin(a) * bounded(a)))(floating(values, c)))


def kept(values, c):
    return toile.checkpoint(lambda a: jnp.sin(jnp.tanh(a) * 2))(floating(values, c))


STEPS = {f.__name__: f for f in (
    unary, binary, scaled_integers, to_float, cast, select, reduced, normalized, counted,
    cumulated, reshaped, transposed, sliced, joined, padded, spread, matmul, batched, gathered,
    scattered, moved, ordered, noisy, decided, scanned, repeated, until, mapped, slope, kept,
)}  # fmt: skip
INPUTS = (
    ((3, 4), (2, 4, 5), (7,)), ((5, 1), (1, 6), ()), ((2, 3, 4, 2), (33,), (4, 2)),
    ((0, 3), (3,), (2, 3)), ((1, 1), (1,), (1, 1, 1)), ((13, 17), (17,), (13, 1)),
    ((260, 257), (257,), (260, 1)), ((2, 130, 64), (64, 10), (70001,)),
)  # fmt: skip
MODES = ("plain", "grad", "vmap", "donate", "jvp")


def arguments(case, dtype):
    """Floats, and the whole numbers that decide."""
    rng = np.random.default_rng(case)
    made = getattr(ml_dtypes, dtype, dtype)
    floats = [rng.uniform(-1, 1, s).astype(made) for s in INPUTS[case]]
    return [*floats, rng.integers(-3, 8, (3, 4)).astype(np.int32)]


def run(steps, everything, *inputs):
    """The last values of a program, or all of them."""
    values = list(inputs)
    for name, numbers in steps:
        new = STEPS[name](values, Choice(numbers))
        values.append(small(new) if new.size > MOST else new)
    made = values[len(inputs):]
    return made if everything else made[-2:]


def staged(steps, everything, mode):
    """The program under a transformation."""
    program = lambda *xs: run(steps, everything, *xs)

    def loss(*xs):
        outs = [o for o in program(*xs) if jnp.issubdtype(o.dtype, jnp.floating)]
        return sum((jnp.mean(o.astype(jnp.float32)) if o.size else 0.0 for o in outs), 0.0)

    if mode == "grad":
        return lambda *xs: toile.value_and_grad(loss, (0, 1, 2))(*xs)
    if mode == "vmap":
        return toile.vmap(program, in_axes=(0, None, -1, None))
    if mode == "jvp":
        return lambda *xs: toile.jvp(lambda *fs: program(*fs, xs[-1]), xs[:-1],
                                     tuple(jnp.cos(x) for x in xs[:-1]))
    return program


def batch(args, mode):
    """Two of the mapped operands."""
    if mode != "vmap":
        return args
    first, second, third, n = args
    return [np.stack([first, first[::-1] if first.ndim else first]), second,
            np.stack([third, -third], -1), n]


# How many units in the last place of the coarsest dtype a result comes from it may be off, relative
# to the largest of its elements: errors grow along a program.
SLACK = {"float64": 256, "float32": 256, "float16": 48, "bfloat16": 16}
STEEP = 8  # times as much with derivatives


def close(got, want, tolerance, what):
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), what
    if not want.dtype.itemsize:  # a tangent of integers
        return
    if not is_inexact(want.dtype):
        np.testing.assert_array_equal(got, want, what)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.1)
    np.testing.assert_allclose(got, want, tolerance, tolerance * scale, err_msg=what)


def tolerances(program):
    """How far each result may be off: by the coarsest dtype that it comes through."""
    def own(v):
        name = getattr(v.aval.dtype, "name", "")
        return SLACK[name] * spacing(v.aval.dtype) if name in SLACK else 0.0

    found = {v: own(v) for v in program.inputs}
    for e in program.equations:
        given = max((found.get(a, 0.0) for a in e.ins if isinstance(a, Var)), default=0.0)
        found.update((o, max(given, own(o))) for o in e.outs)
    return [found.get(o, 0.0) if isinstance(o, Var) else 0.0 for o in program.outputs]


def referred(f, args):
    """Results of the Program as it is traced, one operation after another, and tolerances."""
    closed = toile.make_jaxpr(f)(*args)
    raws = [np.asarray(x) for x in (*closed.consts, *args)]
    outs = reference.run(closed.program, raws, reference.Executable)
    return list(zip(outs, tolerances(closed.program), strict=True))


def spread_out(count, *salt):
    """Numbers below 64 that look random: hypothesis likes small ones, and the same again."""
    return tuple(b % 64 for b in hashlib.blake2b(repr(salt).encode(), digest_size=count).digest())


def program_of(mode, number, numbers):
    """Steps, inputs, dtype and mode."""
    steps = []
    for i, n in enumerate(numbers):
        which, *choices = spread_out(7, mode, i, n)
        steps.append((sorted(STEPS)[which % len(STEPS)], tuple(choices)))
    case, dtype = spread_out(2, mode, number, len(numbers))
    return tuple(steps), case % len(INPUTS), FLOATS[dtype % len(FLOATS)], mode


NUMBERS = st.integers(0, (1 << 32) - 1)


def programs(mode):
    return st.builds(program_of, st.just(mode), NUMBERS,
                     st.lists(NUMBERS, min_size=2, max_size=12))  # fmt: skip


def check(steps, case, dtype, mode):
    """The program compiled with some results and all, for 1 and 2 threads; runs repeat."""
    args = batch([jnp.asarray(x) for x in arguments(case, dtype)], mode)
    args = [jnp.asarray(x) for x in args]
    donated = (0, 1, 2) if mode == "donate" else ()
    steep = STEEP if mode in ("grad", "jvp") else 1
    for everything, counts in ((False, (1, 2)), (True, (2,))):
        f = staged(steps, everything, mode)
        wanted = referred(f, args)
        for count in counts:
            jitted = toile.jit(lambda *xs, f=f: f(*xs), donate_argnums=donated)
            with threads(count):
                runs = [toile.tree_util.tree_leaves(jitted(*[jnp.array(x) for x in args]))
                        for _ in range(3)]
            for k, ((want, tolerance), *each) in enumerate(zip(wanted, *runs, strict=True)):
                what = f"result {k}, {count} threads, {'all' if everything else 'few'} results"
                close(each[0], want, tolerance * steep, what)
                for other in each[1:]:
                    assert np.asarray(other).tobytes() == np.asarray(each[0]).tobytes(), what


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("mode", MODES)
def test_programs(mode):
    @hypothesis.settings(max_examples=EXAMPLES // len(MODES), suppress_health_check=HEALTH,
                         phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink])
    @hypothesis.given(programs(mode))
    def agrees(program):
        with toile.enable_x64(True):
            check(*program)

    agrees()


# Programs that were once compiled wrong, and what they met.
FOUND = {
    "sines of two precisions in one kernel": (
        (("cast", (40, 8, 10, 52, 52, 55)), ("unary", (18, 47, 16, 41, 49, 14)),
         ("slope", (19, 31, 49, 15, 8, 10))), 0, "float64", "jvp"),
    "tangents of integers, which have no bytes": (
        (("scaled_integers", (58, 36, 31, 8, 4, 19)),), 0, "float64", "jvp"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    with toile.enable_x64(True):
        check(*FOUND[name])


def test_every_step_is_used():
    """Each step, dtype and set of inputs is in some program of the sample."""
    seen = set()

    @hypothesis.settings(max_examples=20, derandomize=True, deadline=None, database=None,
                         suppress_health_check=HEALTH)
    @hypothesis.given(st.tuples(*map(programs, MODES)))
    def collect(each):
        for steps, case, dtype, _ in each:
            seen.update((case, dtype, *[name for name, _ in steps]))

    collect()
    assert seen == {*STEPS, *FLOATS, *range(len(INPUTS))}
