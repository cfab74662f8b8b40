"""Programs drawn from a seed and an index: the same two numbers give the same program.

`Draw` holds what is drawn so far: the variables in scope with their types, and what the place of a
node allows (reverse mode, forward mode, derivatives at all). Values stay moderate: what could grow
is bounded at once, so that rounding is not amplified, and floats decide nothing in smooth programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.generated import indexing, leaves, nests  # noqa: F401 (indexing adds leaves)
from tests.generated.data import DIFFERENTIATES, FLOATS, Block, Node, Program, Type, nodes

DEPTH = 4
MOST_WORK = 20_000  # nodes that run, turns of loops counted: in Python loops, some seconds
DTYPES = ("float32",) * 9 + ("float64",) * 5 + ("bfloat16",) * 3 + ("float16",) * 3
INTS = ("int32", "int32", "int8", "uint8", "int16", "uint32", "int64", "uint16")


class Draw:
    """A program in the making."""

    def __init__(self, seed: int, index: int, longest: int = 65):
        self.numbers = seed, index
        self.rng = random.Random(f"{seed}:{index}")
        self.types: dict[int, Type] = {}
        self.scope: list[int] = []
        self.nodes: list[Node] = []
        self.depth = 0
        self.reverse = self.forward = self.derived = 0  # how many of these are around
        self.around: list[str] = []
        self.axes: list[tuple[str, str]] = []  # named axes around, with their sizes
        self.turns = 1  # of the loops around, multiplied
        self.work = 0  # how many nodes run, each turn counted
        self.smooth = True
        regime = self.rng.choices(("smooth", "exact", "special"), (9, 8, 3))[0]
        self.regime: str = regime
        self.dtype = self.rng.choice(DTYPES)
        self.x64 = self.dtype == "float64" or self.rng.random() < 0.1
        self.complex = "complex128" if self.dtype == "float64" else "complex64"
        self.sizes = {s: self.rng.choice((1, 2, 2, 3, 3, 4, 5)) for s in "ABC"}
        self.sizes |= {"K": self.rng.choice((1, 3, 4)), "L": self.rng.choice((1, 1, 2, 3))}
        if self.rng.random() < 0.3:  # beyond what is unrolled, and not a multiple of the lanes
            self.sizes[self.rng.choice("AABCL")] = self.rng.choice((7, 8, 9, 16, 17, 33, 65))
        if self.rng.random() < 0.06:
            self.sizes[self.rng.choice("ABL")] = 0
        if regime == "exact" and self.dtype in ("bfloat16", "float16"):  # sums have to be exact
            longest = min(longest, 3 if self.dtype == "bfloat16" else 5)
        self.sizes = {s: min(n, longest) for s, n in self.sizes.items()}
        self.budget = self.rng.choice((3, 5, 8, 12, 20))
        # Most programs are drawn from some of the constructs only, so that these meet more often.
        some = self.rng.random() < 0.7
        self.nests = self._few(nests.CALLS) if some else nests.CALLS
        self.leaves = self._few(leaves.CALLS) if some else leaves.CALLS

    def _few(self, calls: list[Any]) -> list[Any]:
        """The first, which fits everywhere, and some others."""
        return [calls[0], *[c for c in calls[1:] if self.rng.random() < 0.3]]

    # ---- choices
    def choice(self, xs: Any) -> Any:
        return self.rng.choice(xs)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def size(self, expression: str) -> int:
        return eval(expression, {}, dict(self.sizes))

    def elements(self, v: int) -> int:
        n = 1
        for d in self.types[v][0]:
            n *= self.size(d)
        return n

    def shape(self, v: int) -> tuple[str, ...]:
        return self.types[v][0]

    def kind(self, v: int) -> str:
        return self.types[v][1]

    def pick(self, fits: Callable[[tuple[str, ...], str], bool]) -> int | None:
        """A variable in scope, a late one more likely; None where none fits."""
        found = [v for v in self.scope if fits(*self.types[v])]
        if not found:
            return None
        back = min(int(self.rng.expovariate(0.35)), len(found) - 1)
        return found[-1 - back]

    def some_float(self, rank: int = 0, most: int = 3) -> int:
        """A variable of the program's float dtype, made if there is none."""
        found = self.pick(lambda s, t: t == self.dtype and rank <= len(s) <= most)
        if found is not None:
            return found
        other = self.pick(lambda s, t: t == self.dtype)
        shape = ("A", "B", "C")[:rank]
        if other is None:
            text = f"jnp.arange(A*B*C, dtype='{self.dtype}')[:{'*'.join(shape) or '1'}]"
            text += f".reshape({self.tuple(shape)}) * 0.125" if rank else ".sum()"
            return self.add("constant", text, [], shape, self.dtype)
        text = f"jnp.broadcast_to({self.bound('jnp.sum({0})')}, {self.tuple(shape)})"
        return self.add("broadcast", text, [other], shape, self.dtype)

    def some_int(self, rank: int | None = None) -> int:
        """An int32 variable of that rank."""
        fits = lambda s, t: t == "int32" and (rank is None or len(s) == rank)
        found = self.pick(fits)
        if found is not None:
            return found
        if rank == 0:
            other = self.pick(lambda s, t: t == "int32" and len(s) == 1)
            if other is not None and self.elements(other):
                at = self.rng.randrange(self.elements(other)) if self.chance(0.5) else 0
                return self.add("index", f"{{0}}[{at}]", [other], (), "int32")
            return self.add("constant", f"jnp.int32({self.rng.randrange(-2, 5)})", [], (), "int32")
        shape = ("K",) if rank is None else ("K", "A", "B")[:rank]
        text = f"(jnp.arange({'*'.join(shape)}, dtype='int32') * 5 % 7 - 2)"
        text += f".reshape({self.tuple(shape)})"
        return self.add("constant", text, [], shape, "int32")

    def partner(self, x: int) -> int:
        """A variable that broadcasts against x without changing its shape."""
        shape, dtype = self.types[x]
        fits = lambda s, t: t == dtype and len(s) <= len(shape) and all(
            a == b or a == "1" for a, b in zip(s[::-1], shape[::-1]))
        found = self.pick(fits)
        if found is not None and (found != x or self.chance(0.3)):
            return found
        other = self.pick(lambda s, t: t == dtype)
        if other is None or other == x:
            return x
        return self.add("sum", self.bound("jnp.sum({0})"), [other], (), dtype)

    # ---- making
    @staticmethod
    def tuple(shape: tuple[str, ...]) -> str:
        return f"({', '.join(shape)},)" if shape else "()"

    def bound(self, text: str) -> str:
        """The text with its value kept moderate."""
        if self.regime == "exact":
            return f"wrap({text})"
        return text if self.regime == "special" else f"jnp.tanh({text})"

    def new(self, shape: tuple[str, ...], dtype: str) -> int:
        v = len(self.types)
        self.types[v] = (tuple(shape), dtype)
        return v

    def add(self, op: str, text: str, ins: list[int], shape: tuple[str, ...], dtype: str) -> int:
        v = self.new(shape, dtype)
        self.nodes.append(Node(op, list(ins), [v], text))
        self.work += self.turns
        self.scope.append(v)
        return v

    def add_nest(self, op: str, text: str, ins: list[int], types: list[Type],
                 blocks: list[Block]) -> list[int]:
        outs = [self.new(*t) for t in types]
        self.nodes.append(Node(op, list(ins), outs, text, blocks, several=True))
        self.scope += outs
        return outs

    def block(self, name: str, params: list[Type], wanted: list[Type] | None = None,
              closed: bool = False, only: tuple[str, ...] = (), turns: str = "1") -> Block:
        """A function of parameters of these types, which returns values of the types wanted, or
        one or two of any (of the dtypes in `only`); a loop runs it `turns` times."""
        kept = self.scope, self.nodes
        made = [self.new(*t) for t in params]
        self.scope, self.nodes = [*([] if closed else self.scope), *made], []
        inside = len(self.scope) - len(made)
        times = max(1, self.size(turns))
        self.turns *= times
        self.depth += 1
        self.around.append(name)
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            step(self)
        if wanted is None:
            outs = [self._any_out(inside, only) for _ in range(self.rng.choice((1, 1, 2)))]
        else:
            outs = [self.fitted(t, inside) for t in wanted]
        self._use_rest(outs)
        self.around.pop()
        self.depth -= 1
        self.turns //= times
        nodes = self.nodes
        self.scope, self.nodes = kept
        return Block(made, nodes, outs)

    def _use_rest(self, outs: list[int]) -> None:
        """Let the first float result depend on a value that nothing used so far."""
        at = next((i for i, v in enumerate(outs) if self.kind(v) == self.dtype), None)
        rest = [v for v in unused(self.nodes) if self.kind(v) == self.dtype and v not in outs]
        if at is None or not rest:
            return
        shape, dtype = self.types[outs[at]]
        text = "{0} + jnp.sum({1})" if self.regime == "special" else (
            "wrap({0} + jnp.sum({1}))" if self.regime == "exact"
            else "{0} * 0.5 + jnp.tanh(jnp.sum({1}))")
        outs[at] = self.add("add", text, [outs[at], rest[-1]], shape, dtype)

    def _any_out(self, inside: int, only: tuple[str, ...]) -> int:
        found = [v for v in self.scope[inside:] if not only or self.kind(v) in only]
        found = [v for v in found if len(self.shape(v)) <= 2]
        return found[-1 - min(self.rng.randrange(3), len(found) - 1)] if found else (
            self.some_float(0, 2))

    def fitted(self, wanted: Type, inside: int) -> int:
        """A variable of this type: the last one there is in the block, or one that is made."""
        shape, dtype = wanted
        local = self.scope[inside:]
        same = [v for v in local if self.types[v] == wanted]
        made = {v for n in self.nodes for v in n.outs}
        fresh = [v for v in same if v in made]
        if fresh:
            return self.choice(fresh[-3:])
        values = [v for v in local if v in made and self.kind(v) == self.dtype]
        if dtype == self.dtype and values:
            s = self.add("sum", self.bound("jnp.sum({0})"), [values[-1]], (), dtype)
            if same:
                text = "wrap({0} + {1})" if self.regime == "exact" else "{0} * 0.5 + {1}"
                return self.add("add", text, [same[-1], s], shape, dtype)
            return self.add("broadcast", f"jnp.broadcast_to({{0}}, {self.tuple(shape)})", [s],
                            shape, dtype)
        if same:
            return same[-1]
        if dtype in FLOATS:
            x = self.some_float()
            text = f"jnp.full({self.tuple(shape)}, {self.bound('jnp.sum({0})')}, '{dtype}')"
            return self.add("full", text, [x], shape, dtype)
        return self.add("constant", f"jnp.ones({self.tuple(shape)}, '{dtype}')", [], shape, dtype)


