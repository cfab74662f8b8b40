"""Find in the sources where public names are defined, and how their signatures are written.

`inspect.signature` returns the parameters of a function or class. The sources contain the original
spelling of types and defaults: `param_dtype: Dtype = jnp.float32` instead of the repr of a class.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.documented import parameters

ROOT = Path(__file__).parents[1]
WIDTH = 88
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Spelling(NamedTuple):
    """A parameter's annotation and default as written in the source; None if there is none."""

    annotation: str | None
    default: str | None


class Definitions(NamedTuple):
    """The definitions in a file: functions by line, classes by qualified name, lines by name.

    `imported` contains, for each imported name, the line of the import, the module, and the name in
    that module.
    """

    functions: dict[int, Function]
    classes: dict[str, ast.ClassDef]
    assigned: dict[str, int]
    imported: dict[str, tuple[int, str, str]]


@functools.cache
def definitions(file: str) -> Definitions:
    """The definitions in a file; the line of a function is that of its first decorator."""
    found = Definitions({}, {}, {}, {})
    _collect(ast.parse(Path(file).read_text()), "", found)
    return found


def _collect(node: ast.AST, prefix: str, found: Definitions) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            found.functions[first] = child
            if not prefix:
                found.assigned.setdefault(child.name, child.lineno)
            _collect(child, f"{prefix}{child.name}.<locals>.", found)
        elif isinstance(child, ast.ClassDef):
            found.classes[prefix + child.name] = child
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, (ast.Assign, ast.AnnAssign)) and not prefix:
            for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        found.assigned.setdefault(name.id, child.lineno)
        elif isinstance(child, ast.ImportFrom) and child.module and not prefix:
            for name in child.names:
                place = child.lineno, child.module, name.name
                found.imported[name.asname or name.name] = place
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            _collect(child, prefix, found)


def _file(module: str) -> str | None:
    if module.partition(".")[0] == "toile":
        importlib.import_module(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    return file if file and file.endswith(".py") and _is_here(file) else None


def _is_here(file: str) -> bool:
    """Whether a file belongs to this repository, whose folder may also contain installed
    packages."""
    path = Path(file)
    return path.is_relative_to(ROOT) and "site-packages" not in path.parts


def class_node(cls: type) -> tuple[str, ast.ClassDef] | None:
    """The file and the definition of a class in this repository."""
    file = _file(str(cls.__module__))
    node = definitions(file).classes.get(cls.__qualname__) if file else None
    return (file, node) if file and node else None


def function_node(value: Any) -> tuple[str, Function] | None:
    """The file and the definition of a function in this repository, without its wrappers."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    if code is None or not _is_here(code.co_filename):
        return None
    node = definitions(code.co_filename).functions.get(code.co_firstlineno)
    return (code.co_filename, node) if node else None


def location(value: Any, home: tuple[str, str]) -> str:
    """Where a value is defined or assigned, such as `toile/numpy/reductions.py:174`.

    `home` is the pair (module, name) from which a namespace imports the value. For a value from
    another package, the location is that of the import.
    """
    found = class_node(value) if isinstance(value, type) else function_node(value)
    if found:
        return f"{Path(found[0]).relative_to(ROOT)}:{found[1].lineno}"
    return assignment(*home)


def assignment(module: str, name: str) -> str:
    """Where a module assigns a name or imports it from another package; "" if it does neither."""
    file = _file(module)
    if file is None:
        return ""
    known = definitions(file)
    place = str(Path(file).relative_to(ROOT))
    if name in known.assigned:
        return f"{place}:{known.assigned[name]}"
    if name not in known.imported:
        return place
    line, *there = known.imported[name]
    return assignment(*there) or f"{place}:{line}"


def spellings(value: Any) -> dict[str, Spelling]:
    """The parameters of a function or class as written in the source."""
    if not isinstance(value, type):
        found = function_node(value)
        return _of_function(found[1]) if found else {}
    spelled: dict[str, Spelling] = {}
    for cls in reversed(value.__mro__):
        place = class_node(cls)
        for statement in place[1].body if place else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                spelled[statement.target.id] = Spelling(
                    ast.unparse(statement.annotation), _field_default(statement.value)
                )
            elif isinstance(statement, Function) and statement.name in ("__init__", "__new__"):
                spelled |= _of_function(statement)
    return spelled


def _field_default(value: ast.expr | None) -> str | None:
    """The default of a dataclass field; for `field(default=x)`, it is x."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        given = {k.arg: k.value for k in value.keywords}
        return ast.unparse(given["default"]) if "default" in given else None
    return ast.unparse(value) if value else None


def _of_function(node: Function) -> dict[str, Spelling]:
    args = node.args
    usual = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(usual) - len(args.defaults))
    pairs = [*zip(usual, [*defaults, *args.defaults], strict=True),
             *zip(args.kwonlyargs, args.kw_defaults, strict=True),
             *((a, None) for a in (args.vararg, args.kwarg) if a)]  # fmt: skip
    return {a.arg: Spelling(ast.unparse(a.annotation) if a.annotation else None,
                            ast.unparse(d) if d else None) for a, d in pairs}  # fmt: skip


# ---- signatures


def signature(name: str, value: Any) -> str:
    """A signature such as `name(x: ArrayLike, axis: int = 0) -> Array`, wrapped if it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    spelled = spellings(value)
    shown = {p.name for p in parameters(value)}
    parts: list[str] = []
    kinds = [p.kind for p in found.parameters.values()]
    for i, p in enumerate(found.parameters.values()):
        starred = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        before = kinds[i - 1] if i else None
        if before is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        if p.name in shown:
            if p.kind is p.KEYWORD_ONLY and "*" not in parts and p.VAR_POSITIONAL not in kinds:
                parts.append("*")
            parts.append(_parameter(p, spelled.get(p.name, Spelling(None, None)), starred))
    if kinds and kinds[-1] is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    result = "" if isinstance(value, type) else _result(value, found)
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= WIDTH or not parts:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _parameter(p: inspect.Parameter, spelled: Spelling, starred: bool) -> str:
    stars = "*" * ((p.kind is p.VAR_POSITIONAL) + 2 * (p.kind is p.VAR_KEYWORD))
    text = stars + p.name
    annotation = spelled.annotation or _text(p.annotation)
    if annotation:
        text += f": {_unquoted(annotation)}"
    if p.default is not p.empty and not starred:
        default = spelled.default or _value(p.default)
        text += f" = {default}" if annotation else f"={default}"
    return text


def _result(value: Any, found: inspect.Signature) -> str:
    place = function_node(value)
    if place and place[1].returns:
        return f" -> {_unquoted(ast.unparse(place[1].returns))}"
    text = _text(found.return_annotation)
    return f" -> {text}" if text else ""


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"\b(?:typing|collections\.abc|toile(?:\.\w+)*)\.(?=\w)", "", text)


def _unquoted(text: str) -> str:
    return text[1:-1] if re.fullmatch(r"'[^']*'", text) else text


def _value(default: Any) -> str:
    """The repr of a default, without memory addresses."""
    if isinstance(default, type) or inspect.isroutine(default):
        return str(default.__name__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(default))
