"""Checked eager evaluation: debug_nans, debug_infs, debug_key_reuse, rank promotion.

While one of these options is on, a `CheckedTrace` is used where there would otherwise be no trace.
When all of them are off, no check is performed, so the checks cost nothing. When a Program's result
is bad, the Program is replayed operation by operation to find where the bad value comes from
(`value_origins`). This module may import the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import config
from toile.engine.avals import aval_of
from toile.engine.check_switch import keys_checked
from toile.engine.key_reuse import run as run_noting_keys
from toile.engine.operation import Operation, run_eager
from toile.engine.source import Source, here
from toile.engine.trace import (
    State,
    Trace,
    computes_derivative,
    current,
    current_source,
    state,
)
from toile.engine.tracebacks import expect_error
from toile.engine.value_origins import Origin, infinities, origin_of
from toile.engine.value_ranges import all_finite, all_non_finite


class CheckedTrace(Trace):
    """Runs operations immediately and checks their results."""

    __slots__ = ()
    at_once = True
    checks_calls = True

    def __init__(self, parent: Trace | None):
        super().__init__(parent)
        self.locates = True

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        op.infer(*[aval_of(a) for a in args])  # public functions leave checking operands to traces
        derivative = computes_derivative(op)
        if keys_checked():
            result = run_noting_keys(op, args)
        elif op.turns is not None or op.carries_programs:
            with current(None):  # compiled as a whole, and for several devices if it is divided
                result = op(*args)
        else:
            result = run_eager(op, args)
        _check(op, args, result if op.multiple else [result], derivative)
        return result

    def call(
        self, op: Operation, args: Sequence[Any], how: Callable[..., list[Any]]
    ) -> list[Any]:
        outs = run_noting_keys(op, args, how) if keys_checked() else how(op, args)
        _check(op, args, outs, computes_derivative(op))
        return outs

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.run(*args)

    process_custom_vjp = process_custom_jvp


_COPIES = ("convert_element_type", "broadcast_in_dim")  # operations that do not compute


def _is_constant(op: Operation, args: Sequence[Any]) -> bool:
    """Whether a result is a number such as -inf that the program contains."""
    return (op.name in _COPIES and not args[0].shape
            and any(map(any, all_non_finite(args[:1]))))


def _forbidden() -> tuple[bool, bool]:
    """Whether NaNs are errors, and whether infinities are."""
    flags = config.flags
    return bool(flags.debug_nans or "nan" in flags.checks), bool(flags.debug_infs)


def _check(op: Operation, args: Sequence[Any], outs: Sequence[Any], derivative: bool) -> None:
    """Raise if a result contains a NaN or an infinity and the configuration forbids it."""
    nan, inf = _forbidden()
    found = [] if not (nan or inf) or all_finite(outs) else all_non_finite(outs)
    has_nan, has_inf = (any(column) for column in zip((False, False), *found, strict=True))
    if not has_nan and not has_inf:
        return
    source = current_source()
    if derivative and source is not None:
        source = source.derivative()
    kind = "nan" if nan and has_nan else "inf" if inf and has_inf else ""
    if kind and not _is_constant(op, args):
        told = _report(op, args, outs, kind, source)
        expect_error()
        raise FloatingPointError(told)
    infinities.note(op, args, outs, source)


def _report(
    op: Operation, args: Sequence[Any], outs: Sequence[Any], kind: str, source: Source | None
) -> str:
    """The message about the operation that produced the first NaN or infinity in some results."""
    found = origin_of(op, args, outs, kind, source)
    head = f"invalid value ({kind}) encountered in"
    called = op.called_program()
    name = op.title if called is None else f"{op.name}({called.name})"
    by = f"debug_{kind}s" if getattr(config.flags, f"debug_{kind}s") else 'toile.checks("nan")'
    if found is None:
        return (
            f"{head} {name}: the compiled program returned it, but its operations, run one by "
            f"one, did not (switch {by} off to go on){here()}"
        )
    if found.op is None:
        return (
            f"{head} {name}: {found.text} already contained it: {found.operands[0]} (check "
            f"where it comes from, or switch {by} off){here()}"
        )
    lines = [*found.lines(), *found.operands, f"({_advice(found)}, or switch {by} off)"]
    return f"{head} {found.op.name}: {found.text}" + "".join(f"\n  {line}" for line in lines)


def _advice(found: Origin) -> str:
    """How to avoid a NaN or an infinity."""
    if found.source is not None and found.source.of is not None:
        return "guard the operand of the forward operation with jnp.where"
    if any("suspicious" in text for text in found.operands):
        return "keep its operands finite, for example with a lower learning rate or with jnp.clip"
    return "guard its operands with jnp.where"


def keeps_arguments() -> bool:
    """Whether the checks of a call need its arguments after it has run."""
    return any(_forbidden()) or keys_checked()


def _follow_configuration(_: str) -> None:
    """After any flag changes: switch checks on or off on this thread and in new threads."""
    flags = config.flags
    wanted = _asks(flags)
    trace = state.trace
    if trace is None or isinstance(trace, CheckedTrace):
        state.trace = (trace or CheckedTrace(None)) if wanted else None
    State.trace = CheckedTrace(None) if _asks(type(flags)) else None


def _asks(flags: Any) -> bool:
    """Whether one of the flags requires checks."""
    found = flags.debug_nans or flags.debug_infs or flags.debug_key_reuse or flags.checks
    return found or flags.numpy_rank_promotion != "allow"


config.on_change.append(_follow_configuration)
_follow_configuration("")  # the environment may have set a flag
