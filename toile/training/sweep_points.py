"""The points of a sweep: all combinations of values, or values drawn at random.

A point is a dict from dotted names of configuration entries to values. Each point has a key, which
is a string. Equal points have equal keys, in every process and after every interruption.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.engine.source import here

__all__ = [
    "Range", "folder_name", "grid", "integers", "log_uniform", "point_key", "random_points",
    "uniform",
]

Point = dict[str, Any]


@dataclass(frozen=True)
class Range:
    """A distribution of numbers from `low` to `high`, for use with `random_points`.

    Args:
        low: the lower bound.
        high: the upper bound.
        kind: `"uniform"`, `"log"` (uniform in the logarithm) or `"integers"`.

    >>> Range(1, 6, "integers").draw(0.99)
    6
    """

    low: float
    high: float
    kind: str = "uniform"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"sweep: needed low < high, got {self.low} and {self.high}{here()}")
        if self.kind == "log" and self.low <= 0:
            raise ValueError(f"sweep.log_uniform: needed low > 0, got {self.low}{here()}")

    def draw(self, share: float) -> int | float:
        """Return the number below which the fraction `share` of the distribution lies."""
        if self.kind == "integers":
            return int(self.low) + int(share * (int(self.high) - int(self.low) + 1))
        if self.kind == "log":
            low, high = math.log(self.low), math.log(self.high)
            return float(f"{math.exp(low + share * (high - low)):.6g}")
        return float(f"{self.low + share * (self.high - self.low):.6g}")


def uniform(low: float, high: float) -> Range:
    """Describe a uniform distribution of numbers between two bounds.

    Args:
        low, high: the lower and the upper bound.

    Returns:
        A distribution for `random_points`.

    >>> uniform(0, 1).draw(0.25)
    0.25
    """
    return Range(low, high)


def log_uniform(low: float, high: float) -> Range:
    """Describe a distribution that is uniform in the logarithm, for instance for learning rates.

    Args:
        low, high: the lower and the upper bound, both positive.

    Returns:
        A distribution for `random_points`.

    >>> log_uniform(1e-4, 1e-2).draw(0.5)
    0.001
    """
    return Range(low, high, "log")


def integers(low: int, high: int) -> Range:
    """Describe a uniform distribution of integers between two bounds, both included.

    Args:
        low, high: the lower and the upper bound.

    Returns:
        A distribution for `random_points`.

    >>> integers(2, 5).draw(0.0)
    2
    """
    return Range(low, high, "integers")


def grid(space: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Create a point for each combination of values.

    Args:
        space: a dict from dotted names of configuration entries to lists of values.

    Returns:
        Points for `sweep.run`; the values of the last name change fastest.

    >>> grid({"rate": [0.1, 0.01], "model.width": [32]})
    [{'rate': 0.1, 'model.width': 32}, {'rate': 0.01, 'model.width': 32}]
    """
    lists = [_values(name, values, "grid") for name, values in space.items()]
    return [dict(zip(space, combination)) for combination in itertools.product(*lists)]


def random_points(
    space: Mapping[str, Sequence[Any] | Range], count: int, *, seed: int = 0
) -> list[Point]:
    """Draw points at random.

    With the same seed, a larger `count` only adds points at the end.

    Args:
        space: a dict from dotted names of configuration entries to lists of values, or to
            distributions that `uniform`, `log_uniform` or `integers` returned.
        count: number of points.
        seed: seed for the random numbers.

    Returns:
        Points for `sweep.run`.

    >>> random_points({"rate": log_uniform(1e-4, 1e-1), "width": [32, 64]}, 2)
    [{'rate': 0.00352514, 'width': 64}, {'rate': 0.0140487, 'width': 64}]
    """
    if count < 1:
        raise ValueError(f"sweep.random_points: needed count >= 1, got {count}{here()}")
    points = []
    for number in range(count):
        point: Point = {}
        for name, values in space.items():
            share = random.Random(f"{seed}/{number}/{name}").random()
            if isinstance(values, Range):
                point[name] = values.draw(share)
            else:
                listed = _values(name, values, "random_points")
                point[name] = listed[int(share * len(listed))]
        points.append(point)
    return points


def _values(name: str, values: Any, caller: str) -> list[Any]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") or not list(values):
        raise ValueError(
            f"sweep.{caller}: needed a list of values for {name!r}, got {values!r}{here()}"
        )
    return [_plain(name, value) for value in values]


def _plain(name: str, value: Any) -> Any:
    """Convert NumPy numbers to Python numbers, which JSON can write."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(name, x) for x in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"sweep: needed numbers, strings, booleans, None, or lists of them for {name!r}, got a "
        f"{type(value).__name__}{here()}"
    )


def checked(points: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The points without repetitions, each with values that JSON can write."""
    found: dict[str, Point] = {}
    for point in points:
        plain = {name: _plain(name, value) for name, value in point.items()}
        found.setdefault(point_key(plain), plain)
    return list(found.values())


def point_key(point: Mapping[str, Any]) -> str:
    """Return a string that is the same for equal points.

    >>> point_key({"b": (1, 2), "a": 0.5}) == point_key({"a": 0.5, "b": [1, 2]})
    True
    """
    return json.dumps(point, sort_keys=True)


def folder_name(point: Mapping[str, Any]) -> str:
    """The name of a point's folder: readable, and different for different points.

    >>> folder_name({"model.width": 32, "rate": 0.1})
    'width=32,rate=0.1-c5ffd26e'
    """
    words = ",".join(f"{name.rpartition('.')[2]}={value}" for name, value in point.items())
    readable = re.sub(r"[^\w.,=+-]+", "", words)[:80]
    return f"{readable}-{hashlib.sha256(point_key(point).encode()).hexdigest()[:8]}"
