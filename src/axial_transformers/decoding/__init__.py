"""The one loop that decodes, the choices of values, and the backends."""

from axial_transformers.decoding.choices import Choose, GumbelChoice, KnownFirst, Sampler, gumbel, noise_for
from axial_transformers.decoding.decoding_loop import decode, decode_naively

__all__ = ["Choose", "GumbelChoice", "KnownFirst", "Sampler", "decode", "decode_naively", "gumbel", "noise_for"]
