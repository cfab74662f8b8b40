"""What runs Programs: `reference` is the authority on meaning; others are faster."""
