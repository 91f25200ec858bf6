"""The other rows of the paper's table 1: one sequence in raster order, under masked attentions of other shapes.

Each is the Axial Transformer's harness (embeddings, blocks, likelihood, cached decoding) with another inner decoder.
The plain Transformer (Vaswani et al. 2017) over the raster sequence is an AxialTransformer of layout "raster".
"""

from axial_transformers.baselines.block_transformer import BlockTransformer, BlockTransformerConfig
from axial_transformers.baselines.image_transformer import ImageTransformer, ImageTransformerConfig
from axial_transformers.baselines.sparse_transformer import SparseTransformer, SparseTransformerConfig

__all__ = [
    "BlockTransformer",
    "BlockTransformerConfig",
    "ImageTransformer",
    "ImageTransformerConfig",
    "SparseTransformer",
    "SparseTransformerConfig",
]
