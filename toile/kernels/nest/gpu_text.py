"""Loop nests as CUDA text: code shared by all kinds of kernels.

A kernel's arguments are words, in the order in which its text first uses them: `Kernel.words`
names them, and `kernels.nest.gpu` supplies their values. A name is one of

  ("extent", a)      elements along an axis; along the vector axis, packs
  ("elements", a)    elements along an axis, always
  ("magic", a)       what divides by that extent (see `magic`), if indices have 32 bits
  ("pointer", i)     the address of operand i (loads, then stores)
  ("stride", i, a)   of operand i along an axis, in elements
  ("total", n)       the address of the partial results of a reduction (node n)
  ("constant", c, h) the bits of a constant; h: 1 for the imaginary part
  ("units",) ("rows",) ("parts",) ("step",) ...   numbers of one kind of kernel

The innermost axis is the vector axis: threads process packs of `vector` adjacent elements along it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.loop_nests import Access, Load, LoopNest, Pick, Reduce, Total
from toile.compiler.scalar.builder import Value, is_narrow, kind
from toile.compiler.scalar.totals import accumulator, combine, first_total
from toile.kernels.nest.gpu_picks import Choice, Read, choices_of, reads_of
from toile.kernels.nest.shared import Nodes
from toile.targets.cuda.scalars import Code, Scalars, memory, register

ZERO, UNIT = -1, -2  # known strides; others are words

Word = tuple[Any, ...]
Pattern = tuple[tuple[int, ...], ...]  # by operand and axis: ZERO, UNIT, or whose word holds it


class Kernel(NamedTuple):
    """A text and the names of its arguments."""

    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Form:
    """What determines a kernel's text besides its nest."""

    vector: int  # elements of a pack
    items: int  # packs that a thread holds at once
    wide: bool  # indices of 64 bits
    pattern: Pattern
    threads: int


