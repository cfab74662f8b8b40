"""Programs on many devices."""
