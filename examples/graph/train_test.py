"""Tests of the graph example: batching, padding, layers, data, runs, and a copied folder."""

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves

from . import graphs, input_pipeline, karate, models, molecules, report, train
from .configs import default, tiny
from .configs import karate as karate_config

ROOT = Path(__file__).parents[__name__.count(".")]  # the folder from which the package is imported


class StopAfter:
    """StopRequests that requests a stop after a number of steps."""

    def __init__(self, steps: int):
        self.left = steps

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def __bool__(self):
        self.left -= 1
        return self.left <= 0


@pytest.fixture(autouse=True)
def own_eval_step(monkeypatch):
    """Give each test a separate `eval_step`; a shared one would warn about frequent retracing."""
    step = train.eval_step.__wrapped__
    monkeypatch.setattr(train, "eval_step", toile.jit(lambda state, batch: step(state, batch)))


def small_config(layer="gcn"):
    """A config with few molecules, a small network and 24 steps."""
    config = tiny.get_config()
    config.layer, config.train_examples, config.held_out, config.batch_size = layer, 120, 30, 20
    config.features, config.layers, config.num_steps, config.learning_rate = 16, 2, 24, 0.02
    config.eval_batch_size, config.pad_nodes, config.pad_edges = 20, 512, 1024
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 12, 4, 10
    return config


def network(layer, of_graphs=True):
    return models.GraphNetwork(layer, 8, 2, 3, of_graphs, (6,), (3,))


def test_batching_moves_indices_and_padding_adds_one_graph():
    one, two, three = molecules.molecules(3)
    joined = graphs.batch([one, two, three])
    sizes = [len(g.nodes) for g in (one, two, three)]
    assert joined.n_node.tolist() == sizes and len(joined.nodes) == sum(sizes)
    edges = slice(len(one.senders), len(one.senders) + len(two.senders))
    assert (joined.senders[edges] - sizes[0] == two.senders).all()
    padded = graphs.pad(joined, 100, 200, 6)
    assert padded.n_node.tolist() == [*sizes, 100 - sum(sizes), 0, 0]
    assert padded.n_edge.sum() == len(padded.senders) == 200
    assert (padded.senders[len(joined.senders) :] == sum(sizes)).all()
    owner = np.asarray(graphs.graph_of_node(padded))
    assert np.bincount(owner, minlength=6).tolist() == padded.n_node.tolist()
    with pytest.raises(ValueError, match="pad: needed more than"):
        graphs.pad(joined, sum(sizes), 200, 6)


