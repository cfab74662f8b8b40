"""Helpers that several optimizers share."""

from __future__ import annotations

from typing import Any

from toile.engine.source import here

__all__ = ["is_off", "learning_rate_of"]


def learning_rate_of(definition: Any, hyper_params: Any) -> Any:
    """Return the learning rate, or raise an error if it is not set."""
    if hyper_params.learning_rate is None:
        name = type(definition).__name__
        raise ValueError(
            f"{name}: needed a learning rate, but no learning rate provided (pass it to {name} or"
            f" to apply_gradient){here()}"
        )
    return hyper_params.learning_rate


def is_off(x: Any) -> bool:
    """Return whether `x` is the Python number 0; for arrays and tracers, the result is False."""
    return isinstance(x, (int, float)) and x == 0
