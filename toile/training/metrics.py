"""Metrics as small trees that add up: over batches, over devices, over whole evaluations.

A metric is made from the output of a model (`from_model_output`), merged with others (`merge`), and
computed once at the end (`compute`), so that averages are exact whatever the sizes of batches.
The design and the names are those of clu.metrics.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from toile import lax, struct, tree
from toile import numpy as jnp
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.jax_utils import unreplicate

__all__ = [
    "Accuracy", "Average", "CollectingMetric", "Collection", "LastValue", "LossMetric", "Metric",
    "Perplexity", "Std", "Sum", "TopKAccuracy",
]  # fmt: skip

M = TypeVar("M", bound="Metric")


class Metric(struct.PyTreeNode):
    """What every metric can do. A subclass defines `from_model_output`, `merge` and `compute`."""

    @classmethod
    def from_model_output(cls, *args: Any, **kwargs: Any) -> Any:
        """The metric of one batch."""
        raise NotImplementedError(f"{cls.__name__}: needed from_model_output, got none{here()}")

    @classmethod
    def empty(cls) -> Any:
        """The metric of no data: merging with it changes nothing."""
        raise NotImplementedError(f"{cls.__name__}: needed empty, got none{here()}")

    def merge(self: M, other: M) -> M:
        """The metric of both parts of the data."""
        raise NotImplementedError(f"{type(self).__name__}: needed merge, got none{here()}")

    def compute(self) -> Any:
        """The value."""
        raise NotImplementedError(f"{type(self).__name__}: needed compute, got none{here()}")

    def reduce(self: M) -> M:
        """One metric of many, such as those of all devices, stacked along the first axis."""
        first = tree.map(lambda x: x[0], self)
        rest = tree.map(lambda x: x[1:], self)
        merged, _ = lax.scan(lambda left, right: (left._reduce_merge(right), None), first, rest)
        return merged

    def _reduce_merge(self: M, other: M) -> M:
        """The metric of two devices at the same step; differs from `merge` where order counts."""
        return self.merge(other)

    @classmethod
    def from_output(cls, name: str) -> type:
        """This metric over the model output called `name`.

        The output `mask` applies too where its first axis is as long.

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
    def from_fun(cls, fun: Callable[..., Any]) -> type:
        """This metric of the result of `fun`, called with the model outputs that it names.

        A dict that `fun` returns becomes keywords: `{"logits": …, "labels": …}` for Accuracy.

        >>> Error = Average.from_fun(lambda y, target: abs(y - target))
        >>> float(Error.from_model_output(y=jnp.float32(3), target=jnp.float32(1)).compute())
        2.0
        """
        return cls._derived(_only_what_it_takes(fun), f"{cls.__name__}_from_function")

    @classmethod
    def _derived(cls, value_of: Callable[..., Any], name: str) -> type:
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
    """`fun` with the keywords it has parameters for; all of them if it takes any."""
    parameters = inspect.signature(fun).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return fun
    return lambda **outputs: fun(**{k: v for k, v in outputs.items() if k in parameters})


def _masked(values: Any, mask: Any) -> tuple[Any, Any]:
    """Values of at least one axis, and a mask of their shape."""
    values = jnp.atleast_1d(values)
    if mask is None:
        return values, jnp.ones(values.shape, jnp.float32)
    mask = jnp.atleast_1d(mask)
    if mask.shape != values.shape[: mask.ndim]:
        raise ValueError(
            f"metric: needed a mask that begins the shape of the values, {values.shape}, got "
            f"{mask.shape}{here()}"
        )
    mask = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return values, jnp.broadcast_to(mask, values.shape).astype(jnp.float32)


