"""The verifier of plans finds what is planted, and nothing else is wrong where it finds nothing.

Plans are broken in every way that a planner could break them: buffers that overlap, steps that are
missing or in another order, carries and slices that are mixed up, kernels that are given another
buffer. What the verifier lets pass is run, and must give the same results.
"""

import copy
import itertools

import numpy as np
import pytest

import toile
from toile import lax
from toile import numpy as jnp
from toile.compiler.ir.operands import Ref, Temporary
from toile.compiler.ir.steps import Region, ScanStep, WhileStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import independent
from toile.compiler.plan.lower import planned as plan_of
from toile.compiler.plan.place import arena_layout
from toile.compiler.verify.contents import PlanError
from toile.platforms.cpu import assembly as making
from toile.platforms.cpu import plan_reader as verifying
from toile.platforms.cpu.target import Target
from toile.platforms.gpu import plan_reader as verifying_gpu
from toile.platforms.gpu.target import TARGET
from toile.targets.llvm import thread_count as threads

N = 40  # large enough that loops are no single kernels
X = np.linspace(-1, 1, N * N, dtype="f").reshape(N, N)
W = np.cos(X)


def scanned(x, w):
    return lax.scan(lambda c, u: (jnp.sort(c @ w) + u, jnp.cumsum(c)), x, jnp.stack([x, w, x]))


def gradient(x, w):
    def loss(x, w):
        return (lax.scan(lambda c, _: (c, jnp.sort(w * c + 1)), x, None, length=2)[1] ** 2).sum()

    return toile.value_and_grad(toile.checkpoint(loss), 1)(x, w)


def exchanged(x, w):
    def step(carry, u):
        a, b, c = carry
        return (jnp.sort(b), a + u, jnp.cumsum(c, 0)), (a, c[0])

    return lax.scan(step, (x, w, x + w), jnp.stack([x] * 5), reverse=True)


def repeated(x, w):
    def step(c):
        return c[0] + 1, jnp.sort(c[1] @ w), c[2].at[c[0]].set(c[1][0])

    return lax.while_loop(lambda c: (c[0] < 4) & (c[1].sum() < 1e9), step, (0, x, x))


def branched(x, w):
    def step(c, u):
        return lax.cond(u.sum() > 0, lambda c: jnp.sort(c), lambda c: c @ w, c), c.T

    return lax.scan(step, x, jnp.stack([x, w, -w, x]))


def straight(x, w):
    y = jnp.sort(x @ w)
    joined = jnp.concatenate([jnp.sin(y), x, jnp.cos(y @ w)])
    return joined, y.sum(0), jnp.cumsum(y) @ jnp.ones(N * N)


def copied(x, w):
    """Inputs are results, too: they are copied, and read after some of the copies."""
    return x, x @ w, w, w @ x, x, jnp.broadcast_to(x, (3, *x.shape))


PROGRAMS = {f.__name__: f for f in (scanned, gradient, exchanged, repeated, branched, straight)}


def program_of(name):
    return toile.make_jaxpr(PROGRAMS.get(name, copied))(X, W).program


def planned(name):
    """An executable that is not verified."""
    program = optimize(program_of(name))
    plan = plan_of(program, Target(threads.current()))
    return making.PlannedExecutable(program, plan, *arena_layout(plan))


@pytest.fixture(autouse=True)
def not_verified(monkeypatch):
    monkeypatch.delenv("TOILE_DEBUG", raising=False)


def plans_in(plan):
    """A plan and those of its loops and branches."""
    yield plan
    for step in plan.steps:
        for child in getattr(step, "children", ()):
            yield from plans_in(child)


def found(executable):
    try:
        verifying.verify(executable)
    except PlanError:
        return True
    return False


@pytest.mark.parametrize("name", [*PROGRAMS, "copied"])
def test_plans_are_right(name):
    verifying.verify(planned(name))
    plan = plan_of(optimize(program_of(name), choose=TARGET.choose), TARGET)
    verifying_gpu.verify(plan, *arena_layout(plan))


