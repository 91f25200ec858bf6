"""The models that experiments/peers.py compares: an interface, three peers, and the axial model.

Images are integers x[B, H, W, C] of V values. Peers generate pixels in raster order, and the channels of a pixel in
order. Each trains in parallel, and decodes with caches: every position is computed once (in the gated PixelCNN, the
horizontal stack once for each channel).

What values are comes from the configuration of the axial model. All models of ordinal values (photographs) have the
same features, linear prediction, activity and mixture of logistics: `OrdinalValues`. Categorical values (Fashion-MNIST)
are numbers in -1..1 for the PixelCNNs, and have a softmax; PixelCNN++ has its own mixture of logistics.

`width` and `hidden` are the two sizes of a peer; `of_size` finds those with a wanted number of parameters.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import log, prod, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axial_transformers.decoding.sampling import sample
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.layers.blocks import ModuleListOf, TransformerBlock, block_matrices
from axial_transformers.layers.initialisation import Dense, normal_table
from axial_transformers.likelihood.bits import LOG2, bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.heads import ChainedHead, Head
from axial_transformers.models.values import Distribution, Values, values_class
from axial_transformers.models.values.neighbours import NeighbourSum
from axial_transformers.models.values.ordinal import Features, Mixture, OrdinalValues

Position = tuple[int, int, int]
"""Row, column, channel."""
Choose = Callable[[Distribution, Position], Tensor]
"""Takes the distributions of B values at a position, returns values [B]."""
ChooseCode = Callable[[Tensor, Position], Tensor]
"""Takes what the head gives for a position [B, O], returns codes [B]."""


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


class NoAttention(nn.Module):
    """The identity, in place of an attention block of a transformer block."""

    causal = False
    """It keeps nothing of earlier positions."""
    widths = ()
    """It has no matrices."""

    @property
    def attention(self) -> "NoAttention":
        """Return what transformer blocks ask about their attention."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        return x

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> tuple[Tensor, ...]:
        return ()

    def step(self, x: Tensor, i: int, state: tuple[Tensor, ...]) -> Tensor:
        return x


def without_attention(config: AxialTransformerConfig, hidden: int) -> Axial:
    """Return the axial model without its attention blocks; `hidden` is the width inside its gated convolutions."""
    axial = Axial(replace(config, mlp_ratio=hidden / config.dim))
    for part in axial.modules():
        if isinstance(part, TransformerBlock):
            part.attention = NoAttention()
    return axial


