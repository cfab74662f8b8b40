"""The recipe of default.py with batches of 4,096 rows, LAMB, longer warmup, and remat."""

import runpy
from pathlib import Path

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = runpy.run_path(str(Path(__file__).with_name("default.py")))["get_config"]()
    config.batch_size = 4096  # over all devices
    config.remat = True

    # 16 times as many rows, so 4 times AdamW's rate: the square root, as in the LAMB paper.
    config.optimizer = "lamb"
    config.schedule = "cosine"
    config.learning_rate = 0.0064
    config.warmup_steps = 2000
    config.beta2 = 0.999
    config.weight_decay = 0.01
    config.clip_norm = 1.0
    config.num_steps = 31_250  # as many rows as 500,000 steps of 256
    return config
