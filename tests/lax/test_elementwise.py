"""Elementwise functions of `toile.lax` against `jax.lax`."""

import pytest

import toile
from tests.lax.expressions import check, check_error

REAL = (
    "abs ceil exp exp2 expm1 floor logistic neg round sign sin cos tan sinh cosh tanh asinh square "
    "cbrt erf erfc atan"
)
POSITIVE = "log log1p sqrt rsqrt reciprocal lgamma digamma bessel_i0e bessel_i1e"
UNIT = "asin acos atanh erf_inv"
ARITHMETIC = "add sub mul div max min"
BITS = "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical"

UNARY = [
    *(f"lax.{n}({a})" for n in REAL.split() for a in "fw"),
    *(f"lax.{n}({a})" for n in POSITIVE.split() for a in ("p", "1.5")),
    *(f"lax.{n}({a} / 3)" for n in UNIT.split() for a in "gp"),
    "lax.acosh(p + 1)", "lax.is_finite(f)", "lax.neg(np.arange(3))", "lax.neg(i)", "lax.abs(-1)",
    "lax.sign(i)",
    "lax.abs(c)", "lax.exp(c)", "lax.log(c)", "lax.sqrt(c)", "lax.tanh(c)", "lax.sign(c)",
    "lax.exp(1.)", "lax.exp(h)", "lax.tanh(h)", "lax.square(2)", "lax.square(i)", "lax.square(c)",
    "lax.real(c)", "lax.imag(1j)", "lax.conj(c)", "lax.conj(f)", "lax.conj(1j)", "lax.real(1j)",
    "lax.bitwise_not(b)", "lax.bitwise_not(i)", "lax.population_count(i)", "lax.clz(u)",
    "lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN)", "lax.round(np.float32(-2.5))",
    "lax.integer_pow(i, 3)", "lax.integer_pow(f, -2)", "lax.integer_pow(f, 0)",
    "lax.exp(f, accuracy=lax.AccuracyMode.HIGHEST)", "lax.tan(p, accuracy=lax.Tolerance(rtol=1))",
]  # fmt: skip
BINARY = [
    *(f"lax.{n}({a}, {b})" for n in ARITHMETIC.split() for a, b in ("fg", "ii", "uu", "cc", "fw")),
    *(f"lax.{n}({a}, {b})" for n in BITS.split() for a, b in ("ii", "uu")),
    *(f"lax.{n}({a}, {a})" for n in "eq ne lt le gt ge".split() for a in "fiub"),
    *(f"lax.{n}({a}, {a})" for n in ("eq", "ne") for a in "c"),
    "lax.add(1, 2)", "lax.add(f, 1.0)", "lax.add(w, 2.0)", "lax.add(f, np.float64(2))",
    "lax.add(m, m[:1])", "lax.mul(m[:, :1], m[:1])", "lax.add(m, f[0])", "lax.mul(2.0, m)",
    "lax.bitwise_and(b, b)", "lax.bitwise_or(b, True)",
    "lax.max(b, b)", "lax.rem(f, g)", "lax.rem(i, i - 1)", "lax.div(i, i - i)", "lax.rem(f, 0.)",
    "lax.pow(p, f)", "lax.pow(p, 2.0)", "lax.pow(f, 2)", "lax.pow(f, i)", "lax.pow(2.0, 2)",
    "lax.pow(c, c)", "lax.pow(p, m[0, 0])", "lax.nextafter(f, g)", "lax.nextafter(1., 2.)",
    "lax.atan2(f, g)", "lax.complex(f, g)", "lax.complex(1.0, 2.0)", "lax.complex(f, 2.0)",
    "lax.mul(i, i, out_dtype=jnp.int16)", "lax.mulhi(i, i)", "lax.mulhi(u, u)", "lax.mulhi(1, 2)",
    "lax.mulhi(jnp.uint32(2**31 + 5), jnp.uint32(2**31 + 9))",
    "lax.mulhi(jnp.int32(-2**31 + 5), jnp.int32(2**31 - 9))",
    "lax.mulhi(jnp.int32(-7), jnp.int32(-2**31))",
    "lax.clamp(0., f, 1.)", "lax.clamp(j, i, j + 3)", "lax.clamp(g - 1, f, g)",
    "lax.clamp(0., w, 1.)",
    "lax.select(True, f, g)", "lax.select(b, f, g)", "lax.select(b, i, i)",
    "lax.select(True, w, 2.0)", "lax.select_n(i > 0, f, g)", "lax.select_n(b, f)",
    "lax.select_n(jnp.array([0, 2, 1], jnp.int32), f, g, p)", "lax.select(jnp.bool_(False), m, m)",
    "lax.igamma(p, p)", "lax.igammac(p, 2.0)", "lax.igamma_grad_a(p, p)", "lax.zeta(p + 1, p)",
    "lax.polygamma(jnp.ones_like(p), p)", "lax.betainc(p, 2.0, 0.5)", "lax.betainc(1.0, 2.0, 0.5)",
    "lax.random_gamma_grad(p, p)",
]  # fmt: skip
GRADS = [
    *((f"lax.{n}(p / 3)", "p") for n in (
        "exp log sin cos tan tanh asin acos atan atanh sinh cosh asinh logistic sqrt rsqrt cbrt "
        "log1p expm1 exp2 erf erfc erf_inv lgamma square reciprocal abs neg".split())),
    *((f"lax.{n}(p, g)", "p") for n in "add sub mul div max min pow atan2".split()),
    *((f"lax.{n}(g, p)", "p") for n in "add sub mul div".split()),
    ("lax.mul(m, m[:, :1])", "m"), ("lax.add(m[:1], m)", "m"), ("lax.complex(f, g)", "f"),
    ("lax.clamp(g, f, g + 1)", "f"), ("lax.clamp(-0.3, f, 0.3)", "f"),
    ("lax.select(b, f * f, g)", "f"), ("lax.integer_pow(f, 3)", "f"), ("lax.pow(f, 3)", "f"),

]  # fmt: skip
TABLE = UNARY + BINARY + GRADS
ERRORS = [
    "lax.add(i, f)", "lax.add(i, 1.0)", "lax.add(n, m)", "lax.add(f, m)", "lax.add(b, b)",
    "lax.sub(b, b)", "lax.add([1.], [2.])", "lax.add(f, None)", "lax.exp(1)", "lax.exp(i)",
    "lax.neg(b)", "lax.bitwise_and(f, f)", "lax.pow(i, 2)", "lax.abs(u)",
    "lax.integer_pow(i, -1)", "lax.integer_pow(b, 2)", "lax.clamp(f[:2], f, f)", "lax.real(f)",
    "lax.select(b, f, i)", "lax.select(b, f, m)", "lax.select_n(b, f, f, f)", "lax.complex(h, h)",
    "lax.conj(i)", "lax.sign(b)", "lax.round(i)", "lax.is_finite(i)", "lax.mulhi(f, f)",
    "lax.lt(c, c)", "lax.erf(i)", "lax.exp(f, accuracy=3)", "lax.reciprocal(i)", "lax.tan(2)",
    "lax.add(jax.random.key(0), jax.random.key(0))", "lax.add(h, f)",
]  # fmt: skip


LOOSE = ("igamma", "zeta", "gamma", "bessel", "erf_inv", "betainc")  # polynomials of JAX's own


@pytest.mark.parametrize("x64", (False, True), ids=("x32", "x64"))
@pytest.mark.parametrize("expression", TABLE, ids=str)
def test_same_as_jax(expression, x64):
    loose = any(n in str(expression) for n in LOOSE)
    rtol = (1e-8 if x64 else 3e-5) if loose else None
    check(TABLE, expression, x64, 1e-2 if "(h)" in expression else rtol)


@pytest.mark.parametrize("expression", ERRORS)
def test_same_errors(expression):
    check_error(expression)


def test_numbers_take_the_dtype_of_arrays():
    x = toile.numpy.ones(3, "bfloat16")
    assert toile.lax.mul(x, 0.5).dtype == x.dtype and toile.lax.add(2, x).dtype == x.dtype