class Peer(nn.Module):
    """Probabilities of images, position by position. A peer has these besides:

    head                            gives what the distribution of a value takes (O numbers), as in `models.heads`
    outputs(codes [B, H, W, C])     these numbers for all positions [B, H, W, C, O]
    walk(count, choose)             the codes of images, which `choose` picks, one position after the other
    matrices()                      those inside the blocks, each with the number of matrices that it stacks
    """

    head: "Head | ChainedHead | HeadsOfMaps"

    def __init__(self, config: AxialTransformerConfig, values: Values | None = None) -> None:
        super().__init__()
        self.shape = (*config.shape, config.channels)
        self.values = values or values_class(config)(config)
        self.features = self.values.features if config.has_order else Features(config.num_values, ())

    def start_head(self) -> None:
        """Set the first biases of the head."""
        self.values.start_head(self.head.last_layers())

    def fit(self, x: Tensor) -> None:
        """Fit what is known of ordinal values before training to some images of the training part."""
        self.values.fit(x, self.head.last_layers())

    def read_out(self, state: Tensor, before: Tensor) -> Tensor:
        """Return what the head gives for a value of positions; see `AxialTransformer.read_out`."""
        dtype = next(self.head.parameters()).dtype
        rounded = torch.is_autocast_enabled("cpu") and self.values.trains_in_autocast
        with torch.autocast("cpu", enabled=rounded):
            return self.head.outputs(state.to(dtype), before).to(dtype)

    def nats(self, x: Tensor) -> Tensor:
        """Return -log p of each position [B, H, W, C]."""
        codes = self.values.codes(x)
        return self.values.nats(self.outputs(codes), codes)

    def log_probabilities(self, x: Tensor) -> Tensor:
        """Return log p of each value at each position [B, H, W, C, V]."""
        codes = self.values.codes(x)
        distribution = self.values.distribution(self.outputs(codes), self.values.centres(codes))
        return distribution.log_probabilities().log_softmax(-1)

    def loss(self, x: Tensor) -> Tensor:
        """Return the mean nats/dim of x [B, H, W, C]."""
        return self.nats(x).mean()

    def bits(self, x: Tensor) -> Tensor:
        """Return the bits/dim of each image [B]."""
        return self.nats(x).flatten(1).double().mean(1) / LOG2

    def decode(self, count: int, choose: Choose) -> Tensor:
        """Return images [B, H, W, C] whose values `choose` picks, one position after the other."""
        predictions = self.predictions(count)
        middle = self.values.centres(torch.zeros(count, dtype=torch.int64))
        _, width, channels = self.shape

        def choose_code(outputs: Tensor, position: Position) -> Tensor:
            i, j, c = position
            n = (i * width + j) * channels + c
            centres = predictions.at(n) if predictions else middle
            values = choose(self.values.distribution(outputs, centres), position)
            return predictions.keep(n, values, centres) if predictions else values

        return self.values.values(self.walk(count, choose_code))

    def predictions(self, count: int) -> RowPredictions | None:
        """Return the linear predictions of all positions, as of one row; None if values are not centred."""
        prediction, activity = self.values.prediction, self.values.activity
        if prediction is None:
            return None
        positions = prod(self.shape)
        values = torch.zeros(count, positions, dtype=torch.int64)
        neighbours, coefficients = of_positions(prediction)
        sizes = values[:, :0]
        size_neighbours = size_coefficients = values.new_zeros(positions, 0)
        if activity is not None:
            sizes = torch.zeros_like(values)
            size_neighbours, size_coefficients = of_positions(activity)
        return RowPredictions(
            values,
            torch.arange(positions),
            neighbours,
            coefficients,
            sizes,
            size_neighbours,
            size_coefficients,
            prediction.num_values,
        )

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample images [B, H, W, C]."""

        def choose(distribution: Distribution, position: Position) -> Tensor:
            return distribution.sample(torch.rand(count, generator=generator), 1.0, None, None)

        return self.decode(count, choose)


def of_positions(sums: NeighbourSum) -> tuple[Tensor, Tensor]:
    """Return the neighbours and the coefficients of every position."""
    return sums.positions(), sums.of_positions().flatten(0, -2)


class GPT(Peer):
    """A decoder-only Transformer over all positions as one sequence, with learned positions per axis.

    Pre-norm blocks, torch's fused causal attention, and a cache of keys and values in decoding.
    """

    def __init__(
        self, config: AxialTransformerConfig, width: int, hidden: int, layers: int = 4, heads: int = 4
    ) -> None:
        super().__init__(config)
        self.embed = self.values.embedding(width)
        self.beginning = normal_table(1, width)
        self.positions = nn.ParameterList(normal_table(size, width) for size in self.shape)
        self.blocks = nn.ModuleList(GPTBlock(width, hidden, heads) for _ in range(layers))
        self.head = Head(width, self.values.outputs)
        self.start_head()

    def outputs(self, codes: Tensor) -> Tensor:
        rows, columns, channels = self.positions
        before = self.embed(codes.flatten(1)[:, :-1, None])
        h = torch.cat([self.beginning.expand(len(codes), 1, -1), before], 1)
        h = h + (rows[:, None, None] + columns[:, None] + channels).flatten(0, 2)
        for block in self.blocks:
            h = block(h)
        return self.read_out(h, codes[..., :0]).view(*codes.shape, -1)

    def walk(self, count: int, choose: ChooseCode) -> Tensor:
        positions = prod(self.shape)
        codes = torch.zeros(count, *self.shape, dtype=torch.int64)
        rows, columns, planes = self.positions
        before = self.beginning.expand(count, -1)
        kept = [block.start(count, positions) for block in self.blocks]
        for n, (i, j, c) in enumerate(product(*map(range, self.shape))):
            h = before + rows[i] + columns[j] + planes[c]
            for block, cache_of_block in zip(self.blocks, kept):
                h = block.step(h, n, cache_of_block)
            codes[:, i, j, c] = choose(self.read_out(h, codes[..., :0]), (i, j, c))
            before = self.embed(codes[:, i, j, c, None])
        return codes

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
    """

    blocks: nn.ModuleList
    above: Conv
    left: Conv
    own: Conv | None

    @property
    def maps(self) -> int:
        """Return the number of input maps of a pixel: the features of its channels."""
        return self.shape[-1] * self.features.size

    def planes(self, codes: Tensor) -> Tensor:
        """Return features and ones [B, maps + 1, H, W]: zeros beyond the edges then differ from all values."""
        features = self.features(codes, self.above.weight.dtype).flatten(-2)
        return F.pad(features, (0, 1), value=1.0).permute(0, 3, 1, 2)

    def vertical(self, rows_above: Tensor, past: Past) -> list[Tensor]:
        """Return what each block adds to the horizontal stack; the input is one row ahead."""
        v, sides = self.above(rows_above, past), []
        for block in self.blocks:
            v, side = block.vertical(v, past)
            sides.append(side)
        return sides

    def horizontal(self, left: Tensor, here: Tensor, sides: list[Tensor], past: Past) -> Tensor:
        """Return the last state of pixels [B, H, W, D]; `left` is one column ahead."""
        h = self.left(left, past)
        if self.own is not None:
            h = h + self.own(here[:, :-1])
        for block, side in zip(self.blocks, sides):
            h = block.horizontal(h, side, past)
        return self.last_state(h).permute(0, 2, 3, 1)

    def last_state(self, h: Tensor) -> Tensor:
        return h

    def outputs(self, codes: Tensor) -> Tensor:
        planes, past = self.planes(codes), Past()
        sides = self.vertical(F.pad(planes, (0, 0, 1, -1)), past)
        state = self.horizontal(F.pad(planes, (1, -1)), planes, sides, past)
        return torch.stack([self.read_out(state, codes[..., :c]) for c in range(self.shape[-1])], -2)

    def walk(self, count: int, choose: ChooseCode) -> Tensor:
        height, width, channels = self.shape
        codes = torch.zeros(count, *self.shape, dtype=torch.int64)
        nothing = torch.zeros_like(self.planes(codes[:, :1]))
        above, vertical = nothing, KeptPast()
        for i in range(height):
            sides, horizontal, left = self.vertical(above, vertical), KeptPast(), nothing[..., :1]
            for j in range(width):
                here, beside = codes[:, i : i + 1, j : j + 1], [side[..., j : j + 1] for side in sides]
                for c in range(channels):
                    if c == 0 or self.own is not None:
                        horizontal.keep = self.own is None or c == channels - 1  # nothing sees the last channel here
                        state = self.horizontal(left, self.planes(here), beside, horizontal)
                    outputs = self.read_out(state, here[..., :c])
                    here[..., c] = choose(outputs[:, 0, 0], (i, j, c))[:, None, None]
                left = self.planes(here)
            above = self.planes(codes[:, i : i + 1])
        return codes

    def matrices(self) -> dict[Tensor, int]:
        convs = [part for part in self.blocks.modules() if isinstance(part, Conv)]
        return {part.weight: getattr(part, "stacked", 1) for part in convs}


