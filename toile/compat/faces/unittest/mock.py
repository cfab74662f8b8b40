"""`unittest.mock` for redirected code: `patch("jax.lax.sin")` patches what this code sees."""

import unittest.mock as _mock
from typing import Any

from toile.interop import redirect


class _Patch:
    """`patch`, whose target is a name as it appears in redirected code."""

    def __call__(self, target: str, *args: Any, **kwargs: Any) -> Any:
        return _mock.patch(redirect.private_name(target), *args, **kwargs)

    def multiple(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """`patch.multiple`, whose target is such a name too."""
        if isinstance(target, str):
            target = redirect.private_name(target)
        return _mock.patch.multiple(target, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(_mock.patch, name)


patch = _Patch()


def __getattr__(name: str) -> Any:
    return getattr(_mock, name)
