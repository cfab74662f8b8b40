"""What a GPU plan costs, without a GPU: its launches, and the bytes that its kernels move.

`python -m tests.gpu.plan_costs "sorts | jnp.unique | forward | float32"` shows the kernels of a
function; without an argument, it lists the costs of all functions, those with most launches first.
"""

import sys
from typing import NamedTuple

import toile
from benchmarks import operations
from benchmarks.operation_cells import Cell, library, made
from tests.gpu.fake_cudnn import FakeEngine
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.ir.operands import Scratch
from toile.compiler.ir.steps import Region, ScanStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.inspection.kernels import all_kernels, kernels_of
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import cudnn, cufft, cusolver

SIZE = 1 << 18  # elements of an argument


class Cost(NamedTuple):
    """The launches and bytes of a plan; `least`: the bytes of its arguments and results."""

    launches: int
    moved: int
    least: int

    @property
    def ratio(self):
        return self.moved / max(self.least, 1 << 16)


def plan_of(fun, *args):
    """The plan of a function for a GPU with all libraries."""
    program = toile.make_jaxpr(fun)(*args).jaxpr
    with cudnn.use(FakeEngine()), cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
        return planned(optimize(program), TARGET)


def cost_of(plan):
    """What a plan costs; launches with one text in a region are one launch."""
    rooms = {b for s in plan.all_steps() for b in s.reads | s.writes if isinstance(b, Scratch)}
    ends = [*plan.program.inputs, *plan.program.outputs]
    moved = sum(k.bytes for k in kernels_of(plan)) + 2 * sum(b.nbytes for b in rooms)
    return Cost(_launches(plan), moved, sum(a.aval.nbytes for a in ends))


def _launches(plan):
    total = 0
    for step in plan.steps:
        inner = sum(_launches(child) for child in getattr(step, "children", ()))
        times = step.trips if isinstance(step, ScanStep) else 1
        own = len({x.text for x in step.launches}) if isinstance(step, Region) else 1
        total += times * inner if hasattr(step, "children") else own
    return total


# ---- functions


def padded(mode):
    return lambda L, x: L.jnp.pad(x, 3, mode=mode)


def named(name, *args, **options):
    return lambda L, *xs: getattr(L.jnp, name)(*xs, *args, **options)


def along(name, axis, *shape):
    """A function of `toile.nn`, or a sum, along an axis of an array of three."""
    def f(L, x):
        f = getattr(L.nn, name, None) or getattr(L.jnp, name)
        return f(x.reshape(shape), axis=axis)

    return f


def mapped(name):
    def f(L, x, y):
        rows, values = L.jnp.sort(x.reshape(16, -1)), y.reshape(16, -1)
        return L.jax.vmap(getattr(L.jnp, name))(rows, values)

    return f


BOTH, ONE = ("forward", "gradient"), ("forward",)
MORE = [
    *[Cell(f"pad {m}", padded(m), ("x",), modes=BOTH)
      for m in ("edge", "reflect", "symmetric", "wrap", "linear_ramp", "mean", "maximum")],
    *[Cell(f"{name}, axis {axis} of {shape}", along(name, axis, *shape), ("vector",), modes=BOTH)
      for name in ("softmax", "log_softmax", "logsumexp", "standardize", "var", "max", "cumsum",
                   "sort", "median", "argmax")
      for axis, shape in ((1, (64, 16, 256)), (0, (16, 128, 128)))],
    *[Cell(f"jnp.{name} of integers", named(name, size=100), ("segments",), modes=ONE)
      for name in ("unique", "flatnonzero")],
    *[Cell(f"jnp.{name}", named(name, size=100), ("segments", "segments"), modes=ONE)
      for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d")],
    *[Cell(f"jnp.{name}", named(name), args, modes=ONE) for name, args in {
        "searchsorted": ("short", "vector"), "isin": ("segments", "labels"), "ptp": ("x",),
        "digitize": ("vector", "short"), "histogram2d": ("vector", "vector"), "median": ("x",),
        "nanmedian": ("x",), "gradient": ("x",), "diff": ("x",), "unwrap": ("x",), "trapezoid": (
            "x",), "fliplr": ("x",), "trim_zeros": (), "corrcoef": ("matrix",)}.items()
      if name != "trim_zeros"],
    Cell("vmap searchsorted", mapped("searchsorted"), ("vector", "vector"), modes=ONE),
    Cell("vmap take", lambda L, x, i: L.jax.vmap(lambda x, i: x[i])(x, i.reshape(x.shape) % 100),
         ("x", "places"), modes=BOTH),
    Cell("stack of rolls", lambda L, x: L.jnp.stack([L.jnp.roll(x, k, 1) for k in (-1, 0, 1)]),
         ("x",), modes=BOTH),
    Cell("smallest and largest", lambda L, x: (x.min(), x.max()), ("x",), modes=ONE),
    Cell("stencil of padded", lambda L, x: (lambda p: p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1]
                                            + p[2:, 1:-1])(L.jnp.pad(x, 1, mode="edge")), ("x",),
         modes=BOTH),
]


def functions():
    """All functions by name: measurements of `benchmarks.operations`, and others."""
    found = {}
    for m in operations.measurements():
        if m.size == "small" and m.dtype != "bfloat16" and m.mode != "per example":
            found[f"{m.group} | {m.cell.name} | {m.mode} | {m.dtype}"] = m
    for cell in MORE:
        for mode in cell.modes:
            m = operations.Measurement("more", cell, mode, "small", "float32")
            found[f"more | {cell.name} | {mode} | float32"] = m
    return found


def plan_of_measurement(m):
    """The plan of a measurement, with arguments of about `SIZE` elements."""
    args = [made(kind, SIZE // m.cell.shrink, m.dtype, 0, i) for i, kind in enumerate(m.cell.args)]
    fun = operations.function(library("toile"), m, args)
    return plan_of(fun, *[toile.ShapeDtypeStruct(a.shape, a.dtype) for a in args])


def main(name=None):
    """Show the kernels of one function, or the costs of all."""
    known = functions()
    if name:
        for k in all_kernels(kernels_of(plan_of_measurement(known[name]))):
            print(f"{len(k.launches) + len(k.calls):3} {k.bytes:12,} {k.label}: "
                  f"{', '.join(k.operations[:8])}")
        return
    costs = {key: cost_of(plan_of_measurement(m)) for key, m in known.items()}
    for key, c in sorted(costs.items(), key=lambda pair: (-pair[1].launches, -pair[1].ratio)):
        print(f"{c.launches:5} {c.moved / 1e6:9.2f} MB {c.ratio:7.1f}  {key}")


if __name__ == "__main__":
    main(*sys.argv[1:])
