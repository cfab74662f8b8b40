"""What is exported in tests: rows of operations, layers, and the models of the examples."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from tests.cases_control import ROWS
from tests.linen import oracle
from toile.errors import ScopeParamShapeError

NARROW = ("bfloat16", "float8", "int4")


@dataclasses.dataclass
class Subject:
    """A function of parameters and arguments, and how closely results must agree."""

    name: str
    function: Callable[..., Any]
    params: Any
    args: Sequence[Any]
    rtol: float = 1e-5
    x64: bool = False
    free: bool = True  # whether the first axis of the first argument is a batch

    def __str__(self) -> str:
        return self.name

    def results(self, args: Sequence[Any]) -> list[np.ndarray]:
        """What toile computes."""
        given = [jnp.asarray(a) for a in args]
        out = self.function(*given) if self.params is None else self.function(self.params, *given)
        return [np.asarray(x) for x in toile.tree_util.tree_leaves(out)]

    def scaled(self, times: int = 3) -> tuple[list[np.ndarray] | None, list[np.ndarray]]:
        """Arguments with several times the batch size, or one row if `times` is 0, and the
        results; None if the first axis is not a batch."""
        args = [np.asarray(a) for a in self.args]
        if not self.free or not args or not args[0].ndim or not args[0].shape[0]:
            return None, []
        count = args[0].shape[0]
        pieces = lambda a: np.concatenate([a, a[::-1]] * times)[: times * count] if times else a[:1]
        more = [pieces(a) if a.ndim and a.shape[0] == count else a for a in args]
        try:
            return more, self.results(more)
        except (TypeError, ValueError, AssertionError, ScopeParamShapeError):
            return None, []


def compare(got: Sequence[Any], want: Sequence[Any], rtol: float) -> None:
    """Values agree relative to the largest; integers and booleans exactly."""
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
            continue
        scale = np.abs(w[np.isfinite(w)]).max(initial=0)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol * max(scale, 1e-3))


def operations(types: Sequence[str]) -> list[tuple[Any, str]]:
    """The rows of the table of operations, with each of their dtypes that is among `types`."""
    return [(row, dtype) for row in ROWS for dtype in row.dtypes if dtype in types]


def operation(row: Any, dtype: str) -> Subject:
    """A row as a function to export."""
    def run(*xs: Any) -> list[Any]:
        return toile.tree_util.tree_leaves(row.run(*xs))

    rtol = {"float16": 4e-3, "float32": 3e-6, "complex64": 3e-6}.get(dtype, 1e-11)
    return Subject(f"{row}-{dtype}", run, None, row.arguments(dtype), rtol, True, False)


def layers() -> list[Any]:
    """The rows of the table of layers."""
    return [row for row in oracle.tables() if not row.x64]


def layer(row: Any) -> Subject | None:
    """A row as a function to export; None if it computes in a dtype that NumPy does not have."""
    lib = oracle.toile_library()
    only = [i for i, a in enumerate(row.args) if isinstance(a, np.ndarray)]
    module = row.build(lib)
    args = oracle.to_library(lib, row.args)
    rngs = {"params": lib.random.key(3), **oracle.keys(lib, row)}
    variables = module.init(rngs, *args, **row.kwargs, method=row.method)

    def apply(variables: Any, *xs: Any) -> list[Any]:
        given = list(args)
        for i, x in zip(only, xs, strict=True):
            given[i] = x
        return toile.tree_util.tree_leaves(oracle.run(lib, module, row, variables, given))

    xs = [args[i] for i in only]
    program = toile.make_jaxpr(apply)(variables, *xs)
    if any(name in str(program) for name in ("bf16[", "f8_e", "i4[")):
        return None
    half = any(x.dtype == np.float16 for x in program.out_avals)
    divides = row.name == "avg pool pairs counted"  # strided windows over the first axis
    return Subject(row.name, apply, variables, xs, 4e-3 if half else 2e-5, free=not divides)


def example(name: str) -> Subject:
    """The model of an example, at a small size."""
    kind, _, variant = name.partition(" ")
    if kind in _SPECIAL:
        return _SPECIAL[kind](variant)
    models = importlib.import_module(f"examples.{kind}.models")
    module, args, options = _EXAMPLES[name](models)
    variables = module.init(toile.random.key(0), *map(jnp.asarray, args), **options)

    def apply(variables: Any, *xs: Any) -> Any:
        return module.apply(variables, *xs, **options)

    return Subject(name, apply, variables, args, 5e-5)


def _normal(*shape: int) -> np.ndarray:
    return np.random.RandomState(0).normal(size=shape).astype(np.float32)


def _tokens(*shape: int, high: int = 20) -> np.ndarray:
    return np.random.RandomState(1).randint(1, high, shape).astype(np.int32)


_LANGUAGE = {"features": 16, "layers": 2, "heads": 2, "qkv_features": 16, "mlp_features": 32,
             "longest": 12}
_T5 = {"vocabulary": 20, "features": 16, "heads": 2, "depth": 8, "mlp_features": 24, "layers": 1}
_SCANNED = {"scan_layers": True, "remat": True, "tied": True}
_IMAGE, _WORDS = _normal(2, 16, 16, 3), _tokens(2, 6)
_POSITIONS = np.tile(np.arange(6, dtype=np.int32), (2, 1))
_ONE_HOT = np.eye(9, dtype=np.float32)[_tokens(2, 7, high=9)]
_TAGS = np.stack([_tokens(2, 5), _tokens(2, 5), _tokens(2, 5, high=4)], -1)
_FINAL: dict[str, Any] = {"train": False}

# Each gives a module, its arguments and options.
_EXAMPLES: dict[str, Callable[[Any], tuple[Any, Sequence[Any], dict[str, Any]]]] = {
    "mnist": lambda m: (m.CNN((4, 8), 16), [_normal(2, 28, 28, 1)], {}),
    "cifar10 resnet": lambda m: (m.ResNet((1, 1), 8), [_IMAGE], {}),
    "cifar10 wide": lambda m: (m.WideResNet(10, 1), [_IMAGE], {}),
    "imagenet resnet18": lambda m: (m.ResNet18(num_classes=5, num_filters=8),
                                    [_normal(2, 32, 32, 3)], _FINAL),
    "imagenet resnet50": lambda m: (m.ResNet50(num_classes=5, num_filters=4),
                                    [_normal(2, 32, 32, 3)], _FINAL),
    "lm1b": lambda m: (m.TransformerLM(20, **_LANGUAGE), [_WORDS, _POSITIONS], {}),
    "lm1b scanned": lambda m: (m.TransformerLM(20, **_SCANNED, **_LANGUAGE),
                               [_WORDS, _POSITIONS], {}),
    "seq2seq": lambda m: (m.Seq2Seq(8), [_ONE_HOT, _ONE_HOT], {}),
    "seq2seq greedy": lambda m: (m.Seq2Seq(8), [_ONE_HOT, _ONE_HOT], {"teacher_force": False}),
    "sequence_tagging bilstm": lambda m: (m.BiLSTM(30, 5, 8, 1), [_TAGS], {}),
    "sequence_tagging transformer": lambda m: (m.Transformer(30, 5, 16, 1, 2), [_TAGS], {}),
    "t5": lambda m: (m.T5(m.T5Config(**_T5)), [_WORDS, _WORDS], {}),
    "text_classification bag": lambda m: (m.BagOfEmbeddings(20, 8, 8), [_WORDS], {}),
    "text_classification bilstm": lambda m: (m.BiLSTM(20, 8, 8), [_WORDS], {}),
}


def _vae(_: str) -> Subject:
    from examples.vae import models

    module, images = models.VAE(16, 4, 36), _normal(2, 6, 6)
    keys = {"params": toile.random.key(0), "noise": toile.random.key(1)}
    variables = module.init(keys, images)

    def apply(variables: Any, images: Any) -> Any:
        return module.apply(variables, images, rngs={"noise": toile.random.key(2)})

    return Subject("vae", apply, variables, [images], 5e-5)


def _graph(layer: str) -> Subject:
    from examples.graph import graphs, models

    module = models.GraphNetwork(layer, 8, 1, 3, True, (5, 4), (3,))
    rng = np.random.RandomState(0)
    nodes = rng.randint(0, 4, (6, 2)).astype(np.int32)
    edges, senders, receivers = (rng.randint(0, n, s).astype(np.int32)
                                 for n, s in ((3, (8, 1)), (6, 8), (6, 8)))
    fixed = {"n_node": jnp.array([4, 2]), "n_edge": jnp.array([5, 3])}
    fields = graphs.GraphsTuple._fields

    def graph(*xs: Any) -> Any:
        given = dict(zip(("nodes", "edges", "senders", "receivers"), xs, strict=True))
        return graphs.GraphsTuple(**{f: {**fixed, **given}.get(f) for f in fields})

    args = [nodes, edges, senders, receivers]
    variables = module.init(toile.random.key(0), graph(*map(jnp.asarray, args)))
    return Subject(f"graph {layer}", lambda v, *xs: module.apply(v, graph(*xs)), variables,
                   args, free=False)


def _language_model(name: str) -> Subject:
    from examples.language_model import language_model_test as small

    module, variables, _ = small.made(name)
    args = [small.TOKENS, small.TOKENS] if name == "t5" else [small.TOKENS]
    return Subject(f"language_model {name}", module.apply, variables, args, 1e-4)


def _vision(name: str) -> Subject:
    from examples.vision import vision_test as small

    module, variables, _, args = small.made(name)
    return Subject(f"vision {name}", module.apply, variables,
                   [a if a.dtype.kind == "f" else a.astype(np.int32) for a in args], 1e-4)


def _speech(_: str) -> Subject:
    from examples.speech import speech_test as small

    module, variables = small.made()
    return Subject("speech whisper", module.apply, variables,
                   [small.SOUNDS, small.TOKENS.astype(np.int32)], 1e-4)


_SPECIAL: dict[str, Callable[[str], Subject]] = {
    "vae": _vae, "graph": _graph, "language_model": _language_model, "vision": _vision,
    "speech": _speech,
}  # fmt: skip
_PRETRAINED = ("llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma", "gemma2", "gemma3_text",
               "bert", "roberta", "t5")
EXAMPLES = (
    *_EXAMPLES, "vae", "graph gcn", "graph gat", *(f"language_model {n}" for n in _PRETRAINED),
    "vision vit", "vision resnet", "vision clip", "vision convnext", "speech whisper",
)


def loaded(path: Any) -> Any:
    """The module of a Python file."""
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
