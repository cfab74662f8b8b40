"""Products by the tile registers of x86 processors (AMX).

The instructions are replaced by functions that compute the same, so that the kernels are tested on
every machine. Where the processor has them, both must agree.
"""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler import test_grouped_products
from tests.compiler.fake_plan import FakePlan
from tests.compiler.test_grouped_products import (
    BYTES,
    PATTERNS,
    assembled,
    exact,
    guarded,
    plan_of,
    product,
    whole_range,
)
from toile import lax
from toile.kernels.contraction import cpu as contractions
from toile.kernels.contraction import cpu_amx, cpu_amx_launches, cpu_cuts, cpu_tiles
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm import elements, native, x86_tiles
from toile.targets.llvm.product_types import element
from toile.targets.llvm.text import inner, module

bfloat16 = np.dtype(ml_dtypes.bfloat16)
FEATURES = {"avx512f", "avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"}
# Rows, terms and columns: whole and incomplete tiles, long sums, few rows or columns.
SIZES = [(16, 64, 16), (32, 128, 32), (50, 130, 70), (33, 1100, 45), (600, 64, 34), (17, 8192, 40),
         (64, 100, 17), (300, 192, 65), (31, 2112, 20), (48, 66, 200)]  # fmt: skip
here = pytest.mark.skipif(not native.has("amx-tile"), reason="needs a processor with AMX")


def emulation():
    """Functions in the place of the instructions, with the tile registers in memory."""
    tile, words = "[16 x [16 x i32]]", "<16 x i32>"
    register = lambda f, t: f.at("@tiles", f.value(f"zext i8 {t} to i64"), tile)
    made = []

    def written(name, params):
        made.append(inner(f"emulated_{name}", params))
        return made[-1]

    for name in ("ldtilecfg", "tilerelease"):
        f = written(name, "ptr %from" if name == "ldtilecfg" else "i64 %unused")
        with f.loop(0, 8 * 16) as i:
            f.store(words, "zeroinitializer", f.at("@tiles", i, words), 4)
    f = written("tilezero", "i8 %t")
    with f.loop(0, 16) as i:
        f.store(words, "zeroinitializer", f.at(register(f, "%t"), i, words), 4)
    for name in ("tileloadd64", "tilestored64"):
        f = written(name, "i8 %t, ptr %place, i64 %stride")
        with f.loop(0, 16) as i:
            pair = f.at(register(f, "%t"), i, words), f.offset("%place", f.mul(i, "%stride"))
            f.copy(*(pair if name == "tileloadd64" else pair[::-1]), 64)
    for name, kinds in (("tdpbf16ps", "hh"), ("tdpbssd", "ii"), ("tdpbsud", "iu"),
                        ("tdpbusd", "ui"), ("tdpbuud", "uu")):
        f = written(name, "i8 %c, i8 %a, i8 %b")
        _multiply(f, kinds, register)
    f = inner("emulated_cvtneps2bf16", "<16 x float> %x", result="<16 x i16>")
    rounded = elements.to_bfloat(f, "%x", 16)
    f.result = f"<16 x i16> {rounded}"
    return "@tiles = internal global [8 x [16 x [16 x i32]]] zeroinitializer, align 64\n" + module(
        *made, f)


def _multiply(f, kinds, register):
    """Write the body of an instruction that multiplies two tiles."""
    kind, terms, prefix = ("float", 2, "f") if kinds == "hh" else ("i32", 4, "")
    word = lambda t, i, j: f.at(register(f, t), f.add(f.mul(i, 16), j), "i32")

    def number(place, letter):
        short = f.load(f"i{32 // terms}", place, 1)
        if letter == "h":
            return elements.from_bfloat(f, short)
        return f.value(f"{'sext' if letter == 'i' else 'zext'} i8 {short} to i32")

    with f.loop(0, 16) as m, f.loop(0, 16) as n, f.loop(0, 16) as k:
        place = word("%c", m, n)
        total = f.load(kind, place, 4)
        for term in range(terms):
            a, b = (number(f.at(word(*at), term, f"i{32 // terms}"), letter) for letter, at in zip(
                kinds, (("%a", m, k), ("%b", k, n)), strict=True))
            part = f.value(f"{prefix}mul {kind} {a}, {b}")
            total = f.value(f"{prefix}add {kind} {total}, {part}")
        f.store(kind, total, place, 4)


def emulated(text):
    """The text of a kernel with functions in the place of the instructions it uses.

    Products that are too small for tiles use the instructions of vectors."""
    text = test_grouped_products.emulated(text)
    if "@llvm.x86.ldtilecfg" not in text:
        return text
    text = text.replace("@llvm.x86.tilerelease()", "@emulated_tilerelease(i64 0)")
    text = text.replace(f"@{cpu_amx.ROUND}(", "@emulated_cvtneps2bf16(")
    return text.replace("@llvm.x86.t", "@emulated_t").replace(
        "@llvm.x86.ldtilecfg", "@emulated_ldtilecfg").replace("bfloat>", "i16>") + emulation()


