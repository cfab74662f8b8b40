"""A program with t5x; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import seqio
from t5x import adafactor, models, train_state, trainer
from t5x.examples.t5 import network

model = models.EncoderDecoderModel(
    module=network.Transformer(network.T5Config(
        vocab_size=40, emb_dim=16, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
        head_dim=8, mlp_dim=24, dropout_rate=0.0)),
    input_vocabulary=seqio.ByteVocabulary(), output_vocabulary=seqio.ByteVocabulary(),
    optimizer_def=adafactor.Adafactor(
        0.1, decay_rate=0.8, step_offset=0,
        logical_factor_rules=adafactor.standard_logical_factor_rules()))
ids = jnp.array([[3, 5, 7, 11], [2, 4, 6, 0]])
batch = {"encoder_input_tokens": ids, "decoder_input_tokens": ids[:, ::-1],
         "decoder_target_tokens": ids, "decoder_loss_weights": jnp.ones((2, 4))}
variables = model.get_initial_variables(
    jax.random.PRNGKey(0), {name: x.shape for name, x in batch.items()})
state = train_state.FlaxOptimTrainState.create(model.optimizer_def, variables)
results = []
for _ in range(3):
    gradients, metrics, _ = trainer.accumulate_grads_microbatched(
        model, state, batch, jax.random.PRNGKey(1), num_microbatches=None)
    state = state.apply_gradient(gradients, learning_rate=jnp.float32(0.01))
    results.append(model.loss_fn(state.params, batch, None)[0])
results.append(model.predict_batch(state.params, batch))
