"""Collectives of devices in several processes: among threads first, then among processes.

Within each process, the devices that belong to a group synchronize as threads do. The first of
these devices then exchanges messages with the other processes and distributes the result. Sums are
computed in the order of devices within a process, then in the order of processes. A common result
is either computed in one place and sent, or computed everywhere from the same numbers in the same
order, so the results are bit-for-bit identical on all devices. This module may import the engine
and other modules of `parallel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.devices import process_index
from toile.engine.exchange import Groups
from toile.parallel.exchange import (
    Group,
    Place,
    Stopped,
    ThreadExchange,
    World,
    flat_index,
    reduced,
)
from toile.parallel.processes import Processes, joined
from toile.parallel.runs import Run

# Up to this many bytes, every process sends all it has to all others; larger arrays are cut into
# parts, each reduced by one process.
AT_ONCE = 1 << 14
# Keeps messages of one kind of collective from being taken for those of another.
_KINDS = {name: i for i, name in enumerate(
    ("psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"))}


class Team:
    """A group of devices by process: the positions in the group of each process's devices."""

    __slots__ = ("group", "positions", "ranks", "mine", "local", "tag")

    def __init__(
        self, group: Group, sizes: Sequence[int], owners: Sequence[int], processes: Processes,
        digest: int,
    ):
        self.group = group
        self.positions: dict[int, list[int]] = {}
        for i, path in enumerate(group.members):
            self.positions.setdefault(owners[flat_index(path[0][1], sizes)], []).append(i)
        self.ranks = sorted(self.positions)
        self.mine = self.positions[process_index()]
        members = tuple(group.members[i] for i in self.mine)
        self.local = Group(members, self.mine.index(group.place))
        self.tag = 0
        if len(self.ranks) > 1:
            self.tag = processes.tag(digest, group.members)

    @property
    def others(self) -> list[int]:
        return [r for r in self.ranks if r != process_index()]


