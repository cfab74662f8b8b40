"""jit with shardings of its arguments and results.

Arguments are laid out as `in_shardings` says before the call and results as `out_shardings` says:
by the partition pass where it divides the function, after the call otherwise. Both are prefixes of
the trees they belong to, with None where nothing is said. May import staging and below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.sharded import Sharded
from toile.engine.shardings import Sharding
from toile.engine.source import here, message
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.parallel import partition as partition
from toile.parallel.placing import check_fit, concrete, constrained
from toile.parallel.specs import PartitionSpec
from toile.staging.flattening import name_of
from toile.staging.jit import PjitFunction
from toile.staging.stages import Traced


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec))


class ShardedJit(PjitFunction):
    """A jitted function whose arguments and results lie on devices as it is told."""

    def __init__(
        self, fun: Callable[..., Any], options: dict[str, Any], in_shardings: Any,
        out_shardings: Any,
    ):
        super().__init__(fun, options)
        self.in_shardings, self.out_shardings = in_shardings, out_shardings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._placed(super().__call__(*self._laid_out(args), **kwargs))

    def _placed(self, out: Any) -> Any:
        if self.out_shardings is None:
            return out
        return self._constrained(out, self.out_shardings, "out_shardings")

    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        given = self.in_shardings
        if given is None:
            return args
        fixed = {n % len(args) for n in self.static_argnums if -len(args) <= n < len(args)}
        moving = [a for i, a in enumerate(args) if i not in fixed]
        if isinstance(given, (tuple, list)) and not _is_leaf(given):
            given = tuple(given)
        rest = iter(self._constrained(tuple(moving), given, "in_shardings", check=True))
        return tuple([a if i in fixed else next(rest) for i, a in enumerate(args)])

    def _wanted(self, traced: Traced) -> Sequence[Any]:
        if self.out_shardings is None:
            return ()
        avals = traced.program.out_avals
        wanted = self._prefixed(self.out_shardings, unflatten(traced.out_tree, avals),
                                "out_shardings")
        found = [None if s is None else concrete(s, "jit out_shardings") for s in wanted]
        for aval, s in zip(avals, found, strict=True):
            if s is not None:
                check_fit(aval.shape, s, "jit out_shardings arguments")
        return found

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
            v if s is None else self._one(v, concrete(s, f"jit {what}"), what, check)
            for v, s in zip(leaves, wanted, strict=True)
        ])

    def _one(self, v: Any, sharding: Any, what: str, check: bool) -> Any:
        if check and isinstance(v, Sharded) and v._is_committed and not (
            v._sharding.is_equivalent_to(sharding, v.ndim)
        ):
            raise ValueError(
                "Received incompatible devices or layouts for jitted computation: needed an "
                f"argument of {name_of(self.fun)} under {sharding}, got {v.aval.str_short()} under "
                f"{v._sharding} (use toile.device_put to change it){here()}"
            )
        return constrained(v, sharding, f"jit {what}")
