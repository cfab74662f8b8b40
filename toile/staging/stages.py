"""What jit goes through, each stage an object: traced, lowered, compiled.

May import the engine, control and the call path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from toile.control.call import Call, Carrier, program_flops
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.program import Program
from toile.engine.sharded import placing
from toile.engine.source import here
from toile.engine.tracing import Tracer, state
from toile.engine.trees import flatten, unflatten
from toile.staging.callpath import Exit
from toile.staging.flattening import name_of
from toile.staging.gpu_callpath import GpuExit


class Owner(Protocol):
    """What a stage needs of the jitted function that it came from."""

    fun: Any

    def _take_statics(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]: ...

    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]: ...

    def _wanted(self, traced: Traced) -> Sequence[Any]: ...

    def _placed(self, out: Any) -> Any: ...


def _size(program: Program) -> int:
    """The number of equations, those of Programs inside included."""
    inner = (p for e in program.equations if isinstance(e.op, Carrier) for p in e.op.programs())
    return len(program.equations) + sum(map(_size, inner))


class Traced:
    """One traced form of a jitted function."""

    __slots__ = (
        "program", "consts", "raw_consts", "out_tree", "in_avals", "equations", "calls", "exits",
    )

    def __init__(self, program: Program, consts: list[Any], out_tree: Any, in_avals: list[Aval]):
        self.program, self.consts, self.out_tree = program, consts, out_tree
        self.in_avals = in_avals
        self.equations = _size(program)
        self.calls = 0
        self.exits: dict[Any, Exit | GpuExit] = {}  # written when calls repeat, by device
        concrete = all(isinstance(c, ConcreteArray) for c in consts)
        self.raw_consts = [c._data for c in consts] if concrete else None

    def stale(self) -> bool:
        """Whether it closed over a tracer that has ended since."""
        return self.raw_consts is None and any(
            isinstance(c, Tracer) and not c._trace.alive for c in self.consts
        )


def operand(x: Any) -> Any:
    """An argument as an operation takes it."""
    return x if isinstance(x, (ConcreteArray, Tracer)) else as_array(x)


class ArgInfo:
    """Shape and dtype of one argument or result."""

    __slots__ = ("shape", "dtype", "weak_type", "donated")

    def __init__(self, aval: Aval, donated: bool = False):
        self.shape, self.dtype, self.weak_type = aval.shape, aval.dtype, aval.weak_type
        self.donated = donated

    def __repr__(self) -> str:
        return f"ArgInfo(shape={self.shape}, dtype={self.dtype})"


class TracedStage:
    """A function traced for certain arguments."""

    def __init__(self, owner: Owner, traced: Traced, in_tree: Any):
        self.owner, self.traced, self.in_tree = owner, traced, in_tree

    @property
    def jaxpr(self) -> Program:
        return self.traced.program

    @property
    def fun_name(self) -> str:
        return name_of(self.owner.fun)

    @property
    def out_info(self) -> Any:
        infos = [ArgInfo(a) for a in self.traced.program.out_avals]
        return unflatten(self.traced.out_tree, infos)

    def lower(self, **_: Any) -> Lowered:
        return Lowered(self)


class Lowered:
    """A traced Program, ready to be compiled."""

    def __init__(self, stage: TracedStage):
        self.stage = stage

    @property
    def in_tree(self) -> Any:
        return self.stage.in_tree

    @property
    def out_tree(self) -> Any:
        return self.stage.traced.out_tree

    @property
    def out_info(self) -> Any:
        return self.stage.out_info

    @property
    def args_info(self) -> Any:
        return unflatten(self.in_tree, [ArgInfo(a) for a in self.stage.traced.in_avals])

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        return str(self.stage.traced.program)

    def compiler_ir(self, dialect: str | None = None) -> Program:
        return self.stage.traced.program

    def cost_analysis(self) -> dict[str, float]:
        return cost_analysis(self.stage.traced.program)

    def compile(self, compiler_options: Any = None) -> Compiled:
        return Compiled(self)


class Compiled:
    """A Program ready to run on arguments of the shapes it was lowered for."""

    def __init__(self, lowered: Lowered):
        self.lowered = lowered

    @property
    def in_tree(self) -> Any:
        return self.lowered.in_tree

    @property
    def out_tree(self) -> Any:
        return self.lowered.out_tree

    @property
    def args_info(self) -> Any:
        return self.lowered.args_info

    @property
    def out_info(self) -> Any:
        return self.lowered.out_info

    def as_text(self) -> str:
        return self.lowered.as_text()

    def cost_analysis(self) -> dict[str, float]:
        return self.lowered.cost_analysis()

    def memory_analysis(self) -> Any:
        return None

    def runtime_executable(self) -> Any:
        return self.lowered.stage.traced.program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stage = self.lowered.stage
        owner, traced = stage.owner, stage.traced
        _, args, kwargs = owner._take_statics(owner._laid_out(args), kwargs)
        leaves, tree = flatten((args, kwargs))
        if tree != stage.in_tree:
            raise TypeError(
                f"compiled {stage.fun_name}: needed arguments of structure {stage.in_tree}, got "
                f"{tree}{here()}"
            )
        for i, (x, aval) in enumerate(zip(leaves, stage.traced.in_avals, strict=True)):
            got = aval_of(x)
            if got.shape != aval.shape or got.dtype != aval.dtype:
                raise TypeError(
                    f"compiled {stage.fun_name}: needed {aval.str_short()} for argument leaf {i}, "
                    f"got {got.str_short()} (lower and compile again for other shapes){here()}"
                )
        operands = [*traced.consts, *map(operand, leaves)]
        outs = None
        if state.trace is None:
            outs = placing.divide(traced.program, operands, owner._wanted(traced))
        if outs is None:
            outs = Call(traced.program, stage.fun_name)(*operands)
        return owner._placed(unflatten(traced.out_tree, outs))


def cost_analysis(program: Program) -> dict[str, float]:
    """FLOPs and bytes that a Program moves, from its equations."""
    moved = sum(
        a.aval.nbytes for e in program.equations for a in (*e.ins, *e.outs)
    )
    return {"flops": float(program_flops(program)), "bytes accessed": float(moved)}