class Average(Metric):
    """The mean of values.

    >>> batches = [jnp.array([1.0, 2.0, 3.0]), jnp.array([10.0])]
    >>> one, two = (Average.from_model_output(b) for b in batches)
    >>> float(one.merge(two).compute())
    4.0
    """

    total: Any
    count: Any

    @classmethod
    def empty(cls) -> Any:
        return cls(total=jnp.zeros((), jnp.float32), count=jnp.zeros((), jnp.float32))

    @classmethod
    def from_model_output(cls, values: Any, mask: Any = None, **_: Any) -> Any:
        values, mask = _masked(values, mask)
        total = jnp.where(mask > 0, values, 0).sum()
        return cls(total=total, count=(mask > 0).sum(dtype="float32"))

    def merge(self, other: Any) -> Any:
        return type(self)(total=self.total + other.total, count=self.count + other.count)

    def compute(self) -> Any:
        return self.total / self.count


class Sum(Average):
    """The sum of values."""

    def compute(self) -> Any:
        return self.total


class Std(Metric):
    """The standard deviation of values, over all of them."""

    total: Any
    sum_of_squares: Any
    count: Any

    @classmethod
    def empty(cls) -> Any:
        zero = jnp.zeros((), jnp.float32)
        return cls(total=zero, sum_of_squares=zero, count=zero)

    @classmethod
    def from_model_output(cls, values: Any, mask: Any = None, **_: Any) -> Any:
        values, mask = _masked(values, mask)
        kept = jnp.where(mask > 0, values, 0)
        return cls(
            total=kept.sum(), sum_of_squares=(kept**2).sum(), count=(mask > 0).sum(dtype="float32")
        )

    def merge(self, other: Any) -> Any:
        return tree.map(jnp.add, self, other)

    def compute(self) -> Any:
        mean = self.total / self.count
        # Rounding may leave a variance of zero slightly negative.
        return jnp.sqrt(jnp.maximum(self.sum_of_squares / self.count - mean**2, 0.0))


class LossMetric(Average):
    """The mean of the output called `loss`; a mask applies unless that is one number already."""

    @classmethod
    def from_model_output(cls, *, loss: Any, mask: Any = None, **_: Any) -> Any:
        return super().from_model_output(loss, mask if np.ndim(loss) else None)


class Perplexity(LossMetric):
    """The exponential of the mean of the output called `loss`."""

    def compute(self) -> Any:
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
    """How often the largest logit is that of the label.

    >>> logits = jnp.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> Accuracy.from_model_output(logits=logits, labels=jnp.array([1, 0, 0])).compute()
    Array(0.6666667, dtype=float32)
    """

    @classmethod
    def from_model_output(cls, *, logits: Any, labels: Any, mask: Any = None, **_: Any) -> Any:
        _check_classes("Accuracy", logits, labels)
        hits = (logits.argmax(axis=-1) == labels).astype(jnp.float32)
        return super().from_model_output(hits, mask)


class TopKAccuracy(Average):
    """How often the label is among the k largest logits: `TopKAccuracy.of(5)`."""

    k = 5

    @classmethod
    def of(cls, k: int) -> type:
        """The metric for another k."""
        return type(f"Top{k}Accuracy", (cls,), {"k": k, "__module__": cls.__module__})

    @classmethod
    def from_model_output(cls, *, logits: Any, labels: Any, mask: Any = None, **_: Any) -> Any:
        _check_classes("TopKAccuracy", logits, labels)
        own = jnp.take_along_axis(logits, labels[..., None], axis=-1)
        # Of equal logits the first ranks higher, as in top_k.
        before = jnp.arange(logits.shape[-1]) < labels[..., None]
        rank = ((logits > own) | ((logits == own) & before)).sum(axis=-1)
        return super().from_model_output((rank < cls.k).astype(jnp.float32), mask)


class LastValue(Average):
    """The value of the last batch (of a learning rate, say): the mean over its values.

    Later steps replace earlier ones; devices are averaged.
    """

    @classmethod
    def from_model_output(cls, value: Any, mask: Any = None, **_: Any) -> Any:
        return super().from_model_output(value, mask)

    def merge(self, other: Any) -> Any:
        return tree.map(lambda old, new: jnp.where(other.count > 0, new, old), self, other)

    def _reduce_merge(self, other: Any) -> Any:
        return tree.map(jnp.add, self, other)

    @property
    def value(self) -> Any:
        """The value."""
        return self.compute()


