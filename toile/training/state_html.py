"""Train states as HTML: the step, and folded trees of the parameters and the optimizer's state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from toile.displays.array_trees import (
    MOST_LINES,
    branch_html,
    branch_of,
    is_array,
    joined,
    tree_html,
)
from toile.displays.markup import bold, box, clipped, code, fold, pale, paragraph, quantity
from toile.engine.arrays import ConcreteArray
from toile.engine.trace import Tracer

if TYPE_CHECKING:
    from toile.training.train_state import TrainState

KNOWN = ("step", "apply_fn", "params", "tx", "opt_state", "trainable")


def state_html(state: TrainState) -> str:
    """The HTML of a state; fields of subclasses are folded trees too."""
    more = [f.name for f in dataclasses.fields(state) if f.name not in KNOWN]
    lines = MOST_LINES // (2 + len(more))
    params = branch_of(state.params)
    head = f"{bold(type(state).__name__)} at step {bold(_number(state.step))}"
    parts = [
        paragraph(f"{head}, {quantity(params.size, 'parameter')}{_trained(state)}"),
        paragraph(pale("apply_fn: ") + code(_function(state.apply_fn))),
        fold(f"{bold('params')} {pale(params.total)}", branch_html(params, lines)),
        _optimizer(state.opt_state, lines),
        *(tree_html(bold(name), getattr(state, name), lines=lines) for name in more),
    ]
    return box(*parts)


def _trained(state: TrainState) -> str:
    """How many parameters are trained; empty if all of them are."""
    if state.trainable is None:
        return ""
    return f", {branch_of(state._trained()).size:,} of them trained"


def _number(x: Any) -> str:
    """A number as text; for a tracer, its shape and dtype."""
    if isinstance(x, ConcreteArray) and x.is_deleted():
        return "? (deleted)"
    if not is_array(x) or x.ndim or isinstance(x, Tracer):
        return clipped(str(x), 40)
    value = np.asarray(x).item()
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _function(f: Any) -> str:
    """The name of a function; for a method, with the class of its object."""
    name = getattr(f, "__name__", type(f).__name__)
    owner = getattr(f, "__self__", None)
    return name if owner is None else f"{type(owner).__name__}.{name}"


def _optimizer(opt_state: Any, lines: int) -> str:
    """The states of the transformations in an optimizer, without empty ones."""
    kept = [(s, branch_of(s)) for s in _states(opt_state)]
    kept = [(s, branch) for s, branch in kept if branch.arrays]
    if not kept:
        return paragraph(f"{bold('optimizer')} {pale('keeps no arrays')}")
    total = joined(branch for _, branch in kept).total
    names = ", ".join(type(s).__name__ for s, _ in kept)
    share = max(lines // len(kept), 1)
    inner = "".join(
        fold(f"{bold(type(s).__name__)} {_hyperparams(s)}{pale(branch.total)}",
             branch_html(branch, share))
        for s, branch in kept
    )  # fmt: skip
    return fold(f"{bold('optimizer')} {pale(f'{clipped(names, 200)}: {total}')}", inner)


def _states(state: Any) -> Iterator[Any]:
    """The parts of the state of a chain, in order."""
    if type(state) in (tuple, list):
        for part in state:
            yield from _states(part)
    else:
        yield state


def _hyperparams(state: Any) -> str:
    """The hyperparameters of `inject_hyperparams`."""
    found = getattr(state, "hyperparams", None)
    if not isinstance(found, dict) or not found:
        return ""
    text = ", ".join(f"{name}={_number(value)}" for name, value in found.items())
    return code(f"({clipped(text)})") + " "
