"""Reports: one file that loads nothing, with everything that a run has, safe to open."""

import base64
import html.parser
import io
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import dataclass

import numpy as np
import pytest

import toile.linen as nn
from toile import random
from toile.errors import UnreadableFileError
from toile.metrics.writers import CsvWriter, JsonlWriter, TensorBoardWriter, create_default_writer
from toile.training import checkpoints, html_pages, svg_curves
from toile.training.report import Report, main

VOID = {"meta", "img", "br"}


class Page(html.parser.HTMLParser):
    """The text and the attributes of a page, whose elements must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.attributes, self.names = [], [], [], set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def pixels(data):
    """The pixels of a PNG as media.png writes them."""
    width, height = struct.unpack(">II", data[16:24])
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[data[25]]
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + length]), np.uint8)
    return rows.reshape(height, 1 + width * channels)[:, 1:].reshape(height, width, channels)


def pictures(text):
    found = re.findall(r"data:image/png;base64,([\w+/=]+)", text)
    return [pixels(base64.b64decode(x)) for x in found]


@dataclass
class Settings:
    rate: float = 0.25
    model: object = None


def full_report():
    report = Report("A <run>")
    report.config(Settings(model={"width": 321}))
    for step in range(1, 50):
        report.metrics(step, {"train_loss": np.float32(1 / step), "eval_loss": 2 / step})
    report.metrics(50, {"train_loss": float("nan"), "speed": 7})
    report.figure("weights", np.linspace(-1, 3, 12).reshape(3, 4), "of the first layer")
    report.text("by <kind>", "  a & b\n  c")
    report.layers("| table of \x1b[1mlayers\x1b[0m |")
    return report


def test_a_page_has_every_part_and_loads_nothing(tmp_path):
    path = full_report().write(tmp_path / "new" / "report.html")
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    page = Page(path.read_text())
    text = "".join(page.text)
    for part in ("A <run>", "model.width", "321", "by <kind>", "  a & b\n  c", "of the first layer",
                 "black -1, white 3", "| table of layers |", "toile", "Python", "numpy", "devices",
                 "train_loss", "speed", "1 not finite", "0.0408163 (step 49)"):  # fmt: skip
        assert part in text
    assert not page.names & {"script", "link", "iframe", "object", "base"}
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action"):
            assert tag == "img" and value.startswith("data:image/png;base64,")
        assert not name.startswith("on")
    assert "http://" not in path.read_text() and "https://" not in path.read_text()
    assert "default-src 'none'" in path.read_text()


def test_what_comes_from_outside_is_escaped():
    report = Report("<script>1</script>")
    bad = '"><script>alert(1)</script>'
    report.config({bad: bad})
    report.metrics(1, {bad: 1.0})
    report.figure(bad, np.zeros((2, 2)), bad)
    report.text(bad, bad)
    report.layers(bad)
    assert "script" not in Page(report.html()).names


def test_curves_are_drawings_with_all_points_inside():
    series = {"train": {s: 10.0 ** (-s / 100) for s in range(1000)}, "eval": {5: 0.5}}
    drawing = ElementTree.fromstring(svg_curves.chart("loss & more", series))
    lines = drawing.findall("polyline")
    assert len(lines) == 1 and len(drawing.findall("circle")) == 1
    points = np.array([p.split(",") for p in lines[0].get("points").split()], float)
    assert 100 < len(points) <= 400
    assert (np.diff(points[:, 0]) > 0).all() and (np.diff(points[:, 1]) > 0).all()
    assert points.min() >= 0 and (points <= [svg_curves.WIDTH, svg_curves.HEIGHT]).all()
    straight = np.polyfit(*points.T, 1)  # an exponential on a logarithmic axis
    assert np.abs(np.polyval(straight, points[:, 0]) - points[:, 1]).max() < 0.5


@pytest.mark.parametrize("series", [
    {}, {1: 2.0}, {1: 2.0, 2: 2.0}, {1: float("inf")}, {1: -1e300, 2: 1e300}, {7: 0.0, 3: -5.0},
    {1: 1e-300, 2: 1e300},
])  # fmt: skip
def test_odd_curves_can_be_drawn(series):
    drawing = ElementTree.fromstring(svg_curves.chart("x", {"": series}))
    numbers = re.findall(r"-?\d+\.\d", ElementTree.tostring(drawing, "unicode"))
    assert "nan" not in ElementTree.tostring(drawing, "unicode") and len(numbers) < 100


@pytest.mark.parametrize("low", [-3.0, 0.0, 0.001, 17.0])
@pytest.mark.parametrize("span", [1e-3, 0.7, 1.0, 33.0, 1e6])
def test_ticks_are_few_and_inside(low, span):
    found = svg_curves.ticks(low, low + span)
    assert 2 <= len(found) <= 7
    assert low - 1e-6 * span <= found[0] and found[-1] <= low + span * (1 + 1e-6)


FIGURES = {
    "gray": (np.eye(3), (3, 3, 1)), "color": (np.zeros((2, 5, 3), np.uint8), (2, 5, 3)),
    "opacity": (np.zeros((2, 5, 4), np.uint8), (2, 5, 4)),
    "bool": (np.eye(4, dtype=bool), (4, 4, 1)),
    "many": (np.zeros((3, 5, 6)), (6, 21, 1)), "many, color": (np.zeros((9, 2, 2, 3)), (6, 24, 3)),
    "integers": (np.arange(6).reshape(2, 3), (2, 3, 1)),
    "nan": (np.full((2, 2), np.nan), (2, 2, 1)),
    "half": (np.eye(2, dtype=np.float16), (2, 2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_embedded(name):
    image, shape = FIGURES[name]
    report = Report()
    report.figure(name, image)
    (found,) = pictures(report.html())
    assert found.shape == shape
    if name in ("gray", "bool", "half"):
        assert (found[..., 0] == 255 * image.astype(int)).all()
    if name == "integers":
        assert found.min() == 0 and found.max() == 255


@pytest.mark.parametrize("image", [
    np.zeros(3), np.zeros((2, 2, 2, 7)), np.zeros((1, 2, 2, 2, 3)), np.zeros((0, 3)), np.array("a"),
    np.zeros((2, 2), complex),
])  # fmt: skip
def test_what_is_no_figure_is_told(image):
    with pytest.raises(ValueError, match="Report.figure: needed"):
        Report().figure("x", image)


def test_metrics_are_single_numbers():
    with pytest.raises(ValueError, match=r"one number for 'loss', got shape \(2,\)"):
        Report().metrics(1, {"loss": np.zeros(2)})


WRITERS = {
    "jsonl": lambda folder: JsonlWriter(folder / "metrics.jsonl"),
    "csv": lambda folder: CsvWriter(folder / "metrics.csv"),
    "tensorboard": TensorBoardWriter,
    "all": lambda folder: create_default_writer(folder, console=False, csv=True),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_writers_left_is_read(kind, tmp_path):
    with WRITERS[kind](tmp_path) as writer:
        writer.write_hparams({"rate": 0.125})
        for step in (1, 2):
            writer.write_scalars(step, {"loss": 1.5 * step, "odd": float("inf")})
        writer.write_texts(2, {"sample": "once upon"})
    text = "".join(Page(Report.of(tmp_path).html()).text)
    assert "loss" in text and re.search(r"3\s*2\s*1.5 \(step 1\)\s*3 \(step 2\)", text)
    assert "2 not finite" in text
    if kind in ("jsonl", "all"):
        assert "once upon" in text and "0.125" in text


def test_a_config_replaces_what_was_written(tmp_path):
    with JsonlWriter(tmp_path / "metrics.jsonl") as writer:
        writer.write_hparams({"rate": 0.125})
    text = Report.of(tmp_path, {"width": 77}, title="mine").html()
    assert "77" in text and "0.125" not in text and "<title>mine</title>" in text


def test_damaged_and_absent_metrics(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="needed metrics.jsonl, metrics.csv or"):
        Report.of(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,loss\none,2\n")
    with pytest.raises(UnreadableFileError, match="metrics.csv"):
        Report.of(tmp_path)
    for damage in (b'{"loss": 1}\n', b"3\n", b"\xff\n", b'{"hparams": 3}\n'):
        (tmp_path / "metrics.jsonl").write_bytes(damage)
        with pytest.raises(UnreadableFileError, match="line 1 of"):
            Report.of(tmp_path)
    assert main([str(tmp_path)]) == 1 and "needed" in capsys.readouterr().err
    assert main([]) == 2
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_a_report_with_checkpoints(tmp_path):
    with create_default_writer(tmp_path, console=False) as writer:
        writer.write_scalars(1, {"loss": 1.0})
    checkpoints.save_checkpoint(tmp_path, {"x": np.zeros(1000)}, 3)
    command = [sys.executable, "-m", "toile.training.report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = "".join(Page((tmp_path / "report.html").read_text()).text)
    assert re.search(r"checkpoint_3 \(\d\.\d KiB\)", text)


def test_a_report_that_echoes_prints_as_it_is_filled(tmp_path):
    stream = io.StringIO()
    report = Report(echo=stream)
    report.metrics(1, {"loss": 2.0})
    report.layers(nn.Dense(3), random.key(0), np.zeros((1, 2), np.float32))
    report.curve("loss", "loss by step")
    report.curve("absent")
    report.text("note", "text")
    report.text("", "bare")
    report.write(tmp_path / "r.html")
    shown = stream.getvalue()
    for part in ("Dense Summary", "loss by step", "(no points)", "\nnote:\ntext\nbare\n", "r.html"):
        assert part in shown
    assert "Dense Summary" in (tmp_path / "r.html").read_text()


def test_metrics_that_belong_together_share_a_diagram():
    found = html_pages.panels(["train_loss", "eval_loss", "val/loss", "training", "train_", "_x"])
    assert list(found) == ["loss", "training", "train_", "_x"]
    assert list(found["loss"]) == ["train", "eval", "val"]