def groups(count: int, channels: int) -> Tensor:
    """Return the channel that each of `count` maps belongs to, as even parts."""
    return torch.arange(count) * channels // count


class HeadsOfMaps(nn.Module):
    """A last layer for each channel, which sees the maps that belong to channels up to its own."""

    def __init__(self, maps: int, outputs: int, channels: int) -> None:
        super().__init__()
        seen = [-(-maps * (c + 1) // channels) for c in range(channels)]
        self.layers = ModuleListOf(Dense(count, outputs, residual=True) for count in seen)

    def outputs(self, state: Tensor, before: Tensor) -> Tensor:
        layer = self.layers[before.shape[-1]]
        return layer(state[..., : layer.in_features])

    def last_layers(self) -> list[Dense]:
        return list(self.layers)


class PixelCNN(TwoStacks):
    """The gated PixelCNN (van den Oord et al. 2016).

    Maps of the horizontal stack belong to channels in order; at their own pixel they see earlier channels only.
    """

    def __init__(self, config: AxialTransformerConfig, width: int, hidden: int, layers: int = 8) -> None:
        super().__init__(config)
        channels = config.channels
        of_maps, of_hidden, of_inputs = (groups(count, channels) for count in (width, hidden, self.maps))
        self.above = Conv(self.maps + 1, width, 3, 7)
        self.left = Conv(self.maps + 1, width, 1, 3)
        self.own = Conv(self.maps, width, mask=of_maps[:, None] > of_inputs) if channels > 1 else None
        self.blocks = nn.ModuleList(GatedBlock(width, of_maps) for _ in range(layers))
        self.between = Conv(width, hidden, mask=of_hidden[:, None] >= of_maps)
        self.head = HeadsOfMaps(hidden, self.values.outputs, channels)
        self.start_head()

    def last_state(self, h: Tensor) -> Tensor:
        return F.relu(self.between(F.relu(h)))


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
    """PixelCNN++ (Salimans et al. 2017): gated residual blocks.

    Of one channel, it has its own mixture of discretised logistics. Of several, the axial model's chain of heads is in
    place of its linear conditioning of channels, with the ordinal mixture of all models in place of its own.

    Left out: down- and upsampling, and with them the long skips; dropout; weight normalisation. The horizontal stack
    looks at three pixels of its row instead of 2 x 2.
    """

    def __init__(self, config: AxialTransformerConfig, width: int, hidden: int, layers: int = 5) -> None:
        super().__init__(config, None if config.has_order else OwnMixture(config))
        self.above = Conv(self.maps + 1, width, 3, 7)
        self.left, self.own = Conv(self.maps + 1, width, 1, 3), None
        self.blocks = nn.ModuleList(ResidualBlock(width, hidden) for _ in range(layers))
        if config.channels > 1:
            self.head = ChainedHead(width, self.values.outputs, self.features, config.channels)
        else:
            self.head = Head(width, self.values.outputs)
            self.head[0] = nn.ELU()
        self.start_head()


class OwnMixture(OrdinalValues):
    """The mixture of discretised logistics of PixelCNN++: means and widths of values in -1..1."""

    trains_in_autocast = True

    @torch.no_grad()
    def start_head(self, last_layers: Sequence[Dense]) -> None:
        """Set the biases: equal mixtures would stay equal."""
        for last in last_layers:
            _, means, log_scales = last.bias.view(3, -1)
            means.copy_(torch.linspace(-1, 1, len(means)))
            log_scales.fill_(-2)

    def distribution(self, outputs: Tensor, centres: Tensor) -> Mixture:
        weights, means, log_scales = outputs.unflatten(-1, (3, -1)).unbind(-2)
        half = (self.num_values - 1) / 2
        precisions = (-log_scales.clamp(min=-7)).exp() / half
        return Mixture(weights, half * (1 + means), precisions, torch.zeros_like(centres), self.num_values)


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


class Kind(NamedTuple):
    """A peer, how many times the width `hidden` is (about), and what divides the width."""

    build: Callable[[AxialTransformerConfig, int, int], Peer]
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


def size_of(build: Callable[..., nn.Module], config: AxialTransformerConfig, *sizes: int) -> int:
    """Return the number of parameters of what `build` returns for a configuration and these sizes."""
    with torch.device("meta"):
        return size(build(config, *sizes))


@cache
def of_size(name: str, config: AxialTransformerConfig, parameters: int) -> tuple[int, int]:
    """Return width and hidden of the peer with so many parameters, within 2 %, that is nearest to its ratio."""
    kind, ratio, step = PEERS[name]
    counted = partial(size_of, kind, config)

    def rest(width: int, hidden: int) -> float:
        return abs(counted(width, hidden) / parameters - 1)

    wide = step * bisect_left(range(step, MAX_WIDTH, step), parameters, key=lambda n: counted(n, round(ratio * n)))
    widths = (wide, wide + step) if wide else (step,)  # a little too small, and a little too large
    candidates = [(n, bisect_left(range(MAX_WIDTH), parameters, lo=1, key=partial(counted, n))) for n in widths]
    found = [each for each in candidates if rest(*each) <= TOLERANCE]
    if not found:
        raise ValueError(f"no {name} has about {parameters} parameters")
    return min(found, key=lambda each: abs(log(each[1] / each[0] / ratio)))


WITHOUT_ATTENTION = "axial without attention"


def build(name: str, config: AxialTransformerConfig) -> Axial | Peer:
    """Return the axial model of a configuration; or another with as many parameters and the same kind of values."""
    axial = Axial(config)
    if name in PEERS:
        return PEERS[name].build(config, *of_size(name, config, size(axial)))
    if name == WITHOUT_ATTENTION:
        counted = partial(size_of, without_attention, config)
        return without_attention(
            config, bisect_left(range(8 * config.hidden), size(axial), lo=config.hidden, key=counted)
        )
    return axial
