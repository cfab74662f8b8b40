"""The arguments that jit's options name, by number and by name. May import the engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from toile.engine.source import here
from toile.staging.flattening import name_of


def named_arguments(
    fun: Callable[..., Any], options: dict[str, Any], what: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of the arguments that are `what` ("static", "donate").

    Each is inferred from the other where only one is given."""
    nums, names = options.get(f"{what}_argnums"), options.get(f"{what}_argnames")
    if nums is None and names is None:
        return (), ()
    numbers = (nums,) if isinstance(nums, int) else tuple(nums or ())
    given = (names,) if isinstance(names, str) else tuple(names or ())
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return numbers, given
    positional = [p.name for p in parameters
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters}
    for n in numbers:
        if not variadic and not -len(positional) <= n < len(positional):
            raise ValueError(
                f"jit: needed {what}_argnums within the {len(positional)} positional parameters of "
                f"{name_of(fun)}, got {n}{here()}"
            )
    for k in given:
        if k not in known and not anything:
            raise ValueError(
                f"jit: needed {what}_argnames among the parameters of {name_of(fun)} "
                f"({', '.join(sorted(known))}), got {k!r}{here()}"
            )
    if nums is None:
        numbers = tuple(positional.index(k) for k in given if k in positional)
    if names is None:
        keyword = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
        given = tuple(positional[n] for n in numbers
                      if -len(positional) <= n < len(positional) and positional[n] in keyword)
    return numbers, given
