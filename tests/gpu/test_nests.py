"""Loop nests on a GPU: their CUDA text, that NVRTC takes it, and what it computes on the host.

Texts of representative programs are kept under tests/golden/cuda; to write them anew:
python -m tests.gpu.test_nests
"""

from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.compiler.test_fusion import bits, parts
from tests.compiler.test_golden_kernels import (
    PROGRAMS,
    adam,
    backward,
    causal,
    cross_entropy,
    layer_norm,
    shape,
)
from tests.compiler.test_iterated_kernels import divisor
from tests.gpu import fibers
from tests.gpu.emulator import LIMITS, Nests
from toile import lax, nn
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Moving
from toile.compiler.plan.nests import build
from toile.kernels.nest import gpu as nests
from toile.kernels.nest import gpu_forms as nest_forms
from toile.primitives.families import Elementwise
from toile.scipy.ndimage import map_coordinates
from toile.targets.cuda import driver as driver_module
from toile.targets.cuda.modules import Kernel, compile_source

FOLDER = Path(__file__).parent.parent / "golden" / "cuda"
BF16, F16, I32 = jnp.bfloat16, jnp.float16, jnp.int32
KEY = shape(2, dtype=jnp.uint32)


def layer_norm_backward(weights, x, scale, bias):
    return toile.grad(lambda *a: (layer_norm(*a) * weights).sum(), argnums=(0, 1, 2))(
        x, scale, bias)


def dropout(key, x):
    return jnp.where(toile.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)


def dropout_both_ways(key, x, g):
    y, back = toile.vjp(lambda x: dropout(key, nn.gelu(x)), x)
    return y, *back(g)


def entropy_of_narrow(x, labels):
    return cross_entropy(x.astype(jnp.float32), labels)


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    """Texts are Hopper's, whatever GPU is here."""
    monkeypatch.setattr(driver_module, "shared_limit", lambda: driver_module.SHARED_OF_HOPPER)


# ---- texts

GOLDEN = {
    **{name: PROGRAMS[name] for name in (
        "bias_relu", "gelu", "softmax", "cross_entropy_backward", "column_sums", "long_sum",
        "transposed_add", "bfloat16_swish", "integers", "complex", "adam", "max_and_argument",
    )},
    "long_row_softmax": (nn.softmax, shape(4, 50257)),
    "block_softmax": (nn.softmax, shape(4, 4096, dtype=BF16)),
    "dropout": (dropout, KEY, shape(60, 32)),
    "layer_norm_backward": (layer_norm_backward, *[shape(256, 1024)] * 2, *[shape(1024)] * 2),
}  # fmt: skip


def texts(f, *shapes):
    found = dict.fromkeys((x.note, x.text) for x in Nests(f, *shapes).launches)
    return "\n".join(f"// {i + 1}: {note}\n{text}" for i, (note, text) in enumerate(found))


@pytest.mark.parametrize("name", GOLDEN)
def test_code_is_as_it_was(name):
    expected = (FOLDER / f"{name}.cu").read_text()
    assert texts(*GOLDEN[name]) == expected, (
        f"the kernels of {name} changed; if they should, python -m {__name__} writes them anew")


