"""A program with transformers 4.40; `results` are compared with those on JAX."""

import jax.numpy as jnp
import optax
import transformers as t

ids = jnp.array([[3, 5, 7, 11], [2, 4, 6, 8]])
small = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 32}
vit = {**small, "image_size": 16, "patch_size": 8}
bert = t.FlaxBertForMaskedLM(t.BertConfig(**small))
loss = optax.softmax_cross_entropy_with_integer_labels(bert(ids).logits, ids).mean()
gpt2 = t.FlaxGPT2LMHeadModel(t.GPT2Config(
    vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32, pad_token_id=0,
    bos_token_id=0, eos_token_id=1))
llama = t.FlaxLlamaForCausalLM(t.LlamaConfig(**small))
bart = t.FlaxBartForConditionalGeneration(t.BartConfig(
    vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, pad_token_id=0,
    max_position_embeddings=32, bos_token_id=0, eos_token_id=1, decoder_start_token_id=0))
images = jnp.sin(jnp.arange(2 * 3 * 16 * 16.0)).reshape(2, 3, 16, 16)
clip = t.FlaxCLIPModel(t.CLIPConfig(text_config=small, vision_config=vit, projection_dim=8),
                       input_shape=((1, 4), (1, 16, 16, 3)))
results = [
    loss, gpt2(ids).logits, gpt2.generate(ids, max_length=10).sequences,
    gpt2.generate(ids, max_length=10, num_beams=2).sequences, llama(ids).logits,
    bart.generate(ids, max_length=8, num_beams=2).sequences, clip(ids, images).logits_per_image,
]
