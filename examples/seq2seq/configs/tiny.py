"""LSTMs of width 128 on sums of two-digit numbers; takes a minute on one core."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.max_digits = 2
    config.smallest = 10
    config.held_out = 500
    config.reverse = True
    config.both_orders = True  # otherwise one or two held-out sums stay wrong

    config.features = 128
    config.precision = "float32"

    config.learning_rate = 0.008
    config.warmup_steps = 500
    config.clip_norm = float("inf")  # no warmup, as in Flax's example
    config.batch_size = 128
    config.num_steps = 2000
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 200
    config.show = 5
    config.log_every_steps = 20
    config.checkpoint_every_steps = 100
    config.keep_checkpoints = 2
    return config
