"""Tiny loops at the smallest ranks: every operation they accept, on rank 0 and on axes of size 1.

A step gets a place `i`, which counts the turns and runs past the end, and its operands: as slices
of each turn, as constants that stay in registers or in memory, and as a carry. Results are those
of the same steps taken one by one, and the loop is one kernel.
"""

import dataclasses

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases_elementwise import ROWS as ELEMENTWISE
from tests.closeness import nearly_equal
from toile import lax
from toile.ad_checkpoint import checkpoint_name
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.operation import Operation
from toile.kernels.tiny import cpu_loops as tiny_loops
from toile.primitives.recurrences import LinearRecurrence
from toile.primitives.shapes import Iota, copy

pytest.importorskip("llvmlite")

TURNS = 4
SHAPES = [(), (1,), (1, 1), (3, 1)]
RANKED = [s for s in SHAPES if s]


def values(shape, dtype="float32", seed=0):
    size = TURNS * int(np.prod(shape))
    x = np.random.default_rng(seed + len(shape)).permutation(256)[:size].reshape(TURNS, *shape)
    x = (x - 100) / 64
    if dtype == "bool":
        return jnp.asarray(x > 0)
    return jnp.asarray(64 * x if dtype == "int32" else x).astype(dtype)


def at(i, x, rank=None):
    """The same place along each axis."""
    return (i,) * (x.ndim if rank is None else rank)


def batched_gather(i, x):
    return toile.vmap(lambda row: jnp.take(row, i), in_axes=-1)(x)


def batched_scatter(i, x):
    return toile.vmap(lambda row: row.ravel().at[i].add(1))(x)


def places(i, *shape):
    """Places of a shape: the first is `i`."""
    return i - jnp.arange(int(np.prod(shape))).reshape(shape)


def inner_scan(i, x):
    c, ys = lax.scan(lambda c, _: (c * x + 1, c), x, None, length=2, reverse=True)
    return c, ys, lax.scan(lambda c, y: (c + y, ()), i, jnp.stack([i, i]))[0]


def inner_while(i, x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (i, x))


