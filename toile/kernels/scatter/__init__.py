"""Scatter, and rows summed by segments."""
