"""Products in a loop that share an operand, or that are added, become one product.

    h @ u, h @ v        =  the two halves of  h @ [u v]
    g @ u.T + f @ v.T   =  [g f] @ [u v].T

The gates of a recurrent cell multiply its state by one matrix each, and the gradient of the state
is a sum of as many products. Such matrices are the same in every step: they are concatenated once,
before the loop. Kernels store the parts of [g f] where the product reads them; if the parts are
also stacked for what follows the loop, they are stacked together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

from toile.compiler.scalar.fusible import by_element
from toile.engine.config import flags
from toile.engine.operation import infer_list
from toile.engine.program import Atom, Equation, Literal, Var
from toile.primitives.shapes import Concatenate, Slice

FEWEST_TURNS = 8  # of a loop: else, concatenating the matrices takes too large a part of its time
FEWEST_TERMS = 1 << 14  # of the products: smaller ones may be computed in registers
WIDE = 4  # bytes of floats that are not rounded between a product and a sum


Parts = dict[Atom, tuple[Var, int, int]]  # parts of joined operands: of what, axis, start


def join_products(loop: Any, joins_results: bool) -> Parts:
    """Join the products of a scan, taken apart, whose other operands are the same in every step:
    those that are added and, if `joins_results`, those that share an operand. Returns the parts of
    the joined operands."""
    if loop.op.length < FEWEST_TURNS:
        return {}
    join = _Join(loop)
    join.sums()
    if joins_results:
        join.results()
    join.update()
    return join.parts


def stack_together(loop: Any, parts: Parts) -> None:
    """Stack joined operands instead of their parts, which are slices of them after the loop."""
    stacked: dict[Var, list[tuple[Atom, Var]]] = {}
    for y, result in loop.ys:
        if y in parts:
            stacked.setdefault(parts[y][0], []).append((y, result))
    for whole, pairs in stacked.items():
        if 2 * sum(y.aval.nbytes for y, _ in pairs) < whole.aval.nbytes:
            continue  # the rest would take too much memory
        results = {result: parts[y] for y, result in pairs}
        loop.ys = [(y, result) for y, result in loop.ys if result not in results]
        out, _ = loop.stacked(whole)
        _compute_together(loop, out, results)
        loop.after[:0] = [_sliced(out, axis + 1, start, result, loop.equation)
                          for result, (_, axis, start) in results.items()]


def _compute_together(loop: Any, whole: Var, parts: dict[Any, tuple[Var, int, int]]) -> None:
    """After a loop, replace equations that do the same with adjacent parts of an array by one."""
    found: dict[Any, list[tuple[int, Equation]]] = {}
    for e in loop.after:
        at = [i for i, a in enumerate(e.ins) if a in parts]
        if len(at) == 1 and len(e.outs) == 1:
            rest = (*e.ins[:at[0]], *e.ins[at[0] + 1:])
            found.setdefault((e.op, at[0], rest), []).append((parts[e.ins[at[0]]][2], e))
    for (_, i, _), same in found.items():
        same.sort(key=lambda pair: pair[0])
        axis = parts[same[0][1].ins[i]][1] + 1
        new = _together(whole, axis, i, same)
        gone = {id(e) for _, e in same}
        n = next(n for n, e in enumerate(loop.after) if id(e) in gone)
        if new:
            loop.after = [*loop.after[:n], *new, *(e for e in loop.after[n:] if id(e) not in gone)]


def _together(whole: Var, axis: int, i: int, same: list[tuple[int, Equation]]) -> list[Equation]:
    """What replaces equations whose operands i are parts of an array; nothing if they stay."""
    start, e = same[0]
    kept = _kept_axis(e.op, i, axis)
    if kept is None or len(same) < 2 or not _are_adjacent(same, i, axis):
        return []
    run = _run(whole, axis, start, sum(x.ins[i].aval.shape[axis] for _, x in same), e)
    ins = [*e.ins[:i], run[-1].outs[0] if run else whole, *e.ins[i + 1:]]
    out = Var(infer_list(e.op, [a.aval for a in ins])[0])
    if out.aval.size > ins[i].aval.size:  # copies of its parts would take longer
        return []
    new, at = [*run, Equation(e.op, ins, [out], e.source, e.scope)], 0
    for _, x in same:
        new.append(_sliced(out, kept, at, x.outs[0], x))
        at += x.outs[0].aval.shape[kept]
    return new


def _are_adjacent(same: Sequence[tuple[int, Equation]], i: int, axis: int) -> bool:
    """Whether each operand begins where the one before ends."""
    return all(start + e.ins[i].aval.shape[axis] == after
               for (start, e), (after, _) in itertools.pairwise(same))


def _run(whole: Var, axis: int, start: int, extent: int, at: Equation) -> list[Equation]:
    """The equation of a part of an array; none for the whole array."""
    shape = whole.aval.shape
    if extent == shape[axis]:
        return []
    return [_sliced(whole, axis, start, Var(whole.aval.with_shape(
        (*shape[:axis], extent, *shape[axis + 1:]))), at)]


def _kept_axis(op: Any, i: int, axis: int) -> int | None:
    """The axis of the result of a sum or product that is `axis` of operand i; None if there is
    none."""
    if op.sums_axes:
        return None if axis in op.axes else axis - sum(a < axis for a in op.axes)
    if op.kernel_family != "contraction":
        return None
    own, other = (op.rhs, op.lhs) if i else (op.lhs, op.rhs)
    label = own[axis]
    return op.out.index(label) if label in op.out and label not in other else None


def _sliced(x: Var, axis: int, start: int, out: Var, at: Equation) -> Equation:
    """The equation of a part of an array along an axis."""
    starts, limits = [0] * x.aval.ndim, list(x.aval.shape)
    starts[axis], limits[axis] = start, start + out.aval.shape[axis]
    op = Slice(tuple(starts), tuple(limits), (1,) * x.aval.ndim)
    return Equation(op, [x], [out], at.source, at.scope)


def _adds(e: Equation) -> bool:
    """Whether an equation is a sum of floats in which products may be added before rounding."""
    if not e.op.is_sum or len(e.ins) != 2 or e.effects:
        return False
    out = e.outs[0].aval
    exact = out.dtype.itemsize >= WIDE or flags.allow_excess_precision
    return exact and out.dtype.kind in "fVc" and all(
        a.aval.shape in (out.shape, ()) for a in e.ins)


class _Product:
    """A product of an operand that varies and of one that is the same in every step.

    `side` is the position of the second one; `axis` is its axis that can be extended."""

    def __init__(self, e: Equation, side: int, label: str):
        op: Any = e.op
        self.equation, self.side, self.label = e, side, label
        self.varying, self.fixed = e.ins[1 - side], e.ins[side]
        self.labels = (op.rhs if side else op.lhs), (op.lhs if side else op.rhs)

    @property
    def axis(self) -> int:
        """The axis of the fixed operand to concatenate along."""
        return self.labels[0].index(self.label)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Products of equal kinds can be joined."""
        shape = list(self.fixed.aval.shape)
        shape[self.axis] = 0
        return (self.equation.op, self.side, self.label, *shape, self.fixed.aval.dtype,
                self.varying.aval.dtype)