def unused(made: list[Node]) -> list[int]:
    """Results of nodes that are no operands of others, nor used inside of them."""
    used = set()
    for n in made:
        used |= set(n.ins)
        for b in n.blocks:
            used |= {v for inner, _ in nodes(b) for v in inner.ins} | set(b.outs)
            used |= {v for inner, _ in nodes(b) for c in inner.blocks for v in c.outs}
    return [v for n in made for v in n.outs if v not in used]


def step(g: Draw) -> None:
    """Draw one node, or a nest of them."""
    g.budget -= 1
    if g.depth < DEPTH and g.budget > 0 and g.chance((0.75, 0.6, 0.55, 0.5)[g.depth]):
        nests.draw(g)
    else:
        leaves.draw(g)


def _inputs(g: Draw) -> list[int]:
    shapes = g.rng.sample(((), ("A",), ("A", "B"), ("L", "A"), ("B", "A"), ("A", "A"), ("B",),
                           ("L", "A", "B"), ("A", "B", "C"), ("A", "C")), g.choice((1, 2, 3)))
    found = [g.new(s, g.dtype) for s in shapes]
    if g.chance(0.3):  # two of one type, so that arguments can be one array
        found.append(g.new(g.shape(found[0]), g.dtype))
    if g.chance(0.15) and g.regime == "smooth":
        found.append(g.new(("A",), g.complex))
    found.append(g.new(("K",), "int32"))
    if g.chance(0.4):
        found.append(g.new((), "int32"))
    if g.chance(0.25):
        t = g.choice(INTS)
        found.append(g.new(("A",), t if g.x64 or t != "int64" else "int32"))
    if g.chance(0.15):
        found.append(g.new(("A",), "bool"))
    return found


