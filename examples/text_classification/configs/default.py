"""Flax's recipe for SST-2: a BiLSTM of width 256 on word vectors of size 300, Adam at 0.0005."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "tfds"  # glue/sst2; or "generated" reviews
    config.train_examples = 8000  # number of generated examples
    config.held_out = 2000
    config.min_count = 2  # words in fewer sentences are UNKNOWN
    config.length = 60  # in words; longer sentences are cut

    config.model = "bilstm"  # or bag, which uses the mean of the word vectors
    config.embedding = 300
    config.hidden = 256
    config.dropout = 0.5
    config.word_dropout = 0.1
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)

    config.learning_rate = 0.0005  # initial value of a cosine decay to 0
    config.clip_norm = 1.0
    config.batch_size = 64
    config.num_steps = 10520  # 10 epochs of SST-2
    config.seed = 0

    config.eval_batch_size = 250
    config.eval_every_steps = 1052
    config.log_every_steps = 50
    config.checkpoint_every_steps = 1052
    config.keep_checkpoints = 2
    return config
