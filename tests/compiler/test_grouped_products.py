"""Products of 8-bit integers and of bfloat16 by instructions that read groups of terms.

The instructions that this machine lacks are replaced by functions that compute the same, so that
all of them are tested on every machine; LLVM compiles their kernels for the processors that have
them.
"""

import ctypes
import mmap
import sys

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered
from toile import lax
from toile.kernels.contraction import cpu as contractions
from toile.kernels.contraction import cpu_cuts, cpu_tiles
from toile.kernels.contraction.cpu_instructions import INSTRUCTIONS, SINGLE, grouping
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm import native
from toile.targets.llvm.product_types import element

bfloat16 = np.dtype(ml_dtypes.bfloat16)
BYTES = [("i1", "i1"), ("u1", "u1"), ("i1", "u1"), ("u1", "i1")]
SIZES = [(2, 2, 2), (9, 3, 5), (4, 1024, 16), (5, 1027, 17), (33, 64, 12), (70, 130, 50),
         (8, 7, 100), (1030, 20, 33)]  # fmt: skip
PATTERNS = ["ik,kj->ij", "ki,jk->ij", "ik,jk->ij", "ki,kj->ji", "bik,bkj->bij", "kbi,bjk->bji"]
# Features of processors, the bytes of their vectors, and how LLVM names such a processor.
PROCESSORS = {
    "present": ((), 16, None),
    "dotprod": (("dotprod",), 16, "aarch64 +dotprod"),
    "i8mm": (("dotprod", "i8mm", "bf16"), 16, "aarch64 +dotprod,+i8mm,+bf16"),
    "avxvnni": (("avx2", "avxvnni"), 32, "x86_64 +avx2,+avxvnni"),
    "avx512": (("avx512f", "avx512vnni", "avx512bf16"), 64,
               "x86_64 +avx512f,+avx512vnni,+avx512bf16"),
}  # fmt: skip


