"""Eigenvalues and eigenvectors of general matrices, by a call to LAPACK for each matrix."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader
from toile.kernels.matrices.cpu_routines import (
    TYPES,
    Fortran,
    chunks_of,
    cost_of,
    filled,
    is_finite,
    letter_of,
    module,
    name_of,
)
from toile.kernels.matrices.shared import by_columns
from toile.primitives.arrays import lapack
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Eig of real matrices."""
    (x,), (values, *vectors) = ins, outs
    letter = letter_of(x, "geev")
    if letter is None or not x.size:
        return False
    columns, n = by_columns(plan, x), x.shape[-1]
    sides = op.compute_left_eigenvectors, op.compute_right_eigenvectors
    (work,) = lapack.eig_work(*sides, n, x.dtype)
    length = work + 2 * n + n * n * sum(sides)
    units = prod(x.shape[:-2])
    grain, chunks = chunks_of(units, plan.threads)
    args: Args = (columns.ref, plan.scratch(chunks * length * x.dtype.itemsize), values.ref,
                  *(v.ref for v in vectors), n, work, length, grain)
    plan.stage(Launch(_eig_text(letter, *sides), args, units, grain, op.name,
                      cost=units * cost_of(25 * n**3)))
    return True


@cache
def _eig_text(letter: str, left: bool, right: bool) -> str:
    """Complex eigenvalues, and the requested eigenvectors row by row."""
    type, _, nan = TYPES[letter]
    name = name_of(letter, "geev")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, work, values, *vectors = (r.buffer() for _ in range(3 + left + right))
    n, room, length, grain = r.many(4)
    work = f.at(work, f.mul(f.udiv("%lo", grain), length), type)
    real = f.at(work, room, type)
    imaginary = f.at(real, n, type)
    count = f.mul(n, n)
    made = [f.at(imaginary, f.add(n, f.mul(count, i)), type) for i in range(len(vectors))]
    both = [made[0] if left else work, made[-1] if right else work]
    jobs = [fortran.letter("V" if side else "N") for side in (left, right)]
    order, room_, info = fortran.word(n), fortran.word(room), f.alloca("i32")
    with f.loop("%lo", "%hi") as unit:
        a = f.at(x, f.mul(unit, count), type)
        f.store("i32", 1, info)
        with f.when(is_finite(f, type, a, count)):
            fortran.call(name, *jobs, order, a, order, real, imaginary, both[0], order, both[1],
                         order, work, room_, info)
        with f.when(f.compare("ne", f.load("i32", info), 0, "i32")):
            filled(f, type, nan, (real, f.mul(n, 2)), *((v, count) for v in made))
        with f.loop(0, n) as j:
            w = f.load(type, f.at(imaginary, j, type))
            _put_complex(f, type, f.load(type, f.at(real, j, type)), w, values,
                         f.add(f.mul(unit, n), j))
            for v, out in zip(made, vectors, strict=True):
                _put_vector(f, type, v, w, j, n, out, f.add(f.mul(unit, count), j))
    return module(f, **{name: 14})


def _put_complex(f: ir.Function, type: str, real: str, imaginary: str, to: str, at: str) -> None:
    for i, part in enumerate((real, imaginary)):
        f.store(type, part, f.at(to, f.add(f.mul(at, 2), i), type))


def _put_vector(f: ir.Function, type: str, v: str, w: str, j: str, n: str, to: str,
                at: str) -> None:
    """Store an eigenvector. LAPACK stores the eigenvectors of a conjugate pair as a real and an
    imaginary part; `w` is the imaginary part of the eigenvalue."""
    first, second = (f.value(f"fcmp {c} {type} {w}, 0.0") for c in ("ogt", "olt"))
    none = f.value(f"fsub {type} {w}, {w}")  # 0, or NaN after a failure
    parts = [f.at(v, f.mul(f.add(j, f.select(c, step, 0)), n), type)
             for c, step in ((second, -1), (first, 1))]
    with f.loop(0, n) as i:
        real, imaginary = (f.load(type, f.at(p, i, type)) for p in parts)
        other = f.select(second, f.value(f"fneg {type} {imaginary}"), none, type)
        _put_complex(f, type, real, f.select(first, imaginary, other, type), to,
                     f.add(at, f.mul(i, n)))
