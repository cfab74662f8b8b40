"""The programs: training steps, examples, whole programs as users write them, and generated ones.

Programs are obtained by tracing a function, or by recording what is compiled while code runs. Each
part is created in a separate process.
"""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import toile
from benchmarks import cpu_rows, gpu, workloads
from examples.__main__ import RUNS, Run, Script
from toile.control import attention
from toile.engine.program import Program
from toile.platforms.cpu import new_plans as making

Named = Iterator[tuple[str, Program]]
GENERATED = 160
SEED = 20261117  # seed for the generated programs


def training() -> Named:
    """The training steps in the benchmark tables for CPU and GPU."""
    for spec in cpu_rows.TRAINING:
        yield _name(f"train {spec}"), _step(spec)
    # The name is different in older checkouts.
    default = "default_device" if hasattr(attention, "default_device") else "default_gpu"
    for spec, *_ in gpu.TRAINING:
        with mock.patch.object(attention, default, lambda: "a GPU"):
            yield _name(f"gpu train {spec}"), _step(spec)


def _step(spec: str) -> Program:
    """The Program of a training step; nothing is computed."""
    name, sizes = cpu_rows.parse(spec)
    lib = workloads.library("toile")
    found: list[Any] = []

    def state() -> Any:
        step, first, batch = workloads.build(lib, name, **sizes)
        found.append(step)
        return first, batch

    shapes = toile.eval_shape(state)
    return toile.make_jaxpr(found[0])(*shapes).program


def generated() -> Named:
    """Randomly generated programs; they are the same in every run."""
    from tests.generated.draw import draw
    from tests.generated.running import arguments, function, names_of

    names = names_of("toile")
    for index in range(GENERATED):
        drawn = draw(SEED, index)
        with toile.enable_x64(drawn.x64):
            try:
                traced = toile.make_jaxpr(function(drawn, names))(*arguments(drawn))
            except Exception:  # not every generated program is valid
                continue
        yield f"generated-{index:03}", traced.program


def whole() -> Named:
    """The Programs that are compiled while whole programs run."""
    from tests.whole_programs.recording import PROGRAMS, answer

    for f in PROGRAMS:
        yield from _compiled(_name(f"whole {f.__name__}"), partial(answer, toile, f))


def example(run: Run | Script) -> Named:
    """The Programs that are compiled in the first steps of an example."""
    with tempfile.TemporaryDirectory() as folder:
        command = run.command(1)[1:]  # without the interpreter: -m MODULE FLAG ...
        flags = [f"--workdir={folder}" if x.startswith("--workdir=") else x for x in command[2:]]
        with mock.patch.object(sys, "argv", [command[1], *flags]):
            yield from _compiled(_name(f"example {run.name}"), partial(_main, command[1]))


def _main(module: str) -> None:
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise


def _compiled(name: str, run: Callable[[], Any]) -> Named:
    """The Programs that are compiled while `run` is executed, each structure once."""
    found: dict[str, Program] = {}
    plan = making.planned

    def noting(program: Program) -> Any:
        found.setdefault(str(program), program)
        return plan(program)

    with mock.patch.object(making, "planned", noting):
        run()
    for i, program in enumerate(found.values()):
        yield f"{name}-{i:02}", program


def _name(text: str) -> str:
    """Convert a text to a file name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


PARTS: dict[str, Callable[[], Named]] = {
    "training": training,
    "generated": generated,
    "whole": whole,
    **{_name(f"example {run.name}"): partial(example, run) for run in RUNS},
}
ROOT = Path(__file__).parents[2]
