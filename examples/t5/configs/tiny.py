"""A small model on the bytes of Python's help topics; tiny.gin has the hyperparameters."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The gin files to read; default.py explains the fields."""
    config = ml_collections.ConfigDict()
    config.gin_files = ("tiny.gin",)
    config.num_steps = 0
    return config