class _Join:
    """The equations of a loop, while products are joined."""

    def __init__(self, loop: Any):
        self.loop = loop
        self.fixed = {inside for inside, _ in loop.consts}
        self.equations: list[Equation] = loop.equations
        self.parts: Parts = {}
        self.weights: dict[tuple[Any, ...], Var] = {}
        self.update()

    def update(self) -> None:
        """Remove dead code, and find out again what reads what."""
        self.loop.equations = self.equations
        self.equations = self.loop.equations = list(self.loop.program().equations)
        self.made, self.uses = self.loop.producers(), self.loop.uses()

    def _product(self, e: Equation | None, summed: bool) -> _Product | None:
        """The equation as a product; its label is that of a summed axis, or of one of the result
        that only the fixed operand has."""
        if e is None or e.op.kernel_family != "contraction" or e.effects:
            return None
        sides = [i for i, a in enumerate(e.ins) if a in self.fixed]
        if len(sides) != 1 or e.ins[1 - sides[0]].__class__ is Literal:
            return None
        labels = _labels(e.op, sides[0], summed)
        enough = e.op.flops(*(a.aval for a in e.ins)) >= 2 * FEWEST_TERMS
        return _Product(e, sides[0], labels[0]) if labels and enough else None

    # ---- one operand, several results
    def results(self) -> None:
        """Join products with one varying operand, if loop nests read their results: others would
        be copied."""
        found: dict[Any, list[_Product]] = {}
        copied = {c[2] for c in self.loop.carries} | {y for y, _ in self.loop.ys}
        copied |= {a for e in self.equations if not by_element(e) for a in e.ins}
        for e in self.equations:
            product = self._product(e, False)
            if product is not None and e.outs[0] not in copied:
                found.setdefault((product.varying, product.kind), []).append(product)
        for products in found.values():
            if len(products) > 1:
                self._join_results(products)

    def _join_results(self, products: Sequence[_Product]) -> None:
        first = products[0]
        e, op = first.equation, cast(Any, first.equation.op)
        weights = self._weights(products)
        ins: list[Atom] = [weights, first.varying]
        if first.side:
            ins.reverse()
        out = Var(infer_list(op, [a.aval for a in ins])[0])
        axis = op.out.index(first.label)
        new = [Equation(op, ins, [out], e.source, e.scope)]
        start = 0
        for p in products:
            new.append(_sliced(out, axis, start, p.equation.outs[0], p.equation))
            start += p.equation.outs[0].aval.shape[axis]
        gone = {id(p.equation) for p in products}
        at = next(i for i, x in enumerate(self.equations) if id(x) in gone)
        rest = [x for x in self.equations[at:] if id(x) not in gone]
        self.equations = [*self.equations[:at], *new, *rest]

    # ---- sums of products
    def sums(self) -> None:
        """Join the products in sums, above all in those that a carry needs."""
        carried = {c[2] for c in self.loop.carries}
        roots = [e for e in self.equations if self._is_root(e)]
        places = {o: n for n, e in enumerate(self.equations) for o in e.outs}
        runs, found = _Runs(places), []
        for e in sorted(roots, key=lambda e: e.outs[0] not in carried):
            for products in self._products_in(e):
                if self._can_be_parts(products):
                    run = runs.add([p.varying for p in products], places[e.outs[0]])
                    if run is not None:
                        found.append((e.outs[0], products, run))
        for out, products, run in found:
            e = self.made[out]
            self._join_sum(e, products, self._whole(run, products[0], e))
            self.update()

    def _products_in(self, e: Equation) -> list[list[_Product]]:
        """The products in a sum that can be joined."""
        found: dict[Any, list[_Product]] = {}
        for a in self._terms(e):
            product = self._product(self.made.get(a), True) if self.uses[a] == 1 else None
            if product is not None:
                found.setdefault(product.kind, []).append(product)
        return [products for products in found.values() if len(products) > 1]

    def _is_root(self, e: Equation) -> bool:
        """Whether an equation is a sum, and not a term of another one."""
        if not _adds(e):
            return False
        (out,) = e.outs
        readers = [x for x in self.equations if out in x.ins]
        return self.uses[out] != 1 or not (readers and _adds(readers[0]))

    def _terms(self, e: Equation) -> list[Atom]:
        """What a sum of sums adds."""
        found: list[Atom] = []
        for a in e.ins:
            inner = self.made.get(a)
            if inner is not None and _adds(inner) and self.uses[a] == 1:
                found += self._terms(inner)
            else:
                found.append(a)
        return found

    def _can_be_parts(self, products: Sequence[_Product]) -> bool:
        """Whether loop nests can store the varying operands side by side."""
        atoms = [p.varying for p in products]
        return len(set(atoms)) == len(atoms) and all(
            a in self.made and by_element(self.made[a]) for a in atoms)

    def _join_sum(self, e: Equation, products: Sequence[_Product], whole: Var) -> None:
        """Let a sum add one joined product."""
        products = sorted(products, key=lambda p: self.parts[p.varying][2])
        first, op = products[0], products[0].equation.op
        _, axis, start = self.parts[first.varying]
        run = _run(whole, axis, start, sum(p.varying.aval.shape[axis] for p in products), e)
        if run:
            self.parts[run[0].outs[0]] = whole, axis, start
        operand, weights = run[0].outs[0] if run else whole, self._weights(products)
        ins: list[Atom] = [operand, weights] if first.side else [weights, operand]
        gone = {p.equation.outs[0] for p in products}
        left = [a for a in self._terms(e) if a not in gone]
        out = Var(first.equation.outs[0].aval) if left else e.outs[0]
        new = [*run, Equation(op, ins, [out], first.equation.source, first.equation.scope)]
        for i, a in enumerate(left):
            total = Var(e.outs[0].aval) if i < len(left) - 1 else e.outs[0]
            new.append(Equation(e.op, [new[-1].outs[0], a], [total], e.source, e.scope))
        at = self.equations.index(e)
        self.equations[at:at + 1] = new

    def _whole(self, atoms: list[Atom], like: _Product, e: Equation) -> Var:
        """Atoms of the loop, side by side."""
        if atoms[0] in self.parts:
            return self.parts[atoms[0]][0]
        axis = like.labels[1].index(like.label)
        op = Concatenate(axis)
        out = Var(infer_list(op, [a.aval for a in atoms])[0])
        start = 0
        for a in atoms:
            self.parts[a] = out, axis, start
            start += a.aval.shape[axis]
        last = max(self.equations.index(self.made[a]) for a in atoms)
        self.equations.insert(last + 1, Equation(op, list(atoms), [out], e.source, e.scope))
        return out

    def _weights(self, products: Sequence[_Product]) -> Var:
        """The fixed operands of products, concatenated before the loop."""
        axis, given = products[0].axis, dict(self.loop.consts)
        key = (axis, *(p.fixed for p in products))
        found = self.weights.get(key)
        if found is None:
            outside = self.loop.outside(Concatenate(axis), [given[p.fixed] for p in products])
            found = self.weights[key] = Var(outside.aval)
            self.loop.consts.append((found, outside))
            self.fixed.add(found)
        return found


