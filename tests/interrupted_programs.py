"""Compiled calls that are interrupted, for test_interruption.py: run in a process of its own.

    python -m tests.interrupted_programs          each kind once
    python -m tests.interrupted_programs 200 7    at 200 random moments, from seed 7

Prints a line for each interruption, with the seconds from the signal to KeyboardInterrupt.
"""

import os
import random
import signal
import sys
import threading
import time

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax

FEW, FOREVER = np.float32(3), np.float32(1e30)
RNG = np.random.default_rng(0)


def counting(body):
    """body applied while a counter is below n, whose text is the same for any n."""
    def f(x, n):
        turn = lambda c: (c[0] + 1, body(c[1]))
        return lax.while_loop(lambda c: c[0] < n, turn, (jnp.float32(0), x))[1]
    return f


def nested(x, n):
    inner = lambda c: lax.while_loop(lambda d: d[0] < n, lambda d: (d[0] + 1, d[1] * 0.5),
                                     (jnp.float32(0), c))[1]
    return counting(inner)(x, n)


def many_steps(x, n):
    for _ in range(30):
        x = counting(lambda v: jnp.tanh(v @ v))(x, n / 1e29)
    return x


class Kind:
    """A function of (x, n), and what it gives for few turns."""

    def __init__(self, f, x, few=FEW, many=FOREVER, want=None):
        self.f, self.x, self.few, self.many, self.want = f, x, few, many, want

    def right(self):
        """The few turns again, which must give what they gave before, bit for bit."""
        got = np.asarray(self.f(self.x, self.few))
        if self.want is None:
            self.want = got
        np.testing.assert_array_equal(got, self.want)


def kinds():
    small, middle = jnp.linspace(0.1, 0.9, 3), jnp.linspace(0.1, 0.9, 3000)
    square = jnp.asarray(RNG.standard_normal((700, 700)), np.float32) / 30
    long = jnp.asarray(RNG.random(6_000_000), np.float32)
    donating = toile.jit(counting(jnp.sin), donate_argnums=0)

    def donated(x, n):
        given = x + 0
        try:
            out = donating(given, n)
        except KeyboardInterrupt:
            np.testing.assert_array_equal(given, x)  # it is still there, as it was
            raise
        assert given.is_deleted()
        return out

    sorts = toile.jit(lambda x, n: counting(lambda v: jnp.sort(-v))(x[: int(n)], 30.0),
                      static_argnums=1)
    places = toile.jit(lambda x, n: counting(lambda v: v[jnp.argsort(v)] * -1)(x[: int(n)], 30.0),
                       static_argnums=1)
    scan = toile.jit(lambda x, n: lax.scan(lambda c, _: (jnp.sin(c) + 1, None), x, None,
                                           length=int(n))[0], static_argnums=1)
    devices = toile.pmap(counting(lambda v: jnp.sin(v) * 0.5), in_axes=(0, None))
    meeting = toile.pmap(lambda x, n: counting(lambda v: lax.psum(v, "i") * 0.5)(x, n),
                         axis_name="i", in_axes=(0, None))
    added = lambda v: toile.pure_callback(lambda a: np.asarray(a) + 1, v, v)
    return {
        "tiny while": Kind(toile.jit(counting(jnp.sin)), small),
        "scan of 10^9 turns": Kind(scan, small, 3, 10**9),
        "loops in tiny loops": Kind(toile.jit(nested), small),
        "loop of steps": Kind(toile.jit(counting(jnp.sin)), middle),
        "loop of large steps": Kind(toile.jit(counting(jnp.sin)), jnp.tile(middle, 100)),
        "products": Kind(toile.jit(counting(lambda v: jnp.tanh(v @ v))), square),
        "many steps": Kind(toile.jit(many_steps), square, np.float32(1e29)),
        "sorts": Kind(sorts, long, 3000, 6_000_000),
        "argsort": Kind(places, long, 3000, 6_000_000),
        "eager while": Kind(counting(jnp.sin), small),
        "donated": Kind(donated, small),
        "callbacks": Kind(toile.jit(counting(added)), small),
        "devices": Kind(devices, jnp.stack([middle, middle])),
        "devices that meet": Kind(meeting, jnp.stack([small, small])),
    }


def others_are_right():
    """Other programs, on all threads, compiled before and anew."""
    x = jnp.ones(200_000)
    assert float(doubled(x)) == 400_000
    k = random.random()
    np.testing.assert_allclose(toile.jit(lambda x: (x * k).sum())(x), 200_000 * k, rtol=1e-5)


doubled = toile.jit(lambda x: (2 * x).sum())


class Interrupter:
    """Sends SIGINT some seconds after `begin`, and again each 5 s: Python drops what a finalizer
    or a callback of a weak reference raises."""

    def __init__(self, after):
        self.sent, self.times = 0.0, 0
        self.begin, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(after,))
        self.thread.start()

    def _run(self, after):
        self.begin.wait()
        while not self.over.wait(after):
            self.sent, self.times, after = time.perf_counter(), self.times + 1, 5
            os.kill(os.getpid(), signal.SIGINT)

    def end(self):
        self.over.set()
        self.thread.join()


def interrupted(call, after):
    """The seconds from the signal to the end of a call (None if it was over before), and how many
    signals that took."""
    late, interrupter = None, Interrupter(after)
    try:
        try:
            interrupter.begin.set()
            call()
        except KeyboardInterrupt:
            late = time.perf_counter() - interrupter.sent
        interrupter.end()
    except KeyboardInterrupt:  # of a signal that came after the call
        interrupter.end()
    return late, interrupter.times


def each_once(names=()):
    for name, kind in kinds().items():
        if names and name not in names:
            continue
        kind.right()
        late, times = interrupted(lambda kind=kind: kind.f(kind.x, kind.many), 0.35)
        assert late is not None, f"{name} ended by itself"
        print(f"{late:.3f} s {times} {name}", flush=True)
        assert not kind.x.is_deleted()
        kind.right()
        others_are_right()
    print("done", flush=True)


def at_random(count, seed):
    choice = random.Random(seed)
    made = kinds()
    if choice.random() < 0.5:  # else compilations are interrupted, too
        for kind in made.values():
            kind.right()
    for i in range(count):
        name = choice.choice(list(made))
        kind = made[name]
        late, times = interrupted(
            lambda kind=kind: kind.f(kind.x, kind.many), choice.random() ** 2 * 0.3)
        while True:  # what was interrupted is compiled
            try:
                kind.right()
                others_are_right()
                break
            except KeyboardInterrupt:
                pass
        print(f"{-1 if late is None else late:.3f} s {times} {name} {i}", flush=True)
        if i % 20 == 19:
            toile.clear_caches()
    print("done", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    count, seed, *names = sys.argv[1:] or (0, 0)
    if int(count):
        at_random(int(count), int(seed))
    else:
        each_once(names)
