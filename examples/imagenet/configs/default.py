"""ResNet-50 on ImageNet in bfloat16: Flax's recipe with label smoothing (100 epochs)."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "imagenet2012"  # or "imagenette", or "shapes" (generated images)
    config.train_examples = 20_000  # number of generated images
    config.held_out = 2_000
    config.stored_size = 224
    config.image_size = 224  # height and width of the crops
    config.smallest_area = 0.08  # minimum share of the image's area in a random crop
    config.eval_share = 0.875  # share of the image's side in the center crop
    config.loader_threads = 8

    config.model = "resnet50"  # or resnet18, resnet34, resnet101, resnet152
    config.num_filters = 64
    config.precision = "mixed_bfloat16"  # or mixed_float16, float32 (weights stay in float32)
    config.label_smoothing = 0.1

    config.optimizer = "sgd"  # or "lars", "lamb"
    config.schedule = "cosine"  # or "square"
    config.learning_rate = 0.1  # peak rate after warmup, per 256 images
    config.warmup_steps = 6255  # 5 epochs
    config.momentum = 0.9
    config.weight_decay = 1e-4
    config.trust_coefficient = 0.001  # for lars
    config.batch_size = 1024  # over all devices
    config.num_steps = 125_100  # 100 epochs
    config.seed = 0

    config.eval_batch_size = 1000
    config.eval_every_steps = 6255
    config.log_every_steps = 100
    config.checkpoint_every_steps = 2502
    config.keep_checkpoints = 2
    return config
