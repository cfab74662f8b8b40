"""Train two small networks as one did with autograd: neural_net.py and rnn.py."""
