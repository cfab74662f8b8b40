"""Digests of plans, printed as JSON: a process of its own for tests/compiler/test_determinism.py.

    python -m tests.compiler.plan_digests SEED COUNT NOISE

plans COUNT generated programs for the CPU and for a GPU, and compiles none of them. NOISE shifts
where objects lie in memory, so that whatever depends on their addresses shows.
"""

import hashlib
import json
import os
import random
import sys

os.environ["TOILE_PLATFORM"] = "cpu"

import toile
from tests.generated.draw import draw
from tests.generated.running import arguments, function, names_of
from toile.compiler.compilation import compile_program
from toile.compiler.plan.fingerprint import fingerprint
from toile.disk.plan_schema import Unencodable
from toile.platforms.cpu import images
from toile.platforms.cpu import new_plans as making
from toile.platforms.cpu.execution import Executable
from toile.platforms.gpu import plan_records
from toile.platforms.gpu.target import TARGET
from toile.targets.llvm import native


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def cpu_plan(program) -> list[str]:
    """Digests of the image of a Program and of the texts of its kernels."""
    made = making.planned(program)
    texts = [*made.described.kernels, *sorted(made.plan.also)]
    kernels = digest("\0".join(texts).encode())
    try:
        symbols = sorted(native.symbols_of(texts))
        data = images.written(images.Kept(made.image, [], symbols, made.in_steps))
    except Unencodable:
        data = repr(made.image).encode()
    return [digest(data), kernels]


def gpu_plan(program) -> list[str]:
    plan = compile_program(program, TARGET)
    try:
        return [digest(plan_records.written(plan))]
    except Unencodable:
        return ["not kept"]


def main(seed: int, count: int, noise: int) -> None:
    native.begin = lambda text: None
    native.functions = lambda texts: [0] * len(texts)
    Executable.__init__ = lambda self, program, image, *rest: setattr(self, "image", image)
    moved = random.Random(noise)
    held, names, found = [], names_of("toile"), []
    for index in range(count):
        held.append([object() for _ in range(moved.randrange(5000))])
        if moved.random() < 0.5:
            held.pop(moved.randrange(len(held)))
        p = draw(seed, index)
        with toile.enable_x64(p.x64):
            try:
                program = toile.make_jaxpr(function(p, names))(*arguments(p)).program
            except Exception as error:  # a program that is an error is one in every process
                found.append([type(error).__name__])
                continue
            found.append([str(fingerprint(program)), *cpu_plan(program), *gpu_plan(program)])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
