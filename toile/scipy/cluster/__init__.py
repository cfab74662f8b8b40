"""Clustering: find the nearest code of each observation (`vq`)."""

from toile.scipy.cluster import vq

__all__ = ["vq"]
