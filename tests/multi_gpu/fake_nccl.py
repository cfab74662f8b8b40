"""NCCL in host memory: calls are checked against the prototypes, recorded, and done.

A rank is a thread. A group of calls is done when all ranks of its communicator have made theirs,
as NCCL's are; ranks that make other calls, or with other counts, are an error. What is put on a
stream beside a device's own is done when somebody waits for it, and not before.
"""

import collections
import ctypes
import itertools
import queue
import threading

import ml_dtypes
import numpy as np

from tests.multi_gpu import host_cupy
from toile.targets.cuda import nccl

DTYPES = {code: np.dtype(getattr(ml_dtypes, name, name)) for name, code in nccl.TYPES.items()}
REDUCTIONS = {0: np.add, 2: np.maximum, 3: np.minimum}


def at(address, count, dtype):
    memory = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(address)
    return np.ndarray((count,), dtype, memory)


class _World:
    """The ranks of one id."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.calls = {}
        self.mail = collections.defaultdict(queue.Queue)


class _Local(threading.local):
    depth = 0
    queue = ()


class FakeNccl:
    """The functions of NCCL; `log` has the names and arguments of all calls.

    What is put on a stream is added to `events`."""

    def __init__(self, events):
        self.events = events
        self.late = collections.defaultdict(list)  # by stream, as late as it may be
        self.ids = itertools.count(1)
        self.worlds, self.ranks = {}, {}
        self.local, self.lock = _Local(), threading.Lock()
        self.log, self.aborted = [], []

    def __getattr__(self, name):
        if not name.startswith("nccl"):
            raise AttributeError(name)

        def call(*args):
            types = nccl.PROTOTYPES[name]
            assert len(args) == len(types), (name, len(args), len(types))
            for value, kind in zip(args, types):
                assert isinstance(value, kind) if kind is nccl.UniqueId else kind(value) is not None
            with self.lock:
                self.log.append((name, args))
                if len(args) > 4:
                    self.events.append((name, args[-1]))
            found = getattr(self, "_" + name, None)
            if found is not None:
                found(*args)
            else:
                self._queued(name, args)

        return call

    def names(self):
        return [name for name, _ in self.log]

    def _ncclGetUniqueId(self, out):
        number = next(self.ids)
        ctypes.memmove(out, number.to_bytes(8, "little") + b"\x07" * 120, 128)

    def _ncclCommInitRank(self, out, size, id, rank):
        number = int.from_bytes(bytes(id.internal)[:8], "little")
        assert bytes(id.internal)[8:] == b"\x07" * 120 and 0 <= rank < size
        with self.lock:
            world = self.worlds.setdefault(number, _World(size))
            handle = 1000 * number + rank + 1
            assert handle not in self.ranks, "one rank twice"
            self.ranks[handle] = (world, rank)
        ctypes.c_void_p.from_address(out).value = handle
        world.barrier.wait(20)

    def _ncclCommAbort(self, handle):
        self.aborted.append(handle)
        self.ranks.pop(handle)[0].barrier.abort()

    def _ncclGroupStart(self):
        if not self.local.depth:
            self.local.queue = []
        self.local.depth += 1

    def _ncclGroupEnd(self):
        self.local.depth -= 1
        if not self.local.depth:
            self._do(self.local.queue)

    def _queued(self, name, args):
        if self.local.depth:
            self.local.queue.append((name, args))
        else:
            self._do([(name, args)])

    def _do(self, calls):
        (stream,) = {args[-1] for _, args in calls}
        if stream not in host_cupy.Stream.beside:
            self._done(calls)
            return
        for _, args in calls:  # the targets may be written from now on
            ctypes.memset(args[1], 0xA5, args[2] * DTYPES[args[3]].itemsize)
        self.late[stream].append(calls)

    def finish(self, stream):
        """Somebody waits for a stream beside those of the devices: do what is on it."""
        for calls in self.late.pop(stream, ()):
            self._done(calls)

    def _done(self, calls):
        handles = {args[-2] for _, args in calls}
        assert len(handles) == 1, "one communicator"
        world, rank = self.ranks[handles.pop()]
        messages = [c for c in calls if c[0] in ("ncclSend", "ncclRecv")]
        if messages:
            assert len(messages) == len(calls), "messages, or collectives"
            self._send(world, rank, messages)
            return
        world.calls[rank] = calls
        if world.barrier.wait(20) == 0:
            self._work([world.calls[r] for r in range(world.size)])
            world.calls = {}
        world.barrier.wait(20)

    def _send(self, world, rank, messages):
        """Messages wait for their own pair only."""
        for name, (address, count, code, peer, *_) in messages:
            if name == "ncclSend":
                world.mail[rank, peer].put(at(address, count, DTYPES[code]).copy())
        for name, (address, count, code, peer, *_) in messages:
            if name == "ncclRecv":
                at(address, count, DTYPES[code])[...] = world.mail[peer, rank].get(timeout=20)

    def _work(self, by_rank):
        assert len({len(calls) for calls in by_rank}) == 1, "all ranks make the same calls"
        for same in zip(*by_rank):
            assert len({(name, args[2:-2]) for name, args in same}) == 1, same
            getattr(self, "do_" + same[0][0])([args for _, args in same])

    def _total(self, ranks, count):
        _, _, _, code, operation, *_ = ranks[0]
        found = [at(a[0], count, DTYPES[code]).copy() for a in ranks]
        total = found[0]
        for x in found[1:]:
            total = REDUCTIONS[operation](total, x)
        return total, DTYPES[code]

    def do_ncclAllReduce(self, ranks):
        total, dtype = self._total(ranks, ranks[0][2])
        for a in ranks:
            at(a[1], a[2], dtype)[...] = total

    def do_ncclReduceScatter(self, ranks):
        n = ranks[0][2]
        total, dtype = self._total(ranks, n * len(ranks))
        for i, a in enumerate(ranks):
            at(a[1], n, dtype)[...] = total[i * n : (i + 1) * n]

    def do_ncclAllGather(self, ranks):
        n, dtype = ranks[0][2], DTYPES[ranks[0][3]]
        whole = np.concatenate([at(a[0], n, dtype) for a in ranks])
        for a in ranks:
            at(a[1], n * len(ranks), dtype)[...] = whole
