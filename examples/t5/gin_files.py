"""The recipe and the sizes of a model, as gin files and bindings say."""

from collections.abc import Sequence
from pathlib import Path

import gin

from . import models, train

FOLDER = Path(__file__).parent / "configs"
Recipe = gin.external_configurable(train.Recipe, "Recipe")
T5Config = gin.external_configurable(models.T5Config, "T5Config")


def configured(config, bindings: Sequence[str] = ()):
    """The recipe and the sizes that a config, its gin files and bindings describe."""
    gin.clear_config()
    gin.add_config_file_search_path(str(FOLDER))
    steps = [f"Recipe.num_steps = {config.num_steps}"] if config.num_steps else []
    gin.parse_config_files_and_bindings(list(config.gin_files), [*bindings, *steps])
    return Recipe(), T5Config()
