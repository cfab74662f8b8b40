"""Products with what follows them."""
