"""From a wav file to log-mel spectrograms, in NumPy."""

import math
import wave

import numpy as np
from scipy import signal

RATE = 16_000  # samples per second
WINDOW = 400  # samples of one frame
HOP = 160  # samples from one frame to the next


def read(path, rate: int = RATE) -> np.ndarray:
    """Read a wav file of integers as float32 from -1 to 1; the channels are averaged."""
    with wave.open(str(path), "rb") as file:
        channels, width, own_rate, *_ = file.getparams()
        data = file.readframes(file.getnframes())
    if width == 1:  # unsigned
        values = np.frombuffer(data, np.uint8).astype(np.float32) / 128 - 1
    elif width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    else:
        values = np.frombuffer(data, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    values = values.reshape(-1, channels).mean(axis=1)
    if own_rate != rate:
        shared = math.gcd(own_rate, rate)
        values = signal.resample_poly(values, rate // shared, own_rate // shared)
    return values.astype(np.float32)


def pieces(samples: np.ndarray, length: int) -> np.ndarray:
    """Cut samples into rows of `length`; the last row is filled with silence."""
    rows = max(1, -(-len(samples) // length))
    return np.pad(samples, (0, rows * length - len(samples))).reshape(rows, length)


def mel_of(hertz):
    """Return the positions of frequencies on Slaney's scale: linear, and logarithmic from 1 kHz."""
    high = 15 + 27 * np.log(np.maximum(hertz, 1) / 1000) / np.log(6.4)
    return np.where(np.asarray(hertz) < 1000, 3 * np.asarray(hertz) / 200, high)


def hertz_of(mel):
    """Return the frequencies at positions on Slaney's scale."""
    return np.where(mel < 15, 200 * mel / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def filters(bands: int) -> np.ndarray:
    """Return triangular filters [frequencies, bands] of equal area."""
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    edges = hertz_of(np.linspace(mel_of(0), mel_of(RATE / 2), bands + 2))
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - low) / (center - low), (high - frequencies) / (high - center)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def log_mel(samples: np.ndarray, bands: int = 80) -> np.ndarray:
    """Return the spectrograms [batch, frames, bands] of samples [batch, time].

    The largest value of each recording is at most 2 above the smallest.
    """
    padded = np.pad(samples.astype(np.float64), ((0, 0), (WINDOW // 2, WINDOW // 2)), "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW, axis=1)[:, ::HOP]
    frames = frames[:, : samples.shape[1] // HOP]
    spectrum = np.fft.rfft(frames * signal.get_window("hann", WINDOW))
    power = spectrum.real**2 + spectrum.imag**2
    x = np.log10(np.maximum(power @ filters(bands), 1e-10))
    x = np.maximum(x, x.max(axis=(1, 2), keepdims=True) - 8)
    return ((x + 4) / 4).astype(np.float32)
