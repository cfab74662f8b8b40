"""Evaluate a Program and record failed checks in a ledger.

For each kind of payload, the ledger contains the index of the first site that failed, and its
payload. A nested Program starts with an empty ledger and returns it; its failures are then merged
into the outer ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine import dtypes
from toile.engine.operation import Operation
from toile.engine.program import Literal, Program, derive, evaluate
from toile.engine.records import dataclass
from toile.engine.trace import state
from toile.experimental._checks import (
    DivisionByZeroError,
    DivisionSite,
    FailedCheckError,
    IndexSite,
    NaNError,
    NaNSite,
    OOBError,
    Site,
)
from toile.parallel.spmd import bound_axes
from toile.primitives.addresses import GatherScatterMode

Signature = tuple[tuple[tuple[int, ...], Any], ...]


class Group:
    """The first failure among the sites with one kind of payload."""

    __slots__ = ("code", "payload")

    def __init__(self, code: Any, payload: Sequence[Any]):
        self.code, self.payload = code, list(payload)

    def flat(self) -> list[Any]:
        return [self.code, *self.payload]

    def shifted(self, offset: int) -> Group:
        """The same failure with its sites numbered from `offset` on."""
        code = jnp.where(self.code >= 0, self.code + np.int32(offset), np.int32(-1))
        return Group(code, self.payload)


class Ledger:
    """The sites seen so far, and the first site that failed for each kind of payload."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.groups: dict[Signature, Group] = {}

    def add(self, site: Site, failed: Any, payload: Sequence[Any] = ()) -> None:
        """Add a check; `failed` is a boolean scalar, which may be traced."""
        code = jnp.where(failed, np.int32(len(self.sites)), np.int32(-1))
        self.sites.append(site)
        strong = [p.astype(p.dtype) if p.weak_type else p for p in payload]
        self._take(tuple((p.shape, p.dtype) for p in strong), Group(code, strong))

    def merge(self, found: Found, flat: Sequence[Any]) -> None:
        """Merge the failures that an inner ledger found."""
        offset = len(self.sites)
        self.sites += found.sites
        for signature, group in found.groups(flat).items():
            self._take(signature, group.shifted(offset))

    def _take(self, signature: Signature, new: Group) -> None:
        old = self.groups.get(signature)
        self.groups[signature] = new if old is None else earlier(old, new)

    def flat(self) -> list[Any]:
        return [x for g in self.groups.values() for x in g.flat()]

    def found(self) -> Found:
        return Found(tuple(self.sites), tuple(self.groups))


def earlier(old: Group, new: Group) -> Group:
    """The old failure if there was one, otherwise the new one."""
    fresh = old.code < 0
    return Group(jnp.where(fresh, new.code, old.code),
                 [jnp.where(fresh, n, o) for n, o in zip(new.payload, old.payload, strict=True)])


@dataclass(frozen=True)
class Found:
    """The static part of an inner ledger: its sites and kinds of payload."""

    sites: tuple[Site, ...]
    signatures: tuple[Signature, ...]

    def groups(self, flat: Sequence[Any]) -> dict[Signature, Group]:
        rest = iter(flat)
        return {s: Group(next(rest), [next(rest) for _ in s]) for s in self.signatures}

    @property
    def size(self) -> int:
        return sum(1 + len(s) for s in self.signatures)

    def empty(self) -> list[Any]:
        """A ledger in which nothing failed."""
        return [x for s in self.signatures for x in _no_failure(s).flat()]


def _no_failure(signature: Signature) -> Group:
    return Group(jnp.asarray(np.int32(-1)), [jnp.zeros(shape, dtype) for shape, dtype in signature])


def evaluate_checked(
    program: Program, args: Sequence[Any], ledger: Ledger, enabled: frozenset[Any]
) -> list[Any]:
    """Replay a Program through the current trace, and record its checks in the ledger."""
    f = Checks(ledger, enabled)
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    previous = state.source, state.scope
    try:
        for e in program.equations:
            state.source, state.scope = e.source, previous[1] + e.scope
            ins = [a.value() if a.__class__ is Literal else env[a] for a in e.ins]
            outs = e.op.checked(f, ins) if f.look_into(e.op) else f.run(e.op, ins)
            env.update(zip(e.outs, outs, strict=True))
    finally:
        state.source, state.scope = previous
    return [a.value() if a.__class__ is Literal else env[a] for a in program.outputs]


def checked_program(program: Program, enabled: frozenset[Any]) -> tuple[Program, Found]:
    """The Program with its ledger as additional outputs."""

    def make() -> tuple[Program, Found]:
        found: list[Found] = []

        def run(*xs: Any) -> list[Any]:
            ledger = Ledger()
            outs = evaluate_checked(program, xs, ledger, enabled)
            found.append(ledger.found())
            return [*outs, *ledger.flat()]

        made = derive(run, program.in_avals, f"checked_{program.name}")
        return made, found[0]

    return program.memoized(("checkify", enabled), make)