def _labels(op: Any, side: int, summed: bool) -> list[str]:
    """The labels of the axes of an operand along which it can be extended."""
    own, other = (op.rhs, op.lhs) if side else (op.lhs, op.rhs)
    if summed:
        return [c for c in own if c not in op.out and c in other]
    return [c for c in op.out if c in own and c not in other]


class _Runs:
    """Operands in the order in which they will be concatenated: one list for each concatenation.

    `places`: where values are computed in the body of the loop."""

    def __init__(self, places: dict[Any, int]) -> None:
        self.places = places
        self.lists: list[list[Atom]] = []
        self.sums: list[int] = []  # where the first sum that reads a list is computed
        self.final: set[int] = set()  # the numbers of those that two sums read

    def add(self, atoms: Sequence[Atom], place: int) -> list[Atom] | None:
        """The list in which some operands of a sum will be adjacent; None if that is not possible.

        Two sums may share operands: those of the first end with what the second begins with. All
        operands must be computed before both sums, or one could depend on the other sum."""
        shared = [n for n, run in enumerate(self.lists) if not {*run}.isdisjoint(atoms)]
        if not shared:
            self.lists.append(list(atoms))
            self.sums.append(place)
            return self.lists[-1]
        first = min(place, self.sums[shared[0]])
        if any(self.places[a] > first for a in (*self.lists[shared[0]], *atoms)):
            return None
        self.sums[shared[0]] = first
        run, both = self.lists[shared[0]], [a for a in self.lists[shared[0]] if a in atoms]
        if len(both) == len(run) == len(atoms):
            return run
        if len(shared) > 1 or shared[0] in self.final or (
                [a.aval for a in run[:1]] != [a.aval for a in atoms[:1]]):
            return None
        self.final.add(shared[0])
        more = [a for a in atoms if a not in run]
        run[:] = [*(a for a in run if a not in atoms), *both, *more]
        return run
