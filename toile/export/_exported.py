"""`export`, `Exported` and `deserialize`."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from toile.api.linear_maps import vjp
from toile.api.programs import jit
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval, aval_of
from toile.engine.config import flags
from toile.engine.keypaths import keystr
from toile.engine.platform_registry import first_or_default
from toile.engine.program import Program, evaluate
from toile.engine.scoped_options import enable_x64
from toile.engine.sharded import device_of_call
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import state
from toile.engine.treeerrors import equality_errors
from toile.engine.trees import flatten, flatten_with_path, unflatten
from toile.export._dimensions import SAMPLES, SMALL, Dimension
from toile.export._merging import Merger, OtherOperations
from toile.export._reading import Loader
from toile.export._records import (
    AvalData,
    ExportData,
    Fields,
    ProgramData,
    from_bytes,
    to_bytes,
    unreadable,
    wrong,
)
from toile.export._scopes import SymbolicScope
from toile.export._solving import Solver
from toile.export._trees import tree_data, treedef
from toile.export._writing import Constants, Writer, aval_data
from toile.sharding import NamedSharding, PartitionSpec
from toile.staging.jit import Cache, PjitFunction
from toile.staging.stages import TracedStage, operand

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_RULES = 2  # levels of derivative rules in an Exported that was not serialized
_MOST_SIZES = 64  # number of sizes for which the compiled forms of a function are kept
_MOST_VJP_ORDER = 20


class DisabledSafetyCheck:
    """A directive that disables a check of calls to an exported function.

    `DisabledSafetyCheck.platform()` allows calls on platforms for which the function was not
    exported.

    Args:
        _impl: text of the directive; use the methods `platform` and `custom_call` instead of the
            constructor.

    >>> check = toile.export.DisabledSafetyCheck.platform()
    >>> f = toile.export.export(toile.jit(jnp.sin), platforms=["tpu"], disabled_checks=[check])
    >>> float(f(0.0).call(0.0))
    0.0
    """

    def __init__(self, _impl: str):
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Return a directive that allows calls on platforms other than those of the export."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Return a directive that has no effect, because toile's functions have no custom calls.

        Args:
            target_name: name of the target.
        """
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """Return the name of the target of a `custom_call` directive; None for other directives."""
        found = re.match("custom_call:(.+)$", self._impl)
        return found[1] if found else None

    def __str__(self) -> str:
        return self._impl

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


def default_export_platform() -> str:
    """Return the name of the platform for which functions are exported by default.

    Returns:
        "cpu", "cuda", or the name of the platform of the default device.

    >>> toile.export.default_export_platform() in ("cpu", "cuda")
    True
    """
    return _platform_name(first_or_default().platform)


def _platform_name(name: str) -> str:
    return "cuda" if name == "gpu" else name


