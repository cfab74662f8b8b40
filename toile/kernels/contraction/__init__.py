"""Contractions: matrix products, dots, and what is fused with them."""
