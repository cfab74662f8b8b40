"""The subject of an inspection: a function traced and compiled for certain arguments.

The function gets a `jit` of its own, so that other callers do not see what is done to it here.
Arguments are never donated: they are used for many calls.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toile.compiler.ir.steps import Region
from toile.compiler.plan.lower import Plan
from toile.engine import errors
from toile.engine.arrays import ConcreteArray
from toile.engine.gpu import GpuDevice, presence
from toile.engine.program import Program
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import flatten
from toile.parallel.partition import Partition, find
from toile.parallel.sharded_jit import ShardedJit
from toile.platforms import cpu
from toile.platforms.dispatch import device_for
from toile.staging.flat_functions import name_of
from toile.staging.jit import PjitFunction
from toile.targets.llvm import native


@dataclass
class Subject:
    """A compiled function and what making it took."""

    name: str
    jitted: PjitFunction
    program: Program
    executable: Any  # of the backend that it runs on
    consts: list[Any] | None  # raw values it closes over; None where some are traced
    trace_seconds: float
    compile_seconds: float
    fresh: set[Any]  # kernels that were not in memory before
    partition: Partition | None = None  # where `program` is that of one device of many
    device: GpuDevice | None = None  # None: the CPU

    @property
    def plan(self) -> Plan:
        return self.executable.plan


def private_jit(f: Callable[..., Any], what: str) -> PjitFunction:
    """`jit(f)` with a cache of its own, under the static arguments that f has."""
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
    """Trace and compile a function for these arguments; nothing runs.

    With `divides`, a function that runs on many devices is what one of them runs."""
    if state.trace is not None:
        raise errors.UnexpectedTracerError(
            f"{what}: needed a call outside of transformations, got one that is being traced"
            f"{here()}"
        )
    jitted = private_jit(f, what)
    started = time.perf_counter()
    traced = jitted.trace(*args, **kwargs).traced
    program = traced.program
    divided = _divided(f, traced, jitted, args, kwargs) if divides else None
    device = None if divided is not None else _device(traced, args, kwargs)
    middle = time.perf_counter()
    if device is not None:
        executable, fresh = compiled_on(device, program)
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


def _device(traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GpuDevice | None:
    """The GPU that a call with these arguments runs on; None: the CPU."""
    if presence.none:
        return None
    given = [x._data for x in flatten((args, kwargs))[0] if isinstance(x, ConcreteArray)]
    return device_for([*(traced.raw_consts or ()), *given])


def compiled_on(device: GpuDevice, program: Program) -> tuple[Any, set[Any]]:
    """The executable of a Program on a GPU, and its kernels that were not in memory before."""
    backend = importlib.import_module("toile.platforms.gpu")
    kernels = importlib.import_module("toile.targets.cuda.modules")
    before = kernels.loaded(device)
    with device.current():
        executable = program.memo[device] = backend.compiled(program, device)
    return executable, {k for k in gpu_kernels(executable) if k not in before}


def gpu_kernels(executable: Any) -> list[Any]:
    """The different kernels that an executable on a GPU launches, in order."""
    launches = (x for same in executable.issuer.launches.values() for x in same)
    return list(dict.fromkeys(x.kernel for x in launches))


def _divided(
    f: Any, traced: Any, jitted: PjitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Partition | None:
    """How a call of `f` is divided over devices, if it is."""
    wanted: Sequence[Any] = ()
    if isinstance(f, ShardedJit):
        args, wanted = f._laid_out(args), f._wanted(traced)
    _, args, kwargs = jitted._take_statics(args, kwargs)
    return find(traced.program, traced.consts + flatten((args, kwargs))[0], wanted)


def texts_of(plan: Plan) -> list[str]:
    """The different kernels of a plan, in order."""
    launches = (x for s in plan.all_steps() if isinstance(s, Region) for x in s.kernels)
    return list(dict.fromkeys(x.text for x in launches))
