"""The paper's image model and its training step in plain torch: the baseline of speed measurements.

Modules of torch, scaled_dot_product_attention on lines brought together by a permutation, Adam as it comes, the
average in a loop over parameters. Shares no code with the package, but loads its weights and computes the same loss.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axial_transformers.models import AxialTransformerConfig

ROWS, COLUMNS = "along rows", "along columns"


class AttentionBlock(nn.Module):
    def __init__(self, config: AxialTransformerConfig, lines: str, masked: bool):
        super().__init__()
        self.heads, self.lines, self.masked, self.rotary = config.heads, lines, masked, config.rotary
        dim, dropout = config.dim, config.dropout
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        if self.lines == COLUMNS:
            h = h.transpose(1, 2)
        batch, lines, length, dim = h.shape
        q, k, v = self.qkv(h).view(batch * lines, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.rotary is not None:
            q, k = rotated(q, self.rotary), rotated(k, self.rotary)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=self.masked)
        h = self.out(h.transpose(1, 2).reshape(batch, lines, length, dim))
        if self.lines == COLUMNS:
            h = h.transpose(1, 2)
        return x + self.dropout(h)


def rotated(x: Tensor, base: float) -> Tensor:
    """Rotary positions of heads [lines, heads, L, K]."""
    length, width = x.shape[-2:]
    angles = torch.arange(length)[:, None] * base ** (-torch.arange(0, width, 2) / width)
    cos, sin = (part.to(x) for part in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class FeedforwardBlock(nn.Module):
    def __init__(self, dim: int, hidden: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.expand(self.norm(x))
        return x + self.dropout(self.contract(h * torch.sigmoid(1.702 * h)))


class Block(nn.Module):
    def __init__(self, config: AxialTransformerConfig, lines: str, masked: bool):
        super().__init__()
        self.attention = AttentionBlock(config, lines, masked)
        self.feedforward = FeedforwardBlock(config.dim, config.hidden, config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.feedforward(self.attention(x))


class Positions(nn.Module):
    def __init__(self, height: int, width: int, dim: int):
        super().__init__()
        self.rows, self.columns = nn.Embedding(height, dim), nn.Embedding(width, dim)

    def forward(self) -> Tensor:
        return self.rows.weight[:, None] + self.columns.weight


def predictions(x: Tensor, values: int, of_channels: bool, signed: bool) -> Tensor:
    """The median of west, north and west + north - north-west of images [B, H, W, C], plus the channel before."""
    before = torch.full_like(x, values // 2)
    if of_channels:
        before[..., 1:] = x[..., :-1]
    x = (x - before + values // 2) % values
    west, north = x.roll(1, dims=2), x.roll(1, dims=1)
    plane = west + north - x.roll((1, 1), dims=(1, 2))
    predicted = torch.stack([west, north, plane]).median(dim=0).values
    predicted[:, 0], predicted[:, :, 0] = west[:, 0], north[:, :, 0]
    predicted[:, 0, 0] = values // 2
    predicted = predicted + before - values // 2
    return predicted.clamp(0, values - 1) if signed else predicted % values


class Straightforward(nn.Module):
    """Images [B, H, W, C] and a channel [B] of each -> the mean nats/dim of those channels."""

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.interleaved, self.predicts, self.signed, self.num_values = (
            config.layout == "columns",
            config.prediction,
            config.signed_differences,
            config.num_values,
        )
        (height, width), self.channels = config.bijection.shape, config.bijection.channels
        self.classes, dim = config.num_classes, config.dim
        self.divisor = config.divisor
        if config.encoder_layers:
            self.convolution = nn.Conv2d(2 * config.channels, dim, 3, padding=1)
            self.encoder_positions = Positions(height, width, dim)
            self.encoder = nn.ModuleList(
                Block(config, (ROWS, COLUMNS)[i % 2], masked=False) for i in range(config.encoder_layers)
            )
        if config.num_classes:
            self.labels = nn.Embedding(config.num_classes + 1, dim)
        self.values = nn.Embedding(config.num_values, dim)
        self.reach = config.convolution
        if self.reach:
            numbers, kernel = 1 if self.predicts == "none" else 2, (self.reach, 2 * self.reach + 1)
            self.of_pixel = config.channels if self.interleaved else 1
            self.features = nn.Embedding(config.num_values, numbers)
            self.near = nn.Conv2d(self.of_pixel * numbers, self.of_pixel * dim, kernel, bias=False)
        self.positions = Positions(height, width, dim)
        self.outer = nn.ModuleList(
            Block(config, (ROWS, COLUMNS)[i % 2], masked=i % 2 == 1) for i in range(config.layers_of_outer_decoders[0])
        )
        self.inner = nn.ModuleList(Block(config, ROWS, masked=True) for _ in range(config.inner_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, config.num_values * (2 if self.signed else 1))

    def forward(self, x: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        x = x.long()
        predicted = torch.zeros_like(x)
        if self.predicts != "none":
            predicted = predictions(x, self.num_values, self.predicts == "neighbours_and_channels", self.signed)
            x = (x - predicted) % self.num_values
        if self.interleaved:
            x, predicted = (each.flatten(2, 3).unsqueeze(3) for each in (x, predicted))
        context = self.positions().expand(len(x), -1, -1, -1)
        if self.channels > 1:
            context = context + self.encode(x, label, channel)
        elif label is not None:
            context = context + self.labels(label)[:, None, None]
        target = x[torch.arange(len(x)), :, :, channel]
        h = self.values(target)
        if self.reach:
            context = context + self.rows_above(target)
        upper = h + context
        for block in self.outer:
            upper = block(upper)
        context = context + F.pad(upper[:, :-1], (0, 0, 0, 0, 1, 0))
        h = F.pad(h[:, :, :-1], (0, 0, 1, 0)) + context
        for block in self.inner:
            h = block(h)
        logits = self.head(self.norm(h))
        if self.signed:
            predicted = predicted[torch.arange(len(x)), :, :, channel].unsqueeze(-1)
            wraps = torch.arange(self.num_values, device=x.device) + predicted >= self.num_values
            logits = torch.where(wraps, *reversed(logits.chunk(2, dim=-1)))
        return F.cross_entropy(logits.float().flatten(0, 2), target.flatten())

    def rows_above(self, target: Tensor) -> Tensor:
        """A convolution of the pixels in the rows above, a pixel being all channels that alternate in a row."""
        pixels = self.features(target).unflatten(2, (-1, self.of_pixel)).flatten(3).permute(0, 3, 1, 2)
        found = self.near(F.pad(pixels, (self.reach, self.reach, self.reach, 0)))[:, :, :-1]
        return found.permute(0, 2, 3, 1).unflatten(3, (self.of_pixel, -1)).flatten(2, 3)

    def encode(self, x: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        number = torch.arange(self.channels, device=x.device)
        before = (number < channel[:, None])[:, None, None]
        current = (number == channel[:, None])[:, None, None].expand(x.shape)
        inputs = torch.cat([x / self.divisor * before, current], dim=-1).to(self.convolution.weight.dtype)
        h = self.convolution(inputs.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) + self.encoder_positions()
        if label is not None:
            h = h + self.labels(label)[:, None, None]
        for block in self.encoder:
            h = block(h)
        return h

    def load(self, ours: dict[str, Tensor]) -> None:
        """Takes the weights of an AxialTransformer of the same configuration."""
        renamed = {_name(name): tensor for name, tensor in ours.items() if not name.endswith("rotations")}
        if "convolution.weight" in renamed:
            flat = renamed["convolution.weight"]
            renamed["convolution.weight"] = flat.view(len(flat), 3, 3, -1).permute(0, 3, 1, 2)
        if self.reach:
            flat = renamed["near.weight"]
            renamed["near.weight"] = flat.view(len(flat), *self.near.kernel_size, -1).permute(0, 3, 1, 2)
        self.load_state_dict(renamed)


class StraightforwardTraining:
    """The training step of one process: autocast, Adam, clipped gradients, averaged weights."""

    def __init__(self, model: Straightforward, bfloat16: bool, learning_rate: float, compile: bool):
        self.model, self.bfloat16 = model, bfloat16
        self.average = [parameter.detach().clone() for parameter in model.parameters()]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        if compile:
            for block in model.modules():
                if isinstance(block, Block):
                    block.compile(dynamic=False)

    def step(self, x: Tensor, label: Tensor | None, channel: Tensor) -> float:
        self.optimizer.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self.model(x, label, channel)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(self.average, self.model.parameters()):
                average.lerp_(parameter, 0.001)
        return loss.item()


def _name(ours: str) -> str:
    """The name in this file of a weight of `AxialTransformer`."""
    for old, new in (
        ("attention.attention.", "attention."),
        ("encoder.position.tables.0", "encoder_positions.rows.weight"),
        ("encoder.position.tables.1", "encoder_positions.columns.weight"),
        ("position.tables.0", "positions.rows.weight"),
        ("position.tables.1", "positions.columns.weight"),
        ("embed_value.table", "values.weight"),
        ("labels.embed.table", "labels.weight"),
        ("encoder.convolution", "convolution"),
        ("encoder.blocks", "encoder"),
        ("outer_decoders.0.blocks", "outer"),
        ("outer_decoders.0.convolution.features", "features.weight"),
        ("outer_decoders.0.convolution.linear", "near"),
        ("inner_decoder.blocks", "inner"),
        ("head.0", "norm"),
        ("head.1", "head"),
    ):
        ours = ours.replace(old, new)
    return ours
