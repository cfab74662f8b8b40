"""The scalar builder for CUDA C++: writes one declaration at a time into a `Code`.

Nothing is included, so that NVRTC compiles quickly: what CUDA C++ has no operator for is a short
helper function, written into the text of the kernels that use it. Kernels are compiled with
`--fmad=false`: products and sums are fused only where `fma` says so. float32 and float64 use CUDA's
own functions where these are as accurate as the polynomials and cheaper; narrow floats use the
processor's approximations, whose errors are far below the last place of a narrow float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from toile.compiler.scalar.builder import (
    BFLOAT16,
    BOOL,
    FLOAT32,
    FLOAT64,
    Dtype,
    Unsupported,
    Value,
    is_narrow,
    kind,
)
from toile.compiler.scalar.mathematics import Builder
from toile.targets.scalars import TextBuilder, float_type

_INTEGERS = {1: "i8", 2: "i16", 4: "int", 8: "i64"}
_UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|",
          "xor": "^"}
_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_CALLS = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
                "round_even": "rint", "trunc": "trunc", "copysign": "copysign"}


def _assembly(name: str, result: str, constraint: str, given: str, text: str) -> str:
    """A device function of one instruction on operands of type `given`."""
    count = text.count("%") - 1
    names = "xyz"[:count]
    parameters = ", ".join(f"{given} {n}" for n in names)
    to, of = constraint[0], constraint[1]
    operands = ", ".join(f'"{of}"({n})' for n in names)
    return (f"__device__ __forceinline__ {result} {name}({parameters}) {{\n"
            f'  {result} r;\n  asm("{text};" : "={to}"(r) : {operands});\n  return r;\n}}\n')


def _inline(head: str, *lines: str) -> str:
    body = "".join(f"  {x}\n" for x in lines)
    return f"__device__ __forceinline__ {head} {{\n{body}}}\n"


def _recent(quick: str, other: str) -> str:
    """A function for processors that have the instruction (from Ampere on), and for others."""
    return f"#if __CUDA_ARCH__ >= 800\n{quick}#else\n{other}#endif\n"


# Asynchronous copies of 4, 8 or multiples of 16 bytes into shared memory: `sent` ends a row of
# them, and `arrived<N>` waits until at most the last N rows are in flight.
_LATER = """\
#if __CUDA_ARCH__ >= 800
template <class T> __device__ __forceinline__ void later(T* to, const T* from) {
  const u32 place = (u32)__cvta_generic_to_shared(to);
  if constexpr (sizeof(T) < 16)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :: "r"(place), "l"(from), "n"(sizeof(T)) : "memory");
  else for (int k = 0; k < sizeof(T); k += 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(place + k), "l"((const u8*)from + k) : "memory");
}
__device__ __forceinline__ void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void arrived() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
#else
template <class T> __device__ __forceinline__ void later(T* to, const T* from) { *to = *from; }
__device__ __forceinline__ void sent() {}
template <int N> __device__ __forceinline__ void arrived() {}
#endif
"""

def _extremum(name: str, type: str, sign: str, of_zeros: str) -> str:
    """The minimum or maximum of two numbers, NaN if one is NaN; `of_zeros`: by the sign of x."""
    return _inline(f"{type} {name}({type} x, {type} y)",
                   f"return x {sign} y || x != x ? x : y {sign} x || y != y ? y : signbit(x) ? "
                   f"{of_zeros};")


# Instructions of the processor that approximate a function.
_APPROXIMATE = {"quick_exp2": "ex2.approx.ftz.f32", "quick_log2": "lg2.approx.ftz.f32",
                "quick_reciprocal": "rcp.approx.ftz.f32", "quick_rsqrt": "rsqrt.approx.f32"}

# Functions that texts may use; each is written into the texts that use it, in this order.
HELPERS: dict[str, str] = {
    "Pack": "template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16)"
            " Pack { T e[N]; };\n",
    "Pair": "template <class T> struct alignas(2 * sizeof(T)) Pair { T re, im; };\n",
    "divide": _inline("u32 divide(u32 n, Word m)",
                      "return (__umulhi(n, (u32)m) + n) >> (u32)(m >> 32);"),
    "later": _LATER,
    "to_bf16": _recent(_assembly("to_bf16", "u16", "hf", "float", "cvt.rn.bf16.f32 %0, %1"),
                       _inline("u16 to_bf16(float x)",
                               "const u32 b = (u32)__float_as_int(x);",
                               "return x != x ? 0x7fff"
                               " : (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);")),
    "from_bf16": _inline("float from_bf16(u16 x)", "return __int_as_float((int)((u32)x << 16));"),
    "to_half": _assembly("to_half", "u16", "hf", "float", "cvt.rn.f16.f32 %0, %1"),
    "from_half": _assembly("from_half", "float", "fh", "u16", "cvt.f32.f16 %0, %1"),
    "two_bf16": _recent(
        _assembly("two_bf16", "u32", "rf", "float", "cvt.rn.bf16x2.f32 %0, %1, %2"),
        _inline("u32 two_bf16(float x, float y)", "return (u32)to_bf16(x) << 16 | to_bf16(y);")),
    "two_half": _recent(
        _assembly("two_half", "u32", "rf", "float", "cvt.rn.f16x2.f32 %0, %1, %2"),
        _inline("u32 two_half(float x, float y)", "return (u32)to_half(x) << 16 | to_half(y);")),
    "round_bf16": _recent(
        _inline("float round_bf16(float x)", "return __int_as_float((int)two_bf16(x, 0.0f));"),
        _inline("float round_bf16(float x)", "return from_bf16(to_bf16(x));")),
    "least": _recent(_assembly("least", "float", "ff", "float", "min.NaN.f32 %0, %1, %2"),
                     _extremum("least", "float", "<", "x : y")),
    "most": _recent(_assembly("most", "float", "ff", "float", "max.NaN.f32 %0, %1, %2"),
                    _extremum("most", "float", ">", "y : x")),
    "least64": _extremum("least64", "double", "<", "x : y"),
    "most64": _extremum("most64", "double", ">", "y : x"),
    **{name: _assembly(name, "float", "ff", "float", f"{instruction} %0, %1")
       for name, instruction in _APPROXIMATE.items()},
    "log_gamma": _inline("float log_gamma(float x)",
                         "return x > -2.0f ? lgammaf(x) : (float)lgamma((double)x);"),
    "quick_exp": _inline("float quick_exp(float x)",
                         "return quick_exp2(1.4426950408889634f * x);"),
    "quick_log": _inline("float quick_log(float x)",
                         "float near = x - 1.0f;  // where the logarithm itself is small",
                         "float small = fmaf(near * near, fmaf(near, 0.333333333f, -0.5f), near);",
                         "return fabsf(near) < 0.015625f ? small"
                         " : 0.6931471805599453f * quick_log2(x);"),
    "quick_logistic": _inline("float quick_logistic(float x)",
                              "return quick_reciprocal(1.0f + quick_exp(-x));"),
    "quick_tanh": _inline("float quick_tanh(float x)",
                          "float far = fmaf(-2.0f, quick_reciprocal(1.0f + quick_exp(x + x)),"
                          " 1.0f);",
                          "float near = fmaf(x * x * x, -0.333333333f, x);",
                          "return fabsf(x) < 0.03125f ? near : far;"),
}  # fmt: skip
# Helpers that other helpers call.
_CALLED = {"two_bf16": ("to_bf16",), "two_half": ("to_half",),
           "round_bf16": ("two_bf16", "from_bf16"), "quick_exp": ("quick_exp2",),
           "quick_log": ("quick_log2",), "quick_logistic": ("quick_exp", "quick_reciprocal"),
           "quick_tanh": ("quick_exp", "quick_reciprocal")}


class Code:
    """Lines of a device function, and what must precede it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.helpers: set[str] = set()
        self.tables: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.resident = 1  # blocks that must fit on a multiprocessor

    def __call__(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def let(self, type: str, text: str) -> str:
        """Declare a constant; returns its name."""
        name = self.name()
        self(f"const {type} {name} = {text};")
        return name

    def use(self, *names: str) -> None:
        """Request that helpers are written before the function."""
        for name in names:
            if name not in self.helpers:
                self.helpers.add(name)
                self.use(*_CALLED.get(name, ()))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block in braces after `head`."""
        self(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self("}")

    @contextmanager
    def unrolled(self, name: str, count: int | str) -> Iterator[None]:
        """A loop that the compiler unrolls."""
        if count == 1:
            with self.block(""):
                self(f"const int {name} = 0;")
                yield
            return
        self("#pragma unroll")
        with self.block(f"for (int {name} = 0; {name} < {count}; {name}++)"):
            yield

    def text(self, threads: int) -> str:
        """The kernel's text: threads, helpers, tables, functions, and the body."""
        before = "".join(text for name, text in HELPERS.items() if name in self.helpers)
        before += "".join(self.tables[t] for t in sorted(self.tables))
        before += "".join(self.functions[t] for t in sorted(self.functions))
        body = "\n".join(self.lines)
        if self.resident > 1:
            before = f"#define BOUNDS {threads}, {self.resident}\n{before}"
        return (f"#define THREADS {threads}\n{before}"
                f"__device__ void body(const Word* w, unsigned block) {{\n{body}\n}}\n")


def register(dtype: Dtype) -> str:
    """The C++ type of a variable that holds such a number (or a part of it)."""
    k = kind(dtype)
    if k == "b":
        return "bool"
    if k in "iu":
        return (_INTEGERS if k == "i" else _UNSIGNED)[dtype.itemsize]
    return float_type(dtype)


def memory(dtype: Dtype) -> str:
    """The C++ type of an element in memory."""
    if dtype == BOOL:
        return "u8"
    if is_narrow(dtype):
        return "u16"
    return f"Pair<{register(dtype)}>" if kind(dtype) == "c" else register(dtype)


def _literal(value: Any, dtype: Dtype) -> str:
    """A float constant."""
    double = dtype == FLOAT64
    if not double:
        value = np.asarray(value).astype(dtype if is_narrow(dtype) else FLOAT32)
    number = float(value)
    if number != number:
        return "__longlong_as_double(0x7ff8000000000000LL)" if double else (
            "__int_as_float(0x7fc00000)")
    if number in (float("inf"), float("-inf")):
        text = "__longlong_as_double(0x7ff0000000000000LL)" if double else (
            "__int_as_float(0x7f800000)")
        return text if number > 0 else f"(-{text})"
    text = repr(number) if double else f"{number!r}f"
    return f"({text})" if text.startswith("-") else text


def _native(name: str, quick: str = "") -> Callable[..., Value]:
    """CUDA's function for float32 and float64; `quick` is the one for narrow floats."""
    own: Any = getattr(Builder, name)

    def method(self: Scalars, *xs: Value, **options: Any) -> Value:
        dtype = xs[0].dtype
        if kind(dtype) != "f":
            return own(self, *xs, **options)
        if quick and is_narrow(dtype):
            self.code.use(quick)
            call = quick
        else:
            call = name if dtype == FLOAT64 else f"{name}f"
        return self._value(f"{call}({', '.join(x.name for x in xs)})", dtype)

    method.__name__, method.__doc__ = name, own.__doc__
    return method


class Scalars(TextBuilder):
    """The builder that writes into one device function."""

    def __init__(self, code: Code):
        self.code = code
        self.narrow: set[tuple[str, Dtype]] = set()  # registers that need no rounding to this dtype

    def _value(self, text: str, dtype: Dtype) -> Value:
        return Value(self.code.let(register(dtype), text), dtype)

    def _helper(self, name: str, *xs: str) -> str:
        self.code.use(name)
        return f"{name}({', '.join(xs)})"

    # ---- memory
    def load(self, pointer: str, index: Any, dtype: Dtype) -> Value:
        return self.from_memory(f"{pointer}[{index}]", dtype)

    def from_memory(self, raw: str, dtype: Dtype) -> Value:
        """A register from an expression of the form in memory."""
        if kind(dtype) == "c":
            type = register(dtype)
            re = self.code.let(type, f"{raw}.re")
            return Value(re, dtype, self.code.let(type, f"{raw}.im"))
        if dtype == BOOL:
            return self._value(f"{raw} & 1", dtype)
        if is_narrow(dtype):
            name = "from_bf16" if dtype == BFLOAT16 else "from_half"
            return self._narrow(self._helper(name, raw), dtype)
        return self._value(raw, dtype)

    def store(self, value: Value, pointer: str, index: Any) -> None:
        self.code(f"{pointer}[{index}] = {self.to_memory(value)};")

    def to_memory(self, x: Value) -> str:
        """The expression of a value's form in memory."""
        if x.imag:
            self.code.use("Pair")
            return f"{memory(x.dtype)}{{{x.name}, {x.imag}}}"
        if is_narrow(x.dtype):
            return self._helper("to_bf16" if x.dtype == BFLOAT16 else "to_half", x.name)
        return x.name

    def two_to_memory(self, low: str, high: str, dtype: Dtype) -> str:
        """Two narrow floats as one word."""
        return self._helper("two_bf16" if dtype == BFLOAT16 else "two_half", high, low)

    def from_bits(self, word: Any, dtype: Dtype) -> Value:
        if dtype == FLOAT64:
            return self._value(f"__longlong_as_double({word})", dtype)
        if dtype == FLOAT32:
            return self._value(f"__int_as_float((int){word})", dtype)
        return self.from_memory(f"(({memory(dtype)}){word})", dtype)

    def lookup(self, name: str, table: Sequence[float], index: Value) -> Value:
        if name not in self.code.tables:
            entries = ", ".join(f"0x{b:x}ULL" for b in np.asarray(table, FLOAT64).view(np.uint64))
            self.code.tables[name] = f"__device__ const u64 {name}[] = {{{entries}}};\n"
        return self._value(f"__longlong_as_double((i64){name}[{index.name}])", FLOAT64)

    # ---- functions of their own
    def apart(self, name: str, code: Callable[..., Value], *xs: Value) -> Value:
        if name not in self.code.functions:
            inner = Code()
            inner.helpers, inner.tables = self.code.helpers, self.code.tables
            names = [f"x{i}" for i in range(len(xs))]
            y = code(Scalars(inner), *(Value(x, FLOAT64) for x in names))
            inner(f"return {y.name};")
            head = f"double {name}({', '.join(f'double {x}' for x in names)}) {{"
            self.code.functions[name] = "\n".join(
                [f"__device__ __noinline__ {head}", *inner.lines, "}\n"])
        return self._value(f"{name}({', '.join(x.name for x in xs)})", FLOAT64)

    def loop(
        self, going: Callable[..., Value], step: Callable[..., Sequence[Value]], *state: Value
    ) -> Sequence[Value]:
        code = self.code
        now = [Value(code.name(), x.dtype) for x in state]
        for x, first in zip(now, state, strict=True):
            code(f"{register(x.dtype)} {x.name} = {first.name};")
        with code.block("for (;;)"):
            code(f"if (!{going(*now).name}) break;")
            following = [Value(code.let(register(x.dtype), x.name), x.dtype) if x in now else x
                         for x in step(*now)]  # copies, since what they name is overwritten
            for x, new in zip(now, following, strict=True):
                code(f"{x.name} = {new.name};")
        return now

    # ---- constants and instructions
    float_text = staticmethod(_literal)

    def integer_text(self, value: int, dtype: Dtype) -> str:
        bits = 8 * dtype.itemsize
        number = value % 2**bits
        if kind(dtype) == "u":
            return f"{number}{'ULL' if bits == 64 else 'U'}"
        if number >= 2 ** (bits - 1):
            number -= 2**bits
        suffix = "LL" if bits == 64 else ""
        if number == -(2 ** (bits - 1)):
            return f"({number + 1}{suffix} - 1)"
        return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"

    def call(self, name: str, *xs: Value) -> Value:
        suffix = "" if xs[0].dtype == FLOAT64 else "f"
        return self._value(f"{name}{suffix}({', '.join(x.name for x in xs)})", xs[0].dtype)

    def unary(self, name: str, x: Value) -> Value:
        k = kind(x.dtype)
        if k == "f":
            return self._value(f"-{x.name}", x.dtype) if name == "neg" else (
                self.call(_FLOAT_CALLS[name], x))
        if name == "not":
            return self._value(f"{'!' if k == 'b' else '~'}{x.name}", x.dtype)
        size, of = x.dtype.itemsize, f"({_UNSIGNED[x.dtype.itemsize]}){x.name}"
        wide = "ll" if size == 8 else ""
        if name == "population_count":
            return self._value(f"__popc{wide}({of})", x.dtype)
        if name == "clz":
            return self._value(f"__clz{wide}({of}) - {max(0, 32 - 8 * size)}", x.dtype)
        raise Unsupported(f"{name} of {x.dtype}")

    def binary(self, name: str, x: Value, y: Value) -> Value:
        k, dtype = kind(x.dtype), x.dtype
        if name in ("minimum", "maximum"):
            return self._value(self._extremum(name, x, y), dtype)
        if k == "f":
            if name in _FLOAT_CALLS:
                return self.call(_FLOAT_CALLS[name], x, y)
            return self._value(f"{x.name} {_SIGNS[name]} {y.name}", dtype)
        if k == "b":
            return self._value(f"{x.name} {_SIGNS[name]} {y.name}", dtype)
        to, size = register(dtype), dtype.itemsize
        if name in ("div", "rem"):
            return self._value(f"{x.name} {_SIGNS[name]} {y.name}", dtype)
        if name == "shift_right_arithmetic":
            return self._value(f"({to})(({_INTEGERS[size]}){x.name} >> {y.name})", dtype)
        if name in ("shift_left", "shift_right_logical"):
            sign = "<<" if name == "shift_left" else ">>"
            return self._value(f"({to})(({_UNSIGNED[size]}){x.name} {sign} {y.name})", dtype)
        if k == "u" and size >= 4:
            return self._value(f"{x.name} {_SIGNS[name]} {y.name}", dtype)
        wide = "u64" if size == 8 else "u32"  # signed integers must not overflow in C++
        return self._value(f"({to})(({wide}){x.name} {_SIGNS[name]} ({wide}){y.name})", dtype)

    def _extremum(self, name: str, x: Value, y: Value) -> str:
        helper = "least" if name == "minimum" else "most"
        if kind(x.dtype) == "f":
            return self._helper(helper + ("64" if x.dtype == FLOAT64 else ""), x.name, y.name)
        return f"{x.name} {'<' if name == 'minimum' else '>'} {y.name} ? {x.name} : {y.name}"

    def compare(self, relation: str, x: Value, y: Value) -> Value:
        return self._value(f"{x.name} {_RELATIONS[relation]} {y.name}", BOOL)

    def choose(self, condition: Value, x: Value, y: Value) -> Value:
        return self._value(f"{condition.name} ? {x.name} : {y.name}", x.dtype)

    # ---- conversion
    def reinterpreted(self, x: Value, dtype: Dtype) -> Value:
        raw = self.to_memory(x)
        if x.dtype == FLOAT32:
            raw = f"__float_as_int({raw})"
        elif x.dtype == FLOAT64:
            raw = f"__double_as_longlong({raw})"
        if dtype == FLOAT32:
            return self._value(f"__int_as_float({raw})", dtype)
        if dtype == FLOAT64:
            return self._value(f"__longlong_as_double({raw})", dtype)
        return self.from_memory(f"({memory(dtype)}){raw}", dtype)

    def resized(self, x: Value, dtype: Dtype) -> Value:
        return x if x.dtype == dtype else self._value(f"({register(dtype)}){x.name}", dtype)

    def to_integer(self, x: Value, dtype: Dtype) -> Value:
        size, source = dtype.itemsize, "double" if x.dtype == FLOAT64 else "float"
        number = Value(x.name, FLOAT64 if source == "double" else FLOAT32)
        if size < 4:
            info = np.iinfo(dtype)
            number = self.within(number, float(info.min), float(info.max))
        sign = "u" if kind(dtype) == "u" and size >= 4 else ""
        width = "ll" if size == 8 else "int"
        text = f"__{source}2{sign}{width}_rz({number.name})"
        if source == "double" or size == 8:  # cases where the processor does not convert NaN to 0
            text = f"{x.name} == {x.name} ? {text} : 0"
        return self._value(f"({register(dtype)})({text})", dtype)

    def narrowed(self, x: Value, dtype: Dtype) -> Value:
        if (x.name, dtype) in self.narrow:
            return Value(x.name, dtype)
        if dtype == BFLOAT16:
            return self._narrow(self._helper("round_bf16", x.name), dtype)
        return self._narrow(self._helper("from_half", self._helper("to_half", x.name)), dtype)

    def _narrow(self, text: str, dtype: Dtype) -> Value:
        """A narrow float that needs no further rounding."""
        x = self._value(text, dtype)
        self.narrow.add((x.name, dtype))
        return x

    # ---- functions that CUDA has. erf_inv is not among them: normal random numbers are computed
    # with it, and must be the same everywhere
    exp = _native("exp", quick="quick_exp")
    exp2 = _native("exp2", quick="quick_exp2")
    expm1 = _native("expm1")
    log = _native("log", quick="quick_log")
    log1p = _native("log1p")
    log2 = _native("log2")
    tanh = _native("tanh", quick="quick_tanh")
    erf = _native("erf")
    erfc = _native("erfc")
    fmod = _native("fmod")
    rsqrt = _native("rsqrt", quick="quick_rsqrt")
    cbrt = _native("cbrt")
    sin = _native("sin")
    cos = _native("cos")
    tan = _native("tan")
    sinh = _native("sinh")
    cosh = _native("cosh")
    asinh = _native("asinh")
    acosh = _native("acosh")
    atanh = _native("atanh")

    def lgamma(self, x: Value) -> Value:
        """log |Γ(x)|; CUDA's is exact enough where it has no negative roots."""
        if x.dtype == FLOAT64:
            return super().lgamma(x)
        return self._value(self._helper("log_gamma", x.name), x.dtype)

    def logistic(self, x: Value) -> Value:
        """1 / (1 + e**-x)."""
        if not is_narrow(x.dtype):
            return super().logistic(x)
        return self._value(self._helper("quick_logistic", x.name), x.dtype)
