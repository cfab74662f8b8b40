"""`toile.checks`: one switch for the checks that find silent mistakes.

`flags.checks` lists the checks that are on in this thread, such as "index,nan". The checks
themselves are in the code that they check; each of them first calls `enabled(name)`. This module
may import only engine.config and engine.flag_table.
"""

from __future__ import annotations

from types import TracebackType

from toile.engine.config import F, Override, config, flags
from toile.engine.flag_table import check_names


class checks:
    """Turn on checks that find mistakes that would otherwise go unnoticed.

    A call turns the checks on in all threads. If `checks` is used in a `with` statement, the checks
    are on only inside the block; if it is used as a decorator, they are on only while the function
    runs. The environment variable TOILE_CHECKS turns checks on for a whole program, as in
    `TOILE_CHECKS=all` or `TOILE_CHECKS=index,nan`.

    Args:
        *names: names of the checks. "index" raises an IndexError when an index is out of bounds;
            without this check, toile only warns once. "nan" raises an error that describes the
            operation that produced the first NaN. "keys" raises an error when a random key is used
            twice. "shapes" raises an error when an operation in a loss broadcasts both of its
            operands. Without arguments, or with "all", all checks are turned on. With None, all
            checks are turned off.

    Raises:
        ValueError: there is no check with this name.

    >>> with toile.checks("nan"):
    ...     jnp.log(-1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: invalid value (nan) encountered in log: ...
    """

    def __init__(self, *names: str | None) -> None:
        off = names == (None,)
        wanted = "" if off else check_names("checks", names or ("all",))
        self._before: str | None = type(flags).checks  # the process-wide value
        self._override = Override({"checks": wanted})
        self._names = wanted
        config.update("checks", wanted)

    def _withdraw(self) -> None:
        """Undo the call: the checks are meant for a block or a function only."""
        if self._before is not None:
            config.update("checks", self._before)
            self._before = None

    def __enter__(self) -> None:
        self._withdraw()
        self._override.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._override.__exit__(kind, error, traceback)

    def __call__(self, fun: F) -> F:
        self._withdraw()
        return self._override(fun)

    def __repr__(self) -> str:
        return f"checks({', '.join(map(repr, self._names.split(',')))})"


def enabled(name: str) -> bool:
    """Whether a check is on in this thread."""
    return name in flags.checks  # no name contains another name


def keys_checked() -> bool:
    """Whether random keys that are used twice raise an error in this thread."""
    return flags.debug_key_reuse or "keys" in flags.checks
