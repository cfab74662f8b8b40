"""Plans of a GPU on disk: a Program that was planned before, in any process, is not planned again.

A plan is stored with its steps, buffers and constants, but without the equations that they came
from: reports that need those plan again. The name of a file covers the Program's fingerprint, the
GPU, NVIDIA's libraries, the state of toile's source and the flags that plans read. Programs that
call users' functions or communicate with other devices are not stored; nothing is stored with
TOILE_PLANS=off or TOILE_DEBUG.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import os
import time
from typing import Any

from toile.compiler.ir.operands import Scratch
from toile.compiler.plan.fingerprint import fingerprint
from toile.disk.object_cache import ObjectCache
from toile.disk.plan_schema import Damaged
from toile.disk.source_state import source_state
from toile.engine.config import flags
from toile.engine.locks import loading
from toile.engine.program import Program
from toile.platforms import recall
from toile.platforms.gpu import plan_records
from toile.platforms.gpu.steps import CallStep, MadePlan
from toile.targets.cuda import cudnn, cufft, cusolver, driver, libraries
from toile.targets.cuda import modules as kernels

FORMAT = "2"


def ahead() -> None:
    """Compute the parts of plan and kernel names that need no device, while the device starts.
    An error here is raised again, and reported, where the name is needed."""
    for find in (kernels._cache, kernels._compiler_version, _installed, source_state, _make_ready):
        try:
            find()
        except Exception:
            continue


def _making() -> Any:
    """The module that makes and writes plans: it is large, and loaded for the first new plan."""
    with loading:
        return importlib.import_module("toile.platforms.gpu.new_plans")


def _make_ready() -> None:
    """Load the planner if no plans will be found."""
    cache = kernels._cache()
    if cache is None or recall.is_off() or cache.is_empty():
        _making()


def planned(program: Program) -> Any:
    """A new plan, with the equations that it was made from."""
    return _making().planned(program)


def plan_of(program: Program, device: Any) -> MadePlan:
    """The plan of a Program for a device, which must be current: from disk, or made and stored."""
    early = recall.is_early(_asked)
    where = _place(program, device) if early or recall.is_long(program) else None
    if where is None:
        return planned(program)
    cache, key = where
    found = _recalled(cache, key, program)
    if found is None:
        making = _making()  # loading it does not count as planning time
        started = time.perf_counter()
        found = planned(program)
        if early or recall.is_worth_keeping(time.perf_counter() - started):
            making.keep(cache, key, found)
    return found


_asked = itertools.count()


def _place(program: Program, device: Any) -> tuple[ObjectCache, str] | None:
    """The cache of a plan, and its name there; None if the plan is not stored."""
    cache = kernels._cache()
    if recall.is_off() or cache is None or program.axis_names:
        return None
    found = fingerprint(program)
    if found is None:
        return None
    parts = ("gpu plan", FORMAT, found, device.architecture, device.device_kind, _installed(),
             str([type(x).__name__ for m in (cudnn, cufft, cusolver) for x in m.ENGINES.used[-1:]]),
             source_state(),
             str(flags.allow_excess_precision), str(flags.default_matmul_precision),
             str(driver.shared_limit()))
    return cache, hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _installed() -> str:
    """The libraries that plans depend on."""
    frontend = importlib.util.find_spec("cudnn")
    found = [libraries.identity(name) for name in ("cublas", "cublasLt", "cudnn")]
    found += [libraries.candidates(libraries.CATALOGUE[name])[0] for name in ("cufft", "cusolver")]
    origin = frontend.origin if frontend else None
    return "\n".join([*found, f"{origin} {os.stat(origin).st_mtime_ns}" if origin else "none"])


def _recalled(cache: ObjectCache, key: str, program: Program) -> MadePlan | None:
    data = cache.get(key)
    if data is None:
        return None
    try:
        found = plan_records.read(data)
        _check(found, program)
    except Damaged as problem:
        cache.refuse(key, str(problem))
        return None
    try:
        fits = all(_fits(s.call) for s in found.all_steps() if isinstance(s, CallStep))
    except Exception:  # a library no longer has this plan
        fits = False
    if not fits:
        cache.remove(key)
        return None
    return found


def _check(plan: MadePlan, program: Program) -> None:
    """Reject a plan whose inputs and results do not have the sizes of the Program's; random keys
    are arrays of numbers in a plan."""
    for mine, other in ((plan.given.in_avals, program.in_avals),
                        (plan.given.out_avals, program.out_avals)):
        if [x.nbytes for x in mine] != [x.nbytes for x in other]:
            raise Damaged("its inputs and results are not those of the Program")


def _fits(call: Any) -> bool:
    """Whether a library call has enough workspace."""
    if not hasattr(type(call), "room"):
        return True
    place: Any = None if call.workspace is None else call.workspace.buffer
    return call.room <= (place.nbytes if isinstance(place, Scratch) else 0)