class CollectingMetric(Metric):
    """Keeps outputs whole, one after the other, for metrics that need all of them at once.

    `CollectingMetric.from_outputs(("logits", "labels"))` collects these; a subclass computes from
    `super().compute()`, a dict of NumPy arrays. Merge on the host: the tree grows.
    """

    values: dict[str, tuple[Any, ...]]

    @classmethod
    def empty(cls) -> Any:
        return cls(values={})

    @classmethod
    def from_outputs(cls, names: tuple[str, ...]) -> type:
        """This metric over the named outputs."""

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

    def merge(self, other: Any) -> Any:
        if not self.values or not other.values:
            return other if not self.values else self
        both = {name: (*parts, *other.values[name]) for name, parts in self.values.items()}
        if any(isinstance(x, Tracer) for x in tree.leaves(both)):
            raise RuntimeError(
                "CollectingMetric: needed to be merged on the host, got traced values (return the "
                f"metric of a batch from the jitted function, and merge outside){here()}"
            )
        return type(self)(values=tree.map(np.asarray, both))

    def reduce(self) -> Any:
        """The first two axes, devices and batch, as one."""
        joined = tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.values)
        return type(self)(values=joined)

    def compute(self) -> Any:
        return {name: np.concatenate(parts) for name, parts in self.values.items()}


class Collection(struct.PyTreeNode):
    """Several metrics, made from the same outputs, merged and computed together.

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
    def create(cls, **metrics: type) -> type:
        """A collection of named metrics: `Collection.create(accuracy=Accuracy)`."""
        body = {"__annotations__": dict(metrics), "__module__": cls.__module__}
        return type("_InlineCollection", (cls,), body)

    @classmethod
    def create_collection(cls, metrics: Mapping[str, type]) -> Any:
        """An empty collection of named metrics."""
        made: Any = cls.create(**metrics)
        return made.empty()

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """The metric of each field."""
        kind: Any = cls
        return _kinds_of(kind)

    @classmethod
    def empty(cls) -> Any:
        """The collection of no data."""
        return cls(**{name: kind.empty() for name, kind in cls._kinds().items()})

    @classmethod
    def single_from_model_output(cls, **outputs: Any) -> Any:
        """The collection of one batch on one device."""
        made = {name: kind.from_model_output(**outputs) for name, kind in cls._kinds().items()}
        return cls(**made)

    @classmethod
    def gather_from_model_output(cls, axis_name: Any = "batch", **outputs: Any) -> Any:
        """The collection of one batch over all devices of a mapped axis, the same on each."""
        single = cls.single_from_model_output(**outputs)
        return lax.all_gather(single, axis_name=axis_name).reduce()

    def merge(self, other: Any) -> Any:
        """Metric by metric."""
        names = self._kinds()
        return type(self)(**{n: getattr(self, n).merge(getattr(other, n)) for n in names})

    def reduce(self) -> Any:
        """One collection of many that are stacked along the first axis."""
        return type(self)(**{name: getattr(self, name).reduce() for name in self._kinds()})

    def compute(self) -> dict[str, Any]:
        """The values by name."""
        return {name: getattr(self, name).compute() for name in self._kinds()}

    def unreplicate(self) -> Any:
        """The copy of the first device."""
        return unreplicate(self)


@functools.cache
def _kinds_of(cls: Any) -> dict[str, Any]:
    hints = inspect.get_annotations(cls, eval_str=True)
    for base in cls.__mro__[1:]:
        if issubclass(base, Collection):
            hints = {**inspect.get_annotations(base, eval_str=True), **hints}
    return {name: kind for name, kind in hints.items() if isinstance(kind, type)}
