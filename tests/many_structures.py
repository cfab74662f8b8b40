"""Thousands of different programs in one process, for test_kernel_memory.py.

    python -m tests.many_structures 100 keep      prints: base, peak, kept code; in MB

Each structure is another sequence of operations on another length, with a tiny loop in its text, so
that its kernels are its own. `keep`: their functions stay, and the first ones are called again.
"""

import gc
import random
import sys
import threading

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax
from toile.platforms.cpu.execution import shelf
from toile.targets.llvm import native

STEPS = [
    (lambda xp, x: xp.sin(x) * 0.5), (lambda xp, x: xp.tanh(x) + 0.25),
    (lambda xp, x: x * x - 0.5), (lambda xp, x: xp.abs(x) * 0.75),
    (lambda xp, x: xp.cumsum(x) * 0.125), (lambda xp, x: x - x.mean()),
    (lambda xp, x: xp.sort(x)), (lambda xp, x: x[::-1] + 1), (lambda xp, x: xp.exp(-x * x)),
]


def structure(number):
    """A function of (numpy module, scan, x), and the length that it takes."""
    choice = random.Random(number)
    steps = [choice.choice(STEPS) for _ in range(6)]
    length, part = choice.randrange(4, 40), choice.randrange(2, 4)

    def f(xp, scan, x):
        for step in steps[:4]:
            x = step(xp, x)
        c = scan(lambda c: steps[4](xp, c) * 0.5 + steps[5](xp, c) * 0.25, x[:part], 3)
        return x, c.sum()

    return f, length


def compiled_scan(body, x, turns):
    return lax.scan(lambda c, _: (body(c), None), x, None, length=turns)[0]


def python_scan(body, x, turns):
    for _ in range(turns):
        x = body(x)
    return x


def right(number, jitted):
    """Compare with NumPy."""
    f, length = structure(number)
    x = np.linspace(-1, 1, length, dtype=np.float32)
    for got, want in zip(jitted(x), f(np, python_scan, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def jitted(number):
    f, _ = structure(number)
    return toile.jit(lambda x: f(jnp, compiled_scan, x))


def resident():
    """MB of memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def main(count, keeps):
    warm = [jitted(-k - 1) for k in range(5)]
    for k, g in enumerate(warm):
        right(-k - 1, g)
    base, peak, code, kept = resident(), 0.0, 0, []
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [right(-1, warm[0]) for _ in iter(stop.is_set, True)])
    busy.start()  # calls in another thread, while code comes and goes
    for number in range(count):
        g = jitted(number)
        right(number, g)
        if keeps:
            kept.append(g)
            again = random.Random(number).randrange(len(kept))
            for _ in range(4):  # the last ones go the written way
                right(again, kept[again])
        peak, code = max(peak, resident()), max(code, shelf.total())
    stop.set()
    busy.join()
    left = native.Library.code_bytes / 1e6
    del g
    kept.clear()
    warm.clear()
    gc.collect()
    toile.clear_caches()
    native.forget_recent()
    print(f"{base:.1f} {peak:.1f} {code / 1e6:.3f} {left:.3f} {len(native._libraries)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "keep")