def whole_range(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def exact(pattern, x, y, dtype="i4"):
    return np.einsum(pattern, x.astype("i8"), y.astype("i8")).astype(dtype)


def product(pattern, x, y, dtype="i4", threads=2):
    lhs, rhs, out = pattern.replace("->", ",").split(",")
    op = DotGeneral(lhs, rhs, out, np.dtype(dtype))
    sizes = dict(zip(lhs + rhs, x.shape + y.shape, strict=True))
    (found,) = lowered(contractions.lower, op, [x, y],
                       [(tuple(sizes[c] for c in out), np.dtype(dtype))], threads)
    return found


def emulated(text):
    """The text of a kernel with functions in the place of the instructions it uses."""
    for _, width, kinds, name, operand in INSTRUCTIONS:
        if f"@{name}(" in text:
            own = "emulated_" + name.split(".")[3]
            text = text.replace(f"@{name}(", f"@{own}(") + _emulation(own, width, kinds, operand)
    # Processors without bfloat16 would convert arguments of this type by calling a library.
    return text.replace("bfloat>", "i16>")


def _emulation(name, width, kinds, operand):
    lanes, terms = width // 4, 2 if kinds == "hh" else 4
    n, wide = lanes * terms, "float" if kinds == "hh" else "i32"
    out, all_wide = f"<{lanes} x {wide}>", f"<{n} x {wide}>"
    lines = [f"define internal {out} @{name}({out} %c0, {operand} %x, {operand} %y) {{"]
    for side, kind in zip("xy", kinds, strict=True):
        narrow = f"<{n} x i{32 // terms}>"
        lines.append(f"%n{side} = bitcast {operand} %{side} to {narrow}")
        extend = "sext" if kind == "i" else "zext"
        lines.append(f"%e{side} = {extend} {narrow} %n{side} to <{n} x i32>")
        shift = ", ".join([f"i32 {16 if kind == 'h' else 0}"] * n)
        lines.append(f"%s{side} = shl <{n} x i32> %e{side}, <{shift}>")
        lines.append(f"%w{side} = bitcast <{n} x i32> %s{side} to {all_wide}")
    f = "f" if kinds == "hh" else ""
    lines.append(f"%p = {f}mul {all_wide} %wx, %wy")
    for i in range(terms):
        picks = ", ".join(f"i32 {j}" for j in range(i, n, terms))
        lines.append(f"%t{i} = shufflevector {all_wide} %p, {all_wide} poison, "
                     f"<{lanes} x i32> <{picks}>")
        lines.append(f"%c{i + 1} = {f}add {out} %c{i}, %t{i}")
    return "\n".join([*lines, f"ret {out} %c{terms}", "}\n"])


@pytest.fixture(params=PROCESSORS)
def processor(request, monkeypatch):
    """Kernels as for a processor; the texts that ran."""
    features, width, _ = PROCESSORS[request.param]
    texts, run = [], native.function

    def function(text):
        texts.append(text)
        return run(emulated(text))

    monkeypatch.setenv("TOILE_OPTIMIZE", "0")
    monkeypatch.setattr(native, "has", lambda feature: feature in features)
    monkeypatch.setattr(native, "vector_bytes", lambda: width)
    monkeypatch.setattr(native, "function", function)
    for part in (cpu_tiles, cpu_cuts):
        monkeypatch.setattr(part, "lane_operands", lambda: width == 16)
    return request.param, texts


def used(texts):
    return {name.split(".")[3] for *_, name, _ in INSTRUCTIONS if any(name in t for t in texts)}


# The instructions for products of signed, unsigned, and mixed bytes (which may be mirrored).
EXPECTED = {
    "present": [set(), set(), set()],
    "dotprod": [{"sdot"}, {"udot"}, {"sdot", "udot"}],
    "i8mm": [{"sdot"}, {"udot"}, {"usdot"}],
    "avxvnni": [{"vpdpbusd"}] * 3,
    "avx512": [{"vpdpbusd"}] * 3,
}


@pytest.mark.parametrize("case", range(4))
def test_sums_of_bytes_are_exact(case, processor):
    rng = np.random.default_rng(case)
    name, texts = processor
    for i, (m, k, n) in enumerate(SIZES):
        for pattern in (PATTERNS[i % 6], PATTERNS[(i + 3) % 6]):
            size = {"b": 3, "i": m, "j": n, "k": k}
            x, y = (whole_range(rng, [size[c] for c in labels], dtype) for labels, dtype in zip(
                pattern.split("->")[0].split(","), BYTES[case], strict=True))
            np.testing.assert_array_equal(product(pattern, x, y), exact(pattern, x, y))
    assert used(texts) == EXPECTED[name][min(case, 2)]


def test_strided_bytes(processor):
    rng = np.random.default_rng(5)
    x, y = whole_range(rng, (40, 90), "i1"), whole_range(rng, (90, 62), "i1")
    for a in (x[::2, ::2], x[:20, 44::-1], x[3:23, 5:50], np.broadcast_to(x[:1, :45], (20, 45))):
        for b in (y[::2, ::2], y[44::-1, :31], np.asfortranarray(y[:45, :31])):
            np.testing.assert_array_equal(product("ik,kj->ij", a, b), exact("ik,kj->ij", a, b))


@pytest.mark.parametrize("out", ["i1", "u1", "i2", "u4", "i8"])
def test_results_of_other_dtypes_wrap(out, processor):
    rng = np.random.default_rng(6)
    for a, b in BYTES:
        x, y = whole_range(rng, (9, 1500), a), whole_range(rng, (1500, 4), b)
        found = product("ik,kj->ij", x, y, out)
        np.testing.assert_array_equal(found, exact("ik,kj->ij", x, y, out))


def test_nothing_saturates(processor):
    """Sums of the largest products, some of which exceed 32 bits and wrap around."""
    for a, b in BYTES:
        for k in (4, 1025, 140_000):
            for left, right in ((0, 0), (1, 1), (0, 1)):
                limits = [(np.iinfo(d).min, np.iinfo(d).max) for d in (a, b)]
                x = np.full((5, k), limits[0][left], a)
                y = np.full((k, 3), limits[1][right], b)
                np.testing.assert_array_equal(
                    product("ik,kj->ij", x, y), exact("ik,kj->ij", x, y))


@pytest.mark.parametrize("out", ["f4", bfloat16, "f2"])
def test_products_of_bfloat16(out, processor):
    rng = np.random.default_rng(7)
    name, texts = processor
    for i, (m, k, n) in enumerate([*SIZES, (6, 1400, 20)]):
        for pattern in (PATTERNS[i % 6], PATTERNS[(i + 2) % 6]):
            size = {"b": 3, "i": m, "j": n, "k": k}
            x, y = (rng.standard_normal([size[c] for c in labels]).astype(bfloat16)
                    for labels in pattern.split("->")[0].split(","))
            wide = [a.astype("f8") for a in (x, y)]
            want, magnitude = np.einsum(pattern, *wide), np.einsum(pattern, *map(abs, wide))
            bound = 1.2e-7 * (k + 4) * magnitude + float(ml_dtypes.finfo(out).eps) * abs(want)
            assert (abs(product(pattern, x, y, out).astype("f8") - want) <= bound).all()
    assert used(texts) == {"i8mm": {"bfdot"}, "avx512": {"dpbf16ps"}}.get(name, set())


def test_other_dtypes_are_not_grouped(processor):
    kinds = [element(d) for d in ("bool", "int8", "int32", "bfloat16", "float32", "float64")]
    truth, byte, word, short, single, double = kinds
    for a, b, c in ((byte, byte, single), (byte, word, word), (truth, truth, word),
                    (short, single, single), (short, short, double), (truth, byte, word)):
        assert grouping(a, b, c) == SINGLE


@pytest.mark.parametrize("dtype", ["i1", bfloat16])
def test_weights_in_loops_are_packed_before_them(dtype, processor):
    rng = np.random.default_rng(8)
    for k in (301, 512):
        x, w = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((30, k), (k, 40)))
        plan, out = FakePlan(2), np.ones((30, 40), "i4" if dtype == "i1" else "f4")
        operands = plan.operand(x), plan.operand(w)
        plan.fixed.append(operands[1].ref.buffer)
        op = DotGeneral("ab", "bc", "ac", out.dtype)
        assert contractions.lower(op, operands, [plan.operand(out)], plan)
        notes = [launch.note for stage in plan.stages for launch in stage]
        if used([launch.text for stage in plan.stages for launch in stage]):
            assert notes == ["pack", "product"]
        plan.run()
        np.testing.assert_array_equal(out, x.astype("i4") @ w.astype("i4"))