class Exported:
    """An exported function: a Program, and the types and tree structures of arguments and results.

    `export` and `deserialize` return objects of this class. Their attributes have the same names as
    in JAX: `fun_name`, `in_tree` and `out_tree` (structures of `(args, kwargs)` and of the result),
    `in_avals` and `out_avals` (shapes, which may contain symbolic dimensions, and dtypes),
    `platforms` and `nr_devices`.

    Args:
        data: records that contain the function.
        live: function that creates the records again with another `vjp_order`; None if the exported
            function was loaded from bytes.

    >>> f = toile.export.export(toile.jit(lambda x: x @ x.T))
    >>> (b,) = toile.export.symbolic_shape("b")
    >>> exported = f(toile.ShapeDtypeStruct((b, 3), "float32"))
    >>> exported.in_avals, exported.out_avals
    ((ShapedArray(float32[b,3]),), (ShapedArray(float32[b,b]),))
    >>> loaded = toile.export.deserialize(exported.serialize())
    >>> loaded.call(jnp.ones((2, 3)))
    Array([[3., 3.],
           [3., 3.]], dtype=float32)
    """

    ordered_effects: tuple[Any, ...] = ()
    unordered_effects: tuple[Any, ...] = ()
    calling_convention_version = maximum_supported_calling_convention_version

    def __init__(self, data: ExportData, live: Callable[[int], ExportData] | None = None):
        self._data, self._live = data, live
        self._runners: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self.fun_name, self.platforms, self.nr_devices = data.name, data.platforms, data.devices
        self.in_tree, self.out_tree = treedef(data.in_tree), treedef(data.out_tree)
        self._scope = SymbolicScope(data.constraints)
        symbols = {name: self._scope.variable(name) for name in data.variables}
        loader = Loader(symbols)
        self.in_avals: tuple[Aval, ...] = tuple(
            [loader.aval(a).strip_weak_type() for a in data.program.inputs[len(data.constants):]])
        self.out_avals: tuple[Aval, ...] = tuple(
            [loader.aval(a).strip_weak_type() for a in data.out_avals])
        self._labels = data.labels

    @property
    def disabled_safety_checks(self) -> tuple[DisabledSafetyCheck, ...]:
        """The checks that were disabled when the function was exported."""
        return tuple([DisabledSafetyCheck(text) for text in self._data.checks])

    @property
    def uses_global_constants(self) -> bool:
        """Whether the function has symbolic dimensions or was exported for several platforms."""
        return bool(self._data.variables) or len(self.platforms) > 1

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """The indices of the arguments on which the results depend."""
        skip = len(self._data.constants)
        program = self._data.program
        used = {i for e in program.equations for i in e.ins} | set(program.outputs)
        return tuple([i for i in range(len(self.in_avals)) if i + skip in used])

    @property
    def in_shardings_hlo(self) -> tuple[None, ...]:
        """A None for each argument; use `in_shardings_jax` to get shardings."""
        return (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[None, ...]:
        """A None for each result; use `out_shardings_jax` to get shardings."""
        return (None,) * len(self.out_avals)

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """Return the shardings of the arguments with which the function was exported.

        Args:
            mesh: mesh of the shardings. It must have the same axis names as the mesh that was used
                for the export.

        Returns:
            For each array among the arguments, a `NamedSharding`, or None if it had no sharding.
        """
        return _shardings(mesh, self._data.in_specs)

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """Return the shardings of the results of the exported function.

        Args:
            mesh: mesh of the shardings. It must have the same axis names as the mesh that was used
                for the export.

        Returns:
            For each array in the result, a `NamedSharding`, or None if it had no sharding.
        """
        return _shardings(mesh, self._data.out_specs)

    @property
    def program(self) -> Program:
        """The Program, whose first inputs are the constants; print it to see its operations."""
        sizes = {name: self._scope.variable(name) for name in self._data.variables}
        return Loader(sizes).program(self._data.program)

    @property
    def mlir_module_serialized(self) -> bytes:
        """Not available, because an exported function of toile is not StableHLO."""
        raise self._no_mlir()

    def mlir_module(self, serialized: bool = True) -> str:
        """Raise NotImplementedError, because an exported function of toile is not StableHLO.

        Args:
            serialized: not used.

        Raises:
            NotImplementedError: always. `print(exported.program)` shows the operations.
        """
        raise self._no_mlir()

    def _no_mlir(self) -> Exception:
        return NotImplementedError(
            f"mlir_module: needed a StableHLO module of {self.fun_name}, but an exported function "
            "of toile is a Program of toile's own operations (print(exported.program) shows it, "
            f"and serialize() stores it){here()}")

    def __str__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    __repr__ = __str__

    # ---- derivatives and bytes
    def has_vjp(self) -> bool:
        """Test whether the function can be differentiated in reverse mode.

        Returns:
            False if the function calls a `custom_vjp` function whose rule was not serialized.
        """
        return not _lacks_rules(self._data.program, {})

    def vjp(self) -> Exported:
        """Export the vector-Jacobian product of the function.

        Returns:
            An exported function. Its arguments are all arrays in the arguments of this function,
            followed by the cotangents of all results. It returns a tuple with the cotangents of the
            arguments.

        Raises:
            ValueError: a derivative rule is missing; see `has_vjp`.
        """
        if not self.has_vjp():
            raise ValueError(
                f"No VJP is available: needed the rules of the custom_vjp functions that "
                f"{self.fun_name} calls, which were not written (use serialize(vjp_order=1))"
                f"{here()}")
        count = len(self.in_avals)

        def function(*xs: Any) -> tuple[Any, ...]:
            _, back = vjp(lambda *args: tuple(self._flat(args)), *xs[:count])
            return tuple([np.zeros(c.shape, bool) if c.dtype == dtypes.float0 else c
                          for c in back(tuple(xs[count:]))])

        function.__name__ = f"vjp_{self.fun_name}"
        tangents = [a.to_tangent_aval() for a in self.out_avals]
        structs = [ShapeDtypeStruct(a.shape, a.dtype) for a in (*self.in_avals, *tangents)]
        return _exported(jit(function), tuple(structs), {}, self.platforms, self._data.checks)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Convert the function to bytes, which `deserialize` can load in any process.

        Args:
            vjp_order: number of times that the loaded function can be differentiated in reverse
                mode if it calls functions with `custom_vjp` rules. Functions with `custom_jvp`
                rules can be differentiated two more times, and functions without custom rules any
                number of times.

        Returns:
            The bytes. They contain data and no code.

        Raises:
            ValueError: the function was loaded from bytes with a smaller `vjp_order`.
        """
        if not isinstance(vjp_order, int) or not 0 <= vjp_order <= _MOST_VJP_ORDER:
            raise ValueError(
                f"Exported.serialize: needed vjp_order between 0 and {_MOST_VJP_ORDER}, got "
                f"{vjp_order!r} (0 if the function is not differentiated){here()}")
        data = self._data
        if self._live is not None:
            data = self._live(vjp_order)
        elif vjp_order > data.vjp_order and _has_custom_vjp(data.program, {}):
            raise ValueError(
                f"Exported.serialize: needed vjp_order of at most {data.vjp_order}, with which "
                f"{self.fun_name} was written, got {vjp_order} (export the function again)"
                f"{here()}")
        return to_bytes(data)

    # ---- calls
    def call(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Call the function.

        This method can be jitted, differentiated, mapped with `vmap` and exported again.

        Args:
            *args, **kwargs: arguments with the structure `in_tree` and with the shapes and dtypes
                in `in_avals`. Each symbolic dimension may have any size that the constraints allow.

        Returns:
            The results.

        Raises:
            ValueError: the arguments do not match, or the default device does not belong to one of
                `platforms`.
        """
        leaves, tree = flatten((args, kwargs))
        if tree != self.in_tree:
            raise self._other_structure(args, kwargs)
        return unflatten(self.out_tree, self._flat(leaves))

    def _flat(self, leaves: Sequence[Any]) -> Any:
        """Return the results of a call as a list."""
        given = [operand(x) for x in leaves]
        self._check_placement(given)
        sizes = self._sizes([aval_of(x) for x in given])
        with enable_x64(True) if self._data.wide and not flags.enable_x64 else nullcontext():
            return self._runner(sizes)(*given)

    def _sizes(self, avals: Sequence[Aval]) -> dict[str, Any]:
        for wanted, found, label in zip(self.in_avals, avals, self._labels, strict=True):
            if len(wanted.shape) != len(found.shape):
                raise ValueError(
                    f"Rank mismatch for {label}: expected {wanted.shape} and called with "
                    f"{found.shape} (reshape the argument of {self.fun_name}){here()}")
            if wanted.dtype != found.dtype:
                raise ValueError(
                    f"Dtype mismatch for {label}: expected {wanted.dtype} and called with "
                    f"{found.dtype} (convert the argument of {self.fun_name} with astype){here()}")
            for i, (n, m) in enumerate(zip(wanted.shape, found.shape, strict=True)):
                if not isinstance(n, Dimension) and n != m:
                    raise ValueError(
                        f"Shape mismatch for {label}.shape[{i}] (expected same constant): expected "
                        f"{wanted.shape} and called with {found.shape} (export {self.fun_name} "
                        f"with a symbolic dimension there){here()}")
        return Solver(self._scope, self.in_avals, self._labels).solve(avals)

    def _runner(self, sizes: dict[str, Any]) -> Any:
        """The jitted function for given sizes of the dimension variables."""
        key = tuple(sizes.values())
        symbolic = any(isinstance(n, Dimension) for n in key)
        found = None if symbolic else self._runners.get(key)
        if found is None:
            loader = Loader(sizes)
            program = _checked_program(self._data, loader, self.fun_name)
            consts = [loader.array(c) for c in self._data.constants]

            def function(*xs: Any) -> list[Any]:
                return evaluate(program, [*consts, *xs])

            function.__name__ = self.fun_name
            found = jit(function)
            if not symbolic:
                self._runners[key] = found
                if len(self._runners) > _MOST_SIZES:
                    self._runners.popitem(last=False)
        return found

    def _check_placement(self, given: Sequence[Any]) -> None:
        """Raise an error if the function was exported for other platforms or for more devices."""
        devices = [d for x in given for d in _devices(x)]
        arrays = [x for x in given if isinstance(x, ConcreteArray)]
        device = device_of_call(arrays, [x._data for x in arrays])
        name = _platform_name("cpu" if device is None else device.platform)
        if name not in self.platforms and "platform" not in self._data.checks:
            raise ValueError(
                f"Function '{self.fun_name}' was exported for platforms '{self.platforms}' but it "
                f"is used on '{(name,)}' (pass platforms={[*self.platforms, name]} to export)"
                f"{here()}")
        count = len(set(devices))
        if self.nr_devices > 1 and devices and count != self.nr_devices:
            raise ValueError(
                f"Function {self.fun_name} was exported for {self.nr_devices} devices and is "
                f"called in a context with {count} device{'s' * (count != 1)}, which is not "
                f"allowed (put the arguments on a mesh of {self.nr_devices} devices){here()}")

    def _other_structure(self, args: Any, kwargs: Any) -> ValueError:
        expected = unflatten(self.in_tree, [0] * self.in_tree.num_leaves)
        found = unflatten(flatten((args, kwargs))[1], [0] * len(flatten((args, kwargs))[0]))
        lines = [
            f"   - {_label(path)} is a {one} in the invocation and a {other} when exported, so "
            f"{why}.\n" for path, one, other, why in equality_errors(found, expected)]
        return ValueError(
            "The invocation args and kwargs must have the same pytree structure as when the "
            f"function '{self.fun_name}' was exported, but they have the following structural "
            f"differences:\n{''.join(lines)}(needed {self.in_tree}){here()}")


def _devices(x: Any) -> Sequence[Any]:
    found = getattr(x, "_trace", None)
    return () if found is not None else tuple(x.devices())


def _label(path: Any) -> str:
    return ("kwargs" if path and getattr(path[0], "idx", 0) == 1 else "args") + keystr(path[1:])


# ---- derivative rules in the records


def _nested(x: Any) -> list[Any]:
    if type(x) is ProgramData:
        return [x]
    return [p for y in x for p in _nested(y)] if isinstance(x, tuple) else []


def _any_equation(program: ProgramData, holds: Callable[[Fields], bool],
                  known: dict[int, bool]) -> bool:
    """Whether any equation that a call runs has a property; derivative rules are ignored."""
    if id(program) not in known:
        known[id(program)] = False
        known[id(program)] = any(
            holds(e.op) or any(
                _any_equation(p, holds, known)
                for name, value in zip(e.op.names, e.op.values, strict=True)
                if name not in ("rule", "forward", "backward", "transposed")
                for p in _nested(value))
            for e in program.equations)
    return known[id(program)]


def _lacks_rules(program: ProgramData, known: dict[int, bool]) -> bool:
    lacking = lambda op: (op.kind == "CustomVJPCall" and "forward" not in op.names
                          or op.kind == "CustomJVPCall" and "rule" not in op.names)
    return _any_equation(program, lacking, known)


def _has_custom_vjp(program: ProgramData, known: dict[int, bool]) -> bool:
    return _any_equation(program, lambda op: op.kind == "CustomVJPCall", known)


# ---- exporting


def export(
    fun_jit: Callable[..., Any], *, platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (), _override_lowering_rules: Any = None,
) -> Callable[..., Exported]:
    """Prepare a jitted function for export.

    The exported function can be stored with `Exported.serialize` and loaded with `deserialize`. The
    code that defined the function is not needed to load it. Use symbolic dimensions for axes whose
    size is not known yet; see `symbolic_shape`.

    Args:
        fun_jit: a function that `jit` returned, or a function of `toile.numpy` or `toile.lax`.
        platforms: platforms on which the function may be called, such as ("cpu", "cuda"). By
            default, this is only the platform of the default device.
        disabled_checks: checks of calls that are disabled; see `DisabledSafetyCheck`.

    Returns:
        A function that takes the same arguments as `fun_jit`, or `ShapeDtypeStruct` objects instead
        of arrays, and returns an `Exported`.

    Raises:
        ValueError: `fun_jit` is not a jitted function.
        NotImplementedError: the function calls Python, for example through `pure_callback`.

    Differences:
        JAX writes StableHLO and toile writes Programs, so neither can read the other's files.

    >>> exported = toile.export.export(toile.jit(lambda x: 2 * x))(jnp.arange(3))
    >>> exported.call(jnp.array([4, 5, 6]))
    Array([ 8, 10, 12], dtype=int32)
    """
    if _is_of_toile(fun_jit):
        fun_jit = jit(fun_jit)
    if not hasattr(fun_jit, "trace") or not hasattr(fun_jit, "lower"):
        raise ValueError(
            f"Function to be exported must be the result of `jit` but is: {fun_jit} (wrap it in "
            f"toile.jit){here()}")
    if isinstance(platforms, str):
        platforms = (platforms,)
    names = tuple(platforms) if platforms is not None else (default_export_platform(),)
    unknown = [n for n in names if n not in (*_PLATFORMS, default_export_platform())]
    if unknown or not names:
        raise ValueError(
            f"export: needed platforms among {_PLATFORMS}, got {names} (for example "
            f"platforms=[\"cpu\", \"cuda\"]){here()}")

    def do_export(*args: PyTree, **kwargs: PyTree) -> Exported:
        return _exported(fun_jit, args, kwargs, names, tuple([str(c) for c in disabled_checks]))

    return do_export


def _is_of_toile(fun: Any) -> bool:
    """Whether this is a function such as `jnp.sin`, which is already jitted in JAX."""
    module = getattr(fun, "__module__", None) or ""
    return callable(fun) and not hasattr(fun, "trace") and module.startswith(
        ("toile.numpy", "toile.lax", "toile.nn", "toile.scipy", "toile.random"))


def _exported(fun: Any, args: Any, kwargs: Any, platforms: tuple[str, ...],
              checks: tuple[str, ...]) -> Exported:
    name = getattr(fun, "__name__", "the function")
    scope, labels = _scope_of(args, kwargs, name)
    stages = _Stages(fun, args, kwargs, scope, platforms)
    known: dict[int, ExportData] = {}

    def write(order: int) -> ExportData:
        if order not in known:
            program, consts, out_avals = stages.written(order)
            stage = stages[0]
            known[order] = ExportData(
                stage.fun_name, program, consts, tree_data(stage.in_tree),
                tree_data(stage.out_tree), out_avals, _dynamic(labels, stage),
                _specs(stage.shardings, len(stage.traced.in_avals)),
                _specs(stage.owner._wanted(stage.traced), len(out_avals)),
                () if scope is None else tuple(scope.space.values),
                () if scope is None else tuple([c.text for c in scope.constraints]),
                platforms, checks, _device_count(stage), bool(flags.enable_x64), order)
        return known[order]

    made = Exported(write(_RULES), write)
    if scope is not None:
        Solver(made._scope, made.in_avals, made._labels).solve(None)
    return made


def _dynamic(labels: Sequence[str], stage: TracedStage) -> tuple[str, ...]:
    """The names of the arguments that are not static."""
    if len(labels) == stage.in_tree.num_leaves:
        return tuple(labels)
    leaves, _ = flatten_with_path(unflatten(stage.in_tree, stage.traced.in_avals))
    return tuple([_label(path) for path, _ in leaves])


class _Stages:
    """The traces of a function at several sizes; each one is created when it is first needed."""

    def __init__(self, fun: Any, args: Any, kwargs: Any, scope: SymbolicScope | None,
                 platforms: tuple[str, ...]):
        self.call, self.scope, self.platforms = (fun, args, kwargs), scope, platforms
        self.made: dict[int, TracedStage] = {}

    def __getitem__(self, index: int) -> TracedStage:
        if index not in self.made:
            fun, args, kwargs = self.call
            args, kwargs = _at(args, self.scope, index), _at(kwargs, self.scope, index)
            self.made[index] = _trace(fun, args, kwargs, self.platforms)
        return self.made[index]

    def written(self, order: int) -> Any:
        """The records of the Program, its constants and the types of its results."""
        if self.scope is None:
            return self._merged([0], order)
        self[0], self[1]  # errors in these traces come from the user's function
        if self.scope.has_small_sizes and self._has_small():
            try:
                return self._merged([0, 1, SMALL], order)
            except OtherOperations:
                pass  # small sizes are computed differently, for example without a loop
        return self._merged([0, 1, SAMPLES - 1], order)

    def _has_small(self) -> bool:
        """Whether the function accepts the small sizes."""
        try:
            return self[SMALL] is not None
        except Exception:  # a function may need larger sizes, which calls then check
            return False

    def _merged(self, indices: Sequence[int], order: int) -> Any:
        constants, name = Constants(), self[0].fun_name
        writers = [Writer(constants, name) for _ in indices]
        parts = []
        for index, writer in zip(indices, writers, strict=True):
            traced = self[index].traced
            parts.append((
                writer.program(traced.program, order),
                tuple([constants.record(c, name) for c in traced.consts]),
                tuple([aval_data(a) for a in traced.program.out_avals])))
        if self.scope is None:
            return parts[0]
        return Merger(self.scope, name, [w.sources for w in writers], indices).merged(parts)


def _trace(fun: Any, args: Any, kwargs: Any, platforms: tuple[str, ...]) -> TracedStage:
    if isinstance(fun, PjitFunction):
        fun = copy.copy(fun)  # the traces of the original function are not affected
        fun.cache, fun.max_traces = Cache(), None
    asked: list[str] = []
    previous = state.exporting
    state.exporting = platforms[0], asked
    try:
        stage = fun.trace(*args, **kwargs)
    finally:
        state.exporting = previous
    if asked and len(platforms) > 1:
        raise NotImplementedError(
            f"export: needed a function that is the same on all of {platforms}, but "
            f"{stage.fun_name} calls platform_dependent (export it once for each platform){here()}")
    stage.traced.check_values()
    return stage


def _is_struct(x: Any) -> bool:
    return isinstance(x, ShapeDtypeStruct)


def _scope_of(args: Any, kwargs: Any, name: str) -> tuple[SymbolicScope | None, list[str]]:
    """The scope of all symbolic dimensions (None if there are none) and the names of arguments."""
    leaves, _ = flatten_with_path((args, kwargs), is_leaf=_is_struct)
    scope, first = None, ""
    for path, leaf in leaves:
        shape = getattr(leaf, "shape", ())
        for d in shape if isinstance(shape, tuple) else ():
            if not isinstance(d, Dimension):
                continue
            if scope is None:
                scope, first = d.scope, _label(path)
            scope.check_same(d, f"when exporting {name}", f"current (from {first}) ", _label(path))
    return scope, [_label(path) for path, _ in leaves]


def _at(tree: Any, scope: SymbolicScope | None, index: int) -> Any:
    """Return the arguments with the sizes of one trace instead of symbolic dimensions."""
    if scope is None:
        return tree

    def leaf(x: Any) -> Any:
        if _is_struct(x) and any(isinstance(d, Dimension) for d in x.shape):
            return x.update(shape=tuple([scope.at(d, index) for d in x.shape]))
        return x

    leaves, tree = flatten(tree, is_leaf=_is_struct)
    return unflatten(tree, [leaf(x) for x in leaves])


def _device_count(stage: TracedStage) -> int:
    meshes = [getattr(s, "mesh", None) for s in stage.shardings]
    return max([1, *[m.size for m in meshes if m is not None]])


def _specs(shardings: Sequence[Any], count: int) -> tuple[Any, ...]:
    """The entries of the partition spec of each sharding; None for other kinds of shardings."""
    if len(shardings) != count:
        return (None,) * count
    return tuple([
        None if s is None or not hasattr(s, "spec") else
        tuple([tuple(p) if isinstance(p, (tuple, list)) else p for p in s.spec])
        for s in shardings])


def _shardings(mesh: Any, specs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([None if s is None else NamedSharding(mesh, PartitionSpec(*s)) for s in specs])


# ---- loading


def _checked_program(data: ExportData, loader: Loader, name: str) -> Program:
    """The Program for given sizes; raises an error that users understand if they are impossible."""
    try:
        program = loader.program(data.program)
    except Exception as error:
        sizes = ", ".join(f"{k} = {v}" for k, v in loader.sizes.items())
        raise ValueError(
            f"{name}: needed sizes for which all operations are possible, got {sizes or 'none'}: "
            f"{str(error).split(chr(10))[0]} (export the function with constraints on the "
            f"dimensions){here()}") from None
    return program


def deserialize(blob: bytes | bytearray) -> Exported:
    """Load a function from the result of `Exported.serialize`.

    The bytes may come from an untrusted source: they contain only data, and all of it is checked.
    However, calling the function may take a long time or a lot of memory.

    Args:
        blob: the bytes.

    Returns:
        The function.

    Raises:
        UnreadableFileError: the bytes are not an exported function, are damaged, or were written by
            a newer version of toile. The error is a ValueError.

    >>> data = toile.export.export(toile.jit(jnp.cos))(0.0).serialize()
    >>> float(toile.export.deserialize(data).call(0.0))
    1.0
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"deserialize: needed bytes, got {type(blob).__name__} (read the file in binary mode, "
            f"or use toile.export.load){here()}")
    return loaded(bytes(blob), "deserialize")


def loaded(blob: bytes, what: str) -> Exported:
    """Load an exported function from bytes; errors name the origin of the bytes."""
    data = from_bytes(blob, what)
    try:
        with enable_x64(True) if data.wide and not flags.enable_x64 else nullcontext():
            return _validated(data)
    except Exception as error:
        problem = str(error).split("\n")[0] or type(error).__name__
        raise unreadable(what, f"it contains {problem}") from None


def _validated(data: ExportData) -> Exported:
    """Create the function from a record; raises an exception if the record makes no sense."""
    if not 1 <= data.devices < 1 << 31 or not 0 <= data.vjp_order <= _MOST_VJP_ORDER:
        raise wrong("impossible numbers")
    if len(data.program.inputs) < len(data.constants) or len(data.variables) > 1000:
        raise wrong("impossible counts")
    made = Exported(data)
    if not made.in_tree.num_leaves == len(made.in_avals) == len(data.labels) or (
            made.out_tree.num_leaves != len(made.out_avals)):
        raise wrong("trees that do not fit the arguments and results")
    sizes = {name: int.__index__(made._scope.variable(name)) for name in data.variables}
    Solver(made._scope, made.in_avals, made._labels).solve(None)
    loader = Loader(sizes)
    program = loader.program(data.program)
    for c, wanted in zip(data.constants, program.in_avals, strict=False):
        if (loader.aval(c.aval).shape, c.aval.dtype) != (wanted.shape, wanted.dtype):
            raise wrong("constants of other types than the function takes")
        loader.array(c)
    for wanted, found in zip(data.out_avals, program.out_avals, strict=True):
        aval: Any = loader.aval(wanted) if isinstance(wanted, AvalData) else None
        if (aval.shape, aval.dtype) != (found.shape, found.dtype):
            raise wrong(f"results of type {found.str_short()}, declared as "
                             f"{aval.str_short()}")
    return made
