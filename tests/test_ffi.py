"""C functions in compiled programs: results, batches, loops, aliases, and errors before a call."""

import ctypes
import ctypes.util
import shutil
import subprocess

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import ffi, lax
from toile.ffi.c_functions import parsed

SOURCE = r"""
#include <stdint.h>
#include <string.h>
int64_t calls = 0;
void axpy(int64_t n, float a, const float *x, const float *y, float *out) {
  for (int64_t i = 0; i < n; i++) out[i] = a * x[i] + y[i];
}
void sums(const double *x, double *rows, int32_t *counts, int32_t m, uint8_t n, double scale,
          int8_t shift) {
  for (int i = 0; i < m; i++) {
    rows[i] = shift;
    for (int j = 0; j < n; j++) rows[i] += scale * x[i * n + j];
    counts[i] = n;
  }
}
int32_t plus(int32_t a, int8_t b) { return a + b; }
double half(int64_t a) { return a / 2.0; }
void affine(void **arrays, const int64_t *shapes, const int64_t *attributes) {
  float *x = arrays[0], *y = arrays[1];
  double by; memcpy(&by, attributes + 1, 8);
  int64_t n = 1;
  for (int64_t i = 0; i < shapes[0]; i++) n *= shapes[1 + i];
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * attributes[0] + by;
}
void increase(void **arrays, const int64_t *shapes, const int64_t *attributes) {
  float *x = arrays[0];
  int64_t n = 1;
  for (int64_t i = 0; i < shapes[0]; i++) n *= shapes[1 + i];
  for (int64_t i = 0; i < n; i++) x[i] += 1;
}
void pair(void **arrays, const int64_t *shapes, const int64_t *attributes) {
  float *x = arrays[0], *y = arrays[1], *out = arrays[2];
  int64_t rx = shapes[0], ry = shapes[1 + rx], n = shapes[rx], batch = rx > 1 ? shapes[1] : 1;
  int64_t by = ry > 1 ? shapes[2 + rx] : 1;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < n; i++) out[b * n + i] = x[b * n + i] * y[(by > 1 ? b : 0) * n + i];
}
void count(void **arrays, const int64_t *shapes, const int64_t *attributes) { calls++; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C functions above."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "f.c").write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "f.so", folder / "f.c"],
                   check=True)
    return ctypes.CDLL(str(folder / "f.so"))


@pytest.fixture(scope="module")
def libm():
    return ctypes.CDLL(ctypes.util.find_library("m"))


@pytest.fixture
def axpy(library):
    return ffi.c_function(
        library.axpy, "void axpy(int64_t n, float a, const float *x, const float *y, float *out)")


X, Y = jnp.arange(5.0), jnp.linspace(0, 1, 5)
ROWS = jnp.arange(15.0).reshape(3, 5)
BOTH = pytest.mark.parametrize("transform", [lambda f: f, toile.jit], ids=["eager", "compiled"])
SHAPES = {
    "plain": (lambda f: f(X, Y), 2.5 * X + Y),
    "strided": (lambda f: f(ROWS.T[1], Y[:3]), 2.5 * ROWS.T[1] + Y[:3]),
    "reversed": (lambda f: f(X[::-1], Y), 2.5 * X[::-1] + Y),
    "broadcast": (lambda f: f(jnp.broadcast_to(X[:1], (5,)), Y), 2.5 * X[0] + Y),
    "first mapped": (lambda f: toile.vmap(f, (0, None))(ROWS, Y), 2.5 * ROWS + Y),
    "second mapped": (lambda f: toile.vmap(f, (None, 0))(X, ROWS), 2.5 * X + ROWS),
    "both mapped": (lambda f: toile.vmap(f)(ROWS, ROWS), 3.5 * ROWS),
    "other axes": (lambda f: toile.vmap(f, (1, None), 1)(ROWS.T, Y), (2.5 * ROWS + Y).T),
    "mapped twice": (lambda f: toile.vmap(toile.vmap(f, (None, 0)), (0, None))(ROWS, ROWS),
                     2.5 * ROWS[:, None] + ROWS[None]),
    "mapped twice, one always": (
        lambda f: toile.vmap(toile.vmap(f, (0, None)), (None, None), axis_size=2)(ROWS, Y),
        jnp.stack([2.5 * ROWS + Y] * 2)),
    "empty batch": (lambda f: toile.vmap(f, (0, None))(ROWS[:0], Y), ROWS[:0]),
    "loop": (lambda f: lax.fori_loop(0, 4, lambda i, x: f(x, Y), X),
             2.5 * (2.5 * (2.5 * (2.5 * X + Y) + Y) + Y) + Y),
    "scan": (lambda f: lax.scan(lambda c, x: (f(c, x), c.sum()), X, ROWS)[1],
             jnp.stack([X.sum(), (2.5 * X + ROWS[0]).sum(),
                        (2.5 * (2.5 * X + ROWS[0]) + ROWS[1]).sum()])),
    "branch": (lambda f: lax.cond(X[0] > 0, lambda: X, lambda: f(X, Y)), 2.5 * X + Y),
}


@BOTH
@pytest.mark.parametrize("name", SHAPES)
def test_pointers(name, transform, axpy):
    call, want = SHAPES[name]
    got = transform(lambda: call(lambda x, y: axpy(x, y, n=x.size, a=2.5)))()
    np.testing.assert_allclose(got, want, rtol=1e-6)


@BOTH
def test_all_types_of_numbers_and_several_results(transform, library):
    with toile.enable_x64(True):
        sums = ffi.c_function(
            library.sums, "void sums(const double *x, double *rows, int32_t *counts, int32_t m, "
            "uint8_t n, double scale, int8_t shift);",
            lambda x, m, **_: [toile.ShapeDtypeStruct((m,), x.dtype),
                               toile.ShapeDtypeStruct((m,), jnp.int32)])
        x = np.arange(600.0).reshape(3, 200)
        rows, counts = transform(lambda x: sums(x, m=3, n=200, scale=-0.5, shift=-7))(x)
    np.testing.assert_array_equal(rows, -0.5 * x.sum(1) - 7)
    np.testing.assert_array_equal(counts, [200] * 3)


@BOTH
def test_functions_of_elements(transform, library, libm):
    plus = ffi.c_function(library.plus, "int32_t plus(int32_t a, int8_t b)")
    got = transform(plus)(jnp.array([[100], [2]]), jnp.array([-128, 3], jnp.int8))
    np.testing.assert_array_equal(got, [[-28, 103], [-126, 5]])
    assert got.dtype == np.int32
    hypot = ffi.c_function(libm.hypotf, "float hypotf(float x, float)", thread_safe=True)
    x = jnp.arange(3000.0).reshape(3, 1000)
    np.testing.assert_allclose(transform(toile.vmap(hypot, (0, None)))(x, 2.0), np.hypot(x, 2),
                               rtol=1e-6)
    with toile.enable_x64(True):
        half = ffi.c_function(library.half, "double half(int64_t)")
        assert transform(half)(jnp.array(-3, jnp.int64)) == -1.5


METHODS = {"sequential": (3, 1), "broadcast_all": (1, 3), "expand_dims": (1, 1)}


@BOTH
@pytest.mark.parametrize("method", METHODS)
def test_vmap_methods(method, transform, library):
    ffi.register_ffi_target("pair", library.pair)
    call = ffi.ffi_call("pair", toile.ShapeDtypeStruct((5,), jnp.float32), vmap_method=method)
    np.testing.assert_array_equal(transform(toile.vmap(call, (0, None)))(ROWS, X), ROWS * X)
    np.testing.assert_array_equal(transform(toile.vmap(call))(ROWS, ROWS), ROWS * ROWS)
    np.testing.assert_array_equal(transform(call)(X, X), X * X)


@BOTH
def test_attributes_capsules_and_trees(transform, library):
    ffi.register_ffi_target("affine", ffi.pycapsule(library.affine), platform="cpu")
    struct = {"y": toile.ShapeDtypeStruct((3, 5), jnp.float32)}
    got = transform(lambda x: ffi.ffi_call("affine", struct)(x, times=-3, by=0.25))(ROWS)
    np.testing.assert_array_equal(got["y"], -3 * ROWS + 0.25)
    address = ctypes.cast(library.affine, ctypes.c_void_p).value
    ffi.register_ffi_target("by address", address)
    np.testing.assert_array_equal(
        transform(lambda x: ffi.ffi_call("by address", struct)(x, a=True, b=np.float32(2)))(ROWS)
        ["y"], ROWS + 2)


@BOTH
@pytest.mark.parametrize("method", ["sequential", "broadcast_all"])
def test_aliases_leave_the_operand_alone(method, transform, library):
    ffi.register_ffi_target("increase", library.increase)
    call = ffi.ffi_call("increase", toile.ShapeDtypeStruct((5,), jnp.float32),
                        input_output_aliases={0: 0}, vmap_method=method)
    x = X + 0
    np.testing.assert_array_equal(transform(call)(x), X + 1)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(transform(toile.vmap(call))(ROWS), ROWS + 1)


def test_effects_keep_a_call(library):
    ffi.register_ffi_target("count", library.count)
    calls = ctypes.c_int64.in_dll(library, "calls")
    for effect, more in ((True, 1), (False, 0)):
        before = calls.value
        call = ffi.ffi_call("count", [toile.ShapeDtypeStruct((), jnp.float32)],
                            has_side_effect=effect)
        toile.jit(lambda x, call=call: (call(x), x)[1])(X).block_until_ready()
        assert calls.value - before == more


@pytest.mark.cpu
def test_no_python_runs_between_steps(axpy):
    f = toile.jit(lambda x: lax.fori_loop(0, 9, lambda i, v: axpy(v, Y, n=5, a=0.5), x) * 2)
    assert "0 steps in Python" in str(toile.explain(f)(X))


def test_two_functions_of_one_name(library, libm):
    a = ffi.c_function(libm.ceilf, "float f(float)")
    b = ffi.c_function(libm.floorf, "float f(float)")
    assert toile.jit(lambda x: (a(x), b(x)))(jnp.float32(1.5)) == (2.0, 1.0)
    assert a(jnp.float32(1.5)) == 2.0


def test_derivative_rules(axpy):
    @toile.custom_vjp
    def f(x):
        return axpy(x, Y, n=x.size, a=2.5)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (2.5 * ct,))
    got = toile.jit(toile.grad(lambda x: (f(x) ** 2).sum()))(X)
    np.testing.assert_allclose(got, 5 * (2.5 * X + Y), rtol=1e-6)
    jacobian = toile.vmap(toile.grad(lambda x: f(x).sum()))(ROWS)
    np.testing.assert_allclose(jacobian, jnp.full((3, 5), 2.5))


PROTOTYPES = {
    "float f(float)": ("float32", "f", [("number", "float32", "")]),
    "double  f ( double x , const int n );": (
        "float64", "f", [("number", "float64", "x"), ("number", "int32", "n")]),
    "void g(const float*x,double *restrict y)": (
        None, "g", [("in", "float32", "x"), ("out", "float64", "y")]),
    "void g(float const *, unsigned int n, long long m, size_t k, bool *z)": (
        None, "g", [("in", "float32", ""), ("number", "uint32", "n"), ("number", "int64", "m"),
                    ("number", "uint64", "k"), ("out", "bool", "z")]),
}


@pytest.mark.parametrize("text", PROTOTYPES)
def test_prototypes(text):
    assert parsed(text) == PROTOTYPES[text]


STRUCT = toile.ShapeDtypeStruct((5,), jnp.float32)
BAD_PROTOTYPES = {
    "float f": "needed the declaration",
    "void f()": "takes numbers",
    "void f(float x)": "takes numbers",
    "float f(const float *x)": "takes numbers",
    "void f(const char *x)": "needed types among",
    "void f(float x[3])": "parameters like",
    "void f(const float **x, float *y)": "parameters like",
    "long f(long)": "needed types among",
}


@pytest.mark.parametrize("text", BAD_PROTOTYPES)
def test_bad_prototypes(text, libm):
    with pytest.raises(ValueError, match=BAD_PROTOTYPES[text]):
        ffi.c_function(libm.sinf, text)


WRONG = {
    "dtype": (lambda f: f(X, jnp.arange(5), n=5, a=1.0), TypeError, r"y: float32, got int32\[5\]"),
    "count": (lambda f: f(X, n=5, a=1.0), TypeError, "needed 2 arrays"),
    "missing": (lambda f: f(X, Y, n=5), TypeError, r"keyword arguments \['a', 'n'\]"),
    "float": (lambda f: f(X, Y, n=5.0, a=1.0), TypeError, "n needed to be a Python number"),
    "traced": (lambda f: toile.jit(lambda a: f(X, Y, n=5, a=a))(1.0), TypeError,
               "a needed to be a Python number"),
    "large": (lambda f: f(X, Y, n=2**63, a=1.0), OverflowError, "fits into int64"),
    "gradient": (lambda f: toile.grad(lambda x: f(x, Y, n=5, a=1.0).sum())(X), ValueError,
                 "custom_vjp"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_in_calls(name, axpy):
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        call(axpy)


TARGETS = {
    "unknown": (lambda f: ffi.ffi_call("never", STRUCT), NotImplementedError,
                "register_ffi_target"),
    "platform": (lambda f: ffi.register_ffi_target("x", f, platform="CUDA"), NotImplementedError,
                 "cuda_kernel"),
    "python": (lambda f: ffi.register_ffi_target("x", lambda: 0), TypeError, "ctypes.CDLL"),
    "method": (lambda f: ffi.ffi_call("ok", STRUCT, vmap_method="all"), ValueError, "one of"),
    "layout": (lambda f: ffi.ffi_call("ok", STRUCT, input_layouts=[(1, 0)]), NotImplementedError,
               "row-major"),
    "shape": (lambda f: ffi.ffi_call("ok", 3.0), TypeError, "ShapeDtypeStruct"),
    "64 bits": (lambda f: ffi.ffi_call("ok", toile.ShapeDtypeStruct((), np.float64)), ValueError,
                "x64"),
    "no method": (lambda f: toile.vmap(ffi.ffi_call("ok", STRUCT))(ROWS), NotImplementedError,
                  "vmap_method"),
    "attribute": (lambda f: ffi.ffi_call("ok", STRUCT)(X, a="text"), TypeError, "'a' needed"),
    "array": (lambda f: ffi.ffi_call("ok", STRUCT)(X, a=X), TypeError, "as operands"),
    "alias": (lambda f: ffi.ffi_call("ok", STRUCT, input_output_aliases={1: 0})(X), ValueError,
              "numbers of 1 operands"),
    "aliased shapes": (lambda f: ffi.ffi_call("ok", STRUCT, input_output_aliases={0: 0})(ROWS),
                       ValueError, "one shape"),
    "lowering": (lambda f: ffi.ffi_lowering("x"), NotImplementedError, "ffi_call"),
    "function": (lambda f: ffi.build_ffi_lowering_function("x"), NotImplementedError, "ffi_call"),
    "headers": (lambda f: ffi.include_dir(), NotImplementedError, "no header"),
    "types": (lambda f: ffi.register_ffi_type("x", {}), NotImplementedError,
              "operand and a result"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_mistakes_with_targets(name, libm):
    ffi.register_ffi_target("ok", libm.sinf)
    call, kind, words = TARGETS[name]
    with pytest.raises(kind, match=words):
        call(libm.sinf)
