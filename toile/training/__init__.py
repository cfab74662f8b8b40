"""What a training loop needs: states, metrics, data, mixed precision, checkpoints, schedules.

Import its modules one by one (`from toile.training import train_state, checkpoints`), as Flax's;
`value_and_grad`, which differentiates what is trainable in a state, stands here too, and so does
`replicated`, which runs a step on many devices.
"""

from toile.training.replicas import average, check_replicas
from toile.training.replicated import replicated
from toile.training.train_state import value_and_grad

__all__ = ["average", "check_replicas", "replicated", "value_and_grad"]
