"""The same network on the 4,000 included digits; takes a minute on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "digits"

    config.hidden = 500
    config.latents = 20
    config.precision = "float32"

    config.learning_rate = 0.002
    config.batch_size = 100
    config.num_steps = 4000  # 100 epochs
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 400
    config.log_every_steps = 20
    config.checkpoint_every_steps = 500
    config.keep_checkpoints = 2
    return config
