"""Every elementwise operation as kernel code against its eager rule, at every dtype it accepts.

Each case compiles the loop y[i] = op(x[i], ...) and compares 2000 values, special ones included:
to the bit where arithmetic is exact, within units in the last place for functions.
"""

import ctypes
import fractions
import re

import ml_dtypes
import mpmath
import numpy as np
import pytest

from tests.cases import noted
from toile.compiler.scalar.builder import Unsupported
from toile.compiler.scalar.mathematics import trigonometric
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.primitives import (
    barriers,
    bits,
    complexes,
    elementwise,
    families,
    shapes,
    special,
    transcendental,
)
from toile.targets.llvm import native, scalars
from toile.targets.llvm import text as ir
from toile.targets.llvm.scalars import Scalars

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [BFLOAT16, np.dtype("f2"), np.dtype("f4"), np.dtype("f8")]
INTEGERS = [np.dtype(c) for c in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
COMPLEXES = [np.dtype("c8"), np.dtype("c16")]
ALL = [np.dtype(bool), *INTEGERS, *FLOATS, *COMPLEXES]
COUNT = 2003  # odd: the loops have a remainder


def text_of(code, dtypes_in):
    """The module that computes `code(k, *elements)` over arrays; and the result's dtype."""
    n = len(dtypes_in)
    params = ["i64 %lo", "i64 %hi", *(f"ptr noalias %p{i}" for i in range(n + 1))]
    body = ir.Function("body", params, internal=True, attributes="noinline nounwind")
    k = Scalars(body)
    with body.loop("%lo", "%hi", vectorize=True) as i:
        y = code(k, *(k.load(f"%p{j}", i, d) for j, d in enumerate(dtypes_in)))
        k.store(y, f"%p{n}", i)
    f = ir.kernel()
    pointers = [f.load("ptr", f.at("%buffers", j, "ptr"), 8) for j in range(n + 1)]
    f.do(f"call void @body(i64 %lo, i64 %hi, {', '.join(f'ptr {p}' for p in pointers)})")
    return ir.module(body, f), y.dtype


def run(code, *xs):
    """`code` applied to each element of arrays."""
    text, dtype = text_of(code, [x.dtype for x in xs])
    out = np.empty(xs[0].shape, dtype)
    table = (ctypes.c_void_p * (len(xs) + 1))(*(x.ctypes.data for x in (*xs, out)))
    KERNEL(native.function(text))(0, out.size, None, ctypes.addressof(table))
    return out


def samples(dtype, seed, scale=4.0):
    """Numbers of a dtype: random bits, ordinary sizes, and the special ones."""
    rng = np.random.default_rng(seed)
    kind = dtypes.kind(dtype)
    if kind == "b":
        return rng.integers(0, 2, COUNT).astype(bool)
    if kind == "c":
        part = np.dtype("f4") if dtype.itemsize == 8 else np.dtype("f8")
        re, im = samples(part, seed, scale), samples(part, seed + 7, scale)
        return (rng.permutation(re) + 1j * rng.permutation(im)).astype(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    noise = rng.integers(0, 2 ** (8 * dtype.itemsize), COUNT, unsigned, endpoint=False).view(dtype)
    if kind in "iu":
        info = np.iinfo(dtype)
        edges = np.array([info.min, info.max, info.max - 1, 0, 1, 2, 3, 31], dtype)
        small = rng.integers(max(info.min, -20), 20, COUNT // 2).astype(dtype)
        return rng.permutation(np.concatenate([edges, small, noise]))[:COUNT]
    noise = np.where(np.isnan(noise), dtype.type(np.nan), noise)  # none that signals
    info = ml_dtypes.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, np.inf, -np.inf, np.nan,
             float(info.max), float(info.min), float(info.tiny), -float(info.tiny),
             float(info.smallest_subnormal), 1 + float(info.eps), 1 - float(info.eps) / 2]
    ordinary = (rng.normal(size=COUNT // 2) * scale).astype(dtype)
    return rng.permutation(np.concatenate([np.array(edges).astype(dtype), ordinary, noise])[:COUNT])


def ulps(got, expected):
    """Distance in units in the last place; equal infinities and NaN are at distance 0."""
    step = np.spacing(np.abs(expected)).astype(np.float64)
    apart = np.abs(got.astype(np.float64) - expected.astype(np.float64)) / step
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return np.where(same, 0.0, apart)


def check(got, expected, bound):
    """Equal dtypes, and values within `bound` ulp (0: equal bits, NaN and zeros apart)."""
    assert got.dtype == expected.dtype
    if dtypes.kind(expected.dtype) == "c":
        return check_complex(got, expected, bound)
    if dtypes.kind(expected.dtype) != "f":
        np.testing.assert_array_equal(got, expected)
        return None
    if bound == 0:
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        assert same.all(), (got[~same][:5], expected[~same][:5])
        return None
    distance = ulps(got, expected)
    worst = np.nanargmax(np.where(np.isnan(distance), np.inf, distance))
    assert distance[worst] <= bound, (distance[worst], got[worst], expected[worst])
    return None


def check_complex(got, expected, bound):
    """Finite numbers agree relative to their modulus; the others are not compared part by part."""
    finite = np.isfinite(expected) & np.isfinite(got)
    eps = np.finfo(expected.dtype).eps
    scale = np.maximum(np.abs(expected), np.finfo(expected.dtype).tiny / eps)
    error = np.abs(got - expected)[finite] / scale[finite] / eps
    assert finite.mean() > 0.3
    assert error.max() <= max(bound, 0.5), (error.max(),)


def check_same(got, expected):
    """Equal elements; NaN equals NaN."""
    same = (got == expected) | ((got != got) & (expected != expected))
    assert got.dtype == expected.dtype and same.all(), (got[~same][:5], expected[~same][:5])


# These eager rules round narrow floats at every step, a kernel at the end only.
STEPWISE = {"integer_pow", "one_minus_square", "logistic", "fused_multiply_add"}


def eager(op, *xs):
    dtype = xs[0].dtype
    if op.name == "logistic" and dtypes.kind(dtype) == "f" and dtype.itemsize > 2:
        # its e**-x would overflow too soon
        return op.eager(np, xs[0].astype(np.longdouble)).astype(dtype)
    if op.name in STEPWISE and dtype.itemsize == 2 and dtypes.kind(dtype) == "f":
        return np.asarray(op.eager(np, *(x.astype(np.float32) for x in xs))).astype(dtype)
    return np.asarray(op.eager(np, *xs))


# ---------------------------------------------------------------- which operations, and how close

EXACT = 0
BOUNDS = {
    "add": EXACT, "sub": EXACT, "mul": EXACT, "div": EXACT, "rem": EXACT, "neg": EXACT,
    "max": EXACT, "min": EXACT, "abs": EXACT, "sign": EXACT, "floor": EXACT, "ceil": EXACT,
    "nextafter": EXACT, "is_finite": EXACT, "clamp": EXACT, "sqrt": EXACT, "rsqrt": 1,
    "one_minus_square": 2, "exp": 2, "exp2": 2, "expm1": 4, "log": 2, "log1p": EXACT, "log2": 2,
    "logistic": 2, "cbrt": 2, "sin": 2, "cos": 2, "tan": 4, "asin": 3, "acos": 3, "atan": 3,
    "atan2": 4, "sinh": 4, "cosh": 3, "tanh": 6, "asinh": 4, "acosh": 4, "atanh": 4, "erf": EXACT,
    "erfc": 6, "erf_inv": EXACT, "pow": 2,
}
LOOSE = {("pow", "f8"): 4, ("erf", "f8"): 4, ("erf_inv", "f8"): 64, ("log1p", "f8"): 2,
         ("cbrt", "f8"): 4, ("erfc", "f8"): 2000}  # SciPy's is off by x² units
COMPLEX_BOUND = 8
# Of complex numbers of any size, eager results have few correct digits: see test_complex_kernels.
LOSES_DIGITS = {"pow", "atan2"}
BINARY = {"add", "sub", "mul", "div", "rem", "max", "min", "nextafter", "atan2", "pow", "eq", "ne",
          "lt", "le", "gt", "ge", "and", "or", "xor", "shift_left", "shift_right_logical",
          "shift_right_arithmetic", "zeta", "igamma", "igammac", "igamma_grad_a",
          "random_gamma_grad"}
TERNARY = {"clamp", "regularized_incomplete_beta"}
ELEMENTWISE = [
    families.add, families.sub, families.neg, families.mul, elementwise.div, elementwise.rem,
    elementwise.pow_, elementwise.abs_, elementwise.sign, elementwise.floor, elementwise.ceil,
    elementwise.is_finite, elementwise.max_, elementwise.min_, elementwise.nextafter,
    elementwise.clamp, elementwise.log, elementwise.Round(False), elementwise.Round(True),
    *(elementwise.IntegerPow(n) for n in (0, 1, 2, 3, 7, -1, -2)),
    bits.eq, bits.ne, bits.lt, bits.le, bits.gt, bits.ge, bits.and_, bits.or_, bits.xor, bits.not_,
    bits.shift_left, bits.shift_right_logical, bits.shift_right_arithmetic, bits.population_count,
    bits.clz, transcendental.exp, transcendental.exp2, transcendental.expm1, transcendental.log1p,
    transcendental.log2, transcendental.logistic, transcendental.sqrt, transcendental.rsqrt,
    transcendental.cbrt, transcendental.sin, transcendental.cos, transcendental.tan,
    transcendental.asin, transcendental.acos, transcendental.atan, transcendental.atan2,
    transcendental.sinh, transcendental.cosh, transcendental.tanh, transcendental.asinh,
    transcendental.acosh, transcendental.atanh, transcendental.one_minus_square, special.erf,
    special.erfc, special.erf_inv,
]
GAMMA = (special.lgamma, special.digamma)
ITERATED = (special.zeta, special.igamma, special.igammac, special.igamma_grad_a,
            special.random_gamma_grad, special.regularized_incomplete_beta)
# Code that kernels do not have: such equations run through `eager`.
UNSUPPORTED = {"c": {"lt", "le", "gt", "ge", "max", "min", "clamp"}}


def accepted(op):
    return [dtype for dtype in ALL if dtypes.kind(dtype) in op.accepts]


def bound_of(op, dtype):
    kind = dtypes.kind(dtype)
    if kind == "c":
        return COMPLEX_BOUND
    loose = LOOSE.get((op.name, dtype.str[1:]))
    if loose is not None:
        return loose
    bound = BOUNDS.get(op.name, EXACT)
    return min(bound, 2) if dtype.itemsize == 2 and bound else bound


def lacks_code(op, dtype):
    kind = dtypes.kind(dtype)
    if op.name in UNSUPPORTED.get(kind, ()):
        return True
    return op.name == "integer_pow" and kind in "iu" and op.y < 0


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: f"{op}{getattr(op, 'y', '')}")
def test_lowered_as_eager(op):
    assert accepted(op)
    for dtype in accepted(op):
        with noted(dtype):
            check_lowered(op, dtype)


def check_lowered(op, dtype):
    """Kernel code against the eager rule, in one dtype."""
    arity = 3 if op.name in TERNARY else 2 if op.name in BINARY else 1
    scale = 0.6 if op.name in ("asin", "acos", "atanh", "erf_inv") else 4.0
    xs = [samples(dtype, 11 * i + 1, scale) for i in range(arity)]
    if lacks_code(op, dtype):
        with pytest.raises(Unsupported):
            text_of(op.lower, [x.dtype for x in xs])
        return
    got = run(op.lower, *xs)
    expected = eager(op, *xs)
    if dtype.kind == "c" and op.name in LOSES_DIGITS:
        return
    check(got, expected, bound_of(op, dtype))


@pytest.mark.parametrize("old", ALL, ids=lambda d: d.name)
def test_conversion(old):
    x = samples(old, 3)
    for new in ALL:
        op = elementwise.ConvertElementType(new)
        got, expected = run(op.lower, x), eager(op, x)
        if dtypes.kind(new) == "c":
            np.testing.assert_array_equal(got, expected)
        else:
            check(got, expected, EXACT)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_bits(dtype):
    x = samples(dtype, 5)
    for exponent, mantissa in ((8, 7), (5, 10), (4, 3), (5, 2), (8, 23), (11, 52), (2, 0), (11, 4)):
        op = shapes.ReducePrecision(exponent, mantissa)
        check(run(op.lower, x), eager(op, x), EXACT)
    integer = np.dtype(f"u{dtype.itemsize}")
    there, back = shapes.BitcastConvertType(integer), shapes.BitcastConvertType(dtype)
    number = x[~np.isnan(x)]
    np.testing.assert_array_equal(run(there.lower, number), eager(there, number))
    check(run(back.lower, x.view(integer)), x, EXACT)


@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_choice(dtype):
    x, y, z = (samples(dtype, i) for i in (1, 2, 3))
    which = samples(np.dtype(bool), 4)
    op = elementwise.select_n
    check_same(run(op.lower, which, x, y), eager(op, which, x, y))
    index = np.random.default_rng(0).integers(-1, 4, COUNT).astype(np.int32)
    check_same(run(op.lower, index, x, y, z), eager(op, index, x, y, z))
    for identity in (barriers.stop_gradient, barriers.Name("a"), shapes.copy):
        check_same(run(identity.lower, x), x)


def test_integer_exponents():
    x = samples(np.dtype("f4"), 1)
    y = np.random.default_rng(0).integers(-9, 9, COUNT).astype(np.int32)
    check(run(elementwise.pow_.lower, x, y), eager(elementwise.pow_, x, y), 2)


def test_complex_parts():
    z = samples(np.dtype("c8"), 1)
    re, im = z.real.copy(), z.imag.copy()
    np.testing.assert_array_equal(run(complexes.complex_.lower, re, im), z)
    np.testing.assert_array_equal(run(complexes.real.lower, z), re)
    np.testing.assert_array_equal(run(complexes.imag.lower, z), im)
    np.testing.assert_array_equal(run(complexes.conj.lower, z), z.conj())
    np.testing.assert_array_equal(run(complexes.Conj(True).lower, re), re.astype(np.complex64))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_fused_multiply_add(dtype):
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=COUNT).astype(dtype) for _ in range(3))
    op = special.fused_multiply_add
    check(run(op.lower, a, b, c), eager(op, a, b, c), 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_gamma(dtype):
    x = samples(dtype, 1)
    for op in GAMMA:
        got, expected = run(op.lower, x), eager(op, x)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        wide = expected.astype(np.float64)
        error = np.abs(got.astype(np.float64) - wide) / np.maximum(np.abs(wide), 1.0)
        error = np.where(got == expected, 0.0, error)
        large = dtype == np.float64 and op is special.digamma  # π / tan πx next to its poles
        limit = {2: 1e-2, 4: 1e-6, 8: 1e-6 if large else 1e-12}[dtype.itemsize]
        assert np.nanmax(error) <= limit


# ------------------------------------------------------------------------------- the whole builder


def test_precise_forms():
    x = samples(np.dtype("f4"), 1)
    wide = x.astype(np.float64)
    check(run(lambda k, x: k.tanh(x, precise=True), x), np.tanh(wide).astype(np.float32), 2)
    expected = special.raw.erf(np, wide).astype(np.float32)
    check(run(lambda k, x: k.erf(x, precise=True), x), expected, 2)


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=lambda d: d.name)
def test_logistic_over_its_range(dtype):
    """Down to subnormal results, and where 1 + e**-x has no bit to spare."""
    rng = np.random.default_rng(0)
    least = np.log(float(np.finfo(dtype).smallest_subnormal)) - 1
    x = np.concatenate([rng.uniform(least, 40, 10**5), rng.uniform(-1, 1, 10**5),
                        rng.normal(size=10**5) * 6, [-16.650537, -0.00432110, np.inf, -np.inf]])
    x = x.astype(dtype)
    got = run(lambda k, x: k.logistic(x), x)
    wide = x.astype(np.longdouble if dtype == np.float64 else np.float64)
    e = np.exp(-np.abs(wide))
    expected = np.where(wide < 0, e, 1) / (1 + e)
    step = np.spacing(expected.astype(dtype))
    assert np.max(np.abs(got - expected) / step) <= (2 if dtype == np.float32 else 3)


def test_gelu_is_accurate():
    x = np.linspace(-8, 8, 4001, dtype=np.float32)
    root = np.float32(np.sqrt(0.5))
    got = run(lambda k, x: k.mul(k.mul(x, 0.5), k.erfc(k.mul(x, -root))), x)
    wide = x.astype(np.float64)
    expected = 0.5 * wide * special.raw.erfc(np, -wide * np.sqrt(0.5))
    assert np.abs(got - expected).max() <= 5e-7


def test_large_arguments_of_sine():
    x = np.array([1e5, 1e10, 1e22, 3.4e38, 11.0, 355.0, 16367173.0 * 2.0**72], np.float32)
    check(run(lambda k, x: k.sin(x), x), np.sin(x.astype(np.float64)).astype(np.float32), 2)


def hardest_angles():
    """For each exponent, the float32 numbers that are closest to multiples of π/2."""
    rng = np.random.default_rng(0)
    for e in range(-23, 105):
        turns = fractions.Fraction(int(mpmath.ldexp(1 / mpmath.pi, e + 301)), 2**300)
        best = turns.limit_denominator(2**24 - 1).denominator
        yield from (best * 2.0**e, *((best * m % 2**24) * 2.0**e for m in (3, 5, 7)))
        yield from rng.integers(2**23, 2**24, 4) * 2.0**e


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_all_sizes(name):
    """Reduced angles are exact enough next to multiples of π/2, and where the factors change."""
    with mpmath.workprec(400):
        x = np.array([*hardest_angles()], np.float32)
        edges = np.float32(2.0) ** np.array(trigonometric._LARGE, np.float32)
        x = np.concatenate([x, edges, np.nextafter(edges, np.float32(0))])
        expected = np.array([float(getattr(mpmath, name)(float(v))) for v in x])
    got = run(lambda k, x: getattr(k, name)(x), x)
    distance = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert distance.max() <= (3.2 if name == "tan" else 1.6), x[distance.argmax()]


def test_sine_does_not_depend_on_neighbors():
    """Every element has the same bits in a vector, in a remainder and alone."""
    x = samples(np.dtype("f4"), 1)
    for code in (lambda k, x: k.sin(x),
                 lambda k, x: k.mul(*trigonometric.sine_and_cosine(k, x))):
        together = run(code, x).view(np.uint32)
        apart = np.concatenate([run(code, x[i:i + 1]) for i in range(0, COUNT, 7)])
        np.testing.assert_array_equal(together[::7], apart.view(np.uint32))


def test_scalar_arguments():
    def code(k, x):
        words = {np.dtype("f4"): 0x40490FDB, np.dtype("f8"): 0x400921FB54442D18, BFLOAT16: 0x4049}
        return k.mul(x, k.bits_argument(words[x.dtype], x.dtype))

    for dtype in (BFLOAT16, np.dtype("f4"), np.dtype("f8")):
        x = np.ones(5, dtype)
        np.testing.assert_array_equal(run(code, x), np.full(5, np.pi).astype(dtype))


TARGETS = {
    "aarch64": ("aarch64-unknown-linux-gnu", "neoverse-n1", ""),
    "x86_64": ("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c"),
}


def compiled_for(name, text):
    """The optimised module and its assembly for a processor, this one or another."""
    llvm = native.engine().llvm
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu, features = TARGETS[name]
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this llvmlite was built without {name}")
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3)
    head = f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + native.declarations(text) + text)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.loop_interleaving = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(module), machine.emit_assembly(module)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [*FLOATS[1:], COMPLEXES[0]], ids=lambda d: d.name)
