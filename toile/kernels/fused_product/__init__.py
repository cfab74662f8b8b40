"""Products fused with the operations after them."""
