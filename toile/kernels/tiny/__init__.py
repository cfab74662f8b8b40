"""Programs, loops and sums over tiny arrays: every element is a register."""
