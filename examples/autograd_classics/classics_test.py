"""Tests that both autograd classics learn in a few steps."""

import numpy as np
import pytest

from toile.test_util import check_grads

from . import neural_net, rnn


def test_the_net_tells_spirals_apart(capsys):
    assert neural_net.main(steps=300) > 0.95
    assert "right" in capsys.readouterr().out


def test_the_gradient_of_the_net_is_that_of_differences():
    x, labels = neural_net.spirals(5)
    params = [(w.astype(np.float32), b) for w, b in neural_net.init([2, 3, 3])]
    check_grads(lambda p: neural_net.loss(p, x, labels), (params,), order=1, modes=["rev"])


def test_the_rnn_learns_letters(capsys):
    bits = rnn.main(steps=60, hidden=32, batch=16, length=12)
    assert bits < np.log2(len(rnn.LETTERS)) - 1
    assert len(capsys.readouterr().out) > 200


def test_letters_come_back():
    assert "".join(rnn.LETTERS[i] for i in rnn.NUMBERS[:50]) == rnn.TEXT[:50]
    assert rnn.NUMBERS.max() == len(rnn.LETTERS) - 1


def test_a_loss_of_chance_is_the_logarithm_of_the_alphabet():
    params = {name: 0 * x for name, x in rnn.init(4).items()}
    text = rnn.NUMBERS[:20].reshape(2, 10)
    assert float(rnn.loss(params, text)) == pytest.approx(np.log2(len(rnn.LETTERS)), rel=1e-5)
