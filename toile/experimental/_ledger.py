"""Evaluating a Program with a ledger of errors threaded through.

The ledger keeps, for each kind of payload, the number of the first site that failed and what it
recorded. A Program that an operation carries gets one that starts with an empty ledger and returns
it; the ledger outside takes over what the inner one found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.control.call import Call
from toile.control.cond import Cond
from toile.control.custom import CustomCall
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine import dtypes
from toile.engine.operation import Operation
from toile.engine.program import Program, Var, derive, evaluate
from toile.engine.records import dataclass
from toile.engine.trace import state
from toile.experimental._checks import (
    Check,
    DivisionByZeroError,
    DivisionSite,
    FailedCheckError,
    IndexSite,
    NaNError,
    NaNSite,
    OOBError,
    Site,
)
from toile.parallel.spmd import Spmd, bound_axes
from toile.primitives.addresses import GatherScatterMode
from toile.primitives.elementwise import Div
from toile.primitives.gathers import DynamicSlice, DynamicUpdateSlice, Gather, Scatter

Signature = tuple[tuple[tuple[int, ...], Any], ...]

# The operations whose results are searched for NaNs: JAX's list, and what is made of those.
_NAN_MAKERS = frozenset({
    *("add", "sub", "mul", "div", "rem", "pow", "integer_pow", "sqrt", "rsqrt", "cbrt"),
    *("exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv"),
    *("lgamma", "digamma", "igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta"),
    *("bessel_i0e", "bessel_i1e", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
    *("reduce", "reduce_sum", "reduce_prod", "reduce_window", "reduce_window_sum"),
    *("dot_general", "conv_general_dilated", "fft", "pad", "psum", "custom_linear_solve"),
    *("fused_multiply_add", "one_minus_square", "log2", "reduce_window_prod", "psum_together"),
})


class Group:
    """The first failure among the sites with one kind of payload."""

    __slots__ = ("code", "payload")

    def __init__(self, code: Any, payload: Sequence[Any]):
        self.code, self.payload = code, list(payload)

    def flat(self) -> list[Any]:
        return [self.code, *self.payload]

    def shifted(self, offset: int) -> Group:
        """The same failure where its sites are numbered from `offset` on."""
        code = jnp.where(self.code >= 0, self.code + np.int32(offset), np.int32(-1))
        return Group(code, self.payload)


class Ledger:
    """Sites met so far, and for each kind of payload the first that failed."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.groups: dict[Signature, Group] = {}

    def add(self, site: Site, failed: Any, payload: Sequence[Any] = ()) -> None:
        """Note a check; `failed` is a bool scalar, perhaps traced."""
        code = jnp.where(failed, np.int32(len(self.sites)), np.int32(-1))
        self.sites.append(site)
        strong = [p.astype(p.dtype) if p.weak_type else p for p in payload]
        self._take(tuple((p.shape, p.dtype) for p in strong), Group(code, strong))

    def merge(self, found: Found, flat: Sequence[Any]) -> None:
        """Take over what an inner ledger found."""
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
    """The old failure if there was one, else the new one."""
    fresh = old.code < 0
    return Group(jnp.where(fresh, new.code, old.code),
                 [jnp.where(fresh, n, o) for n, o in zip(new.payload, old.payload, strict=True)])


@dataclass(frozen=True)
class Found:
    """What of an inner ledger is known while tracing: its sites and kinds of payload."""

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
    """Replay a Program through the current trace, noting its checks in the ledger."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    previous = state.source, state.scope
    try:
        for e in program.equations:
            state.source, state.scope = e.source, previous[1] + e.scope
            ins = [env[a] if a.__class__ is Var else a.value() for a in e.ins]  # type: ignore
            outs = _step(e.op, ins, ledger, enabled)
            env.update(zip(e.outs, outs, strict=True))
    finally:
        state.source, state.scope = previous
    return [env[a] if a.__class__ is Var else a.value() for a in program.outputs]  # type: ignore


def _step(op: Operation, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    """One operation with its checks."""
    if isinstance(op, Check):
        if FailedCheckError in enabled:
            ledger.add(op.site, ~ins[0], ins[1:])
        return []
    if enabled - {FailedCheckError} or "check" in op.effects:
        for kind, rule in _CARRIERS:
            if isinstance(op, kind):
                return rule(op, ins, ledger, enabled)
    if OOBError in enabled:
        _check_indices(op, ins, ledger)
    if DivisionByZeroError in enabled and isinstance(op, Div):
        ledger.add(DivisionSite(), (ins[1] == 0).any())
    outs = op(*ins)
    outs = list(outs) if op.multiple else [outs]
    if NaNError in enabled and op.name in _NAN_MAKERS:
        for o in outs:
            if dtypes.is_inexact(o.dtype):
                ledger.add(NaNSite(op.name), jnp.isnan(o).any())
    return outs


# ----------------------------------------------------------------------------- inner Programs


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


def _call(op: Call, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    program, found = checked_program(op.program, enabled)
    outs = op.with_program(program)(*ins)
    n = len(op.program.outputs)
    ledger.merge(found, outs[n:])
    return outs[:n]


def _spmd(op: Spmd, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    """Every device has a ledger; the failure at the first site counts, for each kind."""
    n = len(op.program.outputs)

    def stacking(*xs: Any) -> list[Any]:
        outs = evaluate(program, xs)
        return [*outs[:n], *(x[None] for x in outs[n:])]

    with bound_axes(op.grid.bound):
        program, found = checked_program(op.program, enabled)
        made = derive(stacking, program.in_avals, program.name)
    stacked = [(op.grid.names, *((),) * a.ndim) for a in program.out_avals[n:]]
    outs = op.with_program(made, op.ins, [*op.outs, *stacked])(*ins)
    flat: list[Any] = []
    for group in found.groups(outs[n:]).values():
        first = jnp.where(group.code >= 0, group.code, np.int32(len(found.sites))).argmin()
        flat += [x[first] for x in group.flat()]
    ledger.merge(found, flat)
    return outs[:n]


def _custom(op: CustomCall, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    """A call with a derivative rule: it runs a second time for its checks.

    When these are the user's, the rule goes: the call itself would fail on them."""
    outs = evaluate_checked(op.program, ins, ledger, enabled)
    return outs if "check" in op.effects else op(*ins)


