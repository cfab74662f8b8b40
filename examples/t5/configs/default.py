"""T5 1.1 base, pretrained on C4 as published; default.gin has the hyperparameters."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The gin files to read; later files override earlier ones."""
    config = ml_collections.ConfigDict()
    config.gin_files = ("default.gin",)  # other sizes add small.gin, large.gin, xl.gin or xxl.gin
    config.num_steps = 0  # 0 for the value in the files
    return config
