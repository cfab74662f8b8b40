"""Spatial algorithms: rotations in three dimensions (`transform`)."""

from toile.scipy.spatial import transform

__all__ = ["transform"]
