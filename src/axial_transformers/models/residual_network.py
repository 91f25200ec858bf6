"""Axial-attention residual network for images: Wang et al. 2020 (Axial-DeepLab), section 3.3.

stem        7x7 convolution of stride 2, 3x3 max pooling of stride 2           stride 4
stage 1..4  bottlenecks: 1x1, height attention, width attention, 1x1           strides 4, 8, 16, 32
head        mean over positions, linear layer
"""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from axial_transformers.layers.position_sensitive import ChannelsLastBatchNorm, PositionSensitiveAxialAttention


@dataclass(frozen=True, kw_only=True)
class AxialResNetConfig:
    """An axial residual network, by default Axial-ResNet-L. S and M have widths 32 and 48.

    Raises:
        ValueError: a field is out of range, or the heads do not divide a width.
    """

    shape: tuple[int, int] = (224, 224)
    """Largest height and width of an image."""
    channels: int = 3
    num_classes: int = 1000
    blocks: tuple[int, int, int, int] = (3, 4, 6, 3)
    """Bottlenecks in each stage."""
    width: int = 64
    """Channels after the stem; stages attend in 2, 4, 8, 16 times as many."""
    heads: int = 8
    span: int | None = None
    """Odd window size along an axis, for images of any size; None: the whole axis."""
    stem_stride: int = 4
    """4 as published; 2, for small images: a 3x3 convolution of stride 2."""

    def __post_init__(self) -> None:
        if self.stem_stride not in (2, 4):
            raise ValueError(f"stem_stride must be 2 or 4, not {self.stem_stride}")
        if self.width < 1 or (2 * self.width) % (2 * self.heads):
            raise ValueError(f"width must be a positive multiple of {self.heads} heads, not {self.width}")
        if min(self.blocks) < 1 or len(self.blocks) != 4:
            raise ValueError(f"blocks must be four numbers from 1 on, not {self.blocks}")


class AxialResNet(nn.Module):
    """Images [B, H, W, C], floating point, to class logits [B, num_classes], or to features at four strides."""

    def __init__(self, config: AxialResNetConfig):
        super().__init__()
        self.config = config
        published = config.stem_stride == 4
        kernel = 7 if published else 3
        self.stem = nn.Sequential(
            nn.Conv2d(config.channels, config.width, kernel, stride=2, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(config.width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1) if published else nn.Identity(),
        )
        height, width = (-(-size // config.stem_stride) for size in config.shape)
        fan_in = config.width
        self.stages = nn.ModuleList()
        for level, blocks in enumerate(config.blocks):
            inner = config.width * 2 ** (level + 1)
            stage = nn.Sequential()
            for number in range(blocks):
                stride = 2 if level and not number else 1
                stage.append(AxialBottleneck(fan_in, inner, config.heads, (height, width), config.span, stride))
                height = -(-height // stride)
                width = -(-width // stride)
                fan_in = 2 * inner
            self.stages.append(stage)
        self.head = nn.Linear(fan_in, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Float[Tensor, "b h w c"]) -> list[Float[Tensor, "b h2 w2 d"]]:
        """Return the output of each stage: [B, H/s, W/s, D], rounded up, for strides s 4, 8, 16, 32."""
        x = self.stem(x.movedim(-1, 1)).movedim(1, -1)
        outs = []
        for stage in self.stages:
            x = stage(x)
            outs.append(x)
        return outs

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b n"]:
        """Images [B, H, W, C] -> logits [B, num_classes].

        Raises:
            ValueError: an image is larger than the shape, and there is no span.
        """
        return self.head(self.features(x)[-1].mean((1, 2)))


class AxialBottleneck(nn.Module):
    """x + (1x1, height attention, width attention, pooling by `stride`, 1x1)(x)."""

    def __init__(self, fan_in: int, inner: int, heads: int, sizes: tuple[int, int], span: int | None, stride: int):
        super().__init__()

        def attention(axis: int) -> PositionSensitiveAxialAttention:
            size = None if span else sizes[axis - 1]
            return PositionSensitiveAxialAttention(inner, heads, axis, size, span, normalisation="batch")

        self.stride = stride
        self.down = _pointwise(fan_in, inner)
        self.down_norm = ChannelsLastBatchNorm(inner)
        self.height = attention(1)
        self.width = attention(2)
        self.up = _pointwise(inner, 2 * inner)
        self.up_norm = ChannelsLastBatchNorm(2 * inner)
        nn.init.zeros_(self.up_norm.weight)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and fan_in == 2 * inner
            else nn.Sequential(_pointwise(fan_in, 2 * inner), ChannelsLastBatchNorm(2 * inner))
        )

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h2 w2 d"]:
        y = F.relu(self.down_norm(self.down(x)))
        y = self.width(self.height(y))
        if self.stride > 1:
            y = F.avg_pool2d(y.movedim(-1, 1), self.stride, ceil_mode=True).movedim(1, -1)
        y = self.up_norm(self.up(F.relu(y)))
        return F.relu(y + self.shortcut(x[:, :: self.stride, :: self.stride]))


def _pointwise(fan_in: int, fan_out: int) -> nn.Linear:
    layer = nn.Linear(fan_in, fan_out, bias=False)
    nn.init.normal_(layer.weight, std=(2 / fan_out) ** 0.5)
    return layer
