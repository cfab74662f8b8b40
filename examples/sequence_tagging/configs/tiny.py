"""One layer of LSTMs of width 96 on 74 files of Python's library; takes a minute on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "python"
    config.train_file = ""
    config.test_file = ""
    config.column = "upos"
    config.files = 0
    config.held_out = 5
    config.min_count = 2
    config.length = 128

    config.model = "bilstm"
    config.features = 96
    config.layers = 1
    config.heads = 4
    config.dropout = 0.2
    config.precision = "float32"

    config.learning_rate = 0.004
    config.warmup_steps = 30
    config.weight_decay = 0.01
    config.clip_norm = 1.0
    config.batch_size = 16
    config.num_steps = 400
    config.seed = 0

    config.eval_batch_size = 32
    config.eval_every_steps = 40
    config.log_every_steps = 10
    config.checkpoint_every_steps = 100
    config.keep_checkpoints = 2
    return config