class Body(Nodes):
    """Writes one kernel: arguments, operands, nodes; subclasses add the loops.

    The position in the loops is a slot: the current pack, or None outside the loops."""

    def __init__(self, nest: LoopNest, form: Form):
        super().__init__(nest)
        self.form, self.vector, self.items = form, form.vector, form.items
        self.last = nest.rank - 1  # the vector axis
        self.index = "i64" if form.wide else "int"
        self.code = Code()
        self.k: Scalars = Scalars(self.code)
        self.words: dict[Word, int] = {}
        self.head: list[str] = []
        self.named: set[str] = set()
        self.bases: dict[int, str] = {}  # moved pointers
        self.moved: set[int] = set()  # axes along which pointers have been moved
        self.guard = ""  # what is written before each store
        self.coordinates: dict[int, str] = {}  # of the row, or of the pack, by axis
        self.choices, self.inside = choices_of(nest)
        self.code.use("Pack")
        if any(kind(a.dtype) == "c" for a in self.accesses):
            self.code.use("Pair")
        self._constants()

    def kernel(self) -> Kernel:
        """Write the kernel."""
        self.write()
        self.code.lines = [*self.head, *self.code.lines]
        return Kernel(self.code.text(self.form.threads), tuple(self.words))

    def write(self) -> None:
        raise NotImplementedError

    # ---- arguments
    def word(self, *name: Any) -> str:
        """The expression of an argument."""
        return f"w[{self.words.setdefault(name, len(self.words))}]"

    def number(self, name: str, *key: Any) -> str:
        """An argument as a named index."""
        return self._named(name, f"const {self.index} {name} = ({self.index})", key)

    def _named(self, name: str, declaration: str, key: Word) -> str:
        if name not in self.named:
            self.named.add(name)
            self.head.append(f"  {declaration}{self.word(*key)};")
        return name

    def extent(self, axis: int) -> str:
        return self.number(f"n{axis}", "extent", axis)

    def pointer(self, i: int) -> str:
        """The pointer of operand i, moved to its row if that is known."""
        if i in self.bases:
            return self.bases[i]
        const = "const " if i < len(self.nest.loads) else ""
        type = f"{const}{memory(self.accesses[i].dtype)}*"
        return self._named(f"p{i}", f"{type} const p{i} = ({type})", ("pointer", i))

    def stride(self, i: int, axis: int) -> str:
        """The stride of an operand: "" for 0, "1", or a name."""
        of = self.form.pattern[i][axis]
        if of in (ZERO, UNIT):
            return "" if of == ZERO else "1"
        return self.number(f"s{of}_{axis}", "stride", of, axis)

    def _constants(self) -> None:
        self.constants = []
        for c, dtype in enumerate(self.nest.constants):
            imag = self.word("constant", c, 1) if kind(dtype) == "c" else None
            self.constants.append(
                self.k.bits_argument(self.word("constant", c, 0), dtype, imag))

    # ---- indices
    def split(self, linear: str, axes: Sequence[int]) -> dict[int, str]:
        """The coordinates of a linear index along some axes."""
        code, out, rest = self.code, {}, linear
        for a in reversed(axes):
            if a == axes[0]:
                out[a] = rest
                break
            n = self.extent(a)
            if self.form.wide:
                quotient = code.let(self.index, f"{rest} / {n}")
            else:
                code.use("divide")
                magic = self._named(f"m{a}", f"const Word m{a} = ", ("magic", a))
                quotient = code.let("int", f"(int)divide((u32){rest}, {magic})")
            out[a] = code.let(self.index, f"{rest} - {quotient} * {n}")
            rest = quotient
        return out

    def offset(self, i: int, coordinates: dict[int, str]) -> str:
        """The index of operand i at some coordinates, of which the last counts packs."""
        terms = []
        for a, x in coordinates.items():
            s = "" if a in self.moved else self.stride(i, a)
            if not s:
                continue
            factors = [x]
            if a == self.last and self.vector > 1:
                factors.append(str(self.vector))
            if s != "1":
                factors.append(s)
            terms.append(" * ".join(factors))
        return " + ".join(terms) or "0"

    def move(self, coordinates: dict[int, str], totals: bool = True) -> None:
        """Move the operands to some coordinates; `totals`: also the stores of reductions."""
        loads = len(self.nest.loads)
        for i, access in enumerate(self.accesses):
            node = self.nest.stores[i - loads][0] if i >= loads else None
            if node in self.totals or node in self.reductions and not totals:
                continue
            offset = self.offset(i, coordinates)
            if offset != "0":
                const = "const " if i < loads else ""
                type = f"{const}{memory(access.dtype)}*"
                before = self.pointer(i)
                self.code(f"{type} const b{i} = {before} + ({offset});")
                self.bases[i] = f"b{i}"
        self.moved = set(coordinates)

    # ---- packs
    def pack(self, dtype: np.dtype, vector: int | None = None) -> str:
        return f"Pack<{memory(dtype)}, {self.vector if vector is None else vector}>"

    def declare(self, i: int, items: int, name: str = "a") -> None:
        """Declare registers for a load's packs; one element each if a pack has equal elements."""
        access = self.accesses[i]
        type = self.pack(access.dtype) if access.inner else memory(access.dtype)
        self.code(f"{type} {name}{i}[{items}];")

    def fetch(self, i: int, slot: str, coordinates: dict[int, str], name: str = "a") -> None:
        """Load a pack."""
        access, pointer = self.accesses[i], self.pointer(i)
        offset = self.offset(i, coordinates)
        if access.inner == 1:
            type = self.pack(access.dtype)
            self.code(f"{name}{i}[{slot}] = *(const {type}*)({pointer} + ({offset}));")
        elif access.inner == 0:
            self.code(f"{name}{i}[{slot}] = {pointer}[{offset}];")
        else:
            with self.code.unrolled("j", self.vector):
                s = self.stride(i, self.last)
                self.code(f"{name}{i}[{slot}].e[j] = {pointer}[{offset} + j * {s}];")

    def element(self, i: int, slot: str) -> Value:
        """Element j of a pack that was loaded."""
        access = self.accesses[i]
        place = f"a{i}[{slot}].e[j]" if access.inner else f"a{i}[{slot}]"
        return self.k.from_memory(place, access.dtype)

    @contextmanager
    def elements(self, stores: Sequence[int], coordinates: dict[int, str]) -> Iterator[None]:
        """A loop over the elements of a pack, after which the packs are stored.

        Inside, call `put` for each element."""
        self.coordinates = coordinates
        for s in stores:
            access = self.nest.stores[s][1]
            if self._in_pairs(access):
                self.code(f"float f{s}[{self.vector}];")
            elif access.inner == 1:
                self.code(f"{self.pack(access.dtype)} q{s};")
        before = dict(self.values)
        with self.code.unrolled("j", self.vector):
            yield
        self.values = before
        for s in stores:
            access, i = self.nest.stores[s][1], len(self.nest.loads) + s
            if access.inner == 1:
                offset = self.offset(i, coordinates)
                type = self._paired(s, access) or self.pack(access.dtype)
                self.code(f"{self.guard}*({type}*)({self.pointer(i)} + ({offset})) = q{s};")

    def _in_pairs(self, access: Access) -> bool:
        """Whether elements are rounded two at a time, by one instruction."""
        return access.inner == 1 and self.vector > 1 and is_narrow(access.dtype)

    def _paired(self, s: int, access: Access) -> str:
        """Declare a pack of words of narrow floats, and return its type; "" for other numbers."""
        if not self._in_pairs(access):
            return ""
        type = f"Pack<u32, {self.vector // 2}>"
        self.code(f"{type} q{s};")
        with self.code.unrolled("j", self.vector // 2):
            both = self.k.two_to_memory(f"f{s}[2 * j]", f"f{s}[2 * j + 1]", access.dtype)
            self.code(f"q{s}.e[j] = {both};")
        return type

    def put(self, s: int, value: Value) -> None:
        """Store element j."""
        access, i = self.nest.stores[s][1], len(self.nest.loads) + s
        if self._in_pairs(access):
            self.code(f"f{s}[j] = {value.name};")
            return
        raw = self.k.to_memory(Value(value.name, access.dtype, value.imag))
        if access.inner == 1:
            self.code(f"q{s}.e[j] = {raw};")
            return
        offset = self.offset(i, self.coordinates)
        if access.inner == 2:
            offset = f"{offset} + j * {self.stride(i, self.last)}"
        self.code(f"{self.guard}{self.pointer(i)}[{offset}] = {raw};")

    def put_all(self, stores: Sequence[int]) -> None:
        """Store element j of several results whose nodes have been written."""
        for s in stores:
            self.put(s, self.values[self.nest.stores[s][0]])

    # ---- nodes
    def loads_of(self, nodes: Sequence[int]) -> list[int]:
        """The loads among nodes that are made inside the loops."""
        found = [self.nest.nodes[n] for n in nodes]
        return [x.operand for x in found if isinstance(x, Load) and self.is_pack(x.operand)]

    def is_pack(self, i: int) -> bool:
        """Whether a load is made inside the loops."""
        return True

    def load(self, operand: int, here: str | None) -> Value:
        if here is not None and self.is_pack(operand):
            return self.element(operand, here)
        return self.k.load(self.pointer(operand), self.offset(operand, self.coordinates),
                           self.nest.loads[operand].dtype)

    def pick(self, operand: int, index: Value, here: str | None) -> Value:
        return self.k.load(self.pointer(operand), self._distance(operand, index),
                           self.nest.loads[operand].dtype)

    def _distance(self, operand: int, index: Value) -> str:
        """How many elements a picked element is away from the operand's pointer."""
        terms = [index.name]
        for a in self.coordinates:
            s = self.stride(operand, a)
            x = self.coordinate(a)
            if a in self.moved:  # to the first element of the pack
                x = "j" if a == self.last and self.vector > 1 else ""
            if s and x:
                terms.append(x if s == "1" else f"{x} * {s}")
        return " + ".join(terms)

    def evaluate(self, nodes: Sequence[int], here: str | None) -> None:
        super().evaluate([n for n in nodes if n not in self.inside], here)

    def node(self, n: int, here: str | None) -> Value:
        return self._chosen(self.choices[n]) if n in self.choices else super().node(n, here)

    def _chosen(self, tree: Choice) -> Value:
        """Read one of several elements."""
        place, mask = self._place_of(tree)
        fills = [r.fill for r in reads_of(tree) if r.fill is not None]
        x = self.k.load(place, 0, self.dtype_of(tree))
        return self.k.select(mask, x, self.values[fills[0]]) if mask and fills else x

    def dtype_of(self, tree: Choice) -> np.dtype:
        pick = self.nest.nodes[next(reads_of(tree)).node]
        assert isinstance(pick, Pick)
        return self.nest.loads[pick.operand].dtype

    def _place_of(self, tree: Read | Choice) -> tuple[str, Value | None]:
        """The address of the element to read, and whether it counts (None if always)."""
        if isinstance(tree, Read):
            pick = self.nest.nodes[tree.node]
            assert isinstance(pick, Pick)
            distance = self._distance(pick.operand, self.values[pick.index])
            type = f"{memory(self.nest.loads[pick.operand].dtype)}*"
            place = self.code.let(type, f"{self.pointer(pick.operand)} + ({distance})")
            return place, None if tree.mask is None else self.values[tree.mask]
        which = self.values[tree.which]
        (first, inside), (second, also) = (self._place_of(t) for t in tree.reads)
        type = f"{memory(self.dtype_of(tree))}*"
        place = self.code.let(type, f"{which.name} ? {second} : {first}")
        if inside is None and also is None:
            return place, None
        names = ["true" if m is None else m.name for m in (also, inside)]
        mask = self.code.let("bool", f"{which.name} ? {names[0]} : {names[1]}")
        return place, Value(mask, which.dtype)

    def constant(self, index: int, dtype: np.dtype) -> Value:
        return self.constants[index]

    @property
    def index_dtype(self) -> np.dtype:
        return np.dtype(np.int64 if self.form.wide else np.int32)

    def count(self, axes: tuple[int, ...], dtype: np.dtype, here: str | None) -> Value:
        """The index of element j."""
        first, *others = axes
        text = self.coordinate(first)
        for a in others:
            text = f"({text} * {self.number(f'e{a}', 'elements', a)} + {self.coordinate(a)})"
        return self.k.convert(Value(text, self.index_dtype), dtype)

    def coordinate(self, axis: int) -> str:
        """The coordinate of element j along an axis."""
        x = self.coordinates[axis]
        if axis != self.last or self.vector == 1:
            return x
        return f"({x} * {self.vector} + j)"

    # ---- reductions
    def begin(self, n: int, count: int = 1) -> None:
        """Declare variables for the totals of a reduction."""
        node = self.summed(n)
        first, type = first_total(self.k, node.kind, node.dtype), register(node.dtype)
        for name, value in ((f"t{n}", first.name), (f"t{n}i", first.imag)):
            if value and count == 1:
                self.code(f"{type} {name} = {value};")
            elif value:
                self.code(f"{type} {name}[{count}];")
                with self.code.unrolled("j", count):
                    self.code(f"{name}[j] = {value};")

    def summed(self, n: int) -> Reduce | Total:
        return self.reductions[n] if n in self.reductions else self.totals[n]

    def names(self, n: int) -> list[str]:
        """The variables of a total: two for a complex one."""
        return [f"t{n}", f"t{n}i"] if kind(self.summed(n).dtype) == "c" else [f"t{n}"]

    def partial_results(self, n: int) -> tuple[np.dtype, str]:
        """The dtype of a reduction's partial results, and their address."""
        dtype = accumulator(self.summed(n).dtype)
        type = f"{memory(dtype)}*"
        return dtype, self._named(f"o{n}", f"{type} const o{n} = ({type})", ("total", n))

    def total(self, n: int, place: str = "") -> Value:
        dtype = self.summed(n).dtype
        return Value(f"t{n}{place}", dtype, f"t{n}i{place}" if kind(dtype) == "c" else "")

    def accumulate(self, n: int, x: Value, place: str = "", where: str = "") -> None:
        """Add one more value to a total, `where` a condition holds."""
        node, old = self.summed(n), self.total(n, place)
        new = combine(self.k, node.kind, old, Value(x.name, node.dtype, x.imag))
        for a, b in ((old.name, new.name), (old.imag, new.imag)):
            if a:
                self.code(f"{a} = {where} ? {b} : {a};" if where else f"{a} = {b};")