def test_no_file_is_left_over():
    assert {p.stem for p in FOLDER.glob("*.cu")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_nvrtc_takes_the_code(name):
    pytest.importorskip("cupy")
    for x in Nests(*GOLDEN[name]).launches:
        assert compile_source(Kernel(x.text).source, "sm_90")


# ---- meaning


def rolled(x):
    return sum(jnp.roll(x, k, axis) for k in (3, -1) for axis in range(x.ndim)) - x


def rolled_rows(x):
    y = rolled(x)
    return (y * x).sum(1), (y * y).sum(0), nn.softmax(y)


def joined(x, y, z):
    """Concatenations along both axes: parts of different arrays, and parts inside others."""
    inner = jnp.concatenate([y[:, :7], x[:, 5:], z[:, 3:9]], 1)
    outer = jnp.concatenate([z[:9], x[:50], y[4:], x[:2]])
    return inner * 2 + 1, outer + 3, jnp.where(outer > 0, outer, x[:1])


def complex_functions(x, y):
    names = ("sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh expm1 log1p logistic "
             "rsqrt exp log sqrt")
    return [getattr(lax, name)(x) for name in names.split()] + [x**y, lax.atan2(x, y)]


MEANING = {
    # rows: lanes, warps and blocks of registers, shared memory, and reading again
    "softmax 7x5": (nn.softmax, shape(7, 5)),
    "softmax 3x33": (nn.softmax, shape(3, 33)),
    "softmax 5x1027": (nn.softmax, shape(5, 1027)),
    "softmax 3x3000": (nn.softmax, shape(3, 3000)),
    "softmax 2x50257": (nn.softmax, shape(2, 50257)),
    "softmax 8x70000": (nn.softmax, shape(8, 70000)),
    "softmax backward 3x20001": (backward(nn.softmax), *[shape(3, 20001)] * 2),
    "softmax bfloat16": (nn.softmax, shape(5, 1000, dtype=BF16)),
    "softmax float16": (nn.softmax, shape(5, 100, dtype=F16)),
    "causal softmax": (causal, shape(24, 24)),
    "layer norm both ways": (layer_norm_backward, *[shape(300, 96)] * 2, *[shape(96)] * 2),
    "cross entropy": (toile.value_and_grad(cross_entropy), shape(33, 1000), shape(33, dtype=I32)),
    "cross entropy bfloat16": (toile.value_and_grad(entropy_of_narrow),
                               shape(33, 1000, dtype=BF16), shape(33, dtype=I32)),
    "layer norm of long rows": (layer_norm_backward, *[shape(3, 7, 5000)] * 2, *[shape(5000)] * 2),
    "layer norm bfloat16": (layer_norm_backward, *[shape(45, 77, dtype=BF16)] * 2,
                            *[shape(77, dtype=BF16)] * 2),
    "statistics": (lambda x: (x.std(-1), x.var(-1), x.max(-1)), shape(10, 100)),
    "rows over two axes": (lambda x: x.sum((1, 3)), shape(4, 5, 6, 7)),
    "rows that lie across": (lambda x: (x.T * 2).sum(-1), shape(300, 40)),
    "booleans by rows": (lambda x: (x.any(-1), x.all(-1), x.sum(-1)), shape(50, 33, dtype=bool)),
    "complex rows": (lambda x: (x * jnp.conj(x)).sum(-1), shape(30, 65, dtype=jnp.complex64)),
    "rows that overflow float16": (lambda x: x * (lax.reduce_sum(abs(x) + 2000, (1,)) * 0)[:, None],
                                   shape(5, 100, dtype=F16)),
    # long sums
    "full sum": (lambda x: x.sum(), shape(100003)),
    "long rows": (lambda x: (x * x).sum(-1), shape(3, 80000)),
    # columns
    "columns": (lambda x: x.sum(0), shape(1000, 37)),
    "columns of three": (lambda x: jnp.abs(x).sum((0, 1)), shape(50, 41, 3)),
    "columns between": (lambda x: (x * x).sum(1), shape(5, 600, 130)),
    "columns bfloat16": (lambda x: x.sum(0), shape(700, 64, dtype=BF16)),
    "columns and a map": (lambda x: (jnp.sin(x), jnp.sin(x).sum(0)), shape(300, 20)),
    "complex product": (lambda x: x.prod(0), shape(6, 33, dtype=jnp.complex64)),
    "booleans": (lambda x: (x.any(), x.all(0)), shape(500, 64, dtype=bool)),
    # maps
    "transpose": (lambda x: x.T + 1, shape(70, 130)),
    "rotation": (lambda x: jnp.rot90(x) + jnp.rot90(x, -1), shape(70, 130)),
    "bilinear": (lambda x, y: map_coordinates(x, [y * 3 + 5, y * 2 + 4], 1), shape(40, 50),
                 shape(33, 70)),
    "transpose bfloat16": (lambda x: x.T + 1, shape(130, 200, dtype=BF16)),
    "transpose of four": (lambda x, y: x.transpose(3, 1, 0, 2) * y,
                          shape(17, 3, 5, 40), shape(40, 3, 17, 5)),
    "heads": (lambda x: x.reshape(4, 32, 4, 16).transpose(0, 2, 1, 3) + 1, shape(4, 32, 64)),
    "views": (lambda x: x[::-1, ::-1][1:] + x[:-1, ::-1], shape(13, 22)),
    "broadcasts": (lambda x, y, z: x * y[:, None] + z[None, :, None],
                   shape(5, 6, 8), shape(5, 8), shape(6)),
    "scalars": (lambda x, y: x * y + 1, shape(), shape()),
    "many operands": (lambda *x: sum(x[i] * x[i - 1] for i in range(14)), *[shape(40, 32)] * 14),
    "small integers": (lambda x, y: x * y + (x - y >> 1) // 3, *[shape(64, dtype=jnp.int8)] * 2),
    "bytes to floats": (lambda x: x.astype(jnp.float32) / 255, shape(33, 64, dtype=jnp.uint8)),
    "adam": (adam, *[shape(1003)] * 4),
    "gelu bfloat16": (nn.gelu, shape(33, 64, dtype=BF16)),
    "dropout": (dropout, KEY, shape(60, 32)),
    "dropout both ways": (dropout_both_ways, KEY, *[shape(60, 32)] * 2),
    "dropout of a transpose": (lambda key, x: dropout(key, x.T), KEY, shape(40, 33)),
    "uniform": (lambda key: toile.random.uniform(key, (5, 6, 7)), KEY),
    "normal": (lambda key: toile.random.normal(key, (5, 6, 7)), KEY),
    "split counts": (lambda x: x + jnp.arange(960).reshape(30, 32)
                     + jnp.arange(960.0).reshape(32, 30).T, shape(30, 32)),
    "split counts in sums": (lambda x: ((x * jnp.arange(990).reshape(30, 33)).sum(0),
                                        (x * jnp.arange(990).reshape(30, 33)).sum(1)),
                             shape(30, 33)),
    "parts of complex numbers": (parts, shape(33, 64)),
    "functions of complex numbers": (complex_functions, *[shape(20, 33, dtype=jnp.complex64)] * 2),
    "bits": (bits, shape(33, 64)),
}  # fmt: skip
ONE_KERNEL = ("bilinear", "dropout", "dropout both ways", "dropout of a transpose", "uniform",
              "normal", "split counts", "parts of complex numbers", "bits")

on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def drawn(s, rng):
    dtype = np.dtype(s.dtype)
    if dtype.kind in "iub":
        return rng.integers(0 if dtype.kind == "u" else -50, 60, s.shape).astype(dtype)
    x = rng.standard_normal(s.shape)
    return (x + 1j * rng.standard_normal(s.shape) if dtype.kind == "c" else x).astype(dtype)


def check(f, *shapes, args=None, **options):
    rng = np.random.default_rng(3)
    args = [drawn(s, rng) for s in shapes] if args is None else args
    program = Nests(f, *shapes, **options)
    want = toile.tree_util.tree_leaves(f(*[jnp.asarray(a) for a in args]))
    for i, (g, w) in enumerate(zip(program(*args), want, strict=True)):
        nearly_equal(g, np.asarray(w), f"result {i} of {program.kinds}")
    return program


@on_host
@pytest.mark.parametrize("name", MEANING)
def test_meaning(name):
    check(*MEANING[name])


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    assert Nests(*MEANING[name]).kinds == ["map"]


PARTS = {
    "rolled": (rolled, shape(130, 132)),
    "rolled bfloat16": (rolled, shape(70, 40, 8, dtype=BF16)),
    "rolled complex": (rolled, shape(70, 40, dtype=jnp.complex64)),
    "joined complex": (joined, *[shape(60, 132, dtype=jnp.complex64)] * 3),
    "rolled integers": (rolled, shape(131, 133, dtype=I32)),
    "rolled rows": (rolled_rows, shape(130, 132)),
    "joined": (joined, *[shape(130, 132)] * 3),
    "chosen by numbers": (
        lambda x, n: lax.select_n(n, jnp.roll(x, 3, 1), jnp.roll(x, -2, 0)) * 2,
        shape(130, 132), shape(130, 132, dtype=I32)),
    "joined bytes": (joined, *[shape(130, 132, dtype=jnp.int8)] * 3),
}


@on_host
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_concatenations(name):
    check(*PARTS[name], parts=True)


def test_one_read_of_each_element():
    """Of the parts of a concatenation, a thread reads the one that has its element."""
    (launch,) = Nests(lambda x: rolled(x) + x, shape(130, 132), parts=True).launches
    assert launch.text.count("= p") == 4
    (launch,) = Nests(lambda *xs: jnp.concatenate(xs, 1) + 1, *[shape(99, 99)] * 4,
                      parts=True).launches
    assert launch.text.count("[0];") == 1


@on_host
@pytest.mark.parametrize("name", ["softmax 3x33", "transpose of four", "columns between",
                                  "long rows", "broadcasts", "rows over two axes",
                                  "split counts", "dropout of a transpose"])
def test_wide_indices(name, monkeypatch):
    """The same with indices of 64 bits."""
    monkeypatch.setattr(nest_forms, "FAR", 1)
    program = check(*MEANING[name])
    assert all("int block" not in x.text and "i64" in x.text for x in program.launches)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 0.5,
                    1.5, 2.5, -2.5, -1.0, 1.0, 88.8, -88.8, -104.0, 127.5, 255.5, -129.0, 3e9,
                    -3e9, 2e19, 0.99999994, 1e10, 4097.0, 0.01, -0.3, 7.0, 2.0], np.float32)


