"""Two sentence classifiers: one ignores the order of the words, and the other uses it."""

import toile.numpy as jnp
from toile import linen as nn
from toile import random

PAD, UNKNOWN = 0, 1


class WordEmbedding(nn.Module):
    """Word vectors; in training, some words are replaced with UNKNOWN and some entries with 0."""

    vocabulary: int
    features: int
    dropout: float
    word_dropout: float

    @nn.compact
    def __call__(self, tokens, train: bool):
        """Return vectors [batch, length, features] for tokens [batch, length]."""
        if train and self.word_dropout:
            drop = random.bernoulli(self.make_rng("dropout"), self.word_dropout, tokens.shape)
            tokens = jnp.where(drop & (tokens != PAD), UNKNOWN, tokens)
        x = nn.Embed(self.vocabulary, self.features)(tokens)
        return nn.Dropout(self.dropout, deterministic=not train)(x)


class Classifier(nn.Module):
    """A hidden layer and the logits."""

    hidden: int
    classes: int
    dropout: float

    @nn.compact
    def __call__(self, x, train: bool):
        """Return logits [batch, classes] for sentence vectors."""
        x = nn.tanh(nn.Dense(self.hidden)(x))
        return nn.Dense(self.classes)(nn.Dropout(self.dropout, deterministic=not train)(x))


class BagOfEmbeddings(nn.Module):
    """Classifies the mean of the word vectors."""

    vocabulary: int
    embedding: int = 300
    hidden: int = 256
    classes: int = 2
    dropout: float = 0.5
    word_dropout: float = 0.1

    @nn.compact
    def __call__(self, tokens, train: bool = False):
        """Return logits [batch, classes] for tokens [batch, length], padded with 0."""
        x = WordEmbedding(self.vocabulary, self.embedding, self.dropout, self.word_dropout)(
            tokens, train
        )
        real = (tokens != PAD)[..., None]
        mean = jnp.where(real, x, 0).sum(axis=1) / jnp.maximum(real.sum(axis=1), 1)
        return Classifier(self.hidden, self.classes, self.dropout)(mean.astype(x.dtype), train)


class BiLSTM(nn.Module):
    """Classifies the final states of two LSTMs, one in each direction."""

    vocabulary: int
    embedding: int = 300
    hidden: int = 256
    classes: int = 2
    dropout: float = 0.5
    word_dropout: float = 0.1

    @nn.compact
    def __call__(self, tokens, train: bool = False):
        """Return logits [batch, classes] for tokens [batch, length], padded with 0."""
        x = WordEmbedding(self.vocabulary, self.embedding, self.dropout, self.word_dropout)(
            tokens, train
        )
        forward, backward = (
            nn.RNN(nn.OptimizedLSTMCell(self.hidden), return_carry=True, name=name)
            for name in ("forward", "backward")
        )
        lengths = jnp.maximum((tokens != PAD).sum(axis=1), 1)
        ends, _ = nn.Bidirectional(forward, backward, return_carry=True)(x, seq_lengths=lengths)
        last = jnp.concatenate([hidden for _, hidden in ends], axis=-1)
        return Classifier(self.hidden, self.classes, self.dropout)(last, train)


MODELS = {"bag": BagOfEmbeddings, "bilstm": BiLSTM}
