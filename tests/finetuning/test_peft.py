"""Adapters in the files of the library PEFT."""

import json

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from examples.language_model import gpt2, llama, models
from tests.finetuning.test_lora import close, moved_adapters
from toile import random
from toile.finetuning import adapters_of, load_peft, lora, merge_adapters, save_peft
from toile.interop import huggingface, safetensors
from toile.interop.torch_rules import Dense
from toile.quantization import quantize

LLAMA = {"model_type": "llama", "vocab_size": 13, "hidden_size": 8, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 12}
GPT2 = {"model_type": "gpt2", "vocab_size": 13, "n_embd": 8, "n_head": 2, "n_layer": 2,
        "n_positions": 16}
CASES = {
    "llama": (llama, LLAMA, ["**/query/kernel", "**/out/kernel", "**/down/kernel"]),
    "embedding": (llama, LLAMA, ["embedding/embedding", "logits/kernel"]),
    "fused": (gpt2, GPT2, ["**/attention/*/kernel", "**/up/kernel"]),
    "part of a fused layer": (gpt2, GPT2, ["**/query/kernel", "**/value/kernel"]),
}  # fmt: skip
each = pytest.mark.parametrize("name", CASES)


def made(name):
    module, config, select = CASES[name]
    model = module.model(config)
    variables = model.init(random.key(0), jnp.zeros((1, 2), jnp.int32))
    adapted = {"params": moved_adapters(
        lora(variables["params"], select, key=random.key(1), rank=2, alpha=3.0))}
    return model, module.table(config), config, variables, adapted


def stored(folder, variables, config, table):
    huggingface.save(folder, variables, config, table)
    return huggingface.load_tensors(folder)


@each
def test_files_contain_the_change_of_each_tensor(name, tmp_path):
    _, table, config, variables, adapted = made(name)
    save_peft(tmp_path / "adapter", adapted, table, base_model="base")
    about = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    tensors = safetensors.load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    before = stored(tmp_path / "before", variables, config, table)
    after = stored(tmp_path / "after", merge_adapters(adapted), config, table)
    assert about["peft_type"] == "LORA" and about["base_model_name_or_path"] == "base"
    assert about["fan_in_fan_out"] == (config is GPT2)
    changed = {n for n in after if not np.array_equal(after[n], before[n])}
    assert changed == {f"{n}.weight" for n in about["target_modules"]}
    for layer in about["target_modules"]:
        pattern = layer.replace(".", r"\.")
        rank = about["rank_pattern"].get(pattern, about["r"])
        scale = about["alpha_pattern"].get(pattern, about["lora_alpha"]) / rank
        head = f"base_model.model.{layer}"
        if f"{head}.lora_A.weight" in tensors:
            a, b = (tensors.pop(f"{head}.lora_{x}.weight") for x in "AB")
            change = scale * b @ a  # [out, in], as in torch.nn.Linear
            change = change.T if about["fan_in_fan_out"] else change
        else:
            a, b = (tensors.pop(f"{head}.lora_embedding_{x}") for x in "AB")
            change = scale * (b @ a).T
        assert len(a) == rank
        close(after[f"{layer}.weight"], before[f"{layer}.weight"] + change, 1e-5, 1e-6)
    assert not tensors


@each
def test_round_trip(name, tmp_path):
    model, table, _, variables, adapted = made(name)
    save_peft(tmp_path, adapted, table)
    again = load_peft(tmp_path, variables, table)
    tokens = np.array([[1, 5, 12]])
    close(model.apply(again, tokens), model.apply(adapted, tokens), 1e-5, 1e-6)
    if CASES[name][1] is LLAMA:
        assert toile.tree.structure(again) == toile.tree.structure(adapted)
        close(adapters_of(again), adapters_of(adapted), 0, 0)
        rounded = quantize(variables, "**/kernel", bits=8)
        found = load_peft(tmp_path, rounded, table)
        close(adapters_of(found), adapters_of(adapted), 0, 0)