def unary(x, one):
    x = x * one  # one kernel for all
    whole = [x.astype(d) for d in (jnp.int8, jnp.uint8, jnp.int16, I32, jnp.uint32, bool)]
    return (*whole, jnp.exp(x), jnp.log(x), jnp.tanh(x), nn.sigmoid(x), lax.erf(x), jnp.sqrt(x),
            lax.rsqrt(x), jnp.sign(x), jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.trunc(x),
            jnp.exp2(x), jnp.expm1(x), jnp.isfinite(x), -x, abs(x), x.astype(BF16).astype(F16))


def binary(x, y, one):
    x = x * one
    return (jnp.minimum(x, y), jnp.maximum(x, y), x < y, x == y, x != y, x >= y, x / y,
            jnp.copysign(x, y), jnp.fmod(x, y), jnp.where(x > y, x, y))


@on_host
@pytest.mark.parametrize("dtype", [jnp.float32, BF16, F16])
def test_special_values(dtype):
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(np.dtype(dtype))
    one, many = np.ones((), x.dtype), shape(len(x), len(x), dtype=dtype)
    check(unary, shape(len(x), dtype=dtype), shape(dtype=dtype), args=[x, one])
    pairs = [np.ascontiguousarray(p) for p in np.meshgrid(x, x)]
    check(binary, many, many, shape(dtype=dtype), args=[*pairs, one])


