"""A ResNet with four stages of one block and 16 features, on generated shapes; takes minutes."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "shapes"
    config.train_examples = 4000
    config.held_out = 1000
    config.shift = 3
    config.flip = True
    config.cut_out = 0
    config.mixup = 0.1
    config.label_smoothing = 0.0

    config.model = "resnet"
    config.depth = 10
    config.width = 1
    config.dropout = 0.0
    config.blocks = (1, 1, 1, 1)
    config.features = 16
    config.precision = "float32"

    config.learning_rate = 0.1
    config.warmup_steps = 60
    config.momentum = 0.9
    config.weight_decay = 5e-4
    config.ema_decay = 0.99
    config.batch_size = 32
    config.num_steps = 700
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 140
    config.log_every_steps = 14
    config.checkpoint_every_steps = 140
    config.keep_checkpoints = 2
    return config
