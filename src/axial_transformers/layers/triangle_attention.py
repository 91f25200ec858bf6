"""Attention of pairs with a bias from the third edge of each triangle (Jumper et al. 2021)."""

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense, LayerNorm
from axial_transformers.layers.lines import AttentionOptions, LineAttention
from axial_transformers.ops.argument_checks import check_width
from axial_transformers.ops.attention_call import finite_where_absent


class TriangleAttention(nn.Module):
    """Triangle self-attention with gates: [B, I, I, D] -> [B, I, I, D], to be added to the input.

    With z the LayerNorm of the input, b a linear layer of z to the heads, and g the sigmoid of one of z:

    - starting node: y_ij = W (g_ij * sum_k softmax_k(q_ij . k_ik / sqrt(c) + b_jk) v_ik), along axis 2;
    - ending node: y_ij = W (g_ij * sum_k softmax_k(q_ij . k_kj / sqrt(c) + b_ki) v_kj), along axis 1.

    Args:
        dim: width D of a pair.
        heads, head_dim: number of heads, and their width c; 4 and 32 in AlphaFold (supplementary algorithms 13, 14).
        node: the node that the edges of an attention share.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 4,
        node: Literal["starting", "ending"] = "starting",
        head_dim: int = 32,
    ):
        super().__init__()
        if node not in ("starting", "ending"):
            raise ValueError(f"node must be 'starting' or 'ending', not {node!r}")
        axis = 2 if node == "starting" else 1
        width = heads * head_dim
        gate = AttentionOptions(gate=True)
        self.norm = LayerNorm(dim)
        self.pair_bias = Dense(dim, heads, bias=False)
        self.attention = LineAttention(dim, heads, axis, False, gate, width, width, bias=False)

    def forward(
        self, pairs: Float[Tensor, "b i i d"], key_mask: Bool[Tensor, "b i i"] | None = None
    ) -> Float[Tensor, "b i i d"]:
        """[B, I, I, D] -> [B, I, I, D]; key_mask [B, I, I] is False at pairs not attended to."""
        return self.attention(*self._arguments(pairs, key_mask))

    def weights(
        self, pairs: Float[Tensor, "b i i d"], key_mask: Bool[Tensor, "b i i"] | None = None
    ) -> Float[Tensor, "b i i n i"]:
        """Return the attention weights: [B, I, I, heads, I]."""
        return self.attention.weights(*self._arguments(pairs, key_mask))

    def _arguments(self, pairs: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        dim = self.attention.dim
        if pairs.ndim != 4 or pairs.shape[1] != pairs.shape[2] or pairs.shape[3] != dim:
            raise ValueError(f"the tensor of pairs must be [B, N, N, {dim}], not {list(pairs.shape)}")
        check_width(pairs, dim)
        z = self.norm(finite_where_absent(pairs, key_mask))
        bias = self.pair_bias(z).movedim(-1, 1)
        return z, key_mask, bias if self.attention.axis == 2 else bias.mT
