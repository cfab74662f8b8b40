"""Loop nests, which fusion makes: maps, rows and columns."""
