"""Compiled objects and plans on disk, and the checks that their files must pass."""
