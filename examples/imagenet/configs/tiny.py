"""ResNet-18 with 16 filters on 64 x 64 crops of generated shapes; takes minutes on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "shapes"
    config.train_examples = 2000
    config.held_out = 500
    config.stored_size = 224
    config.image_size = 64
    config.smallest_area = 0.5
    config.eval_share = 1.0
    config.loader_threads = 1

    config.model = "resnet18"
    config.num_filters = 16
    config.precision = "float32"
    config.label_smoothing = 0.1

    config.optimizer = "sgd"
    config.schedule = "cosine"
    config.learning_rate = 0.5
    config.warmup_steps = 40
    config.momentum = 0.9
    config.weight_decay = 1e-4
    config.trust_coefficient = 0.001
    config.batch_size = 32
    config.num_steps = 700
    config.seed = 0

    config.eval_batch_size = 125
    config.eval_every_steps = 175
    config.log_every_steps = 14
    config.checkpoint_every_steps = 175
    config.keep_checkpoints = 2
    return config
