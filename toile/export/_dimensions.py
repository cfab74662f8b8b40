"""Symbolic dimensions: integers that store the expression from which they were computed.

While a function with symbolic dimensions is exported, it is traced at several sizes (`SAMPLES`). In
each trace, a dimension is an integer with the size of that trace, so it can be passed to every
function that accepts a size. Arithmetic updates the expression. If a comparison does not have the
same result for all sizes, it is an error in the user's code. In toile's own code, such comparisons
choose among computations with the same result, so the size in the trace is compared.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from toile.engine.source import here, is_internal
from toile.export import _polynomials as poly
from toile.export._polynomials import Polynomial

INFINITY = math.inf
SMALL = 2  # the index of the assignment whose sizes are small
SAMPLES = 4  # number of assignments of sizes; see `Space`


class InconclusiveDimensionOperation(Exception):
    """A comparison of symbolic dimensions does not have the same result for all sizes.

    Constraints restrict the sizes, so that more comparisons are possible; see `symbolic_shape`.

    >>> (b,) = toile.export.symbolic_shape("b", constraints=["b >= 8"])
    >>> b > 4
    True
    """


class Space:
    """One assignment of sizes to the variables of a scope.

    The first two assignments and the last one have large, uncommon sizes. The third one has small
    sizes, which occur often in practice, to find computations that treat small sizes
    differently."""

    __slots__ = ("scope", "index", "values")

    def __init__(self, scope: Any, index: int):
        self.scope, self.index = scope, index
        self.values: dict[str, int] = {}


def made(p: Polynomial, space: Space) -> int:
    """The dimension with this polynomial as its expression; an integer if it has no variables."""
    p = space.scope.normal(p)
    value = poly.as_constant(p)
    if value is not None:
        return value
    space.scope.seen[p] = None
    return Dimension(p, space)


class Dimension(int):
    """A dimension whose size is an expression of dimension variables."""

    polynomial: Polynomial
    space: Space

    def __new__(cls, p: Polynomial, space: Space) -> Dimension:
        self = super().__new__(cls, poly.value(p, space.values))
        self.polynomial, self.space = p, space
        return self

    @property
    def scope(self) -> Any:
        return self.space.scope

    def _other(self, x: Any) -> tuple[Polynomial, Space] | None:
        """The polynomial of the other operand, and the space of the result."""
        if isinstance(x, Dimension):
            self.scope.check_same(x, "for linear combination")
            return x.polynomial, max(self.space, x.space, key=lambda s: s.index)
        if isinstance(x, int):
            return poly.constant(int.__int__(x)), self.space
        if getattr(x, "shape", None) == () and getattr(x.dtype, "kind", "") in "iu" and type(
                x).__module__ == "numpy":
            return poly.constant(x.item()), self.space
        return None

    def _linear(self, x: Any, k: int, m: int) -> Any:
        other = self._other(x)
        if other is None:
            return NotImplemented
        return made(poly.combined(self.polynomial, k, other[0], m), other[1])

    def __add__(self, x: Any) -> Any:
        return _or_float(self, x, self._linear(x, 1, 1), lambda a, b: a + b, "{} + {}")

    def __radd__(self, x: Any) -> Any:
        return _or_float(self, x, self._linear(x, 1, 1), lambda a, b: b + a, "{1} + {0}")

    def __sub__(self, x: Any) -> Any:
        return _or_float(self, x, self._linear(x, 1, -1), lambda a, b: a - b, "{} - {}")

    def __rsub__(self, x: Any) -> Any:
        return _or_float(self, x, self._linear(x, -1, 1), lambda a, b: b - a, "{1} - {0}")

    def __neg__(self) -> Any:
        return made(poly.combined(self.polynomial, -1, (), 0), self.space)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __mul__(self, x: Any) -> Any:
        other = self._other(x)
        if other is None:
            return _or_float(self, x, NotImplemented, lambda a, b: a * b, "{} * {}")
        return made(poly.multiplied(self.polynomial, other[0]), other[1])

    __rmul__ = __mul__

    def __pow__(self, power: Any, modulo: Any = None) -> Any:
        if isinstance(power, float):
            return _or_float(self, power, NotImplemented, lambda a, b: a**b, "{} ** {}")
        if not isinstance(power, int) or isinstance(power, Dimension) or modulo is not None:
            return NotImplemented
        if power < 0:
            raise ValueError(
                f"Symbolic dimension cannot be raised to negative powers: '{self}' ** '{power}' "
                f"(needed a power of at least 0; write 1 / x for an inverse){here()}")
        result: Any = 1
        for _ in range(power):
            result = result * self
        return result

    def __floordiv__(self, x: Any) -> Any:
        found = self.__divmod__(x)
        return found if found is NotImplemented else found[0]

    def __mod__(self, x: Any) -> Any:
        found = self.__divmod__(x)
        return found if found is NotImplemented else found[1]

    def __divmod__(self, x: Any) -> Any:
        other = self._other(x)
        if other is None:
            return NotImplemented
        return divided(self.polynomial, *other)

    def __rfloordiv__(self, x: Any) -> Any:
        found = self.__rdivmod__(x)
        return found if found is NotImplemented else found[0]

    def __rmod__(self, x: Any) -> Any:
        found = self.__rdivmod__(x)
        return found if found is NotImplemented else found[1]

    def __rdivmod__(self, x: Any) -> Any:
        other = self._other(x)
        if other is None:
            return NotImplemented
        return divided(other[0], self.polynomial, other[1])

    def __truediv__(self, x: Any) -> Any:
        return _or_float(self, x, NotImplemented, lambda a, b: a / b, "{} / {}")

    def __rtruediv__(self, x: Any) -> Any:
        return _or_float(self, x, NotImplemented, lambda a, b: b / a, "{1} / {0}")

    # ---- comparisons; equality and the hash depend only on the size
    def __ge__(self, x: Any) -> Any:
        return _compared(self, x, False, ">=", int.__ge__(self, x))

    def __le__(self, x: Any) -> Any:
        return _compared(self, x, True, "<=", int.__le__(self, x))

    def __gt__(self, x: Any) -> Any:
        return _compared(self, x, True, ">", int.__gt__(self, x), negated=True)

    def __lt__(self, x: Any) -> Any:
        return _compared(self, x, False, "<", int.__lt__(self, x), negated=True)

    def certainly(self, least: int) -> bool:
        """Whether the dimension is at least `least` for all sizes."""
        return bounds(self.polynomial, self.scope)[0] >= least

    __eq__ = int.__eq__
    __ne__ = int.__ne__
    __hash__ = int.__hash__

    # ---- conversions
    def __int__(self) -> int:
        self._needs_constant(sys._getframe(1))
        return int.__int__(self)

    def _needs_constant(self, frame: Any) -> None:
        if not is_internal(frame.f_code):
            raise InconclusiveDimensionOperation(
                f"Symbolic dimension '{self}' used in a context that requires a constant: needed "
                "an integer that is the same for all sizes (compute with the dimension itself, "
                f"without int(); 1 / {self} is possible, too){here()}")

    def __float__(self) -> float:
        return Ratio(int.__float__(self), f"({self})", self.space)

    def __repr__(self) -> str:
        return poly.text(self.polynomial)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> Dimension:
        return self

    def __deepcopy__(self, memo: Any) -> Dimension:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"cannot pickle a symbolic dimension: needed an ordinary integer, got '{self}' "
            f"(Exported.serialize() stores shapes with symbolic dimensions){here()}")


class Ratio(float):
    """A float that was computed from dimensions, and its expression."""

    expression: str
    space: Space

    def __new__(cls, value: float, expression: str, space: Space) -> Ratio:
        self = super().__new__(cls, value)
        self.expression, self.space = expression, space
        space.scope.ratios[expression] = None
        return self

    def __neg__(self) -> Any:
        return Ratio(-float.__float__(self), f"(-{self.expression})", self.space)


def _install_ratio_operators() -> None:
    """Add the operators of floats to `Ratio`; each one also updates the expression."""
    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("pow", "**")):
        plain = getattr(float, f"__{name}__")
        reflected = getattr(float, f"__r{name}__")

        def forward(self: Ratio, x: Any, plain: Any = plain, sign: str = sign) -> Any:
            return _ratio(self, x, plain(self, x), f"{{}} {sign} {{}}")

        def backward(self: Ratio, x: Any, plain: Any = reflected, sign: str = sign) -> Any:
            return _ratio(self, x, plain(self, x), f"{{1}} {sign} {{0}}")

        setattr(Ratio, f"__{name}__", forward)
        setattr(Ratio, f"__r{name}__", backward)


def _expression(x: Any) -> str:
    if isinstance(x, Ratio):
        return x.expression
    return f"({x})" if isinstance(x, Dimension) else f"({x!r})"


def _ratio(self: Any, x: Any, value: Any, form: str) -> Any:
    if value is NotImplemented or isinstance(value, complex):
        return value
    return Ratio(value, f"({form.format(_expression(self), _expression(x))})", self.space)


_install_ratio_operators()


def _or_float(self: Dimension, x: Any, found: Any, compute: Callable[[Any, Any], Any],
              form: str) -> Any:
    """The float result if the other operand is a float; otherwise `found`."""
    if found is not NotImplemented or not isinstance(x, (int, float)):
        return found
    plain = int.__index__(x) if isinstance(x, int) else float.__float__(x)
    value = compute(int.__index__(self), plain)
    return _ratio(self, x, value, form)


def divided(a: Polynomial, b: Polynomial, space: Space) -> tuple[Any, Any]:
    """Quotient and remainder of dimensions, as in Python."""
    scope = space.scope
    if not b:
        raise ZeroDivisionError(
            f"division of the dimension '{poly.text(a)}' by 0: needed another divisor{here()}")
    whole, rest = poly.divided(a, b)
    low, high = bounds(rest, scope)
    upper = bounds(poly.combined(b, 1, rest, -1), scope)[0]  # b - rest >= 1: rest < b
    if low >= 0 and (upper >= 1 or high == 0):
        quotient, remainder = whole, rest
    else:
        quotient = poly.combined(whole, 1, poly.applied("floordiv", rest, b), 1)
        remainder = poly.applied("mod", rest, b)
    return made(quotient, space), made(remainder, space)


def largest(a: Any, b: Any, smallest: bool = False) -> Any:
    """The maximum (or minimum) of two dimensions; an expression if it depends on the sizes."""
    if not isinstance(a, Dimension) and not isinstance(b, Dimension):
        return min(a, b) if smallest else max(a, b)
    one = a if isinstance(a, Dimension) else b
    other = one._other(b if one is a else a)
    assert other is not None
    first, space = (one.polynomial, other[1])
    low, high = bounds(poly.combined(first, 1, other[0], -1), space.scope)
    if low >= 0:
        return made(other[0] if smallest else first, space)
    if high <= 0:
        return made(first if smallest else other[0], space)
    return made(poly.applied("min" if smallest else "max", first, other[0]), space)


# ---- comparisons


def _compared(self: Dimension, x: Any, reverse: bool, sign: str, sampled: Any,
              negated: bool = False) -> Any:
    """Decide whether self >= x (with `reverse`, x >= self); `negated`: decide the opposite."""
    if sampled is NotImplemented:
        return sampled
    other = self._other(x)
    assert other is not None
    difference = poly.combined(self.polynomial, -1 if reverse else 1, other[0],
                               1 if reverse else -1)
    low, high = bounds(difference, self.scope)
    if low >= 0:
        return not negated
    if high < 0:
        return negated
    if is_internal(sys._getframe(2).f_code):
        return sampled
    described = f"\nUsing symbolic scope {self.scope}" if self.scope.constraints else ""
    raise InconclusiveDimensionOperation(
        f"Symbolic dimension comparison '{self}' {sign} '{x}' is inconclusive: needed an answer "
        f"that holds for all sizes.{described} (pass constraints=[\"{self} >= {x}\"] to "
        f"symbolic_shape, or use lax.cond){here()}")


def bounds(p: Polynomial, scope: Any) -> tuple[float, float]:
    """A lower and an upper bound for the values of a polynomial."""
    found = scope.known_bounds.get(p)
    if found is None:
        found = _interval(p, scope)
        for difference in scope.inequalities:
            found = _refined(p, difference, found, scope)
        scope.known_bounds[p] = found
    return found


def _refined(p: Polynomial, positive: Polynomial, found: tuple[float, float],
             scope: Any) -> tuple[float, float]:
    """Bounds that also use `positive` >= 0."""
    coefficients, (low, high) = dict(p), found
    for product, k in positive:
        n = coefficients.get(product, 0)
        if not n or not product or n % k:
            continue
        m = n // k
        rest = poly.combined(p, 1, positive, -m)
        a, b = _interval(rest, scope)
        for other in scope.inequalities:  # two constraints are enough for most differences
            c, d = _once(rest, other, scope)
            a, b = max(a, c), min(b, d)
        low, high = (max(low, a), high) if m > 0 else (low, min(high, b))
    return low, high


def _once(p: Polynomial, positive: Polynomial, scope: Any) -> tuple[float, float]:
    coefficients, low, high = dict(p), -INFINITY, INFINITY
    for product, k in positive:
        n = coefficients.get(product, 0)
        if n and product and n % k == 0:
            a, b = _interval(poly.combined(p, 1, positive, -(n // k)), scope)
            low, high = (max(low, a), high) if n // k > 0 else (low, min(high, b))
    return low, high


def _interval(p: Polynomial, scope: Any) -> tuple[float, float]:
    low = high = 0.0
    for product, n in p:
        a, b = 1.0, 1.0
        for factor, power in product:
            c, d = _factor_bounds(factor, scope)
            for _ in range(power):
                ends = [_times(x, y) for x in (a, b) for y in (c, d)]
                a, b = min(ends), max(ends)
        ends = [_times(a, n), _times(b, n)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def _factor_bounds(factor: Any, scope: Any) -> tuple[float, float]:
    if isinstance(factor, str):
        return scope.variable_bounds.get(factor, (1, INFINITY))
    a, b = bounds(factor.a, scope), bounds(factor.b, scope)
    if factor.operation == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if factor.operation == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if b[0] <= 0:
        return -INFINITY, INFINITY
    if factor.operation == "mod":
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    ends = [_floor(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _floor(x: float, y: float) -> float:
    if math.isinf(y):
        return 0.0 if x >= 0 else (-INFINITY if math.isinf(x) else -1.0)
    return x if math.isinf(x) else x // y


def sizes_at(p: Polynomial, of: Mapping[str, Any], scope: Any) -> Any:
    """The value of a polynomial whose variables may have dimensions as their values."""
    total: Any = 0
    for product, n in p:
        term: Any = n
        for factor, power in product:
            if isinstance(factor, str):
                found = of[factor] if factor in of else _by_rule(factor, of, scope)
            else:
                found = operate(factor.operation, sizes_at(factor.a, of, scope),
                                sizes_at(factor.b, of, scope))
            term = term * found**power
        total = total + term
    return total


def _by_rule(name: str, of: Mapping[str, Any], scope: Any) -> Any:
    p = poly.variable(name)
    normal = scope.normal(p)
    if normal == p:
        raise KeyError(name)
    return sizes_at(normal, of, scope)


def operate(operation: str, a: Any, b: Any) -> Any:
    """Apply an operation on expressions, given by its name."""
    if operation in ("max", "min"):
        return largest(a, b, operation == "min")
    if not isinstance(b, Dimension) and b == 0:
        raise ValueError(
            f"{operation}: needed a divisor other than 0 (in a symbolic shape){here()}")
    return a // b if operation == "floordiv" else a % b
