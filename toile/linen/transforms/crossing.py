"""How modules enter and leave a transform.

Outside the transform, the scopes of a module, of the modules in its fields, and of the modules and
Variables in its arguments are collected. Inside, all of these objects are rebuilt with the scopes
that the transform made. An object that is used twice outside is rebuilt only once, so it is also a
single object inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toile import errors
from toile.core.scope import Scope, Variable
from toile.engine import trees
from toile.engine.records import dataclass
from toile.linen.adoption import is_plain
from toile.linen.module import Module
from toile.tree_util import register_static


@register_static
@dataclass(frozen=True)
class Placeholder:
    """Replaces a module or a Variable in the arguments; `index` is the index of its scope."""

    index: int
    cls: type
    parts: Any  # fields by name, or what makes a Variable

    def __hash__(self) -> int:
        return hash((self.index, self.cls))


def _is_placeholder(x: Any) -> bool:
    return isinstance(x, Placeholder)


def _is_bound(x: Any) -> bool:
    return isinstance(x, Module | Variable) and isinstance(x.scope, Scope)


def _variable_parts(x: Variable[Any]) -> dict[str, Any]:
    return {"collection": x.collection, "name": x.name, "unbox": x.unbox}


def _fields(module: Module) -> dict[str, Any]:
    return {name: getattr(module, name) for name in (*module._own_fields, "name")}


def _map_fields(
    fn: Callable[[Any], Any], fields: Mapping[str, Any], is_leaf: Any = None
) -> dict[str, Any]:
    """The fields by name, with `fn` applied to the leaves of fields that may contain modules."""
    return {
        name: value if is_plain(value) else trees.tree_map(fn, value, is_leaf=is_leaf)
        for name, value in fields.items()
    }


class Crossing:
    """One call to a transformed method: its inputs, and the modules built inside.

    `cls` is the class of the module inside. By default, it is the class of the module outside."""

    def __init__(
        self,
        module: Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        cls: type[Module] | None = None,
    ):
        self.module = module
        self.cls = cls or type(module)
        self.state = module._state.export()
        self.scopes: list[Scope] = []
        self.indices: dict[int, int] = {}  # by id of a module or Variable
        self.replaced: dict[int, Placeholder] = {}
        self.args, self.kwargs = trees.tree_map(self._replace, (args, dict(kwargs)))
        self._collect(module)

    # Outside.

    def _add(self, x: Any) -> int:
        self.indices[x._id] = index = len(self.scopes)
        self.scopes.append(x.scope)
        return index

    def _replace(self, x: Any) -> Any:
        """The placeholder of a bound module or Variable; any other value is returned unchanged."""
        if not _is_bound(x):
            return x
        if x._id not in self.replaced:
            if isinstance(x, Variable):
                made = Placeholder(self._add(x), Variable, _variable_parts(x))
            else:
                x._try_setup(shallow=True)
                index = self._add(x)
                made = Placeholder(index, type(x), _map_fields(self._replace, _fields(x)))
            self.replaced[x._id] = made
        return self.replaced[x._id]

    def _collect(self, x: Any) -> None:
        """Add the scopes of a module and of the modules in its fields."""
        if x._id in self.indices:
            return
        if isinstance(x, Module):
            x._try_setup(shallow=True)
            for name in x._own_fields:
                if not is_plain(value := getattr(x, name)):
                    for leaf in trees.leaves(value):
                        if _is_bound(leaf):
                            self._collect(leaf)
        self._add(x)

    # Inside.

    def enter(self, scopes: list[Scope], args: Any, kwargs: Any) -> tuple[Module, Any, Any]:
        """The module and the arguments, rebuilt with new scopes."""
        built: dict[int, Any] = {}  # by index of the scope

        def restored(x: Any) -> Any:
            if not _is_placeholder(x):
                return x
            if x.index not in built:
                parts = x.parts
                if x.cls is not Variable:
                    parts = _map_fields(restored, parts, _is_placeholder)
                built[x.index] = _build(x.cls, parts, scopes[x.index])
            return built[x.index]

        def rebuilt(x: Any) -> Any:
            """The value of a field, rebuilt with its new scope."""
            if not _is_bound(x):
                return x
            index = self.indices[x._id]
            if index not in built:
                parts = _variable_parts(x) if isinstance(x, Variable) else fields_of(x)
                built[index] = _build(type(x), parts, scopes[index])
            return built[index]

        def fields_of(x: Module) -> dict[str, Any]:
            return _map_fields(rebuilt, _fields(x))

        args, kwargs = trees.tree_map(restored, (args, kwargs), is_leaf=_is_placeholder)
        index = self.indices[self.module._id]
        fields = fields_of(self.module)
        # A subclass of a transformed class may have fields that the class inside does not know.
        known = {k: fields[k] for k in (*self.cls._own_fields, "name")}
        inner = _build(self.cls, known, scopes[index])
        inner.__dict__["_state"] = self.state.export()
        return inner, args, kwargs

    def run(
        self,
        fn: Callable[..., Any],
        method_name: str | None,
        scopes: list[Scope],
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call `fn` on the module inside, and copy its state to the module outside."""
        inner, args, kwargs = self.enter(scopes, args, kwargs)
        out = fn(inner, *args, **kwargs)
        self.module._state.reimport(inner._state)
        if any(isinstance(x, Module | Variable) for x in trees.leaves(out)):
            raise errors.TransformedMethodReturnValueError(method_name)
        return out


def _build(cls: type, parts: Mapping[str, Any], scope: Scope) -> Any:
    if cls is Variable:
        return Variable(scope, **parts)
    return cls(parent=scope, **parts)
