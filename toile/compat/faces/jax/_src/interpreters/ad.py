"""`jax._src.interpreters.ad`: the names of `jax.interpreters.ad`, and errors."""

from toile.compat.faces.jax.interpreters import ad as _ad
from toile.engine.errors import ClosedOverDerivativeError

globals().update({name: getattr(_ad, name) for name in _ad.__all__})
CustomJVPException = CustomVJPException = ClosedOverDerivativeError

__all__ = [*_ad.__all__, "CustomJVPException", "CustomVJPException"]  # noqa: PLE0604
