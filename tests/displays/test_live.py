"""Displays that are drawn again in place, bars and plots, with a kernel that only takes notes."""

import io
import math
import sys
import threading
import time
import types

import numpy as np
import pytest

from tests.displays.checking import read
from toile import numpy as jnp
from toile.displays import notebook
from toile.metrics.writers import ConsoleWriter, MultiWriter
from toile.training import live, notebook_bar, svg_curves
from toile.training.live import Plot
from toile.training.notebook_bar import NotebookBar
from toile.training.progress import is_drawing, progress


class Kernel:
    """A shell with a kernel, as IPython has it, and what was displayed: (id, update?, data)."""

    kernel = object()

    def __init__(self):
        self.execution_count, self.shown, self.callbacks = 1, [], []
        self.events = types.SimpleNamespace(
            register=lambda name, f: self.callbacks.append(f),
            unregister=lambda name, f: self.callbacks.remove(f),
        )

    def end_cell(self):
        for f in list(self.callbacks):
            f(None)
        self.execution_count += 1

    @property
    def outputs(self):
        """The last drawing of each output."""
        return list({i: data for i, _, data in self.shown}.values())


@pytest.fixture
def kernel(monkeypatch):
    made = Kernel()

    class DisplayHandle:
        def display(self, data, raw):
            assert raw and set(data) == {"text/html", "text/plain"}
            made.shown.append((id(self), False, data))
            self.kept = made  # ids stay different

        def update(self, data, raw):
            made.shown.append((id(self), True, data))

    shell = types.SimpleNamespace(get_ipython=lambda: made)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    handles = []
    display = types.SimpleNamespace(
        DisplayHandle=lambda: handles.append(DisplayHandle()) or handles[-1]
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return made


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to; timers wait for `tick`."""
    now = [100.0]
    timers = []

    class Timer:
        def __init__(self, seconds, function):
            self.at, self.function, self.daemon = now[0] + seconds, function, False

        def start(self):
            assert self.daemon
            timers.append(self)

        def cancel(self):
            if self in timers:
                timers.remove(self)

    def tick(seconds):
        end = now[0] + seconds
        while due := [t for t in timers if t.at <= end]:
            first = min(due, key=lambda t: t.at)
            timers.remove(first)
            now[0] = max(now[0], first.at)
            first.function()
        now[0] = end

    for module in (notebook, notebook_bar):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(notebook, "threading", types.SimpleNamespace(
        Timer=Timer, RLock=threading.RLock))  # fmt: skip
    tick.timers = timers
    return tick


# ------------------------------------------------------------------------------------------ display


def counting():
    number = iter(range(1000))
    return lambda: {"text/html": f"<b>{next(number)}</b>", "text/plain": ""}


def test_the_first_drawing_is_at_once_and_others_wait(kernel, clock):
    display = notebook.LiveDisplay(counting(), interval=0.5)
    for _ in range(10):
        display.refresh()
    assert [update for _, update, _ in kernel.shown] == [False]
    clock(0.49)
    assert len(kernel.shown) == 1
    clock(0.02)
    assert [update for _, update, _ in kernel.shown] == [False, True]
    clock(60)
    assert len(kernel.shown) == 2 and not clock.timers  # nothing new, nothing drawn
    display.refresh()
    assert len(kernel.shown) == 3 and len(kernel.outputs) == 1


def test_a_cell_ends_with_all_that_was_asked_for(kernel, clock):
    display = notebook.LiveDisplay(counting())
    display.refresh(), display.refresh()
    kernel.end_cell()
    assert len(kernel.shown) == 2 and not clock.timers and not kernel.callbacks
    clock(60)
    assert len(kernel.shown) == 2


def test_another_cell_has_an_output_of_its_own(kernel, clock):
    display = notebook.LiveDisplay(counting())
    display.refresh()
    kernel.end_cell()
    display.refresh(), display.refresh()
    assert len(kernel.outputs) == 2 and len(kernel.callbacks) == 1
    kernel.end_cell()
    assert [update for _, update, _ in kernel.shown] == [False, False, True]


def test_ticks_until_it_is_closed(kernel, clock):
    display = notebook.LiveDisplay(counting(), interval=0.25, tick=1.0)
    display.refresh()
    clock(3.5)
    assert len(kernel.shown) == 4
    display.refresh()
    display.close()
    drawn = len(kernel.shown)
    clock(60)
    assert len(kernel.shown) == drawn and not clock.timers


def test_a_cell_that_ends_stops_the_ticks(kernel, clock):
    display = notebook.LiveDisplay(counting(), tick=1.0)
    display.refresh(), display.refresh()
    kernel.end_cell()
    drawn = len(kernel.shown)
    clock(60)
    assert len(kernel.shown) == drawn


def test_timers_draw_with_real_time(kernel):
    display = notebook.LiveDisplay(counting(), interval=0.05)
    display.refresh(), display.refresh()
    end = time.monotonic() + 10
    while len(kernel.shown) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(kernel.shown) == 2


def test_a_notebook_is_a_shell_with_a_kernel(monkeypatch):
    for shell, found in ((None, False), (types.SimpleNamespace(), False), (Kernel(), True)):
        module = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert (notebook.kernel_shell() is not None) == found
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook.kernel_shell() is None


# --------------------------------------------------------------------------------------------- bars


def test_a_bar_in_a_notebook_has_what_the_terminal_has(kernel, clock, capsys):
    bar = progress(range(30), label="train <b>", unit="item", start=10)
    for x in bar:
        assert is_drawing()
        clock(0.125)
        bar.show(loss=jnp.float32(0.5), note="fine")
        if x == 20:
            bar.print("halfway [5]")
    assert not is_drawing() and bar.done == len(bar) == 40
    (data,) = kernel.outputs
    text, _ = read(data["text/html"])
    assert text.split("\n") == ["train <b>", "40/40", "8.0 items/s", "0:00:03", "left 0:00:00",
                                "loss 0.5  note fine"]  # fmt: skip
    assert data["text/plain"] == "  ".join(text.split("\n"))
    assert "width:100.0%" in data["text/html"]
    assert capsys.readouterr() == ("halfway [5]\n", "")
    assert 10 <= len(kernel.shown) <= 17  # four a second, the first and the last


def test_a_long_step_is_told_from_a_dead_one(kernel, clock):
    bar = progress(range(3))
    steps = iter(bar)
    next(steps), clock(2.0), next(steps)
    clock(10.5)
    text = kernel.outputs[0]["text/plain"]
    assert text.startswith("1/3  2.0 s/step") and "0:00:12" in text and "left 0:00:04" in text


def test_a_bar_without_a_total(kernel, clock):
    for _ in progress(iter(range(3))):
        clock(1.0)
    text = kernel.outputs[0]["text/plain"]
    assert text == "3/?  1.0 steps/s  0:00:03" and "%" not in kernel.outputs[0]["text/html"]


@pytest.mark.parametrize("options", [{"enabled": False}, {"stream": io.StringIO()}])
def test_bars_that_are_not_for_the_notebook(kernel, options):
    assert list(progress(range(3), **options)) == [0, 1, 2]
    assert not kernel.shown


def test_a_bar_can_be_empty(kernel, clock):
    assert list(progress([])) == []
    read(kernel.outputs[0]["text/html"])
    bar = NotebookBar("", "step", 4, 0)
    bar.advance(9)  # more than there are
    assert "width:100.0%" in bar._track()


# -------------------------------------------------------------------------------------------- plots


def test_a_plot_grows_in_place(kernel, clock):
    plot = Plot(every=0.5)
    for step in range(40):
        plot.add(step, loss=jnp.exp(-step / 10), accuracy=step / 40)
        clock(0.1)
    assert 7 <= len(kernel.shown) <= 10
    kernel.end_cell()
    (data,) = kernel.outputs
    text, tags = read(data["text/html"], colors=True)
    assert tags.count("svg") == 2 and tags.count("polyline") == 2
    assert f"{math.exp(-3.9):.4g}" in text and "0.975" in text
    assert data["text/plain"] == "Plot(loss: 40 points, accuracy: 40 points)"


def test_a_plot_elsewhere_draws_nothing(capsys):
    plot = Plot()
    assert str(plot) == "Plot()" and "no points yet" in plot._repr_html_()
    with plot:
        for step in range(5):
            plot.add(step, loss=step)
        plot.flush()
    assert capsys.readouterr() == ("", "")
    assert str(plot).startswith("loss\n") and "⠤" in str(plot) or "⣀" in str(plot)


def test_a_plot_is_a_writer(kernel, clock):
    plot, stream = Plot(), io.StringIO()
    writer = MultiWriter([ConsoleWriter(stream, rate=False), plot])
    writer.write_scalars(3, {"train/loss": jnp.float32(0.5), "eval/loss": 0.25})
    writer.write_texts(3, {"note": "ignored"})
    writer.flush()
    assert "train/loss 0.5" in stream.getvalue()
    text, tags = read(kernel.outputs[0]["text/html"], colors=True)
    assert tags.count("svg") == 1 and "train/loss" in text and "0.25" in text


@pytest.mark.parametrize(("names", "titles"), [
    (["loss", "accuracy"], ["loss", "accuracy"]),
    (["train/loss", "eval/loss"], ["loss"]),
    (["train_loss", "eval_loss", "val_loss"], ["loss"]),
    (["learning_rate", "grad_norm"], ["learning_rate", "grad_norm"]),
    (["train_", "eval/"], ["train_", "eval/"]),
    (["a", "b", "c"], ["both", "c"]),
])  # fmt: skip
def test_metrics_share_panels(names, titles):
    plot = Plot({"both": ["a", "b"]})
    plot.write_scalars(0, dict.fromkeys(names, 1.0))
    assert list(plot._by_panel()) == titles


def test_a_logarithmic_panel():
    plot = Plot(log=["loss"], size=(300, 200))
    for step in range(100):
        plot.add(step, loss=10.0 ** (-step / 20), other=-step)
    loss, other = (plot._by_panel()[t][t].points() for t in ("loss", "other"))
    html = plot._repr_html_()
    assert all(f">{10.0 ** -i:.4g}<" in html for i in range(5))  # powers of ten
    assert plot._is_log("loss") and not plot._is_log("other") and loss.shape == other.shape
    y = [float(p.split(",")[1]) for p in html.split('points="')[1].split('"')[0].split()]
    assert np.ptp(np.diff(y)) < 1.0  # a straight line
    below = Plot(log=True)
    below.add(0, loss=-1.0)
    assert "no points to draw" in below._repr_html_()


@pytest.mark.filterwarnings("ignore:loss is NaN")
def test_values_that_are_not_finite_are_counted():
    plot = Plot()
    for step, loss in enumerate([1.0, math.nan, 0.5, math.inf, math.nan]):
        plot.add(step, loss=loss)
    text, tags = read(plot._repr_html_(), colors=True)
    assert "loss: 3 not finite, the last at step 4" in text and "nan" in text.split("\n")
    assert tags.count("polyline") == 1 and "Infinity" not in text
    only = Plot()
    only.add(0, loss=math.nan)
    assert "no points to draw" in read(only._repr_html_(), colors=True)[0]


@pytest.mark.parametrize("values", [
    [0.0], [2.0, 2.0], [1e308, -1e308], [5e-324, 1e-323], [1e-300, 1e300], [1.0, 1.0 + 1e-15],
    [-7.0, -7.0], [1e300, 1e300],
])  # fmt: skip
def test_extreme_values_are_drawn(values):
    for log in (False, True):
        plot = Plot(log=log)
        for step, value in enumerate(values):
            plot.add(step, loss=value)
        html = plot._repr_html_()
        read(html, colors=True)
        assert "nan" not in html and "inf" not in html


def test_long_runs_are_averaged_and_small(monkeypatch):
    monkeypatch.setattr(live, "MOST_POINTS", 64)
    plot = Plot()
    steps = np.arange(10_000)
    for step in steps:
        plot.add(step, loss=3.0 * step + 1)
    points = plot._lines["loss"].points()
    assert 32 <= len(points) <= 64 and np.all(np.diff(points[:, 0]) > 0)
    np.testing.assert_allclose(points[:, 1], 3 * points[:, 0] + 1)  # means of a line are on it
    assert points[-1, 0] > 9_700 and len(plot._repr_html_()) < 5_000
    assert repr(plot) == "Plot(loss: 10000 points)" and f"{3 * 9999 + 1:.4g}" in plot._repr_html_()


def test_names_are_escaped_and_lines_are_told_apart():
    plot = Plot({"<all>": [f"<{i}>" for i in range(9)]})
    for step in (0, 1):
        plot.write_scalars(step, {f"<{i}>": i + step for i in range(9)})
    html = plot._repr_html_()
    text, tags = read(html, colors=True)
    assert "<all>" in text and "<8>" in text and tags.count("polyline") == 9
    lines = {line.split('points="')[0] + line.split('"', 3)[-1] for line in
             html.split("<polyline")[1:]}  # fmt: skip
    assert len(lines) >= 9 and html.count("stroke-dasharray") == 9 - len(svg_curves.COLORS)


@pytest.mark.parametrize(("call", "error"), [
    (lambda p: p.add(0, loss=jnp.ones(3)), r"one real number for 'loss', got shape \[3\]"),
    (lambda p: p.add(0, loss="high"), "one real number for 'loss', got 'high'"),
    (lambda p: p.add(0, loss=1j), "one real number for 'loss'"),
    (lambda p: p.add(0, loss=None), "one real number for 'loss', got None"),
    (lambda p: p.add("a", loss=1.0), "one real number for 'step'"),
    (lambda p: p.add(math.nan, loss=1.0), "finite step"),
    (lambda p: Plot(size=(10, 10)), r"at least \(120, 80\) pixels"),
])  # fmt: skip
def test_bad_numbers_are_refused(call, error):
    plot = Plot()
    with pytest.raises(ValueError, match=error):
        call(plot)
    assert repr(plot) == "Plot()"  # nothing of it was taken


def test_ticks_are_round_and_inside():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = rng.normal() * 10 ** rng.uniform(-6, 6)
        high = low + 10 ** rng.uniform(-6, 6)
        found = svg_curves.ticks(low, high, 5)
        slack = 1e-6 * (high - low) + 1e-12 * abs(low)
        assert 2 <= len(found) <= 8 and low - slack <= min(found) <= max(found) <= high + slack
        assert np.ptp(np.diff(found)) <= slack
