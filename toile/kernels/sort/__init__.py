"""Sort, top k, argmax and argmin."""
