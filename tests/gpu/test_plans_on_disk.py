"""Plans of a GPU on disk: what was planned before is recalled, the same to the bit."""

import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.fake_attention import FakeAttention
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile import linen as nn
from toile.control import attention
from toile.disk.object_cache import ObjectCache
from toile.kernels.contraction.gpu import float32_compute
from toile.platforms import recall
from toile.platforms.gpu import executables as backend
from toile.platforms.gpu import execution, memory
from toile.platforms.gpu import plans_on_disk as recalling
from toile.platforms.gpu.planner import Plan
from toile.platforms.gpu.steps import CallStep, MadePlan
from toile.primitives.contractions import DotGeneral, dot_operation
from toile.targets.cuda import cublas, cudnn
from toile.targets.cuda import driver as driver_module
from toile.targets.cuda import modules as kernels

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def training(w, b, x):
    def loss(w, b):
        h = jnp.tanh(x @ w + b)
        return jnp.mean(jnp.square(h @ w.T)) + jnp.sum(b)

    return toile.value_and_grad(loss, argnums=(0, 1))(w, b)


def loops(x):
    def step(carry, row):
        carry = carry * 0.5 + row
        return carry, jnp.sum(carry)

    last, sums = lax.scan(step, x[0], x)
    n = lax.while_loop(lambda i: jnp.sum(x) * 0 + i < 3, lambda i: i + 1.0, 0.0)
    return lax.switch(jnp.argmax(sums) % 2, [jnp.sin, jnp.cos], last), sums, n


def on_the_host(x):
    return jnp.cumsum(x * jnp.arange(37.0)), jnp.fft.fft(x).real, x.astype(jnp.bfloat16)


def keys(x):
    key = toile.random.key(3)
    return toile.random.split(key, 3), toile.random.normal(key, x.shape) + x, jnp.zeros((0, 3))


PROGRAMS = {
    "keys": (keys, [normal(2, 3)]),
    "training": (training, [normal(6, 5), normal(5), normal(7, 6)]),
    "loops": (loops, [normal(4, 8)]),
    "a step on the host": (on_the_host, [normal(37)]),
}


@pytest.fixture
def device(tmp_path, monkeypatch):
    monkeypatch.delenv("TOILE_PLANS", raising=False)
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setattr(recall, "WORTH", 0.0)
    monkeypatch.setattr(recall, "FEWEST", 1)
    monkeypatch.setattr(memory, "_arenas", {})
    with host_driver.host_gpu(monkeypatch) as (_, device):
        cache = ObjectCache(tmp_path / "kernels")
        monkeypatch.setattr(kernels, "_cache", lambda: cache)
        yield device


def refuse(monkeypatch):
    """From here on nothing may be planned."""

    def planned(*args):
        raise AssertionError("it is planned")

    monkeypatch.setattr(recalling, "planned", planned)
    monkeypatch.setattr(backend, "planned", planned)
    monkeypatch.setattr(execution, "planned", planned)


@pytest.mark.parametrize("name", PROGRAMS)
def test_recalled_plans_run_alike(name, device, monkeypatch):
    fun, args = PROGRAMS[name]
    program, leaves = program_of(fun, args)
    raws = [np.asarray(x) for x in leaves]
    made = backend._recalled(program, device)
    assert not made.plan.recalled and made.original is None
    refuse(monkeypatch)
    again, _ = program_of(fun, args)
    found = backend._recalled(again, device)
    assert found.plan.recalled and not found.plan.given.equations
    assert type(found.plan) is MadePlan  # which cannot plan
    assert found.peak_bytes == made.peak_bytes
    for _ in range(3):
        results = [host_driver.run(x, raws, device) for x in (made, found)]
        for a, b in zip(*results, strict=True):
            assert a.tobytes() == b.tobytes()


def test_donated_arguments_are_overwritten_alike(device, monkeypatch):
    fun = lambda p, m, g: (p - 0.1 * (0.9 * m + g), 0.9 * m + g)
    program, _ = program_of(fun, [normal(50), normal(50), normal(50)])
    made = backend._recalled(program, device)
    refuse(monkeypatch)
    again, _ = program_of(fun, [normal(50), normal(50), normal(50)])
    found = backend._recalled(again, device)
    assert found.overwritten([0, 1]) == made.overwritten([0, 1]) != {}


def test_plans_with_library_calls(device, monkeypatch):
    monkeypatch.setattr(attention, "default_device", lambda: "a GPU")
    monkeypatch.setattr(cudnn.ENGINES, "used", [FakeAttention()])
    q = normal(2, 16, 2, 8).astype("float16")
    program, _ = program_of(lambda q: nn.dot_product_attention(q, q, q) * 2, [q])
    made = backend._recalled(program, device)
    refuse(monkeypatch)
    again, _ = program_of(lambda q: nn.dot_product_attention(q, q, q) * 2, [q])
    found = backend._recalled(again, device)
    assert [type(s) for s in found.plan.steps] == [type(s) for s in made.plan.steps]
    monkeypatch.setattr(FakeAttention, "plan", lambda *_: type("Plan", (), {"workspace": 1 << 20}))
    other, _ = program_of(lambda q: nn.dot_product_attention(q, q, q) * 2, [q])
    with pytest.raises(AssertionError, match="it is planned"):  # the library needs more room now
        backend._recalled(other, device)


