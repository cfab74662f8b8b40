"""Compiling leaves nothing to the garbage collector, which is told so."""

import gc
import weakref

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import lax
from toile.engine import garbage as collecting
from toile.engine.garbage import paused
from toile.engine.program import Program

COUNT = gc.get_freeze_count


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.relu(nn.Dense(8)(x)))
        x = nn.MultiHeadDotProductAttention(2)(x[None])[0]
        return nn.Dropout(0.5, deterministic=False)(x).sum()


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch):
    """As in a process of a user's: tests/conftest.py has frozen what collecting tests made."""
    frozen = COUNT() >= collecting.ITS_OWN
    gc.unfreeze()
    monkeypatch.setattr(collecting, "_others_freeze", False)
    yield
    if frozen:
        gc.freeze()


def network(x):
    key = toile.random.key(0)
    variables = Net().init({"params": key, "dropout": key}, x)
    return toile.grad(lambda v: Net().apply(v, x, rngs={"dropout": key}))(variables)


PROGRAMS = {
    "network": network,
    "scan": toile.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c * r), c), x[0], x)[1].sum()),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x),
    "cond": toile.grad(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda y: y * y, x).sum()),
    "vmap": toile.vmap(lambda x: jnp.cumsum(x / x.sum())),
    "hessian": toile.hessian(lambda x: (x @ x.T).sum() ** 2),
    "checkpoint": toile.grad(lambda x: toile.checkpoint(lambda y: jnp.sin(jnp.exp(y)).sum())(x)),
    "linearize": lambda x: toile.linearize(jnp.sin, x)[1](x),
}


def sample():
    return jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiling_makes_no_garbage(name):
    fun, x = PROGRAMS[name], sample()
    toile.jit(lambda x: fun(x))(x)  # what is made once
    assert made_garbage(lambda: toile.block_until_ready(toile.jit(lambda x: fun(x * 2))(x))) == []


def made_garbage(run):
    """What toile left to the collector."""
    gc.collect()
    gc.freeze()  # what was made earlier, which caches may give up, is not looked at, nor found
    before = set(map(id, gc.get_objects()))
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run()
        gc.collect()
        names = [f"{getattr(x, '__module__', None) or type(x).__module__}."
                 f"{getattr(x, '__qualname__', type(x).__qualname__)}"
                 for x in gc.garbage if id(x) not in before]
        return [n for n in names if n.startswith("toile.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_garbage_is_found():
    assert made_garbage(Cycle) == []  # it is this file's

    def cycle():
        program = Program([], [], [], "cycle")
        program.memo["itself"] = program

    assert made_garbage(cycle) == ["toile.engine.program.Program"]


def test_an_eager_gradient_is_freed_with_its_results():
    gc.collect()
    gc.disable()
    try:
        x, known = sample(), [jnp.exp(sample())]
        seen = weakref.ref(known[0])
        toile.grad(lambda z: (jnp.sin(z) * known[0]).sum())(x)
        known.clear()
        assert seen() is None
    finally:
        gc.enable()


class Cycle:
    def __init__(self):
        self.itself = self


def test_what_was_made_meanwhile_counts_as_old():
    with paused():
        assert not gc.isenabled()
        made = [Cycle() for _ in range(10)]
    assert gc.isenabled()
    old = {id(x) for x in gc.get_objects(2)}
    assert all(id(x) in old for x in made)


def test_garbage_from_before_is_collected():
    cycle = Cycle()
    seen = weakref.ref(cycle)
    del cycle
    with paused():
        assert seen() is None


def test_it_is_enabled_after_an_error():
    with pytest.raises(KeyError), paused():
        raise KeyError
    assert gc.isenabled()


def test_it_stays_disabled_where_it_was():
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_somebody_froze_stays_frozen(monkeypatch):
    counted = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or COUNT())
    gc.freeze()
    try:
        count = COUNT()
        for _ in range(3):
            with paused():
                kept = [Cycle()]
        assert 1000 < COUNT() <= count and kept
        assert len(counted) == 1  # counting takes long where many are frozen
    finally:
        gc.unfreeze()
