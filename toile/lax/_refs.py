"""Refs in the functions that control flow traces.

The Refs that a body or a branch changes become operands and results of the operation: additional
carries of a loop, additional results of a conditional. This module may import the engine
and staging.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from toile.engine.avals import Aval
from toile.engine.program import Program, Var
from toile.engine.program_keys import inherit_uses
from toile.engine.refs import (
    Ref,
    check_aliases,
    differentiating,
    must_run_in_python,
    staging_trace,
    value_of,
)
from toile.engine.source import here
from toile.engine.trees import flatten, unflatten
from toile.staging.flat_functions import argument_labels, name_of


class Closed:
    """The Program of a function and the values that it closes over, apart from `refs`.

    The Program has one more input for each Ref in `refs`, and returns its new value. `ins` and
    `outs` are the other inputs, without the constants, and the function's own results."""

    __slots__ = ("staged", "consts", "const_vars", "ref_vars", "ins", "outs", "finals")

    def __init__(self, staged: Any, refs: Sequence[Ref]):
        program, n = staged.program, len(staged.consts)
        self.staged = staged
        given = dict(zip(map(id, staged.consts), program.inputs, strict=False))
        hidden = {id(r) for r in refs}
        self.ref_vars = [given.get(id(r)) or Var(r._aval) for r in refs]
        kept = [(v, c) for v, c in zip(program.inputs, staged.consts, strict=False)
                if id(c) not in hidden]
        self.const_vars, self.consts = [v for v, _ in kept], [value_of(c) for _, c in kept]
        self.ins = program.inputs[n:]
        count = len(program.outputs) - len(staged.written)
        self.outs = program.outputs[:count]
        new = dict(zip(map(id, staged.written), program.outputs[count:], strict=True))
        self.finals = [new.get(id(r), v) for r, v in zip(refs, self.ref_vars, strict=True)]

    def program(self, ins: Sequence[Var], outs: Sequence[Any]) -> Program:
        """The Program with the given inputs and outputs after its constants."""
        old = self.staged.program

        def make() -> Program:
            made = Program([*self.const_vars, *ins], old.equations, outs, old.name)
            inherit_uses(made, old)
            return made

        places = {v: i for i, v in enumerate(old.inputs)}
        key = ("refs", tuple([places.get(v, -1) for v in (*self.const_vars, *ins)]), len(outs))
        return old.memoized(key, make)


def differentiates_in_python(staged: Iterable[Any]) -> bool:
    """Whether the functions must run in Python, because they are differentiated now."""
    return any(made.inline for made in staged) and differentiating()


def changed_refs(*staged: Any) -> list[Ref]:
    """The Refs that some of the functions change."""
    found: dict[int, Ref] = {}
    for made in staged:
        if made.inline and not differentiating():
            must_run_in_python()
        found.update((id(r), r) for r in made.written)
    return list(found.values())


def refs_in(*args: Any) -> bool:
    """Whether there are Refs among the leaves of arguments."""
    return any(x.__class__ is Ref for x in flatten(args)[0])


def with_ref_values(
    fun: Callable[..., Any], args: tuple[Any, ...], kind: str
) -> tuple[Callable[..., Any], tuple[Any, ...], list[Ref]]:
    """A function of the values of the Refs in its arguments, these values, and the Refs.

    The function returns a pair: its result, and the new values of these Refs."""
    leaves, tree = flatten(args)
    labels = argument_labels(fun, args, {})
    check_aliases(leaves, labels, name_of(fun), kind)
    places = [i for i, x in enumerate(leaves) if x.__class__ is Ref]

    @functools.wraps(fun)
    def of_values(*given: Any) -> Any:
        values = flatten(given)[0]
        made = []
        for i in places:
            values[i] = Ref(values[i])
            values[i]._made = labels[i] if i < len(labels) else f"number {i}"
            made.append(values[i])
        out = fun(*unflatten(tree, values))
        trace = staging_trace()
        if trace is not None:
            check_aliases(leaves, labels, name_of(fun), kind, list(trace.refs))
        return out, [r._read() for r in made]

    return of_values, unflatten(tree, [value_of(x) for x in leaves]), [leaves[i] for i in places]


def scan_program(staged: Any, changed: Sequence[Ref], k: int) -> tuple[Program, list[Any], int]:
    """The body of a scan whose first `k` carries are those of the function, and the others the
    values of Refs; its constants; the number of its carries."""
    parts = Closed(staged, changed)
    if not changed:
        return staged.program, parts.consts, k
    ins = [*parts.ins[:k], *parts.ref_vars, *parts.ins[k:]]
    outs = [*parts.outs[:k], *parts.finals, *parts.outs[k:]]
    return parts.program(ins, outs), parts.consts, k + len(changed)


def while_programs(
    cond: Any, body: Any, changed: Sequence[Ref], name: str
) -> tuple[tuple[Program, Program], tuple[list[Any], list[Any]]]:
    """The condition and the body of a while loop whose last carries are values of Refs, and their
    constants."""
    if cond.written:
        raise NotImplementedError(
            f"while_loop: needed a condition that changes no Ref, got {name}, which changes "
            f"{cond.written[0].aval.str_short()} (change it in the body){here()}")
    parts = Closed(cond, changed), Closed(body, changed)
    if not changed:
        return (cond.program, body.program), (parts[0].consts, parts[1].consts)
    programs = (parts[0].program([*parts[0].ins, *parts[0].ref_vars], parts[0].outs),
                parts[1].program([*parts[1].ins, *parts[1].ref_vars],
                                 [*parts[1].outs, *parts[1].finals]))
    return programs, (parts[0].consts, parts[1].consts)


class Branch(NamedTuple):
    """A branch of a conditional whose last operands and results are values of Refs."""

    program: Program
    consts: list[Any]
    out_tree: Any

    @property
    def out_avals(self) -> list[Aval]:
        """The types of the function's own results."""
        return self.program.out_avals[: self.out_tree.num_leaves]


def branch_program(staged: Any, changed: Sequence[Ref]) -> Branch:
    """A traced branch that returns the values of all Refs that some branch changes."""
    parts = Closed(staged, changed)
    if not changed:
        return Branch(staged.program, parts.consts, staged.out_tree)
    program = parts.program([*parts.ins, *parts.ref_vars], [*parts.outs, *parts.finals])
    return Branch(program, parts.consts, staged.out_tree)
