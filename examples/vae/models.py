"""A variational autoencoder with dense layers (Kingma and Welling, 2014)."""

import toile.numpy as jnp
from toile import linen as nn
from toile import random


class Encoder(nn.Module):
    """Maps an image to the mean and log-variance of its code."""

    hidden: int
    latents: int

    @nn.compact
    def __call__(self, x):
        """Return two arrays [batch, latents] for pixels [batch, 784]."""
        x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.latents, name="mean")(x), nn.Dense(self.latents, name="log_var")(x)


class Decoder(nn.Module):
    """Maps a code to the logit of each pixel being white."""

    hidden: int
    pixels: int

    @nn.compact
    def __call__(self, z):
        """Return logits [batch, pixels] for codes [batch, latents]."""
        return nn.Dense(self.pixels)(nn.relu(nn.Dense(self.hidden)(z)))


class VAE(nn.Module):
    """An encoder, a code drawn by the reparametrization trick, and a decoder."""

    hidden: int = 500
    latents: int = 20
    pixels: int = 784

    def setup(self):
        self.encoder = Encoder(self.hidden, self.latents)
        self.decoder = Decoder(self.hidden, self.pixels)

    def __call__(self, images):
        """Return logits [batch, pixels], and mean and log-variance of codes drawn from `noise`."""
        mean, log_var = self.encoder(images.reshape((len(images), -1)))
        noise = random.normal(self.make_rng("noise"), mean.shape, mean.dtype)
        return self.decoder(mean + jnp.exp(log_var / 2) * noise), mean, log_var

    def generate(self, z):
        """Return the probability of each pixel being white, for codes."""
        return nn.sigmoid(self.decoder(z))
