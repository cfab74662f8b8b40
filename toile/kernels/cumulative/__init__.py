"""Running sums, products and extrema."""
