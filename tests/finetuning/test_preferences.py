"""Losses of preferences agree with their formulas in NumPy."""

import numpy as np
import pytest

import toile
from toile import linen as nn
from toile import random
from toile.finetuning import dpo_loss, log_probs, lora, without_adapters


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# Rafailov et al. 2023, equation 7; with label smoothing, Mitchell 2023 (conservative DPO); Azar et
# al. 2023, equation 17; Zhao et al. 2023 (hinge).
FORMULAS = {
    "sigmoid": lambda h, beta: -np.log(sigmoid(beta * h)),
    "ipo": lambda h, beta: (h - 1 / (2 * beta)) ** 2,
    "hinge": lambda h, beta: np.maximum(0, 1 - beta * h),
}


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_formulas(kind, beta):
    logs = np.random.default_rng(0).normal(-20, 4, (4, 16)).astype(np.float32)
    h = (logs[0] - logs[2]).astype(float) - (logs[1] - logs[3])
    found = dpo_loss(*logs, beta=beta, kind=kind)
    np.testing.assert_allclose(found, FORMULAS[kind](h, beta), rtol=2e-4, atol=1e-5)
    grads = toile.grad(lambda x: dpo_loss(x, *logs[1:], beta=beta, kind=kind).sum())(logs[0])
    step = 1e-4
    slopes = (FORMULAS[kind](h + step, beta) - FORMULAS[kind](h - step, beta)) / (2 * step)
    np.testing.assert_allclose(grads, slopes, rtol=2e-3, atol=1e-3)


def test_label_smoothing():
    logs = np.array([-3.0, -5.0, -4.0, -4.0], np.float32)
    usual, swapped = dpo_loss(*logs), dpo_loss(*logs[[1, 0, 3, 2]])
    found = dpo_loss(*logs, label_smoothing=0.2)
    np.testing.assert_allclose(found, 0.8 * usual + 0.2 * swapped, rtol=1e-6)
    np.testing.assert_allclose(dpo_loss(*[np.float32(-1.0)] * 4), np.log(2), rtol=1e-6)
    big = dpo_loss(np.float32(-1e4), np.float32(0), np.float32(0), np.float32(0), beta=1.0)
    np.testing.assert_allclose(big, 1e4)  # no overflow


@pytest.mark.parametrize(("options", "text"), [
    ({"kind": "other"}, "needed kind='sigmoid', 'ipo' or 'hinge', got 'other'"),
    ({"label_smoothing": 0.6}, "needed label_smoothing from 0 to 0.5"),
    ({"label_smoothing": 0.1, "kind": "ipo"}, "and 0 unless kind is 'sigmoid', got 0.1"),
])
def test_errors(options, text):
    with pytest.raises(ValueError, match=text):
        dpo_loss(0.0, 0.0, 0.0, 0.0, **options)


def test_the_model_without_adapters_is_the_reference():
    model = nn.Sequential([nn.Embed(7, 8), nn.Dense(7)])
    tokens = random.randint(random.key(0), (2, 4, 6), 0, 7)
    params = lora(model.init(random.key(1), tokens[0]), key=random.key(2), rank=2)

    def scores(params, rows):
        return log_probs(model.apply(params, rows), rows).sum(-1)

    def loss(params):
        reference = without_adapters(params)
        return dpo_loss(*(scores(params, t) for t in tokens),
                        *(scores(reference, t) for t in tokens), beta=1.0).mean()

    value, grads = toile.value_and_grad(loss)(params)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    kernel = grads["params"]["layers_1"]["kernel"]
    assert np.abs(kernel.b).max() > 1e-3 and (np.asarray(kernel.a) == 0).all()
