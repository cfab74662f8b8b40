"""Contractions as calls of cuBLAS, without a GPU: the calls are done in host memory."""

import ml_dtypes
import numpy as np
import pytest

from tests.gpu.fake_libraries import FakePlan, fake_blas
from toile import lax
from toile.kernels.contraction import gpu as contractions
from toile.kernels.copy import gpu_relayout as relayout
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import cublas, cublaslt

bfloat16 = np.dtype(ml_dtypes.bfloat16)

PATTERNS = [
    "ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji", "ki,kj->ji", "ik,jk->ji",
    "ki,jk->ji", "bik,bkj->bij", "bki,bkj->bij", "bik,bjk->bij", "bki,bjk->bij", "bik,bkj->bji",
    "bik,bkj->ijb", "bik,bkj->ibj", "ibk,kjb->bji", "kib,kjb->ijb", "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd", "bhqk,bqhd->bkhd", "bqhd,hdo->bqo", "bhqd,hdo->bqo", "bqi,bqo->io",
    "bqi,io->bqo", "bqo,io->bqi", "abcik,abckj->abcij", "abik,abkj->baij", "k,kj->j", "ik,k->i",
    "ki,k->i", "k,jk->j", "bk,bk->b", "kb,kb->b", "k,k->", "ij,ij->", "ij,ji->", "i,j->ij",
    "i,j->ji", "bi,bj->bij", ",i->i", "akb,bck->ca", "bkgtd,bksd->bkgts", "aibj,bjck->aick",
]  # fmt: skip
SIZES = [1, 3, 8, 16, 5]


def sample(rng, shape, dtype):
    dtype = np.dtype(dtype)
    x = np.asarray(rng.integers(-3, 4, shape)).astype("f8")  # products and sums of these are exact
    x = np.asarray(x + 1j * rng.integers(-3, 4, shape) if dtype.kind == "c" else x)
    return x.astype(dtype)


def check(pattern, x, y, out=None, precision=None, aligned=64):
    """Lower, run and compare; the plan, or None where it is declined."""
    operands, result = pattern.split("->")
    lhs, rhs = operands.split(",")
    wide = "c16" if x.dtype.kind == "c" else "f8"
    expected = np.einsum(f"{lhs},{rhs}->{result}", x.astype(wide), y.astype(wide))
    dtype = np.dtype(x.dtype if out is None else out)
    found = np.full(expected.shape, 99).astype(dtype)
    plan = FakePlan()
    op = DotGeneral(lhs, rhs, result, dtype, precision)
    ins = [plan.operand(x), plan.operand(y)]
    if not contractions.by_library(op, ins, [plan.operand(found)], plan):
        return None
    plan.handle = fake_blas()
    plan.run(plan.handle, aligned)
    np.testing.assert_array_equal(found.astype(wide), expected.astype(dtype).astype(wide))
    return plan


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern, dtype):
    rng = np.random.default_rng(0)
    operands, _ = pattern.split("->")
    lhs, rhs = operands.split(",")
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for turn in range(5):
        size = {c: SIZES[(ord(c) * (turn + 1) + turn) % 5] for c in lhs + rhs}
        x, y = (sample(rng, [size[c] for c in s], kind) for s in (lhs, rhs))
        plan = check(pattern, x, y)
        batch = set(lhs) & set(rhs) & set(pattern.split("->")[1])
        assert (plan is not None) == any(n > 1 for c, n in size.items() if c not in batch)


def test_swapped_operands():
    """C by rows is a call with B first; leading dimensions are those of rows."""
    rng = np.random.default_rng(1)
    plan = check("ik,kj->ij", sample(rng, (5, 7), "f4"), sample(rng, (7, 3), "f4"))
    [call] = plan.calls
    assert (call.m, call.n, call.k) == (3, 5, 7)
    assert (call.a.leading, call.b.leading, call.c.leading) == (3, 7, 3)
    assert not call.a.transposed and not call.b.transposed and plan.copies == 0
    name, args = plan.handle.functions.log[-1]
    assert name == "cublasGemmEx" and args[1:6] == (0, 0, 3, 5, 7) and args[-2:] == (77, -1)


