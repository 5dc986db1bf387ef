"""Noise: disturb annotations in a known way, and keep the truth beside them.

Counts are exact, every kind of noise draws from a stream of its own, and the same input and seed
give the same bytes on every machine. Crowd and difficult objects stay as they are.
"""

from boxmend.data.noise.disturbing import Noisy, disturb
from boxmend.data.noise.settings import NoiseSettings, make_preset
from boxmend.data.noise.truth import Origin, Truth, read_truth
from boxmend.data.noise.writing import RECORD_FILE, TRUTH_FILE, join_digests, write_noisy

__all__ = [
    "RECORD_FILE",
    "TRUTH_FILE",
    "NoiseSettings",
    "Noisy",
    "Origin",
    "Truth",
    "disturb",
    "join_digests",
    "make_preset",
    "read_truth",
    "write_noisy",
]
