"""Plans of a GPU as bytes, and back: the closed table of what steps, buffers and calls consist of.

A plan is written without the groups and equations that it was made from: groups become None, its
Programs keep inputs, results and names. Classes are loaded when a plan has one: most plans have few
kinds of library calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile.backends import operation_records
from toile.backends.gpu.steps import MadePlan
from toile.backends.plan_data import decode, encode
from toile.backends.plan_schema import Damaged, Record, Schema
from toile.compiler.operands import Ref, Scratch
from toile.compiler.steps import Constant, Moving, Output, Part
from toile.engine.avals import Aval
from toile.engine.program import Equation, Program, Var

_MEMORY = (Var, Scratch, Constant, Output, Moving)
_SET = "set[buffer]"
_LOOP = {"starts": "list[tuple[Moving, Ref]]", "swaps": "list[tuple[Moving, Moving]]"}
_LAST = {"reads": _SET, "writes": _SET}  # sets come after what has their members, in order
_NO_ORIGIN = {"origin": None}
_STEPS = ("Region", "EagerStep", "CallStep", "ScanStep", "WhileStep", "SwitchStep")
_CALLS = ("Gemm", "LtMatmul", "Fill", "GraphCall")


def _ref(cls: Any) -> Callable[[list[Any]], Any]:
    """Most of a plan is these."""
    memory = frozenset(_MEMORY)

    def make(values: list[Any]) -> Ref:
        buffer, offset = values
        if buffer.__class__ not in memory or offset.__class__ is not int:
            raise Damaged("its Ref is of no buffer")
        return Ref(buffer, offset)

    return make


def _var(cls: Any) -> Callable[[list[Any]], Any]:
    def make(values: list[Any]) -> Var:
        (aval,) = values
        if aval.__class__ is not Aval:
            raise Damaged("its Var has no aval")
        return Var(aval)

    return make


def _program(cls: Any) -> Callable[[list[Any]], Any]:
    """A Program without equations: those on disk have none."""

    def make(values: list[Any]) -> Program:
        inputs, outputs, name = values
        if name.__class__ is not str or not all([x.__class__ is Var for x in inputs]):
            raise Damaged("its Program has no variables")
        if not all([x.__class__.__name__ in ("Var", "Literal") for x in outputs]):
            raise Damaged("its Program has no results")
        return Program(inputs, (), outputs, name)

    return make


def _equation(cls: Any) -> Callable[[list[Any]], Any]:
    from toile.engine.operation import Operation

    def make(values: list[Any]) -> Equation:
        op, ins, outs = values
        if not isinstance(op, Operation) or not all([x.__class__ is Var for x in outs]):
            raise Damaged("its Equation has no operation")
        return Equation(op, ins, outs)

    return make


def _records() -> list[Record]:
    program, steps, operands = "toile.engine.program", "toile.compiler.steps", "toile.compiler.operands"
    gpu = "toile.backends.gpu."
    atoms = "list[Var | Literal]"
    loop = {**_LOOP, **_LAST}
    return [
        Record(operands, "Ref", flat=True, types={"buffer": "memory"}, maker=_ref),
        Record(program, "Var", identity=True, flat=True, types={"aval": "Aval"}, maker=_var),
        Record("toile.engine.avals", "Aval", types={
            "shape": "tuple[int, ...]", "dtype": "dtype", "weak_type": "bool"}),
        Record(operands, "Scratch", identity=True, flat=True, types={"nbytes": "int"}),
        Record(operands, "Operand", types={"dtype": "dtype"}),
        Record(steps, "Constant", identity=True, flat=True, types={"array": "np.ndarray"}),
        Record(steps, "Output", identity=True, flat=True, types={"index": "int", "aval": "Aval"}),
        Record(steps, "Moving", identity=True, flat=True, types={"alignment": "int"}),
        Record(steps, "Part", flat=True, types={"buffer": "memory"}),
        Record(program, "Literal", types={"val": "np.ndarray", "aval": "Aval"}),
        Record(program, "Equation", identity=True, maker=_equation, types={
            "op": "Operation", "ins": atoms, "outs": "list[Var]"}, without={
            "source": None, "scope": ()}),
        Record(program, "Program", identity=True, maker=_program, types={
            "inputs": "list[Var]", "outputs": atoms, "name": "str"}, without={
            "equations": None, "executable": None, "memo": None, "hidden": None}),
        Record(steps, "Region", identity=True, types={"launches": "list[Launch]", **_LAST}),
        Record(steps, "EagerStep", identity=True, types={
            "equation": "Equation", "ins": "list[Operand]", "outs": "list[Operand]", **_LAST}),
        Record(steps, "ScanStep", identity=True, without=_NO_ORIGIN, types={
            "trips": "int", "slices": "list[tuple[Moving, Ref, int]]", "body": "MadePlan", **loop}),
        Record(steps, "WhileStep", identity=True, without=_NO_ORIGIN, types={
            "predicate": "Ref", "condition": "MadePlan", "body": "MadePlan", **loop}),
        Record(steps, "SwitchStep", identity=True, without=_NO_ORIGIN, types={
            "index": "Moving", "children": "list[MadePlan]", **loop}),
        Record(gpu + "steps", "CallStep", identity=True, without=_NO_ORIGIN,
               types={"call": "Call", **_LAST}),
        Record(gpu + "launches", "Launch", identity=True, without=_NO_ORIGIN,
               types={"reads": "frozenset[buffer] | None"}),
        Record(gpu + "steps", "MadePlan", identity=True, types={
            "steps": "list[step]", "constants": "list[Constant]", "outside": _SET,
            "in_place": "list[tuple[Launch, memory, memory]]"}),
        *[Record(gpu + module, name, without=_NO_ORIGIN) for module, name in (
            ("cublas", "Gemm"), ("cublaslt", "LtMatmul"), ("relayout", "Fill"),
            ("cudnn", "GraphCall"))],
        *[Record(gpu + module, name) for module, name in (
            ("cublas", "Matrix"), ("cudnn", "Tensor"), ("cudnn", "Convolution"),
            ("attention", "Attention"), ("attention", "Options"),
            ("attending", "FusedAttention"), ("attending", "FusedAttentionGradient"),
            ("fused_products", "FusedProduct"))],
    ]
