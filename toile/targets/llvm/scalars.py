"""The scalar builder that writes LLVM text, one instruction at a time, into an `ir.Function`.

The code has no branches, so that LLVM can vectorize the loops around it, and calls nothing outside
the module: it uses only instructions, and intrinsics that become instructions (the processor must
have fused multiply-add and, on x86-64, F16C). Only separate functions (`Scalars.apart`) have loops;
these functions are vector code already, and the vectorized loops call them.
"""

from __future__ import annotations

import functools
import platform
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.compiler.scalar.builder import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    UINT32,
    Dtype,
    Unsupported,
    Value,
    is_narrow,
    kind,
)
from toile.targets.llvm import text as ir
from toile.targets.scalars import TextBuilder, float_type

X86 = platform.machine().lower() in ("x86_64", "amd64")

_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_CALLS = {"minimum": "minimum", "maximum": "maximum", "copysign": "copysign",
                "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
                "round_even": "rint", "trunc": "trunc"}
_INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or",
                   "xor": "xor", "shift_left": "shl", "shift_right_logical": "lshr",
                   "shift_right_arithmetic": "ashr"}
_CONTRACTED = ("fadd", "fsub", "fmul")
_FLOAT_RELATIONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def register(dtype: Dtype) -> str:
    """The LLVM type of a register that holds a number (or a part of a complex number)."""
    k = kind(dtype)
    if k == "b":
        return "i1"
    if k in "iu":
        return f"i{8 * dtype.itemsize}"
    return float_type(dtype)


def memory(dtype: Dtype) -> str:
    """The LLVM type of an element in memory; a complex number is two of these."""
    if dtype == BOOL:
        return "i8"
    if dtype == BFLOAT16:
        return "i16"
    return "half" if dtype == FLOAT16 else register(dtype)


def _float_text(value: Any, dtype: Dtype) -> str:
    """A float constant; in LLVM text a float too is written as the bits of a double."""
    if dtype != FLOAT64:
        value = np.asarray(value).astype(dtype if is_narrow(dtype) else FLOAT32)
    bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    return f"0x{bits:016X}"


