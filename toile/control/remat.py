"""checkpoint (remat): a call whose intermediate values are recomputed instead of kept.

Reverse mode saves the inputs and the values that the policy allows; the transpose runs the forward
part again, and then the backward part. This module may import control.call and the modules below
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toile.control.call import Call, Carrier, pruned
from toile.control.jax_parameters import with_all_inputs
from toile.engine import key_uses
from toile.engine.avals import Aval
from toile.engine.operation import Axis, Dim
from toile.engine.program import (
    Equation,
    Program,
    Var,
    derive,
    evaluate,
    execute,
    without_dead_code,
)
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.shapes import optimization_barrier
from toile.transforms.linearize import split_program
from toile.transforms.masks import pick

Policy = Callable[..., Any]


class _Answer:
    """A result of a checkpoint policy that is not a bool."""

    def __init__(self, name: str):
        self.name = name

    def __bool__(self) -> bool:
        return self is not Recompute

    def __repr__(self) -> str:
        return self.name


Recompute, Saveable = _Answer("Recompute"), _Answer("Saveable")


class Offloadable(NamedTuple):
    """A checkpoint policy's request to keep a value in another memory.

    toile ignores the request and keeps the value where it is.

    Args:
        src: memory that currently holds the value.
        dst: memory in which the policy wants to keep the value.

    >>> from toile.ad_checkpoint import Offloadable
    >>> Offloadable(src="device", dst="pinned_host")
    Offloadable(src='device', dst='pinned_host')
    """

    src: str
    dst: str


@dataclass(frozen=True)
class Remat(Call):
    """A Program to be recomputed in the backward pass."""

    policy: Policy | None = None
    prevent_cse: bool = True

    name = "checkpoint"

    def as_params(self) -> dict[str, Any]:
        # JAX does not close it.
        return {**super().as_params(), "jaxpr": with_all_inputs(self.program)}

    def with_program(self, program: Program) -> Remat:
        return Remat(program, self.label, self.policy, self.prevent_cse)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        if "io" in self.effects:
            raise NotImplementedError(
                "Effects not supported in partial-eval of `checkpoint`/`remat`: needed a function "
                f"without io_callback, which must not run twice, got {self.label}{here()}"
            )
        parts = split_program(self.program, linear)
        known_args = pick(args, linear, False)
        n = sum(not z for z in parts.is_linear)
        replay, saved = _replayed(parts.known, n, self.policy)
        outs = self.with_program(_saving(parts.known, n, saved))(*known_args)
        if not any(parts.is_linear):
            return outs[:n], None, None
        forwarded = tuple(parts.forwarded)
        op = RematLinear(replay, parts.linear, forwarded, len(saved), self.prevent_cse)
        linear_args = [*outs[n:], *known_args, *pick(args, linear)]
        return parts.known_outputs(outs[:n]), op, linear_args

    def transpose(self, ct: Any, *xs: Any) -> Any:
        return Call(self.program, self.label).transpose(ct, *xs)


def _replayed(known: Program, n: int, policy: Policy | None) -> tuple[Program, list[Var]]:
    """The Program that recomputes the residuals (outputs from `n` on), and its saved values.

    The policy determines what may be saved; the saved values are the first inputs."""
    saved = [o for e in known.equations if policy and saveable(policy, e) for o in e.outs]
    replay = _from_saved(known, saved, policy)
    small, kept = pruned(replay, [i >= n for i in range(len(replay.outputs))])
    needed = pick(saved, kept[: len(saved)])
    inputs = [*needed, *known.inputs]
    return Program(inputs, small.equations, replay.outputs[n:], known.name), needed


def _saving(known: Program, n: int, saved: Sequence[Var]) -> Program:
    """The forward Program with `n` outputs, followed by the saved values."""
    outputs = [*known.outputs[:n], *saved]
    return without_dead_code(Program(known.inputs, known.equations, outputs, known.name))


def saveable(policy: Policy, e: Equation) -> bool:
    """Ask a policy whether an equation's results may be kept."""
    return bool(policy(e.op, *[a.aval for a in e.ins], **e.params))


def _from_saved(known: Program, saved: Sequence[Var], policy: Policy | None) -> Program:
    """The Program with saved values as its first inputs instead of the equations that make them.

    Equations without results (debug callbacks) run again, unless the policy saves them and a value
    that they read."""
    have = set(saved)
    equations = []
    for e in known.equations:
        if e.outs:
            again = not all(o in have for o in e.outs)
        else:
            seen = any(a.__class__ is Var and a in have for a in e.ins)
            again = policy is None or not saveable(policy, e) or not seen
        if again:
            equations.append(e)
    return Program([*saved, *known.inputs], equations, known.outputs, known.name)


@dataclass(frozen=True)
class RematLinear(Carrier):
    """The linear part of a checkpointed call: replays the forward part for its residuals.

    Operands: saved values and known inputs (which `replay` takes), then linear inputs."""

    replay: Program
    linear: Program
    forwarded: tuple[int | None, ...]
    saved: int
    prevent_cse: bool

    name = "checkpoint_linear"
    key_use = key_uses.reads  # the forward pass has already counted the uses

    def programs(self) -> Sequence[Program]:
        return self.replay, self.linear

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.linear.out_avals

    def _residuals(self, known: Sequence[Any], run: Callable[..., Any]) -> list[Any]:
        program, kept = pruned(self.replay, [True] * len(self.replay.outputs))
        rest = iter(run(program, pick(known, kept)))
        return [next(rest) if f is None else known[self.saved + f] for f in self.forwarded]

    def _split_operands(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        n = len(self.replay.inputs)
        return list(xs[:n]), list(xs[n:])

    def eager(self, xp: Any, *xs: Any) -> Any:
        known, moving = self._split_operands(xs)
        residuals = self._residuals(known, execute)
        return execute(self.linear, [*residuals, *moving])

    def replayed(self, known: Sequence[Any]) -> list[Any]:
        """The residuals, recomputed. With `prevent_cse`, a barrier keeps common-subexpression
        elimination from merging them with the originals."""
        if self.prevent_cse and known:
            known = optimization_barrier(*known)
        return self._residuals(known, lambda p, a: Call(p, "rematted")(*a))

    def transpose(self, ct: Any, *xs: Any) -> Any:
        known, moving = self._split_operands(xs)
        residuals = self.replayed(known)
        found = Call(self.linear).transpose(ct, *residuals, *moving)
        return (*([None] * len(known)), *found[len(residuals):])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self._as_call().jvp(primals, tangents)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self._as_call().vmap(axis, xs, dims)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        if any(linear[: len(self.replay.inputs)]):
            return self._as_call().split(linear, args)
        return [None] * len(self.linear.outputs), self, list(args)

    def _as_call(self) -> Call:
        """The same function as one checkpointed Program."""
        def run(*xs: Any) -> list[Any]:
            known, moving = self._split_operands(xs)
            residuals = self._residuals(known, evaluate)
            return evaluate(self.linear, [*residuals, *moving])

        n = len(self.forwarded)
        avals = [*self.replay.in_avals, *self.linear.in_avals[n:]]
        program = self.linear.memoized(
            ("remat_call", id(self.replay)), lambda: derive(run, avals, "checkpoint")
        )
        return Remat(program, "checkpoint", None, self.prevent_cse)
