"""Flax's recipe (a hidden layer of 500, 20 latents, Adam) on tfds binarized_mnist."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "tfds"  # binarized_mnist; or "digits", the 4,000 included ones

    config.hidden = 500
    config.latents = 20
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)

    config.learning_rate = 0.001  # initial value of a cosine decay to 0
    config.batch_size = 128
    config.num_steps = 11700  # 30 epochs
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 390
    config.log_every_steps = 50
    config.checkpoint_every_steps = 390
    config.keep_checkpoints = 2
    return config
