"""What tests of the GPU backend share."""

import pytest

from toile.kernels.contraction import gpu_narrow
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions


@pytest.fixture
def by_libraries(monkeypatch):
    """Small convolutions are the libraries' too, and so are the products beside them."""
    monkeypatch.setattr(tensor_convolutions, "MOST_TERMS", 0)
    monkeypatch.setattr(tensor_convolutions, "MOST_IN_KERNELS", 0)
    monkeypatch.setattr(gpu_narrow, "MOST_COLUMNS", 0)
