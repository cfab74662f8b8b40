"""JAX's names for the parts of Programs and equations, and copies of them with other parts.

`engine.program` defines the classes that these are bases of. This module may import
engine.source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toile.engine.source import here

if TYPE_CHECKING:
    from toile.engine.operation import Operation
    from toile.engine.program import Atom, ClosedProgram, Equation, Program, Var


class EquationNames:
    """Names of an equation that are known from JAX."""

    __slots__ = ()
    op: Operation
    ins: list[Atom]
    outs: list[Var]

    @property
    def primitive(self) -> Any:
        """The object that `toile.lax` exports under a name such as `add_p`: the class of an
        operation with parameters, or an operation without parameters."""
        return self.op.as_primitive()

    @property
    def invars(self) -> list[Atom]:
        """The operands; JAX's name for `ins`."""
        return self.ins

    @property
    def outvars(self) -> list[Var]:
        """The variables that represent the results; JAX's name for `outs`."""
        return self.outs

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the operation by name."""
        return self.op.as_params()

    def replace(self, **changes: Any) -> Equation:
        """Return a copy with other `invars`, `outvars`, `primitive` or `params`.

        Args:
            **changes: the parts that are different.
        """
        this: Any = self
        ins, outs = changes.pop("invars", self.ins), changes.pop("outvars", self.outs)
        op = self.op
        if changes.keys() & {"primitive", "params"}:
            primitive = changes.pop("primitive", self.primitive)
            params = changes.pop("params", self.params)
            op = type(this)._applied(primitive, params, [a.aval for a in ins])
        _check_known(changes, "invars, outvars, primitive or params")
        return type(this)(op, list(ins), list(outs), this.source, this.scope)


class ProgramNames:
    """Names of a Program that are known from JAX."""

    __slots__ = ()
    inputs: list[Var]
    equations: list[Equation]
    outputs: list[Atom]
    hidden: int

    @property
    def eqns(self) -> list[Equation]:
        """The equations; JAX's name for `equations`."""
        return self.equations

    @property
    def invars(self) -> list[Var]:
        """The inputs, except those that represent values that the function closed over."""
        return self.inputs[self.hidden :]

    @property
    def outvars(self) -> list[Atom]:
        """The outputs; JAX's name for `outputs`."""
        return self.outputs

    @property
    def constvars(self) -> list[Var]:
        """The inputs that represent values that the function closed over."""
        return self.inputs[: self.hidden]

    def replace(self, **changes: Any) -> Program:
        """Return a copy with other `constvars`, `invars`, `outvars` or `eqns`.

        Args:
            **changes: the parts that are different.
        """
        this: Any = self
        consts = list(changes.pop("constvars", self.constvars))
        inputs = [*consts, *changes.pop("invars", self.invars)]
        equations = list(changes.pop("eqns", self.equations))
        outputs = list(changes.pop("outvars", self.outputs))
        _check_known(changes, "constvars, invars, outvars or eqns")
        made = type(this)(inputs, equations, outputs, this.name)
        made.hidden = len(consts)
        return made


class ClosedNames:
    """Names of a ClosedProgram that are known from JAX."""

    __slots__ = ()
    program: Program
    consts: list[Any]

    @property
    def jaxpr(self) -> Program:
        """The program; JAX's name for `program`."""
        return self.program

    @jaxpr.setter
    def jaxpr(self, program: Program) -> None:
        this: Any = self
        this.program = program

    @property
    def literals(self) -> list[Any]:
        """The values that the function closed over; JAX's name for `consts`."""
        return self.consts

    @property
    def eqns(self) -> list[Equation]:
        """The equations of the program."""
        return self.program.equations

    def replace(self, *, jaxpr: Program | None = None, consts: Sequence[Any] | None = None
                ) -> ClosedProgram:
        """Return a copy with another program or other values.

        Args:
            jaxpr: the program; None to keep it.
            consts: the values of its `constvars`; None to keep them.
        """
        this: Any = self
        return type(this)(self.program if jaxpr is None else jaxpr,
                          self.consts if consts is None else consts)

    def map_jaxpr(self, f: Callable[[Program], Program]) -> ClosedProgram:
        """Return a copy whose program is the result of a function of the program.

        Args:
            f: the function.
        """
        return self.replace(jaxpr=f(self.program))


def _check_known(changes: dict[str, Any], known: str) -> None:
    if changes:
        raise TypeError(f"replace: needed {known}, got {sorted(changes)}{here()}")
