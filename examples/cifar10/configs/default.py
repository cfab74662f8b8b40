"""WideResNet-28-10 on CIFAR-10: SGD, cosine decay, mixup, averaged weights, bfloat16."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "tfds"  # CIFAR-10; "shapes" generates images in its format
    config.train_examples = 50_000  # number of generated images
    config.held_out = 10_000
    config.shift = 4  # shift images at random by up to this many pixels
    config.flip = True
    config.cut_out = 16  # side length of the gray square in pixels; 0 for no square
    config.mixup = 0.2  # parameter of the beta distribution; 0 for no mixup
    config.label_smoothing = 0.0

    config.model = "wide_resnet"  # or resnet
    config.depth = 28  # depth of the wide_resnet
    config.width = 10
    config.dropout = 0.0
    config.blocks = (2, 2, 2, 2)  # blocks per stage of the resnet; these make ResNet-18
    config.features = 64
    config.precision = "mixed_bfloat16"  # or mixed_float16, float32 (weights stay in float32)

    config.learning_rate = 0.1  # the peak after warmup; cosine decay to 0
    config.warmup_steps = 400
    config.momentum = 0.9
    config.weight_decay = 5e-4
    config.ema_decay = 0.999  # decay of the averaged parameters, which evaluation uses
    config.batch_size = 128
    config.num_steps = 78_000  # 200 epochs
    config.seed = 0

    config.eval_batch_size = 500
    config.eval_every_steps = 1950
    config.log_every_steps = 100
    config.checkpoint_every_steps = 1950
    config.keep_checkpoints = 2
    return config
