"""Computes the sizes of dimension variables from the shapes of the arguments of a call.

The messages contain the same phrases as JAX's, because users search for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval
from toile.engine.source import here
from toile.export import _polynomials as poly
from toile.export._dimensions import Dimension, sizes_at
from toile.export._scopes import SymbolicScope

_MISMATCH = "Input shapes do not match the polymorphic shapes specification. "
_MORE = (". Please see https://docs.jax.dev/en/latest/export/shape_poly.html"
         "#shape-assertion-errors for more details.")
_UNSOLVABLE = ("Please see https://docs.jax.dev/en/latest/export/shape_poly.html"
               "#dimension-variables-must-be-solvable-from-the-input-shapes for more details.")


class Solver:
    """Solves the equations `expression == size` of one call.

    If `given` is None, it only checks whether the equations can be solved."""

    def __init__(self, scope: SymbolicScope, expected: Sequence[Aval], labels: Sequence[str]):
        self.scope = scope
        self.sizes: dict[str, Any] = {}
        self.equations = [
            (d, f"{label}.shape[{i}]", (n, i))
            for n, (aval, label) in enumerate(zip(expected, labels, strict=True))
            for i, d in enumerate(aval.shape) if isinstance(d, Dimension)]
        specs = [f"{label}.shape = {tuple(aval.shape)}"
                 for aval, label in zip(expected, labels, strict=True)
                 if any(isinstance(d, Dimension) for d in aval.shape)]
        self.specs = f" Using the following polymorphic shapes specifications: {','.join(specs)}."
        self.obtained = " Obtained dimension variables: "

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"{_MISMATCH}{problem}.{self.specs}{self.obtained}{_MORE}{here()}")

    def solve(self, given: Sequence[Aval] | None) -> dict[str, Any]:
        """Return the sizes of all variables; if `given` is None, only the names are meaningful."""
        left = self.equations
        while left:
            rest = [e for e in left if not self._process(*e, given)]
            if len(rest) == len(left):
                raise self._unsolvable(rest)
            left = rest
        if given is not None:
            self._check_constraints()
        else:
            self._check_known()
        return self.sizes

    def _process(self, d: Dimension, label: str, place: tuple[int, int],
                 given: Sequence[Aval] | None) -> bool:
        """Solve an equation for its only unknown variable, or check it; False: not yet possible."""
        left = [term for term in d.polynomial
                if not all(n in self.sizes for n in poly.variables((term,)))]
        unknown = poly.as_variable(((left[0][0], 1),)) if len(left) == 1 else None
        if left and unknown is None:
            return False
        if given is None:
            self.sizes.update({} if unknown is None else {unknown: 1})
            return True
        factor = left[0][1] if left else 1
        size: Any = given[place[0]].shape[place[1]]
        known = tuple([term for term in d.polynomial if term not in left])
        self._solve_for(d, label, size, unknown, factor,
                        size - sizes_at(known, self.sizes, self.scope))
        return True

    def _solve_for(self, d: Dimension, label: str, size: Any, unknown: str | None, factor: int,
                   rest: Any) -> None:
        """Solve factor * unknown == rest; without an unknown, check that the rest is 0."""
        if unknown is None:
            if not _equal(rest, 0):
                known = sizes_at(d.polynomial, self.sizes, self.scope)
                raise self._error(f"Found inconsistency between dimension size {label} (= {size}) "
                                  f"and the specification '{d}' (= {known})")
            return
        value, remainder = (rest, 0) if factor == 1 else divmod(rest, factor)
        if not _equal(remainder, 0):
            raise self._error(
                f"Division had remainder {remainder} when computing the value of '{unknown}'")
        self.obtained += (f"'{unknown}' = {value} from specification '{d}' for dimension {label} "
                          f"(= {size}), ")
        if not _at_least(value, 1):
            raise self._error(f"Expected value >= 1 for dimension variable '{unknown}'")
        self.sizes[unknown] = value

    def _unsolvable(self, left: Sequence[Any]) -> ValueError:
        names = {n for d, _, _ in left for n in poly.variables(d.polynomial)} - set(self.sizes)
        shown = ", ".join(f"'{d}' for dimension size {label}" for d, label, _ in left)
        return ValueError(
            f"Cannot solve for values of dimension variables {names}. We can only solve linear "
            f"uni-variate constraints.{self.specs} Unprocessed specifications: {shown}. "
            f"{_UNSOLVABLE} (pass another argument that has one of them as an axis){here()}")

    def _check_known(self) -> None:
        """Raise an error if a constraint mentions a variable that is not in the shapes."""
        for c in self.scope.constraints:
            for name in poly.variables(c.difference):
                if name not in self.sizes and ((name, 1),) not in self.scope.rules:
                    raise ValueError(
                        f"Encountered dimension variable '{name}' that is not appearing in the "
                        "shapes of the function arguments.\nThe following dimension variables are "
                        "appearing in the shapes of the function arguments: "
                        f"{list(self.sizes)}.\n{_UNSOLVABLE}{here()}")

    def _check_constraints(self) -> None:
        for c in self.scope.constraints:
            difference = sizes_at(c.difference, self.sizes, self.scope)
            holds = _equal(difference, 0) if c.equal else _at_least(difference, 0)
            if not holds:
                wanted = "equal" if c.equal else "greater or equal"
                raise ValueError(
                    f"Input shapes do not match the symbolic shape constraint {c.text}. Expected "
                    f"'{poly.text(c.difference)}' to be {wanted} to 0, but found {difference}."
                    f"{self.specs}{self.obtained}{_MORE}{here()}")


def _equal(x: Any, value: int) -> bool:
    return not isinstance(x, Dimension) and int(x) == value


def _at_least(x: Any, value: int) -> bool:
    """Whether x >= value, for all sizes if x is symbolic."""
    return x.certainly(value) if isinstance(x, Dimension) else bool(x >= value)
