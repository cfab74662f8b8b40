"""Metrics that can be merged over batches and devices before their value is computed.

A metric is a small tree. It is created from the outputs of a model (`from_model_output`) and merged
with the metrics for other batches (`merge`). Its value is computed once at the end (`compute`), so
averages are exact even if batches differ in size. The design and the names are those of
clu.metrics.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from toile import lax, struct, tree
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, PyTree
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.jax_utils import unreplicate

__all__ = [
    "Accuracy", "Average", "CollectingMetric", "Collection", "LastValue", "LossMetric", "Metric",
    "Perplexity", "Std", "Sum", "TopKAccuracy",
]  # fmt: skip


class Metric(struct.PyTreeNode):
    """Base class of metrics, which are created for each batch, merged, and computed at the end.

    A subclass defines `from_model_output`, `merge` and `compute`. Merging before computing makes
    averages exact, even if batches differ in size.

    >>> from toile import struct
    >>> from toile.training.metrics import Metric
    >>> @struct.dataclass
    ... class Largest(Metric):
    ...     value: float
    ...     @classmethod
    ...     def from_model_output(cls, *, loss, **_):
    ...         return cls(jnp.max(loss))
    ...     def merge(self, other):
    ...         return Largest(jnp.maximum(self.value, other.value))
    ...     def compute(self):
    ...         return self.value
    >>> one, two = (Largest.from_model_output(loss=jnp.array(x)) for x in ([1.0, 3.0], [2.0]))
    >>> one.merge(two).compute()
    Array(3., dtype=float32)
    """

    @classmethod
    def from_model_output(cls, *args: Any, **kwargs: Any) -> Self:
        """Create the metric for one batch from the outputs of a model."""
        raise NotImplementedError(f"{cls.__name__}: needed the method from_model_output{here()}")

    @classmethod
    def empty(cls) -> Self:
        """Create a metric without data; merging it with another metric returns the other metric."""
        raise NotImplementedError(f"{cls.__name__}: needed the method empty{here()}")

    def merge(self, other: Self) -> Self:
        """Combine the data of this metric with the data of another metric."""
        raise NotImplementedError(f"{type(self).__name__}: needed the method merge{here()}")

    def compute(self) -> Any:
        """Return the value of the metric."""
        raise NotImplementedError(f"{type(self).__name__}: needed the method compute{here()}")

    def reduce(self) -> Self:
        """Merge metrics stacked along the first axis, such as the metrics of all devices."""
        first = tree.map(lambda x: x[0], self)
        rest = tree.map(lambda x: x[1:], self)
        merged, _ = lax.scan(lambda left, right: (left._reduce_merge(right), None), first, rest)
        return merged

    def _reduce_merge(self, other: Self) -> Self:
        """Merge metrics of two devices at the same step; differs from `merge` if order matters."""
        return self.merge(other)

    @classmethod
    def from_output(cls, name: str) -> type[Self]:
        """Create a subclass that computes this metric from one output of the model.

        Args:
            name: name of the output. If the model also has an output named `mask` whose first axis
                has the same length, it is passed to the metric as the mask.

        Returns:
            A class whose `from_model_output` accepts all outputs as keyword arguments.

        >>> from toile.training.metrics import Average
        >>> Loss = Average.from_output("loss")
        >>> float(Loss.from_model_output(loss=jnp.array([1.0, 3.0])).compute())
        2.0
        """

        def chosen(**outputs: Any) -> Any:
            if name not in outputs:
                raise KeyError(
                    f"{cls.__name__}.from_output({name!r}): needed an output of this name, got "
                    f"{sorted(outputs)}{here()}"
                )
            return outputs[name]

        return cls._derived(chosen, f"{cls.__name__}_from_{name}")

    @classmethod
    def from_fun(cls, fun: Callable[..., Any]) -> type[Self]:
        """Create a subclass that computes this metric from a function of the model's outputs.

        Args:
            fun: function whose parameters are named after outputs of the model. If it returns a
                dict, such as `{"logits": ..., "labels": ...}` for `Accuracy`, the entries are
                passed to the metric as keyword arguments.

        Returns:
            A class whose `from_model_output` accepts all outputs as keyword arguments.

        >>> from toile.training.metrics import Average
        >>> Error = Average.from_fun(lambda y, target: abs(y - target))
        >>> float(Error.from_model_output(y=jnp.float32(3), target=jnp.float32(1)).compute())
        2.0
        """
        return cls._derived(_only_what_it_takes(fun), f"{cls.__name__}_from_function")

    @classmethod
    def _derived(cls, value_of: Callable[..., Any], name: str) -> type[Self]:
        def from_model_output(made: Any, **outputs: Any) -> Any:
            found = value_of(**outputs)
            args, named = ((), dict(found)) if isinstance(found, Mapping) else ((found,), {})
            mask: Any = outputs.get("mask")
            first: Any = next(iter((*args, *named.values())), None)
            if mask is not None and np.shape(mask)[:1] == np.shape(first)[:1]:
                named.setdefault("mask", mask)
            above: Any = super(derived, made)
            return above.from_model_output(*args, **named)

        body = {"from_model_output": classmethod(from_model_output), "__module__": cls.__module__}
        derived: Any = type(name, (cls,), body)
        return derived


def _only_what_it_takes(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Make `fun` ignore keyword arguments for which it has no parameter."""
    parameters = inspect.signature(fun).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return fun
    return lambda **outputs: fun(**{k: v for k, v in outputs.items() if k in parameters})


