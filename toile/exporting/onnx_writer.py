"""Writes a traced function as the nodes of an ONNX graph.

The rules of the operations are in `onnx_rules`, `onnx_indexing`, `onnx_windows` and
`onnx_control`. Sizes that depend on the batch are computed in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.engine.source import here
from toile.exporting import onnx_format as form
from toile.exporting.numpy_writer import missing_rule
from toile.exporting.sizes import Size, SizeLiteral

Rule = Callable[["OnnxWriter", Any, list[str], Equation], Any]
BATCH = "batch"  # the name of the free size


class OnnxWriter:
    """The nodes of the graph, its constants, and the names of variables."""

    def __init__(self, rules: dict[type, Rule]):
        self.rules = rules
        self.graphs: list[list[bytes]] = [[]]
        self.names: dict[Var, str] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.known: dict[Any, str] = {}
        self.used: set[str] = set()
        self.count = 0
        self.at: Equation | None = None
        self.batch: Callable[[], str] | None = None
        self.elided: set[Var] = set()

    # ---- nodes
    def fresh(self, start: str = "v") -> str:
        """Return a new name."""
        self.count += 1
        return f"{start}{self.count}"

    def node(self, op: str, ins: Sequence[str], **attributes: Any) -> str:
        """Add a node with one result."""
        return self.nodes(op, ins, 1, **attributes)[0]

    def nodes(self, op: str, ins: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with several results."""
        return self._add(op, ins, [self.fresh() for _ in range(count)], attributes)

    def named(self, op: str, ins: Sequence[str], name: str) -> str:
        """Add a node whose result has a given name."""
        return self._add(op, ins, [name], {})[0]

    def _add(self, op: str, ins: Sequence[str], outs: list[str],
             attributes: dict[str, Any]) -> list[str]:
        self.used.update(ins)
        scope, doc = "", ""
        if self.at is not None:
            scope, doc = "/".join(map(str, self.at.scope)), str(self.at.source or "")
        name = f"{scope}/{op}_{outs[0]}"
        doc = doc.replace("\\", "/").rpartition("/")[2]
        self.graphs[-1].append(form.node(op, ins, outs, attributes, name, doc))
        return outs

    # ---- constants
    def constant(self, x: Any, dtype: Any = None, name: str = "") -> str:
        """Add an array to the graph as a weight."""
        x = np.asarray(x, dtype)
        if name:
            self.constants[name] = x
            return name
        key = x.shape, x.dtype, x.tobytes()
        if key not in self.known:
            self.known[key] = name = self.fresh("c")
            self.constants[name] = x
        return self.known[key]

    def ints(self, *values: int) -> str:
        """A vector of integers, such as axes."""
        return self.constant(list(values), np.int64)

    def like(self, value: float, aval: Aval) -> str:
        """A number with the dtype of an aval."""
        return self.constant(np.asarray(value).astype(aval.dtype))

    # ---- sizes
    def number(self, n: int) -> str:
        """A size as an integer of rank 0."""
        if not isinstance(n, Size):
            return self.constant(int(n), np.int64)
        key = "size", n.scale, n.offset, len(self.graphs)
        if key not in self.known:
            assert self.batch is not None
            made = self.batch()
            if n.scale != 1:
                made = self.node("Mul", [made, self.constant(n.scale, np.int64)])
            if n.offset:
                made = self.node("Add", [made, self.constant(n.offset, np.int64)])
            self.known[key] = made
        return self.known[key]

    def vector(self, n: int) -> str:
        """A size as a vector with one element."""
        if not isinstance(n, Size):
            return self.ints(int(n))
        return self.node("Reshape", [self.number(n), self.ints(1)])

    def shape(self, sizes: Sequence[int]) -> str:
        """A shape, for `Expand`, `Slice` and others."""
        if not any(isinstance(n, Size) for n in sizes):
            return self.ints(*sizes)
        return self.node("Concat", [self.vector(n) for n in sizes], axis=0)

    def count_to(self, n: int) -> str:
        """The integers 0, 1, ... n - 1, as int64."""
        if not isinstance(n, Size):
            return self.constant(np.arange(int(n)), np.int64)
        zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
        return self.node("Range", [zero, self.number(n), one])

    # ---- shapes of values
    def reshape(self, x: str, sizes: Sequence[int]) -> str:
        """Change the shape of a value; at most one size may be computed from the others."""
        free = [i for i, n in enumerate(sizes) if isinstance(n, Size)]
        if x in self.constants and not free:
            return self.constant(self.constants[x].reshape([int(n) for n in sizes]))
        if len(free) == 1 and 0 not in sizes:
            return self.node("Reshape", [x, self.ints(*(-1 if i in free else int(n)
                                                        for i, n in enumerate(sizes)))])
        return self.node("Reshape", [x, self.shape(sizes)], allowzero=1)

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Transpose a value; weights are transposed immediately."""
        perm = tuple(int(p) for p in perm)
        if perm == tuple(range(len(perm))):
            return x
        if x in self.constants:
            return self.constant(np.ascontiguousarray(self.constants[x].transpose(perm)))
        return self.node("Transpose", [x], perm=perm)

    def cast(self, x: str, dtype: Any) -> str:
        """Convert a value to another dtype."""
        return self.node("Cast", [x], to=form.CODES[np.dtype(dtype)])

    def where(self, which: str, x: str, y: str, dtype: Any) -> str:
        """Choose elements of x where `which` is true and of y elsewhere, also for booleans."""
        if dtype != np.bool_:
            return self.node("Where", [which, x, y])
        other = self.node("And", [self.node("Not", [which]), y])
        return self.node("Or", [self.node("And", [which, x]), other])

    def slice(self, x: str, starts: Sequence[int], stops: Sequence[int], axes: Sequence[int],
              steps: Sequence[int]) -> str:
        """Return a part of x; a stop may be -2**63 for reversed axes."""
        return self.node("Slice", [x, self.shape(starts), self.shape(stops), self.ints(*axes),
                                   self.ints(*steps)])

    # ---- programs
    def atom(self, a: Atom) -> str:
        """The name of an operand."""
        if isinstance(a, SizeLiteral):
            size = self.cast(self.number(a.size), a.aval.dtype)
            return self.node("Reciprocal", [size]) if a.inverted else size
        if isinstance(a, Literal):
            check_dtype(a.aval, self.at)
            return self.constant(a.val, a.aval.dtype)
        return self.names[a]

    def program(self, program: Program, args: Sequence[str]) -> list[str]:
        """Add the nodes of a program, and return the names of its results."""
        self.names.update(zip(program.inputs, args, strict=True))
        outer = self.at
        for e in program.equations:
            self.at = e
            for v in e.outs:
                check_dtype(v.aval, e)
            rule = self.rules.get(type(e.op))
            if rule is None:
                raise missing_rule("to_onnx", e)
            found = rule(self, e.op, [self.atom(a) for a in e.ins], e)
            results = [found] if isinstance(found, str) else list(found)
            self.names.update(zip(e.outs, results, strict=True))
        self.at = outer
        return [self.atom(o) for o in program.outputs]

    def subgraph(self, name: str, ins: Sequence[bytes],
                 body: Callable[[], list[tuple[str, Aval]]]) -> form.Graph:
        """Return a graph for an attribute of a loop or branch; it may read outer names."""
        self.graphs.append([])
        before = dict(self.known)
        results = [(self.node("Identity", [x]), aval) for x, aval in body()]
        self.known = {k: v for k, v in self.known.items() if k in before or v in self.constants}
        nodes = self.graphs.pop()
        outs = [form.value_info(x, a.dtype, free_shape(a.shape)) for x, a in results]
        return form.Graph(form.graph(name, nodes, [], ins, outs))


def free_shape(shape: Sequence[int]) -> list[int | str]:
    """Return a shape in which free sizes are text."""
    return [n.text(BATCH).replace(" ", "") if isinstance(n, Size) else int(n) for n in shape]


def check_dtype(aval: Aval, e: Equation | None) -> None:
    """Raise an error for a dtype that ONNX files cannot contain."""
    if aval.dtype not in form.CODES or aval.dtype.name == "bfloat16":
        where = f" of `{e.op.name}` at {e.source or 'an unknown line'}" if e else ""
        raise NotImplementedError(
            f"to_onnx: needed float, integer and bool dtypes, got {aval.str_short()}{where} "
            f"(runtimes lack operators for this dtype; compute with float32){here()}")
