"""An LSTM that reads a sequence and one that writes another."""

import toile.numpy as jnp
from toile import linen as nn

from .input_pipeline import END


class DecoderCell(nn.RNNCellBase):
    """An LSTM that writes one token per step, and reads the true tokens or its own."""

    features: int
    vocabulary: int
    teacher_force: bool

    @nn.compact
    def __call__(self, carry, true_token):
        """Return logits and the most likely token, one-hot (greedy decoding)."""
        lstm_state, last_token = carry
        token = true_token if self.teacher_force else last_token
        lstm_state, y = nn.OptimizedLSTMCell(self.features)(lstm_state, token)
        logits = nn.Dense(self.vocabulary)(y)
        written = nn.one_hot(logits.argmax(axis=-1), self.vocabulary, dtype=token.dtype)
        return (lstm_state, written), (logits, written)

    @property
    def num_feature_axes(self):
        """Inputs have one feature axis: tokens are one-hot vectors."""
        return 1


class Seq2Seq(nn.Module):
    """An encoder whose final state is the initial state of the decoder."""

    features: int

    @nn.compact
    def __call__(self, question, answer, teacher_force=True):
        """Return logits and tokens [batch, length - 1, vocabulary] after the first of `answer`.

        Without `teacher_force`, only the first token of `answer` and its length are used.
        """
        encoder = nn.RNN(nn.OptimizedLSTMCell(self.features), return_carry=True, name="encoder")
        cell = DecoderCell(self.features, answer.shape[-1], teacher_force)
        zeros = jnp.zeros((len(question), self.features), question.dtype)
        state, _ = encoder(question, initial_carry=(zeros, zeros), seq_lengths=lengths(question))
        decoder = nn.RNN(cell, name="decoder")
        return decoder(answer[:, :-1], initial_carry=(state, answer[:, 0]))


def lengths(tokens):
    """Return the lengths of sequences [batch, time, vocabulary], up to and including END."""
    return jnp.argmax(tokens[..., END], axis=-1) + 1
