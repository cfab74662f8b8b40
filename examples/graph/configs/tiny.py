"""Four GCN layers of width 64 on 3,000 generated molecules; takes a minute on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "generated"
    config.train_examples = 3000
    config.held_out = 1000
    config.pad_nodes = 128
    config.pad_edges = 256

    config.layer = "gcn"
    config.layers = 4
    config.features = 64
    config.residual = True
    config.dropout = 0.1
    config.precision = "float32"

    config.learning_rate = 0.003
    config.weight_decay = 0.0
    config.batch_size = 60
    config.num_steps = 1500  # 30 epochs
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 150
    config.log_every_steps = 25
    config.checkpoint_every_steps = 300
    config.keep_checkpoints = 2
    return config