@pytest.fixture
def processor(monkeypatch):
    """Kernels as for a processor with AMX; the texts that ran."""
    texts, run = [], native.function

    def function(text):
        texts.append(text)
        return run(emulated(text))

    monkeypatch.setattr(native, "has", FEATURES.__contains__)
    monkeypatch.setattr(native, "vector_bytes", lambda: 64)
    monkeypatch.setattr(native, "function", function)
    for part in (cpu_tiles, cpu_cuts):
        monkeypatch.setattr(part, "lane_operands", lambda: False)
    return texts


def used(texts):
    """The instructions that multiply tiles in some texts."""
    return {part.split("(")[0] for text in texts for part in text.split("@llvm.x86.")[1:]
            if part.startswith("tdp")}


def arrays(rng, pattern, sizes, dtypes):
    sizes = {"b": 3, **dict(zip("ikj", sizes, strict=True))}
    return [rng.standard_normal(shape).astype(d) if d == bfloat16 else whole_range(rng, shape, d)
            for labels, d in zip(pattern.split("->")[0].split(","), dtypes, strict=True)
            for shape in [[sizes[c] for c in labels]]]


@pytest.mark.parametrize("case", range(4))
def test_sums_of_bytes_are_exact(case, processor):
    rng = np.random.default_rng(case)
    for i, sizes in enumerate(SIZES):
        for pattern in (PATTERNS[i % 6], PATTERNS[(i + case + 1) % 6]):
            x, y = arrays(rng, pattern, sizes, BYTES[case])
            np.testing.assert_array_equal(product(pattern, x, y), exact(pattern, x, y))
    expected = [{"tdpbssd"}, {"tdpbuud"}, {"tdpbsud", "tdpbusd"}, {"tdpbsud", "tdpbusd"}]
    assert used(processor) == expected[case]


@pytest.mark.parametrize("out", ["f4", bfloat16, "f2"])
def test_products_of_bfloat16(out, processor):
    rng = np.random.default_rng(7)
    for i, sizes in enumerate(SIZES):
        for pattern in (PATTERNS[i % 6], PATTERNS[(i + 2) % 6]):
            x, y = arrays(rng, pattern, sizes, [bfloat16] * 2)
            wide = [a.astype("f8") for a in (x, y)]
            want, magnitude = np.einsum(pattern, *wide), np.einsum(pattern, *map(abs, wide))
            eps = float(ml_dtypes.finfo(out).eps)
            bound = 1.2e-7 * (sizes[1] + 4) * magnitude + eps * abs(want)
            assert (abs(product(pattern, x, y, out).astype("f8") - want) <= bound).all()
    assert used(processor) == {"tdpbf16ps"}


@pytest.mark.parametrize("out", ["i1", "u1", "i2", "u4"])
def test_results_of_other_dtypes_wrap(out, processor):
    rng = np.random.default_rng(6)
    for kinds in BYTES:
        x, y = arrays(rng, "ik,kj->ij", (20, 1500, 40), kinds)
        np.testing.assert_array_equal(
            product("ik,kj->ij", x, y, out), exact("ik,kj->ij", x, y, out))
    assert used(processor)


def test_strides(processor):
    rng = np.random.default_rng(5)
    x, y = whole_range(rng, (90, 300), "i1"), whole_range(rng, (300, 130), "i1")
    for a in (x[::2, ::2], x[:45, 149::-1], x[3:48, 5:155], np.broadcast_to(x[:1, :150], (45, 150)),
              x[:45, :128], x[44::-1, :128]):  # fmt: skip
        for b in (y[::2, ::2], y[149::-1, :31], np.asfortranarray(y[:150, :65])):
            b = b[:a.shape[1]]
            np.testing.assert_array_equal(product("ik,kj->ij", a, b), exact("ik,kj->ij", a, b))
    assert used(processor) == {"tdpbssd"}


def test_batches_share_operands_that_do_not_vary(processor):
    rng = np.random.default_rng(4)
    x, y = whole_range(rng, (4, 1, 40, 100), "i1"), whole_range(rng, (4, 3, 100, 40), "i1")
    x = np.broadcast_to(x, (4, 3, 40, 100))
    np.testing.assert_array_equal(product("abik,abkj->abij", x, y), exact("abik,abkj->abij", x, y))
    assert used(processor) == {"tdpbssd"}


