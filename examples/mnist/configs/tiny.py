"""A network with a few thousand weights on 600 digits, for tests; it is not accurate."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "digits"
    config.train_examples = 600
    config.shift = 1

    config.features = (4, 8)
    config.hidden = 32

    config.learning_rate = 0.1
    config.warmup_steps = 5
    config.momentum = 0.9
    config.batch_size = 50
    config.num_epochs = 2
    config.seed = 0

    config.eval_batch_size = 250
    config.log_every_steps = 5
    config.checkpoint_every_steps = 4
    config.keep_checkpoints = 2
    return config
