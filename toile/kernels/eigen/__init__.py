"""Eigenvalues and eigenvectors of general matrices."""
