"""The predictions of benchmarks/scaling.py: what they are made of, and that they are monotonous."""

import pytest

from benchmarks import scaling
from benchmarks.scaling import Line, Network, Work

LOCAL = Line(1e-4, 1e-9)
FREE = Line(0.0, 0.0)
WORK = Work(0.1, 10_000_000)


def test_the_line_goes_through_the_measurements():
    line = scaling.fitted({4: 1e-5, 1024: 2e-5, 1 << 20: 1e-5 + 1e-3})
    assert line.start == 1e-5 and line(1 << 20) == pytest.approx(1e-5 + 1e-3)


def test_a_step_is_compute_and_sums():
    network = Network(1e-5, 1e9)
    steps = [scaling.predict(WORK, n, LOCAL, FREE, 1e-6, network) for n in scaling.DEVICES]
    assert steps[0] == 0.1 and steps == sorted(steps)
    assert steps[1] == pytest.approx(0.1 + 1e-4 + 1e-9 * 1e7 * 4)  # 8 devices of one machine
    between = 2 * (7 * 1e-6 + 7 / 8 * 1e7 / 1e9 + 1e-5)  # 8 machines
    assert steps[2] == pytest.approx(steps[1] + between)
    endless = scaling.predict(WORK, 1024, FREE, FREE, 0, Network(0, float("inf")))
    assert endless == 0.1
    slow = scaling.predict(WORK, 64, LOCAL, Line(0, 1e-8), 1e-6, network)  # software is the limit
    assert slow > steps[2]


def test_the_table_has_every_network():
    found = scaling.table(WORK, LOCAL, FREE, 1e-6)
    assert found.keys() == scaling.NETWORKS.keys()
    for rows in found.values():
        assert [int(n) for n in rows] == list(scaling.DEVICES)
        assert all(0 < row["efficiency"] <= 1 for row in rows.values())
