"""The rows of `benchmarks.cpu` and their goals. This module imports no framework.

A row is built once per framework, and the frameworks take turns. A goal compares toile with another
library (`jax`, or `best` for the faster of jax and torch) or with another column of toile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

FRAMEWORKS = ("toile", "jax", "torch")
TRAINING = ("mlp", "cnn", "transformer", "lstm", "gnn", "resnet50:batch=4,size=128")
OPERATIONS = ("softmax", "layer norm", "gelu tanh", "gelu erf", "adam", "cross-entropy")
ELEMENTS = {"1M": 1 << 20, "10M": 10 << 20}
FIRST_STEPS = {"cnn": 0.6, "lstm": 0.33, "transformer:layers=12": 0.33}
RESIZED = {"mlp": 16, "cnn": 16, "transformer": 4, "lstm": 16}  # the unit of the batch sizes
MULTIPLES = (3, 4, 1, 5, 6, 7, 8, 9, 10, 11, 12)  # of that unit, after 2; each size is new
MEAN_SPEEDUP, ERROR_FACTOR = 1.4, 2.0
DEFAULTS = {"mlp": 128, "cnn": 128, "resnet50": 8, "transformer": 8, "lstm": 32}


class Goal(NamedTuple):
    """A goal: the column `toile` is at most `limit` times the column `against`."""

    against: str
    limit: float


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    kind: str
    spec: str
    goals: tuple[Goal, ...]
    frameworks: tuple[str, ...] = FRAMEWORKS
    windows: tuple[str, ...] = ("",)  # windows of the case; columns are called `framework window`
    cache: str = ""  # cold or warm: a new process per round, timed until its first step
    memory: float = 0.0  # maximum peak memory relative to jax's; 0 for no limit
    losses: int = 3  # number of losses that are compared with jax's
    arguments: tuple[int, ...] = ()  # an argument for each round; empty if all are equal


def column(framework: str, window: str) -> str:
    """The name of a measurement."""
    return f"{framework} {window}".strip()


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The name and sizes of a workload written as `name:size=number,...`."""
    name, _, rest = spec.partition(":")
    sizes: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, value = item.split("=")
        sizes[key] = int(value) if value.isdigit() else value
    return name, sizes


def scaled(spec: str, factor: float) -> str:
    """The same workload with its batch size (for a graph: nodes and edges) multiplied by
    `factor`."""
    name, sizes = parse(spec)
    usual = {"nodes": 4096, "edges": 32768} if name == "gnn" else {"batch": DEFAULTS[name]}
    sizes.update({k: math.ceil(factor * sizes.get(k, v)) for k, v in usual.items()})
    return f"{name}:" + ",".join(f"{k}={v}" for k, v in sizes.items())


def rows() -> Iterator[Row]:
    """Every row, in the order of the table."""
    for spec in TRAINING:
        best = (Goal("best", 1.0),)
        # At this rate, resnet50 diverges on few images: even its second loss depends on rounding.
        losses = 1 if spec.startswith("resnet50") else 3
        yield Row(f"train {spec}", "train", spec, best, memory=1.0, losses=losses)
        for factor in (0.5, 2):
            changed = scaled(spec, factor)
            yield Row(f"train {changed}", "train", changed, best, losses=losses)
    for name in OPERATIONS:
        for label, elements in ELEMENTS.items():
            goals = (Goal("best", 1 / 1.2),)
            yield Row(f"{name} {label}", "operation", f"{name},{elements}", goals)
    # In the gradient of the first body, XLA calls a function for each product; it fuses those of
    # the second body.
    own, both = (Goal("toile forward", 6.0),), ("", "forward")
    goals = (*own, Goal("jax", 0.1))
    yield Row("scan grad covariance f64", "scan", "covariance,10000", goals, windows=both)
    yield Row("scan grad tanh f32", "scan", "tanh,10000", own, windows=both)
    for leaves, limit in ((1, 0.6), (10, 0.6), (100, 0.45)):
        yield Row(f"call {leaves} leaves", "call", str(leaves), (Goal("jax", limit),))
    yield Row("tiny grad", "tiny", "", (Goal("jax", 0.5),))
    for spec, limit in FIRST_STEPS.items():
        goals = (Goal("jax", limit),)
        yield Row(f"start {spec} cold", "train", spec, goals, cache="cold")
        peers = ("toile", "jax")  # torch has no cache on disk
        yield Row(f"start {spec} warm", "train", spec, goals, peers, cache="warm")
    for name, unit in RESIZED.items():
        yield Row(
            f"new batch {name}", "resize", f"{name}:batch={2 * unit}", (Goal("jax", 0.1),),
            ("toile", "jax"), arguments=tuple(unit * m for m in MULTIPLES),
        )  # fmt: skip
