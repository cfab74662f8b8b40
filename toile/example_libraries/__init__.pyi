"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.example_libraries import optimizers as optimizers, stax as stax
