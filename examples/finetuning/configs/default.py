"""QLoRA of a model in a Hugging Face folder on your own chats, for one GPU."""

import ml_collections

# What differs from QLoRA, by recipe.
CHANGES = {
    "full": {"learning_rate": 1e-5},
    "lora": {},
    "prompt": {"learning_rate": 0.01},
    "probe": {"learning_rate": 0.001, "accumulate": 1, "batch_size": 64},
    "dpo": {"learning_rate": 5e-5},
}


def get_config(method: str = "qlora") -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.method = method  # full, lora, qlora, prompt, probe or dpo
    config.folder = "models/qwen3"  # the base model; if empty, a small one is trained
    config.base_folder = "runs/finetuning-base"  # where the small model is kept
    config.base_model = {
        "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
        "num_key_value_heads": 4, "intermediate_size": 1536,
    }  # fmt: skip
    config.base_length = 256
    config.base_batch_size = 32
    config.base_steps = 2000
    config.base_learning_rate = 0.001
    config.dtype = "bfloat16"  # of parameters that are not quantized; "" for that of the files

    config.dataset = "chats"  # or "file" (a text file), "library", "topics" (the included texts)
    config.file = "chats.jsonl"  # one JSON object per line, such as {"messages": [...]}
    config.held_out = 20  # every twentieth text of a file is held out
    config.length = 2048  # tokens in a row
    config.pack = True  # put several texts into a row

    config.select = ("layer_*/**/kernel",)  # the parameters that get adapters
    config.rank = 16
    config.alpha = 32.0
    config.bits = 4  # of quantized parameters
    config.group = 64
    config.prompt_length = 32  # number of additional tokens
    config.beta = 0.1  # of DPO
    config.pairs = 4096
    config.window = 64  # tokens that the linear probe classifies
    config.windows = 10_000
    config.remat = True  # compute layers again in the backward pass

    config.learning_rate = 2e-4
    config.warmup_steps = 20
    config.weight_decay = 0.0
    config.batch_size = 4
    config.accumulate = 8  # batches per update
    config.num_steps = 4000  # batches
    config.log_every_steps = 20
    config.seed = 0
    config.update(CHANGES.get(method, {}))
    return config
