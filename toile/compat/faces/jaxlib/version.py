"""`jaxlib.version`: the release of jaxlib whose place toile takes."""

from toile.compat.faces.jaxlib import __version__

__all__ = ["__version__"]