def rewritten(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_scales(tmp_path):
    _, table, _, variables, adapted = made("llama")
    save_peft(tmp_path, adapted, table)
    rewritten(tmp_path, use_rslora=True, lora_alpha=4,
              alpha_pattern={"layers.1.mlp.down_proj": 6, r"^model\.layers\.0\.mlp\.down_proj": 10})
    scales = {path: float(x["scale"]) for path, x in
              adapters_of(load_peft(tmp_path, variables, table)).items()}
    root = 2**0.5
    assert scales["params/layer_0/attention/query/kernel"] == pytest.approx(4 / root)
    assert scales["params/layer_1/mlp/down/kernel"] == pytest.approx(6 / root)
    assert scales["params/layer_0/mlp/down/kernel"] == pytest.approx(10 / root)


@pytest.mark.parametrize(("changes", "text"), [
    ({"peft_type": "IA3"}, "needed peft_type 'LORA' in adapter_config.json, got 'IA3'"),
    ({"use_dora": True}, "got use_dora=True"),
    ({"bias": "all"}, "got bias='all'"),
    ({"modules_to_save": ["score"]}, r"got modules_to_save=\['score'\]"),
])
def test_other_kinds_of_adapters(changes, text, tmp_path):
    _, table, _, variables, adapted = made("llama")
    save_peft(tmp_path, adapted, table)
    rewritten(tmp_path, **changes)
    with pytest.raises(ValueError, match=text):
        load_peft(tmp_path, variables, table)


def test_what_does_not_fit(tmp_path):
    _, table, _, variables, adapted = made("llama")
    with pytest.raises(ValueError, match="save_peft: needed variables with adapters, got none"):
        save_peft(tmp_path, variables, table)
    with pytest.raises(FileNotFoundError, match="needed the file .*adapter_config.json"):
        load_peft(tmp_path, variables, table)
    other = huggingface.Table({k: v for k, v in table.names.items() if "down_proj" not in k},
                              table.prefix, ignore=table.ignore)
    with pytest.raises(ValueError, match="got none for params/layer_0/mlp/down/kernel"):
        save_peft(tmp_path, adapted, other)
    save_peft(tmp_path, adapted, table)
    with pytest.raises(ValueError, match=r"model.layers.0.mlp.down_proj.lora_A.weight: no layer"):
        load_peft(tmp_path, variables, other)
    _, wide, _, variables, _ = made("embedding")
    config = {**LLAMA, "intermediate_size": 14}
    variables = llama.model(config).init(random.key(0), jnp.zeros((1, 2), jnp.int32))
    with pytest.raises(ValueError, match=r"down_proj: \(2, 12\) and \(8, 2\) for parameters of"):
        load_peft(tmp_path, variables, wide)
    general = {"params": lora({"query": {"kernel": jnp.ones((4, 4, 4))}}, key=random.key(0))}
    with pytest.raises(ValueError, match=r"pass inputs=1 to lora"):
        save_peft(tmp_path, general, huggingface.Table({"q": Dense("query", output_axes=2)}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of peft and transformers
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_peft_reads_and_writes_the_same_adapters(kind, tmp_path):
    peft = pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = LLAMA if kind == "llama" else GPT2
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config))
    theirs.save_pretrained(tmp_path / "base")
    layers = ["q_proj", "o_proj", "down_proj"] if kind == "llama" else ["c_attn", "c_fc"]
    adapted = peft.get_peft_model(theirs, peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=layers, use_rslora=kind == "gpt2",
        fan_in_fan_out=kind == "gpt2", alpha_pattern={"layers.1.self_attn.q_proj": 7}))
    for name, x in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(x, std=0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    tokens = np.array([[1, 5, 12, 3]])

    def logits(model):
        return model.eval()(torch.tensor(tokens)).logits.detach().numpy()

    model, variables, found = models.load(tmp_path / "base")
    table = models.architecture(found).table(found)
    loaded = load_peft(tmp_path / "adapter", variables, table)
    close(model.apply(loaded, tokens), logits(adapted), 1e-4, 1e-5)
    save_peft(tmp_path / "again", moved_adapters(loaded), table)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    again = peft.PeftModel.from_pretrained(base, tmp_path / "again")
    close(model.apply(moved_adapters(loaded), tokens), logits(again), 1e-4, 1e-5)