@on_host
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_functions_that_iterate(dtype):
    """The same code as on CPUs, where it is compared with exact values."""
    x = np.array([0, -0.0, -1, -2.5, 1e-3, 0.5, 1, 2, 7.9, 14.5, 30, 400, np.inf, np.nan])
    with toile.enable_x64(dtype == jnp.float64):
        a, b = (v.ravel().astype(np.dtype(dtype)) for v in np.meshgrid(x, x))
        u = np.linspace(0, 1, a.size).astype(a.dtype)

        def f(a, b, u, one):
            a = a * one  # one kernel for all
            return (lax.igamma(a, b), lax.igammac(a, b), lax.igamma_grad_a(a, b),
                    lax.random_gamma_grad(a, b), lax.zeta(a, b), lax.betainc(a, b, u))

        given = [a, b, u, np.ones((), a.dtype)]
        program = Nests(f, *[shape(a.size, dtype=dtype)] * 3, shape(dtype=dtype))
        want = toile.jit(f)(*map(jnp.asarray, given))
        for i, (g, w) in enumerate(zip(program(*given), want, strict=True)):
            nearly_equal(g, np.asarray(w), f"result {i}", 2)


class Divisor(Elementwise):
    """The greatest common divisor of whole numbers."""

    accepts = "f"

    def eager(self, xp, a, b):
        return xp.gcd(a.astype(np.int64), b.astype(np.int64)).astype(a.dtype)

    def lower(self, k, a, b):
        return k.apart("divisor", divisor, a, b)


@on_host
def test_loop_that_exchanges_its_state():
    a, b = (np.random.default_rng(i).integers(1, 10**6, 50).astype(np.float64) for i in (0, 1))
    with toile.enable_x64(True):
        check(Divisor(), *[shape(50, dtype=jnp.float64)] * 2, args=[a, b])


