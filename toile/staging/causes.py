"""Descriptions of why a call is traced, and warnings about repeated tracing.

This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine import config, errors
from toile.engine.avals import Aval
from toile.engine.extra_warnings import advise_caller
from toile.engine.source import here, user_source


def differences(
    old: Any, new: Any, old_labels: Sequence[str], labels: Sequence[str]
) -> list[str]:
    """A description of what changed between two cache keys."""
    found = []
    if old[0] != new[0]:
        return [f"the arguments' structure changed from {old[0]} to {new[0]}"]
    for i, (a, b) in enumerate(zip(old[1], new[1], strict=True)):
        label = labels[i] if i < len(labels) else f"leaf {i}"
        if a[0] != b[0]:
            found.append(f"{label}: shape {a[0]} -> {b[0]}")
        if a[1] != b[1]:
            found.append(f"{label}: dtype {a[1]} -> {b[1]}")
        if a[2] != b[2]:
            found.append(f"{label}: weak type {a[2]} -> {b[2]}")
    for (where, a), (_, b) in zip(old[2] or (), new[2] or (), strict=False):
        if a != b:
            found += _static_changes(where, a.value, b.value)
    if old[3] != new[3]:
        changed = [n for n, a, b in zip(config.TRACE_FLAGS, old[3], new[3], strict=True) if a != b]
        found.append(f"configuration changed: {', '.join(changed)}")
    if old[4] != new[4]:
        found.append(f"named axes {old[4]} -> {new[4]}")
    return found


def _static_changes(where: Any, old: Any, new: Any) -> list[str]:
    """How a static argument changed; its type may describe this with `__changes_since__`."""
    if type(old) is type(new) and hasattr(type(new), "__changes_since__"):
        return new.__changes_since__(old)
    if type(old) is type(new) is tuple and len(old) == len(new):
        if any(hasattr(type(x), "__changes_since__") for x in new):
            pairs = zip(old, new, strict=True)
            return [text for a, b in pairs if a != b for text in _static_changes(where, a, b)]
    return [f"static argument {where}: {old!r} -> {new!r}"]


REPEATED = 3  # the third retrace for the same reason causes a warning
STRUCTURE = "the arguments' structure"


def reason_of(cause: str) -> str:
    """What changed, without the values: `x: shape (3,) -> (4,)` becomes `x: shape`."""
    if cause.startswith(STRUCTURE):
        return STRUCTURE
    parts = []
    for text in cause.split("; "):
        label, _, rest = text.partition(": ")
        aspect = rest.split(" ", 1)[0]
        parts.append(f"{label}: {aspect}" if aspect in ("shape", "dtype", "weak") else label)
    return "; ".join(parts)


def warn_of_retraces(name: str, cause: str) -> None:
    """Warn that a function is compiled repeatedly."""
    advise_caller(
        f"jit: {name} is traced repeatedly ({cause[:300]}). Each trace costs a compilation: "
        "call it with fewer different shapes and dtypes (for example by padding), or see "
        f"`f.why()`; `jit(f, max_traces=n)` turns this into an error{here()}",
        errors.RetraceWarning,
        stacklevel=5,
    )


FIRST = "first call"


def _log(text: str) -> None:
    # Imported only when there is something to log: it would slow down `import toile`.
    import logging

    logging.getLogger("toile").warning(text)


def log_compile(name: str, seconds: float, cause: str, avals: Sequence[Aval]) -> None:
    """Log for `log_compiles`: a function was traced, and is compiled when it first runs."""
    _log(f"Finished tracing {name} for jit in {seconds:.6f} sec ({cause})")
    _log(f"Compiling jit({name}) with global shapes and types {tuple(avals)}.")


_explained: set[tuple[str, int, str]] = set()  # where explained functions were defined


def explain_miss(fun: Any, old: Any, new: Any, labels: Sequence[str]) -> None:
    """Log for `explain_cache_misses`: why a call to a jitted function is traced.

    `old` is the closest earlier cache key, or None."""
    place, code = user_source(2), getattr(fun, "__code__", None)
    name = getattr(fun, "__name__", type(fun).__name__)
    defined = f"{name} defined at {code.co_filename}:{code.co_firstlineno}" if code else name
    if old is not None:
        text = (
            f"for {defined}\n  all previously seen cache keys differ. For the closest previous "
            f"key:\n" + "\n".join(_explained_changes(old, new, labels))
        )
    else:
        text = f"never seen function:\n    {defined}"
        line = (code.co_filename, code.co_firstlineno, name) if code else None
        if line in _explained:
            text += (
                "\n  but seen another function defined on the same line (define it once, outside "
                "of the loop or function that calls it)"
            )
        elif line:
            _explained.add(line)
    _log(f"TRACING CACHE MISS at {place}:\n  {text}")


def _explained_changes(old: Any, new: Any, labels: Sequence[str]) -> list[str]:
    """The differences between two cache keys, by kind, one per line."""
    if old[0] != new[0]:
        return [f"  different input pytree:\n  * now {new[0]} and before {old[0]}"]
    lines = []
    for i, (a, b) in enumerate(zip(old[1], new[1], strict=True)):
        if a != b:
            weak = a[:2] == b[:2]
            label = labels[i] if i < len(labels) else f"leaf {i}"
            lines.append(f"  * at {label}, now {_typed(b, weak)} and before {_typed(a, weak)}")
            if weak:
                lines.append("    (https://docs.jax.dev/en/latest/type_promotion.html#weak-types)")
    if lines:
        lines.insert(0, "  different input types:")
    context = [f"  * at {n}, now {b} and before {a}"
               for n, a, b in zip(config.TRACE_FLAGS, old[3], new[3], strict=True) if a != b]
    if context:
        lines += ["  different tracing context:", *context]
    others = differences((new[0], new[1], old[2], new[3], old[4]), new, labels, labels)
    lines += [f"  * {text}" for text in others]
    return lines or ["  * a value that it closed over is no longer valid"]


def _typed(signature: Any, weak: bool) -> str:
    """Describe a leaf of a cache key, such as `f32[3]`; if requested, mention its weak type."""
    shape, dtype, weak_type = signature
    text = Aval(shape, dtype).str_short(short_dtypes=True)
    return f"{text}{{weak_type={weak_type}}}" if weak else text
