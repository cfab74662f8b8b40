"""A choice of nodes with the least cost, as a minimum cut (Dinic's algorithm)."""

from __future__ import annotations

SOURCE, SINK = -1, -2  # always chosen, and never
FOREVER = 1 << 62  # more than any choice costs


class Network:
    """Nodes, some of which are chosen such that the cost is the least."""

    def __init__(self, nodes: int):
        self.edges: list[list[int]] = [[] for _ in range(nodes + 2)]  # the last two: sink, source
        self.count = nodes
        self.ends: list[int] = []
        self.room: list[int] = []

    def node(self) -> int:
        """Add a node."""
        self.edges.insert(self.count, [])
        self.count += 1
        return self.count - 1

    def cost(self, first: int, second: int, amount: int) -> None:
        """Choosing the first node and not the second one costs an amount."""
        for a, b, room in ((first, second, amount), (second, first, 0)):
            self.edges[a].append(len(self.ends))
            self.ends.append(b)
            self.room.append(room)

    def require(self, first: int, second: int) -> None:
        """A choice with the first node must have the second one, too."""
        self.cost(first, second, FOREVER)

    def chosen(self) -> list[bool]:
        """Whether each node is chosen: none of them if that costs the least, and otherwise as many
        as the least cost allows."""
        while True:
            far = self._distances()
            if far[SINK] < 0:
                break
            left = [list(edges) for edges in self.edges]
            while self._send(far, left):
                pass
        if not any(d >= 0 for d in far[:self.count]):
            return [False] * self.count
        return [not leads for leads in self._leading()[:self.count]]

    def _leading(self) -> list[bool]:
        """Whether there is a way with room from each node to the sink."""
        found = [False] * len(self.edges)
        found[SINK] = True
        reached = [SINK]
        for b in reached:
            for e in self.edges[b]:
                a = self.ends[e]
                if self.room[e ^ 1] and not found[a]:
                    found[a] = True
                    reached.append(a)
        return found

    def _distances(self) -> list[int]:
        """How far each node is from the source, along edges with room; -1: not reached."""
        far = [-1] * len(self.edges)
        far[SOURCE] = 0
        reached = [SOURCE]
        for a in reached:
            for e in self.edges[a]:
                b = self.ends[e]
                if self.room[e] and far[b] < 0:
                    far[b] = far[a] + 1
                    reached.append(b)
            if far[SINK] >= 0:
                break
        return far

    def _send(self, far: list[int], left: list[list[int]]) -> bool:
        """Use up one of the shortest ways to the sink; `left`: edges that may still lead there."""
        ends, room = self.ends, self.room
        way: list[int] = []
        at = SOURCE
        while at != SINK:
            edges = left[at]
            while edges and not (room[edges[-1]] and far[ends[edges[-1]]] == far[at] + 1):
                edges.pop()
            if edges:
                way.append(edges[-1])
                at = ends[edges[-1]]
            elif not way:
                return False
            else:  # no way through this node
                at = ends[way.pop() ^ 1]
                left[at].pop()
        least = min(room[e] for e in way)
        for e in way:
            room[e] -= least
            room[e ^ 1] += least
        return True
