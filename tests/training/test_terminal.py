"""Curves and pictures as characters, and requests to stop; their docstrings show the shapes."""

import signal
import threading

import numpy as np
import pytest

from toile.training import terminal
from toile.training.interruption import StopRequests


def test_a_curve_has_the_size_and_the_ends_it_says():
    lines = terminal.curve([0, 5, 10], [3.0, 1.0, 2.0], width=20, height=5, title="t").split("\n")
    assert lines[0] == "t" and len(lines) == 7
    assert lines[1].split()[0] == "3" and lines[5].split()[0] == "1"
    assert lines[6].split() == ["0", "10"]
    assert max(map(len, lines)) == len(lines[6]) == 7 + 20


@pytest.mark.parametrize("points", [([], []), ([1], [np.nan])])
def test_no_points_are_no_error(points):
    assert terminal.curve(*points) == "(no points)"


@pytest.mark.parametrize("ys", [[2.0], [2.0, 2.0], [0.0, 1.0, np.inf, 1e30], [-1.0, 1.0]])
@pytest.mark.parametrize("log", [False, True])
def test_curves_of_odd_values_are_drawn(ys, log):
    text = terminal.curve(range(len(ys)), ys, log=log, height=3)
    assert len(text.split("\n")) == 4


def test_a_picture_needs_two_axes():
    assert terminal.picture(np.ones((3, 2))) == "██\n▀▀"
    with pytest.raises(ValueError, match=r"needed an image \[height, width\], got \[2, 2, 1\]"):
        terminal.picture(np.ones((2, 2, 1)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopRequests() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop
        assert signal.getsignal(number) is before  # the next one is not held back
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts():
    # Shells let their background processes ignore SIGINT, which the second one would then be.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), StopRequests():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_handlers_and_no_error():
    found = []

    def work():
        with StopRequests() as stop:
            found.append(bool(stop))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
