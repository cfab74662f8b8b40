"""The options of `config` as absl flags, for programs whose command line is parsed by absl.

`register` defines the flags; values on the command line are applied when absl's app starts. `parse`
reads the `--jax_...` arguments immediately, for test files that another program runs. absl is
optional; without it, there are no flags to define. This module may import only absl.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

_parsed = False


def register(kinds: Mapping[str, str], config: Any) -> None:
    """Define each option as a flag of the type that `kinds` contains for the name of the option."""
    try:
        from absl import app, flags
    except ImportError:
        return
    for name, kind in kinds.items():
        if name not in flags.FLAGS:
            define: Callable[..., Any] = getattr(flags, f"DEFINE_{kind}")
            # jax may define its own flags of these names later in the same process.
            define(name, config.read(name), f"The option {name} of config.", allow_override=True)
    app.call_after_init(lambda: _take(kinds, config))


def parse(kinds: Mapping[str, str], config: Any) -> None:
    """Define the flags and read those on the command line, once; other arguments are ignored."""
    global _parsed
    if _parsed:
        return
    register(kinds, config)
    try:
        from absl import flags
    except ImportError:
        return
    before_others = itertools.takewhile(lambda text: text != "--", sys.argv)
    flags.FLAGS(["", *(a for a in before_others if a.startswith("--jax"))], known_only=True)
    _take(kinds, config)
    _parsed = True


def _take(kinds: Mapping[str, str], config: Any) -> None:
    """Set the options that were given on the command line."""
    from absl import flags

    for name in kinds:
        if name in flags.FLAGS and flags.FLAGS[name].present:
            config.update(name, flags.FLAGS[name].value)
