"""Encodes GPU plans as bytes and decodes them: the closed table of record types.

A plan is written without the groups and equations that it was made from: groups become None, and
its Programs keep only inputs, results and names. Classes are imported when a plan contains one:
most plans have few kinds of library calls.
"""

from __future__ import annotations

import functools
from typing import Any

from toile.compiler.ir.operands import Temporary
from toile.compiler.ir.steps import whole_buffer
from toile.disk import operation_records
from toile.disk.plan_data import decode, encode
from toile.disk.plan_schema import Damaged, Record, Schema, Unencodable
from toile.engine.program import Equation, Program
from toile.platforms.gpu.steps import MadePlan

# Buffers, hashed by identity; sets may also contain parts of them.
_MEMORY = ("Var", "VariableBuffer", "Scratch", "Constant", "Output", "Moving")
_STEPS = ("Region", "EagerStep", "CallStep", "ScanStep", "WhileStep", "SwitchStep")
_CALLS = ("Gemm", "LtMatmul", "Fill", "GraphCall", "Transform", "Routine",
          "UserKernel")
_ATOMS = "list[Var | Literal]"
_TOUCHED = {"reads": "set[buffer]", "writes": "set[buffer]"}
_LOOP = {"starts": "list[tuple[Moving, Ref]]", "swaps": "list[tuple[Moving, Moving]]", **_TOUCHED}
_NO_ORIGIN = {"origin": None}  # the group that a step was made from


def written(plan: MadePlan) -> bytes:
    """The bytes of a plan; raises Unencodable if a part cannot be encoded.

    Temporaries are ordered by serial numbers of the process: only their order is written, so that
    a plan has the same bytes in every process."""
    try:
        temporaries = _temporaries(plan)
    except RecursionError:
        raise Unencodable("its loops are too deep") from None
    return encode((plan, temporaries), schema())


def read(data: bytes) -> MadePlan:
    """A plan that can run; raises Damaged if the bytes are anything else."""
    found = decode(data, schema())
    if not schema().check("tuple[MadePlan, list[VariableBuffer | Scratch]]").fits(found):
        raise Damaged("it is not the plan of a Program")
    plan, temporaries = found
    for i, x in enumerate(temporaries):
        x.serial = i
    try:
        complete = temporaries == _temporaries(plan)
    except RecursionError:
        raise Damaged("its loops are too deep") from None
    if not complete:
        raise Damaged("it does not have the temporaries of its steps")
    return plan


def _temporaries(plan: Any) -> list[Temporary]:
    """The temporaries that steps touch, in order."""
    touched = {whole_buffer(b) for s in plan.all_steps() for b in s.reads | s.writes}
    return sorted(b for b in touched if isinstance(b, Temporary))


def _programs(columns: list[Any]) -> list[Program]:
    """Programs without equations, since those on disk have none."""
    return [Program(inputs, (), outputs, name)
            for inputs, outputs, name in zip(*columns, strict=True)]


def _equations(columns: list[Any]) -> list[Equation]:
    return list(map(Equation, *columns))


def _in_order(plan: Any, found: set[Any]) -> list[Any]:
    """The written form of `in_place`: launches in order; pairs of buffers in argument order."""
    pairs: dict[int, list[tuple[Any, Any]]] = {}
    for launch, read, written in found:
        pairs.setdefault(id(launch), []).append((read, written))
    rows = []
    for launch in [x for s in plan.steps for x in getattr(s, "launches", ())]:
        place = {getattr(a, "buffer", None): i for i, a in enumerate(launch.args)}
        mine = sorted(pairs.pop(id(launch), ()), key=lambda p: (place[p[0]], place[p[1]]))
        if mine:
            rows.append((launch, tuple([b for pair in mine for b in pair])))
    if pairs:
        raise Unencodable("a launch that belongs to no step")
    return rows


def _in_place(rows: list[Any]) -> set[Any]:
    return {(launch, read, written) for launch, buffers in rows
            for read, written in zip(buffers[0::2], buffers[1::2], strict=True)}