BLOCKS = {
    "dynamic_slice": lambda i, x: lax.dynamic_slice(x, at(i, x), (1,) * x.ndim),
    "dynamic_slice whole": lambda i, x: lax.dynamic_slice(x, at(i, x), x.shape),
    "dynamic_update_slice": lambda i, x: lax.dynamic_update_slice(
        x, jnp.full((1,) * x.ndim, 7, x.dtype), at(i, x)),
    "dynamic_update_slice whole": lambda i, x: lax.dynamic_update_slice(x, x + 1, at(i, x)),
}
INDEXED = {
    "take": lambda i, x: jnp.take(x, i),
    "take clip": lambda i, x: jnp.take(x, i, mode="clip"),
    "take 1": lambda i, x: jnp.take(x, places(i, 1)),
    "take 1 1": lambda i, x: jnp.take(x, places(i, 1, 1), axis=0),
    "take 2": lambda i, x: jnp.take(x, places(i, 2), axis=-1),
    "all axes": lambda i, x: x[at(i, x)],
    "all axes fill": lambda i, x: x.at[at(i, x)].get(mode="fill", fill_value=5),
    "first axis": lambda i, x: x[i],
    "last axis": lambda i, x: x[..., i],
    "last axis 1": lambda i, x: x[..., places(i, 1)],
    "take_along_axis": lambda i, x: jnp.take_along_axis(x, places(i, *x.shape), 0),
    "batch": batched_gather,
    "batch add": batched_scatter,
    "set": lambda i, x: x.at[at(i, x)].set(9),
    "set clip": lambda i, x: x.at[at(i, x)].set(9, mode="clip"),
    "set first axis": lambda i, x: x.at[i].set(x[0]),
    "set last axis": lambda i, x: x.at[..., places(i, 1)].set(3),
    "add": lambda i, x: x.at[at(i, x)].add(x[at(i, x)]),
    "add 2": lambda i, x: x.at[places(i, 2)].add(1),
    "mul": lambda i, x: x.at[i].mul(2), "sub": lambda i, x: x.at[..., i].subtract(2),
    "set min": lambda i, x: x.at[i].min(0), "set max": lambda i, x: x.at[at(i, x)].max(0),
}
RUNNING = {
    "cumsum": lambda i, x: lax.cumsum(x, x.ndim - 1), "cumprod": lambda i, x: lax.cumprod(x, 0),
    "cummax": lambda i, x: lax.cummax(x, 0, reverse=True), "cummin": lambda i, x: lax.cummin(x, 0),
    "recurrence": lambda i, x: LinearRecurrence(0)(x, x + 1),
    "shifted": lambda i, x: LinearRecurrence(x.ndim - 1, True, True)(x, x + i),
    "argmax": lambda i, x: jnp.argmax(x, 0), "argmin": lambda i, x: jnp.argmin(x),
}
OTHERS = {
    "sum": lambda i, x: x.sum(), "sum last": lambda i, x: x.sum(tuple(range(x.ndim))[-1:]),
    "prod": lambda i, x: x.prod(), "max": lambda i, x: x.max(), "min": lambda i, x: x.min(),
    "all": lambda i, x: (x > 0).all(), "any": lambda i, x: (x > i).any(),
    "xor": lambda i, x: lax.reduce_xor(x.astype("int32") + i, tuple(range(x.ndim))),
    "bitwise": lambda i, x: (lax.reduce_and(x.astype("int32"), tuple(range(x.ndim))),
                             lax.reduce_or(x.astype("int32"), tuple(range(x.ndim)))),
    "product": lambda i, x: jnp.tensordot(x, x, 0),
    "inner product": lambda i, x: jnp.tensordot(x, x, x.ndim),
    "batched product": lambda i, x: jnp.einsum("...,...->...", x, x + 1),
    "broadcast": lambda i, x: jnp.broadcast_to(x, (2, *x.shape)),
    "concatenate": lambda i, x: jnp.concatenate([x.ravel(), x.ravel()[:1]]),
    "copy": lambda i, x: copy(x) * i,
    "pad": lambda i, x: lax.pad(x, jnp.zeros((), x.dtype), [(1, 0, 1)] * x.ndim),
    "reshape": lambda i, x: (x.reshape(-1), x.reshape((1, *x.shape))),
    "rev": lambda i, x: lax.rev(x, tuple(range(x.ndim))),
    "slice": lambda i, x: lax.slice(x, (0,) * x.ndim, (1,) * x.ndim) * 2,
    "transpose": lambda i, x: lax.transpose(x, tuple(range(x.ndim))[::-1]),
    "squeeze": lambda i, x: jnp.squeeze(x) + i,
    "barrier": lambda i, x: lax.optimization_barrier((x, i)),
    "name": lambda i, x: checkpoint_name(x, "x") * i,
    "stop_gradient": lambda i, x: lax.stop_gradient(x) * 2,
    "iota": lambda i, x: jnp.arange(1) + i,
    "inner scan": inner_scan, "inner while": inner_while,
    "cond": lambda i, x: lax.cond(i > 1, lambda: x, lambda: x[None][0]),
    "switch": lambda i, x: lax.switch(i, [lambda: x, lambda: x + 1, lambda: -x]),
    "switch of one": lambda i, x: lax.switch(i, [lambda: x * 3]),
}
TABLES = ((BLOCKS, SHAPES), (OTHERS, SHAPES), (INDEXED, RANKED), (RUNNING, RANKED))
ROWS = {name: (f, shapes) for table, shapes in TABLES for name, f in table.items()}
# Blocks of each example, with batch axes: other kernels compute them.
BATCHED = ("batch", "batch add", "take_along_axis")


def by_slices(f, xs):
    return lax.scan(lambda i, x: (i + 1, f(i, x)), 0, xs)


def by_constants(f, xs):
    """Arrays that each turn reads: from registers, or from memory where it reads blocks only."""
    return lax.scan(lambda i, _: (i + 1, f(i, turn(xs, 1))), 0, None, length=TURNS)


def by_carry(f, xs):
    step = lambda s, _: ((s[0] + 1, s[1]), f(*s))
    return lax.scan(step, (0, turn(xs, 2)), None, length=TURNS)


def turn(xs, i):
    return [x[i] for x in xs]


WAYS = {"slices": (by_slices, lambda i: i), "constants": (by_constants, lambda i: 1),
        "carry": (by_carry, lambda i: 2)}