def _cond(op: Cond, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    parts = [checked_program(b, enabled) for b in op.branches]
    sites = tuple(s for _, f in parts for s in f.sites)
    kinds = tuple(dict.fromkeys(s for _, f in parts for s in f.signatures))
    everything = Found(sites, kinds)
    n = len(op.branches[0].outputs)
    branches, offset = [], 0
    for program, found in parts:
        branches.append(_padded(program, found, kinds, n, offset))
        offset += len(found.sites)
    outs = Cond(tuple(branches))(*ins)
    ledger.merge(everything, outs[n:])
    return outs[:n]


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
    """Ledgers of one kind, the old one first."""
    before, after = found.groups(old), found.groups(new)
    return [x for s in found.signatures for x in earlier(before[s], after[s]).flat()]


def _scan(op: Scan, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    program, found = checked_program(op.program, enabled)
    a, size, n = op.consts, found.size, len(op.program.outputs)

    def body(*xs: Any) -> list[Any]:
        outs = evaluate(program, [*xs[:a], *xs[a + size :]])
        return [*_merged(found, xs[a : a + size], outs[n:]), *outs[:n]]

    avals = op.program.in_avals
    kept = program.out_avals[n:]
    made = derive(body, [*avals[:a], *kept, *avals[a:]], program.name)
    loop = Scan(made, a, size + op.carry, op.length, op.reverse, op.unroll)
    outs = loop(*ins[:a], *found.empty(), *ins[a:])
    ledger.merge(found, outs[:size])
    return outs[size:]


def _while(op: While, ins: list[Any], ledger: Ledger, enabled: frozenset[Any]) -> list[Any]:
    """Checks of the condition run with the body, and once more after the last step."""
    cond, in_cond = checked_program(op.cond, enabled)
    body, in_body = checked_program(op.body, enabled)
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
    loop = While(made_cond, made_body, k, b)
    outs = loop(*ins[:k], *ins[:b], *found.empty(), *ins[b:])
    last = evaluate(cond, [*ins[:k], *outs[q:]])[1:]
    ledger.merge(found, _merged(found, outs[:q], last))
    return outs[q:]


def _without_ledger(program: Program, n: int) -> Program:
    return Program(program.inputs, program.equations, program.outputs[:n], program.name)


_CARRIERS: tuple[tuple[type, Any], ...] = (
    (Call, _call), (Cond, _cond), (Scan, _scan), (While, _while), (CustomCall, _custom),
    (Spmd, _spmd),
)


# ------------------------------------------------------------------------------------ indices


def _check_indices(op: Operation, ins: list[Any], ledger: Ledger) -> None:
    """Note indices out of bounds, unless clipping them is what was asked for."""
    if isinstance(op, (DynamicSlice, DynamicUpdateSlice)):
        operand = ins[0]
        starts = ins[1:] if isinstance(op, DynamicSlice) else ins[2:]
        sizes = op.infer(*[x.aval for x in ins]).shape if isinstance(op, DynamicSlice) else (
            ins[1].shape)
        if starts:
            index = jnp.stack([jnp.asarray(s).astype(np.int32) for s in starts])
            _note(ledger, operand.shape, index, range(len(starts)), sizes)
        return
    if not isinstance(op, (Gather, Scatter)) or op.mode is GatherScatterMode.CLIP:
        return
    operand, index = ins[0], ins[1]
    axes = op.dimension_numbers[2]
    if isinstance(op, Gather):
        sizes = op.slice_sizes
    else:
        numbers = op.dimension_numbers
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        windows = iter(ins[2].shape[d] for d in numbers.update_window_dims)
        sizes = tuple(1 if d in dropped else next(windows) for d in range(operand.ndim))
    if axes and index.size:
        _note(ledger, operand.shape, index.astype(np.int32), axes, sizes)


def _note(
    ledger: Ledger, shape: tuple[int, ...], index: Any, axes: Sequence[int], sizes: Sequence[int]
) -> None:
    """Note the first index below 0 or too large for its window; `axes` lie along the last axis."""
    last = np.asarray([shape[a] - sizes[a] for a in axes], np.int32)
    bad = ((index < 0) | (index > last)).reshape(-1)
    at = bad.argmax().astype(np.int32)
    axis = jnp.asarray(np.asarray(list(axes), np.int32))[at % np.int32(len(axes))]
    ledger.add(IndexSite(shape), bad.any(), [index.reshape(-1)[at], axis])
