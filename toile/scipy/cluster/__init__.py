"""Clustering: assignment of observations to the nearest code (`vq`)."""

from toile.scipy.cluster import vq

__all__ = ["vq"]
