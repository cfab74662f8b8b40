"""Flax's recipe for lm1b: six layers of width 512 on the One Billion Word benchmark, bfloat16."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The hyperparameters; `--config.NAME=VALUE` changes one on the command line."""
    config = ml_collections.ConfigDict()

    config.dataset = "tfds"  # or "topics" (the included text), or "file" (two text files)
    config.tfds_name = "lm1b"  # any data set whose examples have a `text` feature
    config.train_split = "train"
    config.test_split = "test"
    config.train_documents = 0  # number of documents to use; 0 for all
    config.train_file = "wikitext-2-raw/wiki.train.raw"  # for dataset "file"
    config.test_file = "wikitext-2-raw/wiki.test.raw"
    config.held_out = 9  # every ninth topic of the included text is held out

    config.tokenizer = "sentencepiece"  # or "bytes"
    config.vocabulary_file = "runs/lm1b_sentencepiece.model"  # created if it does not exist
    config.vocabulary_size = 30_000
    config.vocabulary_documents = 200_000  # number of documents from which it is created
    config.length = 128
    config.pack = True  # put several documents into a row

    config.features = 512
    config.layers = 6
    config.heads = 8
    config.qkv_features = 512
    config.mlp_features = 2048
    config.dropout = 0.1
    config.tied = False
    config.remat = False  # recompute layers in the backward pass; saves memory but takes time
    config.scan_layers = True
    config.precision = "mixed_bfloat16"  # or mixed_float16, float32 (weights stay in float32)

    config.optimizer = "adamw"  # or "lamb"
    config.schedule = "rsqrt"  # or "cosine"
    config.learning_rate = 0.0016
    config.warmup_steps = 1000
    config.beta2 = 0.98
    config.weight_decay = 0.1
    config.clip_norm = 1e9  # no clipping
    config.batch_size = 256
    config.num_steps = 500_000
    config.seed = 0

    config.eval_batch_size = 256
    config.eval_every_steps = 2000
    config.log_every_steps = 100
    config.checkpoint_every_steps = 2000
    config.keep_checkpoints = 2

    config.prompts = ("I love to ",)
    config.sample_length = 50
    config.sample_temperature = 0.6
    config.sample_top_k = 20
    return config
