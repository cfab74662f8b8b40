"""Small launches of several texts share a kernel; each does the same work as alone."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver, nvrtc
from tests.gpu.test_programs import normal, program_of
from toile.compiler.ir.steps import Region
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.gpu import issuer
from toile.platforms.gpu.issuer import launches_of
from toile.platforms.gpu.steps import COPY
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import modules
from toile.targets.cuda.launches import Launch
from toile.targets.cuda.modules import Kernel

on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")
ADD = """\
#define THREADS 32
#define AMOUNT {0}
typedef {1} Number;
__device__ inline Number changed(Number x) {{ return x + AMOUNT; }}
__device__ void body(const Word* w, unsigned block) {{
  Number* x = (Number*)w[0];
  const Word i = (Word)block * THREADS + threadIdx.x;
  if (i < w[1]) x[i] = changed(x[i]);
}}
"""
TEXTS = [ADD.format(n, kind) for n, kind in ((1, "float"), (20, "int"), (300, "double"))]


def launch(text, *args, blocks=1, **more):
    return Launch(text, args, blocks, modules.threads_of(text), **more)


def region(*launches):
    return Region(list(launches), set(), set())


def test_small_launches_share_a_kernel():
    made = launches_of(region(*(launch(t, 1, 2) for t in TEXTS), launch(TEXTS[0], 3, 4, 5)))
    assert [len(x.parts) for x in made] == [4] and made[0].blocks == 4
    assert made[0].kernel.many and made[0].threads == 32


@pytest.mark.parametrize("other", [
    launch(TEXTS[1], blocks=issuer.FEW_BLOCKS + 1),  # it would not fit beside the other
    launch(TEXTS[1], shared=64),
    launch(TEXTS[1], note=COPY),  # it may have nothing to do
    launch(TEXTS[1].replace("THREADS 32", "THREADS 64")),
    launch("#define BOUNDS 32, 4\n" + TEXTS[1]),  # the settings of a whole kernel
    launch("#define READY\n" + TEXTS[1]),
    launch('extern "C" __device__ void f();\n' + TEXTS[1]),
], ids=["large", "shared memory", "copy", "threads", "bounds", "waits itself", "extern"])
def test_what_stays_alone(other):
    made = launches_of(region(launch(TEXTS[0]), other))
    assert [len(x.parts) for x in made] == [1, 1]


def test_a_kernel_has_a_few_texts():
    texts = [ADD.format(n, "float") for n in range(2 * issuer.MOST_TEXTS + 1)]
    made = launches_of(region(*map(launch, texts)))
    assert sorted(len(x.parts) for x in made) == [1, issuer.MOST_TEXTS, issuer.MOST_TEXTS]
    assert {p for x in made for p in x.parts} == set(map(launch, texts))


def test_only_one_text_of_a_kernel_uses_shared_memory():
    """What several use would add up, to more than a block may have."""
    texts = [f"{x}// __shared__" for x in TEXTS[:2]] + [ADD.format(n, "float") for n in range(5)]
    made = launches_of(region(*map(launch, texts)))
    assert [x.kernel.text.count("__shared__") for x in made] == [1, 1]
    assert {p for x in made for p in x.parts} == set(map(launch, texts))


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
def test_kernels_of_programs_compile():
    """Sorts of several rows, for example, need nearly all of the shared memory."""
    def f(x, y, z):
        return jnp.sort(x), jnp.sort(y), jnp.sort(z, 0), jnp.cumsum(z, 1), jnp.argmax(z, 1), z * 2

    shapes = [toile.ShapeDtypeStruct(s, t) for s, t in (
        ((3000,), np.dtype("f4")), ((3000,), np.dtype("i4")), ((50, 60), np.dtype("f4")))]
    made = planned(optimize(toile.make_jaxpr(f)(*shapes).jaxpr), TARGET)
    for step in made.all_steps():
        for x in launches_of(step) if isinstance(step, Region) else ():
            assert nvrtc.problem(x.kernel.source) == ""


@on_host
def test_each_text_does_its_work():
    arrays = [np.zeros(50, "f4"), np.zeros(33, "i4"), np.zeros(70, "f8"), np.zeros(1, "f4")]
    launches = [launch(text, x.ctypes.data, len(x), blocks=-(-len(x) // 32))
                for text, x in zip([*TEXTS, TEXTS[0]], arrays, strict=True)]
    (made,) = launches_of(region(*launches))
    text = modules.combined(TEXTS)
    assert made.kernel == Kernel(text, many=True)
    for n, (one, x) in enumerate(zip(launches, arrays, strict=True)):
        fibers.execute(text, (n % len(TEXTS), *one.args), one.blocks)
        assert (x == [1, 20, 300][n % len(TEXTS)]).all()


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
def test_the_compiler_accepts_it():
    assert nvrtc.problem(Kernel(modules.combined(TEXTS), many=True).source) == ""


def rotated(x, y, w):
    """Products, halves that are joined, and sums of rows: small kernels of several kinds."""
    a, b = jnp.split(x, 2, 1)
    z = jnp.concatenate([a * jnp.cos(w) - b, b + a * w], 1)
    return jnp.sort(z, 1), z.sum(1), (y * 2).max(0), jnp.cumsum(y, 0), y.astype(jnp.bfloat16)


@on_host
def test_programs_give_the_same_bits(monkeypatch):
    args = [normal(6, 8), normal(5, 7, seed=1), normal(4, seed=2)]
    program, leaves = program_of(rotated, args)
    found, counts = [], []
    with host_driver.host_gpu(monkeypatch) as (_, device):
        for few in (-1, issuer.FEW_BLOCKS):
            monkeypatch.setattr(issuer, "FEW_BLOCKS", few)
            executable = host_driver.compiled(program, device)
            for _ in range(3):
                got = host_driver.run(executable, [x._data for x in leaves], device)
            found.append([x.tobytes() for x in got])
            steps = executable.plan.all_steps()
            counts.append(sum(len(launches_of(s)) for s in steps if isinstance(s, Region)))
    assert found[0] == found[1] and counts[1] < counts[0]


@pytest.mark.gpu
def test_programs_give_the_same_bits_on_a_gpu(monkeypatch):
    args = [toile.device_put(x) for x in (normal(6, 8), normal(5, 7, seed=1), normal(4, seed=2))]
    found = []
    for few in (-1, issuer.FEW_BLOCKS):
        monkeypatch.setattr(issuer, "FEW_BLOCKS", few)
        step = toile.jit(lambda *xs: rotated(*xs))
        for _ in range(5):
            got = step(*args)
        found.append([np.asarray(x).tobytes() for x in got])
    assert found[0] == found[1]


def test_kernels_are_issued_in_the_order_of_the_program():
    """A small kernel between large ones does not wait for those after it."""
    texts = [ADD.format(n, "float") for n in range(4)]
    given = [launch(texts[n], n, i, blocks=blocks)
             for i, (n, blocks) in enumerate(((0, 1), (1, 200), (2, 1), (3, 300), (1, 200)))]
    for some, expected in ((given, [[0, 2], [1, 4], [3]]), (given[::-1], [[4, 1], [3], [2, 0]])):
        found = [[given.index(x) for x in made.parts] for made in launches_of(region(*some))]
        assert found == expected


def tables(count, rows=300, width=8):
    """A step of a model with several embedding tables, and its arguments."""
    random = np.random.default_rng(0)
    xs = [random.normal(size=(rows, width)).astype(np.float32) for _ in range(count)]
    ids = [random.integers(0, rows, 64).astype(np.int32) for _ in range(count)]

    def step(xs, ids):
        loss = lambda xs: sum(jnp.tanh(x[i]).sum() for x, i in zip(xs, ids, strict=True))
        return [x - 0.1 * g for x, g in zip(xs, toile.grad(loss)(xs), strict=True)]

    return step, (xs, ids)


def test_similar_branches_share_launches():
    """The number of launches hardly grows with the number of tables."""
    counts = []
    for n in (2, 12):
        step, args = tables(n)
        shapes = toile.tree.map(lambda a: toile.ShapeDtypeStruct(a.shape, a.dtype), args)
        made = planned(optimize(toile.make_jaxpr(step)(*shapes).jaxpr), TARGET)
        regions = [s for s in made.all_steps() if isinstance(s, Region)]
        counts.append(sum(len(launches_of(s)) for s in regions))
    assert counts[1] <= counts[0] + 2


@on_host
def test_values_of_similar_branches(monkeypatch):
    step, args = tables(5)
    program, leaves = program_of(step, args)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        for _ in range(3):  # the last ones in a graph
            found = host_driver.run(executable, [a._data for a in leaves], device)
    for a, b in zip(found, step(*args), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
