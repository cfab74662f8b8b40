"""The architectures by the `model_type` of config.json, and how to load one from a folder."""

import toile
from toile.interop import huggingface

from . import whisper

ARCHITECTURES = {kind: module for module in (whisper,) for kind in module.MODEL_TYPES}


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
    shapes = toile.eval_shape(model.init, toile.random.key(0), *module.inputs(config))
    table = module.table(config)
    return model, huggingface.load(folder, shapes, table, dtype=dtype, device=device), config