@on_host
def test_doubles_to_halves_round_once():
    with toile.enable_x64(True):
        x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 65519.999999, 65520.0,
                      1e-8, -(2.0**-25) * (1 + 2.0**-40), np.nan, np.inf, 1e300, 0.0] * 2)
        check(lambda x: (x.astype(F16), x.astype(jnp.int64), x.astype(jnp.uint64), x.max(),
                         jnp.minimum(x, 1.0)), shape(20, dtype=jnp.float64), args=[x])


@on_host
def test_integers():
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    y = rng.integers(-40, 40, 64).astype(np.int32)
    x[:2], y[:4] = -(2**31), (-1, 0, 0, 1)

    def f(x, y, one):
        x = x * one
        u = x.astype(jnp.uint32)
        return (x * y, x - y, lax.div(x, y), lax.rem(x, y), x // 7, x % -5, lax.shift_left(x, y),
                lax.shift_right_arithmetic(x, y), lax.shift_right_logical(x, y), u >> 3, u * u,
                lax.population_count(x), lax.clz(x), ~x, x & y, x ^ y, abs(x), jnp.minimum(x, y),
                u.astype(jnp.float32), x.astype(jnp.int8), lax.clz(x.astype(jnp.int16)))

    check(f, *[shape(64, dtype=I32)] * 2, shape(dtype=I32), args=[x, y, np.int32(1)])


def scaled(w, x, r):
    """Rows with a number of their own, and a total that is not a sum."""
    y = nn.softmax(x) * r.T[..., None]
    axes = tuple(range(x.ndim - 1))
    return y, (y * w).sum(axes), y.max(axes)


# What it is, arguments, threads of the kernel, and what its text has.
TOTALS = {
    "warps": (layer_norm_backward, [shape(90, 96)] * 2 + [shape(96)] * 2, 256, "arrived<2>"),
    "warps, long": (layer_norm_backward, [shape(40, 1024)] * 2 + [shape(1024)] * 2, 128,
                    "arrived<0>"),
    "warps, two axes": (scaled, [shape(7, 11, 130), shape(7, 11, 130), shape(11, 7)], 256, "c1 ="),
    "warps, not aligned": (layer_norm_backward, [shape(45, 77, dtype=BF16)] * 2
                           + [shape(77, dtype=BF16)] * 2, 256, "y0"),
    "blocks": (layer_norm_backward, [shape(9, 2600)] * 2 + [shape(2600)] * 2, 256, "arrived<0>"),
    "blocks, long": (layer_norm_backward, [shape(9, 8192)] * 2 + [shape(8192)] * 2, 1024, "y0"),
}


@on_host
@pytest.mark.parametrize("name", TOTALS)
def test_rows_with_totals(name, monkeypatch):
    """One processor's blocks take several rows each."""
    f, shapes, threads, text = TOTALS[name]
    monkeypatch.setattr(nests, "PROCESSORS", 1)
    first, *sums = check(f, *shapes, limits=LIMITS).launches
    assert first.threads == threads and text in first.text and len(sums) >= 2
    assert first.shared <= nest_forms.SHARED_OF_ROWS


def test_narrow_floats_are_rounded_once():
    """What is a bfloat16 already is not rounded again."""
    given = shape(64, dtype=BF16)
    (same,) = Nests(lambda x: x.astype(jnp.float32).astype(BF16) * 2, given).launches
    assert "round_bf16" not in same.text
    (other,) = Nests(lambda x: (x * 2).astype(BF16).astype(jnp.float32), shape(64)).launches
    assert other.text.count("round_bf16(v") == 1


# ---- plans


def forms(f, *shapes):
    return [(x.note, x.blocks, x.threads) for x in Nests(f, *shapes).launches]


def test_magic_divides():
    rng = np.random.default_rng(0)
    divisors = [1, 2, 3, 5, 7, 96, 1000, 65537, 2**30, 2**31 - 1, *rng.integers(1, 2**31, 200)]
    for n in map(int, divisors):
        word = nests.magic(n)
        factor, shift = word & 0xFFFFFFFF, word >> 32
        numbers = [0, 1, n - 1, n, n + 1, 2 * n - 1, 2**31 - 1, *rng.integers(0, 2**31, 50)]
        for x in map(int, numbers):
            if x < 2**31:
                assert ((x * factor >> 32) + x) >> shift == x // n, (x, n)


