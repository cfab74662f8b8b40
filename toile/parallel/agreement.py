"""Agreement on Programs that several processes run together.

Each run of such a Program gets a number. Before the first run, each process sends all others a
digest of the Program. If the digests differ, the processes also send the details of the Program,
and all processes raise an error that shows both versions. Later runs send nothing. This module may
import the engine and parallel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from toile.engine.program import Program
from toile.engine.source import here
from toile.parallel.fingerprints import Fingerprint, disagreement
from toile.parallel.processes import DETAILS, HANDSHAKE, Processes, ProcessFailure, joined
from toile.parallel.runs import Run

FAILED = 0  # the digest of a program that the processes did not agree on
ANSWER = 20.0  # seconds to wait for the details of processes whose digest differs


def begin(program: Program, owners: Sequence[int]) -> Run:
    """Begin a run of a Program here, on devices that belong to the processes `owners`."""
    processes = joined()
    found: Fingerprint = program.memoized(
        ("fingerprint", owners), lambda: Fingerprint(program, owners))
    run = processes.enter(found.ranks, found.digest, found.summary, found.line)
    if (found.ranks, found.digest) not in processes.agreed:
        run.comparing = True
        try:
            _compare(processes, found, run)
        except BaseException:
            run.digest = FAILED
            run.end()
            raise
        finally:
            run.comparing = False
        processes.agreed.add((found.ranks, found.digest))
    return run


def _compare(processes: Processes, found: Fingerprint, run: Run) -> None:
    what = f"the first call of {found.name}"
    others = [r for r in found.ranks if r != processes.rank]
    own = np.array([found.digest], np.int64)
    given = {r: np.zeros(1, np.int64) for r in others}
    processes.transfer(what, dict.fromkeys(others, own), given, HANDSHAKE, run)
    if all(int(digest[0]) == found.digest for digest in given.values()):
        return
    details = json.dumps({**json.loads(found.details), "line": run.where()}).encode()
    texts = processes.gathered(details, what, found.ranks, DETAILS, run, ANSWER)
    by_digest: dict[int, tuple[list[int], str]] = {}
    for rank, text in zip(found.ranks, texts, strict=True):
        digest = found.digest if rank == processes.rank else int(given[rank][0])
        by_digest.setdefault(digest, ([], text.decode()))[0].append(rank)
    raise ProcessFailure(f"{found.name}: " + disagreement(
        run.number, {processes.named(ranks): text for ranks, text in by_digest.values()}) + here())
