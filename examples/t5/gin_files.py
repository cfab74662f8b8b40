"""The recipe and the sizes of a model, as gin files and bindings say."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import gin

from toile.training import config_flags

from . import models, train

FOLDER = Path(__file__).parent / "configs"
# Classes that take what is not given from the gin files; gin itself has no annotations.
Recipe = cast(type[train.Recipe], gin.external_configurable(train.Recipe, "Recipe"))
T5Config = cast(type[models.T5Config], gin.external_configurable(models.T5Config, "T5Config"))
FIELDS = {
    kind.__name__: [f.name for f in dataclasses.fields(kind)]
    for kind in (train.Recipe, models.T5Config)
}


def check(binding: str) -> None:
    """Refuse a binding of a field that does not exist, and suggest the one that is meant."""
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
    """The recipe and the sizes that a config, its gin files and bindings describe."""
    for binding in bindings:
        check(binding)
    gin.clear_config()
    gin.add_config_file_search_path(str(FOLDER))
    steps = [f"Recipe.num_steps = {config.num_steps}"] if config.num_steps else []
    logging.disable(logging.ERROR)  # gin logs each folder where a file is not; it raises as well
    try:
        gin.parse_config_files_and_bindings(list(config.gin_files), [*bindings, *steps])
    finally:
        logging.disable(logging.NOTSET)
    return Recipe(), T5Config()