def test_other_sizes_share_kernels():
    for f, one, other in (
        (nn.softmax, (64, 1024), (96, 1024)),
        (nn.gelu, (64, 1024), (7, 40, 512)),
        (lambda x: x.sum(0), (4096, 512), (2048, 1024)),
        (lambda x: x.sum(), (1 << 18,), (1 << 20,)),
        (lambda x: x.T + 1, (128, 256), (512, 64)),
    ):
        a, b = ([x.text for x in Nests(f, shape(*s)).launches] for s in (one, other))
        assert a == b, (one, other)


def crooked():
    """A buffer that begins anywhere in steps of 4 bytes."""
    return Moving(4)


@pytest.mark.parametrize(("offset", "buffer", "extent", "expected"), [
    (0, object, 64, 4), (4, object, 64, 1), (8, object, 64, 2), (0, crooked, 64, 1),
    (0, object, 66, 2), (0, object, 67, 1),
])
def test_packs_are_aligned(offset, buffer, extent, expected):
    """Packs are as wide as offsets, buffers and extents allow."""
    program = Nests(lambda x: x + 1, shape(extent))
    program.launches.clear()
    (group,) = program.fused.groups
    given = program.program.inputs
    where = lambda p: Ref(buffer(), offset) if p.base in given else program.place(p)
    nests.plan_nest(build(program.fused, group, False), where, program)
    assert f"Pack<float, {expected}> a0" in program.launches[0].text


def test_work_covers_the_processors():
    for f, s in ((lambda x: x.sum(), (1 << 26,)), (lambda x: x.sum(0), (1 << 16, 1024)),
                 (lambda x: (x * x).sum(-1), (4, 1 << 24))):
        first, *later = forms(f, shape(*s))
        assert first[1] >= 4 * nests.PROCESSORS and later


def test_bytes_that_must_move():
    (softmax,) = Nests(nn.softmax, shape(4096, 1024)).launches
    assert softmax.nbytes == 2 * 4 * 4096 * 1024
    (biased,) = Nests(lambda x, b: x + b, shape(4096, 1024), shape(1024)).launches
    assert biased.nbytes == 4 * (2 * 4096 * 1024 + 1024)


def write() -> None:
    """Make the files anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.cu"):
        path.unlink()
    for name, program in GOLDEN.items():
        (FOLDER / f"{name}.cu").write_text(texts(*program))


if __name__ == "__main__":
    write()


@on_host
@pytest.mark.parametrize("sizes", [(70, 3), (33, 5, 4), (129, 2)])
def test_a_thread_for_each_short_row(sizes, monkeypatch):
    monkeypatch.setattr(nest_forms, "MANY_ROWS", 1)

    def f(x, y):
        apart = x - y
        square = (apart**2).sum(-1)
        return square, apart / jnp.sqrt(square)[..., None], jnp.max(x, -1)

    made = check(f, shape(*sizes), shape(*sizes))
    assert all("threadIdx.x % 1;" in x.text for x in made.launches if x.note == "row")


@on_host
def test_arrays_of_either_layout(monkeypatch):
    """Sums over the axes that one array has last, and another one first."""
    f = lambda x, y: (x + y.transpose(0, 2, 1)).sum((0, 2))
    kinds = []
    for large in (0, 1 << 30):
        monkeypatch.setattr(nests, "LARGE", large)
        kinds.append(check(f, shape(3, 40, 37), shape(3, 37, 40)).launches[0].note)
    assert kinds[0] == "column" != kinds[1]


@on_host
@pytest.mark.parametrize("sizes", [(300, 5), (300, 64), (300, 65), (70, 256)])
def test_a_thread_for_each_row_of_common_numbers(sizes, monkeypatch):
    """All rows are compared with the same numbers."""
    monkeypatch.setattr(nest_forms, "MANY_ROWS", 1)

    def f(x, t):
        x = x[:, None]
        return (t <= x).sum(1), jnp.max(x * t, 1), jnp.exp(t + x).sum(1)

    made = check(f, shape(sizes[0]), shape(sizes[1]))
    assert all("threadIdx.x % 1;" in x.text for x in made.launches if x.note == "row")
