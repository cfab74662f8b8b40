"""The compiler is tested on the code that users run."""

import pytest


@pytest.fixture(autouse=True)
def optimized(monkeypatch):
    monkeypatch.setenv("TOILE_OPTIMIZE", "1")