@pytest.mark.parametrize("sizes", [(512, 64, 48), (40, 8192, 33), (64, 4096, 64), (90, 700, 600)])
def test_results_do_not_depend_on_the_number_of_threads(sizes, processor):
    x, y = arrays(np.random.default_rng(3), "ik,kj->ij", sizes, [bfloat16] * 2)
    first, *others = (product("ik,kj->ij", x, y, "f4", threads) for threads in (1, 2, 5, 16))
    for found in others:
        np.testing.assert_array_equal(found, first)


@pytest.mark.parametrize("k", [128, 67])
@pytest.mark.parametrize("m", [16, 21, 47])
def test_nothing_beyond_the_operands_is_read(k, m, processor):
    rng = np.random.default_rng(k)
    x, y = (guarded(rng.integers(-9, 9, s).astype(bfloat16)) for s in ((m, k), (k, 39)))
    for pattern, a, b in (("ik,kj->ij", x, y),
                          ("ki,jk->ij", guarded(x.T.copy()), guarded(y.T.copy()))):
        found = product(pattern, a, b, "f4")
        np.testing.assert_array_equal(found, x.astype("i4") @ y.astype("i4"))
    assert used(processor)


def planned(m, k, n, dtype=bfloat16, out="f4", threads=2, fixed=False):
    """The launches of a product, by note."""
    plan = FakePlan(threads)
    x, y, c = np.zeros((m, k), dtype), np.zeros((k, n), dtype), np.zeros((m, n), out)
    operands = plan.operand(x), plan.operand(y)
    if fixed:
        plan.fixed.append(operands[1].ref.buffer)
    op = DotGeneral("ab", "bc", "ac", c.dtype)
    assert contractions.lower(op, operands, [plan.operand(c)], plan)
    return [launch for stage in plan.stages for launch in stage]


@pytest.mark.parametrize("m,k,n,dtype,out,notes", [
    (64, 64, 64, bfloat16, "f4", ["product"]),
    (64, 60, 64, bfloat16, "f4", ["pack", "product"]),  # incomplete tiles of the sum
    (8, 64, 64, bfloat16, "f4", ["pack", "product"]),  # incomplete tiles of rows
    (300, 64, 64, bfloat16, "f4", ["pack", "product"]),  # columns that several units need
    (300, 60, 64, bfloat16, bfloat16, ["pack", "pack", "product"]),
    (600, 1024, 512, bfloat16, "f4", ["pack", "pack", "product"]),  # rows that share cache sets
    (32, 8192, 32, bfloat16, bfloat16, ["product", "sum of parts"]),
    (64, 64, 64, np.dtype("i1"), "i4", ["product"]),
])  # fmt: skip
def test_stages(m, k, n, dtype, out, notes, processor):
    launches = planned(m, k, n, dtype, out)
    assert [launch.note for launch in launches] == notes
    assert used([launch.text for launch in launches])


@pytest.mark.parametrize("m,k,n,dtype,out", [
    (8, 8, 8, bfloat16, "f4"), (64, 8, 64, bfloat16, "f4"), (4, 256, 256, np.dtype("i1"), "i4"),
    (64, 64, 64, np.dtype("f2"), "f4"), (64, 64, 64, np.dtype("f4"), "f4"),
])  # fmt: skip
def test_other_products_use_other_kernels(m, k, n, dtype, out, processor):
    assert not used([launch.text for launch in planned(m, k, n, dtype, out)])


@pytest.mark.parametrize("missing", ["amx-tile", "amx-bf16", "amx-int8"])
def test_each_feature_is_needed(missing, processor, monkeypatch):
    monkeypatch.setattr(native, "has", (FEATURES - {missing}).__contains__)
    for dtype, out, feature in ((bfloat16, "f4", "amx-bf16"), (np.dtype("i1"), "i4", "amx-int8")):
        expected = missing not in ("amx-tile", feature)
        assert bool(used([launch.text for launch in planned(64, 64, 64, dtype, out)])) == expected


def test_weights_in_loops_are_packed_before_them(processor):
    notes = [launch.note for launch in planned(32, 64, 64, fixed=True)]
    assert notes == ["pack", "product"]


def test_no_unit_is_too_long_to_be_stopped(processor):
    for sizes in ((100_000, 4096, 4096), (4096, 300_000, 4096), (64, 64, 4_000_000)):
        kinds = [element(bfloat16)] * 2 + [element("f4")]
        steps = cpu_amx_launches.steps(sizes[0], sizes[2], sizes[1], 1, 2)
        assert steps[0] * steps[1] * sizes[1] * steps[2] <= cpu_cuts.UNSTOPPABLE
        assert cpu_amx.supports(*kinds)


