"""Sums of messages along the edges of a graph."""
