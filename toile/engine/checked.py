"""Checked eager evaluation: debug_nans, debug_infs, debug_key_reuse, rank promotion.

While one of these options is on, a `CheckedTrace` is used where there would otherwise be no trace.
When all of them are off, no check is performed, so the checks cost nothing. When a Program's result
is bad, the Program is replayed operation by operation to find the first operation whose result is
bad. May import the engine below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import config, dtypes
from toile.engine.arrays import DeviceArray
from toile.engine.avals import aval_of
from toile.engine.key_reuse import run as run_noting_keys
from toile.engine.operation import Operation, run_eager
from toile.engine.program import Program, evaluate
from toile.engine.source import here
from toile.engine.trace import State, Trace, state


class CheckedTrace(Trace):
    """Runs operations immediately and checks their results."""

    __slots__ = ()
    at_once = True

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        op.infer(*[aval_of(a) for a in args])  # public functions leave checking operands to traces
        result = (run_noting_keys if config.flags.debug_key_reuse else run_eager)(op, args)
        outs = result if op.multiple else [result]
        bad = next((b for b in map(bad_value, outs) if b), None)
        if bad is None:
            return result
        program = getattr(op, "program", None)
        if isinstance(program, Program) and len(program.inputs) == len(args):
            evaluate(program, args)  # raises at the faulty operation
        raise FloatingPointError(
            f"invalid value ({bad}) encountered in {op.name}: its operands were "
            f"{', '.join(_summary(a) for a in args)} (guard its operands with jnp.where, or switch "
            f"debug_{bad}s off){here()}"
        )

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.run(*args)

    process_custom_vjp = process_custom_jvp


def bad_value(x: Any) -> str | None:
    """'nan' or 'inf' if an array contains one and the configuration forbids it; else None."""
    if not isinstance(x, DeviceArray) or not dtypes.is_inexact(x.dtype):
        return None
    data = np.asarray(x)
    flags = config.flags
    if (flags.debug_nans or "nan" in flags.checks) and bool(np.isnan(data).any()):
        return "nan"
    if config.flags.debug_infs and bool(np.isinf(data).any()):
        return "inf"
    return None


def _summary(x: Any) -> str:
    if not isinstance(x, DeviceArray):
        return repr(x)
    text = x.aval.str_short()
    if x.size and dtypes.kind(x.dtype) in "iuf":
        data = np.asarray(x)
        text += f" in [{data.min()}, {data.max()}]"
    return text


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
