"""`jax.extend.ifrt_programs`: programs for remote hosts, of which there are none here."""

__all__ = ["ifrt_programs"]


class ifrt_programs:
    """No kind of program can be made."""
