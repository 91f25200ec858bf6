"""The one loop that decodes, the choices of values, and the backends."""

from axial_transformers.decoding.choices import Choose, NoiseChoice, Sampler
from axial_transformers.decoding.decoding_loop import decode, decode_naively
from axial_transformers.decoding.noise import gumbel, uniform

__all__ = ["Choose", "NoiseChoice", "Sampler", "decode", "decode_naively", "gumbel", "uniform"]
