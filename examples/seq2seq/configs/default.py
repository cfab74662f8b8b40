"""Flax's recipe (LSTMs of width 512, Adam at 0.003) with a warmup, which gets all sums right."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.max_digits = 3  # digits of the second number; the first number is below 100
    config.smallest = 0  # the smallest number in a sum
    config.held_out = 1000  # sums that are not used for training
    config.reverse = True  # read questions backward
    config.both_orders = False  # train on 358+7 as well as 7+358

    config.features = 512
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)

    config.learning_rate = 0.003  # peak after warmup; then cosine decay to 0
    config.warmup_steps = 750  # with 250, 1% of the sums are wrong after 2,500 steps
    config.clip_norm = 1.0
    config.batch_size = 128
    config.num_steps = 2500
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 200
    config.show = 5  # answers printed at each evaluation
    config.log_every_steps = 20
    config.checkpoint_every_steps = 200
    config.keep_checkpoints = 2
    return config
