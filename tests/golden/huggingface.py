"""Makes small random models with transformers, and what they compute.

`python -m tests.golden.huggingface [NAME ...]` needs transformers, torch and tokenizers. It writes
a folder for each model to `tests/golden/pretrained`: the files that transformers writes, and
`answers.npz` with logits, losses, gradients and greedy completions.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "pretrained"
STEPS = 6


@dataclass(frozen=True)
class Case:
    """A model of transformers: its class, its configuration and how its folder is written."""

    model: str
    config: dict = field(default_factory=dict)
    kind: str = "causal"  # "masked", "pooled" or "seq2seq"
    weights: str = "safetensors"  # "sharded", "bin" or "sharded bin"
    untied: bool = False  # the logits get their own table


DECODER = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
STRETCHED = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
GPT2 = {
    "vocab_size": 64, "n_embd": 16, "n_inner": 24, "n_layer": 2, "n_head": 4, "n_positions": 32,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ENCODER = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
T5 = {
    "vocab_size": 64, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}  # fmt: skip
CASES = {
    "llama": Case("LlamaForCausalLM", {**DECODER, "head_dim": 6}),
    "llama_tied": Case("LlamaForCausalLM", {
        **DECODER, "tie_word_embeddings": True, "rope_parameters": STRETCHED,
        "attention_bias": True, "mlp_bias": True,
    }),
    "llama_linear": Case("LlamaForCausalLM", {
        **DECODER, "num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    }),
    "mistral": Case("MistralForCausalLM", {**DECODER, "sliding_window": 4}, weights="sharded"),
    "qwen2": Case("Qwen2ForCausalLM", {
        **DECODER, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
    }),
    "qwen3": Case("Qwen3ForCausalLM", {**DECODER, "head_dim": 6, "tie_word_embeddings": True}),
    "gpt2": Case("GPT2LMHeadModel", {**GPT2, "scale_attn_by_inverse_layer_idx": True},
                 weights="bin"),
    "gpt2_untied": Case("GPT2LMHeadModel", {
        **GPT2, "n_layer": 1, "tie_word_embeddings": False, "activation_function": "relu",
    }),
    "bert": Case("BertForMaskedLM", ENCODER, "masked"),
    "bert_pretraining": Case("BertForPreTraining", {**ENCODER, "num_hidden_layers": 1}, "masked"),
    "bert_pooled": Case("BertModel", {**ENCODER, "hidden_act": "relu"}, "pooled"),
    "roberta": Case("RobertaForMaskedLM", {**ENCODER, "pad_token_id": 1}, "masked"),
    "t5": Case("T5ForConditionalGeneration", {**T5, "num_decoder_layers": 1}, "seq2seq",
               "sharded bin"),
    "t5_gated": Case("T5ForConditionalGeneration", {
        **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    }, "seq2seq", untied=True),
    "gemma": Case("GemmaForCausalLM", {**DECODER, "head_dim": 8, "num_key_value_heads": 1}),
    "gemma2": Case("Gemma2ForCausalLM", {
        **DECODER, "head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 4,
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0,
    }),
    "gemma3": Case("Gemma3ForCausalLM", {
        **DECODER, "head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    }),
}  # fmt: skip


def make(name: str, folder: Path, seed: int = 0) -> None:
    """Write the model and its answers to a folder."""
    import torch
    import transformers

    case = CASES[name]
    torch.manual_seed(seed)
    made = getattr(transformers, case.model)
    config = made.config_class(**case.config)
    config._attn_implementation = "eager"
    model = made(config).eval()
    with torch.no_grad():  # norms and biases would be ones and zeros
        for x in model.parameters():
            x.copy_(x.mean() + 0.25 * torch.randn(x.shape))
    model.tie_weights()
    if case.untied:  # transformers ties the tables of all T5 that files do not tell apart
        model.lm_head.weight = torch.nn.Parameter(0.25 * torch.randn(model.lm_head.weight.shape))
    folder.mkdir(parents=True, exist_ok=True)
    write(model, folder, case.weights)
    answers = ANSWERS[case.kind](model, np.random.default_rng(seed))
    np.savez_compressed(folder / "answers.npz", **answers)


def write(model, folder, weights):
    """Write the weights in one of the layouts that occur."""
    import torch

    model.save_pretrained(folder, max_shard_size="12KB" if weights == "sharded" else "1GB")
    if not weights.endswith("bin"):
        return
    (folder / "model.safetensors").unlink()
    state = {name: x.detach().clone() for name, x in model.state_dict().items()}
    if weights == "bin":
        torch.save(state, folder / "pytorch_model.bin")
        return
    names = list(state)
    halves = {"1": names[: len(names) // 2], "2": names[len(names) // 2 :]}
    files = {part: f"pytorch_model-0000{part}-of-00002.bin" for part in halves}
    for part, chosen in halves.items():
        torch.save({name: state[name] for name in chosen}, folder / files[part])
    places = {name: files[part] for part, chosen in halves.items() for name in chosen}
    index = {"metadata": {}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def _padded(rng, side: str, lengths=(9, 6)) -> tuple[np.ndarray, np.ndarray]:
    """Return random tokens and their mask, with padding on one side."""
    mask = np.zeros((len(lengths), max(lengths)), np.int64)
    for row, n in zip(mask, lengths):
        row[-n:] = 1
    mask = mask if side == "left" else mask[:, ::-1].copy()
    return np.where(mask, rng.integers(3, 64, mask.shape), 0), mask


def _gradients(model, loss) -> dict[str, np.ndarray]:
    model.zero_grad()
    loss.backward()
    named = model.named_parameters()
    return {f"grad/{n}": x.grad.numpy().copy() for n, x in named if x.grad is not None}


def _causal(model, rng) -> dict[str, np.ndarray]:
    """Logits and losses with padding on both sides, gradients, and greedy completions."""
    import torch

    out = {}
    for side in ("right", "left"):
        tokens, mask = _padded(rng, side)
        positions = np.maximum(np.cumsum(mask, 1) - 1, 0)
        given = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions,
                 "labels": np.where(np.cumsum(mask, 1) * mask > 1, tokens, -100)}
        done = model(**{name: torch.tensor(x) for name, x in given.items()})
        out |= {f"{side}/tokens": tokens, f"{side}/mask": mask, f"{side}/labels": given["labels"],
                f"{side}/logits": done.logits.detach().numpy(), f"{side}/loss": done.loss.item()}
        if side == "left":
            out |= _gradients(model, done.loss)
    given = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(mask)}
    return out | _completions(model, given, tokens.shape[1])


def _completions(model, given, start) -> dict[str, np.ndarray]:
    """Greedy completions without a token that ends them, and with one."""
    same = {"do_sample": False, "max_new_tokens": STEPS, "pad_token_id": 0}
    free = model.generate(**given, **same, eos_token_id=None).numpy()[:, start:]
    end = int(free[0, 2])
    ended = model.generate(**given, **same, eos_token_id=end).numpy()[:, start:]
    return {"greedy": free, "end": end, "ended": ended}


def _masked(model, rng) -> dict[str, np.ndarray]:
    """Logits and losses of masked tokens with padding on both sides, and gradients."""
    out = {}
    for side in ("left", "right"):
        tokens, mask, given = _segments(model, rng, side)
        labels = np.where(mask * rng.integers(0, 2, mask.shape), tokens, -100)
        done = model(**given)
        logits = done.logits if hasattr(done, "logits") else done.prediction_logits
        loss = _cross_entropy(logits, labels)
        if hasattr(done, "seq_relationship_logits"):
            out[f"{side}/relation"] = done.seq_relationship_logits.detach().numpy()
        out |= {f"{side}/tokens": tokens, f"{side}/mask": mask, f"{side}/labels": labels,
                f"{side}/types": given["token_type_ids"].numpy(),
                f"{side}/logits": logits.detach().numpy(), f"{side}/loss": loss.item()}
    return out | _gradients(model, loss)


def _segments(model, rng, side):
    import torch

    tokens, mask = _padded(rng, side)
    tokens = np.where(mask, tokens, model.config.pad_token_id)
    types = rng.integers(0, model.config.type_vocab_size, mask.shape)
    given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types}
    return tokens, mask, {name: torch.tensor(x) for name, x in given.items()}


def _cross_entropy(logits, labels):
    import torch

    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten())


def _pooled(model, rng) -> dict[str, np.ndarray]:
    """Features and their summary, and the gradients of a function of both."""
    tokens, mask, given = _segments(model, rng, "right")
    done = model(**given)
    features, pooled = done.last_hidden_state, done.pooler_output
    loss = (features[:, 1] ** 2).mean() + (pooled**2).mean()
    return _gradients(model, loss) | {
        "tokens": tokens, "mask": mask, "types": given["token_type_ids"].numpy(),
        "features": features.detach().numpy(), "pooled": pooled.detach().numpy(),
    }  # fmt: skip


def _seq2seq(model, rng) -> dict[str, np.ndarray]:
    """Logits and losses with padding of the inputs on both sides, gradients, and completions."""
    import torch

    out = {}
    for side in ("right", "left"):
        tokens, mask = _padded(rng, side)
        labels, label_mask = _padded(rng, "right", (7, 5))
        before = np.concatenate([np.zeros((2, 1), int), labels[:, :-1]], axis=1)
        given = {"input_ids": tokens, "attention_mask": mask, "decoder_input_ids": before,
                 "labels": np.where(label_mask, labels, -100)}
        done = model(**{name: torch.tensor(x) for name, x in given.items()})
        out |= {f"{side}/tokens": tokens, f"{side}/mask": mask, f"{side}/before": before,
                f"{side}/labels": given["labels"],
                f"{side}/logits": done.logits.detach().numpy(), f"{side}/loss": done.loss.item()}
    out |= _gradients(model, done.loss)
    given = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(mask)}
    return out | _completions(model, given, 1)


ANSWERS = {"causal": _causal, "masked": _masked, "pooled": _pooled, "seq2seq": _seq2seq}


def main(names: list[str]) -> None:
    """Write the folders of the named models, or of all."""
    for name in names or CASES:
        make(name, FOLDER / name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir())
        print(f"{name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
