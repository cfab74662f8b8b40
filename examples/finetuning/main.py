"""Fine-tune a language model: `python -m examples.finetuning.main`.

`--config.method` chooses the recipe: full, lora, qlora, prompt, probe or dpo. `--config=FILE`
chooses the hyperparameters, and `--config.folder` is the Hugging Face folder of the base model.
"""

from pathlib import Path

from absl import app, flags, logging

from toile.training import config_flags

from . import train

WORKDIR = flags.DEFINE_string("workdir", "runs/finetuning", "Folder for metrics and results.")
CONFIG = config_flags.DEFINE_config_file("config", Path(__file__).parent / "configs" / "tiny.py")
config_flags.DEFINE_checks()


def main(argv: list[str]) -> None:
    """Train a model, and print what it reaches."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # do not report each save
    train.train_and_evaluate(CONFIG.value, WORKDIR.value)


if __name__ == "__main__":
    app.run(main)
