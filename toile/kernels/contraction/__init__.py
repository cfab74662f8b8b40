"""Contractions: matrix products, dots, and operations fused with them."""