@pytest.mark.parametrize("pattern, transposes", [
    ("ik,kj->ij", (0, 0)), ("ki,kj->ij", (0, 1)), ("ik,jk->ij", (1, 0)), ("ki,jk->ij", (1, 1)),
])  # fmt: skip
def test_transposes_are_not_copied(pattern, transposes):
    rng = np.random.default_rng(2)
    size = {"i": 4, "j": 6, "k": 8}
    lhs, rhs = pattern.split("->")[0].split(",")
    x, y = (sample(rng, [size[c] for c in s], "f4") for s in (lhs, rhs))
    plan = check(pattern, x, y)
    assert plan.copies == 0
    assert plan.handle.functions.log[-1][1][1:3] == transposes


@pytest.mark.parametrize("pattern, sizes, function, calls", [
    ("bik,bkj->bij", {"b": 6, "i": 4, "k": 8, "j": 5}, "cublasGemmStridedBatchedEx", 1),
    ("abik,abkj->abij", {"a": 2, "b": 6, "i": 4, "k": 8, "j": 5}, "cublasGemmStridedBatchedEx", 1),
    ("bqhd,bkhd->bhqk", {"b": 8, "q": 8, "k": 8, "h": 4, "d": 16}, "cublasGemmBatchedEx", 1),
    ("bhqk,bkhd->bqhd", {"b": 8, "q": 8, "k": 8, "h": 4, "d": 16}, "cublasGemmBatchedEx", 1),
    ("bqhd,bkhd->bhqk", {"b": 8, "q": 8, "k": 8, "h": 2, "d": 16}, "cublasGemmStridedBatchedEx", 2),
    ("bqi,io->bqo", {"b": 4, "q": 6, "i": 8, "o": 5}, "cublasGemmEx", 1),
])  # fmt: skip
def test_batches(pattern, sizes, function, calls):
    rng = np.random.default_rng(3)
    lhs, rhs = pattern.split("->")[0].split(",")
    x, y = (sample(rng, [sizes[c] for c in s], "f4") for s in (lhs, rhs))
    plan = check(pattern, x, y)
    names = [n for n in plan.handle.functions.names if n.startswith("cublasGemm")]
    assert names == [function] * calls and plan.copies == 0


def test_batches_of_bytes_that_cublas_does_not_support():
    """Each product is a call of its own."""
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (4, 8, 16), dtype="int8")
    y = rng.integers(-128, 128, (4, 16, 8), dtype="int8")
    plan = check("bik,bkj->bij", x, y, "int32")
    names = [n for n in plan.handle.functions.names if n.startswith("cublasGemm")]
    assert names == ["cublasGemmStridedBatchedEx"] + ["cublasGemmEx"] * 4


def test_addresses_that_are_not_aligned_are_given_one_by_one():
    rng = np.random.default_rng(4)
    x = sample(rng, (8 * 8 * 4 * 16 + 1,), "f4")[1:].reshape(8, 8, 4, 16)
    assert x.ctypes.data % 16
    plan = check("bqhd,bkhd->bhqk", x, x)
    names = [n for n in plan.handle.functions.names if n.startswith("cublasGemm")]
    assert names == ["cublasGemmStridedBatchedEx"] * 4


VIEWS = {
    "rows of a larger matrix": lambda x: x[2:10, 4:12],
    "every other row": lambda x: x[::2, :8],
    "every other column": lambda x: x[:8, ::2],
    "reversed rows": lambda x: x[7::-1, :8],
    "reversed columns": lambda x: x[:8, 7::-1],
    "broadcast rows": lambda x: np.broadcast_to(x[:1, :8], (8, 8)),
    "broadcast columns": lambda x: np.broadcast_to(x[:8, :1], (8, 8)),
    "one number": lambda x: np.broadcast_to(x[:1, :1], (8, 8)),
    "transposed": lambda x: x[:8, :8].T,
}


@pytest.mark.parametrize("right", VIEWS)
@pytest.mark.parametrize("left", VIEWS)
def test_views(left, right):
    rng = np.random.default_rng(5)
    x, y = (VIEWS[v](sample(rng, (16, 16), "f4")) for v in (left, right))
    plan = check("ik,kj->ij", x, y)
    plain = ("rows of a larger matrix", "every other row", "transposed")
    assert plan.copies == (left not in plain) + (right not in plain)


def test_a_result_with_its_batch_innermost_is_transposed_after():
    rng = np.random.default_rng(6)
    plan = check("bik,bkj->ijb", sample(rng, (5, 8, 16), "f4"), sample(rng, (5, 16, 8), "f4"))
    assert plan.copies == 1 and len(plan.calls) == 1


