"""Complete a text with a pretrained model: `python -m examples.language_model.main`.

`--folder` names the folder of a Hugging Face model, with its tokenizer. The program
prints the most likely tokens. A model with an encoder and a decoder, such as T5, answers the prompt
instead of continuing it.
"""

import sys

from absl import app, flags

import toile
from toile.interop import huggingface

from . import generate, models

FOLDER = flags.DEFINE_string("folder", None, "Folder with config.json, weights and tokenizer.json.")
PROMPT = flags.DEFINE_multi_string("prompt", None, "Text to complete; may be repeated.")
STEPS = flags.DEFINE_integer("steps", 40, "Number of tokens to append at most.")
DTYPE = flags.DEFINE_string("dtype", None, "Dtype of the parameters, such as bfloat16.")
flags.mark_flags_as_required(["folder", "prompt"])


def completions(folder, prompts: list[str], steps: int, dtype=None) -> list[str]:
    """Return the text that follows each prompt."""
    tokenizer = huggingface.load_tokenizer(folder)
    model, variables, config = models.load(folder, dtype=dtype)
    if isinstance(model, models.bert.Bert):
        raise ValueError(f"needed a model that writes text, got {config['model_type']} in {folder}")
    tokens, mask = generate.padded([tokenizer.encode(prompt) for prompt in prompts])
    ids = {**config, **huggingface.load_generation_config(folder)}
    ends = ids.get("eos_token_id") or ()
    ends = tuple(ends) if isinstance(ends, list | tuple) else (ends,)
    given = toile.numpy.asarray(tokens), toile.numpy.asarray(mask)
    if hasattr(model, "encode"):
        start = ids.get("decoder_start_token_id", 0)
        rows = generate.answer(model, variables, *given, start=start, steps=steps, ends=ends)
    else:
        rows = generate.complete(model, variables, *given, steps=steps, ends=ends)
    return [tokenizer.decode(generate.until(row, ends)) for row in rows.tolist()]


def main(argv: list[str]) -> None:
    """Print the prompts with their completions."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    prompts = PROMPT.value or []
    found = completions(FOLDER.value, prompts, STEPS.value, DTYPE.value)
    for prompt, text in zip(prompts, found, strict=True):
        sys.stdout.write(f"{prompt}|{text}\n")


if __name__ == "__main__":
    app.run(main)
