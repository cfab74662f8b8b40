"""Transcribe recordings with a pretrained model: `python -m examples.speech.main`.

`--folder` names the folder of a Hugging Face model, with its tokenizer. Recordings are wav files.
Each piece of 30 seconds is transcribed on its own.
"""

import sys

from absl import app, flags

from . import transcribe

FOLDER = flags.DEFINE_string("folder", None, "Folder with config.json, weights and tokenizer.json.")
AUDIO = flags.DEFINE_multi_string("audio", None, "Wav file of a recording; may be repeated.")
LANGUAGE = flags.DEFINE_string("language", None, "Code of the language, such as en; else guessed.")
TASK = flags.DEFINE_enum("task", "transcribe", ["transcribe", "translate"], "translate: to English")
STEPS = flags.DEFINE_integer("steps", 224, "Number of tokens of a piece at most.")
DTYPE = flags.DEFINE_string("dtype", None, "Dtype of the parameters, such as bfloat16.")
flags.mark_flags_as_required(["folder", "audio"])


def main(argv: list[str]) -> None:
    """Print the texts of the recordings."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    options = {"language": LANGUAGE.value, "task": TASK.value, "steps": STEPS.value}
    files = AUDIO.value or []
    found = transcribe.transcriptions(FOLDER.value, files, dtype=DTYPE.value, **options)
    for file, text in zip(files, found, strict=True):
        sys.stdout.write(f"{file}: {text}\n")


if __name__ == "__main__":
    app.run(main)
