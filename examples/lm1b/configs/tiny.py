"""Four layers of width 128 on the bytes of Python's help topics; takes minutes on two cores."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; default.py explains them."""
    config = ml_collections.ConfigDict()

    config.dataset = "topics"
    config.tfds_name = "lm1b"
    config.train_split = "train"
    config.test_split = "test"
    config.train_documents = 0
    config.train_file = ""
    config.test_file = ""
    config.held_out = 9

    config.tokenizer = "bytes"
    config.vocabulary_file = ""
    config.vocabulary_size = 0
    config.vocabulary_documents = 0
    config.length = 128
    config.pack = True

    config.features = 128
    config.layers = 4
    config.heads = 4
    config.qkv_features = 128
    config.mlp_features = 512
    config.dropout = 0.0
    config.tied = False
    config.remat = False
    config.scan_layers = True
    config.precision = "float32"

    config.optimizer = "adamw"
    config.schedule = "cosine"
    config.learning_rate = 0.003
    config.warmup_steps = 50
    config.beta2 = 0.98
    config.weight_decay = 0.1
    config.clip_norm = 1.0
    config.batch_size = 16
    config.num_steps = 900
    config.seed = 0

    config.eval_batch_size = 32
    config.eval_every_steps = 150
    config.log_every_steps = 15
    config.checkpoint_every_steps = 150
    config.keep_checkpoints = 2

    config.prompts = ('The "while" statement', "If the object", "Changed in version 3.", "   def ")
    config.sample_length = 128
    config.sample_temperature = 0.6
    config.sample_top_k = 20
    return config