class ProcessExchange(ThreadExchange):
    """The exchange of one device; `owners` has the process of each index of the outermost axes."""

    def __init__(
        self, world: World, levels: tuple[tuple[int, Place], ...], owners: tuple[int, ...],
        run: Run,
    ):
        super().__init__(world, levels)
        self.owners, self.processes, self.run = owners, joined(), run
        self.teams: dict[Any, Team] = {}

    def inside(self, number: int, place: Place) -> ProcessExchange:
        levels = (*self.levels, (number, place))
        return ProcessExchange(self.world, levels, self.owners, self.run)

    def team(self, axes: tuple[Any, ...], groups: Groups) -> Team:
        """The group of a collective, by process."""
        found = self.teams.get((axes, groups))
        if found is None:
            group = self.group(axes, groups)
            sizes = [size for _, size, _ in self.levels[0][1]]
            found = self.teams[axes, groups] = Team(
                group, sizes, self.owners, self.processes, self.run.digest)
        return found

    def _transfer(self, what: Any, team: Team, outgoing: Any, incoming: Any) -> None:
        try:
            self.processes.transfer(what, outgoing, incoming, team.tag + _KINDS[what[0]], self.run,
                                    lambda: self.world.error is not None)
        except InterruptedError:
            raise Stopped from None

    def _by_first(self, what: Any, team: Team, x: Any, work: Callable[[list[Any]], Any]) -> Any:
        """The result of `work` on the local devices' values; the first device computes it for all.

        That device waits for other processes outside the thread barrier, so that other groups can
        synchronize."""
        if team.local.size == 1:
            return work([x])
        values = self.world.meet(team.local, what, x, list)
        result = work(values) if team.local.place == 0 else None
        return self.world.meet(team.local, (what, "end"), result, lambda results: results[0])

    # ---- collectives
    def all_reduce(
        self, kind: str, xs: Sequence[Any], axes: tuple[Any, ...], groups: Groups
    ) -> list[Any]:
        team = self.team(axes, groups)
        if len(team.ranks) == 1:
            return super().all_reduce(kind, xs, axes, groups)
        what = (f"p{kind}", axes)
        wide = [_widened(kind, np.asarray(x)) for x in xs]
        parts = wide if team.local.size == 1 else self.reduced_over(team.local, kind, wide, what)

        def work(_: list[Any]) -> list[Any]:
            totals = self._all_reduce(what, team, kind, parts)
            return [t.astype(x.dtype, copy=False) for t, x in zip(totals, xs, strict=True)]

        return self._by_first((*what, "processes"), team, None, work)

    def _all_reduce(self, what: Any, team: Team, kind: str, parts: Sequence[Any]) -> list[Any]:
        """This process's arrays reduced over processes; arrays of one dtype are sent together."""
        results: list[Any] = [None] * len(parts)
        for dtype in dict.fromkeys(p.dtype for p in parts):
            chosen = [i for i, p in enumerate(parts) if p.dtype == dtype]
            if len(chosen) == 1:
                flat = np.ascontiguousarray(parts[chosen[0]]).reshape(-1)
            else:
                flat = np.concatenate([parts[i].reshape(-1) for i in chosen])
            reduce = self._at_once if flat.nbytes <= AT_ONCE else self._in_parts
            total = reduce(what, team, kind, flat)
            start = 0
            for i in chosen:
                n = parts[i].size
                results[i] = total[start : start + n].reshape(parts[i].shape)
                start += n
        return results

    def _at_once(self, what: Any, team: Team, kind: str, flat: Any) -> Any:
        found = {r: np.empty_like(flat) for r in team.others}
        self._transfer(what, team, dict.fromkeys(team.others, flat), found)
        return reduced(kind, [found.get(r, flat) for r in team.ranks])

    def _in_parts(self, what: Any, team: Team, kind: str, flat: Any) -> Any:
        n, me = len(team.ranks), team.ranks.index(process_index())
        ends = [k * flat.size // n for k in range(n + 1)]
        parts = {r: flat[ends[k] : ends[k + 1]] for k, r in enumerate(team.ranks)}
        own = parts.pop(team.ranks[me])
        found = {r: np.empty_like(own) for r in team.others}
        self._transfer(what, team, parts, found)
        out = np.empty_like(flat)
        pieces = {r: out[ends[k] : ends[k + 1]] for k, r in enumerate(team.ranks)}
        mine = pieces.pop(team.ranks[me])
        reduced(kind, [found.get(r, own) for r in team.ranks], mine)
        self._transfer(what, team, dict.fromkeys(team.others, mine), pieces)
        return out

    def all_gather(self, x: Any, axis: Any, groups: Groups) -> Any:
        team, what = self.team((axis,), groups), ("all_gather", axis)
        if len(team.ranks) == 1:
            return super().all_gather(x, axis, groups)

        def work(xs: list[Any]) -> Any:
            own = np.stack(xs)
            found = {r: _room(own, len(team.positions[r])) for r in team.others}
            self._transfer(what, team, dict.fromkeys(team.others, own), found)
            out = _room(own, team.group.size)
            for r in team.ranks:
                out[team.positions[r]] = found.get(r, own)
            return out

        return np.array(self._by_first(what, team, x, work))

    def reduce_scatter(self, x: Any, axis: Any, groups: Groups) -> Any:
        team, what = self.team((axis,), groups), ("psum_scatter", axis)
        if len(team.ranks) == 1:
            return super().reduce_scatter(x, axis, groups)

        def work(xs: list[Any]) -> Any:
            sent = {r: reduced("sum", [_widened("sum", v[team.positions[r]]) for v in xs])
                    for r in team.ranks}
            own = sent.pop(process_index())
            found = {r: np.empty_like(own) for r in team.others}
            self._transfer(what, team, sent, found)
            total = reduced("sum", [found.get(r, own) for r in team.ranks])
            return total.astype(x.dtype, copy=False)

        return np.array(self._by_first(what, team, x, work)[team.local.place])

    def all_to_all(self, x: Any, axis: Any, groups: Groups) -> Any:
        team, what = self.team((axis,), groups), ("all_to_all", axis)
        if len(team.ranks) == 1:
            return super().all_to_all(x, axis, groups)

        def work(xs: list[Any]) -> Any:
            all_ = np.stack(xs)  # device of this process, device of the group, …
            sent = {r: np.ascontiguousarray(all_[:, team.positions[r]]) for r in team.ranks}
            own = sent.pop(process_index())
            found = {r: np.empty((len(team.positions[r]), *own.shape[1:]), own.dtype)
                     for r in team.others}
            self._transfer(what, team, sent, found)
            out = np.empty_like(all_)
            for r in team.ranks:
                out[:, team.positions[r]] = np.swapaxes(found.get(r, own), 0, 1)
            return out

        return np.array(self._by_first(what, team, x, work)[team.local.place])

    def permute(self, x: Any, axis: Any, perm: Sequence[tuple[int, int]]) -> Any:
        team, what = self.team((axis,), None), ("ppermute", axis)
        if len(team.ranks) == 1:
            return super().permute(x, axis, perm)
        place = {p: (r, i) for r, ps in team.positions.items() for i, p in enumerate(ps)}
        routes = [(*place[a], *place[b]) for a, b in perm]  # process and device, from and to
        me = process_index()
        leaving: dict[int, list[int]] = {}
        coming: dict[int, list[int]] = {}
        for s, i, d, j in routes:
            if s == me != d:
                leaving.setdefault(d, []).append(i)
            if d == me != s:
                coming.setdefault(s, []).append(j)

        def work(xs: list[Any]) -> Any:
            sent = {r: np.stack([xs[i] for i in own]) for r, own in leaving.items()}
            found = {r: _room(xs[0][None], len(js)) for r, js in coming.items()}
            self._transfer(what, team, sent, found)
            out: list[Any] = [None] * len(xs)
            for s, i, d, j in routes:
                if s == d == me:
                    out[j] = np.array(xs[i])
            for r, js in coming.items():
                for j, value in zip(js, found[r], strict=True):
                    out[j] = value
            return out

        return self._by_first(what, team, x, work)[team.local.place]


def _room(stacked: Any, count: int) -> Any:
    """An empty array like `stacked`, with `count` entries along its first axis."""
    return np.empty((count, *stacked.shape[1:]), stacked.dtype)


def _widened(kind: str, x: Any) -> Any:
    """An array to be summed: narrow floats as float32."""
    if kind == "sum" and dtypes.is_inexact(x.dtype) and x.dtype.itemsize < 4:
        return x.astype(np.float32)
    return x