def one_by_one(f, xs, of):
    ys = [f(jnp.int32(i), turn(xs, of(i))) for i in range(TURNS)]
    return toile.tree.map(lambda *leaves: jnp.stack(leaves), *ys)


@pytest.fixture
def kernels(monkeypatch):
    """The loops in registers that are made."""
    found, finish = [], tiny_loops._Kernel.finish
    monkeypatch.setattr(tiny_loops._Kernel, "finish",
                        lambda self, *args: (found.append(self), finish(self, *args))[1])
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_ranks(name, way, kernels):
    f, shapes = ROWS[name]
    each = lambda i, xs: [f(i, x) for x in xs]
    run, of = WAYS[way]
    xs = [values(s) for s in shapes]
    _, got = toile.jit(lambda xs: run(each, xs))(xs)
    assert way != "slices" or name in BATCHED or len(kernels) == 1
    want = one_by_one(each, xs, of)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        nearly_equal(g, w, f"{name} {way}", ulps=16)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "complex64", "bool"])
@pytest.mark.parametrize("name", ["take", "first axis", "set first axis", "dynamic_slice",
                                  "cond", "transpose"])
def test_dtypes(name, dtype, kernels):
    f, shapes = ROWS[name]
    each = lambda i, xs: [f(i, x) for x in xs]
    xs = [values(s, dtype) for s in shapes]
    _, got = toile.jit(lambda xs: by_slices(each, xs))(xs)
    assert len(kernels) == 1
    want = one_by_one(each, xs, lambda i: i)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        nearly_equal(g, w, f"{name} {dtype}", ulps=16)


FIRST = {row.op: row for row in reversed(ELEMENTWISE)}


@pytest.mark.parametrize("op", FIRST, ids=lambda op: op.__name__)
def test_elementwise(op, kernels):
    """Each elementwise operation at rank 0, at size 1, and with operands of both kinds."""
    row = FIRST[op]
    dtype = row.dtypes[0]
    with toile.enable_x64(any("64" in (o.dtype or dtype) for o in row.operands)):
        shapes = [[s] * len(row.operands) for s in ((), (1,))]
        if any(len({o.shape for o in r.operands}) > 1 for r in ELEMENTWISE if r.op is op):
            shapes.append([()] + [(1,)] * (len(row.operands) - 1))
        args = [[jnp.asarray(dataclasses.replace(o, shape=(TURNS, *s)).draw(row.rng(), dtype))
                 for o, s in zip(row.operands, each, strict=True)] for each in shapes]
        step = lambda i, xs: [row.run(*x) for x in xs]
        f = lambda args: lax.scan(lambda i, x: (i + 1, step(i, x)), 0, args)
        _, got = toile.jit(f)(args)
        turns = [step(i, [[x[i] for x in each] for each in args]) for i in range(TURNS)]
        want = toile.tree.map(lambda *leaves: jnp.stack(leaves), *turns)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        nearly_equal(g, w, str(row), ulps=64)


def test_take_in_a_scan():
    """A number read at a place that is a number: both of rank 0."""
    f = lambda m: lax.scan(lambda c, _: (c + 1, jnp.take(m, c)), 0, None, length=12)
    count, found = toile.jit(f)(jnp.arange(10.0))
    assert count == 12
    np.testing.assert_array_equal(found, [*range(10), np.nan, np.nan])


def classes(program):
    """The operations in a Program, and in those inside it."""
    for e in program.equations:
        yield type(e.op)
        for inner in e.op.programs():
            yield from classes(inner)


def final(op):
    """The classes of operations of a family."""
    return [c for s in op.__subclasses__() for c in final(s)] or [op]


def test_every_operation_is_in_the_table():
    """What tiny loops accept beyond elementwise operations, which have rows of their own."""
    seen = set()
    for f, shapes in ROWS.values():
        for s in shapes:
            seen.update(classes(toile.make_jaxpr(f)(0, values(s)[0]).jaxpr))
    wanted = {Cond, Iota, Scan, While} | {
        c for c in final(Operation) if c.__module__.startswith("toile.primitives.")
        and (c.by_blocks or c.is_identity or c.moves_elements or c.combines)
        and not c.forwards_operand}  # the operand replaces these
    assert len(wanted) >= 30
    assert wanted - seen == set()
