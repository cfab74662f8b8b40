"""NumPy's floating-point error state, switched off around eager operations.

`np.errstate` costs microseconds; the context variable behind it costs a tenth of that. Where a
NumPy without it is installed, the public way is used. May import numpy only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj

    _IGNORE = _make_extobj(all="ignore")
    _set = _extobj_contextvar.set
    restore_errors = _extobj_contextvar.reset

    def ignore_errors() -> Any:
        """Ignore floating-point errors from here on; returns a token for `restore_errors`."""
        return _set(_IGNORE)

except ImportError:

    def ignore_errors() -> Any:
        """Ignore floating-point errors from here on; returns a token for `restore_errors`."""
        return np.seterr(all="ignore")

    def restore_errors(token: Any) -> None:
        """Undo `ignore_errors`."""
        np.seterr(**token)