@pytest.mark.parametrize("name", PROGRAMS)
def test_moved_buffers(name):
    """What is not found does no harm: the program is run with its buffers so."""
    executable = planned(name)
    expected = [x.tobytes() for x in executable([X, W])]
    slots, offsets = executable.image.in_arena
    caught = 0
    pairs = list(itertools.permutations(range(len(slots)), 2))
    step = max(len(pairs) // 60, 1)
    for i, j in pairs[:: step]:
        moved = offsets.copy()
        moved[i] = offsets[j]
        sizes = {executable.slots[b]: b.nbytes for b in executable.offsets}
        if moved[i] + sizes[int(slots[i])] > executable.arena_bytes:
            continue
        executable.image.in_arena = executable.in_arena = slots, moved
        executable.free.clear()
        if found(executable):
            caught += 1
        else:
            assert [x.tobytes() for x in executable([X, W])] == expected, (i, j)
    assert caught


def mutated(name, change):
    """Executables, each with one change made by a function that `change(plan)` yields."""
    count = len(list(change_list(planned(name).plan, change)))
    for n in range(count):
        executable = planned(name)
        what = list(change_list(executable.plan, change))[n]
        what()
        yield making.PlannedExecutable(
            executable.program, executable.plan, *arena_layout(executable.plan))


def change_list(plan, change):
    for each in list(plans_in(plan)):
        yield from change(each)


def dropped(plan):
    for i in range(len(plan.steps)):
        yield lambda i=i: plan.steps.pop(i)


def reordered(plan):
    for i, (a, b) in enumerate(itertools.pairwise(plan.steps)):
        if not independent(a, b):
            def change(i=i):
                plan.steps[i : i + 2] = plan.steps[i : i + 2][::-1]
            yield change


def wrong_carries(plan):
    for step in plan.steps:
        if isinstance(step, (ScanStep, WhileStep)):
            for i in range(len(step.swaps)):
                yield lambda step=step, i=i: step.swaps.pop(i)
            for i, j in itertools.combinations(range(len(step.starts)), 2):
                (a, x), (b, y) = step.starts[i], step.starts[j]
                sizes = {getattr(r.buffer, "nbytes", None) or r.buffer.aval.nbytes for r in (x, y)}
                if len(sizes) > 1:
                    continue

                def change(step=step, i=i, j=j, a=a, b=b, x=x, y=y):
                    step.starts[i], step.starts[j] = (a, y), (b, x)
                yield change


def wrong_slices(plan):
    for step in plan.steps:
        if isinstance(step, ScanStep):
            for i, (moving, ref, stride) in enumerate(step.slices):
                for new in ((moving, ref.at(64), stride), (moving, ref, 0), (moving, ref, -stride)):
                    def change(step=step, i=i, new=new):
                        step.slices[i] = new
                    yield change


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("change", [dropped, reordered, wrong_carries, wrong_slices])
def test_broken_steps(name, change):
    expected = [x.tobytes() for x in planned(name)([X, W])]
    seen = caught = 0
    for executable in mutated(name, change):
        seen += 1
        if found(executable):
            caught += 1
        else:  # stages that may come in any order, spare buffers that may be exchanged
            assert change in (reordered, wrong_carries), f"change {seen - 1}"
            assert [x.tobytes() for x in executable([X, W])] == expected, f"change {seen - 1}"
    assert caught or not seen
    assert seen or change is not dropped


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_buffer(name):
    """A kernel that is given another temporary of the same size."""
    executable = planned(name)
    expected = [x.tobytes() for x in executable([X, W])]
    seen = 0
    for plan in plans_in(executable.plan):
        temporaries = [b for step in plan.steps for b in plan.temporaries_of(step)]
        for step in plan.steps:
            if not isinstance(step, Region):
                continue
            for n, launch in enumerate(step.launches):
                for k, a in enumerate(getattr(launch, "args", ())):
                    if not isinstance(a, Ref) or not isinstance(a.buffer, Temporary):
                        continue
                    others = [b for b in temporaries
                              if b is not a.buffer and b.nbytes == a.buffer.nbytes]
                    for other in others[:1]:
                        args = list(launch.args)
                        args[k] = Ref(other, a.offset)
                        changed = copy.copy(launch)
                        object.__setattr__(changed, "args", tuple(args))
                        step.launches[n] = changed
                        made = making.PlannedExecutable(
            executable.program, executable.plan, *arena_layout(executable.plan))
                        if found(made):
                            seen += 1
                        else:  # another room that is free
                            assert [x.tobytes() for x in made([X, W])] == expected, (n, k)
                        step.launches[n] = launch
    assert seen


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("change", [dropped, reordered, wrong_carries, wrong_slices])
def test_broken_steps_of_a_gpu(name, change):
    program = optimize(program_of(name), choose=TARGET.choose)
    count = len(list(change_list(plan_of(program, TARGET), change)))
    caught = 0
    for n in range(count):
        plan = plan_of(program, TARGET)
        list(change_list(plan, change))[n]()
        try:
            verifying_gpu.verify(plan, *arena_layout(plan))
            assert change in (reordered, wrong_carries), f"change {n}"
        except PlanError:
            caught += 1
    assert caught or not count


def test_results_in_the_place_of_inputs():
    """On a GPU, a donated input may be overwritten only when nothing reads it any more."""
    program = toile.make_jaxpr(lambda x, w: (x + 1, jnp.sort(x)))(X, W).program
    plan = plan_of(optimize(program, choose=TARGET.choose), TARGET)
    verifying_gpu.verify(plan, *arena_layout(plan), {0: 1})
    with pytest.raises(PlanError):
        verifying_gpu.verify(plan, *arena_layout(plan), {0: 0, 1: 0})


def test_users_can_ask_for_it(monkeypatch):
    calls = []
    monkeypatch.setenv("TOILE_DEBUG", "verify")
    monkeypatch.setattr(verifying, "verify", calls.append)
    toile.jit(lambda x: jnp.sort(x * 2))(X)
    assert len(calls) == 1
