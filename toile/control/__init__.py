"""Operations that carry Programs or functions: call, cond, while, scan, remat, custom rules."""
