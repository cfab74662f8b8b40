"""Scopes of symbolic dimensions: their constraints, and the sizes at which functions are traced."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np

from toile.engine.annotations import DTypeLike, PyTree
from toile.engine.avals import aval_of
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.treeerrors import prefix_errors
from toile.engine.trees import broadcast_prefix, flatten, unflatten
from toile.export import _polynomials as poly
from toile.export._dimensions import (
    INFINITY,
    SAMPLES,
    SMALL,
    Dimension,
    Space,
    made,
    sizes_at,
)
from toile.export._parsing import Reader, Unreadable, shape_of
from toile.export._polynomials import Polynomial

_SIGNS = re.compile(r"==|>=|<=")
_numbers = itertools.count()  # numbers the variables, so that each one gets different sizes
_FIRST, _CYCLE = 521, 4001


class Constraint(NamedTuple):
    """`difference` is 0 (`equal`) or at least 0."""

    text: str
    equal: bool
    difference: Polynomial


class SymbolicScope:
    """The dimension variables of symbolic shapes that are used together, and their constraints.

    All symbolic shapes in the arguments of an exported function must have the same scope. Variables
    in different scopes are different variables, even if they have the same name.

    Args:
        constraints_str: constraints, each of the form `e1 >= e2`, `e1 <= e2` or `e1 == e2`. The
            left side of an equality must be a product; it is replaced by the right side.

    Raises:
        ValueError: a constraint has a syntax error, or no sizes satisfy it.

    >>> scope = toile.export.SymbolicScope(["b >= 4"])
    >>> (b,) = toile.export.symbolic_shape("b", scope=scope)
    >>> (n,) = toile.export.symbolic_shape("2*b + 1", scope=scope)
    >>> n > 8, n - b
    (True, b + 1)
    """

    def __init__(self, constraints_str: Sequence[str] = ()):
        if isinstance(constraints_str, str):
            raise ValueError(
                "The symbolic constraints should be a sequence of strings. Got "
                f"{constraints_str!r} (put it into a list){here()}")
        self.constraints: list[Constraint] = []
        self.rules: dict[Any, tuple[Polynomial, int]] = {}
        self.variable_bounds: dict[str, tuple[float, float]] = {}
        self.known_bounds: dict[Polynomial, tuple[float, float]] = {}
        self.seen: dict[Polynomial, None] = {}  # expressions that occurred in traces
        self.ratios: dict[str, None] = {}  # floats that were computed from dimensions
        self.spaces = [Space(self, i) for i in range(SAMPLES)]
        for text in constraints_str:
            self._constrain(text)

    @property
    def space(self) -> Space:
        """The space of the first trace, which is also used outside traces."""
        return self.spaces[0]

    @property
    def inequalities(self) -> list[Polynomial]:
        """Polynomials that are at least 0."""
        return [c.difference for c in self.constraints if not c.equal]

    def __str__(self) -> str:
        head = f"{id(self)}"
        if not self.constraints:
            return head
        return head + " with constraints:" + "".join(f"\n  {c.text}" for c in self.constraints)

    __repr__ = __str__

    def variable(self, name: str, space: Space | None = None) -> Any:
        """Return the dimension variable with this name."""
        if name not in self.space.values:
            self._choose(name)
        return made(poly.variable(name), space or self.space)

    def _choose(self, name: str) -> None:
        """Choose the sizes of a new variable; the uncommon ones have different remainders."""
        at = _FIRST + 6 * (next(_numbers) % _CYCLE)
        small = 2 + len(self.space.values) % 4
        for i, space in enumerate(self.spaces):
            space.values[name] = (at, 2 * at + 5, small, 4 * at + 15)[i]
        self._satisfy()

    def normal(self, p: Polynomial) -> Polynomial:
        """Replace the products in a polynomial for which there are equality constraints."""
        for _ in range(20 if self.rules else 0):
            for i, (product, n) in enumerate(p):
                rule = self.rules.get(product)
                if rule is not None and n % rule[1] == 0:
                    rest = p[:i] + p[i + 1:]
                    p = poly.combined(rest, 1, rule[0], n // rule[1])
                    break
            else:
                return p
        return p

    def check_same(self, other: Dimension, when: str, mine: str = " ",
                   theirs: str = "unknown") -> None:
        """Raise an error if a dimension belongs to another scope."""
        if other.scope is not self:
            raise ValueError(
                f"Invalid mixing of symbolic scopes {when}.\nExpected {mine}scope {self}\nand "
                f"found for '{other}' ({theirs}) scope {other.scope} (pass the same "
                f"scope= to every call of symbolic_shape, or use symbolic_args_specs){here()}")

    # ---- constraints
    def _constrain(self, text: Any) -> None:
        if not isinstance(text, str):
            raise ValueError(
                f"SymbolicScope constraint must be a string: got {text!r} (such as \"b >= 2\")"
                f"{here()}")
        parts = _SIGNS.split(text)
        if len(parts) != 2:
            raise ValueError(
                "Constraint parsing error: must contain one of '==' or '>=' or '<=', got "
                f"{text!r} (such as \"b >= 2\"){here()}")
        try:
            a, b = (Reader(part, self.variable).whole() for part in parts)
        except Unreadable as error:
            raise ValueError(
                f"syntax error in the symbolic constraint {text!r}: {error.detail} (write it like "
                f"\"2*b >= n + 1\"){here()}") from None
        sign = _SIGNS.findall(text)[0]
        if sign == "<=":
            a, b = b, a
        self._add(text, sign == "==", a, b)

    def _add(self, text: str, equal: bool, a: Any, b: Any) -> None:
        one, other = polynomial_of(a), polynomial_of(b)
        difference = poly.combined(one, 1, other, -1)
        constant = poly.as_constant(difference)
        if constant is not None:
            if constant < 0 or (equal and constant):
                raise ValueError(
                    f"Unsatisfiable explicit constraint: {text} (needed a constraint that some "
                    f"sizes satisfy){here()}")
            return
        if equal:
            self._add_rule(text, one, other)
        elif len(difference) <= 2:
            self._bound_variable(difference)
        self.constraints.append(Constraint(text, equal, difference))
        self.known_bounds.clear()
        self._satisfy()

    def _bound_variable(self, difference: Polynomial) -> None:
        """Use a constraint on a single variable, such as 2*b - 7 >= 0, as a bound."""
        (product, k), *rest = difference
        if len(product) != 1 or product[0][1] != 1 or not isinstance(product[0][0], str):
            return
        if rest and rest[0][0]:
            return
        name, offset = product[0][0], rest[0][1] if rest else 0
        low, high = self.variable_bounds.get(name, (1, INFINITY))
        if k > 0:
            low = max(low, -(offset // k))
        else:
            high = min(high, offset // -k)
        self.variable_bounds[name] = low, high

    def _add_rule(self, text: str, one: Polynomial, other: Polynomial) -> None:
        if len(one) != 1 or not one[0][0]:
            raise ValueError(
                f"Invalid equality constraint: {text}. The left-hand-side must be of the form "
                f"`term * coefficient` (such as \"2*n == b + 1\"){here()}")
        product, k = one[0]
        if product in self.rules:
            raise NotImplementedError(
                "Found multiple equality constraints with the same left-hand-side: "
                f"{poly.text(((product, 1),))} (write one constraint){here()}")
        self.rules[product] = other, k
        factor = product[0][0] if len(product) == 1 and product[0][1] == 1 else None
        if k == 1 and not other and isinstance(factor, poly.Applied):
            divisor = poly.as_constant(factor.b)
            if factor.operation == "mod" and divisor is not None:
                quotient = poly.applied("floordiv", factor.a, factor.b)
                whole = poly.combined(quotient, divisor, (), 0)
                self._add_rule(f"{divisor}*{poly.text(quotient)} == {poly.text(factor.a)}", whole,
                               factor.a)

    def _satisfy(self) -> None:
        """Change the sizes of the traces, if possible, so that they satisfy the constraints.

        Large sizes must satisfy only the equalities."""
        for i, space in enumerate(self.spaces if self.constraints else ()):
            wanted = [c for c in self.constraints if c.equal or i == SMALL]
            names = [n for n in space.values if ((n, 1),) not in self.rules]
            base, random = dict(space.values), Random(0)
            for attempt in range(3000 if wanted else 0):
                trial = {n: base[n] + random.randrange(1 + attempt // 4) for n in names}
                if self._satisfies(trial, wanted):
                    space.values.update(trial)
                    break

    def _satisfies(self, sizes: dict[str, int], wanted: Sequence[Constraint]) -> bool:
        try:
            found = [sizes_at(c.difference, sizes, self) for c in wanted]
        except (KeyError, ZeroDivisionError, ValueError):
            return False
        return all(n == 0 if c.equal else n >= 0 for c, n in zip(wanted, found, strict=True))

    @property
    def has_small_sizes(self) -> bool:
        """Whether the small sizes satisfy the constraints."""
        values = self.spaces[SMALL].values
        return self._satisfies(values, self.constraints)

    def at(self, size: Any, index: int) -> Any:
        """Return a dimension for another trace. In the trace with small sizes, it is a number,
        because results of this trace may be reused by other calls with these sizes."""
        if not isinstance(size, Dimension):
            return size
        found = made(size.polynomial, self.spaces[index])
        return int.__index__(found) if index == SMALL else found


def polynomial_of(x: Any) -> Polynomial:
    """The polynomial of a dimension or an integer."""
    return x.polynomial if isinstance(x, Dimension) else poly.constant(int(x))


def is_symbolic_dim(p: object) -> bool:
    """Test whether a dimension is symbolic, that is, not a constant.

    Args:
        p: dimension of a shape.

    Returns:
        True if the dimension is symbolic.

    >>> shape = toile.export.symbolic_shape("b, 3")
    >>> [toile.export.is_symbolic_dim(d) for d in shape]
    [True, False]
    """
    return isinstance(p, Dimension)


def symbolic_shape(
    shape_spec: str | None, *, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None, like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """Parse the text of a shape with symbolic dimensions.

    A function that is exported with a `ShapeDtypeStruct` of this shape can be called with arrays of
    any size along the symbolic dimensions.

    Args:
        shape_spec: the dimensions, separated by commas. A dimension is an integer, a variable, or
            an expression with `+`, `-`, `*`, `^`, `floordiv(a, b)`, `mod(a, b)`, `max(a, b)` and
            `min(a, b)`. The value of a variable is at least 1. `_` is replaced by the dimension at
            the same position in `like`, and `...` by all other dimensions of `like`. None means
            "...".
        constraints: constraints on the variables, for example "b >= 4", "n <= 2*b" or
            "mod(b, 8) == 0".
        scope: scope of the variables. By default, they belong to a new scope with the given
            constraints.
        like: shape with the dimensions that replace `_` and `...`.

    Returns:
        The shape, a tuple of integers and symbolic dimensions.

    Raises:
        ValueError: the text has a syntax error, or both `scope` and `constraints` are given.

    >>> shape = toile.export.symbolic_shape("b, 2*n, 3")
    >>> shape, shape[0] * shape[1] + 1
    ((b, 2*n, 3), 2*b*n + 1)
    """
    if shape_spec is None:
        shape_spec = "..."
    if not isinstance(shape_spec, str):
        raise ValueError(
            f"polymorphic shape spec should be None or a string. Found {shape_spec!r} (write it "
            f"like \"b, 3\"){here()}")
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError(
            "Cannot specify both a `scope` and `constraints`: needed one of them, got "
            f"constraints={constraints!r} (pass the constraints to SymbolicScope){here()}")
    return shape_of(shape_spec, like, scope.variable)


def symbolic_args_specs(
    args: PyTree, shapes_specs: PyTree, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> PyTree:
    """Create a `ShapeDtypeStruct` with a symbolic shape for each array in example arguments.

    Args:
        args: tree of arrays or of `ShapeDtypeStruct` objects. Their dtypes are kept, and their
            dimensions replace the placeholders in `shapes_specs`.
        shapes_specs: tree of strings, each in the form that `symbolic_shape` accepts; None means
            "...". A string may take the place of a whole subtree of `args`; it then applies to all
            arrays in that subtree.
        constraints, scope: as for `symbolic_shape`.

    Returns:
        A tree like `args`, with a `ShapeDtypeStruct` instead of each array.

    Raises:
        ValueError: a string has a syntax error, or the structure of `shapes_specs` does not match
            that of `args`.

    >>> toile.export.symbolic_args_specs((jnp.ones((4, 3)), jnp.ones(3)), ("b, ...", None))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    leaves, tree = flatten(args)
    if isinstance(args, tuple) and isinstance(shapes_specs, list):
        shapes_specs = tuple(shapes_specs)
    none = lambda x: x is None
    try:
        specs = broadcast_prefix(shapes_specs, args, is_leaf=none)
    except ValueError:
        raise next(iter(prefix_errors(shapes_specs, args, is_leaf=none)))(
            "export.symbolic_args_specs shapes_specs") from None
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError(
            "Cannot use both `scope` and `constraints`: needed one of them, got constraints="
            f"{constraints!r} (pass the constraints to SymbolicScope){here()}")
    found = []
    for leaf, spec in zip(leaves, specs, strict=True):
        shape, dtype = _shape_and_dtype(leaf)
        found.append(ShapeDtypeStruct(symbolic_shape(spec, like=shape, scope=scope), dtype))
    return unflatten(tree, found)


def _shape_and_dtype(x: Any) -> tuple[Sequence[Any], DTypeLike]:
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return x.shape, x.dtype
    aval = aval_of(np.asarray(x) if isinstance(x, (list, tuple)) else x)
    return aval.shape, aval.dtype

