"""`python -m tests.generated --count 10000 --seed 20261116`: many programs, in several processes.

Failures go, shrunk, into a file of JSON lines, with a line for each piece that was run; `--resume`
goes on after the last of them. A worker that dies or hangs is a failure of the program it ran.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import time
from collections import Counter
from multiprocessing.connection import Connection, wait
from typing import Any

LIMIT = 120.0  # seconds for one program, and as many to shrink it
STARTING = 180.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs, from --start on")
    parser.add_argument("--seed", type=int, default=None, help="default: today's date")
    parser.add_argument("--start", type=int, default=0, help="the first index")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=540.0, help="stop after so long")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--jax", action="store_true", help="compare a sample with JAX")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each failure")
    parser.add_argument("--out", type=pathlib.Path, default=None, help="file of JSON lines")
    parser.add_argument("--resume", action="store_true",
                        help="go on where --out ends, up to --count in all")
    parser.add_argument("--show", type=int, default=None, help="print one program and run it")
    return parser.parse_args()


def prepare(device: str) -> None:
    """The environment that tests run in, for this process and those it starts."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["TOILE_PLATFORM"] = "cpu" if device == "cpu" else "auto"
    for name, value in (("TOILE_OPTIMIZE", "0"), ("TOILE_PLANS", "off"),
                        ("TOILE_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1"),
                        ("OPENBLAS_NUM_THREADS", "1")):
        os.environ.setdefault(name, value)
    if device == "gpu":
        os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")


def covered(p: Any) -> tuple[Counter[str], Counter[str]]:
    """What occurs in a program, and which nest directly in which."""
    from tests.generated.data import nodes

    ops, pairs = Counter[str](), Counter[str]()
    ops[f"regime {p.regime}"] += 1
    ops[f"dtype {p.dtype}"] += 1
    ops[f"outer {p.outer}"] += 1
    ops[f"passing {p.passing}"] += 1
    ops["zero-size"] += 0 in p.sizes.values()
    for n, around in nodes(p.main):
        ops[n.op] += 1
        ops[f"depth {len(around)}"] += 1
        pairs[f"{around[-1] if around else p.outer} > {n.op}"] += 1
    return ops, pairs


def one(seed: int, index: int, jax: bool, seconds: float) -> dict[str, Any]:
    """Run one program; a failure comes back shrunk."""
    from tests.generated import check, data, shrink
    from tests.generated.draw import draw
    from tests.generated.running import arguments

    p = draw(seed, index)
    made, failure = check.examine(p, check.chosen(p, jax))
    ops, pairs = covered(p)
    found: dict[str, Any] = {"index": index, "made": made, "ops": ops, "pairs": pairs}
    if failure is not None:
        small = shrink.shrink(p, failure, seconds) if seconds else p
        found["failure"] = {
            "seed": seed, "index": index, "kind": failure.kind, "detail": failure.detail[:2000],
            "shrunk": data.report(small, arguments(small)), "source": data.source(p),
            "passing": small.passing,
        }  # fmt: skip
    return found


def work(pipe: Connection, seed: int, device: str, jax: bool, seconds: float) -> None:
    """A worker: indices come in, results go out."""
    import warnings

    prepare(device)
    warnings.simplefilter("ignore")
    pipe.send(None)
    count = 0
    while (index := pipe.recv()) is not None:
        pipe.send(one(seed, index, jax, seconds))
        count += 1
        if count % 200 == 0:
            import toile

            toile.clear_caches()


class Worker:
    """A process that runs one program at a time."""

    def __init__(self, given: argparse.Namespace):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        args = (other, given.seed, given.device, given.jax, given.shrink)
        self.process = context.Process(target=work, args=args, daemon=True)
        self.process.start()
        other.close()
        self.index: int | None = None
        self.deadline = time.monotonic() + STARTING

    def give(self, index: int | None, seconds: float) -> None:
        self.index, self.deadline = index, time.monotonic() + LIMIT + seconds
        self.pipe.send(index)

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


