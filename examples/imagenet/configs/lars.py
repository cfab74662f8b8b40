"""The recipe of default.py with batches of 16,384, LARS and quadratic decay."""

import runpy
from pathlib import Path

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = runpy.run_path(str(Path(__file__).with_name("default.py")))["get_config"]()
    config.batch_size = 16_384
    config.optimizer = "lars"
    config.schedule = "square"
    config.learning_rate = 0.39  # 25 at this batch size
    config.warmup_steps = 390  # 5 epochs
    config.momentum = 0.9
    config.weight_decay = 1e-4
    config.num_steps = 7038  # 90 epochs
    config.eval_every_steps = 391
    config.checkpoint_every_steps = 391
    return config
