"""The one loop that decodes, what it can be told to choose, and its backends."""

from axial_transformers.decoding.choices import Choose, GumbelChoice, KnownFirst, gumbel
from axial_transformers.decoding.loop import decode, decode_naively

__all__ = ["Choose", "GumbelChoice", "KnownFirst", "decode", "decode_naively", "gumbel"]
