"""Stop training when a metric no longer improves."""

from __future__ import annotations

import math

from toile import struct
from toile.engine.annotations import Array

__all__ = ["EarlyStopping"]


class EarlyStopping(struct.PyTreeNode):
    """Decides when to stop training because a metric no longer decreases.

    A value is an improvement if it is lower than the best value by more than `min_delta`. When more
    than `patience` consecutive values are not improvements, `should_stop` becomes True.

    Args:
        min_delta: amount that a decrease from the best value must exceed to be an improvement.
        patience: number of consecutive values without improvement that are tolerated.
        best_metric: the best value so far.
        patience_count: number of values since the last improvement.
        should_stop: whether to stop.
        has_improved: whether the last value was an improvement.

    >>> from toile.training.early_stopping import EarlyStopping
    >>> stop = EarlyStopping(min_delta=1e-3, patience=2)
    >>> for epoch, loss in enumerate([4, 3, 3, 3, 2, 2, 2, 2, 1, 1]):
    ...     stop = stop.update(loss)
    ...     if stop.should_stop:
    ...         break
    >>> epoch, stop.best_metric
    (7, 2)
    """

    min_delta: float = 0
    patience: int = 0
    best_metric: float | Array = float("inf")
    patience_count: int = 0
    should_stop: bool = False
    has_improved: bool = False

    def reset(self) -> EarlyStopping:
        """Return a copy with the same options, in the initial state."""
        return self.replace(
            best_metric=float("inf"), patience_count=0, should_stop=False, has_improved=False
        )

    def update(self, metric: float | Array) -> EarlyStopping:
        """Return the state after one more value.

        Args:
            metric: the new value of the metric.
        """
        if math.isinf(self.best_metric) or self.best_metric - metric > self.min_delta:
            return self.replace(best_metric=metric, patience_count=0, has_improved=True)
        return self.replace(
            patience_count=self.patience_count + 1,
            should_stop=self.patience_count >= self.patience or self.should_stop,
            has_improved=False,
        )