class Checks:
    """Rules for operations with checks of the `enabled` kinds, called by `Operation.checked`."""

    def __init__(self, ledger: Ledger, enabled: frozenset[Any]):
        self.ledger, self.enabled = ledger, enabled

    def look_into(self, op: Operation) -> bool:
        """Whether the operation contains the user's checks, or other checks are enabled."""
        return bool(self.enabled - {FailedCheckError}) or "check" in op.effects

    def run(self, op: Operation, ins: list[Any]) -> list[Any]:
        """The results of an operation, checked for NaNs if enabled."""
        outs = op(*ins)
        outs = list(outs) if op.multiple else [outs]
        if NaNError in self.enabled and op.can_make_nan:
            for o in outs:
                if dtypes.is_inexact(o.dtype):
                    self.ledger.add(NaNSite(op.name), jnp.isnan(o).any())
        return outs

    def user_check(self, op: Any, ins: list[Any]) -> list[Any]:
        if FailedCheckError in self.enabled:
            self.ledger.add(op.site, ~ins[0], ins[1:])
        return []

    def division(self, op: Any, ins: list[Any]) -> list[Any]:
        if DivisionByZeroError in self.enabled:
            self.ledger.add(DivisionSite(), (ins[1] == 0).any())
        return self.run(op, ins)

    # ---- indices out of bounds, unless they are clipped on request
    def dynamic_slice(self, op: Any, ins: list[Any]) -> list[Any]:
        self._starts(ins[0].shape, ins[1:], op.infer(*[x.aval for x in ins]).shape)
        return self.run(op, ins)

    def dynamic_update_slice(self, op: Any, ins: list[Any]) -> list[Any]:
        self._starts(ins[0].shape, ins[2:], ins[1].shape)
        return self.run(op, ins)

    def gather(self, op: Any, ins: list[Any]) -> list[Any]:
        self._vectors(op, ins, lambda: op.slice_sizes)
        return self.run(op, ins)

    def scatter(self, op: Any, ins: list[Any]) -> list[Any]:
        def sizes() -> list[int]:
            numbers = op.dimension_numbers
            dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
            windows = iter(ins[2].shape[d] for d in numbers.update_window_dims)
            return [1 if d in dropped else next(windows) for d in range(ins[0].ndim)]

        self._vectors(op, ins, sizes)
        return self.run(op, ins)

    def _starts(self, shape: Any, starts: Sequence[Any], sizes: Sequence[int]) -> None:
        if OOBError in self.enabled and starts:
            index = jnp.stack([jnp.asarray(s).astype(np.int32) for s in starts])
            _note(self.ledger, shape, index, range(len(starts)), sizes)

    def _vectors(self, op: Any, ins: list[Any], sizes: Callable[[], Sequence[int]]) -> None:
        axes, index = op.dimension_numbers[2], ins[1]
        clips = op.mode is GatherScatterMode.CLIP
        if OOBError in self.enabled and not clips and axes and index.size:
            _note(self.ledger, ins[0].shape, index.astype(np.int32), axes, sizes())

    # ---- operations with Programs
    def call(self, op: Any, ins: list[Any]) -> list[Any]:
        program, found = checked_program(op.program, self.enabled)
        outs = op.with_program(program)(*ins)
        n = len(op.program.outputs)
        self.ledger.merge(found, outs[n:])
        return outs[:n]

    def spmd(self, op: Any, ins: list[Any]) -> list[Any]:
        """Each device has its own ledger; for each kind, the failure at the first site counts."""
        n = len(op.program.outputs)

        def stacking(*xs: Any) -> list[Any]:
            outs = evaluate(program, xs)
            return [*outs[:n], *(x[None] for x in outs[n:])]

        with bound_axes(op.grid.bound):
            program, found = checked_program(op.program, self.enabled)
            made = derive(stacking, program.in_avals, program.name)
        stacked = [(op.grid.names, *((),) * a.ndim) for a in program.out_avals[n:]]
        outs = op.with_program(made, op.ins, [*op.outs, *stacked])(*ins)
        flat: list[Any] = []
        for group in found.groups(outs[n:]).values():
            first = jnp.where(group.code >= 0, group.code, np.int32(len(found.sites))).argmin()
            flat += [x[first] for x in group.flat()]
        self.ledger.merge(found, flat)
        return outs[:n]

    def custom_call(self, op: Any, ins: list[Any]) -> list[Any]:
        """A call with a derivative rule, which runs a second time for its checks.

        If these are the user's checks, the rule is dropped, because the call itself would raise
        errors."""
        outs = evaluate_checked(op.program, ins, self.ledger, self.enabled)
        return outs if "check" in op.effects else op(*ins)

    def cond(self, op: Any, ins: list[Any]) -> list[Any]:
        parts = [checked_program(b, self.enabled) for b in op.branches]
        sites = tuple(s for _, f in parts for s in f.sites)
        kinds = tuple(dict.fromkeys(s for _, f in parts for s in f.signatures))
        everything = Found(sites, kinds)
        n = len(op.branches[0].outputs)
        branches, offset = [], 0
        for program, found in parts:
            branches.append(_padded(program, found, kinds, n, offset))
            offset += len(found.sites)
        outs = Cond(tuple(branches))(*ins)
        self.ledger.merge(everything, outs[n:])
        return outs[:n]

    def scan(self, op: Any, ins: list[Any]) -> list[Any]:
        program, found = checked_program(op.program, self.enabled)
        a, size, n = op.consts, found.size, len(op.program.outputs)

        def body(*xs: Any) -> list[Any]:
            outs = evaluate(program, [*xs[:a], *xs[a + size :]])
            return [*_merged(found, xs[a : a + size], outs[n:]), *outs[:n]]

        avals = op.program.in_avals
        kept = program.out_avals[n:]
        made = derive(body, [*avals[:a], *kept, *avals[a:]], program.name)
        loop = Scan(made, a, size + op.carry, op.length, op.reverse, op.unroll)
        outs = loop(*ins[:a], *found.empty(), *ins[a:])
        self.ledger.merge(found, outs[:size])
        return outs[size:]

    def while_loop(self, op: Any, ins: list[Any]) -> list[Any]:
        """Checks of the condition run with the body, and once more after the last step."""
        cond, in_cond = checked_program(op.cond, self.enabled)
        body, in_body = checked_program(op.body, self.enabled)
        k, b, n = op.cond_consts, op.cond_consts + op.body_consts, len(op.body.outputs)
        kinds = tuple(dict.fromkeys((*in_cond.signatures, *in_body.signatures)))
        found = Found((*in_cond.sites, *in_body.sites), kinds)
        op_cond = _without_ledger(cond, 1)
        cond = _padded(cond, in_cond, kinds, 1, 0)
        body = _padded(body, in_body, kinds, n, len(in_cond.sites))
        q = found.size

        def new_cond(*xs: Any) -> list[Any]:
            return evaluate(op_cond, [*xs[:k], *xs[k + q :]])

        def new_body(*xs: Any) -> list[Any]:
            c_consts, b_consts, old, carry = xs[:k], xs[k:b], xs[b : b + q], xs[b + q :]
            asked = _merged(found, old, evaluate(cond, [*c_consts, *carry])[1:])
            outs = evaluate(body, [*b_consts, *carry])
            return [*_merged(found, asked, outs[n:]), *outs[:n]]

        extra = cond.out_avals[1:]
        c_avals, b_avals = op.cond.in_avals, op.body.in_avals
        carried = b_avals[op.body_consts :]
        made_cond = derive(new_cond, [*c_avals[:k], *extra, *carried], cond.name)
        made_body = derive(
            new_body, [*c_avals[:k], *b_avals[: op.body_consts], *extra, *carried], body.name
        )
        loop = While(made_cond, made_body, k, b, op.checkpoints)
        outs = loop(*ins[:k], *ins[:b], *found.empty(), *ins[b:])
        last = evaluate(cond, [*ins[:k], *outs[q:]])[1:]
        self.ledger.merge(found, _merged(found, outs[:q], last))
        return outs[q:]


