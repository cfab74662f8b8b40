"""Stopping when a metric no longer gets better."""

from __future__ import annotations

import math
from typing import Any

from toile import struct

__all__ = ["EarlyStopping"]


class EarlyStopping(struct.PyTreeNode):
    """Watches a metric that should fall; `update` gives the next state.

    An update improves when the metric is below the best one by more than `min_delta`. After
    `patience` updates in a row without improvement the next one sets `should_stop`::

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
    best_metric: Any = float("inf")
    patience_count: int = 0
    should_stop: bool = False
    has_improved: bool = False

    def reset(self) -> EarlyStopping:
        """The state before the first update."""
        return self.replace(
            best_metric=float("inf"), patience_count=0, should_stop=False, has_improved=False
        )

    def update(self, metric: Any) -> EarlyStopping:
        """The state after one more value of the metric."""
        if math.isinf(self.best_metric) or self.best_metric - metric > self.min_delta:
            return self.replace(best_metric=metric, patience_count=0, has_improved=True)
        return self.replace(
            patience_count=self.patience_count + 1,
            should_stop=self.patience_count >= self.patience or self.should_stop,
            has_improved=False,
        )
