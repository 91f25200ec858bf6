"""The one loop that decodes, the choices of values, and the backends."""

from axial_transformers.decoding.choices import Choose, GumbelChoice, KnownFirst, Sampler, gumbel
from axial_transformers.decoding.decoding_loop import decode, decode_naively

__all__ = ["Choose", "GumbelChoice", "KnownFirst", "Sampler", "decode", "decode_naively", "gumbel"]
