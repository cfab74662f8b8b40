"""Long loops as graphs of some iterations: on the host, with chunks of a few."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.gpu import host_driver
from tests.gpu.test_conditional import Held
from toile import lax
from toile.engine.trees import flatten
from toile.platforms.gpu import chunks, execution, issuer, memory


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def step(c, x):
    c = jnp.tanh(c * 0.5 + x)
    return c, c * 2 + jnp.sum(x)


def recurrent(w, xs):
    return lax.scan(lambda c, x: step(c @ w, x), xs[0] * 0, xs)


def nested(xs):
    def outer(c, x):
        d, ys = lax.scan(step, c, x)
        return d + 1, ys[::3] - c

    return lax.scan(outer, xs[0, 0], xs)


def branching(xs):
    def body(c, x):
        c = lax.cond(x[0] > 0, lambda c: jnp.sin(c) + x, lambda c: c * 0.5 - x, c)
        return c, c[:2]

    return lax.scan(body, xs[0], xs)


def waiting(xs):
    """The first loop has a step on the host."""
    first = lax.scan(lambda c, x: (c + lax.linalg.hessenberg(jnp.outer(x, c))[0][0], c), xs[0], xs)
    return first, lax.scan(step, xs[0], xs)


def stacked(xs, reverse=False):
    """The carries before and after each turn, which share the rows of one array."""
    def body(c, x):
        new = jnp.tanh(c * 0.5 + x)
        return new, (c, new)

    last, (before, after) = lax.scan(body, xs[0], xs, reverse=reverse)
    return last + 1, before - after, after * 2


PROGRAMS = {
    "rows of carries": (stacked, lambda n: (normal(n, 4),)),
    "rows of carries, reverse": (lambda xs: stacked(xs, True), lambda n: (normal(n, 4),)),
    "forward": (lambda xs: lax.scan(step, xs[0], xs), lambda n: (normal(n, 4),)),
    "reverse": (lambda xs: lax.scan(step, xs[0], xs, reverse=True), lambda n: (normal(n, 4),)),
    "products": (recurrent, lambda n: (normal(4, 4), normal(n, 4))),
    "no slices": (lambda x: lax.fori_loop(0, 41, lambda i, c: jnp.sin(c) + i, x),
                  lambda n: (normal(n),)),
    "broadcast slices": (lambda x: lax.scan(step, x, jnp.broadcast_to(x, (33, *x.shape))),
                         lambda n: (normal(n),)),
    "part of a row": (lambda xs: lax.scan(step, xs[0, 2:5], xs[:, 2:5]), lambda n: (normal(n, 7),)),
    "several": (lambda xs: lax.scan(lambda c, x: ((step(c[0], x[0])[0], c[1] + x[1][0]), c),
                                    (xs[0], xs[0, 0]), (xs, xs[:, ::-1])),
                lambda n: (normal(n, 4),)),
    "gradient": (toile.grad(lambda w, xs: recurrent(w, xs)[1].sum(), (0, 1)),
                 lambda n: (normal(4, 4), normal(n, 4))),
    "updated in place": (lambda xs: lax.fori_loop(
        0, 37, lambda i, c: c.at[i % 5].add(xs[i % 3]), jnp.zeros((5, 4))),
        lambda n: (normal(n, 4),)),
    "nested": (nested, lambda n: (normal(3, n, 4),)),
    "many short ones": (nested, lambda n: (normal(n, 4, 3),)),
    "branching": (branching, lambda n: (normal(n, 4),)),
    "waiting": (waiting, lambda n: (normal(n, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("length", [8, 21, 40])
@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks(name, length, monkeypatch):
    fun, make = PROGRAMS[name]
    args = make(length)
    monkeypatch.setattr(chunks, "LEAST_NODES", 4)
    monkeypatch.setattr(chunks, "NODES", 8)
    monkeypatch.setattr(execution, "MOST_NODES", 5)
    wanted = [np.asarray(x) for x in flatten(toile.jit(lambda *xs: fun(*xs))(*args))[0]]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(fun, args, device)
        for _ in range(3):
            for a, b in zip(held(args), wanted, strict=True):
                nearly_equal(a, b)
        graphs = made.graphs_launched
        assert graphs and not held.executable.graphs
        moved = [device.allocate(n) for n in held.executable.out_bytes]  # results elsewhere
        held.rooms, held.pointers[len(held.leaves):] = moved, [p for _, p in moved]
        for a, b in zip(held(args), wanted, strict=True):
            nearly_equal(a, b)
        assert made.graphs_launched > graphs
        held.executable._forget()
        assert not held.executable.issuer.chunks and not any(made.graphs.values())


def test_first_call_of_a_loop_that_fits_in_a_graph(monkeypatch):
    """It is issued in chunks; the graph of the second call replaces these."""
    xs = normal(1500, 4)
    wanted = [np.asarray(x) for x in toile.jit(lambda xs: lax.scan(step, xs[0], xs))(xs)]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(lambda xs: lax.scan(step, xs[0], xs), (xs,), device)
        held((xs,))
        assert made.graphs_launched >= 1 and held.executable.issuer.chunks
        for a, b in zip(held((xs,)), wanted, strict=True):
            nearly_equal(a, b)
        assert len(held.executable.graphs) == 1 and not held.executable.issuer.chunks


def test_another_arena(monkeypatch):
    """Temporaries of the body are in the arena, which other Programs may move."""
    xs = normal(30, 6, 6)
    fun = lambda xs: lax.map(lambda x: jnp.sort(jnp.sort(x, 0) + x, 1), xs)
    monkeypatch.setattr(chunks, "LEAST_NODES", 4)
    monkeypatch.setattr(chunks, "NODES", 8)
    monkeypatch.setattr(execution, "MOST_NODES", 5)
    wanted = np.asarray(toile.jit(fun)(xs))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        held = Held(fun, (xs,), device)
        for size in (0, 1 << 20):
            memory.arena_of(device).of(size)
            nearly_equal(held((xs,))[0], wanted)
        (found,) = held.executable.issuer.chunks.values()
        assert len(found.graphs) == 2


def test_captures_that_fail(monkeypatch):
    """They are tried again, and then no longer."""
    xs = normal(1500, 4)
    wanted = [np.asarray(x) for x in toile.jit(lambda xs: lax.scan(step, xs[0], xs))(xs)]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(lambda xs: lax.scan(step, xs[0], xs), (xs,), device)
        monkeypatch.setattr(execution, "MOST_NODES", 5)
        tried = []

        def fails(self, *args):
            tried.append(1)
            raise RuntimeError("another thread")

        monkeypatch.setattr(issuer.Issuer, "_chunk", fails)
        for _ in range(5):
            for a, b in zip(held((xs,)), wanted, strict=True):
                nearly_equal(a, b)
        assert len(tried) == issuer.TRIES and made.graphs_launched == 0


def test_no_memory_for_chunks(monkeypatch):
    xs = normal(1500, 4)
    wanted = [np.asarray(x) for x in toile.jit(lambda xs: lax.scan(step, xs[0], xs))(xs)]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(lambda xs: lax.scan(step, xs[0], xs), (xs,), device)

        def full(*args):
            raise MemoryError

        monkeypatch.setattr(issuer, "Chunks", full)
        monkeypatch.setattr(execution, "MOST_NODES", 5)
        for a, b in zip(held((xs,)), wanted, strict=True):
            nearly_equal(a, b)
        assert made.graphs_launched == 0


def test_sizes():
    class Body:
        steps = ()

    class Step:
        trips, slices, body = 100_000, [(None, None, 40), (None, None, -80)], Body

    assert chunks.turns_of(Step, 4) == 128
    assert chunks.turns_of(Step, 5000) == 2
    assert chunks.turns_of(Step, 20_000) == 0
    Step.slices = [(None, None, 16 << 20)]
    assert chunks.turns_of(Step, 4) == 16
    Step.slices, Step.trips = [], 20
    assert chunks.turns_of(Step, 60) == 8  # at least two chunks
    Step.trips = 5
    assert chunks.turns_of(Step, 1000) == 0
