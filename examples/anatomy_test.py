"""Tests that all examples have the same parts, short training loops, and rows in the table."""

import json
import re
import sys
from pathlib import Path

import pytest

from . import __main__ as examples

FOLDER = Path(__file__).parent
MAINS = FOLDER.glob("*/main.py")
# these load weights of others and train nothing
PRETRAINED = {"language_model": "generate.py", "vision": "images.py", "speech": "generate.py"}
FINISHED = sorted(main.parent.name for main in MAINS if (main.parent / "README.md").exists())


@pytest.mark.parametrize("name", PRETRAINED)
def test_an_example_of_pretrained_models_has_its_parts(name):
    folder = FOLDER / name
    parts = f"main.py models.py layers.py {PRETRAINED[name]} README.md"
    assert [part for part in parts.split() if not (folder / part).exists()] == []
    assert list(folder.glob("*_test.py"))
    listed = (folder / "models.py").read_text()
    tables = [path for path in folder.glob("*.py") if "def table(" in path.read_text()]
    for path in tables:
        text = path.read_text()
        assert path.stem in listed and f"`{path.name}`" in (folder / "README.md").read_text()
        assert len(text.splitlines()) < 300 and "from examples" not in text
        assert all(part in text for part in ("MODEL_TYPES =", "class Config", "def model("))
        imported = re.findall(r"^from \. import (.*)$", text, re.M)
        assert imported == ["layers"]  # an architecture can be copied with one other file
    assert tables


@pytest.mark.parametrize("name", sorted({*FINISHED} - {*PRETRAINED}))
def test_an_example_has_its_parts(name):
    folder = FOLDER / name
    parts = "main.py train.py models.py input_pipeline.py configs/default.py configs/tiny.py"
    assert [part for part in parts.split() if not (folder / part).exists()] == []
    assert list(folder.glob("*_test.py"))
    assert len((folder / "train.py").read_text().splitlines()) < 300
    text = (folder / "train.py").read_text()
    assert "from examples" not in text and "def train_step" in text and "def evaluate" in text
    readme = (folder / "README.md").read_text()
    for picture in folder.glob("*.png"):
        assert picture.stat().st_size <= 60_000 and picture.name in readme


def test_the_first_example_is_short_enough_to_read_at_once():
    text = (FOLDER / "mnist" / "train.py").read_text()
    assert len(text.splitlines()) <= 130
    assert not [word for word in ("Policy", "process_", "replicated", "devices") if word in text]


def test_rows_name_configs_that_exist():
    runs = [run for run in examples.RUNS if isinstance(run, examples.Run)]
    assert len({run.workdir for run in runs}) == len(runs)
    for run in runs:
        assert (FOLDER / run.example / "configs" / f"{run.config}.py").exists()


def test_the_table_shows_what_was_reached(tmp_path, monkeypatch, capsys):
    script = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True)
(folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "eval_accuracy": float(sys.argv[2])}))
"""
    monkeypatch.chdir(tmp_path)
    value = {"good": "0.95", "bad": "0.5"}

    def command(run, steps):
        return [sys.executable, "-c", script, str(run.workdir), value[run.example]]

    monkeypatch.setattr(examples.Run, "command", command)
    runs = (examples.Run("good", reach=0.9), examples.Run("bad", reach=0.9))
    monkeypatch.setattr(examples, "RUNS", runs)
    assert examples.main(["good"]) == 0
    (tmp_path / "runs" / "good").rename(tmp_path / "before")
    assert examples.main([]) == 1
    less = (examples.Run("bad", reach=0.6, at_most=True, title="lower is better"),)
    monkeypatch.setattr(examples, "RUNS", less)
    assert examples.main([]) == 0
    monkeypatch.setattr(examples, "RUNS", runs)
    text = capsys.readouterr().out
    assert "0.95" in text and "failed or missed the required result: bad" in text
    with pytest.raises(SystemExit, match="needed names of examples, good, bad, got ugly"):
        examples.main(["ugly"])
    assert json.loads((tmp_path / "before" / "metrics.jsonl").read_text())["step"] == 1
