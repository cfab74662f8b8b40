"""Sums over devices that follow each other are one meeting; the others stay where they are."""

import numpy as np

import toile
from toile.engine.program import trace_program
from toile.engine.trace import bound_axis
from toile.parallel.buckets import in_buckets
from toile.primitives.collectives import AllReduceTogether

lax = toile.lax
X = toile.ShapeDtypeStruct((3,), np.float32)


def bucketed(fun, count=1):
    avals = [toile.typeof(X)] * count
    with bound_axis("i", 4):
        program, _ = trace_program(lambda *xs: toile.tree.leaves(fun(*xs)), avals)
        return [e.op.name for e in in_buckets(program).equations]


def test_neighbours_are_joined():
    assert bucketed(lambda x: lax.psum([x, x + 1, x * 2], "i")) == ["add", "mul", "psum_together"]
    means = bucketed(lambda x: lax.pmean({"a": x, "b": x * 2}, "i"))
    assert means == ["mul", "psum_together", "div", "div"]


def test_what_depends_on_a_sum_comes_after_it():
    assert bucketed(lambda x: lax.psum(lax.psum(x, "i") + 1, "i")) == ["psum", "add", "psum"]
    kinds = bucketed(lambda x: (lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i")))
    assert kinds == ["psum"] * 3  # of three kinds
    between = bucketed(lambda x: (lax.psum(x, "i"), lax.all_gather(x, "i"), lax.psum(x * 2, "i")))
    assert between == ["psum", "all_gather", "mul", "psum"]


def test_sums_inside_of_calls():
    inner = toile.jit(lambda x: lax.psum(x * 2, "i"))
    assert bucketed(lambda x: (lax.psum(x, "i"), inner(x))) == ["mul", "psum_together"]


def test_gradients_are_averaged_in_one_meeting(monkeypatch):
    calls = []
    real = AllReduceTogether.eager

    def counted(self, xp, *xs):
        calls.append(len(xs))
        return real(self, xp, *xs)

    monkeypatch.setattr(AllReduceTogether, "eager", counted)

    def step(params, x):
        def loss(p):
            return ((toile.numpy.tanh(x @ p["w"] + p["b"]) @ p["v"]) ** 2).mean()

        return lax.pmean(toile.grad(loss)(params), "i")

    params = {"w": np.ones((3, 4)), "b": np.ones(4), "v": np.ones((4, 2))}
    toile.pmap(step, axis_name="i", in_axes=(None, 0))(params, np.ones((2, 5, 3)))
    assert calls == [3, 3]  # once on each of two devices
