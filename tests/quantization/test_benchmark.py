"""The benchmark of quantization runs: a small model, trained for a few steps on shipped text."""

import pytest

from benchmarks import quantisation


def test_quality():
    names = ("8 bits", "8 bits, 8-bit inputs (static scale)", "4 bits, one group, round",
             "4 bits, one group, gptq")
    ways = {name: quantisation.WAYS[name] for name in names}
    found = quantisation.quality(steps=30, width=32, ways=ways)
    values = {name: value for name, value, _ in found}
    sizes = {name: size for name, _, size in found}
    assert 1 < values["float32"] < 60
    for name in names[:2]:
        assert values[name] == pytest.approx(values["float32"], rel=5e-3)
    assert values["4 bits, one group, gptq"] == pytest.approx(values["float32"], rel=3e-2)
    change = {name: abs(values[name] - values["float32"]) for name in names}
    assert change["4 bits, one group, gptq"] <= change["4 bits, one group, round"] + 0.02
    assert sizes["4 bits, one group, gptq"] < sizes["8 bits"] < sizes["float32"]


def test_speed():
    copied, table = quantisation.speed(128)
    assert copied > 0 and [name for name, _ in table][0] == "float32"
    assert all(seconds > 0 and rate > 0 for _, row in table for seconds, rate in row)
