"""The models that experiments/peers.py compares: an interface, three peers, and the axial model.

Images are integers x[B, H, W, C] of V values. Peers generate pixels in raster order, and the channels of a pixel in
order. Each trains in parallel, and decodes with caches: every position is computed once (in the gated PixelCNN, the
horizontal stack once for each channel). Where the axial model predicts values linearly, peers do the same.

`width` and `hidden` are the two sizes of a peer; `of_size` finds those with a wanted number of parameters.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from math import log, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axial_transformers.decoding.sampling import sample
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.layers.blocks import block_matrices
from axial_transformers.layers.initialisation import Dense, normal_table
from axial_transformers.likelihood.bits import LOG2, bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.values.linear_prediction import LinearPrediction

Choose = Callable[[Tensor, tuple[int, int, int]], Tensor]
"""Takes log-probabilities [B, V] of a position (row, column, channel), returns values [B]."""


class Images(NamedTuple):
    """The images that a model takes."""

    height: int
    width: int
    channels: int
    values: int


class Axial(nn.Module):
    """The axial model of a recipe behind the interface of the peers."""

    def __init__(self, config: AxialTransformerConfig) -> None:
        super().__init__()
        self.model = AxialTransformer(config)

    def fit(self, x: Tensor) -> None:
        self.model.fit_values(x)

    def loss(self, x: Tensor) -> Tensor:
        return random_slice_loss(self.model, x)

    def bits(self, x: Tensor) -> Tensor:
        return bits_per_dim(self.model, x)

    def sample(self, count: int, generator: torch.Generator, compiled: bool | None = None) -> Tensor:
        return sample(self.model, count, seed=generator.initial_seed(), compile=compiled)

    def matrices(self) -> dict[Tensor, int]:
        return block_matrices(self.model)


class Peer(nn.Module):
    """Probabilities of images, position by position. A peer has these methods besides:

    nats(x [B, H, W, C])                -log p of each position [B, H, W, C]
    log_probabilities(x [B, H, W, C])   of each value at each position [B, H, W, C, V]
    decode(count, choose)               images whose values `choose` picks, one position after the other
    matrices()                          those inside the blocks, each with the number of matrices that it stacks
    """

    def __init__(self, images: Images) -> None:
        super().__init__()
        self.images = images

    def fit(self, x: Tensor) -> None:
        """Fit what is known before training to some images of the training part; most peers know nothing."""

    def loss(self, x: Tensor) -> Tensor:
        """Return the mean nats/dim of x [B, H, W, C]."""
        return self.nats(x).mean()

    def bits(self, x: Tensor) -> Tensor:
        """Return the bits/dim of each image [B]."""
        return self.nats(x).flatten(1).double().mean(1) / LOG2

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample images [B, H, W, C]."""

        def choose(log_p: Tensor, position: tuple[int, int, int]) -> Tensor:
            exponential = torch.empty_like(log_p).exponential_(generator=generator)
            return (log_p - exponential.log()).argmax(-1)

        return self.decode(count, choose)


def cross_entropy(logits: Tensor, x: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), x.flatten(), reduction="none").view(x.shape)


