"""What tests of the GPU backend share."""

import pytest

from toile.backends.gpu import tensor_convolutions, tensor_products


@pytest.fixture
def by_libraries(monkeypatch):
    """Small products and convolutions are the libraries' too."""
    monkeypatch.setattr(tensor_products, "MOST_TERMS", 0)
    monkeypatch.setattr(tensor_convolutions, "MOST_TERMS", 0)
    monkeypatch.setattr(tensor_convolutions, "MOST_IN_KERNELS", 0)
