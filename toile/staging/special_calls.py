"""Calls of jitted functions that use Refs, and calls while values are checked (`engine.checked`).

While values are checked, a call runs as it does without checks. Then the checks look at its
arguments and results. This module may import the modules of staging below jit, platforms, control
and the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import Call
from toile.engine import config
from toile.engine.check_switch import keys_checked
from toile.engine.checked import keeps_arguments
from toile.engine.refs import differentiating
from toile.engine.source import here
from toile.engine.trace import current, state
from toile.engine.trees import flatten
from toile.engine.value_ranges import all_finite
from toile.platforms.call_exits import MISS
from toile.staging.callpath import Entrance
from toile.staging.donation import delete_donated, given_up
from toile.staging.flat_functions import name_of
from toile.staging.stages import Traced, operand, run_in_python


def check_execution(fun: Any) -> None:
    """Raise if the configuration says that no compiled function may run."""
    if config.flags.no_execution:
        raise RuntimeError(
            f"JAX tried to execute function jit({name_of(fun)}), but the no_execution config "
            f"option is set{here()}"
        )


def run_with_refs(
    jitted: Any, traced: Traced, leaves: Sequence[Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The results of a call to a function that uses Refs."""
    assert traced.refs is not None
    if traced.refs.inline and differentiating():
        return run_in_python(jitted, args, kwargs)
    return traced.run_with_refs(leaves, name_of(jitted.fun))


def repeated(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call that has a fast path while values are checked; MISS if it has none."""
    trace = state.trace
    if trace is None or not trace.checks_calls or keys_checked():
        return MISS
    with current(None):  # other checks are made when a function is traced
        for enter in jitted.cache.paths:
            out = enter(args, kwargs)
            if out is not MISS:
                break
        else:
            return MISS
    if not keeps_arguments():
        return out
    if not all_finite(flatten(out)[0]):
        statics, args_in, kwargs_in = jitted._take_statics(args, kwargs)
        leaves, key = jitted._key(statics, args_in, kwargs_in)
        traced = jitted.cache.entries.get(key) or jitted._trace(key, args_in, kwargs_in, leaves)
        _check_results(jitted, traced, leaves, lambda: out)
    if positions := Entrance.of(enter).deleted_later:
        _, args_in, kwargs_in = jitted._take_statics(args, kwargs)
        delete_donated(flatten((args_in, kwargs_in))[0], positions)
    return out


def run_checked(
    jitted: Any, traced: Traced, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The results of a call, which runs as without checks, and is then checked."""

    def run() -> Any:
        with current(None):
            return jitted(*args, **kwargs)

    if not keeps_arguments():
        return run()
    traced.check_values()
    out = _check_results(jitted, traced, leaves, run)
    delete_donated(leaves, traced.given_up_later)
    return out


def _check_results(
    jitted: Any, traced: Traced, leaves: Sequence[Any], run: Callable[[], Any]
) -> Any:
    """The results of a call that `run` makes; raises an error if a check finds a fault in them."""
    out: Any = None

    def how(*_: Any) -> list[Any]:
        nonlocal out
        out = run()
        return flatten(out)[0]

    assert state.trace is not None
    op = Call(traced.program, name_of(jitted.fun))
    state.trace.call(op, (*traced.consts, *map(operand, leaves)), how)
    return out


def give_up(traced: Traced, donated: Sequence[int], keep_unused: bool) -> None:
    """Note the donated arguments that a call deletes, or that are deleted after checks."""
    gone = given_up(donated, traced.program, keep_unused)
    traced.given_up, traced.given_up_later = ((), gone) if keeps_arguments() else (gone, ())
