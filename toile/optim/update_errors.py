"""Error messages for common mistakes in calls to `update`: swapped arguments and wrong states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import tree as trees
from toile.engine.source import describe, here, message
from toile.engine.tracebacks import expect_error
from toile.optim.paths import path_of

_RIGHT = "call update(grads, state, params), in this order"
_LISTED = 3


def check_states(count: int, updates: Any, state: Any) -> None:
    """Raise unless `state` is a tuple with a state for each of `count` transformations."""
    if isinstance(state, tuple) and len(state) == count:
        return
    if _is_state(updates) and not _is_state(state):
        text = "the first two arguments are swapped: needed the gradients first, then the state"
    elif not isinstance(state, tuple):
        text = (
            "needed the state that tx.init(params) returned as the second argument; perhaps the "
            "arguments are swapped"
        )
    else:
        text = f"chain: needed {count} states, got {len(state)}"
        raise ValueError(f"{text} (the state has to come from this chain's init){here()}")
    raise ValueError(
        f"update: {text}: got updates={describe(updates)}, state={describe(state)} ({_RIGHT})"
        f"{here()}"
    )


def _is_state(x: Any) -> bool:
    """Whether `x` looks like the state of a chain: a tuple of named tuples and tuples."""
    return isinstance(x, tuple) and bool(x) and all(isinstance(part, tuple) for part in x)


def explained(
    error: Exception, updates: Any, state: Any, init: Callable[[Any], Any] | None = None
) -> Exception:
    """Return the error, or an error that says where the state and the updates differ.

    `init` is called to create a state of the expected class, with which `state` is compared."""
    expect_error()
    if not isinstance(error, (TypeError, ValueError, AttributeError)) or "tx.init(" in str(error):
        return error
    if type(updates) is tuple and len(updates) == 2 and getattr(updates[0], "shape", None) == ():
        return ValueError(
            f"{message(error)}: update: needed gradients, got the pair {describe(updates)} "
            f"(value_and_grad returns (value, grads): pass grads alone; {_RIGHT}){here()}"
        )
    try:
        other = init is not None and type(init(updates)).__name__ != type(state).__name__
        if other and init is not None:
            return type(error)(
                f"update: needed the state {type(init(updates)).__name__}, got "
                f"{type(state).__name__} with {describe(state)} (use the state that this "
                f"optimizer's tx.init(params) or tx.update returned: updates, state = tx.update("
                f"grads, state, params)){here()}"
            )
        found = _differences(updates, state, "pytree structure" in str(error))
    except Exception:  # a tree that cannot be compared: the first error has to do
        return error
    if not found:
        return error
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ValueError(
        "update: needed updates like the parameters that the state was made for, got other "
        f"{'structures' if any('-' in row for row in found) else 'shapes'}: "
        + "; ".join(f"{path}: state {old}, updates {new}" for path, old, new in found[:_LISTED])
        + f"{more} (make a new state with tx.init(params), or pass the gradients of the "
        f"parameters it was made for){here()}"
    )


def _differences(updates: Any, state: Any, apart: bool) -> list[tuple[str, str, str]]:
    """(path, array in the state, array in the updates) of the leaves that differ.

    If `apart`, the trees may have no path in common."""
    given = _leaves(updates)
    for part in _parts(state):
        held = _leaves(part)
        if not held or not given or not (apart or held.keys() & given.keys()):
            continue
        found = [
            (path, _text(held, path), _text(given, path)) for path in {**held, **given}
            if path not in held or path not in given or held[path].shape != given[path].shape
        ]
        if found:
            return found
    return []


def _text(leaves: dict[str, Any], path: str) -> str:
    return describe(leaves[path]) if path in leaves else "-"


def _leaves(tree: Any) -> dict[str, Any]:
    """The arrays of a tree of parameters by path; nothing for a single array."""
    found = {path_of(path): x for path, x in trees.leaves_with_path(tree) if path}
    return {path: x for path, x in found.items() if hasattr(x, "shape") and x.ndim >= 0}


def _parts(state: Any) -> list[Any]:
    """The trees inside a state that may be shaped like the parameters."""
    if isinstance(state, tuple):
        return [part for inner in state for part in _parts(inner)]
    return [state]