def test_reports_plan_again(device):
    fun, args = PROGRAMS["training"]
    for _ in range(2):
        program, _ = program_of(fun, args)
        found = backend._recalled(program, device)
    assert found.original is program
    shown = found.described()
    assert shown.plan.given.equations and shown.peak_bytes == found.peak_bytes
    text = str(memory.out_of_memory(device, 100, MemoryError(), found))
    assert "planned peak of program" in text and "a batch of" in text
    assert [m.by for m in found.made] == ["add", "transpose", "reduce_sum"] or found.made[0].source


def test_what_is_looked_at_is_planned(device):
    fun, args = PROGRAMS["training"]
    for _ in range(2):
        program, _ = program_of(fun, args)
        backend._recalled(program, device)
    assert program.memo[backend.plan_key(device)].recalled
    executable = backend.compiled(program, device)
    assert isinstance(executable.plan, Plan) and not executable.plan.recalled
    assert executable.plan.fused.groups


def test_switched_off(device, monkeypatch, tmp_path):
    monkeypatch.setenv("TOILE_PLANS", "off")
    fun, args = PROGRAMS["training"]
    program, _ = program_of(fun, args)
    backend._recalled(program, device)
    names = list((tmp_path / "kernels").iterdir())
    again, _ = program_of(fun, args)
    assert not backend._recalled(again, device).plan.recalled
    assert len(names) == len(list((tmp_path / "kernels").iterdir()))


def raw_product(x):
    """A product that says nothing of its precision, as the engine's own do."""
    return dot_operation("ij", "jk", "ik")(x, x)


def compute_types(plan):
    return [s.call.compute for s in plan.steps
            if isinstance(s, CallStep) and isinstance(s.call, cublas.Gemm)]


def test_the_default_precision_is_in_the_name(device):
    found = []
    for precision in (None, "highest", None):
        with toile.default_matmul_precision(precision):
            program, _ = program_of(raw_product, [normal(300, 300)])
            found.append(backend._recalled(program, device).plan)
    assert [x.recalled for x in found] == [False, False, True]
    assert [compute_types(x) for x in found] == [["tf32"], ["float32"], ["tf32"]]


@pytest.mark.parametrize("other", ["limit", "architecture", "device_kind"])
def test_plans_of_another_gpu_are_not_taken(other, device, monkeypatch):
    rows = [normal(2, 50257)]
    backend._recalled(program_of(nn.softmax, rows)[0], device)
    assert backend._recalled(program_of(nn.softmax, rows)[0], device).plan.recalled
    if other == "limit":
        monkeypatch.setattr(driver_module, "shared_limit", lambda: 99 << 10)
    else:
        monkeypatch.setattr(device, other, "another")
    found = backend._recalled(program_of(nn.softmax, rows)[0], device).plan
    assert not found.recalled
    largest = max(x.shared for s in found.all_steps() for x in s.launches)
    assert largest == (0 if other == "limit" else 4 * 50257)


def test_derivatives_of_linear_algebra_are_in_float32(device):
    """As JAX's are: their products are of Precision.HIGHEST, whatever the default is."""
    x = normal(40, 40)
    spd = x @ x.T + 40 * np.eye(40, dtype=np.float32)

    def derivatives(a, b):
        over = lambda f: toile.grad(lambda a: sum(jnp.sum(y) for y in f(a)))(a)
        return (over(lambda a: [jnp.linalg.cholesky(a)]), over(jnp.linalg.eigh),
                over(lambda a: [jnp.linalg.solve(a, b)]), over(jnp.linalg.svd))

    with toile.default_matmul_precision("tensorfloat32"):
        products = [e.op for e in program_of(derivatives, [spd, x])[0].equations
                    if isinstance(e.op, DotGeneral)]
    assert len(products) > 8
    assert {float32_compute(op.precision) for op in products} == {"float32"}


@pytest.mark.parametrize("why", ["there are plans", "no folder", "no cache", "off", "empty"])
def test_what_makes_plans_is_loaded_early_where_none_are_found(why, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setenv("TOILE_PLANS", "off" if why == "off" else "")
    monkeypatch.setattr(recalling, "_making", lambda: loaded.append(1))
    cache = ObjectCache(tmp_path / "kernels")
    if why == "empty":
        cache.folder.mkdir()
    if why in ("there are plans", "off"):
        cache.put("ab", b"a plan")
        assert not cache.is_empty()
    monkeypatch.setattr(kernels, "_cache", lambda: None if why == "no cache" else cache)
    recalling._make_ready()
    assert bool(loaded) == (why != "there are plans")


@pytest.mark.parametrize("first", [0, 2])
def test_the_first_programs_of_a_process_are_kept_whatever_they_are(first, device, monkeypatch):
    monkeypatch.setattr(recall, "WORTH", 60.0)
    monkeypatch.setattr(recall, "FEWEST", 12)
    monkeypatch.setattr(recall, "FIRST", first)
    for _ in range(2):
        monkeypatch.setattr(recalling, "_asked", itertools.count())
        found = [backend._recalled(program_of(lambda x, k=k: x + k, [normal(50)])[0], device)
                 for k in range(3)]
    assert [x.plan.recalled for x in found] == [k < first for k in range(3)]