# ---- what LLVM makes of the texts
MNEMONICS = {"dotprod": ["sdot", "udot"], "i8mm": ["usdot", "sudot", "bfdot"],
             "avxvnni": ["vpdpbusd"], "avx512": ["vpdpbusd", "vdpbf16ps"]}  # fmt: skip


def test_llvm_selects_the_instructions(processor):
    name, _ = processor
    if name == "present":
        return
    architecture, features = PROCESSORS[name][2].split()
    assembly = ""
    for a, b in (*BYTES, (bfloat16, bfloat16)):
        x, y = np.ones((50, 64), a), np.ones((64, 60), b)
        plan, out = FakePlan(2), np.zeros((50, 60), "f4" if a == bfloat16 else "i4")
        op = DotGeneral("ab", "bc", "ac", out.dtype)
        assert contractions.lower(op, [plan.operand(x), plan.operand(y)], [plan.operand(out)], plan)
        assembly += assembled(plan.stages[-1][0].text, architecture, features)
    for mnemonic in MNEMONICS[name]:
        assert f"\t{mnemonic}\t" in assembly


def assembled(text, architecture, features):
    """The assembly of a text for some processor."""
    llvm = native.engine().llvm
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{architecture}-unknown-linux-gnu"
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this LLVM does not compile for {architecture}")
    machine = target.create_target_machine(features=features, opt=2)
    head = f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + native.declarations(text) + text, llvm.create_context())
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module).replace("{vex}", "")


def test_features_are_part_of_keys(monkeypatch):
    keys = set()
    for found in ([], ["dotprod"], ["dotprod", "i8mm"]):
        monkeypatch.setattr(native, "arm_features", lambda found=found: found)
        engine = native._Engine()
        assert all(f"+{name}" in engine.features for name in found)
        keys.add(engine.key("text"))
    assert len(keys) == 3


