"""Spatial algorithms: rotations."""

from toile.scipy.spatial import transform

__all__ = ["transform"]
