"""Loop nests, the result of fusion: maps, rows and columns."""
