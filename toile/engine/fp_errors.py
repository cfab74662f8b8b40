"""NumPy's floating-point error state, switched off around eager operations.

`np.errstate` costs microseconds. Running a ufunc in a private context in which errors are off
(`quiet_runner`) costs nothing, but is not re-entrant; code that may call back into toile uses
`ignore_errors` and `restore_errors`, which set and reset NumPy's error state. This module may
import only numpy.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
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


def quiet_runner() -> Callable[..., Any]:
    """`run(function, *args)` with floating-point errors ignored; one per thread, not re-entrant."""
    context = contextvars.Context()
    context.run(ignore_errors)
    return context.run