def draw(seed: int, index: int) -> Program:
    """The program of these two numbers; with short loops, if it would run for minutes."""
    g = Draw(seed, index)
    found = drawn(g)
    return found if g.work <= MOST_WORK else drawn(Draw(seed, index, longest=4))


def drawn(g: Draw) -> Program:
    """The program that is drawn with these choices."""
    outers = ("value",) * 6 + ("grad",) * 5 + ("twice", "jvp", "vmap", "vmap_grad")
    outers += ("checkpoint_grad",) * 2
    outer = g.choice(outers) if g.regime != "special" else g.choice(("value", "value", "vmap"))
    g.derived = int(outer in DIFFERENTIATES)
    g.reverse = int(outer in ("grad", "twice", "vmap_grad", "checkpoint_grad"))
    g.forward = int(outer == "jvp")
    params = _inputs(g)
    g.scope = list(params)
    while g.budget > 0:
        step(g)
    kept = unused(g.nodes)[-g.choice((1, 3, 5, 8)):]
    if g.chance(0.2):
        kept.append(g.choice(params))  # an argument returned as it is
    main = Block(params, g.nodes, kept)
    passing = g.choice(("plain",) * 4 + ("strided", "aliased", "donated"))
    found = Program(*g.numbers, g.regime, g.dtype, g.x64, g.sizes, g.types, main, outer, passing,
                    g.smooth)
    if outer in DIFFERENTIATES and not found.float_outs():
        found.outer = "value"
    return found
