"""Cheap values are computed again where they are read, and nothing else changes."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.generated import draw, running
from tests.gpu.test_programs import program_of
from tests.seeds import today
from toile import lax, nn
from toile.compiler.pipeline import optimize
from toile.compiler.plan import lower as plans
from toile.compiler.plan import recompute as recomputing
from toile.compiler.plan.fuse import fuse
from toile.compiler.plan.lower import planned
from toile.compiler.plan.recompute import recompute
from toile.compiler.verify.programs import verify
from toile.engine import scoped_options
from toile.platforms.cpu.target import Target
from toile.platforms.gpu.target import TARGET
from toile.platforms.reference import Executable

BIG = (600, 256)


def norm(x, s, b):
    """A batch norm in bfloat16 with a relu, between two sorts that nothing fuses with."""
    x = lax.sort(x, dimension=0)
    y = x.astype(jnp.float32)
    m, v = y.mean(0), (y * y).mean(0)
    y = ((y - m) * lax.rsqrt(v - m * m + 1e-5) * s + b).astype(x.dtype)
    return lax.sort(jnp.maximum(y, 0), dimension=0)


def loss(x, s, b):
    return (norm(x, s, b).astype(jnp.float32) ** 2).sum()


def heads(keys, queries):
    """Products of a few rows with all rows, in float32, as in attention: keys are converted and
    read transposed, and once for each query."""
    wide = keys.astype(jnp.float32)
    found = (wide[None] * queries[:, None]).sum(-1)
    return found, (wide.T[:, :, None] * found.T[None]).sum(1)


PROGRAMS = {
    "norm and its gradients": (toile.grad(loss, (0, 1, 2)), jnp.bfloat16),
    "one value, two readers": (
        lambda x, s, b: (lambda y: (jnp.sort(y, 0) + y, (y * s).sum(0)))(x * 2 + b), jnp.float32),
    "read through views": (
        lambda x, s, b: heads(lax.sort(x, dimension=0), x[:4].astype(jnp.float32)), jnp.bfloat16),
    "costly": (lambda x, s, b: (lambda y: (jnp.sort(y, 0), (y * s).sum(0)))(jnp.tanh(x)),
               jnp.float32),
}


def arguments(dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=BIG), dtype)
    return x, jnp.linspace(0.5, 1.5, BIG[1]), jnp.linspace(-1, 1, BIG[1])


def prepared(name):
    fun, dtype = PROGRAMS[name]
    args = arguments(dtype)
    return optimize(toile.make_jaxpr(fun)(*args).jaxpr), args


def large(plan):
    """Names and dtypes of what is stored of more than a row."""
    made = {o: e for e in plan.program.equations for o in e.outs}
    return sorted((made[v].op.name, str(v.aval.dtype)) for v in plan.fused.stored
                  if v in made and v.aval.size > BIG[1] and v not in plan.program.outputs)


@pytest.mark.parametrize("more", [0.0, 1 / 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning_stays(name, more, monkeypatch):
    program, args = prepared(name)
    plan = planned(program, Target(2))
    found = recompute(fuse(program, plan.target.can_fuse, plan.target.limits), more)
    after = program if found is None else found.program
    verify(after)
    raws = [np.asarray(x) for x in args]
    for a, b in zip(Executable(program)(raws), Executable(after)(raws), strict=True):
        assert a.tobytes() == b.tobytes()
    fun, _ = PROGRAMS[name]
    with scoped_options.allow_excess_precision(False):
        got = toile.jit(lambda *xs: fun(*xs))(*args)
        monkeypatch.setattr(plans, "recompute", lambda fused, more: None)
        wanted = toile.jit(lambda *xs: fun(*xs))(*args)
    for a, b in zip(got, wanted, strict=True):
        nearly_equal(np.asarray(a), np.asarray(b))


def layers(x, s, b):
    """Two norms, and sums and a softmax of their own between and beside them."""
    y = loss(x, s, b) * x + jnp.sort(nn.softmax(x.astype(jnp.float32)), 0)
    return toile.grad(loss)(y, s, b) + jnp.cumsum(jnp.tanh(y), 0), (y * s).sum(0)


@pytest.mark.parametrize("more", [0.0, 1 / 64])
@pytest.mark.parametrize("fun", [toile.grad(loss, (0, 1, 2)), layers], ids=["norm", "layers"])
def test_groups_without_a_change_stay_as_they_were(fun, more):
    program = optimize(toile.make_jaxpr(fun)(*arguments(jnp.bfloat16)).jaxpr)
    plan = planned(program, Target(2))
    before = fuse(program, plan.target.can_fuse, plan.target.limits)
    found = recompute(before, more)
    assert found is not None
    changed = {id(e) for e in found.program.equations} - {id(e) for e in program.equations}
    fusible = [g for g in before.groups if g.fusible]
    assert len(found.whole) < len(fusible) and (found.whole or fun is not layers)
    for group in fusible:
        stays = not any(id(m.equation) in changed for m in group.members)
        assert group.id not in found.whole or stays
    members = lambda fused: [[m.equation for m in g.members] for g in fused.groups]
    fresh = fuse(found.program, plan.target.can_fuse, plan.target.limits, found.homes)
    again = fuse(found.program, plan.target.can_fuse, plan.target.limits, found.homes, found.whole)
    assert members(again) == members(fresh) and again.stored == fresh.stored
    assert again.views == fresh.views


def test_a_norm_keeps_what_it_was_given_alone():
    program, _ = prepared("norm and its gradients")
    before = fuse(program, Target(2).can_fuse, Target.limits)
    wide = lambda names: sum(n[1] == "float32" for n in names)
    assert wide(large(planned(program, Target(2)))) <= 1 < sum(
        v.aval.size > BIG[1] and str(v.aval.dtype) == "float32" for v in before.stored)


def layer_norm(x, y):
    """Deviations from the means of rows, which a later loop nest reads too."""
    z = x.astype(jnp.float32)
    d = z - z.mean(1, keepdims=True)
    s = lax.sort((d * lax.rsqrt((d * d).mean(1, keepdims=True) + 1e-6)).astype(x.dtype))
    return (s.astype(jnp.float32) + y * x) * d


def test_small_values_are_kept_for_it():
    x = jnp.asarray(np.random.default_rng(0).normal(size=BIG), jnp.bfloat16)
    program = optimize(toile.make_jaxpr(layer_norm)(x, x).jaxpr)
    fused = fuse(program, Target(2).can_fuse, Target.limits)
    wide = lambda fused: [v.aval.shape for v in fused.stored
                          if v.aval.nbytes >= 4 * 600 and str(v.aval.dtype) == "float32"]
    assert BIG in wide(fused)
    found = recompute(fused, 1 / 64)
    assert found is not None
    after = found.program
    verify(after)
    again = fuse(after, Target(2).can_fuse, Target.limits, found.homes, found.whole)
    assert wide(again).count(BIG) == 1 and any(s in ((600,), (600, 1)) for s in wide(again))
    raws = [np.asarray(x), np.asarray(x)]
    assert Executable(after)(raws)[0].tobytes() == Executable(program)(raws)[0].tobytes()


def test_what_is_compared_with_itself_is_equal():
    """The derivative of max compares a value with a rounded one: it must be rounded as well."""
    program, args = prepared("norm and its gradients")
    fun, _ = PROGRAMS["norm and its gradients"]
    exact = [np.asarray(x) for x in Executable(program)([np.asarray(x) for x in args])]
    for a, b in zip(toile.jit(fun)(*args), exact, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32),
                                   rtol=0.05, atol=0.02 * np.abs(b.astype(np.float32)).max())


def test_costly_values_are_kept():
    program, _ = prepared("costly")
    names = [e.op.name for e in planned(program, Target(2)).program.equations]
    assert names.count("tanh") == 1


def names_after(fun, *args):
    """The operations of a function, with what is recomputed where memory matters."""
    program = optimize(toile.make_jaxpr(fun)(*args).jaxpr)
    target = Target(2)
    found = recompute(fuse(program, target.can_fuse, target.limits), 1 / 64)
    return [e.op.name for e in (program if found is None else found.program).equations]


def test_costly_values_are_recomputed_where_memory_matters():
    x = arguments(jnp.float32)[0]
    fun = lambda x: (lambda y: (y * jnp.sort(y * 2, 0)).sum(0))(jnp.tanh(x))
    assert names_after(fun, x).count("tanh") == 2


@pytest.mark.parametrize("kept, adds", [(False, 1), (True, 2)])
def test_a_sum_is_stored_rather_than_both_terms(kept, adds):
    """x + y is needed again at the end: storing it frees x and y, unless these stay anyway."""

    def fun(x, y):
        x, y = jnp.sort(x, 0), jnp.sort(y, 0)
        z = x + y
        last = (z * jnp.sort(z * 2, 0)).sum(0)
        return (last, x, y) if kept else last

    x = arguments(jnp.float32)[0]
    assert names_after(fun, x, x + 1).count("add") == adds


def test_small_programs_stay_as_they_are():
    program = optimize(toile.make_jaxpr(lambda x: (jnp.sort(x * 2), (x * 2).sum()))(
        jnp.ones(100)).jaxpr)
    assert planned(program, Target(2)).program is program


def test_conversions_that_are_read_through_views_are_not_stored(monkeypatch):
    """On a GPU, where memory matters, and only if a view does not repeat the elements too often."""
    program, _ = prepared("read through views")
    target = Target(2)

    def is_stored(more):
        fused = fuse(program, target.can_fuse, target.limits)
        found = recompute(fused, more)
        if found is not None:
            fused = fuse(found.program, target.can_fuse, target.limits, found.homes)
        return any(v.aval.shape == BIG and v.aval.dtype == np.float32 for v in fused.stored)

    assert is_stored(0.0) and not is_stored(1 / 64)
    monkeypatch.setattr(recomputing, "MOST_TIMES", 3)
    assert is_stored(1 / 64)


def test_small_conversions_are_not_stored_on_a_gpu():
    """A kernel that only converts the parameters of a norm would take longer than the rest."""
    def norm(x, scale):
        y = x.astype(jnp.float32)
        y = y * lax.rsqrt((y * y).mean(-1, keepdims=True)) * scale.astype(jnp.float32)
        return y.astype(x.dtype), (scale.astype(jnp.float32)[None] * x).sum(1)

    x, scale = jnp.ones((32, 256), jnp.bfloat16), jnp.ones(256, jnp.bfloat16)
    program = optimize(toile.make_jaxpr(norm)(x, scale).jaxpr)
    groups = {}
    for target in (Target(2), TARGET):
        fused = fuse(program, target.can_fuse, target.limits)
        found = recompute(fused, target.limits.more_moved)
        if found is not None:
            fused = fuse(found.program, target.can_fuse, target.limits, found.homes)
        groups[target] = [[m.equation.op.name for m in g.members] for g in fused.groups]
    cpu, gpu = groups.values()
    assert ["convert_element_type"] in cpu and ["convert_element_type"] not in gpu


def carried(program):
    """A Program, and all Programs in its loops and branches."""
    yield program
    for e in program.equations:
        for p in e.op.programs():
            yield from carried(p)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("piece", range(3))
def test_generated_programs(piece, monkeypatch):
    """Whatever is recomputed, however small it is, Programs remain well-formed and compute the same
    bits."""
    monkeypatch.setattr(recomputing, "LEAST_BYTES", 0)
    for index in range(12 * piece, 12 * (piece + 1)):
        p = draw.draw(today(), index)
        with toile.enable_x64(p.x64):
            args = running.arguments(p)
            try:
                program, leaves = program_of(running.function(p, running.names_of("toile")), args)
            except NotImplementedError:  # a derivative that no package has
                continue
            for inner in map(optimize, carried(program)):
                fused = fuse(inner, TARGET.can_fuse, TARGET.limits)
                found = recompute(fused, TARGET.limits.more_moved)
                if found is None:
                    continue
                verify(found.program)
                again = fuse(
                    found.program, TARGET.can_fuse, TARGET.limits, found.homes, found.whole)
                members = [id(m.equation) for g in again.groups for m in g.members]
                assert len(members) == len(set(members)), f"program {index} of seed {today()}"
                if inner.in_avals == program.in_avals:
                    raws = [np.asarray(x._data) for x in leaves]
                    for a, b in zip(Executable(inner)(raws), Executable(found.program)(raws),
                                    strict=True):
                        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), index
