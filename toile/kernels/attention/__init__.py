"""Scaled dot-product attention as one call."""
