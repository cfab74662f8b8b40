"""T5 1.1 base, pretrained on C4 as published: default.gin has the numbers."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """Which gin files are read; a later one changes what an earlier one says."""
    config = ml_collections.ConfigDict()
    config.gin_files = ("default.gin",)  # with small.gin, large.gin, xl.gin or xxl.gin: other sizes
    config.num_steps = 0  # 0: what the files say
    return config
