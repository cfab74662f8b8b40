"""`flax.optim`: optimizers as objects, and the modules in which Flax defined them."""

from toile.engine.lazy import public_names
from toile.optim import classic
from toile.optim.classic import adafactor, adam, base, dynamic_scale, momentum, weight_norm
from toile.optim.classic import adaptive as adagrad

adadelta = rmsprop = adagrad
lamb, lars, sgd = adam, momentum, momentum
_CLASSIC = public_names(classic.__file__)
globals().update({name: getattr(classic, name) for name in _CLASSIC})

__all__ = [  # noqa: PLE0604
    *_CLASSIC, "adadelta", "adafactor", "adagrad", "adam", "base", "dynamic_scale", "lamb",
    "lars", "momentum", "rmsprop", "sgd", "weight_norm",
]