@pytest.mark.parametrize("layer", list(models.LAYERS))
def test_a_graph_has_the_same_logits_alone_in_a_batch_and_padded(layer):
    found = molecules.molecules(4)
    net = network(layer)
    variables = net.init(random.key(0), found[0])
    alone = np.concatenate([np.asarray(net.apply(variables, g)) for g in found])
    padded = graphs.pad(graphs.batch(found), 150, 300, 7)
    np.testing.assert_allclose(net.apply(variables, padded)[:4], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", list(models.LAYERS))
def test_the_order_of_nodes_does_not_matter(layer):
    (graph,) = molecules.molecules(1)
    net = network(layer, of_graphs=False)
    variables = net.init(random.key(0), graph)
    order = np.random.default_rng(0).permutation(len(graph.nodes))
    place = np.argsort(order)
    turned = graph._replace(
        nodes=graph.nodes[order], senders=place[graph.senders], receivers=place[graph.receivers]
    )
    one, two = net.apply(variables, graph), net.apply(variables, turned)
    np.testing.assert_allclose(np.asarray(one)[order], two, rtol=1e-4, atol=1e-5)


def test_gcn_is_the_formula():
    graph, _ = karate.club()
    x = np.random.default_rng(0).normal(size=(34, 5)).astype(np.float32)
    layer = models.GCNLayer(4)
    variables = layer.init(random.key(0), x, None, graph.senders, graph.receivers)
    kernel = np.asarray(variables["params"]["Dense_0"]["kernel"])
    adjacency = np.eye(34)
    adjacency[graph.receivers, graph.senders] = 1
    root = 1 / np.sqrt(adjacency.sum(axis=1))
    wanted = root[:, None] * adjacency * root @ x @ kernel
    got = layer.apply(variables, x, None, graph.senders, graph.receivers)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_segment_softmax_sums_to_one_in_each_segment():
    logits, segments = jnp.array([1.0, 500.0, 2.0, 3.0]), jnp.array([0, 0, 2, 2])
    weights = np.asarray(graphs.segment_softmax(logits, segments, 3))
    np.testing.assert_allclose(weights, [0, 1, 0.26894143, 0.7310586], rtol=1e-6, atol=1e-7)


def test_the_club_is_zacharys():
    pairs = karate.friendships()
    degrees = np.bincount(pairs.reshape(-1))
    assert pairs.shape == (78, 2) and len({tuple(p) for p in pairs.tolist()}) == 78
    assert degrees[[0, 33, 32, 11]].tolist() == [16, 17, 12, 1] and degrees.min() == 1
    _, labels = karate.club()
    assert labels.sum() == 17 and labels[[0, 33]].tolist() == [0, 1]


def test_answers_are_read_off_the_graph():
    m = molecules.Molecule()
    carbon = m.add("C", m.add("C"))
    m.add("O", carbon, molecules.DOUBLE)
    oxygen = m.add("O", carbon)
    said = dict(zip(molecules.QUESTIONS, molecules.answers(m)))
    assert said == {name: name == "carboxyl" for name in molecules.QUESTIONS}
    m.add("C", oxygen)  # an ester is not an ether
    assert molecules.answers(m) == list(said.values())
    m.add("C", m.add("O", 0))
    assert molecules.answers(m)[2]


def test_average_precision_is_the_mean_of_precisions_at_hits():
    labels = np.array([[np.nan, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]])
    scores = np.array([[9, 4, 4], [3, 3, 3], [2, 2, 2], [1, 1, 1]])
    found = train.average_precisions(labels, scores)
    assert found[:2].tolist() == [pytest.approx((1 + 2 / 3) / 2)] * 2 and np.isnan(found[2])


def test_groups_for_devices_are_batches_of_their_own():
    config = small_config()
    source, _ = input_pipeline.sources(config)
    both = input_pipeline.packed(config, source, np.arange(20), 20, groups=2)
    half = input_pipeline.packed(config, source, np.arange(10, 20), 10)
    second = toile.tree.map(lambda x: x[1:], both)
    for x, y in zip(toile.tree.leaves(second), toile.tree.leaves(half), strict=True):
        np.testing.assert_array_equal(x, y)
    with pytest.raises(ValueError, match="multiple of 3 devices, got 20"):
        input_pipeline.loaders(config, random.key(0), devices=3)


def test_missing_answers_do_not_count():
    labels = np.array([[1.0, np.nan], [0.0, 1.0]], np.float32)
    batch = {"labels": labels, "mask": np.array([True, False])}
    loss, seen = train.measure(jnp.array([[2.0, 5.0], [9.0, 9.0]]), batch)
    assert float(loss) == pytest.approx(np.log1p(np.exp(-2.0)), rel=1e-5)
    assert float(seen.compute()["loss"]) == pytest.approx(float(loss))


@pytest.mark.parametrize("layer", list(models.LAYERS))
def test_the_karate_club_is_split_from_two_labels(layer, tmp_path, capsys):
    config = karate_config.get_config()
    config.layer = layer
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert report.show(config, tmp_path, state) >= 32 / 34
    assert "of 34 members right" in capsys.readouterr().out
    with pytest.raises(ValueError, match="needed 1 for the karate club"):
        input_pipeline.loaders(config, random.key(0), devices=2)


def test_the_recipes_have_the_same_fields():
    recipes = (default, tiny, karate_config)
    assert len({frozenset(recipe.get_config()) for recipe in recipes}) == 1


@pytest.mark.parametrize("layer", list(models.LAYERS))
def test_a_short_run_learns_and_reports(layer, tmp_path, capsys):
    config = small_config(layer)
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 24
    losses = list(curves.history(tmp_path, "train_loss").values())
    assert len(losses) == 6 and losses[-1] < losses[0]
    assert 0.2 < report.show(config, tmp_path, state) <= 1
    text = capsys.readouterr().out
    for part in ("Summary", "training loss", "average precision", "carboxyl", "mAP"):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = small_config()
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(14))
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [10, 14]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for x, y in zip(toile.tree.leaves(whole.params), toile.tree.leaves(resumed.params)):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture
def cpu_devices():
    """Restore the number of CPU devices, which --devices changes."""
    before = toile.config.jax_num_cpu_devices
    yield
    toile.config.update("jax_num_cpu_devices", before)


def test_two_devices_learn_what_one_does(cpu_devices, tmp_path):
    config = small_config()
    config.dropout, config.num_steps, config.log_every_steps = 0.0, 8, 8
    for devices in (1, 2):
        train.train_and_evaluate(config, tmp_path / str(devices), devices)
    one, two = (curves.history(tmp_path / folder, "train_loss")[8] for folder in "12")
    assert one == pytest.approx(two, rel=0.02)


def test_half_precision_learns_with_weights_in_float32(tmp_path):
    config = small_config()
    config.precision, config.num_steps, config.log_every_steps = "mixed_bfloat16", 12, 12
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert curves.history(tmp_path, "train_loss")[12] < 0.75


def test_molpcba_is_read_and_a_missing_one_is_told(monkeypatch):
    example = {
        "node_feat": np.ones((3, 9), np.float32), "edge_feat": np.ones((4, 3), np.float32),
        "edge_index": np.array([[0, 1], [1, 0], [1, 2], [2, 1]]),
        "labels": np.full(128, np.nan, np.float32),
        "num_nodes": np.array([3]), "num_edges": np.array([4]),
    }  # fmt: skip

    def data_source(name, split, download):
        assert (name, split, download) == ("ogbg_molpcba", ["train", "validation"], False)
        return [[example] * 9, [example] * 3]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.batch_size, config.eval_batch_size = 4, 2
    config.features, config.layers = 8, 1
    task, loader, held_out = input_pipeline.loaders(config, random.key(0))
    batch = next(iter(loader))
    assert batch["labels"].shape == (1, 5, 128) and batch["graph"].nodes.shape == (1, 512, 9)
    masks = [b["mask"][0].tolist() for b in held_out]
    assert masks == [[True, True, False], [True, False, False]]
    graph = train.own(batch)["graph"]
    model = train.create_model(config, task)
    variables = model.init(random.key(0), graph)
    assert model.apply(variables, graph).shape == (5, 128)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "zinc"
    with pytest.raises(ValueError, match="got 'zinc'"):
        input_pipeline.loaders(config, random.key(0))


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.layers=1", "--config.train_examples=60"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("five-membered ring", "python -m mine.main"):
        assert part in done.stdout