class GPT(Peer):
    """A decoder-only Transformer over all positions as one sequence, with learned positions per axis.

    Pre-norm blocks, torch's fused causal attention, and a cache of keys and values in decoding.
    """

    def __init__(self, images: Images, width: int, hidden: int, layers: int = 4, heads: int = 4) -> None:
        super().__init__(images)
        self.embed = normal_table(images.values + 1, width)  # the last entry begins a sequence
        self.positions = nn.ParameterList(normal_table(size, width) for size in images[:3])
        self.blocks = nn.ModuleList(GPTBlock(width, hidden, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), Dense(width, images.values, residual=True))

    def logits(self, x: Tensor) -> Tensor:
        rows, columns, channels = self.positions
        before = F.pad(x.flatten(1)[:, :-1], (1, 0), value=self.images.values)
        h = F.embedding(before, self.embed) + (rows[:, None, None] + columns[:, None] + channels).flatten(0, 2)
        for block in self.blocks:
            h = block(h)
        return self.head(h).view(*x.shape, -1).to(self.embed.dtype)

    def nats(self, x: Tensor) -> Tensor:
        return cross_entropy(self.logits(x), x)

    def log_probabilities(self, x: Tensor) -> Tensor:
        return self.logits(x).log_softmax(-1)

    def decode(self, count: int, choose: Choose) -> Tensor:
        height, width, channels, values = self.images
        positions = height * width * channels
        x = torch.zeros(count, height, width, channels, dtype=torch.int64)
        rows, columns, planes = self.positions
        before = torch.full((count,), values)
        kept = [block.start(count, positions) for block in self.blocks]
        for n in range(positions):
            i, j, c = position = (n // (width * channels), n // channels % width, n % channels)
            h = F.embedding(before, self.embed) + rows[i] + columns[j] + planes[c]
            for block, cache_of_block in zip(self.blocks, kept):
                h = block.step(h, n, cache_of_block)
            before = choose(self.head(h).log_softmax(-1), position)
            x[:, i, j, c] = before
        return x

    def matrices(self) -> dict[Tensor, int]:
        linear = [part for part in self.blocks.modules() if isinstance(part, nn.Linear)]
        return {part.weight: 3 if part.out_features == 3 * part.in_features else 1 for part in linear}


class GPTBlock(nn.Module):
    """Causal attention, then a feedforward part, each on normalised input."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Sequential(nn.LayerNorm(width), Dense(width, 3 * width))
        self.out = Dense(width, width, residual=True)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(width), Dense(width, hidden), nn.GELU("tanh"), Dense(hidden, width, residual=True)
        )

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        return h + self.feedforward(h)

    def start(self, count: int, positions: int) -> Tensor:
        """Return room for the keys and the values [2, B, heads, S, K]."""
        return torch.zeros(
            2, count, self.heads, positions, self.out.in_features // self.heads, dtype=self.out.weight.dtype
        )

    def step(self, h: Tensor, n: int, cache: Tensor) -> Tensor:
        """As `forward` for position n alone, h [B, D]."""
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, 1, -1)).unbind(1)
        cache[0, :, :, n], cache[1, :, :, n] = k.squeeze(2), v.squeeze(2)
        keys, values = cache[:, :, :, : n + 1]
        h = h + self.out(F.scaled_dot_product_attention(q, keys, values).flatten(1))
        return h + self.feedforward(h)


class Past:
    """What comes before the input of a convolution along its axis: zeros."""

    def extend(self, conv: "Conv", x: Tensor, axis: int, count: int) -> Tensor:
        return F.pad(x, (0, 0, count, 0) if axis == 2 else (count, 0))


class KeptPast(Past):
    """The same while decoding: the newest inputs of each convolution. The inputs of a call are kept if `keep`."""

    def __init__(self) -> None:
        self.before: dict[Conv, Tensor] = {}
        self.keep = True

    def extend(self, conv: "Conv", x: Tensor, axis: int, count: int) -> Tensor:
        before = self.before.get(conv)
        whole = super().extend(conv, x, axis, count) if before is None else torch.cat([before, x], axis)
        if self.keep:
            self.before[conv] = whole.narrow(axis, whole.shape[axis] - count, count)
        return whole


class Conv(nn.Module):
    """A convolution whose last row (`rows` > 1) or last column is at the output's position.

    Rows have their columns around the position. The weight is a matrix, so that Muon takes it as it is.
    """

    def __init__(
        self, fan_in: int, fan_out: int, rows: int = 1, columns: int = 1, mask: Tensor | None = None, zero: bool = False
    ) -> None:
        super().__init__()
        self.size = (fan_out, rows, columns, fan_in)
        scale = 0.0 if zero else 1 / sqrt(rows * columns * fan_in)
        self.weight = nn.Parameter(scale * torch.randn(fan_out, rows * columns * fan_in))
        self.bias = nn.Parameter(torch.zeros(fan_out))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        _, rows, columns, _ = self.size
        if past is not None and rows > 1:
            x = past.extend(self, F.pad(x, (columns // 2, columns // 2)), 2, rows - 1)
        elif past is not None and columns > 1:
            x = past.extend(self, x, 3, columns - 1)
        weight = self.weight.view(self.size)
        if self.mask is not None:  # of the position itself: what is before is known whole
            own = weight[:, -1:, -1:] * self.mask[:, None, None]
            weight = own if rows * columns == 1 else torch.cat([weight[:, :, :-1], own], 2)
        return F.conv2d(x, weight.permute(0, 3, 1, 2), self.bias)


class TwoStacks(Peer):
    """A convolutional network without a blind spot: a vertical stack sees the rows above, a horizontal one the rest.

    The horizontal stack sees the pixels on the left, and per block what the vertical stack says (`sides`).
    Networks add output(h), the last layers, and nats and log-probabilities of their outputs.
    """

    blocks: nn.ModuleList
    above: Conv
    left: Conv
    own: Conv | None

    def planes(self, x: Tensor) -> Tensor:
        """Return values in -1..1 and ones [B, C + 1, H, W]: zeros beyond the edges then differ from all values."""
        scaled = x.to(self.above.weight.dtype) * (2 / (self.images.values - 1)) - 1
        return F.pad(scaled, (0, 1), value=1.0).permute(0, 3, 1, 2)

    def vertical(self, rows_above: Tensor, past: Past) -> list[Tensor]:
        """Return what each block adds to the horizontal stack; the input is one row ahead."""
        v, sides = self.above(rows_above, past), []
        for block in self.blocks:
            v, side = block.vertical(v, past)
            sides.append(side)
        return sides

    def horizontal(self, left: Tensor, here: Tensor, sides: list[Tensor], past: Past) -> Tensor:
        """Return the parameters of the distributions [B, H, W, outputs]; `left` is one column ahead."""
        h = self.left(left, past)
        if self.own is not None:
            h = h + self.own(here[:, :-1])
        for block, side in zip(self.blocks, sides):
            h = block.horizontal(h, side, past)
        return self.output(h).permute(0, 2, 3, 1).to(self.above.weight.dtype)

    def outputs(self, x: Tensor) -> Tensor:
        planes, past = self.planes(x), Past()
        sides = self.vertical(F.pad(planes, (0, 0, 1, -1)), past)
        return self.horizontal(F.pad(planes, (1, -1)), planes, sides, past)

    def nats(self, x: Tensor) -> Tensor:
        return self.nats_of(self.outputs(x), x)

    def log_probabilities(self, x: Tensor) -> Tensor:
        return self.log_probabilities_of(self.outputs(x), x)

    def decode(self, count: int, choose: Choose) -> Tensor:
        height, width, channels, _ = self.images
        x = torch.zeros(count, height, width, channels, dtype=torch.int64)
        nothing = torch.zeros_like(self.planes(x[:, :1]))
        above, vertical = nothing, KeptPast()
        for i in range(height):
            sides, horizontal, left = self.vertical(above, vertical), KeptPast(), nothing[..., :1]
            for j in range(width):
                here, beside = x[:, i : i + 1, j : j + 1], [side[..., j : j + 1] for side in sides]
                for c in range(channels):
                    if c == 0 or self.own is not None:
                        horizontal.keep = self.own is None or c == channels - 1  # nothing sees the last channel here
                        outputs = self.horizontal(left, self.planes(here), beside, horizontal)
                    values = choose(self.log_probabilities_of(outputs, here)[:, 0, 0, c], (i, j, c))
                    here[..., c] = values[:, None, None]
                left = self.planes(here)
            above = self.planes(x[:, i : i + 1])
        return x

    def matrices(self) -> dict[Tensor, int]:
        convs = [part for part in self.blocks.modules() if isinstance(part, Conv)]
        return {part.weight: getattr(part, "stacked", 1) for part in convs}


def groups(count: int, channels: int) -> Tensor:
    """Return the channel that each of `count` maps belongs to, as even parts."""
    return torch.arange(count) * channels // count


class PixelCNN(TwoStacks):
    """The gated PixelCNN (van den Oord et al. 2016) with a softmax.

    Maps of the horizontal stack belong to channels in order; at their own pixel they see earlier channels only.
    """

    def __init__(self, images: Images, width: int, hidden: int, layers: int = 8) -> None:
        super().__init__(images)
        channels = images.channels
        of_maps, of_hidden = groups(width, channels), groups(hidden, channels)
        self.above = Conv(channels + 1, width, 3, 7)
        self.left = Conv(channels + 1, width, 1, 3)
        self.own = Conv(channels, width, mask=of_maps[:, None] > torch.arange(channels)) if channels > 1 else None
        self.blocks = nn.ModuleList(GatedBlock(width, of_maps) for _ in range(layers))
        self.between = Conv(width, hidden, mask=of_hidden[:, None] >= of_maps)
        of_outputs = groups(channels * images.values, channels)
        self.last = Conv(hidden, channels * images.values, mask=of_outputs[:, None] >= of_hidden, zero=True)

    def output(self, h: Tensor) -> Tensor:
        return self.last(F.relu(self.between(F.relu(h))))

    def nats_of(self, outputs: Tensor, x: Tensor) -> Tensor:
        return cross_entropy(outputs.unflatten(-1, (self.images.channels, -1)), x)

    def log_probabilities_of(self, outputs: Tensor, x: Tensor) -> Tensor:
        return outputs.unflatten(-1, (self.images.channels, -1)).log_softmax(-1)


class GatedBlock(nn.Module):
    """A layer of the gated PixelCNN: a residual connection in the horizontal stack only."""

    def __init__(self, width: int, of_maps: Tensor) -> None:
        super().__init__()
        mask = of_maps[:, None] >= of_maps
        self.down = Conv(width, 2 * width, 2, 3)
        self.link = Conv(2 * width, 2 * width)
        self.right = Conv(width, 2 * width, 1, 2, mask=mask.repeat(2, 1))
        self.out = Conv(width, width, mask=mask)
        for conv in (self.down, self.link, self.right):
            conv.stacked = 2

    def vertical(self, v: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        both = self.down(v, past)
        return gated(both), self.link(both)

    def horizontal(self, h: Tensor, side: Tensor, past: Past) -> Tensor:
        return h + self.out(gated(self.right(h, past) + side))


def gated(both: Tensor) -> Tensor:
    values, gates = both.chunk(2, 1)
    return values.tanh() * gates.sigmoid()


class PixelCNNPlusPlus(TwoStacks):
    """PixelCNN++ (Salimans et al. 2017): a mixture of discretised logistics, gated residual blocks.

    Left out: down- and upsampling, and with them the long skips; dropout; weight normalisation. The horizontal stack
    looks at three pixels of its row instead of 2 x 2.
    """

    def __init__(self, images: Images, width: int, hidden: int, layers: int = 5, mixtures: int = 10) -> None:
        super().__init__(images)
        channels = images.channels
        self.mixtures = mixtures
        self.above = Conv(channels + 1, width, 3, 7)
        self.left, self.own = Conv(channels + 1, width, 1, 3), None
        self.blocks = nn.ModuleList(ResidualBlock(width, hidden) for _ in range(layers))
        # Per mixture: its logit; means and log scales of channels; a coefficient for each pair of channels.
        self.sizes = [1, channels, channels, channels * (channels - 1) // 2]
        self.last = Conv(width, mixtures * sum(self.sizes), zero=True)
        with torch.no_grad():  # equal mixtures would stay equal
            bias = self.last.bias.view(mixtures, -1)
            bias[:, 1 : 1 + channels] = torch.linspace(-1, 1, mixtures)[:, None]
            bias[:, 1 + channels : 1 + 2 * channels] = -2

    def output(self, h: Tensor) -> Tensor:
        return self.last(F.elu(h))

    def parameters_of(self, outputs: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log weights [.., M]; means and log scales [.., C, M], given the earlier channels of x [.., C]."""
        split = outputs.unflatten(-1, (self.mixtures, -1)).transpose(-1, -2).split(self.sizes, -2)
        weights, means, scales, coefficients = split
        scaled = x.to(outputs.dtype) * (2 / (self.images.values - 1)) - 1
        channels, pairs = [means[..., 0, :]], iter(coefficients.tanh().unbind(-2))
        for c in range(1, self.images.channels):
            earlier = (next(pairs) * scaled[..., before, None] for before in range(c))
            channels.append(means[..., c, :] + sum(earlier))
        return weights.squeeze(-2).log_softmax(-1), torch.stack(channels, -2), scales.clamp(min=-7)

    def log_bins(self, x: Tensor, means: Tensor, scales: Tensor) -> Tensor:
        """Return the log-probability of values x under logistics, the outermost bins open; shapes broadcast.

        With a, b = upper and lower edge: s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), where s is the sigmoid.
        """
        last = self.images.values - 1
        centred, inverse = x.to(means.dtype) * (2 / last) - 1 - means, (-scales).exp()
        upper, lower = F.logsigmoid((centred + 1 / last) * inverse), F.logsigmoid((1 / last - centred) * inverse)
        between = (-torch.expm1(-2 / last * inverse)).log()
        inner = (x > 0) & (x < last)
        return upper * (x < last) + lower * (x > 0) + between * inner

    def nats_of(self, outputs: Tensor, x: Tensor) -> Tensor:
        weights, means, scales = self.parameters_of(outputs, x)
        joint = weights.unsqueeze(-2) + self.log_bins(x.unsqueeze(-1), means, scales).cumsum(-2)
        so_far = joint.logsumexp(-1)  # of the channels up to each one
        return F.pad(so_far[..., :-1], (1, 0)) - so_far

    def log_probabilities_of(self, outputs: Tensor, x: Tensor) -> Tensor:
        weights, means, scales = self.parameters_of(outputs, x)
        known = self.log_bins(x.unsqueeze(-1), means, scales).cumsum(-2)
        given = (weights.unsqueeze(-2) + F.pad(known[..., :-1, :], (0, 0, 1, 0))).log_softmax(-1)
        every = torch.arange(self.images.values).view(-1, 1)
        return (given.unsqueeze(-2) + self.log_bins(every, means.unsqueeze(-2), scales.unsqueeze(-2))).logsumexp(-1)


class ResidualBlock(nn.Module):
    """A block of PixelCNN++ in both stacks: x + a * sigmoid(b), of concatenated ELUs."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.down = Conv(2 * width, hidden, 2, 3)
        self.down_out = Conv(2 * hidden, 2 * width, 2, 3, zero=True)
        self.link = Conv(2 * width, hidden)
        self.right = Conv(2 * width, hidden, 1, 3)
        self.right_out = Conv(2 * hidden, 2 * width, 1, 3, zero=True)
        for conv in (self.down_out, self.right_out):
            conv.stacked = 2

    def vertical(self, v: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        v = v + F.glu(self.down_out(both_elus(self.down(both_elus(v), past)), past), 1)
        return v, self.link(both_elus(v))

    def horizontal(self, h: Tensor, side: Tensor, past: Past) -> Tensor:
        changed = self.right(both_elus(h), past) + side
        return h + F.glu(self.right_out(both_elus(changed), past), 1)


def both_elus(x: Tensor) -> Tensor:
    return F.elu(torch.cat([x, -x], 1))


class OfDifferences(Peer):
    """A peer that models differences from a linear prediction, which the axial model of photographs has too.

    The peer sees d = x - prediction + V / 2, modulo V. The prediction depends on earlier positions only.
    """

    def __init__(self, peer: Peer, prediction: LinearPrediction) -> None:
        super().__init__(peer.images)
        self.peer, self.prediction = peer, prediction
        self.matrices = peer.matrices

    def fit(self, x: Tensor) -> None:
        self.prediction.fit(x)

    def differences(self, x: Tensor) -> Tensor:
        return (x - self.prediction(x) + self.images.values // 2) % self.images.values

    def nats(self, x: Tensor) -> Tensor:
        return self.peer.nats(self.differences(x))

    def log_probabilities(self, x: Tensor) -> Tensor:
        return self.of_values(self.peer.log_probabilities(self.differences(x)), self.prediction(x))

    def of_values(self, log_p: Tensor, predictions: Tensor) -> Tensor:
        """Return the log-probabilities of values [.., V], given those of differences."""
        values = self.images.values
        return log_p.gather(-1, (torch.arange(values) - predictions.unsqueeze(-1) + values // 2) % values)

    def decode(self, count: int, choose: Choose) -> Tensor:
        height, width, channels, values = self.images
        x = torch.zeros(count, height * width * channels, dtype=torch.int64)
        coefficients = self.prediction.of_positions().flatten(0, -2)
        neighbours = self.prediction.positions()
        none = x.new_zeros(0, 0)  # values have no activity
        so_far = RowPredictions(x, torch.arange(x.shape[1]), neighbours, coefficients, none, none, none, values)

        def difference(log_p: Tensor, position: tuple[int, int, int]) -> Tensor:
            n = (position[0] * width + position[1]) * channels + position[2]
            predicted = so_far.at(n)
            x[:, n] = choose(self.of_values(log_p, predicted), position)
            return (x[:, n] - predicted + values // 2) % values

        self.peer.decode(count, difference)
        return x.view(count, height, width, channels)


class Kind(NamedTuple):
    """A peer, how many times the width `hidden` is (about), and what divides the width."""

    build: Callable[[Images, int, int], Peer]
    ratio: float
    step: int


PEERS = {
    "GPT": Kind(GPT, 4.0, 32),
    "gated PixelCNN": Kind(PixelCNN, 2.0, 2),
    "PixelCNN++": Kind(PixelCNNPlusPlus, 1.0, 4),
}
MAX_WIDTH = 4096
"""Largest width and hidden."""
TOLERANCE = 0.02


def size(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def images_of(config: AxialTransformerConfig) -> Images:
    height, width = config.shape
    return Images(height, width, config.channels, config.num_values)


@cache
def of_size(name: str, images: Images, parameters: int) -> tuple[int, int]:
    """Return width and hidden of the peer with so many parameters, within 2 %, that is nearest to its ratio."""
    build, ratio, step = PEERS[name]

    def built(width: int, hidden: int) -> int:
        with torch.device("meta"):
            return size(build(images, width, hidden))

    def rest(width: int, hidden: int) -> float:
        return abs(built(width, hidden) / parameters - 1)

    wide = step * bisect_left(range(step, MAX_WIDTH, step), parameters, key=lambda n: built(n, round(ratio * n)))
    widths = (wide, wide + step) if wide else (step,)  # a little too small, and a little too large
    candidates = [(n, bisect_left(range(MAX_WIDTH), parameters, lo=1, key=partial(built, n))) for n in widths]
    found = [each for each in candidates if rest(*each) <= TOLERANCE]
    if not found:
        raise ValueError(f"no {name} has about {parameters} parameters")
    return min(found, key=lambda each: abs(log(each[1] / each[0] / ratio)))


def build(name: str, config: AxialTransformerConfig) -> Axial | Peer:
    """Return the axial model of a configuration, or a peer with as many parameters and the same prediction."""
    axial = Axial(config)
    if name == "axial":
        return axial
    images = images_of(config)
    peer = PEERS[name].build(images, *of_size(name, images, size(axial)))
    if not config.centred:
        return peer
    return OfDifferences(peer, LinearPrediction(config.shape, config.channels, config.num_values))


NAMES = ("axial", *PEERS)
