"""Whole programs as users of JAX write them, to be run on jax and on toile.

A program takes a namespace (`ns.jax`, `ns.jnp`, `ns.lax`, `ns.random`, `ns.nn`, `ns.tree`,
`ns.scipy`) and returns a tree whose leaves are arrays, numbers, strings or dtypes.
"""

PROGRAMS = []


def program(rtol=1e-4, atol=1e-5, x64=False):
    """Register a program, with its tolerances and whether it runs in double precision."""

    def keep(function):
        function.rtol, function.atol, function.x64 = rtol, atol, x64
        PROGRAMS.append(function)
        return function

    return keep


def caught(function, *args, **kwargs):
    """What a call raises: the built-in classes it can be caught as, or nothing."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return Caught(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return Caught()


class Caught(frozenset):
    """Names of exception classes."""
