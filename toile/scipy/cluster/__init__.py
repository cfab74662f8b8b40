"""Clustering: find the code nearest to each observation (`vq`)."""

from toile.scipy.cluster import vq

__all__ = ["vq"]