class Run:
    """A piece of the programs: who runs what, and what came of it."""

    def __init__(self, given: argparse.Namespace):
        self.given = given
        self.next = given.start
        self.end = given.start + given.count
        self.done: set[int] = set()
        self.ops, self.pairs, self.made = Counter[str](), Counter[str](), Counter[str]()
        self.failures: list[dict[str, Any]] = []
        self.began = time.monotonic()
        self.stopping = False
        self.shown = self.began

    def take(self, found: dict[str, Any]) -> None:
        self.done.add(found["index"])
        self.ops.update(found["ops"])
        self.pairs.update(found["pairs"])
        self.made.update(found["made"])
        if "failure" in found:
            self.fail(found["failure"])

    def fail(self, failure: dict[str, Any]) -> None:
        self.failures.append(failure)
        self.write(failure)
        print(f"  program {failure['index']}: {failure['kind']}: {failure['detail'][:160]!r}")

    def write(self, record: dict[str, Any]) -> None:
        with self.given.out.open("a") as f:
            f.write(json.dumps(record) + "\n")

    def lost(self, worker: Worker, why: str) -> Worker | None:
        """A worker died or hangs: record it, start another."""
        worker.stop()
        if worker.index is None:
            raise SystemExit(f"a worker did not start ({why})")
        self.done.add(worker.index)
        self.fail({"seed": self.given.seed, "index": worker.index, "kind": why,
                   "detail": f"exit code {worker.process.exitcode}"})
        return None if self.stopping or self.next >= self.end else Worker(self.given)

    def loop(self) -> None:
        workers = [Worker(self.given) for _ in range(min(self.given.jobs, self.given.count))]
        while workers:
            ready = wait([w.pipe for w in workers], timeout=1.0)
            now = time.monotonic()
            self.stopping = self.stopping or now - self.began > self.given.seconds
            left = []
            for w in workers:
                kept: Worker | None = w
                if w.pipe in ready:
                    kept = self._hear(w)
                elif now > w.deadline:
                    kept = self.lost(w, "hang")
                if kept is not None:
                    left.append(kept)
            workers = left
            if now - self.shown > 10:
                self.shown = now
                rate = len(self.done) / (now - self.began)
                print(f"{len(self.done)} programs, {rate:.1f}/s, {len(self.failures)} failures",
                      flush=True)

    def _hear(self, w: Worker) -> Worker | None:
        try:
            found = w.pipe.recv()
        except (EOFError, ConnectionResetError):
            w.process.join(5)
            return self.lost(w, "crash")
        if found is not None:
            self.take(found)
        if self.stopping or self.next >= self.end:
            w.pipe.send(None)
            w.process.join(5)
            w.stop()
            return None
        w.give(self.next, self.given.shrink)
        self.next += 1
        return w


def table(ops: Counter[str], pairs: Counter[str]) -> str:
    """How often each construct occurred, and which of them in which."""
    from tests.generated.nests import NAMES

    lines = ["constructs:"]
    for name, n in sorted(ops.items()):
        lines.append(f"  {name:24}{n:8}")
    inner = [n for n in NAMES if n != "linear_call"]
    lines += ["nests in nests (rows: outside):", " " * 12 + " ".join(f"{n[:6]:>6}" for n in NAMES)]
    for outside in inner:
        counts = " ".join(f"{pairs[f'{outside} > {n}']:6}" for n in NAMES)
        lines.append(f"{outside:12}{counts}")
    missing = [f"{a} > {b}" for a in inner for b in NAMES if not pairs[f"{a} > {b}"]]
    lines.append(f"pairs that did not occur: {', '.join(missing) or 'none'}")
    return "\n".join(lines)


def pieces(path: pathlib.Path, seed: int) -> list[dict[str, Any]]:
    """What was run before, as the file says."""
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [r for r in records if r.get("kind") == "piece" and r["seed"] == seed]


def show(given: argparse.Namespace) -> None:
    """Print one program and what its checks say."""
    from tests.generated import check, data
    from tests.generated.draw import draw
    from tests.generated.running import arguments

    p = draw(given.seed, given.show)
    print(data.report(p, arguments(p)))
    print(check.examine(p, [*check.chosen(p, given.jax), "plain"]))


def main() -> int:
    given = options()
    prepare(given.device)
    if given.seed is None:
        from tests.seeds import today

        given.seed = today()
    if given.show is not None:
        show(given)
        return 0
    given.out = given.out or pathlib.Path(f"generated-{given.seed}-{given.device}.jsonl")
    before = pieces(given.out, given.seed) if given.resume else []
    if before:
        end = given.start + given.count
        given.start = max(b["end"] for b in before)
        given.count = max(end - given.start, 0)
    run = Run(given)
    run.loop()
    seconds = time.monotonic() - run.began
    piece = {"kind": "piece", "seed": given.seed, "device": given.device, "start": given.start,
             "end": run.next, "programs": len(run.done), "failures": len(run.failures),
             "seconds": round(seconds, 1), "checks": run.made, "ops": run.ops, "pairs": run.pairs}
    run.write(piece)
    ops, pairs = Counter(run.ops), Counter(run.pairs)
    for b in before:
        ops.update(b["ops"])
        pairs.update(b["pairs"])
    print(table(ops, pairs))
    done = len(run.done) + sum(b["programs"] for b in before)
    bad = len(run.failures) + sum(b["failures"] for b in before)
    print(f"seed {given.seed}: {len(run.done)} programs in {seconds:.0f} s, "
          f"{len(run.failures)} failures; {done} programs and {bad} failures in all; "
          f"checks made: {dict(run.made)}; go on with --start {run.next}")
    return 1 if run.failures else 0


