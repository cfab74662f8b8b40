"""A BiLSTM of width 64 on 8,000 generated reviews; takes half a minute on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "generated"
    config.train_examples = 8000
    config.held_out = 2000
    config.min_count = 2
    config.length = 32

    config.model = "bilstm"
    config.embedding = 64
    config.hidden = 64
    config.dropout = 0.1
    config.word_dropout = 0.0
    config.precision = "float32"

    config.learning_rate = 0.003
    config.clip_norm = 1.0
    config.batch_size = 100
    config.num_steps = 400  # 5 epochs
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 40
    config.log_every_steps = 10
    config.checkpoint_every_steps = 200
    config.keep_checkpoints = 2
    return config
