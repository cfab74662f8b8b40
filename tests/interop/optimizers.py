"""A table of optimizers as Optax builds them, run for a few steps on a tree of parameters.

`run(optax, lib, dtype)` works for the real Optax on jax and for the redirected one on toile; it
imports neither. Started as a program, it runs on toile in a process in which importing jax raises.
"""

import importlib
import sys

import numpy as np

STEPS = 4

ROWS = {
    "adabelief": lambda o: o.adabelief(1e-2),
    "adadelta": lambda o: o.adadelta(1e-1),
    "adafactor": lambda o: o.adafactor(1e-2, min_dim_size_to_factor=2),
    "adagrad": lambda o: o.adagrad(1e-1),
    "adam": lambda o: o.adam(1e-2),
    "adam_bf16": lambda o: o.adam(1e-2, mu_dtype="bfloat16"),
    "adamax": lambda o: o.adamax(1e-2),
    "adamaxw": lambda o: o.adamaxw(1e-2),
    "adamw_mask": lambda o: o.adamw(1e-2, mask={"b": [False, True], "w": True}),
    "adan": lambda o: o.adan(1e-2),
    "amsgrad": lambda o: o.amsgrad(1e-2),
    "dpsgd": lambda o: o.chain(o.clip(0.3), o.sgd(0.1)),
    "fromage": lambda o: o.fromage(1e-2),
    "lamb": lambda o: o.lamb(1e-2),
    "lars": lambda o: o.lars(1e-2, weight_decay=1e-3),
    "lion": lambda o: o.lion(1e-2),
    "nadam": lambda o: o.nadam(1e-2),
    "nadamw": lambda o: o.nadamw(1e-2),
    "novograd": lambda o: o.novograd(1e-2),
    "optimistic": lambda o: o.optimistic_gradient_descent(1e-2),
    "polyak": lambda o: o.polyak_sgd(1.0),
    "radam": lambda o: o.radam(1e-2),
    "rmsprop": lambda o: o.rmsprop(1e-2, centered=True, momentum=0.9),
    "rprop": lambda o: o.rprop(1e-2),
    "sgd": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True),
    "sign": lambda o: o.sign_sgd(1e-2),
    "sm3": lambda o: o.sm3(1e-2),
    "yogi": lambda o: o.yogi(1e-2),
    "prodigy": lambda o: o.contrib.prodigy(0.1),
    "dadapt": lambda o: o.contrib.dadapt_adamw(0.1),
    "schedule_free": lambda o: o.contrib.schedule_free_sgd(0.1),
    "muon": lambda o: o.contrib.muon(1e-2),
    "cosine": lambda o: o.adam(o.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 6)),
    "norm": lambda o: o.chain(o.clip_by_global_norm(0.5), o.sgd(o.cosine_decay_schedule(1, 9))),
    "agc": lambda o: o.chain(o.adaptive_grad_clip(0.1), o.sgd(0.1)),
    "ema": lambda o: o.chain(o.ema(0.9), o.scale(-0.1)),
    "centralize": lambda o: o.chain(o.centralize(), o.scale_by_rss(), o.scale(-0.1)),
    "inject": lambda o: o.inject_hyperparams(o.adam)(o.exponential_decay(1e-2, 2, 0.5)),
    "multi": lambda o: o.multi_transform(
        {"fast": o.sgd(0.1), "still": o.set_to_zero()}, {"b": ["fast", "still"], "w": "fast"}
    ),
    "masked": lambda o: o.masked(o.trace(0.9), {"b": [True, False], "w": True}),
    "multi_steps": lambda o: o.MultiSteps(o.adam(1e-2), 2).gradient_transformation(),
    "finite": lambda o: o.apply_if_finite(o.sgd(0.1), 2),
    "lookahead_free": lambda o: o.chain(o.zero_nans(), o.scale_by_belief(), o.scale(-0.1)),
    "decayed": lambda o: o.chain(o.add_decayed_weights(0.1), o.scale_by_learning_rate(0.1)),
    "stacked": lambda o: o.named_chain(("a", o.scale_by_adam()), ("b", o.scale(-0.1))),
}


def inputs(dtype):
    """Parameters, and the gradients of each step."""
    random = np.random.RandomState(0)

    def tree(*lead):
        shapes = {"b": [(3,), (2, 1)], "w": (4, 3)}
        make = lambda s: random.normal(size=(*lead, *s)).astype(np.float32).astype(dtype)
        return {"b": [make(s) for s in shapes["b"]], "w": make(shapes["w"])}

    return tree(), tree(STEPS)


def train(optax, lib, name, params, gradients):
    """Parameters and the state of an optimizer after all steps."""
    tx = optax.with_extra_args_support(ROWS[name](optax))

    def step(carry, g):
        params, state = carry
        updates, state = tx.update(g, state, params, value=lib.numpy.float32(1.5))
        return (optax.apply_updates(params, updates), state), None

    carry, _ = lib.lax.scan(step, (params, tx.init(params)), gradients)
    return lib.tree.leaves(carry)


def run(optax, lib, dtype, names=tuple(ROWS)):
    """The leaves that rows end with, in NumPy, by name."""
    params, gradients = lib.tree.map(lib.numpy.asarray, inputs(dtype))
    found = {name: train(optax, lib, name, params, gradients) for name in names}
    return {name: [np.asarray(x).astype(np.float64) for x in xs] for name, xs in found.items()}


class NoJax:
    """A finder that is asked first and refuses jax, as where it was never installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "flax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(file, *names):
    """Run rows of the table on toile without jax and save what they give."""
    sys.meta_path.insert(0, NoJax)
    toile = importlib.import_module("toile")
    optax = importlib.import_module("toile.interop").load("optax")
    found = run(optax, toile, np.float32, names)
    assert not {"jax", "jaxlib", "flax", "optax"} & {name.partition(".")[0] for name in sys.modules}
    np.savez(file, **{f"{name}/{i:03}": x for name, xs in found.items() for i, x in enumerate(xs)})


if __name__ == "__main__":
    main(*sys.argv[1:])
