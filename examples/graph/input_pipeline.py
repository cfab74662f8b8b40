"""Labeled graphs: the karate club, generated molecules, or the molecules of ogbg_molpcba.

A batch is a dict of `graph` (a padded GraphsTuple), `labels` (of its nodes or of its graphs) and
`mask` (True for the labels to use). It is padded to multiples of `config.pad_nodes` and
`config.pad_edges`, so that steps have few different shapes. The first axis of every array is the
device axis: each device has its own batch, padded like the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from toile import tree
from toile.training import datasets
from toile.training.loader import Loader

from . import graphs, karate, molecules


@dataclass(frozen=True)
class Task:
    """The labels to predict, and the number of values of each node and edge feature."""

    outputs: int
    of_graphs: bool
    node_sizes: tuple[int, ...]
    edge_sizes: tuple[int, ...]


TASKS = {
    "karate": Task(2, False, (34,), ()),
    "generated": Task(len(molecules.QUESTIONS), True, (len(molecules.ELEMENTS),), (3,)),
    "tfds": Task(128, True, (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)),
}


class Molpcba:
    """The examples of ogbg_molpcba as graphs, read on demand."""

    def __init__(self, source):
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> graphs.GraphsTuple:
        x = self.source[i]
        nodes, edges = (np.asarray(x[name]).astype(np.int32) for name in ("node_feat", "edge_feat"))
        ends = np.asarray(x["edge_index"]).astype(np.int32)
        return graphs.GraphsTuple(
            nodes=nodes, edges=edges, receivers=ends[:, 1], senders=ends[:, 0],
            globals=np.asarray(x["labels"], np.float32)[None],
            n_node=np.array([len(nodes)], np.int32), n_edge=np.array([len(ends)], np.int32),
        )  # fmt: skip


def sources(config) -> tuple[Any, Any]:
    """Return the training graphs and the held-out graphs."""
    if config.dataset == "generated":
        found = molecules.molecules(config.train_examples + config.held_out)
        return found[: config.train_examples], found[config.train_examples :]
    train, held_out = datasets.tfds_sources("ogbg_molpcba", ["train", "validation"])
    return Molpcba(train), Molpcba(held_out)


def round_up(count: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-count // multiple) * multiple


def packed(config, source, chosen: np.ndarray, size: int, groups: int = 1) -> dict[str, Any]:
    """Make a padded batch [groups, …] of the chosen graphs, with room for `size` graphs in all."""
    parts = [[source[int(i)] for i in part] for part in np.array_split(chosen, groups)]
    empty = graphs.GraphsTuple(*(x if x is None else x[:0] for x in source[0]))
    joined = [graphs.batch(part or [empty]) for part in parts]
    n_node = round_up(max(len(g.nodes) for g in joined) + 1, config.pad_nodes)
    n_edge = round_up(max(len(g.senders) for g in joined), config.pad_edges)
    n_graph = -(-size // groups) + 1
    padded = [graphs.pad(g, n_node, n_edge, n_graph) for g in joined]
    together = graphs.GraphsTuple(*(
        None if column[0] is None else np.stack(column) for column in zip(*padded)
    ))  # fmt: skip
    mask = np.stack([np.arange(n_graph) < len(part) for part in parts])
    labels, graph = together.globals, together._replace(globals=None)
    return {"graph": graph, "labels": labels, "mask": mask}


def loaders(config, key, devices: int = 1) -> tuple[Task, Loader, Loader]:
    """Return the task, a loader of shuffled training batches, and one of held-out graphs."""
    if config.dataset not in TASKS:
        raise ValueError(f"config.dataset: needed one of {list(TASKS)}, got {config.dataset!r}")
    task = TASKS[config.dataset]
    if config.dataset == "karate":
        if devices > 1:
            raise ValueError(f"--devices: needed 1 for the karate club (one graph), got {devices}")
        return task, *karate_loaders()
    if config.batch_size % devices:
        raise ValueError(
            f"config.batch_size: needed a multiple of {devices} devices, got {config.batch_size}"
        )
    train, held_out = sources(config)

    def loader(source, size, groups=1, **options):
        def pack(batch):
            chosen = batch["index"][batch["mask"]] if "mask" in batch else batch["index"]
            return packed(config, source, chosen, size, groups)

        return Loader({"index": np.arange(len(source))}, size, transform=pack, **options)

    return (
        task,
        loader(train, config.batch_size, devices, key=key),
        loader(held_out, config.eval_batch_size, last="pad"),
    )


def karate_loaders() -> tuple[Loader, Loader]:
    """Return the whole club with the labels of its two leaders, and with all labels."""
    graph, labels = karate.club()
    leaders = np.isin(np.arange(len(labels)), (karate.INSTRUCTOR, karate.PRESIDENT))

    def loader(mask):
        batch = tree.map(lambda x: x[None], {"graph": graph, "labels": labels, "mask": mask})
        return Loader({"index": np.arange(1)}, 1, transform=lambda _: batch)

    return loader(leaders), loader(np.ones(len(labels), bool))