@pytest.mark.parametrize("x, out, ok", [
    ("float64", None, True), ("complex128", None, True), ("float16", None, True),
    ("float16", "float32", True), ("bfloat16", "float32", True), ("int8", "int32", True),
    ("int32", None, False), ("bool", None, False), ("uint8", None, False), ("int8", None, False),
    ("float32", "float64", False), ("float32", "bfloat16", False),
])  # fmt: skip
def test_dtypes(x, out, ok):
    rng = np.random.default_rng(7)
    kind, result = (np.dtype(getattr(ml_dtypes, n, n)) if n else None for n in (x, out))
    plan = check("ik,kj->ij", sample(rng, (4, 8), kind), sample(rng, (8, 12), kind), result)
    assert (plan is not None) == ok


def test_int8_needs_fours():
    rng = np.random.default_rng(8)
    assert check("ik,kj->ij", sample(rng, (4, 7), "i1"), sample(rng, (7, 8), "i1"), "i4") is None


@pytest.mark.parametrize("spec, size, copies", [
    ("ik,jk->ij", 64, 0), ("ik,kj->ij", 64, 1), ("ki,kj->ij", 64, 2), ("ik,kj->ij", 16, 0),
    ("bik,bkj->bij", 64, 1),
])  # fmt: skip
def test_int8_is_contiguous_along_the_sum(spec, size, copies, monkeypatch):
    """The layout that the tensor cores are fast with is worth a copy, except of small matrices."""
    monkeypatch.setattr(contractions, "INTEGER_TERMS", 32**3)
    rng = np.random.default_rng(9)
    x, y = (sample(rng, (8, size, size) if "b" in spec else (size, size), "i1") for _ in range(2))
    plan = check(spec, x, y, "i4")
    assert plan.copies == copies
    assert not copies or contractions.tn(plan.calls[0])


HIGHEST = (lax.Precision.HIGHEST,) * 2


@pytest.mark.parametrize("precision, compute", [
    (None, "tf32"), ((lax.Precision.DEFAULT,) * 2, "tf32"), ((lax.Precision.HIGH,) * 2, "tf32"),
    (HIGHEST, "float32"), ((lax.Precision.DEFAULT, lax.Precision.HIGHEST), "float32"),
    (lax.DotAlgorithmPreset.TF32_TF32_F32, "tf32"), (lax.DotAlgorithmPreset.DEFAULT, "tf32"),
    (lax.DotAlgorithmPreset.TF32_TF32_F32_X3, "float32"),
    (lax.DotAlgorithmPreset.F32_F32_F32, "float32"),
    (lax.DotAlgorithmPreset.BF16_BF16_F32, "bf16"),
    (lax.DotAlgorithmPreset.BF16_BF16_F32_X9, "float32"),
    (lax.DotAlgorithm(np.dtype("f4"), np.dtype("f4"), np.dtype("f4")), "float32"),
    (lax.DotAlgorithm(bfloat16, bfloat16, np.dtype("f4")), "bf16"),
])  # fmt: skip
def test_precision(precision, compute):
    assert contractions.compute_type(precision, "float32", "float32", "float32") == compute
    assert contractions.compute_type(precision, "complex64", "complex64", "complex64") == compute
    assert contractions.compute_type(precision, "bfloat16", "bfloat16", "bfloat16") == "float32"
    assert contractions.compute_type(precision, "float64", "float64", "float64") == "float64"


def test_a_sum_of_nothing_is_zero():
    plan = check("ik,kj->ij", np.ones((4, 0), "f4"), np.ones((0, 5), "f4"))
    assert [type(s) for s in plan.steps] == [relayout.Fill]
    assert check("ik,kj->ij", np.ones((0, 4), "f4"), np.ones((4, 5), "f4")).steps == []


def test_a_product_of_elements_is_none_of_matrices():
    assert check("b,b->b", np.ones(4, "f4"), np.ones(4, "f4")) is None


def test_large_sizes_take_64_bits():
    place = contractions.Ref(None)
    wide = cublas.Gemm(1 << 31, 1, 1, cublas.Matrix(place, "float32", 1 << 31),
                       cublas.Matrix(place, "float32", 1), cublas.Matrix(place, "float32", 1 << 31),
                       "float32")  # fmt: skip
    log = []

    class Recorder:
        def __getattr__(self, name):
            return lambda *args: log.append(name)

    wide.issue(cublas.Blas(Recorder(), None, 0), lambda ref: 0, 0)
    assert log[-1] == "cublasGemmEx_64"


