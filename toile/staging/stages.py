"""What jit goes through, each stage an object: traced, lowered, compiled.

May import control and the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toile.control.call import Call, program_flops
from toile.engine.arrays import ConcreteArray, as_array
from toile.engine.avals import Aval, aval_of
from toile.engine.program import Program
from toile.engine.source import here
from toile.engine.tracing import Tracer
from toile.engine.trees import flatten, unflatten
from toile.staging.flattening import name_of

if TYPE_CHECKING:
    from toile.staging.jit import PjitFunction, Traced


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

    def __init__(self, owner: PjitFunction, traced: Traced, in_tree: Any):
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
        _, args, kwargs = stage.owner._take_statics(args, kwargs)
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
        op = Call(stage.traced.program, stage.fun_name)
        outs = op(*stage.traced.consts, *[operand(x) for x in leaves])
        return unflatten(stage.traced.out_tree, outs)


def cost_analysis(program: Program) -> dict[str, float]:
    """FLOPs and bytes that a Program moves, from its equations."""
    moved = sum(
        a.aval.nbytes for e in program.equations for a in (*e.ins, *e.outs)
    )
    return {"flops": float(program_flops(program)), "bytes accessed": float(moved)}
