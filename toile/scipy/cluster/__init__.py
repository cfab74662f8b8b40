"""Clustering: vector quantisation."""

from toile.scipy.cluster import vq

__all__ = ["vq"]
