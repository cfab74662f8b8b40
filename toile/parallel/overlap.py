"""All-reduces over GPUs that overlap with computation: each begins when its operands are ready.

Without this pass, gradients are averaged after the backward pass. Here, their sums begin during the
backward pass, several at a time, as soon as enough bytes are ready. They end when the first result
is needed. All devices run the same equations, so they begin the sums in the same order. This module
may import primitives and the layers below it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from toile.compiler.passes.calls import inline_calls
from toile.engine.program import Equation, Program, Var

BUCKET = 4 << 20  # least number of bytes that begin together


class _Bucket:
    """All-reduces of the same kind, with all their operands."""

    __slots__ = ("equations", "nbytes", "begun")

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self.nbytes = 0
        self.begun: Any = None  # the variable that stands for the bucket, once it has begun


class _Overlap:
    def __init__(self, program: Program):
        self.program = program
        self.done: list[Equation] = []
        self.count = 0
        self.open: dict[Any, _Bucket] = defaultdict(_Bucket)  # buckets still filling, by operation
        self.of: dict[Var, _Bucket] = {}  # buckets that have not ended, by result
        self.makers: dict[Var, Equation] = {}  # all-reduces in no bucket yet, by result
        self.readers: dict[Var, list[Equation]] = defaultdict(list)
        self.missing: dict[int, int] = {}  # number of missing operands, by equation
        for e in program.equations:
            if e.op.together is not None:
                self.makers[e.outs[0]] = e
        inputs = set(program.inputs)
        for e in self.makers.values():
            waits = [a for a in e.ins if a.__class__ is Var and a not in inputs]
            self.missing[id(e)] = len(waits)
            for a in waits:
                self.readers[a].append(e)

    def run(self) -> Program:
        for e in [e for e in self.makers.values() if not self.missing[id(e)]]:
            self.take(e)
        for e in self.program.equations:
            if e.op.together is None:
                self.need(e.ins)
                self.emit(e)
        self.need(self.program.outputs)
        return Program(self.program.inputs, self.done, self.program.outputs, self.program.name)

    def emit(self, e: Equation) -> None:
        self.done.append(e)
        for v in e.outs:
            for reader in self.readers.get(v, ()):
                self.missing[id(reader)] -= 1
                if not self.missing[id(reader)] and reader.outs[0] in self.makers:
                    self.take(reader)

    def take(self, e: Equation) -> None:
        """Put an all-reduce whose operands are ready into a bucket."""
        del self.makers[e.outs[0]]
        bucket = self.of[e.outs[0]] = self.open[e.op]
        bucket.equations.append(e)
        bucket.nbytes += e.outs[0].aval.nbytes
        if bucket.nbytes >= BUCKET:
            self.begin(bucket)

    def begin(self, bucket: _Bucket) -> None:
        op: Any = bucket.equations[0].op
        del self.open[op]
        self.count += 1
        first = op.begin(self.count)
        ins = [e.ins[0] for e in bucket.equations]
        bucket.begun = Var(first.infer())
        self._add(first, ins, [bucket.begun], bucket)

    def need(self, atoms: Any) -> None:
        """End the buckets that produce these values; begin those that have not begun."""
        for v in atoms:
            maker = self.makers.get(v) if v.__class__ is Var else None
            if maker is not None:
                self.need(maker.ins)  # ending the sum in its operand puts it into a bucket
            bucket = self.of.get(v) if v.__class__ is Var else None
            if bucket is None:
                continue
            if bucket.begun is None:
                self.begin(bucket)
            op: Any = bucket.equations[0].op
            outs = [e.outs[0] for e in bucket.equations]
            for o in outs:
                del self.of[o]
            ins = [bucket.begun, *(e.ins[0] for e in bucket.equations)]
            self._add(op.end(), ins, outs, bucket)

    def _add(self, op: Any, ins: list[Any], outs: list[Any], bucket: _Bucket) -> None:
        like = bucket.equations[0]
        self.emit(Equation(op, ins, outs, like.source, like.scope))


def overlapped(program: Program) -> Program:
    """The Program with all-reduces that begin early and end late, which can only be run."""
    program = inline_calls(program)
    if all(e.op.together is None for e in program.equations):
        return program
    return _Overlap(program).run()
