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


ABOVE_AND_LEFT = [(-1, -1), (-1, 0), (-1, 1), (0, -1)]


def predictions(x: Tensor, coefficients: Tensor, values: int) -> Tensor:
    """Integer linear predictions of images [B, H, W, C] by the pixels above and left, and two channels before."""
    height, width, channels = x.shape[1:]
    first = torch.zeros(height, width, dtype=torch.int64, device=x.device)
    first[0] += 1
    first[:, 0] += 2
    rows, columns = (torch.arange(size, device=x.device) for size in (height, width))
    neighbours = []
    for before in range(min(3, channels)):
        planes = F.pad(x[..., : channels - before], (before, 0))
        for down, right in ABOVE_AND_LEFT + ([(0, 0)] if before else []):
            of_rows = planes[:, (rows + down).clamp(0, height - 1)]
            neighbours.append(of_rows[:, :, (columns + right).clamp(0, width - 1)])
    *factors, constant = coefficients[first].unbind(-1)
    total = sum(factor * neighbour for factor, neighbour in zip(factors, neighbours))
    return ((total + constant) >> 24).clamp(0, values - 1)


def features(x: Tensor, predicted: Tensor, values: int, centred: bool) -> Tensor:
    """What the network reads of ordinal values: scaled, by bytes, and their differences from predictions."""
    found = [2 * x / (values - 1) - 1]
    if values > 256:
        found += [x // 256 / 127.5 - 1, x % 256 / 127.5 - 1]
    difference = x - predicted
    for scale in [4**power for power in range(8) if 4**power < values] if centred else []:
        found += [difference / (difference.abs() + scale), difference.abs() / (difference.abs() + scale)]
    return torch.stack(found, dim=-1)


def mixture_loss(outputs: Tensor, x: Tensor, predicted: Tensor, spread: Tensor, values: int) -> Tensor:
    """The mean nats of values under discretised logistic distributions, whose outer bins are open."""
    weights, means, log_precisions = outputs.chunk(3, dim=-1)
    precisions = log_precisions.clamp(-12, 5).exp()
    offsets = (x - predicted).unsqueeze(-1) - means * spread
    below = F.logsigmoid((offsets + 0.5) * precisions)
    above = F.logsigmoid((0.5 - offsets) * precisions)
    inside = below + above + torch.log(-torch.expm1(-precisions))
    value = x.unsqueeze(-1)
    log_p = torch.where(value == 0, below, torch.where(value == values - 1, above, inside))
    return -torch.logsumexp(weights.log_softmax(-1) + log_p, dim=-1).mean()


class Straightforward(nn.Module):
    """Images [B, H, W, C] and a channel [B] of each -> the mean nats/dim of those channels."""

    spread: Tensor
    coefficients: Tensor

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.interleaved, self.num_values = config.layout == "columns", config.num_values
        self.ordinal, self.centred = config.values == "ordinal", config.centred
        (height, width), self.channels = config.bijection.shape, config.bijection.channels
        self.classes, dim = config.num_classes, config.dim
        self.divisor = config.divisor
        numbers = 1
        if self.ordinal:
            self.register_buffer("spread", torch.ones(()))
            none = torch.zeros(1, dtype=torch.int64)
            numbers = features(none, none, config.num_values, self.centred).shape[-1]
        if self.centred:
            neighbours = sum(4 + (before > 0) for before in range(min(3, config.channels)))
            self.register_buffer("coefficients", torch.zeros(4, config.channels, neighbours + 1, dtype=torch.int64))
        if config.encoder_layers:
            self.convolution = nn.Conv2d((numbers + 1) * config.channels, dim, 3, padding=1)
            self.encoder_positions = Positions(height, width, dim)
            self.encoder = nn.ModuleList(
                Block(config, (ROWS, COLUMNS)[i % 2], masked=False) for i in range(config.encoder_layers)
            )
        if config.num_classes:
            self.labels = nn.Embedding(config.num_classes + 1, dim)
        self.values = nn.Linear(numbers, dim) if self.ordinal else nn.Embedding(config.num_values, dim)
        self.reach = config.convolution
        if self.reach:
            of_value, kernel = 4 if self.ordinal else 1, (self.reach, 2 * self.reach + 1)
            self.of_pixel = config.channels if self.interleaved else 1
            self.features = nn.Linear(numbers, 4) if self.ordinal else nn.Embedding(config.num_values, 1)
            self.near = nn.Conv2d(self.of_pixel * of_value, self.of_pixel * dim, kernel, bias=False)
        self.positions = Positions(height, width, dim)
        self.outer = nn.ModuleList(
            Block(config, (ROWS, COLUMNS)[i % 2], masked=i % 2 == 1) for i in range(config.layers_of_outer_decoders[0])
        )
        self.inner = nn.ModuleList(Block(config, ROWS, masked=True) for _ in range(config.inner_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 3 * config.mixtures if self.ordinal else config.num_values)

    def forward(self, x: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        x = x.long()
        predicted = torch.full_like(x, (self.num_values - 1) // 2)
        if self.centred:
            predicted = predictions(x, self.coefficients, self.num_values)
        if self.interleaved:
            x, predicted = (each.flatten(2, 3).unsqueeze(3) for each in (x, predicted))
        context = self.positions().expand(len(x), -1, -1, -1)
        if self.channels > 1:
            context = context + self.encode(x, predicted, label, channel)
        elif label is not None:
            context = context + self.labels(label)[:, None, None]
        target, centre = (each[torch.arange(len(x)), :, :, channel] for each in (x, predicted))
        seen = self.seen(target, centre)
        h = self.values(seen)
        if self.reach:
            context = context + self.rows_above(seen)
        upper = h + context
        for block in self.outer:
            upper = block(upper)
        context = context + F.pad(upper[:, :-1], (0, 0, 0, 0, 1, 0))
        h = F.pad(h[:, :, :-1], (0, 0, 1, 0)) + context
        for block in self.inner:
            h = block(h)
        outputs = self.head(self.norm(h))
        if self.ordinal:
            return mixture_loss(outputs, target, centre, self.spread, self.num_values)
        return F.cross_entropy(outputs.float().flatten(0, 2), target.flatten())

    def seen(self, x: Tensor, predicted: Tensor) -> Tensor:
        """What layers take of values: the values, or features of ordinal ones."""
        if not self.ordinal:
            return x
        return features(x, predicted, self.num_values, self.centred).to(self.head.weight.dtype)

    def rows_above(self, seen: Tensor) -> Tensor:
        """A convolution of the pixels in the rows above, a pixel being all channels that alternate in a row."""
        pixels = self.features(seen).unflatten(2, (-1, self.of_pixel)).flatten(3).permute(0, 3, 1, 2)
        found = self.near(F.pad(pixels, (self.reach, self.reach, self.reach, 0)))[:, :, :-1]
        return found.permute(0, 2, 3, 1).unflatten(3, (self.of_pixel, -1)).flatten(2, 3)

    def encode(self, x: Tensor, predicted: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        number = torch.arange(self.channels, device=x.device)
        before = (number < channel[:, None])[:, None, None]
        current = (number == channel[:, None])[:, None, None].expand(x.shape)
        values = self.seen(x, predicted) if self.ordinal else (x / self.divisor).unsqueeze(-1)
        values = (values * before.unsqueeze(-1)).flatten(3)
        inputs = torch.cat([values, current], dim=-1).to(self.convolution.weight.dtype)
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
        ("values.prediction.coefficients", "coefficients"),
        ("values.spread", "spread"),
        ("embed_value.table", "values.weight"),
        ("embed_value.linear", "values"),
        ("labels.embed.table", "labels.weight"),
        ("encoder.convolution", "convolution"),
        ("encoder.blocks", "encoder"),
        ("outer_decoders.0.blocks", "outer"),
        ("outer_decoders.0.convolution.features", "features.weight"),
        ("outer_decoders.0.convolution.of_codes.linear", "features"),
        ("outer_decoders.0.convolution.linear", "near"),
        ("inner_decoder.blocks", "inner"),
        ("head.0", "norm"),
        ("head.1", "head"),
    ):
        ours = ours.replace(old, new)
    return ours
