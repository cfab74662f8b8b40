"""Every first-order operation: one frozen dataclass for each, and one file for each family."""
