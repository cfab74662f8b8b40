"""What the rules of several optimizers share."""

from __future__ import annotations

from typing import Any

__all__ = ["is_off", "learning_rate_of"]


def learning_rate_of(definition: Any, hyper_params: Any) -> Any:
    """The learning rate, which must be set before the first step."""
    if hyper_params.learning_rate is None:
        name = type(definition).__name__
        raise ValueError(
            f"{name}: needed a learning rate, but no learning rate provided (pass it to {name} or"
            " to apply_gradient)"
        )
    return hyper_params.learning_rate


def is_off(x: Any) -> bool:
    """True for the number 0; a traced value counts as on."""
    return isinstance(x, (int, float)) and x == 0
