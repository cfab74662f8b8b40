"""A program as data: typed variables, nodes with a text for each, blocks inside of nodes.

The text of a node is the Python expression that computes it, with {0}, {1} for its operands and
{f0}, {f1} for the functions of its blocks. Shapes are tuples of expressions in the sizes of the
program (`A`, `B*C`), so that a program shrinks by making a size smaller. A block may use variables
of the blocks around it, as a Python closure does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

Type = tuple[tuple[str, ...], str]  # a shape of expressions, and a dtype
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
WIDE = dict.fromkeys(FLOATS[:3], "float64") | {"complex64": "complex128"}


@dataclass
class Block:
    """A function: parameters, the nodes in order, and the variables it returns as a tuple."""

    params: list[int]
    nodes: list[Node]
    outs: list[int]


@dataclass
class Node:
    """One assignment; `several` says that the text gives a tuple, one value per variable."""

    op: str
    ins: list[int]
    outs: list[int]
    text: str
    blocks: list[Block] = field(default_factory=list)
    several: bool = False


@dataclass
class Program:
    """A whole program: its inputs are the parameters of `main`."""

    seed: int
    index: int
    regime: str  # "smooth", "exact" or "special": which values it works on
    dtype: str  # of most of its floats
    x64: bool
    sizes: dict[str, int]
    types: dict[int, Type]
    main: Block
    outer: str = "value"  # what is done with main: see SPELLINGS
    passing: str = "plain"  # how arguments are passed: plain, strided, aliased, donated
    smooth: bool = True  # whether finite differences mean something

    def size(self, expression: str) -> int:
        """The value of a dimension."""
        return eval(expression, {}, dict(self.sizes))

    def shape(self, v: int) -> tuple[int, ...]:
        return tuple(self.size(d) for d in self.types[v][0])

    def floats(self) -> list[int]:
        """The positions of inputs that can be differentiated by."""
        return [i for i, v in enumerate(self.main.params) if self.types[v][1] in FLOATS]

    def float_outs(self) -> list[int]:
        kinds = [self.types[v][1] for v in self.main.outs]
        return [i for i, t in enumerate(kinds) if t in FLOATS or t in COMPLEX]


def nodes(block: Block) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """All nodes with the names of the nests that they are in."""

    def inside(b: Block, around: tuple[str, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
        for n in b.nodes:
            yield n, around
            for inner in n.blocks:
                yield from inside(inner, (*around, n.op))

    return inside(block, ())


# ------------------------------------------------------------------------------------------ source

# What the names in a program's text mean on a library; `{lib}` is toile or jax.
IMPORTS = """\
import numpy as np
import {lib}
import {lib}.numpy as jnp
from {lib} import checkpoint, custom_jvp, custom_vjp, grad, hessian, jacfwd, jacrev, jit, jvp, lax
from {lib} import checkpoint_policies as policies, linearize, nn, random, value_and_grad
from {lib}.ad_checkpoint import checkpoint_name
from {lib}.custom_derivatives import linear_call
from {lib}.lax import cond, fori_loop, scan, switch, while_loop
from {lib} import vjp, vmap
"""

HELPERS = '''
def split(values, k):
    """The first k values, and the others."""
    return values[:k], values[k:]


def flat(pair):
    """The values of two tuples."""
    return *pair[0], *pair[1]


def with_jvp(f):
    """f with a rule for its tangents."""
    g = custom_jvp(f)
    g.defjvp(lambda xs, dxs: jvp(f, xs, dxs))
    return g


def with_vjp(f):
    """f with a rule for its cotangents."""
    g = custom_vjp(f)
    g.defvjp(lambda *xs: (f(*xs), xs), lambda xs, ct: vjp(f, *xs)[1](ct))
    return g


def wrap(x):
    """x modulo 16, between -8 and 8: exact on integers."""
    return x - 16 * jnp.floor(x / 16 + 0.5)


def bounded(x):
    return x / (1 + x * x)


def matrix(x, n):
    """A well conditioned symmetric matrix made of x, with eigenvalues that lie apart."""
    v = jnp.sin(jnp.arange(n * n, dtype=x.dtype).reshape(n, n) + jnp.sum(x))
    return (v + v.T) * 0.1 + jnp.diag(jnp.arange(n, dtype=x.dtype) * 2 + 3)
'''

SPELLINGS = {
    "value": "def f(*xs):\n    return main(*xs)\n",
    "grad": "def f(*xs):\n    return value_and_grad(total, {floats})(*xs)\n",
    "twice": (
        "def slope(*xs):\n    found = grad(total, {floats})(*xs)\n"
        "    return sum(jnp.sum(g * {weight}) for g in found)\n\n\n"
        "def f(*xs):\n    return total(*xs), grad(slope, {floats})(*xs)\n"
    ),
    "jvp": (
        "def f(*xs):\n    floats = {floats}\n"
        "    along = lambda *ys: total(*[ys[floats.index(i)] if i in floats else x\n"
        "                                for i, x in enumerate(xs)])\n"
        "    given = tuple(xs[i] for i in floats)\n"
        "    return jvp(along, given, tuple(jnp.ones_like(x) for x in given))\n"
    ),
    "vmap": "def f(*xs):\n    return vmap(main)(*stacked(xs))\n",
    "vmap_grad": "def f(*xs):\n    return vmap(grad(total, {floats}))(*stacked(xs))\n",
    "checkpoint_grad": (
        "def f(*xs):\n    return value_and_grad(checkpoint(total), {floats})(*xs)\n"
    ),
}
STACKED = '''
def stacked(xs):
    """Each argument, and the same in another order."""
    return [jnp.stack([x, x[::-1] if x.ndim else x]) for x in xs]
'''
DIFFERENTIATES = ("grad", "twice", "jvp", "vmap_grad", "checkpoint_grad")


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)" if names else "()"


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def block(self, b: Block, name: str, indent: str) -> None:
        params = ", ".join(f"v{v}" for v in b.params)
        self.lines.append(f"{indent}def {name}({params}):")
        inner = indent + "    "
        for n in b.nodes:
            self.node(n, inner)
        self.lines.append(f"{inner}return {_tuple([f'v{v}' for v in b.outs])}")

    def node(self, n: Node, indent: str) -> None:
        names = {}
        for i, b in enumerate(n.blocks):
            self.count += 1
            names[f"f{i}"] = f"f{self.count}"
            self.block(b, names[f"f{i}"], indent)
        text = n.text.format(*[f"v{v}" for v in n.ins], **names)
        outs = [f"v{v}" for v in n.outs]
        self.lines.append(f"{indent}{_tuple(outs) if n.several else outs[0]} = {text}")


def source(p: Program, wide: bool = False) -> str:
    """The functions of a program; `wide` spells narrow floats as float64."""
    writer = _Writer()
    writer.block(p.main, "main", "")
    lines = [f"{', '.join(p.sizes)} = {', '.join(map(str, p.sizes.values()))}", *writer.lines, ""]
    weight = "1.0" if p.regime == "exact" else "(1.0 + 0.125 * jnp.arange(g.size).reshape(g.shape))"
    weight = weight if p.regime != "exact" else "(1.0 + jnp.arange(g.size).reshape(g.shape) % 3)"
    weight = weight.replace("g.shape)", f"g.shape).astype('{p.dtype}')")
    lines += [
        "", "def total(*xs):", "    values = main(*xs)",
        f"    values = [jnp.real(values[i]).astype('{p.dtype}') for i in {p.float_outs()}]",
        f"    return sum(jnp.sum(g * {weight}) for g in values)", "", "",
    ]  # fmt: skip
    spelled = SPELLINGS[p.outer].replace("{floats}", str(tuple(p.floats())))
    lines.append(spelled.replace("{weight}", weight))
    text = "\n".join(lines)
    if "vmap" in p.outer:
        text = STACKED.lstrip() + "\n\n" + text
    if wide:
        for narrow, other in WIDE.items():
            text = text.replace(f"'{narrow}'", f"'{other}'")
    return text


def report(p: Program, arguments: list[np.ndarray], lib: str = "toile") -> str:
    """A Python file that runs the program compiled and, below, not."""
    lines = [IMPORTS.format(lib=lib), "from numpy import inf, nan", HELPERS, "", source(p), ""]
    if p.x64:
        lines.insert(1, f"{lib}.config.update('jax_enable_x64', True)")
    for i, x in enumerate(arguments):
        plain = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
        shown = f"np.array({plain.tolist()}, '{plain.dtype}').reshape({x.shape})"
        shown += ".astype(jnp.bfloat16)" if x.dtype.name == "bfloat16" else ""
        lines.append(f"x{i} = {shown}")
    names = ", ".join(f"x{i}" for i in range(len(arguments)))
    lines += [f"print(jit(f)({names}))", f"print(f({names}))"]
    return "\n".join(lines) + "\n"
