"""Two layers of LSTMs of width 256 that learn parts of speech from a UD treebank."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "conllu"  # two CoNLL-U files; or "python" (the included library)
    config.train_file = "UD_English-EWT/en_ewt-ud-train.conllu"
    config.test_file = "UD_English-EWT/en_ewt-ud-dev.conllu"
    config.column = "upos"  # or xpos, deprel …
    config.files = 0  # number of files of the Python library; 0 for all
    config.held_out = 5  # every fifth of these files is held out
    config.min_count = 2  # rarer words are unknown
    config.length = 64  # in tokens; longer sequences are cut into windows

    config.model = "bilstm"  # or transformer
    config.features = 256
    config.layers = 2
    config.heads = 4  # only for the transformer
    config.dropout = 0.3
    config.precision = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)

    config.learning_rate = 0.002  # peak after warmup; then cosine decay to 0
    config.warmup_steps = 100
    config.weight_decay = 0.01
    config.clip_norm = 1.0
    config.batch_size = 64
    config.num_steps = 4000
    config.seed = 0

    config.eval_batch_size = 64
    config.eval_every_steps = 400
    config.log_every_steps = 50
    config.checkpoint_every_steps = 400
    config.keep_checkpoints = 2
    return config