class Scalars(TextBuilder):
    """The builder that writes into one LLVM function.

    `contract` lets LLVM fuse multiplications with additions, which changes the last bits; without
    it a fused kernel computes the same as its operations do one by one."""

    def __init__(self, f: ir.Function, contract: bool = False):
        self.f = f
        self.contract = contract

    def _value(self, text: str, dtype: Dtype) -> Value:
        return Value(self.f.value(text), dtype)

    def type_of(self, dtype: Dtype) -> str:
        """The type of the values that instructions work on."""
        return register(dtype)

    def overload(self, dtype: Dtype) -> str:
        """How the names of intrinsics for these values end."""
        return "f64" if register(dtype) == "double" else "f32"

    # ---- memory
    def load(self, pointer: str, index: Any, dtype: Dtype) -> Value:
        f, type, size = self.f, memory(dtype), dtype.itemsize
        if kind(dtype) == "c":
            pair = f.at(pointer, index, f"{{ {type}, {type} }}")
            re = f.load(type, pair, size // 2)
            return Value(re, dtype, f.load(type, f.at(pair, 1, type), size // 2))
        raw = f.load(type, f.at(pointer, index, type), size)
        return self._from_memory(raw, dtype)

    def _from_memory(self, raw: str, dtype: Dtype) -> Value:
        """A loaded element, as it is held in a register."""
        f = self.f
        if dtype == BOOL:
            return self._value(f"trunc i8 {raw} to i1", dtype)
        if dtype == BFLOAT16:
            high = f.value(f"shl i32 {f.value(f'zext i16 {raw} to i32')}, 16")
            return self._value(f"bitcast i32 {high} to float", dtype)
        if dtype == FLOAT16:
            return self._value(f"fpext half {raw} to float", dtype)
        return Value(raw, dtype)

    def store(self, value: Value, pointer: str, index: Any) -> None:
        f, dtype = self.f, value.dtype
        type, size = memory(dtype), dtype.itemsize
        if value.imag:
            pair = f.at(pointer, index, f"{{ {type}, {type} }}")
            f.store(type, value.name, pair, size // 2)
            f.store(type, value.imag, f.at(pair, 1, type), size // 2)
            return
        f.store(type, self._to_memory(value), f.at(pointer, index, type), size)

    def _to_memory(self, x: Value) -> str:
        f = self.f
        if x.dtype == BOOL:
            return f.value(f"zext i1 {x.name} to i8")
        if x.dtype == BFLOAT16:
            high = f.value(f"lshr i32 {self._bfloat16_bits(x).name}, 16")
            return f.value(f"trunc i32 {high} to i16")
        if x.dtype == FLOAT16:
            return f.value(f"fptrunc float {x.name} to half")
        return x.name

    def from_bits(self, word: Any, dtype: Dtype) -> Value:
        width, type = 8 * dtype.itemsize, memory(dtype)
        bits = str(word) if width == 64 else self.f.value(f"trunc i64 {word} to i{width}")
        if type != f"i{width}":
            bits = self.f.value(f"bitcast i{width} {bits} to {type}")
        return self._from_memory(bits, dtype)

    def opaque(self, x: Value) -> Value:
        """The same integer, hidden from LLVM's analysis of where it comes from."""
        return Value(self.f.value(f"freeze {register(x.dtype)} {x.name}"), x.dtype)

    def lookup(self, name: str, table: Sequence[float], index: Value) -> Value:
        f = self.f
        owner = f.head.split("@", 1)[1].split("(", 1)[0]
        label = f"@{owner}.{name}"
        if not any(text.startswith(label + " ") for text in f.metadata):
            entries = ", ".join(f"double {_float_text(c, FLOAT64)}" for c in table)
            type = f"[{len(table)} x double]"
            f.metadata.append(f"{label} = internal unnamed_addr constant {type} [{entries}]\n")
        wide = f.value(f"zext i32 {index.name} to i64")
        return Value(f.load("double", f.at(label, wide, "double"), 8), FLOAT64)

    # ---- functions of their own
    def apart(self, name: str, code: Callable[..., Value], *xs: Value) -> Value:
        f = self.f
        label = f"{name}.of.{f.name}"
        text = _apart(label, code, len(xs))
        if text not in f.metadata:
            f.metadata.append(text)
        operands = ", ".join(f"double {x.name}" for x in xs)
        variant = f"_ZGV_LLVM_N{ir.LANES}{'v' * len(xs)}_{label}({label}.lanes)"
        return self._value(f"call double @{label}({operands}) {ir.VARIANT}{variant}\"", FLOAT64)

    # ---- stack slots: values whose names are addresses
    def slot(self, x: Value) -> Value:
        """A slot that holds a value."""
        type = self.type_of(x.dtype)
        name = self.f.variable(type, x.name)
        return Value(name, x.dtype, self.f.variable(type, x.imag) if x.imag else "")

    def read(self, slot: Value) -> Value:
        """What a slot holds."""
        type = self.type_of(slot.dtype)
        name = self.f.load(type, slot.name)
        return Value(name, slot.dtype, self.f.load(type, slot.imag) if slot.imag else "")

    def write(self, slot: Value, x: Value) -> None:
        """Put a value into a slot."""
        self.f.store(self.type_of(slot.dtype), x.name, slot.name)
        if slot.imag:
            self.f.store(self.type_of(slot.dtype), x.imag, slot.imag)

    # ---- constants and instructions
    float_text = staticmethod(_float_text)

    def integer_text(self, value: int, dtype: Dtype) -> str:
        return str(value)

    def unary(self, name: str, x: Value) -> Value:
        type, k = self.type_of(x.dtype), kind(x.dtype)
        if k == "f":
            if name == "neg":
                return self._value(f"fneg {type} {x.name}", x.dtype)
            return self.call(_FLOAT_CALLS[name], x)
        if name == "not":
            ones = self.constant(True if k == "b" else -1, x.dtype)
            return self._value(f"xor {type} {x.name}, {ones.name}", x.dtype)
        if name == "population_count":
            return self._value(f"call {type} @llvm.ctpop.{type}({type} {x.name})", x.dtype)
        if name == "clz":
            text = f"call {type} @llvm.ctlz.{type}({type} {x.name}, i1 false)"
            return self._value(text, x.dtype)
        raise Unsupported(f"{name} of {x.dtype}")

    def call(self, name: str, *xs: Value) -> Value:
        """Call an intrinsic for floats of one dtype."""
        type, suffix = self.type_of(xs[0].dtype), self.overload(xs[0].dtype)
        operands = ", ".join(f"{type} {x.name}" for x in xs)
        return self._value(f"call {type} @llvm.{name}.{suffix}({operands})", xs[0].dtype)

    def extreme(self, name: str, x: Value, y: Value) -> Value:
        """The "max" or "min" of two floats: NaN if either is; of 0 and -0, either."""
        type = self.type_of(x.dtype)
        function = f"@llvm.{name}imum.{self.overload(x.dtype)}"
        return self._value(f"call nsz {type} {function}({type} {x.name}, {type} {y.name})", x.dtype)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        type, k = self.type_of(x.dtype), kind(x.dtype)
        if k == "f":
            if name not in _FLOAT_BINARY:
                return self.call(_FLOAT_CALLS[name], x, y)
            text = _FLOAT_BINARY[name]
            flags = " contract" if self.contract and text in _CONTRACTED else ""
            return self._value(f"{text}{flags} {type} {x.name}, {y.name}", x.dtype)
        sign = "s" if k == "i" else "u"
        if name in ("minimum", "maximum"):
            intrinsic = f"@llvm.{sign}{name[:3]}.{type}"
            text = f"call {type} {intrinsic}({type} {x.name}, {type} {y.name})"
            return self._value(text, x.dtype)
        text = sign + name if name in ("div", "rem") else _INTEGER_BINARY[name]
        return self._value(f"{text} {type} {x.name}, {y.name}", x.dtype)

    def compare(self, relation: str, x: Value, y: Value) -> Value:
        type, k = self.type_of(x.dtype), kind(x.dtype)
        if k == "f":
            return self._value(f"fcmp {_FLOAT_RELATIONS[relation]} {type} {x.name}, {y.name}", BOOL)
        if relation not in ("eq", "ne"):
            relation = ("s" if k == "i" else "u") + relation
        return self._value(f"icmp {relation} {type} {x.name}, {y.name}", BOOL)

    def choose(self, condition: Value, x: Value, y: Value) -> Value:
        type = self.type_of(x.dtype)
        text = f"select {self.type_of(BOOL)} {condition.name}, {type} {x.name}, {type} {y.name}"
        return self._value(text, x.dtype)

    def within(self, x: Value, low: float | None, high: float) -> Value:
        if not X86:  # minimum and maximum are one instruction each, and keep NaN
            return super().within(x, low, high)
        # These selects become minps and maxps, which return the second operand if one is NaN.
        if low is not None:
            x = self.select(self.lt(x, low), low, x)
        return self.select(self.gt(x, high), high, x)

    # ---- conversion
    def reinterpreted(self, x: Value, dtype: Dtype) -> Value:
        old, new = memory(x.dtype), memory(dtype)
        raw = self._to_memory(x)
        if old != new:
            raw = self.f.value(f"bitcast {old} {raw} to {new}")
        return self._from_memory(raw, dtype)

    def resized(self, x: Value, dtype: Dtype) -> Value:
        old, new, signed = self.type_of(x.dtype), self.type_of(dtype), kind(x.dtype) == "i"
        if old == new:
            return Value(x.name, dtype)
        if kind(x.dtype) == "f":
            text = "fpext" if new == "double" else "fptrunc"
        elif kind(dtype) == "f":
            text = "sitofp" if signed else "uitofp"
        elif int(old[1:]) > int(new[1:]):
            text = "trunc"
        else:
            text = "sext" if signed else "zext"
        return self._value(f"{text} {old} {x.name} to {new}", dtype)

    def to_integer(self, x: Value, dtype: Dtype) -> Value:
        text = "fptosi" if kind(dtype) == "i" else "fptoui"
        to, type = register(dtype), register(x.dtype)
        suffix = "f64" if type == "double" else "f32"
        return self._value(f"call {to} @llvm.{text}.sat.{to}.{suffix}({type} {x.name})", dtype)

    def narrowed(self, x: Value, dtype: Dtype) -> Value:
        if dtype == BFLOAT16:
            return Value(self.bitcast(self._bfloat16_bits(x), FLOAT32).name, dtype)
        half = self.f.value(f"fptrunc float {x.name} to half")
        return self._value(f"fpext half {half} to float", dtype)

    def _bfloat16_bits(self, x: Value) -> Value:
        """The bits of a float32, rounded (to nearest, ties to even) so that the lower half is 0."""
        bits = self.bitcast(Value(x.name, FLOAT32), UINT32)
        odd = self.and_(self.binary("shift_right_logical", bits, self.constant(16, UINT32)), 1)
        rounded = self.add(self.add(bits, 0x7FFF), odd)
        quiet = self.or_(bits, 0x400000)  # a NaN whose payload is in the lower half stays a NaN
        chosen = self.select(self.is_nan(x), quiet, rounded)
        return self.and_(chosen, 0xFFFF0000)


class Vectors(Scalars):
    """The builder for separate functions: the same instructions, for one element in each lane.

    It has what float64 functions need: float64, int64 and booleans. Constants have names, since a
    vector of one number is long."""

    def __init__(self, f: ir.Function):
        super().__init__(f)
        self.constants: dict[tuple[str, Dtype], Value] = {}

    def type_of(self, dtype: Dtype) -> str:
        return ir.typed(register(dtype), ir.LANES)

    def overload(self, dtype: Dtype) -> str:
        return f"v{ir.LANES}{super().overload(dtype)}"

    def constant(self, value: Any, dtype: Dtype) -> Value:
        text = super().constant(value, dtype).name
        if (text, dtype) not in self.constants:
            name = self.f.fresh("k")
            vector = ir.constant(text, ir.LANES, register(dtype))
            self.f.slots.append(f"  {name} = freeze {self.type_of(dtype)} {vector}")
            self.constants[text, dtype] = Value(name, dtype)
        return self.constants[text, dtype]

    def reinterpreted(self, x: Value, dtype: Dtype) -> Value:
        return self._value(f"bitcast {self.type_of(x.dtype)} {x.name} to {self.type_of(dtype)}",
                           dtype)

    def loop(
        self, going: Callable[..., Value], step: Callable[..., Sequence[Value]], *state: Value
    ) -> Sequence[Value]:
        f = self.f
        slots = [self.slot(x) for x in state]
        again, inside, done = (f.fresh(x)[1:] for x in ("again", "inside", "done"))
        f.do(f"br label %{again}")
        f.label(again)
        now = [self.read(x) for x in slots]
        some = going(*now)
        mask = self.type_of(BOOL)
        any_ = f.value(f"call i1 @llvm.vector.reduce.or.v{ir.LANES}i1({mask} {some.name})")
        f.do(f"br i1 {any_}, label %{inside}, label %{done}")
        f.label(inside)
        for slot, old, new in zip(slots, now, step(*now), strict=True):
            self.write(slot, self.choose(some, new, old))
        f.do(f"br label %{again}")
        f.label(done)
        return now


@functools.lru_cache(256)
def _apart(label: str, code: Callable[..., Value], count: int) -> str:
    """A function of `count` numbers in two versions: for vectors, and for single numbers.

    LLVM's vectorizer calls the former where a loop calls the latter (see `ir.VARIANT`)."""
    lanes = ir.typed("double", ir.LANES)
    names = [f"%x{i}" for i in range(count)]
    pure = "nounwind noinline readnone willreturn"
    f = ir.Function(f"{label}.lanes", [f"{lanes} {x}" for x in names], lanes, True, pure)
    f.result = f"{lanes} {code(Vectors(f), *(Value(x, FLOAT64) for x in names)).name}"
    g = ir.Function(label, [f"double {x}" for x in names], "double", True, pure)
    wide = [f"{lanes} {g.splat('double', x, ir.LANES)}" for x in names]
    y = g.value(f"call {lanes} @{f.name}({', '.join(wide)})")
    g.result = f"double {g.value(f'extractelement {lanes} {y}, i32 0')}"
    return f.text() + g.text()
