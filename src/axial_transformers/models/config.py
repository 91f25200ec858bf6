"""The configuration: with the weights, it rebuilds the model."""

from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Literal

from axial_transformers.data.config import MIN_STEP
from axial_transformers.messages import Message
from axial_transformers.models.layouts import LAYOUTS, Layout

if TYPE_CHECKING:
    from axial_transformers.data.grid import Grid

MAXIMUM = 1 << 20
"""A damaged file must not allocate without limit."""
MAX_VALUES = 1 << 16
MAX_AXES = 8
MAX_LAYERS = 1024
MAX_WINDOW = 4096
"""Positions in the window of a convolution."""


@dataclass(frozen=True, kw_only=True)
class AxialTransformerConfig:
    """An Axial Transformer over data x[B, *shape, channels] of `num_values` values per position.

    One transformer block over one axis is one layer, as in the paper.

    Raises:
        ValueError: a field is out of range, or fields contradict each other; the message names them.
    """

    shape: tuple[int, ...]
    """Sizes of the data's axes, outermost first: (height, width), (frames, height, width), (length,), ..."""
    channels: int = 1
    """Channels of the data."""
    num_values: int = 256
    """Number of values V that a position can take."""
    lowest: int = 0
    """The smallest value of the data; values are lowest .. lowest + V - 1."""

    grid: tuple[float, float] | None = None
    """Step and offset of the floats that values are of: offset + step * value. None: values are those of the data."""
    num_classes: int | None = None
    """Number of classes of a class-conditional model; None: no labels."""
    known_channels: int = 0
    """Number of first channels (after the layout) that are given, not generated."""
    layout: Literal["channels", "rows", "columns", "axis", "frames", "raster"] = "channels"
    """Arrangement of channels and frames in the model; see `layouts.py`."""
    values: Literal["categorical", "ordinal"] = "categorical"
    """Kind of the values: without an order, by a softmax of V logits (the paper); or with an order, by a mixture of
    logistic distributions, for images, scans and measurements.
    """
    mixtures: int = 10
    """Logistic distributions in the mixture of an ordinal value."""
    max_log_precision: float = 2.5
    """Largest log precision of a logistic distribution. At 2.5, a bin holds 0.995 of it. Narrower ones gain little, and
    no gradient holds their means inside the bin.
    """
    centred: bool = False
    """Centre ordinal values on a linear prediction from earlier neighbours, fitted to the training data."""
    dim: int = 128
    """Width D of the model."""
    heads: int = 4
    """Attention heads, each D / heads wide."""
    mlp_ratio: float = 4.0
    """Hidden width of the feedforward blocks, divided by D."""
    encoder_layers: int | None = None
    """Layers of the channel encoder, a multiple of the number of axes; 0, for one channel only: no encoder. None: one
    round for several channels (after the layout), otherwise 0.
    """
    outer_layers: int | tuple[int, ...] | None = None
    """Layers of each outer decoder (one per axis but the last, outermost first), a multiple of the number of axes from
    its own inward. 0, as in the paper's row-wise model: nothing depends on earlier positions of its axis. None: two
    rounds each, 4 for images.
    """
    inner_layers: int = 4
    """Layers of the inner decoder."""
    inner: Literal["attention", "lstm"] = "attention"
    """Inner decoder: masked row attention, or one LSTM layer over the row."""
    channel_planes: Literal["one_hot", "index"] = "one_hot"
    """Planes that name the current channel c: one per channel (authors' code), or one of c/C (figure 3)."""
    input_divisor: int | None = None
    """Divisor of earlier channels' values in the channel encoder; None: V - 1. The authors' code has 255 for any V."""
    convolution: int = 0
    """Reach, in pixels, of a convolution of the values in earlier slabs (rows of an image, frames of a clip) that every
    outer decoder adds to its context. 0, as in the paper: none.
    """
    dropout: float = 0.0
    """Dropout probability on the residual branches."""
    rotary: float | None = None
    """Base of rotary positions (Su et al. 2021) beside the learned ones: angles at position p are p rotary^(-2j / K),
    for heads K wide. None, as in the paper: no rotary positions.
    """

    def __post_init__(self) -> None:
        self._check_settings()
        self._check_shape()

    def _check_settings(self) -> None:
        """Raise ValueError for what is wrong with data of any shape."""
        for name in ("channels", "dim", "heads", "inner_layers"):
            size = getattr(self, name)
            _require(1 <= size <= MAXIMUM, "{" + name + "} must be between 1 and {}, not {}", MAXIMUM, size)
        _require(
            2 <= self.num_values <= MAX_VALUES,
            "{model.num_values} must be between 2 and {}, not {}", MAX_VALUES, self.num_values,
        )  # fmt: skip
        _require(
            self.lowest >= -(1 << 31) and self.highest < 1 << 31,
            "{model.lowest} must leave all values within 32 bits, not be {}", self.lowest,
        )  # fmt: skip
        _require(
            self.grid is None or (all(map(isfinite, self.grid)) and self.grid[0] >= MIN_STEP),
            "{model.grid} must be a step above 0 and an offset, not {}", self.grid,
        )  # fmt: skip
        _require(
            self.num_classes is None or 1 <= self.num_classes <= MAXIMUM,
            "{num_classes} must be None or between 1 and {}, not {}", MAXIMUM, self.num_classes,
        )  # fmt: skip
        _require(
            self.input_divisor is None or 1 <= self.input_divisor <= MAXIMUM,
            "{input_divisor} must be None or between 1 and {}, not {}", MAXIMUM, self.input_divisor,
        )  # fmt: skip
        _require(self.dim % self.heads == 0, "{dim} {} must be a multiple of {heads} {}", self.dim, self.heads)
        _require(1 / self.dim <= self.mlp_ratio <= 64, "{mlp_ratio} must be in [1/dim, 64], not {}", self.mlp_ratio)
        _require(0 <= self.convolution <= 8, "{convolution} must be between 0 and 8, not {}", self.convolution)
        _require(0 <= self.dropout < 1, "{dropout} must be in [0, 1), not {}", self.dropout)
        _require(
            self.rotary is None or 1 < self.rotary <= MAXIMUM,
            "{rotary} must be None or a base above 1 and up to {}, not {}", MAXIMUM, self.rotary,
        )  # fmt: skip
        _require(
            self.rotary is None or self.dim // self.heads % 2 == 0,
            "{dim} / {heads} is {}, but rotary positions rotate pairs of numbers: make it even, or {rotary} None",
            self.dim // self.heads,
        )
        _require(self.layout in LAYOUTS, "{layout} must be one of {}, not {!r}", ", ".join(LAYOUTS), self.layout)
        _require(self.inner in ("attention", "lstm"), "{inner} must be attention or lstm, not {!r}", self.inner)
        _require(
            self.values in ("categorical", "ordinal"), "{values} must be categorical or ordinal, not {!r}", self.values
        )
        _require(
            self.values == "ordinal" or not self.centred,
            "{centred} needs values with an order: choose {values=ordinal} or {centred=False}",
        )
        _require(
            -4 <= self.max_log_precision <= 5,
            "{max_log_precision} must be between -4 and 5, not {}", self.max_log_precision,
        )  # fmt: skip
        _require(1 <= self.mixtures <= 256, "{mixtures} must be between 1 and 256, not {}", self.mixtures)
        _require(
            self.channel_planes in ("one_hot", "index"),
            "{channel_planes} must be one_hot or index, not {!r}", self.channel_planes,
        )  # fmt: skip
        _require(
            self.inner == "attention" or self.inner_layers == 1,
            "an lstm inner decoder is one layer: set {inner_layers} to 1",
        )

    def _check_shape(self) -> None:
        """Raise ValueError for a wrong shape, and for settings that do not fit it; replace None by numbers."""
        _require(1 <= len(self.shape) <= MAX_AXES, "{shape} must have 1 to {} axes, not {}", MAX_AXES, len(self.shape))
        for i, size in enumerate(self.shape):
            _require(1 <= size <= MAXIMUM, f"{{shape}}[{i}] must be between 1 and {{}}, not {{}}", MAXIMUM, size)
        layout = self.bijection
        axes = len(layout.shape)
        self._fill_in(layout)
        reach, side = self.convolution, 2 * self.convolution + 1
        window = reach * side ** (axes - 1)
        _require(
            window <= MAX_WINDOW,
            "{convolution=} over {} axes sees {} x {}^{} = {:,} positions, more than {:,}: choose a smaller one",
            axes, reach, side, axes - 1, window, MAX_WINDOW, convolution=reach,
        )  # fmt: skip
        _require(prod(layout.shape) * layout.channels <= 1 << 31, "{shape} {} has too many positions", self.shape)
        _require(layout.channels <= MAXIMUM, f"{layout.channels} channels are more than {MAXIMUM}")
        _require(
            0 <= self.known_channels < layout.channels,
            "{known_channels} must be in 0..{}, not {}", layout.channels - 1, self.known_channels,
        )  # fmt: skip
        _check_layers("{encoder_layers}", self.layers_of_encoder, axes)
        _require(
            self.layers_of_encoder > 0 or layout.channels == 1,
            "{} channels need a channel encoder: set {encoder_layers} to at least {}", layout.channels, axes,
        )  # fmt: skip
        if isinstance(self.outer_layers, tuple):
            _require(
                len(self.outer_layers) == axes - 1,
                "{outer_layers} has {} numbers; {} axes have {} outer decoders",
                len(self.outer_layers), axes, axes - 1,
            )  # fmt: skip
        for level, layers in enumerate(self.layers_of_outer_decoders):
            _check_layers(f"{{outer_layers}}[{level}]", layers, axes - level)
        _require(
            self.layers <= MAX_LAYERS,
            "{encoder_layers}, {outer_layers} and {inner_layers} add up to {}, more than {}", self.layers, MAX_LAYERS,
        )  # fmt: skip

    def _fill_in(self, layout: Layout) -> None:
        """Replace None by numbers: stored files do not depend on later defaults."""
        axes = len(layout.shape)
        if self.encoder_layers is None:
            object.__setattr__(self, "encoder_layers", axes if layout.channels > 1 else 0)
        if self.outer_layers is None:
            rounds = tuple(2 * (axes - level) for level in range(axes - 1))
            object.__setattr__(self, "outer_layers", rounds if axes > 2 else 4)

    @property
    def bijection(self) -> Layout:
        return LAYOUTS[self.layout](self.shape, self.channels)

    @property
    def layers_of_encoder(self) -> int:
        assert self.encoder_layers is not None
        return self.encoder_layers

    @property
    def layers_of_outer_decoders(self) -> tuple[int, ...]:
        assert self.outer_layers is not None
        if isinstance(self.outer_layers, tuple):
            return self.outer_layers
        return (self.outer_layers,) * (len(self.bijection.shape) - 1)

    @property
    def highest(self) -> int:
        return self.lowest + self.num_values - 1

    @property
    def floats(self) -> "Grid | None":
        """Return the floats that values are of."""
        from axial_transformers.data.grid import Grid  # numpy is slow to import

        return self.grid and Grid(*self.grid)

    @property
    def of_bytes(self) -> bool:
        """Return True if all values are in 0..255."""
        return self.lowest >= 0 and self.highest < 256

    @property
    def divisor(self) -> int:
        return self.num_values - 1 if self.input_divisor is None else self.input_divisor

    @property
    def num_logits(self) -> int:
        """Return how many numbers the head gives for a position."""
        return 3 * self.mixtures if self.values == "ordinal" else self.num_values

    @property
    def layers(self) -> int:
        """Return the layers of all stacks: at most 1,024."""
        return self.layers_of_encoder + sum(self.layers_of_outer_decoders) + self.inner_layers

    @property
    def hidden(self) -> int:
        return round(self.mlp_ratio * self.dim)

    def _describe_values(self) -> str:
        if self.values == "categorical":
            return self.values
        centred = ", centred on a linear prediction" if self.centred else ""
        return f"ordinal, mixtures of {self.mixtures}{centred}"

    def describe(self) -> dict[str, str]:
        """Return rows (name, value)."""
        data = " x ".join(map(str, (*self.shape, self.channels)))
        known = f", the first {self.known_channels} channels given" if self.known_channels else ""
        classes = "" if self.num_classes is None else f", {self.num_classes} classes"
        inner = str(self.inner_layers) if self.inner == "attention" else "LSTM"
        outer = " + ".join(map(str, self.layers_of_outer_decoders)) or "none"
        return {
            "data": f"{data}, values {self.lowest}..{self.highest}{known}{classes}",
            "width": f"{self.dim} in {self.heads} heads of {self.dim // self.heads}",
            "layers": f"encoder {self.encoder_layers}, outer {outer}, inner {inner}",
            "layout": self.layout,
            "values": self._describe_values(),
            "convolution": f"reaches {self.convolution} pixels" if self.convolution else "none",
            "positions": "learned" + ("" if self.rotary is None else f", rotary of base {self.rotary:g}"),
        }


def _require(condition: bool, otherwise: str, *values: object, **settings: object) -> None:
    if not condition:
        raise ValueError(Message(otherwise, *values, **settings))


def _check_layers(name: str, layers: int, axes: int) -> None:
    _require(0 <= layers <= MAX_LAYERS, name + " must be between 0 and {}, not {}", MAX_LAYERS, layers)
    one = f"one round over {axes} axes is {axes} layers: choose a multiple"
    _require(layers % axes == 0, name + " is {}, but {}", layers, one)
