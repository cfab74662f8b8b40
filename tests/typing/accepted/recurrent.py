"""Recurrent cells."""
import toile.linen as nn
import toile.numpy as jnp
from toile import random

rnn = nn.RNN(nn.OptimizedLSTMCell(features=8))
both = nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.GRUCell(4)))
x = jnp.ones((2, 7, 3))
variables = rnn.init(random.key(0), x)
y = rnn.apply(variables, x, seq_lengths=jnp.array([3, 7]))