def _masked(values: Any, mask: Any) -> tuple[Any, Any]:
    """Return the values with at least one axis, and a mask of the same shape."""
    values = jnp.atleast_1d(values)
    if mask is None:
        return values, jnp.ones(values.shape, jnp.float32)
    mask = jnp.atleast_1d(mask)
    if mask.shape != values.shape[: mask.ndim]:
        raise ValueError(
            f"metric: needed a mask whose shape is a prefix of that of the values, "
            f"{values.shape}, got {mask.shape}{here()}"
        )
    mask = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return values, jnp.broadcast_to(mask, values.shape).astype(jnp.float32)


class Average(Metric):
    """Mean of values.

    Args:
        total: sum of the values so far.
        count: number of values so far.

    >>> from toile.training.metrics import Average
    >>> batches = [jnp.array([1.0, 2.0, 3.0]), jnp.array([10.0])]
    >>> one, two = (Average.from_model_output(b) for b in batches)
    >>> float(one.merge(two).compute())
    4.0
    """

    total: Array
    count: Array

    @classmethod
    def empty(cls) -> Self:
        """Create a metric without data."""
        return cls(total=jnp.zeros((), jnp.float32), count=jnp.zeros((), jnp.float32))

    @classmethod
    def from_model_output(
        cls, values: ArrayLike, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            values: array of values, or a single value.
            mask: array that is True for the values to include. Its shape must be a prefix of the
                shape of `values`. If `mask` is None, all values are included.
        """
        shown, counts = _masked(values, mask)
        total = jnp.where(counts > 0, shown, 0).sum()
        return cls(total=total, count=(counts > 0).sum(dtype="float32"))

    def merge(self, other: Self) -> Self:
        """Combine the data of this metric with the data of another metric."""
        return type(self)(total=self.total + other.total, count=self.count + other.count)

    def compute(self) -> Any:
        """Return the mean."""
        return self.total / self.count


class Sum(Average):
    """Sum of values.

    Args:
        total: sum of the values so far.
        count: number of values so far.

    >>> from toile.training.metrics import Sum
    >>> float(Sum.from_model_output(jnp.array([1.0, 2.0])).compute())
    3.0
    """

    def compute(self) -> Any:
        """Return the sum."""
        return self.total


class Std(Metric):
    """Population standard deviation of values: the divisor is `n`, not `n - 1`.

    Args:
        total: sum of the values so far.
        sum_of_squares: sum of the squares of the values so far.
        count: number of values so far.

    >>> from toile.training.metrics import Std
    >>> float(Std.from_model_output(jnp.array([1.0, 3.0])).compute())
    1.0
    """

    total: Array
    sum_of_squares: Array
    count: Array

    @classmethod
    def empty(cls) -> Self:
        """Create a metric without data."""
        zero = jnp.zeros((), jnp.float32)
        return cls(total=zero, sum_of_squares=zero, count=zero)

    @classmethod
    def from_model_output(
        cls, values: ArrayLike, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            values: array of values, or a single value.
            mask: array that is True for the values to include. Its shape must be a prefix of the
                shape of `values`. If `mask` is None, all values are included.
        """
        shown, counts = _masked(values, mask)
        kept = jnp.where(counts > 0, shown, 0)
        return cls(
            total=kept.sum(), sum_of_squares=(kept**2).sum(),
            count=(counts > 0).sum(dtype="float32"),
        )

    def merge(self, other: Self) -> Self:
        """Combine the data of this metric with the data of another metric."""
        return tree.map(jnp.add, self, other)

    def compute(self) -> Any:
        """Return the standard deviation."""
        mean = self.total / self.count
        # Rounding may leave a variance of zero slightly negative.
        return jnp.sqrt(jnp.maximum(self.sum_of_squares / self.count - mean**2, 0.0))


class LossMetric(Average):
    """Mean of the output `loss`.

    Args:
        total: sum of the values so far.
        count: number of values so far.

    >>> from toile.training.metrics import LossMetric
    >>> float(LossMetric.from_model_output(loss=jnp.array([1.0, 3.0])).compute())
    2.0
    """

    @classmethod
    def from_model_output(
        cls, *, loss: ArrayLike, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            loss: array of values, or a single value; for a single value, `mask` is ignored.
            mask: array that is True for the values to include; if None, all values are included.
        """
        return super().from_model_output(loss, mask if np.ndim(loss) else None)


class Perplexity(LossMetric):
    """Exponential of the mean of the output `loss`.

    Args:
        total: sum of the losses so far.
        count: number of losses so far.

    >>> from toile.training.metrics import Perplexity
    >>> Perplexity.from_model_output(loss=jnp.log(jnp.array([4.0, 4.0]))).compute().round(3)
    Array(4., dtype=float32)
    """

    def compute(self) -> Any:
        """Return the perplexity."""
        return jnp.exp(super().compute())


def _check_classes(who: str, logits: Any, labels: Any) -> None:
    integers = jnp.issubdtype(labels.dtype, jnp.integer)
    if logits.ndim != labels.ndim + 1 or not integers:
        raise ValueError(
            f"{who}: needed integer labels with one axis less than logits, got labels "
            f"{labels.dtype}{list(labels.shape)} for logits {list(logits.shape)} (one-hot labels: "
            f"pass labels.argmax(-1)){here()}"
        )


class Accuracy(Average):
    """Fraction of examples for which the label has the largest logit.

    Args:
        total: number of correctly classified examples so far.
        count: number of examples so far.

    >>> from toile.training.metrics import Accuracy
    >>> logits = jnp.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> Accuracy.from_model_output(logits=logits, labels=jnp.array([1, 0, 0])).compute()
    Array(0.6666667, dtype=float32)
    """

    @classmethod
    def from_model_output(
        cls, *, logits: Array, labels: Array, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            logits: array of shape (..., classes).
            labels: array of integers of shape (...).
            mask: array that is True for the examples to include; if None, all are included.
        """
        _check_classes("Accuracy", logits, labels)
        hits = (logits.argmax(axis=-1) == labels).astype(jnp.float32)
        return super().from_model_output(hits, mask)


class TopKAccuracy(Average):
    """Fraction of examples for which the label has one of the k largest logits; k is 5 by default.

    `TopKAccuracy.of(k)` is the metric for a different k. Among equal logits, the one with the
    lowest index is considered the largest.

    Args:
        total: number of correctly classified examples so far.
        count: number of examples so far.

    >>> from toile.training.metrics import TopKAccuracy
    >>> logits = jnp.array([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5]])
    >>> TopKAccuracy.of(2).from_model_output(logits=logits, labels=jnp.array([2, 0])).compute()
    Array(0.5, dtype=float32)
    """

    k = 5

    @classmethod
    def of(cls, k: int) -> type[Self]:
        """Create a subclass of this metric for a different k."""
        return type(f"Top{k}Accuracy", (cls,), {"k": k, "__module__": cls.__module__})

    @classmethod
    def from_model_output(
        cls, *, logits: Array, labels: Array, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            logits: array of shape (..., classes).
            labels: array of integers of shape (...).
            mask: array that is True for the examples to include; if None, all are included.
        """
        _check_classes("TopKAccuracy", logits, labels)
        own = jnp.take_along_axis(logits, labels[..., None], axis=-1)
        # Of equal logits the first ranks higher, as in top_k.
        before = jnp.arange(logits.shape[-1]) < labels[..., None]
        rank = ((logits > own) | ((logits == own) & before)).sum(axis=-1)
        return super().from_model_output((rank < cls.k).astype(jnp.float32), mask)


class LastValue(Average):
    """A metric that keeps only the value from the last batch, averaged over all devices.

    It is suitable for the learning rate, for example.

    Args:
        total: sum of the values in the last batch.
        count: number of values in the last batch.

    >>> from toile.training.metrics import LastValue
    >>> one, two = LastValue.from_model_output(0.1), LastValue.from_model_output(0.05)
    >>> one.merge(two).compute()
    Array(0.05, dtype=float32)
    """

    @classmethod
    def from_model_output(
        cls, value: ArrayLike, mask: ArrayLike | None = None, **_: PyTree
    ) -> Self:
        """Create the metric for one batch.

        Args:
            value: a number, or an array whose mean is used.
            mask: array that is True for the values to include; if None, all values are included.
        """
        return super().from_model_output(value, mask)

    def merge(self, other: Self) -> Self:
        """Return `other`, or this metric if `other` has no data."""
        return tree.map(lambda old, new: jnp.where(other.count > 0, new, old), self, other)

    def _reduce_merge(self, other: Self) -> Self:
        return tree.map(jnp.add, self, other)

    @property
    def value(self) -> Any:
        """The value in the last batch."""
        return self.compute()


class CollectingMetric(Metric):
    """Collects the outputs of all batches for metrics that need all outputs at once.

    `from_outputs` selects the outputs. A subclass can compute a metric from `super().compute()`.
    Call `merge` outside compiled functions, because every call adds arrays to the tree.

    Args:
        values: a dict from the name of each output to the arrays collected so far, one for each
            batch.

    >>> from toile.training.metrics import CollectingMetric
    >>> Scores = CollectingMetric.from_outputs(("score",))
    >>> one, two = (Scores.from_model_output(score=jnp.array(x)) for x in ([1, 2], [3]))
    >>> one.merge(two).compute()
    {'score': array([1, 2, 3], dtype=int32)}
    """

    values: dict[str, tuple[Any, ...]]

    @classmethod
    def empty(cls) -> Self:
        """Create a metric without data."""
        return cls(values={})

    @classmethod
    def from_outputs(cls, names: tuple[str, ...]) -> type[Self]:
        """Create a subclass that collects some outputs of the model.

        Args:
            names: names of the outputs.
        """

        def from_model_output(made: type, **outputs: Any) -> Any:
            absent = [n for n in names if n not in outputs]
            if absent:
                raise KeyError(
                    f"{cls.__name__}.from_outputs: needed outputs {absent}, got "
                    f"{sorted(outputs)}{here()}"
                )
            return made(values={n: (jnp.atleast_1d(outputs[n]),) for n in names})

        body = {"from_model_output": classmethod(from_model_output), "__module__": cls.__module__}
        return type(f"{cls.__name__}_of_{'_'.join(names)}", (cls,), body)

    def merge(self, other: Self) -> Self:
        """Combine the data of this metric with the data of another metric.

        Raises:
            RuntimeError: the method is called inside a function that `jit` compiles.
        """
        if not self.values or not other.values:
            return other if not self.values else self
        both = {name: (*parts, *other.values[name]) for name, parts in self.values.items()}
        if any(isinstance(x, Tracer) for x in tree.leaves(both)):
            raise RuntimeError(
                "CollectingMetric: needed to be merged on the host, got traced values (return the "
                f"metric of a batch from the jitted function, and merge outside){here()}"
            )
        return type(self)(values=tree.map(np.asarray, both))

    def reduce(self) -> Self:
        """Merge the first two axes of each output, the device axis and the example axis."""
        joined = tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.values)
        return type(self)(values=joined)

    def compute(self) -> Any:
        """Return the outputs as a dict of NumPy arrays."""
        return {name: np.concatenate(parts) for name, parts in self.values.items()}


class Collection(struct.PyTreeNode):
    """A group of metrics that are created, merged and computed together, from the same outputs.

    List the metrics as annotated fields of a subclass, or pass them to `Collection.create`.

    >>> from toile import struct
    >>> from toile.training.metrics import Accuracy, Average, Collection
    >>> @struct.dataclass
    ... class Metrics(Collection):
    ...     accuracy: Accuracy
    ...     loss: Average.from_output("loss")
    >>> outputs = dict(logits=jnp.eye(2), labels=jnp.array([0, 0]), loss=jnp.array([1.0, 2.0]))
    >>> both = Metrics.empty().merge(Metrics.single_from_model_output(**outputs))
    >>> {name: float(value) for name, value in both.compute().items()}
    {'accuracy': 0.5, 'loss': 1.5}
    """

    @classmethod
    def create(cls, **metrics: type[Metric]) -> type[Self]:
        """Create a subclass with the given metrics: `Collection.create(accuracy=Accuracy)`.

        Args:
            **metrics: classes of metrics, by name.
        """
        body = {"__annotations__": dict(metrics), "__module__": cls.__module__}
        return type("_InlineCollection", (cls,), body)

    @classmethod
    def create_collection(cls, metrics: Mapping[str, type[Metric]]) -> Self:
        """Create an empty collection of metrics.

        Args:
            metrics: classes of metrics, by name.
        """
        return cls.create(**metrics).empty()

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """The class of the metric in each field."""
        kind: Any = cls
        return _kinds_of(kind)

    @classmethod
    def empty(cls) -> Self:
        """Create a collection without data."""
        return cls(**{name: kind.empty() for name, kind in cls._kinds().items()})

    @classmethod
    def single_from_model_output(cls, **outputs: PyTree) -> Self:
        """Create the collection for one batch on one device.

        Args:
            **outputs: outputs of the model, by name.
        """
        made = {name: kind.from_model_output(**outputs) for name, kind in cls._kinds().items()}
        return cls(**made)

    @classmethod
    def gather_from_model_output(cls, axis_name: str = "batch", **outputs: PyTree) -> Self:
        """Create the collection for one batch that is divided among the devices of a mapped axis.

        The metrics of all devices are merged, so the result is the same on every device.

        Args:
            axis_name: name of the axis.
            **outputs: outputs of the model on this device, by name.
        """
        single = cls.single_from_model_output(**outputs)
        return lax.all_gather(single, axis_name=axis_name).reduce()

    def merge(self, other: Self) -> Self:
        """Merge each metric with the corresponding metric in another collection."""
        names = self._kinds()
        return type(self)(**{n: getattr(self, n).merge(getattr(other, n)) for n in names})

    def reduce(self) -> Self:
        """Merge collections that are stacked along the first axis."""
        return type(self)(**{name: getattr(self, name).reduce() for name in self._kinds()})

    def compute(self) -> dict[str, Any]:
        """Return the values of the metrics, by name."""
        return {name: getattr(self, name).compute() for name in self._kinds()}

    def unreplicate(self) -> Self:
        """Return the copy on the first device."""
        return unreplicate(self)


@functools.cache
def _kinds_of(cls: Any) -> dict[str, Any]:
    hints = inspect.get_annotations(cls, eval_str=True)
    for base in cls.__mro__[1:]:
        if issubclass(base, Collection):
            hints = {**inspect.get_annotations(base, eval_str=True), **hints}
    return {name: kind for name, kind in hints.items() if isinstance(kind, type)}
