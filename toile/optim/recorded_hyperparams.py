"""The arguments with which optimizers were created, stored in their `update` functions.

The state of an optimizer has the same structure as in Optax, so it cannot contain these arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base

__all__ = ["merge", "recorded"]

_NAME = "hyperparams"


def recording(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Make a factory record the numbers and schedules with which it creates an optimizer.

    Args:
        factory: function that returns an optimizer whose `update` function is a new object.

    Returns:
        The same function, which also records its arguments.

    >>> from toile import optim
    >>> from toile.optim.recorded_hyperparams import recorded
    >>> recorded(optim.sgd(0.5))
    {'learning_rate': 0.5}
    """
    signature = inspect.signature(factory)
    schedules = {p.name for p in signature.parameters.values() if "Schedule" in str(p.annotation)}

    @functools.wraps(factory)
    def made(*args: Any, **kwargs: Any) -> Any:
        bound = bind(factory, signature, args, kwargs)
        tx = factory(*args, **kwargs)
        bound.apply_defaults()
        values = {name: x for name, x in bound.arguments.items()
                  if _is_number(x) or (callable(x) and name in schedules)}
        setattr(tx.update, _NAME, values)
        return tx

    return made


def bind(
    factory: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> inspect.BoundArguments:  # fmt: skip
    """The arguments of a call of a factory by name; an error lists the names."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [name for name in kwargs if name not in signature.parameters]
        what = f"got an unexpected keyword argument {unknown[0]!r}" if unknown else str(error)
        names = ", ".join(signature.parameters)
        raise TypeError(
            f"{factory.__name__}() {what}; needed arguments among {names}{here()}"
        ) from None


def _is_number(x: Any) -> bool:
    numbers = (int, float, Array, np.ndarray, np.number)
    return isinstance(x, numbers) and not isinstance(x, bool)


def recorded(tx: base.GradientTransformation) -> dict[str, Any]:
    """Return the numbers and schedules with which an optimizer was created.

    Args:
        tx: the optimizer, or a chain that contains it.

    Returns:
        A dict from names to numbers and schedules; empty if nothing was recorded.

    >>> from toile import optim
    >>> from toile.optim.recorded_hyperparams import recorded
    >>> recorded(optim.chain(optim.clip(1.0), optim.adam(0.1)))["learning_rate"]
    0.1
    """
    return dict(getattr(tx.update, _NAME, {}))


def merge(update_fn: Any, transformations: Any) -> None:
    """Record the values of a chain's members for the chain; the last of several values is used.

    Args:
        update_fn: the chain's `update` function.
        transformations: the members.
    """
    values: dict[str, Any] = {}
    for tx in transformations:
        values.update(recorded(tx))
    if values:
        setattr(update_fn, _NAME, values)
