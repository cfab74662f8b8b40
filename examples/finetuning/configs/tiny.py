"""A small base model, and recipes that take less than a minute each on two cores."""

import ml_collections

# What differs from LoRA, by recipe.
CHANGES = {
    "full": {"learning_rate": 0.001, "accumulate": 1, "num_steps": 100},
    "prompt": {"learning_rate": 0.1, "accumulate": 1, "num_steps": 100, "pack": False},
    "probe": {"learning_rate": 0.05, "accumulate": 1, "num_steps": 200, "batch_size": 64},
    "dpo": {"learning_rate": 0.005, "accumulate": 1, "num_steps": 60, "length": 64},
}


def get_config(method: str = "lora") -> ml_collections.ConfigDict:
    """The hyperparameters of a recipe; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.method = method
    config.folder = ""
    config.base_folder = "runs/finetuning-base"
    config.base_model = {
        "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 256,
    }  # fmt: skip
    config.base_length = 128
    config.base_batch_size = 8
    config.base_steps = 400
    config.base_learning_rate = 0.004
    config.dtype = ""

    config.dataset = "library"
    config.file = ""
    config.held_out = 9
    config.length = 128
    config.pack = True

    config.select = ("**/kernel",)
    config.rank = 8
    config.alpha = 16.0
    config.bits = 4
    config.group = 32
    config.prompt_length = 16
    config.beta = 0.1
    config.pairs = 512
    config.window = 32
    config.windows = 1000
    config.remat = True

    config.learning_rate = 0.01
    config.warmup_steps = 5
    config.weight_decay = 0.0
    config.batch_size = 8
    config.accumulate = 2
    config.num_steps = 100
    config.log_every_steps = 10
    config.seed = 0
    config.update(CHANGES.get(method, {}))
    return config
