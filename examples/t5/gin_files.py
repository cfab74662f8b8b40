"""The recipe and the sizes of a model, as gin files and bindings say."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import gin

from . import models, train

FOLDER = Path(__file__).parent / "configs"
# Classes that take what is not given from the gin files; gin itself has no annotations.
Recipe = cast(type[train.Recipe], gin.external_configurable(train.Recipe, "Recipe"))
T5Config = cast(type[models.T5Config], gin.external_configurable(models.T5Config, "T5Config"))


def configured(
    config, bindings: Sequence[str] = ()
) -> tuple[train.Recipe, models.T5Config]:
    """The recipe and the sizes that a config, its gin files and bindings describe."""
    gin.clear_config()
    gin.add_config_file_search_path(str(FOLDER))
    steps = [f"Recipe.num_steps = {config.num_steps}"] if config.num_steps else []
    logging.disable(logging.ERROR)  # gin logs each folder where a file is not; it raises as well
    try:
        gin.parse_config_files_and_bindings(list(config.gin_files), [*bindings, *steps])
    finally:
        logging.disable(logging.NOTSET)
    return Recipe(), T5Config()
