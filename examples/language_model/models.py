"""The architectures by the `model_type` of config.json, and a function that loads a model."""

import toile
import toile.numpy as jnp
from toile.interop import huggingface

from . import bert, gemma, gpt2, llama, t5

ARCHITECTURES = {
    kind: module for module in (llama, gpt2, bert, t5, gemma) for kind in module.MODEL_TYPES
}


def architecture(config: dict):
    """Return the module of this package that implements a configuration."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"needed one of {', '.join(sorted(ARCHITECTURES))} as model_type in config.json, got "
            f"{kind!r} (add a file with its modules and its table)"
        )
    return ARCHITECTURES[kind]


def load(folder, dtype=None, device=None):
    """Return the module, its variables and the configuration of a model in a folder."""
    config = huggingface.load_config(folder)
    module = architecture(config)
    model = module.model(config)
    tokens = jnp.zeros((1, 2), jnp.int32)
    inputs = (tokens, tokens) if hasattr(model, "encode") else (tokens,)
    shapes = toile.eval_shape(model.init, toile.random.key(0), *inputs)
    table = module.table(config)
    return model, huggingface.load(folder, shapes, table, dtype=dtype, device=device), config
