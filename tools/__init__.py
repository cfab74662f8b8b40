"""Tools of the repository, run as `python -m tools.NAME`; not part of the installed package."""
