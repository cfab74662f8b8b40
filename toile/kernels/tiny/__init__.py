"""Programs, loops and sums over tiny arrays: every element is in a register."""
