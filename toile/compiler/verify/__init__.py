"""Proofs that Programs are well formed and that plans compute what their Programs mean."""
