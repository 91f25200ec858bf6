"""The one loop that decodes, the choices of values, and the backends."""

from axial_transformers.decoding.choices import Choose, Draw, GumbelChoice, KnownFirst, gumbel
from axial_transformers.decoding.decoding_loop import decode, decode_naively

__all__ = ["Choose", "Draw", "GumbelChoice", "KnownFirst", "decode", "decode_naively", "gumbel"]
