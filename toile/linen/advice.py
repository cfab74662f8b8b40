"""What to do about Python's own errors in methods of modules, such as calls with wrong arguments.

Python raises these errors before any check of toile runs, so the advice is a note on the error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from toile.engine.source import describe
from toile.engine.suggestions import did_you_mean

_CALL = re.compile(r"([\w.<>]+)\(\) (?:missing|takes|got) .*argument")
_UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'")
# Errors with a known reason inside modules.
_KNOWN = (
    (r"'tuple' object has no attribute 'append'",
     "a module keeps lists as tuples: make the list first, as in layers = [...], and assign it "
     "once in `setup`: self.layers = layers"),
    (r"'(list|tuple|dict|int|float|str|bool|NoneType)' object has no attribute "
     r"'(shape|dtype|ndim|size|astype|reshape|T|mean|sum)'",
     "an array was needed: convert numbers with jnp.array(...), or pass an array of the container"),
    (r"\w+\(\) missing 2 required positional arguments: 'key' and 'shape'",
     "pass the initializer itself, which the layer calls, as in kernel_init=nn.initializers.zeros"),
    (r"'tuple' object is not callable",
     "a list of layers is not a layer: call each one, as in `for layer in self.layers: x = "
     "layer(x)`, or use nn.Sequential(layers)"),
    (r"unsupported operand type.*'Variable'|'Variable' object (?!has)",
     "a Variable is not an array: read and assign its value, as in variable.value"),
)  # fmt: skip
_SHOWN = 8  # fields
_OF_APPLY = ("rngs", "method", "mutable", "capture_intermediates")
_TO_METHOD = "; init and apply pass it all arguments except the first and their own options"


def advice(
    error: Exception, module: Any, method: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:  # fmt: skip
    """A line of advice about an error that a method of a module raised, or nothing."""
    text = str(error)
    found = _about(text)
    call = _CALL.match(text) if isinstance(error, TypeError) and not found else None
    if call is None:
        pass
    elif call[1] == getattr(method, "__qualname__", ""):
        found = _about_call(text, module, method, args, kwargs)
    else:
        found = _about_constructor(call[1], text)
    return f"\n  ({found})" if found else ""


def _about(text: str) -> str:
    """Advice about an operator that was given a layer or a variable, and other known errors."""
    for pattern, found in _KNOWN:
        if re.match(pattern, text):
            return found
    for kind in re.findall(r"'(\w+)'", text) if text.startswith("unsupported operand") else ():
        if any(_classes(kind)):
            return f"{kind} is a layer, not an array: call it with its input, {kind}(...)(x)"
    return ""


def _about_call(
    text: str, module: Any, method: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:  # fmt: skip
    """Advice about a call to a method with wrong arguments."""
    if method.__name__ == "setup":
        return "setup takes no arguments: declare them as fields of the class, as in `width: int`"
    given = [*map(describe, args), *(f"{name}={describe(x)}" for name, x in kwargs.items())]
    names = [*inspect.signature(method).parameters][1:]
    is_root = module.scope is not None and module.scope.path_text == "/"
    needed = f"needed {method.__name__}({', '.join(names)}), got ({', '.join(given)})"
    near = _suggestion(text, [*names, *(_OF_APPLY if is_root else ())])
    return f"{needed}{near}{_TO_METHOD if is_root else '; add or remove arguments'}"


def _about_constructor(called: str, text: str) -> str:
    """Advice about a call to the constructor of a module with wrong arguments."""
    owner = called.removesuffix(".__init__")
    for cls in _classes(owner.rpartition(".")[2]):
        if owner != called and cls.__qualname__ == owner:
            return _about_fields(cls, text)
    return ""


def _about_fields(cls: type, text: str) -> str:
    """Advice that names the fields of a class of modules, the required ones first."""
    parameters = inspect.signature(cls).parameters.values()
    fields = [p.name for p in parameters if p.name != "parent"]
    needed = [f"{p.name}=..." for p in parameters if p.default is p.empty]
    shown = [*fields[:_SHOWN], *(["..."] if len(fields) > _SHOWN else [])]
    return (
        f"needed {cls.__name__}({', '.join([*needed, '...'])}) with values for fields only, which "
        f"are {', '.join(shown)}{_suggestion(text, fields)}; sizes of inputs are inferred"
    )


def _suggestion(text: str, known: list[str]) -> str:
    unexpected = _UNEXPECTED.search(text)
    return did_you_mean(unexpected[1], known) if unexpected else ""


def _classes(name: str) -> Iterator[type]:
    """The classes of modules with a name, the newest first."""
    from toile.linen.module import Module

    stack = [Module]
    while stack:
        cls = stack.pop()
        if cls.__name__ == name:
            yield cls
        stack += cls.__subclasses__()
