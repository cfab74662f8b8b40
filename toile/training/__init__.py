"""Tools for training loops: states, metrics, data, mixed precision, checkpoints and schedules.

Import the package's modules individually, as in Flax:
`from toile.training import train_state, checkpoints`. The package itself exports `value_and_grad`,
which differentiates with respect to the trainable parameters of a state, and `replicated`, which
runs a training step on many devices. `average` and `check_replicas` are helpers for `replicated`.
"""

from toile.training.replicas import average, check_replicas
from toile.training.replicated import replicated
from toile.training.train_state import value_and_grad

__all__ = ["average", "check_replicas", "replicated", "value_and_grad"]
