"""The subject of an inspection: a function traced and compiled for certain arguments.

The function gets its own `jit`, so other callers are not affected. Arguments are never donated,
because many calls use them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toile.compiler.ir.steps import Region
from toile.compiler.plan.lower import Plan
from toile.engine import errors
from toile.engine.arrays import ConcreteArray
from toile.engine.devices import Device
from toile.engine.platform_registry import platform_at, registry
from toile.engine.program import Program
from toile.engine.sharded import device_of_call
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import flatten
from toile.parallel.partition import Partition, find
from toile.parallel.sharded_jit import ShardedJit
from toile.platforms import cpu
from toile.staging.flat_functions import name_of
from toile.staging.jit import PjitFunction
from toile.targets.llvm import native


@dataclass
class Subject:
    """A compiled function, with the times to trace it and to compile it."""

    name: str
    jitted: PjitFunction
    program: Program
    executable: Any  # of its backend
    consts: list[Any] | None  # raw values it closes over; None if some are traced
    trace_seconds: float
    compile_seconds: float
    fresh: set[Any]  # kernels that were not yet in memory
    partition: Partition | None = None  # if `program` is that of one device of many
    device: Device | None = None  # None: the CPU

    @property
    def plan(self) -> Plan:
        return self.executable.plan


def private_jit(f: Callable[..., Any], what: str) -> PjitFunction:
    """Return `jit(f)` with a separate cache and the static arguments of `f`."""
    if not callable(f):
        raise TypeError(f"{what}: needed a callable, got {f!r} of type {type(f).__name__}{here()}")
    options: dict[str, Any] = {}
    fun = f
    if isinstance(f, PjitFunction):
        fun = f.fun
        options = {"static_argnums": f.static_argnums, "static_argnames": f.static_argnames}

    @functools.wraps(fun)
    def own(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    return PjitFunction(own, options)


def subject(
    f: Callable[..., Any], what: str, args: tuple[Any, ...], kwargs: dict[str, Any],
    divides: bool = False,
) -> Subject:
    """Trace and compile a function for these arguments, without running it.

    If `divides` is True and the function runs on several devices, the subject is the Program that
    one of the devices runs."""
    if state.trace is not None:
        raise errors.UnexpectedTracerError(
            f"{what}: needed a call outside transformations, got one that is being traced"
            f"{here()}"
        )
    jitted = private_jit(f, what)
    started = time.perf_counter()
    traced = jitted.trace(*args, **kwargs).traced
    program = traced.program
    divided = _divided(f, traced, jitted, args, kwargs) if divides else None
    device = None if divided is not None else device_of_arguments(traced, args, kwargs)
    middle = time.perf_counter()
    if device is not None:
        executable, fresh = inspection_of(device).compiled_anew(program, device)
        return Subject(name_of(jitted.fun), jitted, program, executable, traced.raw_consts,
                       middle - started, time.perf_counter() - middle, fresh, None, device)
    before = native.loaded()
    if divided is not None:
        program = divided.op.prepare()
        executable = program.executable
    else:
        executable = program.executable = cpu.planned(program)
    ended = time.perf_counter()
    fresh = {t for t in texts_of(executable.plan) if native.digest(t) not in before}
    return Subject(name_of(jitted.fun), jitted, program, executable, traced.raw_consts,
                   middle - started, ended - middle, fresh, divided)


def device_of_arguments(
    traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Device | None:
    """Return the device that a call with these arguments runs on, or None for the CPU."""
    if not registry.active:
        return None
    given = [x for x in flatten((args, kwargs))[0] if isinstance(x, ConcreteArray)]
    return device_of_call(given, [*(traced.raw_consts or ()), *[x._data for x in given]])


def inspection_of(device: Device) -> Any:
    """Return the inspection module for a device that is not the CPU (`Platform.inspection`)."""
    return platform_at(device).inspection()


def _divided(
    f: Any, traced: Any, jitted: PjitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Partition | None:
    """Return how a call to `f` is divided among devices, or None if it is not divided."""
    wanted: Sequence[Any] = ()
    if isinstance(f, ShardedJit):
        args, wanted = f._laid_out(args), f._wanted(traced)
    _, args, kwargs = jitted._take_statics(args, kwargs)
    return find(traced.program, traced.consts + flatten((args, kwargs))[0], wanted)


def texts_of(plan: Plan) -> list[str]:
    """Return the code of the different kernels of a plan, in order."""
    launches = (x for s in plan.all_steps() if isinstance(s, Region) for x in s.kernels)
    return list(dict.fromkeys(x.text for x in launches))