def test_no_calls_and_vectors(name, dtype, monkeypatch):
    """Loops become vector code that calls nothing but the intrinsics of instructions, and vector
    functions of the same module."""
    monkeypatch.setattr(scalars, "X86", name == "x86_64")
    ops = [op for op in (*ELEMENTWISE, *GAMMA, *ITERATED)
           if "f" in op.accepts and not lacks_code(op, dtype)]
    if dtype == np.float16:  # its functions are those of float32
        ops = [families.add, transcendental.exp, elementwise.nextafter]
    conversions = [elementwise.ConvertElementType(d) for d in ALL]
    if dtype.kind == "c":
        ops, conversions = [transcendental.cos, transcendental.tanh, transcendental.acosh,
                            transcendental.atan, elementwise.pow_], []
    for op in (*ops, *conversions):
        arity = 3 if op.name in TERNARY else 2 if op.name in BINARY else 1
        text, _ = text_of(op.lower, [dtype] * arity)
        code, assembly = compiled_for(name, text)
        if "@llvm.mem" in code:  # a loop that only copies becomes memcpy
            continue
        assert "vector.body" in code, op
        called = re.findall(r"^\s+(?:bl|callq?|jmp|b)\s+([A-Za-z_]\S*)", assembly, re.M)
        assert all("body" in f for f in called), (op, called)


def test_avals_agree():
    """A kernel's result has the dtype that `infer` says."""
    for op in ELEMENTWISE:
        dtype = next(d for d in reversed(ALL) if dtypes.kind(d) in op.accepts)
        if lacks_code(op, dtype):
            continue
        arity = 3 if op.name in TERNARY else 2 if op.name in BINARY else 1
        _, found = text_of(op.lower, [dtype] * arity)
        assert found == op.infer(*[Aval((2,), dtype)] * arity).dtype
