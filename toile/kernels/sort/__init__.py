"""Sort, the k largest, and places of extrema."""
