"""Products of few rows with a matrix of quantized numbers."""
