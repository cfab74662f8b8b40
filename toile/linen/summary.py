"""Summaries of modules: `tabulate`, which creates a table of calls, parameters, bytes and FLOPs.

`init` runs on shapes only (`eval_shape`) while the calls to modules are recorded. Each call is a
row, in the order in which the calls began. FLOPs are counted in the programs of each call and its
vector-Jacobian product. Module loads this file when it needs a summary. This file does not import
Module.
"""

from __future__ import annotations

import dataclasses
import enum
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toile import numpy as jnp
from toile.api.linear_maps import vjp
from toile.api.programs import eval_shape, jit
from toile.core import meta
from toile.core.filters import CollectionFilter
from toile.core.frozen_dict import unfreeze
from toile.core.rng import LazyRng
from toile.engine.annotations import Array, PyTree
from toile.engine.dtypes import float0, issubdtype
from toile.engine.lazy import attach_table
from toile.engine.locks import loading
from toile.engine.records import dataclass
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trees import flatten, tree_map, unflatten
from toile.linen.context import CallInfo, recording_calls
from toile.linen.module_summaries import NO_OPTIONS, NOT_INTERMEDIATES, Summarized
from toile.linen.yaml_text import yaml_text
from toile.typing import SizeBytes, bytes_text

if TYPE_CHECKING:
    from toile.linen.module import Module

__all__ = ["Row", "Table", "represent_tree", "tabulate"]

__getattr__, __dir__ = attach_table(__name__, {})  # Flax's private names: toile.compat

UNNAMED_METHODS = ("__call__", "<lambda>")


# The representations of values in a table.


@dataclass
class ArrayRepresentation:
    """The shape and dtype of an array, and the names of its axes if it was in a box."""

    shape: tuple[int, ...]
    dtype: Any
    names: tuple[str | None, ...] | None = None

    def render(self) -> str:
        """A text such as `float32[2,3]`, in rich's markup."""
        text = f"[dim]{self.dtype}[/dim][{','.join(map(str, self.shape))}]"
        return text if self.names is None else f"{text} [dim]P[/dim]{self.names}"

    def text(self) -> str:
        """The same text without markup."""
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return text if self.names is None else f"{text} P{self.names}"

    def restored(self) -> ShapeDtypeStruct:
        """The ShapeDtypeStruct to trace in place of the array."""
        return ShapeDtypeStruct(self.shape, self.dtype)


@dataclass
class ObjectRepresentation:
    """A value that is not an array."""

    obj: Any

    def render(self) -> str:
        """The repr of the value."""
        return repr(self.obj)

    text = render

    def restored(self) -> Any:
        """The value itself."""
        return self.obj


def _represent(x: Any) -> ArrayRepresentation | ObjectRepresentation:
    names = x.names if isinstance(x, meta.Partitioned) else None
    value = x.value if isinstance(x, meta.Partitioned) else x
    if value is None or isinstance(value, int | float | bool):
        return ObjectRepresentation(x)
    try:
        return ArrayRepresentation(jnp.shape(value), jnp.result_type(value), names)
    except Exception:  # a foreign object may raise anything: show it as it is
        return ObjectRepresentation(x)


def represent_tree(x: Any) -> Any:
    """A tree in which each leaf is replaced by its representation."""
    return tree_map(_represent, x, is_leaf=lambda x: x is None or isinstance(x, meta.Partitioned))


def _restore(tree: Any) -> Any:
    return tree_map(lambda x: x.restored(), tree)


def _plain(obj: Any) -> Any:
    """A value as a tree of dicts and tuples, the form in which cells show it."""
    if isinstance(obj, ArrayRepresentation | ObjectRepresentation):
        return obj
    if isinstance(obj, tuple | list):
        return tuple(map(_plain, obj))
    if isinstance(obj, Mapping):
        return {_plain(k): _plain(v) for k, v in obj.items()}
    if dataclasses.is_dataclass(obj):
        return {f.name: _plain(getattr(obj, f.name)) for f in dataclasses.fields(obj)}
    return obj.value if isinstance(obj, enum.Enum) else obj


def cell_text(value: Any, how: str = "text") -> str:
    """A tree of representations as text; `how` is the name of the method that formats a leaf."""
    text = lambda x: getattr(x, how)() if hasattr(x, how) else repr(x)
    return yaml_text(tree_map(text, _plain(value), is_leaf=lambda x: x is None))


def _cell(value: Any) -> str:
    """A tree of representations as text in rich's markup."""
    return cell_text(value, "render")


# Rows.


