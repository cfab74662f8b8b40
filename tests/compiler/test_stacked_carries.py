"""Carries that are stacked: turns write them where the next turn reads them, and copy nothing."""

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.compiler import test_picks
from toile import lax
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import ScanStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.compiler.verify.contents import PlanError
from toile.platforms.cpu.target import Target
from toile.platforms.gpu.target import TARGET

RANDOM = np.random.default_rng(0)
TURNS = 9
X = RANDOM.standard_normal((TURNS, 6, 64)).astype("f4")
C = RANDOM.standard_normal((6, 64)).astype("f4")
run, check = test_picks.run, test_picks.check


def loop(stack, reverse=False):
    """A loop that stacks some of the carry, the new carry, and another value."""
    def fun(c, xs):
        def turn(c, x):
            new = jnp.tanh(c * 0.5 + x - x.sum(1, keepdims=True) / 64)
            return new, stack(c, new, x)

        return lax.scan(turn, c, xs, reverse=reverse)

    return fun


def summed(fun):
    """No result of the loop is a result of the program."""
    return lambda *args: [(x * 2 + 1).sum(-1) for x in toile.tree.leaves(fun(*args))]


def two_carries(c, xs):
    def turn(carry, x):
        c, d = carry
        new = (jnp.sin(c + x), c * 0.5 + jnp.cos(d))
        return new, (c, d, new[0])

    return lax.scan(turn, (c, c * 2), xs)


def swapped(c, xs):
    """The carries change places."""
    def turn(carry, x):
        c, d = carry
        return (d + x, c), (c, d)

    return lax.scan(turn, (c, c * 2), xs)


def nested(c, xs):
    def outer(c, x):
        last, (before, after) = lax.scan(lambda c, y: (jnp.tanh(c + y), (c, jnp.tanh(c + y))), c,
                                         xs[:4])
        return last + x, (before * after, c)

    return lax.scan(outer, c, xs[4:])


def in_a_branch(c, xs):
    fun = summed(loop(lambda c, new, x: (c, new)))
    return lax.cond(c[0, 0] > 5, lambda: fun(c * 2, xs), lambda: fun(c, xs))


def updated(c, xs):
    """What is stacked is changed afterwards."""
    _, before = loop(lambda c, new, x: c)(c, xs)
    return before.at[2].add(c), before.sum(0)


def read_by_a_loop(c, xs):
    """Another loop reads the rows, from the last to the first."""
    last, (before, after) = loop(lambda c, new, x: (c, new))(c, xs)
    return lax.scan(lambda c, x: (c + x[0] * x[1], c.sum()), last, (before, after), reverse=True)


def last_returned(reverse):
    """The rows are temporary, but the last carry is a result: it is copied after the loop."""
    def fun(c, xs):
        last, rows = loop(lambda c, new, x: c, reverse)(c, xs)
        return (rows * 2).sum(0), last

    return fun


def not_aligned(c, xs):
    return summed(loop(lambda c, new, x: (c, new)))(c[:, :3], xs[:, :, :3])


LOOPS = {
    "before": summed(loop(lambda c, new, x: c)),
    "before and after": summed(loop(lambda c, new, x: (c, new))),
    "in reverse": summed(loop(lambda c, new, x: (c, new), True)),
    "twice": summed(loop(lambda c, new, x: (c, new, c, new))),
    "with another": summed(loop(lambda c, new, x: (c, new * x))),
    "returned": loop(lambda c, new, x: (c, new)),
    "last returned": last_returned(False), "last returned, in reverse": last_returned(True),
    "two carries": summed(two_carries),
    "changing places": summed(swapped),
    "nested": summed(nested),
    "in a branch": in_a_branch,
    "updated": updated,
    "read by a loop": read_by_a_loop,
    "gradient": toile.grad(
        lambda c, xs: (loop(lambda c, new, x: new)(c, xs)[1] ** 2).sum(), (0, 1)),
    "not aligned": not_aligned,
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, run):
    check(run, LOOPS[name], (C, X))


def body_of(fun, *args, target=TARGET):
    program = optimize(toile.make_jaxpr(fun)(*args).jaxpr, choose=target.choose)
    plan = planned(program, target)
    return [step for step in plan.all_steps() if isinstance(step, ScanStep)], plan


@pytest.mark.parametrize("name", ["before", "before and after", "in reverse"])
@pytest.mark.parametrize("target", [TARGET, Target(1)])
def test_nothing_is_copied_in_turns(name, target):
    (first, *_), plan = body_of(LOOPS[name], C, X, target=target)
    assert plan.stacks[first] and not first.swaps
    assert [x.note for s in first.body.steps for x in s.launches if "copy" in x.note] == []


def test_both_stacks_share_memory():
    _, plan = body_of(LOOPS["before and after"], C, X)
    buffers = {b for s in plan.steps for b in s.reads | s.writes if hasattr(b, "var")}
    assert [b.nbytes for b in buffers if b.nbytes >= X.nbytes] == [X.nbytes + C.nbytes]


@pytest.mark.parametrize("name", ["returned", "not aligned"])
def test_other_loops_are_as_they_were(name):
    (first, *_), plan = body_of(LOOPS[name], C, X)
    assert not plan.stacks[first] and first.swaps


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.SimpleCell])
def test_the_first_loop_of_a_recurrent_network_copies_nothing(cell):
    network = nn.RNN(cell(64), time_major=True)
    params = network.init(toile.random.key(0), X)

    def loss(params, x):
        return (network.apply(params, x) ** 2).sum()

    (first, *_), _ = body_of(toile.grad(loss), params, X)
    assert len([x for s in first.body.steps for x in getattr(s, "launches", ())]) <= 2


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_verifier_sees_rows_at_wrong_places(shift, monkeypatch):
    """A turn that writes another row than the next one reads."""
    from toile.compiler.compilation import compile_program
    from toile.compiler.plan import control_flow

    found = control_flow._Carries._bind_stacked

    def wrong(self, step, i, trips):
        found(self, step, i, trips)
        moving, at, stride = step.slices[-1]
        step.slices[-1] = moving, Ref(at.buffer, at.offset + shift * stride), stride

    monkeypatch.setattr(control_flow._Carries, "_bind_stacked", wrong)
    with pytest.raises(PlanError):
        compile_program(toile.make_jaxpr(LOOPS["before and after"])(C, X).jaxpr, TARGET)


def test_the_verifier_sees_wrong_results(monkeypatch):
    """The rows of the new carry are not those of the old one."""
    from toile.compiler.compilation import compile_program
    from toile.compiler.plan import stacked_carries

    found = stacked_carries.stack_of
    exchanged = lambda s: s._replace(given=s.made, made=s.given)
    monkeypatch.setattr(stacked_carries, "stack_of",
                        lambda *args: (lambda s: s and exchanged(s))(found(*args)))
    with pytest.raises(PlanError):
        compile_program(toile.make_jaxpr(LOOPS["before and after"])(C, X).jaxpr, TARGET)
