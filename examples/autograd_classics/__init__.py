"""Train two small networks in the style of autograd: neural_net.py and rnn.py."""
