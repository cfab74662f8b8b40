"""Every first-order operation, one frozen dataclass each, a file per family."""
