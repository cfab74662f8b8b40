"""The actions of the subcommands: functions of the parsed arguments, loaded when first used."""

from __future__ import annotations

from toile.engine.lazy import attach_table, names_of

_HOMES = {
    "toile.command.example_projects": "list_examples new",
    "toile.command.kernel_cache": "cache",
    "toile.command.completions": "completion",
    "toile.command.conversions": "convert",
    "toile.command.explanations": "doctor explain",
    "toile.command.exports": "export",
    "toile.command.programs": "run",
    "toile.command.serving_models": "serve",
}

__getattr__, __dir__ = attach_table(__name__, names_of(_HOMES))
