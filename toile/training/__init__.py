"""What a training loop needs: states, metrics, data, mixed precision, checkpoints, schedules.

Import its modules one by one (`from toile.training import train_state, checkpoints`), as Flax's;
`value_and_grad`, which differentiates what is trainable in a state, stands here too.
"""

from toile.training.train_state import value_and_grad

__all__ = ["value_and_grad"]