# ---- permission
def test_without_permission_the_other_kernels_are_used(monkeypatch):
    """Linux may refuse; the features, and with them the keys of kernels on disk, then differ."""
    names = [f"amx-{part}" for part in ("tile", "int8", "bf16")]
    keys = {}
    for agreed in (True, False):
        monkeypatch.setattr(native, "permitted", lambda agreed=agreed: agreed)
        binding = native._llvmlite()
        present = {**dict(binding.get_host_cpu_features()), **dict.fromkeys(names, True)}
        monkeypatch.setattr(binding, "get_host_cpu_features", lambda found=present: found)
        engine = native._Engine()
        assert [engine.has[name] for name in names] == [agreed] * 3
        keys[agreed] = engine.key("text")
    assert keys[True] != keys[False]


@pytest.mark.parametrize("system,machine", [("darwin", "x86_64"), ("linux", "aarch64")])
def test_other_systems_are_not_asked(system, machine, monkeypatch):
    monkeypatch.setattr(x86_tiles.sys, "platform", system)
    monkeypatch.setattr(x86_tiles.platform, "machine", lambda: machine)
    monkeypatch.setattr(x86_tiles.ctypes, "CDLL", lambda *_: pytest.fail("asked"))
    assert not x86_tiles.permitted.__wrapped__()


@pytest.mark.parametrize("result,permitted", [(0, True), (-1, False)])
def test_the_answer_of_linux_counts(result, permitted, monkeypatch):
    calls = []

    class Library:
        def __init__(self, _):
            def syscall(*numbers):
                calls.append(numbers)
                return result

            self.syscall = syscall

    monkeypatch.setattr(x86_tiles.sys, "platform", "linux")
    monkeypatch.setattr(x86_tiles.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(x86_tiles.ctypes, "CDLL", Library)
    assert x86_tiles.permitted.__wrapped__() is permitted
    assert calls == [(158, 0x1023, 18)]


# ---- the instructions themselves
def test_llvm_selects_the_instructions(processor):
    assembly = ""
    for a, b in (*BYTES, (bfloat16, bfloat16)):
        kinds = [element(np.dtype(d)) for d in (a, b, bfloat16 if a == bfloat16 else "i4")]
        assembly += assembled(cpu_amx.product_text(cpu_amx.Kernel(*kinds)), "x86_64",
                              ",".join(f"+{name}" for name in sorted(FEATURES)))
    for mnemonic in ("ldtilecfg", "tileloadd", "tilezero", "tilestored", "tdpbf16ps", "tdpbssd",
                     "tdpbuud", "tdpbsud", "tdpbusd", "vcvtneps2bf16"):
        assert f"\t{mnemonic}\t" in assembly
    assert "\ttilerelease" in assembly


@here
@pytest.mark.parametrize("kinds,out", [(("i1", "i1"), "i4"), (("u1", "i1"), "i4"),
                                       ((bfloat16, bfloat16), "f4"),
                                       ((bfloat16, bfloat16), bfloat16)])
def test_this_processor_computes_what_the_emulation_does(kinds, out, monkeypatch):
    rng = np.random.default_rng(11)
    cases = [(pattern, *arrays(rng, pattern, sizes, kinds))
             for sizes in SIZES[:6] for pattern in PATTERNS[:3]]
    found = [product(*case, out) for case in cases]
    run = native.function
    monkeypatch.setattr(native, "function", lambda text: run(emulated(text)))
    for case, mine in zip(cases, found, strict=True):
        if np.dtype(out).kind in "iu":
            np.testing.assert_array_equal(product(*case, out), mine)
        else:  # the processor may add the two products of a word in another order
            wide = [abs(a.astype("f8")) for a in case[1:]]
            bound = 1e-6 * np.einsum(case[0], *wide) + (0.008 if out == bfloat16 else 0) * abs(
                mine.astype("f8"))
            assert (abs(product(*case, out).astype("f8") - mine.astype("f8")) <= bound).all()


@here
def test_programs_use_it_on_all_threads():
    rng = np.random.default_rng(12)
    x, w = (jnp.asarray(rng.standard_normal(s).astype("f4") / 16, bfloat16)
            for s in ((700, 300), (300, 300)))

    def f(x, w):
        step = lambda h, _: (jnp.tanh(h @ w + 1), None)
        return lax.scan(step, jnp.maximum(x @ w, 0), None, length=3)[0]

    results = []
    for threads in (1, 2, 4):
        with toile.threads(threads):
            results.append(np.asarray(toile.jit(f)(x, w)).view("i2"))
    for found in results[1:]:
        np.testing.assert_array_equal(found, results[0])
    assert abs(np.asarray(toile.jit(f)(x, w), "f4") - np.asarray(f(x, w), "f4")).max() < 0.05
    links = [link.text for step in plan_of(lambda x, w: jnp.maximum(x @ w, 0), (x, w)).steps
             for launch in step.launches for link in getattr(launch, "links", [launch])]
    assert used(links) == {"tdpbf16ps"}