def test_the_handle_has_its_own_workspace_and_no_atomics(monkeypatch):
    monkeypatch.setattr(cublas, "_handles", {})
    fake = fake_blas().functions
    fake.log.clear()
    monkeypatch.setattr(cublas, "functions", lambda: fake)
    monkeypatch.setattr(cublas, "allocate", lambda nbytes: (object(), 1 << 20))
    monkeypatch.setattr(cublas, "current_device", lambda: 0)
    plan = FakePlan()
    x = np.ones((4, 4), "f4")
    out = np.zeros((4, 4), "f4")
    op = DotGeneral("ik", "kj", "ij")
    operands = [plan.operand(a) for a in (x, x)]
    assert contractions.by_library(op, operands, [plan.operand(out)], plan)
    [call] = plan.calls
    for stream in (5, 5, 6):
        call.run(lambda ref: ref.buffer.array.ctypes.data + ref.offset, stream)
    np.testing.assert_array_equal(out, 4)
    assert fake.names == [
        "cublasCreate_v2", "cublasSetPointerMode_v2", "cublasSetAtomicsMode", "cublasSetMathMode",
        "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx", "cublasGemmEx",
        "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx",
    ]  # fmt: skip
    assert dict(fake.log)["cublasSetWorkspace_v2"][1:] == (1 << 20, 8 << 20)  # it is small
    cublas.blas().on(6)
    assert fake.log[-1][1][1:] == (1 << 20, 32 << 20)
    call.use_part(2)
    cublas.blas().on(6, small=True)
    assert fake.log[-1][1][1:] == ((1 << 20) + (16 << 20), 8 << 20)


# ---- cuBLASLt
class FakeLt:
    """Records calls; created things are numbered, the heuristic finds one algorithm."""

    def __init__(self, found=1):
        self.log, self.made, self.found = [], 0, found
        self.attributes = {}

    def __getattr__(self, name):
        if not name.startswith("cublasLt"):
            raise AttributeError(name)

        def call(*args):
            assert len(args) == len(cublaslt.PROTOTYPES[name])
            self.log.append((name, args))
            if name.endswith("Create"):
                self.made += 1
                cublaslt.ctypes.c_void_p.from_address(args[0]).value = self.made
            elif name == "cublasLtMatmulDescSetAttribute":
                kind = {1: "int8", 4: "int32", 8: "int64"}[args[3]]
                value = getattr(cublaslt.ctypes, "c_" + kind).from_address(args[2]).value
                self.attributes[args[1]] = value
            elif name == "cublasLtMatmulAlgoGetHeuristic":
                cublaslt.ctypes.c_int.from_address(args[9]).value = self.found
                cublaslt.Heuristic.from_address(args[8]).workspace = 512

        return call


def _gemm():
    ref = contractions.Ref
    return cublas.Gemm(
        8, 16, 32, cublas.Matrix(ref("a"), "bfloat16", 8), cublas.Matrix(ref("b"), "bfloat16", 32),
        cublas.Matrix(ref("c"), "bfloat16", 8), "float32")  # fmt: skip


def test_epilogues():
    addresses = {"a": 1024, "b": 2048, "c": 4096, "bias": 8192, "residual": 32768}
    ref = contractions.Ref
    call = cublaslt.fused(_gemm(), epilogue="gelu_bias", bias=ref("bias"),
                          c=cublas.Matrix(ref("residual"), "bfloat16", 8), beta=1.0)  # fmt: skip
    fake = FakeLt()
    on = cublaslt.Lt(fake, lambda small: (16384, 1 << 20))
    for _ in range(2):
        call.issue(on, lambda r: addresses[r.buffer] + r.offset, 3)
    names = [name for name, _ in fake.log]
    assert names.count("cublasLtMatmulAlgoGetHeuristic") == 1 and names.count("cublasLtMatmul") == 2
    assert fake.attributes[cublaslt.EPILOGUE] == 36
    assert fake.attributes[cublaslt.BIAS_POINTER] == 8192
    args = fake.log[-1][1]
    assert (args[3], args[5], args[8], args[10]) == (1024, 2048, 32768, 4096)
    assert args[13:] == (16384, 512, 3)
    assert call.reads == {"a", "b", "bias", "residual"} and call.writes == {"c"}