@dataclass
class Row:
    """One call to a module: the module and its path, the arguments and the cost.

    `module_variables` are the variables of the module, without those of submodules that have rows.
    `counted_variables` are the variables that this row counts, which include those of submodules
    that `depth` hides. FLOPs are -1 if they were not requested."""

    path: tuple[str, ...]
    module_copy: Any
    method: str
    inputs: Any
    outputs: Any
    module_variables: dict[str, dict[str, Any]]
    counted_variables: dict[str, dict[str, Any]]
    flops: int
    vjp_flops: int

    def size_and_bytes(self, collections: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The number of elements and the size in bytes of the counted variables, by collection."""
        return {col: dataclasses.astuple(self.counted_size(col)) for col in collections}

    def counted_size(self, collection: str) -> SizeBytes:
        """The number of elements and the size in bytes of one collection's counted variables."""
        return SizeBytes.from_any(self.counted_variables.get(collection, {}))


class Table(list[Row]):
    """The rows of a summary, with the module and the names of the collections."""

    def __init__(self, module: Any, collections: Sequence[str], rows: Iterable[Row]):
        super().__init__(rows)
        self.module = module
        self.collections = collections

    def total(self, collection: str) -> SizeBytes:
        """The number of elements and the size in bytes of a collection in all rows."""
        return sum((row.counted_size(collection) for row in self), SizeBytes(0, 0))

    def _repr_html_(self) -> str:
        with loading:
            from toile.linen.summary_html import table_html

        return table_html(self)


class Summary(str):
    """The text of a summary, which notebooks display as a table.

    Args:
        text: the printed text.
        table: the rows of the table.
    """

    _table: Table

    def __new__(cls, text: str, table: Table) -> Summary:
        made = super().__new__(cls, text)
        made._table = table
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def _repr_html_(self) -> str:
        return self._table._repr_html_()


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args and kwargs:
        return (*args, kwargs)
    if kwargs:
        return kwargs
    return args[0] if len(args) == 1 else args


def _variables_at(path: tuple[str, ...], variables: Any) -> dict[str, Any]:
    """Copies of the collections below a path, as dicts."""
    found = {}
    for col, inside in variables.items():
        for name in path:
            inside = inside[name] if inside is not None and name in inside else None
        if inside is not None:
            found[col] = unfreeze(inside)
    return found


def _abstract(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The ShapeDtypeStructs in a tree, and a function that puts arrays in their places."""
    values, structure = flatten(tree)
    where = [i for i, x in enumerate(values) if isinstance(x, ShapeDtypeStruct)]

    def given(arrays: Sequence[Any]) -> Any:
        filled = list(values)
        for i, x in zip(where, arrays, strict=True):
            filled[i] = x
        return unflatten(structure, filled)

    return [values[i] for i in where], given


def _call(fun: Callable[..., Any], arguments: Any, *first: Any, **options: Any) -> Any:
    args, kwargs = arguments
    return fun(*first, *args, **options, **kwargs)


def module_table(
    module: Any,
    depth: int | None,
    show_repeated: bool,
    compute_flops: bool,
    compute_vjp_flops: bool,
) -> Callable[..., Table]:
    """A function that takes the arguments of `init` and returns the Table."""

    def table(*args: Any, **kwargs: Any) -> Table:
        shapes, given = _abstract((args, kwargs))
        with recording_calls(represent_tree) as record:
            variables = eval_shape(lambda *xs: _call(module.init, given(xs)), *shapes)
        calls = sorted(record.calls, key=lambda call: call.index)
        paths = {call.path for call in calls}
        visited: set[tuple[str, ...]] = set()
        rows = []
        for call in calls:
            own: dict[str, Any] = {}
            counted: dict[str, Any] = {}
            if call.path in visited or not hasattr(call.module, call.method):
                if not show_repeated:
                    continue
            elif depth is not None and len(call.path) > depth:
                continue
            else:
                below = _variables_at(call.path, variables)
                own = counted = {
                    col: {k: v for k, v in inside.items() if (*call.path, k) not in paths}
                    for col, inside in below.items()
                }
                if len(call.path) == depth:
                    counted = below
            visited.add(call.path)
            costs = _call_flops(call, compute_flops, compute_vjp_flops)
            rows.append(
                Row(call.path, call.module.copy(parent=None), call.method,
                    _inputs(call.args, call.kwargs), call.outputs, own, counted, *costs)
            )  # fmt: skip
        return Table(module, tuple(variables), rows)

    return table


# FLOPs.


def _flops(fun: Callable[..., Any], *args: Any) -> int:
    return int(jit(fun).lower(*args).cost_analysis()["flops"])


def _cotangent(x: Any) -> Any:
    """A cotangent for a result: the result itself, or a float0 array if it is not a float."""
    return x if issubdtype(x.dtype, np.inexact) else np.zeros(x.shape, float0)


def _call_flops(call: CallInfo, forward: bool, backward: bool) -> tuple[int, int]:
    """The FLOPs of a call, and of the call with its vector-Jacobian product, or -1."""
    if not forward and not backward:
        return -1, -1
    keys = tree_map(lambda x: x.rng, call.rngs, is_leaf=lambda x: isinstance(x, LazyRng))
    rngs = tree_map(lambda key: ShapeDtypeStruct(key.shape, key.dtype), keys)
    arrays, given = _abstract(_restore((call.args, call.kwargs)))
    options = {"method": call.method, "mutable": call.mutable}

    def init(rngs: Any, arrays: list[Any]) -> Any:
        return _call(call.module.init, given(arrays), rngs, **options)

    def apply(variables: Any, rngs: Any, arrays: list[Any]) -> Any:
        return _call(call.module.apply, given(arrays), variables, rngs=rngs, **options)

    def apply_vjp(variables: Any, rngs: Any, arrays: list[Any]) -> Any:
        out, pull = vjp(apply, variables, rngs, arrays)
        return pull(tree_map(_cotangent, out))

    variables = eval_shape(init, rngs, arrays)
    return (
        _flops(apply, variables, rngs, arrays) if forward else -1,
        _flops(apply_vjp, variables, rngs, arrays) if backward else -1,
    )


# The table as text.


def _size_text(size: SizeBytes) -> str:
    return f"{size.size:,} [dim]({bytes_text(size.bytes)})[/dim]" if size else ""


def _row_cells(row: Row, shown: list[str], collections: Sequence[str]) -> list[str]:
    """The cells of one row as text."""
    method = "" if row.method in UNNAMED_METHODS else f" [dim]({row.method})[/dim]"
    cells = ["/".join(row.path), type(row.module_copy).__name__ + method]
    cells += [_cell(getattr(row, column)) for column in shown[2:]]
    for col in collections:
        text = _cell(represent_tree(row.module_variables.get(col, {})))
        cells.append((text and text + "\n\n") + f"[bold]{_size_text(row.counted_size(col))}[/bold]")
    return cells


def _rendered(
    table: Table, shown: list[str], console_kwargs: Mapping[str, Any] | None,
    table_kwargs: Mapping[str, Any], column_kwargs: Mapping[str, Any],
) -> str:  # fmt: skip
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError as e:
        raise ImportError("tabulate: needed the package rich, got none (pip install rich)") from e

    drawn = RichTable(
        show_header=True, show_lines=True, show_footer=True,
        title=f"{type(table.module).__name__} Summary", **table_kwargs,
    )  # fmt: skip
    for column in (*shown, *table.collections):
        drawn.add_column(column, **column_kwargs)
    for row in table:
        drawn.add_row(*_row_cells(row, shown, table.collections))
    drawn.columns[len(shown) - 1].footer = Text.from_markup("Total", justify="right")
    whole = SizeBytes(0, 0)
    for i, col in enumerate(table.collections):
        size = table.total(col)
        drawn.columns[len(shown) + i].footer = _size_text(size)
        whole += size
    drawn.caption_style = "bold"
    drawn.caption = f"\nTotal Parameters: {_size_text(whole)}"
    out = io.StringIO()
    options = {"force_terminal": True, "force_jupyter": False, **(console_kwargs or {})}
    Console(file=out, **options).print(drawn)
    return f"\n{out.getvalue()}\n"


def tabulate(
    module: Module | Summarized,
    rngs: Array | Mapping[str, Array],
    depth: int | None = None,
    show_repeated: bool = False,
    mutable: CollectionFilter = NOT_INTERMEDIATES,
    console_kwargs: Mapping[str, Any] | None = None,
    table_kwargs: Mapping[str, Any] = NO_OPTIONS,
    column_kwargs: Mapping[str, Any] = NO_OPTIONS,
    compute_flops: bool = False,
    compute_vjp_flops: bool = False,
    **kwargs: PyTree,
) -> Callable[..., str]:
    """Return a function that summarizes a module in a table, without computing any values.

    Args:
        module: the module.
        rngs: one key for the stream `params`, or a dict that maps stream names to keys.
        depth: number of levels of submodules to show as rows; None for all levels. The variables of
            a deeper submodule are counted in the row of its closest ancestor that has a row.
        show_repeated: if True, every call to a module has a row; if False, only the first call has
            a row.
        mutable: filter that selects the collections to create; by default, all except
            `intermediates`.
        console_kwargs: options for `rich.console.Console`.
        table_kwargs: options for `rich.table.Table`.
        column_kwargs: options for `rich.table.Table.add_column`, which apply to all columns.
        compute_flops: whether to add a column with the number of floating-point operations.
        compute_vjp_flops: whether to add a column with the number of floating-point operations of
            the call and its vector-Jacobian product.
        **kwargs: other keyword arguments of `init`.

    Returns:
        A function that takes the arguments of the module and returns the table as a string.

    Raises:
        ImportError: the package rich is not installed.

    >>> import toile.linen as nn
    >>> class Scale(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return x * self.param("scale", nn.initializers.ones, (3,))
    >>> draw = nn.tabulate(Scale(), key(0), console_kwargs={"no_color": True})
    >>> "scale" in draw(jnp.ones((2, 3)))
    True
    """
    if mutable != NOT_INTERMEDIATES:  # a user's `init` need not accept options that are not given
        kwargs["mutable"] = mutable
    shown = ["path", "module", "inputs", "outputs"]
    shown += ["flops"] * compute_flops + ["vjp_flops"] * compute_vjp_flops

    def draw(*fn_args: Any, **fn_kwargs: Any) -> str:
        make = module_table(module, depth, show_repeated, compute_flops, compute_vjp_flops)
        table = make(rngs, *fn_args, **fn_kwargs, **kwargs)
        text = _rendered(table, shown, console_kwargs, table_kwargs, column_kwargs)
        return Summary(text, table)

    return draw
