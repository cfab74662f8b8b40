"""Classify images with a pretrained model: `python -m examples.vision.main`.

`--folder` names the folder of a Hugging Face model. The most likely labels of each image are
printed. CLIP chooses among the texts that `--label` names.
"""

import sys

from absl import app, flags

from . import classify

FOLDER = flags.DEFINE_string("folder", None, "Folder with config.json and weights.")
IMAGE = flags.DEFINE_multi_string("image", None, "File of an image; may be repeated.")
LABEL = flags.DEFINE_multi_string("label", [], "Text that CLIP compares with images; repeated.")
MOST = flags.DEFINE_integer("most", 5, "Number of labels to print for each image.")
DTYPE = flags.DEFINE_string("dtype", None, "Dtype of the parameters, such as bfloat16.")
flags.mark_flags_as_required(["folder", "image"])


def main(argv: list[str]) -> None:
    """Print the labels of the images."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    files = IMAGE.value or []
    found = classify.probabilities(FOLDER.value, files, LABEL.value, DTYPE.value)
    for file, rows in zip(files, found, strict=True):
        sys.stdout.write(f"{file}\n")
        for label, probability in rows[: MOST.value]:
            sys.stdout.write(f"  {probability:6.1%}  {label}\n")


if __name__ == "__main__":
    app.run(main)
