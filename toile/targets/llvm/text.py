"""A writer of LLVM functions as text: integers, memory, loops, branches.

Instructions are appended to the current block in order, so Python code that writes a loop nest
reads like the loop nest. Variables that change are stack slots (`alloca`), which LLVM turns into
registers. Operands are the names of values as text; an int stands for an i64 constant.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from toile.targets.llvm.processors import MASKED
from toile.targets.llvm.stop_checks import CHECK, DECLARATION

Operand = str | int

# How many iterations of a loop the vectorizer should interleave; by itself it would not interleave
# long bodies. Polynomials keep so many values that more than two iterations spill registers. Random
# bits, which are chains of dependent additions and rotations, gain from four, but very long bodies
# (bits that become normal numbers) would then take twice as long to compile.
INTERLEAVE, OF_LONG = 4, 2
LONG, VERY_LONG = 64, 300  # lines
# How many numbers a function of its own takes at once (`Scalars.apart`): two vector registers of
# AVX2 or ARM, one of AVX-512. This attribute of a call for one number names the function for a
# vector, and loops with such calls are vectorized with as many lanes.
LANES = 8 if platform.machine().lower() in ("x86_64", "amd64") else 4
VARIANT = '"vector-function-abi-variant"="'
_NOTE = re.compile(r"!@(\d+)")
_ACCESS = re.compile(r"^  (%\S+ = load |store ).*$")


def _interleaved(body: Sequence[str]) -> int:
    """How many iterations of a loop are interleaved."""
    bits = sum(" = xor i" in line for line in body)
    long = LONG if 8 * bits < len(body) else VERY_LONG
    return OF_LONG if len(body) > long else INTERLEAVE


def typed(llvm: str, lanes: int = 1) -> str:
    """The type of a vector, or of a single value."""
    return llvm if lanes == 1 else f"<{lanes} x {llvm}>"


def constant(value: Operand, lanes: int = 1, llvm: str = "i32") -> str:
    """A constant in each lane."""
    return str(value) if lanes == 1 else f"<{', '.join([f'{llvm} {value}'] * lanes)}>"


def _suffix(llvm: str, lanes: int) -> str:
    """How names of intrinsics end that work on vectors of a type."""
    return f"v{lanes}{ {'half': 'f16', 'float': 'f32', 'double': 'f64'}.get(llvm, llvm)}"


class Function:
    """The text of one function."""

    def __init__(
        self, name: str, params: Sequence[str], result: str = "void", internal: bool = False,
        attributes: str = "nounwind",
    ):
        """`params` are as LLVM writes them: "i64 %n", "ptr noalias %x"."""
        linkage = "internal " if internal else ""
        self.name, self.types = name, [param.split()[0] for param in params]
        self.head = f"define {linkage}{result} @{name}({', '.join(params)}) {attributes} {{"
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self.count = 0
        self.metadata: list[str] = []
        self.result = result if result == "void" else f"{result} 0"  # what the final `ret` returns
        self.checks = False  # whether it checks if the run should stop
        # Hints for loops of few iterations: the vectorizer should not interleave them; if masked,
        # the last iterations should be the lanes of one more vector, where registers have masks.
        self.short = self.masked = False

    # ---- text
    def fresh(self, hint: str = "v") -> str:
        self.count += 1
        return f"%{hint}{self.count}"

    def value(self, text: str) -> str:
        """Append an instruction that has a result; returns its name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def call(self, function: Function, *args: Operand) -> None:
        """Call a void function of the same module."""
        given = (f"{type} {x}" for type, x in zip(function.types, args, strict=True))
        self.do(f"call void @{function.name}({', '.join(given)})")

    def label(self, name: str) -> None:
        """Begin a block; the one before must already end with a branch."""
        self.lines.append(f"{name}:")
        self.block = name

    def text(self, first: int = 0) -> str:
        """The finished function, with a final return; its metadata is numbered from `first` on."""
        body = "\n".join([*self.slots, *self.lines])
        text = f"{self.head}\nentry:\n{body}\n  ret {self.result}\n}}\n" + "".join(self.metadata)
        return _NOTE.sub(lambda found: f"!{first + int(found[1])}", text)

    # ---- 64-bit integers
    def add(self, a: Operand, b: Operand) -> str:
        return str(b) if a in (0, "0") else str(a) if b in (0, "0") else self.value(
            f"add nsw i64 {a}, {b}")

    def sub(self, a: Operand, b: Operand) -> str:
        return str(a) if b in (0, "0") else self.value(f"sub nsw i64 {a}, {b}")

    def mul(self, a: Operand, b: Operand) -> str:
        return str(b) if a in (1, "1") else str(a) if b in (1, "1") else self.value(
            f"mul nsw i64 {a}, {b}")

    def udiv(self, a: Operand, b: Operand) -> str:
        return str(a) if b in (1, "1") else self.value(f"udiv i64 {a}, {b}")

    def urem(self, a: Operand, b: Operand) -> str:
        return self.value(f"urem i64 {a}, {b}")

    def divided(self, a: Operand, b: Operand) -> tuple[str, str]:
        """Quotient and remainder of nonnegative numbers, with one division."""
        quotient = self.udiv(a, b)
        return quotient, self.sub(a, self.mul(quotient, b))

    def smin(self, a: Operand, b: Operand) -> str:
        return self.value(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def smax(self, a: Operand, b: Operand) -> str:
        return self.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def part(self, number: Operand, size: Operand, total: Operand) -> tuple[str, str]:
        """The bounds of part `number` of [0, total), where the last of the parts may be shorter."""
        start = self.mul(number, size)
        return start, self.smin(self.add(start, size), total)

    def multiply_add(self, a: str, b: str, c: str, type: str, lanes: int = 1) -> str:
        """a b + c of floats, or of vectors of them."""
        t, suffix = typed(type, lanes), {"half": "f16", "float": "f32", "double": "f64"}[type]
        name = suffix if lanes == 1 else f"v{lanes}{suffix}"
        return self.value(f"call {t} @llvm.fmuladd.{name}({t} {a}, {t} {b}, {t} {c})")

    def compare(self, relation: str, a: Operand, b: Operand, type: str = "i64") -> str:
        """`relation` is LLVM's: eq, ne, slt, sle, ult, ..."""
        return self.value(f"icmp {relation} {type} {a}, {b}")

    def select(self, condition: str, a: Operand, b: Operand, type: str = "i64") -> str:
        return self.value(f"select i1 {condition}, {type} {a}, {type} {b}")

    def all(self, a: str, b: str) -> str:
        """Whether both conditions hold; if `a` is "", whether `b` does."""
        return self.value(f"and i1 {a}, {b}") if a else b

    def splat(self, type: str, value: Operand, lanes: int) -> str:
        """A vector with a number in every lane; if there is one lane, the number itself."""
        if lanes == 1:
            return str(value)
        vector = typed(type, lanes)
        first = self.value(f"insertelement {vector} poison, {type} {value}, i32 0")
        return self.value(f"shufflevector {vector} {first}, {vector} poison, "
                          f"<{lanes} x i32> zeroinitializer")

    # ---- memory
    def at(self, pointer: str, index: Operand, type: str) -> str:
        """The address of element `index` of an array of `type`."""
        if index in (0, "0"):
            return pointer
        return self.value(f"getelementptr inbounds {type}, ptr {pointer}, i64 {index}")

    def offset(self, pointer: str, bytes: Operand) -> str:
        """The address some bytes further; it may be outside the array, as those of views may."""
        if bytes in (0, "0"):
            return pointer
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {bytes}")

    def step(self, pointer: str, index: Operand, bytes: Operand) -> str:
        """The address `index` steps, of some bytes each, further."""
        return self.offset(pointer, self.mul(index, bytes))

    def load(self, type: str, pointer: str, align: int | None = None) -> str:
        return self.value(f"load {type}, ptr {pointer}" + (f", align {align}" if align else ""))

    def store(self, type: str, value: Operand, pointer: str, align: int | None = None) -> None:
        self.do(f"store {type} {value}, ptr {pointer}" + (f", align {align}" if align else ""))

    def masked_load(self, type: str, pointer: str, mask: str, lanes: int, align: int) -> str:
        """The lanes of a vector for which `mask` holds; the others are 0."""
        vector = typed(type, lanes)
        return self.value(f"call {vector} @llvm.masked.load.{_suffix(type, lanes)}.p0(ptr "
                          f"{pointer}, i32 {align}, {typed('i1', lanes)} {mask}, "
                          f"{vector} zeroinitializer)")

    def masked_store(self, type: str, value: str, pointer: str, mask: str, lanes: int, align: int
                     ) -> None:
        """Store the lanes of a vector for which `mask` holds."""
        self.do(f"call void @llvm.masked.store.{_suffix(type, lanes)}.p0({typed(type, lanes)} "
                f"{value}, ptr {pointer}, i32 {align}, {typed('i1', lanes)} {mask})")

    def copy(self, to: str, source: str, bytes: Operand) -> None:
        """Copy bytes between places that do not overlap."""
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {bytes}, i1 false)")

    def alloca(self, type: str, count: Operand = 1, align: int = 0) -> str:
        """A stack slot; if `count` is constant, it is allocated at the function's start."""
        name = self.fresh("s")
        text = f"  {name} = alloca {type}, i64 {count}" + (f", align {align}" if align else "")
        (self.slots if isinstance(count, int) else self.lines).append(text)
        return name

    def variable(self, type: str, value: Operand) -> str:
        """A stack slot that holds `value`."""
        slot = self.alloca(type)
        self.store(type, value, slot)
        return slot

    # ---- control
    @contextmanager
    def loop(
        self, lo: Operand, hi: Operand, step: Operand = 1, vectorize: bool | None = None,
        independent: bool = False,
    ) -> Iterator[str]:
        """for (i = lo; i < hi; i += step); `vectorize` requests or forbids vectorization.

        `independent`: no iteration of this innermost loop reads or writes what another one writes,
        which the vectorizer otherwise tests for several stores through one pointer."""
        n = self.count = self.count + 1
        body, done = f"body{n}", f"done{n}"
        before = self.block
        enters = self.compare("slt", lo, hi)
        self.do(f"br i1 {enters}, label %{body}, label %{done}")
        self.label(body)
        index = f"%i{n}"
        place = len(self.lines)
        yield index
        following = self.value(f"add nuw nsw i64 {index}, {step}")
        again = self.compare("slt", following, hi)
        self.lines.insert(
            place, f"  {index} = phi i64 [ {lo}, %{before} ], [ {following}, %{self.block} ]"
        )
        note = ""
        if vectorize is not None:
            note = f", !llvm.loop !@{self._loop_note(vectorize, place, independent)}"
        self.do(f"br i1 {again}, label %{body}, label %{done}{note}")
        self.label(done)

    def _loop_note(self, vectorize: bool, start: int, independent: bool) -> int:
        """Metadata for one loop, whose lines begin at `start`."""
        n, body = 3 * len(self.metadata), self.lines[start:]
        hints = [f'"llvm.loop.vectorize.enable", i1 {str(vectorize).lower()}']
        if vectorize and any(VARIANT in line for line in body):
            hints.append(f'"llvm.loop.vectorize.width", i32 {LANES}')
        elif vectorize and self.masked:
            hints.append(MASKED)
        elif vectorize:
            many = 1 if self.short else _interleaved(body)
            hints.append(f'"llvm.loop.interleave.count", i32 {many}')
        extra = ""
        if independent:
            hints.append(f'"llvm.loop.parallel_accesses", !@{n + 4}')
            self.lines[start:] = [_ACCESS.sub(rf"\g<0>, !llvm.access.group !@{n + 4}", line)
                                  for line in body]
            extra = f"!@{n + 4} = distinct !{{}}\n"
        nodes = ", ".join(f"!@{n + i}" for i in range(1 + len(hints)))
        text = f"!@{n} = distinct !{{{nodes}}}\n"
        text += "".join(f"!@{n + i} = !{{!{hint}}}\n" for i, hint in enumerate(hints, 1))
        self.metadata += [text + extra, *([""] if independent else [])]  # three numbers for each
        return n

    def stops(self) -> str:
        """Whether the run should stop; long-running code asks at intervals (see `stop_checks`)."""
        self.checks = True
        return self.compare("ne", self.value(f"call i64 @{CHECK}()"), 0)

    @contextmanager
    def long_loop(
        self, lo: Operand, hi: Operand, turns: int, vectorize: bool | None = None
    ) -> Iterator[str]:
        """A `loop` that ends early if the run should stop; it checks every `turns` iterations."""
        n = self.count = self.count + 1
        with self.loop(lo, hi, turns) as first:
            last = self.smin(self.add(first, turns), hi)
            with self.loop(first, last, vectorize=vectorize) as i:
                yield i
            more = self.compare("slt", last, hi)
            self.do(f"br i1 {more}, label %ask{n}, label %ended{n}")
            self.label(f"ask{n}")
            self.do(f"br i1 {self.stops()}, label %ended{n}, label %onward{n}")
            self.label(f"onward{n}")
        self.do(f"br label %ended{n}")
        self.label(f"ended{n}")

    @contextmanager
    def when(self, condition: str, holds: bool = True) -> Iterator[None]:
        """if (condition) { ... }"""
        n = self.count = self.count + 1
        yes, no = (f"then{n}", f"after{n}") if holds else (f"after{n}", f"then{n}")
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        self.label(f"then{n}")
        yield
        self.do(f"br label %after{n}")
        self.label(f"after{n}")

    def unless(self, condition: str) -> AbstractContextManager[None]:
        """if (!condition) { ... }"""
        return self.when(condition, holds=False)

    # ---- arguments of kernels
    def argument(self, index: int) -> str:
        """Entry `index` of the kernel's i64 arguments."""
        return self.load("i64", self.at("%args", index, "i64"), 8)

    def arguments(self, first: int, names: Sequence[str]) -> dict[str, str]:
        """The entries from `first` on, by name."""
        return {name: self.argument(first + i) for i, name in enumerate(names)}

    def buffer(self, index: int) -> str:
        """The address given by entry `index` (a slot of `buffers`) and the next one (an offset)."""
        slot = self.argument(index)
        base = self.load("ptr", self.at("%buffers", slot, "ptr"), 8)
        return self.offset(base, self.argument(index + 1))


NOINLINE = "nounwind noinline"
KERNEL = ("i64 %lo", "i64 %hi", "ptr noalias %args", "ptr noalias %buffers")


def kernel(attributes: str = "nounwind") -> Function:
    """A function with the signature of kernels, which are called once per chunk."""
    return Function("kernel", KERNEL, attributes=attributes)


def inner(name: str, params: str, attributes: str = "nounwind", result: str = "void") -> Function:
    """A function that only its own module calls."""
    return Function(name, params.split(", "), result, internal=True, attributes=attributes)


def module(*functions: Function) -> str:
    """The text of several functions; the metadata of each gets numbers of its own."""
    texts, first = [], 0
    for f in functions:
        texts.append(f.text(first=first))
        first += 3 * len(f.metadata)
    if any(f.checks for f in functions):
        texts.append(DECLARATION)
    return "".join(texts)
