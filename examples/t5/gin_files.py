"""The recipe and the sizes of a model, from gin files and bindings."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import gin

from toile.training import config_flags

from . import models, train

FOLDER = Path(__file__).parent / "configs"
# Classes whose missing arguments come from the gin files; gin itself has no annotations.
Recipe = cast(type[train.Recipe], gin.external_configurable(train.Recipe, "Recipe"))
T5Config = cast(type[models.T5Config], gin.external_configurable(models.T5Config, "T5Config"))
FIELDS = {
    kind.__name__: [f.name for f in dataclasses.fields(kind)]
    for kind in (train.Recipe, models.T5Config)
}


def check(binding: str) -> None:
    """Raise an error for a binding of a field that does not exist, and suggest a similar field."""
    owner, _, field = binding.partition("=")[0].strip().rpartition(".")
    if owner in FIELDS and field not in FIELDS[owner]:
        raise ValueError(
            config_flags.unknown_field(f"--gin={binding}", owner, field, FIELDS[owner])
        )
    if owner and owner not in FIELDS:
        either = " or ".join(FIELDS)
        raise ValueError(config_flags.unknown_field(f"--gin={binding}", either, owner, FIELDS))


def configured(
    config, bindings: Sequence[str] = ()
) -> tuple[train.Recipe, models.T5Config]:
    """Return the recipe and the sizes from a config, its gin files and bindings."""
    for binding in bindings:
        check(binding)
    gin.clear_config()
    gin.add_config_file_search_path(str(FOLDER))
    steps = [f"Recipe.num_steps = {config.num_steps}"] if config.num_steps else []
    logging.disable(logging.ERROR)  # gin logs missing files and also raises an error
    try:
        gin.parse_config_files_and_bindings(list(config.gin_files), [*bindings, *steps])
    finally:
        logging.disable(logging.NOTSET)
    return Recipe(), T5Config()
