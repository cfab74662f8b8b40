"""Losses, and the numbers of an evaluation."""
import toile.numpy as jnp
from toile import Array, nn, optim


def metrics(logits: Array, labels: Array) -> dict[str, Array]:
    """The mean loss and the accuracy."""
    one_hot = nn.one_hot(labels, logits.shape[-1])
    loss = optim.softmax_cross_entropy(logits, one_hot).mean()
    accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
    return {"loss": loss, "accuracy": accuracy, "perplexity": jnp.exp(loss)}

found = metrics(jnp.zeros((4, 3)), jnp.zeros(4, jnp.int32))
print({name: f"{value:.3f}" for name, value in found.items()})