def _records() -> list[Record]:
    program, steps, gpu = "toile.engine.program", "toile.compiler.ir.steps", "toile.platforms.gpu"
    operands, cuda = "toile.compiler.ir.operands", "toile.targets.cuda"
    return [
        Record(operands, "Ref", types={"buffer": "memory"}),
        Record(program, "Var", identity=True, types={"aval": "Aval"}),
        Record("toile.engine.avals", "Aval", types={
            "shape": "tuple[int, ...]", "dtype": "dtype", "weak_type": "bool"}),
        *[Record(operands, name, identity=True, types=types, without={"serial": -1})
          for name, types in (("Scratch", {"nbytes": "int"}),
                              ("VariableBuffer", {"nbytes": "int", "var": "Var"}))],
        Record(operands, "Operand", types={"dtype": "dtype"}),
        Record(steps, "Constant", identity=True, types={"array": "np.ndarray"}),
        Record(steps, "Output", identity=True, types={"index": "int", "aval": "Aval"}),
        Record(steps, "Moving", identity=True, types={"alignment": "int"}, without={"serial": -1}),
        Record(steps, "Part", types={"buffer": "memory"}),
        Record(program, "Literal", types={"val": "np.ndarray", "aval": "Aval"}),
        Record(program, "Equation", identity=True, maker=_equations,
               types={"op": "Operation", "ins": _ATOMS, "outs": "list[Var]"},
               without={"source": None, "scope": ()}),
        Record(program, "Program", identity=True, maker=_programs,
               types={"inputs": "list[Var]", "outputs": _ATOMS, "name": "str"},
               without=dict.fromkeys(("equations", "executable", "memo", "hidden"))),
        Record(steps, "Region", identity=True, types={"launches": "list[Launch]", **_TOUCHED}),
        Record(steps, "EagerStep", identity=True, types={
            "equation": "Equation", "ins": "list[Operand]", "outs": "list[Operand]", **_TOUCHED}),
        Record(steps, "ScanStep", identity=True, without=_NO_ORIGIN, types={
            "trips": "int", "slices": "list[tuple[Moving, Ref, int]]", "body": "MadePlan",
            **_LOOP}),
        Record(steps, "WhileStep", identity=True, without=_NO_ORIGIN, types={
            "predicate": "Ref", "condition": "MadePlan", "body": "MadePlan", **_LOOP}),
        Record(steps, "SwitchStep", identity=True, without=_NO_ORIGIN, types={
            "index": "Moving", "children": "list[MadePlan]", **_LOOP}),
        Record(gpu + ".steps", "CallStep", identity=True, without=_NO_ORIGIN,
               types={"call": "Call", **_TOUCHED}),
        Record(cuda + ".launches", "Launch", identity=True, without=_NO_ORIGIN, types={
            "args": "tuple[int | Ref, ...]", "reads": "frozenset[buffer] | None"}),
        Record(gpu + ".steps", "MadePlan", identity=True, also=(gpu + ".planner", "Plan"),
               types={"steps": "list[step]", "constants": "list[Constant]",
                      "outside": "set[buffer]",
                      "in_place": "list[tuple[Launch, tuple[memory, ...]]]"},
               convert={"constants": (lambda _, x: list(x.values()), _by_number),
                        "in_place": (_in_order, _in_place)}),
        Record(cuda + ".cudnn", "GraphCall", types={"description": "graph"}),
        *[Record(f"toile.{module}", name) for module, name in (
            ("targets.cuda.cublas", "Gemm"), ("targets.cuda.cublaslt", "LtMatmul"),
            ("targets.cuda.cufft", "Transform"), ("targets.cuda.cufft", "Layout"),
            ("targets.cuda.cufft", "Side"), ("targets.cuda.cusolver", "Routine"),
            ("targets.cuda.user_kernels", "UserKernel"),
            ("kernels.copy.gpu_relayout", "Fill"),
            ("targets.cuda.cublas", "Matrix"), ("targets.cuda.cudnn", "Tensor"),
            ("targets.cuda.cudnn", "Convolution"), ("kernels.attention.gpu_calls", "Attention"),
            ("kernels.attention.gpu_calls", "Options"), ("kernels.attention.gpu", "FusedAttention"),
            ("kernels.attention.gpu", "FusedAttentionGradient"),
            ("kernels.fused_product.gpu", "FusedProduct"))],
    ]


def _by_number(constants: list[Any]) -> dict[Any, Any]:
    """Constants by number: they are looked up by value only while a plan is made."""
    return dict(enumerate(constants))


@functools.cache
def schema() -> Schema:
    """The records that may be in a plan."""
    operations = operation_records.operations()
    fused = ["FusedAttention", "FusedAttentionGradient", "FusedProduct"]
    return Schema(
        [*_records(), *operations, *operation_records.parameters()],
        hashable=(*_MEMORY, "Part"),
        families={"memory": _MEMORY, "step": _STEPS, "Call": _CALLS,
                  "graph": ("Convolution", "Attention"),
                  "Operation": [*fused, *[r.name for r in operations]]})