def test_layouts_are_of_matrices_as_stored():
    fake = FakeLt()
    gemm = _gemm()
    a = cublas.Matrix(contractions.Ref("a"), "bfloat16", 32, True)
    call = cublaslt.LtMatmul(8, 16, 32, a, gemm.b, gemm.c, "float32", count=3)
    cublaslt.Lt(fake).of(call)
    layouts = [args[1:] for name, args in fake.log if name == "cublasLtMatrixLayoutCreate"]
    assert layouts == [(14, 32, 8, 32), (14, 32, 16, 32), (14, 8, 16, 8), (14, 8, 16, 8)]
    assert sum(name == "cublasLtMatrixLayoutSetAttribute" for name, _ in fake.log) == 8


def test_no_algorithm_is_an_error():
    with pytest.raises(cublaslt.libraries.LibraryError, match="no algorithm for"):
        cublaslt.Lt(FakeLt(found=0)).of(cublaslt.fused(_gemm()))


def test_misaligned_pointers_choose_another_algorithm():
    fake = FakeLt()
    on = cublaslt.Lt(fake)
    call = cublaslt.fused(_gemm())
    for at in (1024, 1026, 1024):
        call.issue(on, lambda r, at=at: at, 3)
    names = [name for name, _ in fake.log]
    assert names.count("cublasLtMatmulAlgoGetHeuristic") == 2


@pytest.mark.parametrize("dtype, out, ok", [
    ("float8_e4m3fn", "float32", True), ("float8_e4m3fn", "bfloat16", True),
    ("float8_e5m2", "float32", False), ("float8_e4m3fn", "float8_e4m3fn", False),
])  # fmt: skip
def test_float8(dtype, out, ok):
    kind, result = (np.dtype(getattr(ml_dtypes, n, n)) for n in (dtype, out))
    plan = FakePlan()
    x, y = np.ones((32, 16), kind), np.ones((16, 48), kind)
    found = np.zeros((32, 48), result)
    op = DotGeneral("ik", "kj", "ij", result)
    ins = [plan.operand(x), plan.operand(y)]
    with cublaslt.use(cublaslt.Lt(FakeLt())):
        assert contractions.by_library(op, ins, [plan.operand(found)], plan) == ok
    if ok:
        [call] = plan.calls
        assert (call.m, call.n, call.k) == (48, 32, 16)
        assert call.a.transposed and not call.b.transposed  # the only way for float8 on Hopper
        assert (call.a.leading, call.b.leading, call.d.leading) == (16, 16, 48)
        assert plan.copies == 1


@pytest.mark.parametrize("pattern, sizes, by_warps", [
    ("bk,kj->bj", {"b": 128, "k": 512, "j": 10}, True),
    ("kb,jk->bj", {"b": 33, "k": 70, "j": 3}, True),
    ("bk,kj->jb", {"b": 5, "k": 64, "j": 40}, True),
    ("bck,kcj->bj", {"b": 20, "c": 4, "k": 30, "j": 6}, True),
    ("bk,kj->bj", {"b": 128, "k": 512, "j": 12}, False),  # cuBLAS reads vectors
    ("bk,kj->bj", {"b": 128, "k": 512, "j": 1}, False),
    ("bk,kj->bj", {"b": 512, "k": 512, "j": 10}, False),
    ("bk,kj->bj", {"b": 128, "k": 2048, "j": 10}, False),
    ("bk,kj->bj", {"b": 128, "k": 16, "j": 10}, False),
    ("abk,akj->abj", {"a": 2, "b": 12, "k": 64, "j": 10}, False),
])  # fmt: skip
def test_narrow_products_take_a_warp_for_each_number(pattern, sizes, by_warps):
    rng = np.random.default_rng(0)
    lhs, rhs = pattern.split("->")[0].split(",")
    x, y = (sample(rng, [sizes[c] for c in labels], "float32") for labels in (lhs, rhs))
    for a in (x, np.asfortranarray(x)):
        plan = check(pattern, a, y)
        notes = [getattr(s, "note", "") for s in plan.steps]
        assert ("sums of products" in notes) == by_warps and (len(notes) == 1 or not by_warps)
    plan = check(pattern, x.astype("float64"), y.astype("float64"))
    assert "sums of products" not in [getattr(s, "note", "") for s in plan.steps]
