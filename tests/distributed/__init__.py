"""Tests that start programs of several processes with mpirun."""
