"""The pass that fuses products with the operations after them, where cuBLASLt supports it.

    c - r (x W)                     only float32: the step of an optimizer, a sum of products
    x W + b, x + (y W + b)          only the sum is stored, never the product alone
    gelu(x W + b)                   with the input of gelu, if its derivative needs that
    gelu'(h) * (g W^T)              in the backward pass
    (s p) (t q), s t (p q)          of float8 matrices p and q, which were converted to be scaled

Except for the first, this applies only to bfloat16, which may be float32 until it is stored
(`jax_allow_excess_precision`), and only if a sum must be in memory anyway: a sum that only loop
nests read is computed by them at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from toile.compiler.scalar.builder import BFLOAT16
from toile.compiler.scalar.fusible import fuses
from toile.engine.avals import Aval
from toile.engine.config import flags
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.kernels.contraction import gpu_activations as activations
from toile.kernels.contraction.gpu import FLOAT8, float8_fits
from toile.kernels.contraction.gpu_activations import FACTORS, POINTS, Chain
from toile.kernels.fused_product.gpu import (
    FusedProduct,
    available,
    batched_sides,
    sides,
    trailing,
)
from toile.primitives.choices import ConvertElementType
from toile.primitives.contractions import DotGeneral
from toile.primitives.elementwise import Max
from toile.targets.cuda import cublaslt

LEAST_BYTES = 1 << 20  # of a result that is worth fusing
LEAST_SUM_BYTES = 1 << 24  # of a sum of products for which one call adds the next product
UNIT, UNIT32 = 8, 4  # elements: sizes must be multiples of this; for float32
MOST_SUMMED = 4096  # of float32: with longer sums, the product takes much longer than the addition
# Seconds on a Hopper chip: what float8 saves per multiplication of two numbers, and what it costs
# to copy a number into the required layout.
SAVED, MOVE = 8e-16, 4e-12
FLOAT32 = np.dtype(np.float32)
Equations = dict[int, Equation]  # by identity


def fuse_epilogues(program: Program) -> Program:
    """The Program with products fused with the operations after them."""
    products = [e for e in program.equations if _is_product(e)]
    if not products or not flags.allow_excess_precision or cublaslt.engine() is None:
        return program
    work = _Fusion(program)
    for step in (work.float8, work.gelu, work.sums, work.multiples):
        for e in products:
            if id(e) not in work.gone:
                step(e)
    return work.finish()


def _is_product(e: Equation) -> bool:
    return e.op.combines == "products"


@dataclass
class _Epilogue:
    """A product, and the equations after it that have been fused so far."""

    product: DotGeneral
    ins: list[Atom]
    first: Equation
    last: Equation  # the equation that computes the current value
    gone: list[Equation]
    activation: str = ""
    extras: list[tuple[str, Atom]] = field(default_factory=list)
    alpha: float = 1.0
    beta: float = 1.0

    def __contains__(self, name: str) -> bool:
        return any(n == name for n, _ in self.extras)

    @property
    def value(self) -> Var:
        return self.last.outs[0]

    def take(self, e: Equation, name: str = "", a: Atom | None = None) -> None:
        """Fuse the equation that reads the current value; `a` is its other operand."""
        self.last = e
        self.gone.append(e)
        if a is not None:
            self.extras.append((name, a))


def _begin(e: Equation) -> _Epilogue:
    assert isinstance(e.op, DotGeneral)
    return _Epilogue(e.op, list(e.ins), e, e, [e])


class _Fusion:
    def __init__(self, program: Program):
        self.program = program
        self.position = {id(e): i for i, e in enumerate(program.equations)}
        self.made: dict[Atom, Equation] = {}
        self.readers: dict[Atom, list[Equation]] = {}
        for e in program.equations:
            self.made.update(dict.fromkeys(e.outs, e))
            for a in dict.fromkeys(a for a in e.ins if a.__class__ is Var):
                self.readers.setdefault(a, []).append(e)
        self.returned = {o for o in program.outputs if o.__class__ is Var}
        self.gone: set[int] = set()  # removed equations, by identity
        self.placed: dict[int, list[Equation]] = {}  # replacements of some equations
        self.summed: set[Atom] = set()  # results of `multiples`

    def finish(self) -> Program:
        if not self.placed:
            return self.program
        equations = [x for e in self.program.equations
                     for x in self.placed.get(id(e), () if id(e) in self.gone else (e,))]
        p = self.program
        return without_dead_code(Program(p.inputs, equations, p.outputs, p.name))

    # ---- conditions
    def is_suited(self, e: Equation) -> bool:
        """Whether an equation is a product that may be given an epilogue."""
        if id(e) in self.gone or not _is_product(e):
            return False
        avals = [e.outs[0].aval, *(a.aval for a in e.ins)]
        if any(a.dtype != BFLOAT16 for a in avals) or avals[0].nbytes < LEAST_BYTES:
            return False
        assert isinstance(e.op, DotGeneral)
        sizes = sides(e.op, avals[1].shape, avals[2].shape)
        return sizes is not None and not any(n % UNIT for n in sizes)

    def _reader(self, v: Var) -> Equation | None:
        """The only equation that reads a value; None if there are several, or it is an output."""
        found = [] if v in self.returned else self.readers.get(v, [])
        return found[0] if len(found) == 1 and id(found[0]) not in self.gone else None

    def _added(self, v: Var) -> tuple[Equation, Atom] | None:
        """The only reader of a value and its other operand, if the reader is an addition."""
        e = self._reader(v)
        if e is None or not e.op.is_sum or e.outs[0].aval.dtype != v.aval.dtype:
            return None
        other = e.ins[1] if e.ins[0] is v else e.ins[0]
        return None if other is v or other.aval.shape != v.aval.shape else (e, other)

    def _broadcast(self, a: Atom) -> tuple[Operation, Atom] | None:
        """The broadcast that gives `a`, and its operand."""
        e = self.made.get(a)
        return (e.op, e.ins[0]) if e is not None and e.op.makes_axes and e.ins else None

    def _bias(self, a: Atom, product: DotGeneral) -> Atom | None:
        """The operand that was broadcast over the rows of a product to give `a`."""
        found = self._broadcast(a)
        if found is None:
            return None
        (op, x), shape = found, a.aval.shape
        columns = range(len(shape) - trailing(product), len(shape))
        runs = {op.moved_axis(x.aval.shape, i) for i, n in enumerate(x.aval.shape) if n != 1}
        wanted = {d for d in columns if shape[d] != 1}
        fits = runs == wanted and x.aval.dtype == a.aval.dtype
        return x if fits and x.__class__ is Var else None

    def _is_kept(self, v: Atom, many: bool) -> bool:
        """Whether a value must be stored: it has readers that are no loop nests or (`many`)
        several."""
        found = [e for e in self._uses(v) if not e.op.views_part]
        parts = len(found) < sum(1 for _ in self._uses(v))  # views of parts: usually read by one
        several = many and len(found) + parts > 1
        return v in self.returned or several or any(not fuses(e) for e in found)

    def _uses(self, v: Atom) -> Iterator[Equation]:
        """The equations that read a value, or a view of it."""
        for e in self.readers.get(v, ()):
            if _is_view(e) and e.outs[0] not in self.returned:
                yield from self._uses(e.outs[0])
            else:
                yield e

    # ---- sums
    def sums(self, e: Equation) -> None:
        """Fuse a bias, another array and a relu into a product."""
        if self.is_suited(e):
            end = _begin(e)
            self._take_sums(end)
            if end.extras and self._is_kept(end.value, "added" in end):
                self._place(end)

    def _take_sums(self, end: _Epilogue) -> None:
        while (found := self._added(end.value)) is not None:
            e, other = found
            bias = None if "bias" in end else self._bias(other, end.product)
            if bias is not None:
                end.take(e, "bias", bias)
            elif "added" not in end and self._is_array(other):
                end.take(e, "added", other)
            else:
                break
        positive = self._reader(end.value)
        if end.extras and positive is not None and _is_relu(positive, end.value):
            end.take(positive)
            end.activation = "relu"

    def _is_array(self, a: Atom) -> bool:
        """Whether an operand must be in memory anyway, not only to be added here."""
        if a.__class__ is Literal:
            return False
        e = self.made.get(a)
        if e is None or self._is_kept(a, True):
            return self._broadcast(a) is None
        return not (fuses(e) or _is_product(e) or _is_view(e))

    # ---- multiples
    def multiples(self, e: Equation) -> None:
        """Fuse a float32 product, times a number, with the array that it is added to."""
        if not self._is_wide(e):
            return
        end = _begin(e)
        reader = self._take_factors(end)
        if reader is None or len(reader.op.signs) != 2 or reader.ins[0] is reader.ins[1]:
            return
        place = reader.ins.index(end.value)
        end.alpha *= reader.op.signs[place]
        end.beta = float(reader.op.signs[1 - place])
        other = reader.ins[1 - place]
        if other.aval.shape == end.value.aval.shape and other.aval.dtype == FLOAT32:
            self._add_multiple(end, reader, other)

    def _add_multiple(self, end: _Epilogue, reader: Equation, other: Atom) -> None:
        made = self.made.get(other)
        summed = made is not None and _is_product(made) or other in self.summed
        if not summed and not self._is_array(other):
            return
        end.take(reader, "added", other)
        # A large sum of products needs less memory than both, and no more time.
        large = summed and end.value.aval.nbytes >= LEAST_SUM_BYTES
        if large or self._is_kept(end.value, True):
            self._place(end)
            self.summed.add(end.value)

    def _is_wide(self, e: Equation) -> bool:
        """Whether an equation is a float32 product of sizes that `multiples` takes."""
        x, y, out = *(a.aval for a in e.ins), e.outs[0].aval
        if any(a.dtype != FLOAT32 for a in (x, y, out)) or out.nbytes < LEAST_BYTES:
            return False
        assert isinstance(e.op, DotGeneral)
        sizes = batched_sides(e.op, x.shape, y.shape)
        return (sizes is not None and sizes[-1] <= MOST_SUMMED
                and not any(n % UNIT32 for n in sizes[1:]))

    def _take_factors(self, end: _Epilogue) -> Equation | None:
        """Fuse multiplications by numbers; returns the equation after them, if there is one."""
        while (e := self._reader(end.value)) is not None:
            others = [a for a in e.ins if a is not end.value]
            if len(e.op.signs) == 1:
                end.alpha *= e.op.signs[0]
            elif (e.op.is_product and len(e.ins) == 2 and len(others) == 1
                  and isinstance(others[0], Literal) and np.size(others[0].val) == 1):
                end.alpha *= float(np.asarray(others[0].val).item())
            else:
                break
            end.take(e)
        return e

    # ---- gelu
    def gelu(self, e: Equation) -> None:
        """Fuse gelu with the product before it, and its slope with the products that it scales."""
        if not self.is_suited(e):
            return
        end = _begin(e)
        found = self._added(end.value)
        bias = None if found is None else self._bias(found[1], end.product)
        if found is not None and bias is not None:
            end.take(found[0], "bias", bias)
        h = end.value
        if not self._branches(h):
            return
        chain = Chain({h: POINTS})
        chain.grow(self._after(h))
        g = chain.find(activations.is_gelu, h.aval)
        if g is not None:
            self._place_gelu(end, g, chain.behind(g), list(self._slopes(h, chain)))

    def _place_gelu(self, end: _Epilogue, g: Var, behind: Equations,
                    slopes: Sequence[tuple[Equation, Var, Equations]]) -> None:
        """Replace gelu and its slopes, if the library has algorithms for all of them.

        `behind` are the equations that compute gelu."""
        h = end.value
        for dot, _, taken in slopes:
            behind |= taken | {id(dot): dot}
        if not self._is_closed(behind, {h, g, *(k for _, k, _ in slopes)}):
            return
        end.activation = "gelu"
        kept = h in self.returned or any(id(r) not in behind for r in self.readers[h])
        ends = [replace(_begin(dot), last=self.made[k], activation="dgelu",
                        extras=[("before", h)]) for dot, k, _ in slopes]
        keeps = kept or bool(slopes)
        if self._operation(end, keeps) is None or any(self._operation(x) is None for x in ends):
            return
        self._place(end, [g, h] if keeps else [g])
        for x in ends:
            self._place(x)
        self.gone |= set(behind)

    def _branches(self, v: Atom) -> bool:
        """Whether several equations read a value or its conversion, as in gelu."""
        while len(found := self.readers.get(v, [])) == 1:
            if not found[0].op.only_rounds:
                return False
            v = found[0].outs[0]
        return len(found) > 1

    def _slopes(self, h: Var, chain: Chain) -> Iterator[tuple[Equation, Var, Equations]]:
        """Products that are multiplied by gelu's slope at h, the results, and their equations."""
        seen: set[int] = set()
        for v in chain.known:
            for r in self.readers.get(v, ()):
                for a in r.ins:
                    dot = self.made.get(a)
                    if dot is None or id(dot) in seen or not self.is_suited(dot):
                        continue
                    seen.add(id(dot))
                    if a.aval.shape != h.aval.shape or dot is self.made[h]:
                        continue
                    more = Chain({**chain.known, a: FACTORS})
                    more.grow(self._after(a))
                    k = more.find(activations.is_gelu_gradient, h.aval)
                    if k is not None:
                        both = Chain({})
                        both.made = {**chain.made, **more.made}
                        yield dot, k, both.behind(k)

    def _after(self, v: Atom) -> list[Equation]:
        """Arithmetic equations that depend on a value, in order."""
        found: dict[int, Equation] = {}
        left: list[Atom] = [v]
        while left and len(found) <= 2 * activations.MOST_EQUATIONS:
            for r in self.readers.get(left.pop(), ()):
                if id(r) not in found and activations.is_arithmetic(r.op):
                    found[id(r)] = r
                    left.append(r.outs[0])
        return sorted(found.values(), key=lambda e: self.position[id(e)])

    def _is_closed(self, equations: Equations, kept: set[Var]) -> bool:
        """Whether nothing else reads the results of these equations, except those in `kept`."""
        return not any(
            o in self.returned or any(id(r) not in equations for r in self.readers.get(o, ()))
            for e in equations.values() for o in e.outs if o not in kept
        )

    # ---- float8
    def float8(self, e: Equation) -> None:
        """Multiply float8 matrices before they are scaled, and scale the product instead."""
        pairs = [pair for a in e.ins if (pair := self._quantized(a)) is not None]
        value = e.outs[0]
        if value.aval.nbytes < LEAST_BYTES or len(pairs) < len(e.ins):
            return
        end = _begin(e)
        end.product = replace(end.product, dtype=value.aval.dtype)
        end.ins = [q for q, _ in pairs]
        shapes = [q.aval.shape for q in end.ins]
        if not float8_fits(end.product, *shapes) or not _float8_pays(end.product, *shapes):
            return
        end.extras = [("scale", s) for _, s in pairs if s is not None]
        self._take_scale(end)
        if end.extras or end.ins != list(e.ins):
            if value.aval.dtype == BFLOAT16:
                self._take_sums(end)
            self._place(end)

    def _take_scale(self, end: _Epilogue) -> None:
        """Fuse a following multiplication by a scalar, if there is one."""
        value, reader = end.value, self._reader(end.value)
        if reader is not None and reader.op.is_product and len(end.extras) < 2:
            other = [a for a in reader.ins if a is not value]
            scale = self._scalar(other[0]) if len(other) == 1 else None
            if scale is not None and reader.outs[0].aval.dtype == value.aval.dtype:
                end.take(reader, "scale", scale)

    def _quantized(self, a: Atom) -> tuple[Atom, Atom | None] | None:
        """The float8 array that an operand was converted from, and the scale, if there is one."""
        if a.aval.dtype.name in FLOAT8:
            return a, None
        e, scale = self.made.get(a), None
        if e is not None and e.op.is_product:
            for x, y in (e.ins, e.ins[::-1]):
                scale = self._scalar(y)
                if scale is not None:
                    e = self.made.get(x)
                    break
            else:
                return None
        if e is None or not e.op.only_rounds or e.ins[0].aval.dtype.name not in FLOAT8:
            return None
        return e.ins[0], scale

    def _scalar(self, a: Atom) -> Atom | None:
        """The variable of one number that fills an operand, or None."""
        _, a = self._broadcast(a) or (None, a)
        return a if a.__class__ is Var and a.aval.size == 1 else None

    # ---- replacing equations
    def _operation(self, end: _Epilogue, keeps: bool = False) -> FusedProduct | None:
        """The fused operation; None if the library has no algorithm for it."""
        names = tuple(name for name, _ in end.extras)
        op = FusedProduct(end.product, end.activation, names, keeps, end.alpha, end.beta)
        return op if available(op, end.ins[0].aval, end.ins[1].aval) else None

    def _place(self, end: _Epilogue, outs: list[Var] | None = None) -> None:
        """Replace the equations by the fused operation, if there is one."""
        outs = [end.value] if outs is None else outs
        op = self._operation(end, len(outs) > 1)
        if op is None:
            return
        e = end.first
        ins, before = list(end.ins), []
        for name, a in end.extras:
            if name == "scale":  # a float32 scalar in memory
                wide = Var(Aval(a.aval.shape, FLOAT32))
                before.append(Equation(ConvertElementType(FLOAT32), [a], [wide], e.source, e.scope))
                a = wide
            ins.append(a)
        self.placed[id(end.last)] = [*before, Equation(op, ins, outs, e.source, e.scope)]
        self.gone |= {id(x) for x in end.gone}


def _float8_pays(op: DotGeneral, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether a product in float8 saves more than copying its operands costs."""
    sizes = sides(op, x, y)
    moved = sum(prod(shape) for labels, shape in ((op.lhs, x), (op.rhs, y))
                if labels[-1] in op.out)
    return sizes is not None and moved * MOVE <= prod(sizes) * SAVED


def _is_view(e: Equation) -> bool:
    """Whether loop nests can read the operand of an equation instead of its result."""
    return e.op.moves_axes or e.op.only_rounds


def _is_relu(e: Equation, v: Var) -> bool:
    other = [a for a in e.ins if a is not v]
    return (isinstance(e.op, Max) and len(other) == 1 and isinstance(other[0], Literal)
            and not other[0].val and e.outs[0].aval.dtype == v.aval.dtype)
