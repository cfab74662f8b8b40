"""Functions with derivative rules that close over values: the rule does not differentiate these.

Wherever such a function is called, the derivative with respect to the closed-over value is an error
and never a number, and the derivative with respect to the arguments is that of the rule.
"""

import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.errors import ClosedOverDerivativeError, UnexpectedTracerError


def vjp(a, x, read):
    f = toile.custom_vjp(lambda x: a * x)
    if read:  # the rule reads the closed-over value too
        f.defvjp(lambda x: (a * x, a), lambda a, ct: (3 * ct,))
    else:
        f.defvjp(lambda x: (x, None), lambda _, ct: (3 * ct,))
    return f(x)


def jvp(a, x, read):
    f = toile.custom_jvp(lambda x: a * x)
    f.defjvp(lambda primals, tangents: (f(*primals) if read else primals[0], tangents[0] * 3))
    return f(x)


# Each applies a function of two numbers in some place, and returns a number.
PLACES = {
    "here": lambda f: f,
    "jit": toile.jit,
    "nested jit": lambda f: toile.jit(lambda a, x: toile.jit(f)(a, x)),
    "checkpoint": toile.checkpoint,
    "cond": lambda f: lambda a, x: lax.cond(x > 0, f, lambda a, x: x, a, x),
    "closing cond": lambda f: lambda a, x: lax.cond(x > 0, lambda: f(a, x), lambda: x),
    "scan": lambda f: lambda a, x: lax.scan(lambda c, _: (f(a, c), None), x, length=1)[0],
    "while": lambda f: lambda a, x: lax.fori_loop(0, 1, lambda i, c: f(a, c), x),
    "vmap": lambda f: lambda a, x: toile.vmap(lambda x: f(a, x))(jnp.stack([x])).sum(),
    "jitted vmap": lambda f: toile.jit(
        lambda a, x: toile.vmap(lambda x: f(a, x))(jnp.stack([x])).sum()),
}
DERIVATIVES = {
    "grad": toile.grad,
    "jit of grad": lambda f, argnums: toile.jit(toile.grad(f, argnums)),
    "value_and_grad": lambda f, argnums: lambda a, x: toile.value_and_grad(f, argnums)(a, x)[1],
    "linearize": lambda f, argnums: lambda a, x: _linear(f, argnums, a, x),
    "jit of linearize": lambda f, argnums: toile.jit(lambda a, x: _linear(f, argnums, a, x)),
    "scan of grad": lambda f, argnums: lambda a, x: lax.scan(
        lambda c, x: (c, toile.grad(f, argnums)(a, x)), 0.0, jnp.stack([x]))[1].sum(),
    "vmap of grad": lambda f, argnums: lambda a, x: toile.vmap(
        toile.grad(f, argnums), (None, 0))(a, jnp.stack([x]))[0],
}


def _linear(f, argnums, a, x):
    moved = (lambda a: f(a, x)) if argnums == 0 else lambda x: f(a, x)
    _, tangent = toile.linearize(moved, (a, x)[argnums])
    return toile.linear_transpose(tangent, x)(jnp.ones(()))[0]


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [vjp, jvp])
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_a_derivative_is_that_of_the_rule_or_an_error(kind, place, derivative, read):
    """Before, a jitted gradient with respect to a closed-over value was 0."""
    found = []
    applied = PLACES[place](lambda a, x: kind(a, x, read))
    for argnums in (0, 1):
        try:
            take = DERIVATIVES[derivative](applied, argnums)
            found.append(float(take(jnp.float32(2), jnp.float32(5))))
        except (ClosedOverDerivativeError, UnexpectedTracerError) as error:
            found.append(type(error))
    # Where nothing is recorded, only the rule is called, and it may ignore the value.
    assert isinstance(found[0], type) or not read and found[0] == 0, found
    # A rule that is called after a recording has ended cannot read the value.
    assert found[1] == 3 or read and found[1] is UnexpectedTracerError, found


def test_messages():
    with pytest.raises(ClosedOverDerivativeError, match="custom_vjp function with respect to a cl"):
        toile.grad(toile.jit(lambda a: vjp(a, 3.0, True)))(2.0)
    with pytest.raises(ClosedOverDerivativeError, match="custom_jvp function with respect to a cl"):
        toile.grad(toile.jit(lambda a: jvp(a, 3.0, True)))(2.0)
    with pytest.raises(UnexpectedTracerError, match="outside the transformation that made it"):
        toile.jit(toile.grad(lambda a: vjp(a, 3.0, True)))(2.0)
