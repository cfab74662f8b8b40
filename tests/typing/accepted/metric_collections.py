"""Metrics that are summed up over batches, made by `create` or declared in a class."""
import toile
import toile.numpy as jnp
from toile import Array, struct
from toile.training import metrics

Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"),
    error=metrics.Average.from_fun(lambda loss: jnp.sqrt(loss)),
    accuracy=metrics.Accuracy, top2=metrics.TopKAccuracy.of(2),
)


class Losses(metrics.Collection):
    """A collection whose metrics are attributes."""

    loss: metrics.LossMetric
    accuracy: metrics.Accuracy


@struct.dataclass
class Largest(metrics.Metric):
    """A metric of one's own."""

    value: Array

    @classmethod
    def from_model_output(cls, *, loss: Array, **_: Array) -> "Largest":
        """The metric of a batch."""
        return cls(jnp.max(loss))

    def merge(self, other: "Largest") -> "Largest":
        """The metric of both."""
        return Largest(jnp.maximum(self.value, other.value))

    def compute(self) -> Array:
        """The largest loss."""
        return self.value


@toile.jit
def measure(seen: metrics.Collection, logits: Array, labels: Array) -> metrics.Collection:
    """The metrics with this batch added."""
    loss = jnp.mean(logits, -1)
    return seen.merge(Metrics.single_from_model_output(loss=loss, logits=logits, labels=labels))

logits, labels = jnp.zeros((4, 3)), jnp.zeros(4, jnp.int32)
seen = measure(Metrics.empty(), logits, labels)
print({name: float(value) for name, value in seen.compute().items()})

loss = jnp.ones(4)
both = Losses.single_from_model_output(loss=loss, logits=logits, labels=labels)
total = float(both.merge(both).loss.total)
one = Largest.from_model_output(loss=loss)
print(total, one.merge(one).compute().shape, metrics.Average.from_model_output(loss).count)
