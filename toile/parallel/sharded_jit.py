"""jit with shardings for the arguments and results.

Arguments are laid out by `in_shardings` before the call. Results are laid out by `out_shardings`:
in the partition pass if that pass divides the function, and otherwise after the call. Both options
are prefixes of the trees to which they apply; None stands for an unspecified sharding. This module
may import staging and the layers below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.arrays import ConcreteArray
from toile.engine.sharded import Sharded
from toile.engine.shardings import Sharding
from toile.engine.source import here, message
from toile.engine.trace import state
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.parallel import partition as partition
from toile.parallel.meshes import AbstractMesh, mesh_in_force
from toile.parallel.placement import check_fit, concrete, constrained
from toile.parallel.specs import NamedSharding, PartitionSpec
from toile.staging.flat_functions import name_of
from toile.staging.jit import PjitFunction
from toile.staging.stages import Traced


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec))


def _check_known(sharding: Any, what: str) -> None:
    """Raise an error for an empty mesh, or for a spec with unconstrained axes."""
    spec = getattr(sharding, "spec", sharding)
    if isinstance(sharding, NamedSharding) and sharding.mesh.empty:
        raise ValueError(
            f"One of {what} leaf specifications got an empty NamedSharding: {sharding} which is "
            f"not allowed.{here()}"
        )
    if isinstance(spec, PartitionSpec) and PartitionSpec.UNCONSTRAINED in spec:
        raise ValueError(
            f"Unconstrained dims are not allowed when passed to {what}: needed an axis of the mesh "
            f"or None, got {sharding}{here()}"
        )


def _known(sharding: Any, what: str) -> Any:
    """A sharding for jit; a PartitionSpec refers to the current mesh."""
    if isinstance(sharding, PartitionSpec) and mesh_in_force().empty:
        raise RuntimeError(
            "jit requires a non-empty mesh in context if you are passing `PartitionSpec`s to "
            f"{what}: got {sharding} (use toile.set_mesh, or pass a NamedSharding){here()}"
        )
    return concrete(sharding, f"jit {what}")


def _is_abstract(sharding: Any) -> bool:
    return isinstance(getattr(sharding, "mesh", None), AbstractMesh)


def _ids(devices: set[Any]) -> list[int]:
    return sorted(d.id for d in devices)


class ShardedJit(PjitFunction):
    """A jitted function with shardings for its arguments and results."""

    def __init__(
        self, fun: Callable[..., Any], options: dict[str, Any], in_shardings: Any,
        out_shardings: Any,
    ):
        super().__init__(fun, options)
        self.in_shardings, self.out_shardings = in_shardings, out_shardings
        for what in ("in_shardings", "out_shardings"):
            for sharding in flatten(getattr(self, what), is_leaf=_is_leaf)[0]:
                _check_known(sharding, what)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._check_keywords(kwargs)
        laid_out = self._laid_out(args)
        out = self._placed(super().__call__(*laid_out, **kwargs))
        if self.donates and self.in_shardings is not None and state.trace is None:
            # A donated argument is deleted together with its copy in the wanted layout.
            for given, laid in zip(flatten(args)[0], flatten(laid_out)[0], strict=True):
                if isinstance(given, ConcreteArray) and laid.is_deleted():
                    given.delete()
        return out

    def _check_keywords(self, kwargs: dict[str, Any]) -> None:
        if kwargs and self.in_shardings is not None:
            raise ValueError(
                "pjit does not support kwargs when in_shardings is specified: needed arguments of "
                f"{name_of(self.fun)} by position, got {', '.join(kwargs)} by name{here()}"
            )

    def _for_arguments(self) -> Any:
        """`in_shardings` as a prefix of the non-static arguments."""
        given = self.in_shardings
        plain = isinstance(given, (tuple, list)) and not _is_leaf(given)
        return tuple(given) if plain else given

    def _placed(self, out: Any) -> Any:
        if self.out_shardings is None:
            return out
        return self._constrained(out, self.out_shardings, "out_shardings")

    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.in_shardings is None:
            return args
        fixed = {n % len(args) for n in self.static_argnums if -len(args) <= n < len(args)}
        moving = [a for i, a in enumerate(args) if i not in fixed]
        rest = iter(self._constrained(
            tuple(moving), self._for_arguments(), "in_shardings", check=True))
        return tuple([a if i in fixed else next(rest) for i, a in enumerate(args)])

    def _wanted(self, traced: Traced) -> Sequence[Any]:
        if self.out_shardings is None:
            return ()
        avals = traced.program.out_avals
        wanted = self._prefixed(self.out_shardings, unflatten(traced.out_tree, avals),
                                "out_shardings")
        found = [None if s is None else _known(s, "out_shardings") for s in wanted]
        given = [s.device_set for s in flatten(self.in_shardings, is_leaf=_is_leaf)[0]
                 if isinstance(s, Sharding) and not _is_abstract(s)]
        for aval, s in zip(avals, found, strict=True):
            if s is None:
                continue
            check_fit(aval.shape, s, "jit out_shardings arguments")
            if given and not _is_abstract(s) and s.device_set != given[0]:
                raise ValueError(
                    "Received incompatible devices for jitted computation: needed out_shardings on "
                    f"the devices of in_shardings, {_ids(given[0])}, got {_ids(s.device_set)}"
                    f"{here()}"
                )
        return found

    def _wanted_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """One sharding, or None, for each leaf of the arguments."""
        if self.in_shardings is None:
            return ()
        self._check_keywords(kwargs)
        wanted = self._prefixed(self._for_arguments(), args, "in_shardings")
        return [None if s is None else _known(s, "in_shardings") for s in wanted]

    def _prefixed(self, given: Any, x: Any, what: str) -> Sequence[Any]:
        """One sharding, or None, for each leaf of a tree."""
        try:
            return broadcast_prefix(given, x, is_leaf=_is_leaf)
        except ValueError as e:
            raise ValueError(
                f"jit {what}: needed a prefix of {structure(x)}, got {given!r}: "
                f"{message(e)}{here()}"
            ) from e

    def _constrained(self, x: Any, given: Any, what: str, check: bool = False) -> Any:
        """The leaves of a tree under the shardings of a prefix of it."""
        leaves, tree = flatten(x)
        wanted = self._prefixed(given, x, what)
        return unflatten(tree, [
            v if s is None else self._one(v, _known(s, what), what, check)
            for v, s in zip(leaves, wanted, strict=True)
        ])

    def _one(self, v: Any, sharding: Any, what: str, check: bool) -> Any:
        if isinstance(v, Sharded) and v._is_committed and v._sharding == sharding:
            return v
        if check and isinstance(v, Sharded) and v._is_committed and not (
            v._sharding.is_equivalent_to(sharding, v.ndim)
        ):
            text = "Received incompatible devices for jitted computation"
            if v._sharding.device_set == sharding.device_set:
                text = ("Sharding passed to jit does not match the sharding on the respective arg, "
                        "incompatible layouts")
            raise ValueError(
                f"{text}: needed an argument of {name_of(self.fun)} under {sharding}, got "
                f"{v.aval.str_short()} under {v._sharding} (use toile.device_put to change it)"
                f"{here()}"
            )
        return constrained(v, sharding, f"jit {what}")
