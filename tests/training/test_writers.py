"""Metric writers: what the console, CSV and JSON lines show; several at once."""

import csv
import io
import json

import numpy as np
import pytest

from toile import numpy as jnp
from toile.metrics import events
from toile.metrics.writers import (
    ConsoleWriter,
    CsvWriter,
    JsonlWriter,
    MetricWriter,
    MultiWriter,
    TensorBoardWriter,
    create_default_writer,
)


def test_console():
    stream = io.StringIO()
    with ConsoleWriter(stream) as writer:
        writer.write_hparams({"lr": 0.1, "batch": 32})
        writer.write_scalars(10, {"loss": jnp.float32(0.123456), "n": 3})
        writer.write_scalars(20, {"loss": np.float64(2)})
        writer.write_texts(20, {"sample": "hello"})
        writer.write_images(20, {"i": np.zeros((2, 2))})
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["lr=0.1  batch=32", "step 10  loss 0.1235  n 3"]
    assert lines[2].startswith("step 20  loss 2  (") and lines[2].endswith(" steps/s)")
    assert lines[3] == "step 20  sample: hello"
    with pytest.raises(ValueError, match=r"one number for 'x', got shape \(2,\)"):
        writer.write_scalars(0, {"x": jnp.ones(2)})


def test_json_lines_are_continued(tmp_path):
    path = tmp_path / "deep" / "m.jsonl"
    for step in (1, 2):
        with JsonlWriter(path) as writer:
            writer.write_scalars(step, {"loss": jnp.float32(0.5), "bad": float("nan")})
    writer = JsonlWriter(path)
    writer.write_hparams({"lr": 0.1, "shape": (1, 2), "clip": float("inf")})
    writer.write_texts(3, {"note": "é"})
    strict = json.JSONDecoder(parse_constant=pytest.fail).decode  # JSON has no NaN, no Infinity
    rows = [strict(line) for line in path.read_text().splitlines()]
    assert [r.get("step") for r in rows] == [1, 2, None, 3]
    assert rows[0]["loss"] == 0.5 and np.isnan(float(rows[0]["bad"]))
    assert rows[2]["hparams"] == {"lr": 0.1, "shape": "(1, 2)", "clip": "inf"}
    writer.close()


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_per_step_and_grows_columns(tmp_path):
    path = tmp_path / "m.csv"
    with CsvWriter(path) as writer:
        writer.write_scalars(1, {"loss": 0.5})
        writer.write_scalars(1, {"lr": 0.1})
        writer.write_scalars(2, {"loss": 0.25})
        assert len(read_csv(path)) == 1
        writer.write_scalars(3, {"accuracy": jnp.float32(1.0)})
    with CsvWriter(path) as writer:  # a resumed run
        writer.write_scalars(4, {"loss": 0.125, "epoch": 7})
    rows = read_csv(path)
    assert list(rows[0]) == ["step", "loss", "lr", "accuracy", "epoch"]
    assert [r["step"] for r in rows] == ["1", "2", "3", "4"]
    assert [r["loss"] for r in rows] == ["0.5", "0.25", "", "0.125"]
    assert rows[3]["epoch"] == "7" and rows[0]["epoch"] == ""


def test_every_kind_reaches_tensorboard(tmp_path):
    with MultiWriter([MetricWriter(), TensorBoardWriter(tmp_path)]) as writer:
        writer.write_scalars(1, {"s": jnp.float32(2)})
        writer.write_images(1, {"i": np.zeros((5, 4, 4, 1), np.uint8)})
        writer.write_audios(1, {"a": np.zeros((4, 8, 1))}, sample_rate=8000)
        writer.write_texts(1, {"t": "text"})
        writer.write_histograms(1, {"h": np.arange(6)}, num_buckets={"h": 2})
        writer.write_hparams({"lr": 0.1})
        writer.flush()
    found = {v.tag: v for v in events.read(tmp_path)}
    assert [v.plugin for v in found.values()] == [
        "scalars", "images", "audio", "text", "histograms", "hparams",
    ]  # fmt: skip
    assert found["i"].data.shape == (7,) and found["a"].data.shape == (4, 2)
    assert found["h"].data.tolist() == [[0.0, 2.5, 3.0], [2.5, 5.0, 3.0]]


def test_the_default_writer(tmp_path, capsys):
    with create_default_writer(tmp_path, csv=True) as writer:
        writer.write_scalars(3, {"loss": 1.0})
    assert capsys.readouterr().err == "step 3  loss 1\n"
    names = sorted(p.name.split(".")[0] for p in tmp_path.iterdir())
    assert names == ["events", "metrics", "metrics"]
    with create_default_writer(console=False) as writer:
        writer.write_scalars(3, {"loss": 1.0})
