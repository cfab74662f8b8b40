"""Flax's recipe for MNIST (SGD with momentum, batches of 128), with a schedule and shifts."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "digits"  # the 5,000 included ones; "tfds" for all 70,000
    config.train_examples = 0  # number of digits to use; 0 for all
    config.shift = 1  # shift images at random by up to this many pixels

    config.features = (32, 64)  # channels of the convolutions
    config.hidden = 256

    config.learning_rate = 0.1  # peak after warmup; cosine decay follows
    config.warmup_steps = 30
    config.momentum = 0.9
    config.batch_size = 128
    config.num_epochs = 12
    config.seed = 0

    config.eval_batch_size = 250
    config.log_every_steps = 10
    config.checkpoint_every_steps = 50
    config.keep_checkpoints = 2
    return config