def _padded(
    program: Program, found: Found, kinds: Sequence[Signature], n: int, offset: int
) -> Program:
    """A branch that returns a ledger with the payloads of all branches."""

    def run(*xs: Any) -> list[Any]:
        results = evaluate(program, xs)
        groups = found.groups(results[n:])
        padded = [groups[k].shifted(offset) if k in groups else _no_failure(k) for k in kinds]
        return [*results[:n], *(x for group in padded for x in group.flat())]

    return derive(run, program.in_avals, program.name)


def _merged(found: Found, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Merge two ledgers of the same kinds; failures in the old one come first."""
    before, after = found.groups(old), found.groups(new)
    return [x for s in found.signatures for x in earlier(before[s], after[s]).flat()]


def _without_ledger(program: Program, n: int) -> Program:
    return Program(program.inputs, program.equations, program.outputs[:n], program.name)


def _note(
    ledger: Ledger, shape: tuple[int, ...], index: Any, axes: Sequence[int], sizes: Sequence[int]
) -> None:
    """Note the first index below 0 or too large for its window; `axes` are along the last axis."""
    if index.dtype not in (np.int32, np.int64):  # too narrow for some sizes, or unsigned
        index = index.astype(np.int32)
    last = np.asarray([shape[a] - sizes[a] for a in axes], index.dtype)
    bad = ((index < 0) | (index > jnp.broadcast_to(last, index.shape))).reshape(-1)
    at = bad.argmax().astype(np.int32)
    axis = jnp.asarray(np.asarray(list(axes), np.int32))[at % np.int32(len(axes))]
    ledger.add(IndexSite(shape), bad.any(), [index.reshape(-1)[at], axis])
