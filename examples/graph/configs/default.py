"""Flax's recipe for ogbg_molpcba: five GCN layers of width 256, Adam, batches of 256 graphs."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "tfds"  # ogbg_molpcba; or "generated" molecules, or "karate"
    config.train_examples = 3000  # number of generated examples
    config.held_out = 1000
    config.pad_nodes = 512  # pad batches to multiples of this many nodes and edges
    config.pad_edges = 1024

    config.layer = "gcn"  # or gat
    config.layers = 5
    config.features = 256
    config.residual = True  # add the output of each layer to its input, after a LayerNorm
    config.dropout = 0.1
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)

    config.learning_rate = 0.001  # initial value of a cosine decay to 0
    config.weight_decay = 0.0
    config.batch_size = 256  # graphs
    config.num_steps = 100_000
    config.seed = 0

    config.eval_batch_size = 256
    config.eval_every_steps = 2000
    config.log_every_steps = 100
    config.checkpoint_every_steps = 2000
    config.keep_checkpoints = 2
    return config