# ---- on this machine
@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
@pytest.mark.parametrize("k", [64, 67, 6, 1])
@pytest.mark.parametrize("dtype", ["i1", bfloat16])
def test_nothing_beyond_the_operands_is_read(k, dtype):
    """The operands end where readable memory ends."""
    rng = np.random.default_rng(k)
    x, y = (guarded(rng.integers(-9, 9, s).astype(dtype)) for s in ((21, k), (k, 19)))
    found = product("ik,kj->ij", x, y, "i4" if dtype == "i1" else "f4")
    np.testing.assert_array_equal(found, x.astype("i4") @ y.astype("i4"))
    found = product("ki,jk->ij", guarded(x.T.copy()), guarded(y.T.copy()),
                    "i4" if dtype == "i1" else "f4")
    np.testing.assert_array_equal(found, x.astype("i4") @ y.astype("i4"))


def guarded(x):
    """A copy of an array just before a page that may not be read."""
    page = mmap.PAGESIZE
    size = -(-x.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(address + size, page, 0) == 0
    held = np.frombuffer(memory, x.dtype, x.size, size - x.nbytes).reshape(x.shape)
    held[...] = x
    return held


def scaled(x, w, scale, bias):
    return nearest(x, w).astype(jnp.float32) * scale + bias


def requantised(x, w, scale, bias):
    return jnp.clip(jnp.round(scaled(x, w, scale, bias)), -128, 127).astype(jnp.int8)


def nearest(x, w):
    return jnp.matmul(x, w, preferred_element_type=jnp.int32)


def converted(x, w, scale, bias):
    return jnp.matmul(x.astype(jnp.int32), w.astype(jnp.int32))


def batched(x, w, scale, bias):
    return toile.vmap(nearest)(w.reshape(4, 23, 92), w.T.reshape(92, 4, 23).transpose(1, 0, 2))


def in_a_loop(x, w, scale, bias):
    turn = lambda h, _: ((nearest(h, w) >> 7).astype(jnp.int8), h.sum())
    return lax.scan(turn, x, length=3)


@pytest.mark.parametrize("f", [scaled, requantised, converted, batched, in_a_loop])
def test_programs(f):
    rng = np.random.default_rng(9)
    x, w = whole_range(rng, (37, 92), "i1"), whole_range(rng, (92, 92), "i1")
    scale, bias = (rng.random(92).astype("f4") * s for s in (1e-3, 1))
    args = [jnp.asarray(a) for a in (x, w, scale, bias)]
    found = toile.tree.leaves(toile.jit(f)(*args))
    for a, b in zip(found, toile.tree.leaves(f(*args)), strict=True):
        np.testing.assert_array_equal(a, b)
    if f is converted:
        np.testing.assert_array_equal(found[0], x.astype("i4") @ w.astype("i4"))
        notes = [launch.note for step in plan_of(f, args).steps for launch in step.launches]
        assert [note for note in notes if note != "pack"] == ["product"]


@pytest.mark.parametrize("kinds", [*BYTES, ("i1", "i4"), ("u1", "i2")])
def test_operands_of_different_dtypes(kinds):
    rng = np.random.default_rng(10)
    x, y = (whole_range(rng, s, d) for s, d in zip(((9, 40), (40, 20)), kinds, strict=True))
    f = lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type="int32")
    for g in (f, toile.jit(f), lambda x, y: jnp.matmul(x, y, preferred_element_type="int32")):
        np.testing.assert_array_equal(g(jnp.asarray(x), jnp.asarray(y)), exact("ik,kj->ij", x, y))


def test_conversions_that_wrap_are_kept():
    x = jnp.asarray(np.arange(-128, 128, dtype="i1").reshape(16, 16))
    for middle in ("uint8", "uint16", "int16", "uint32"):
        f = lambda x, middle=middle: lax.dot_general(
            *[x.astype(middle)] * 2, (((1,), (1,)), ((), ())), preferred_element_type="int32")
        np.testing.assert_array_equal(toile.jit(f)(x), f(x))


def plan_of(f, args):
    jitted = toile.jit(f)
    jitted(*args)
    (traced,) = jitted.cache.entries.values()
    return traced.program.executable.plan
