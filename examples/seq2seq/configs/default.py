"""Flax's recipe, LSTMs of width 512 and Adam at 0.003, with a warmup: all sums right, soon."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.max_digits = 3  # of the second number; the first is below 100
    config.smallest = 0  # number there is
    config.held_out = 1000  # sums that are never trained on
    config.reverse = True  # questions are read backwards
    config.both_orders = False  # whether it is trained on 358+7 too, where 7+358 is

    config.features = 512
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16: weights stay in float32

    config.learning_rate = 0.003  # reached after the warmup; falls to 0 along a cosine
    config.warmup_steps = 750  # with 250 of them 2,500 steps still leave 1% of the sums wrong
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
