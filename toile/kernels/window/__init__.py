"""Reductions over windows, and selections in them: pooling and its gradients."""
