"""The configuration: with the weights, it rebuilds the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

from axial_transformers.data.config import check_grid
from axial_transformers.models.layouts import LAYOUTS, Layout
from axial_transformers.storage.settings import SHARE, Bounds, check_settings
from axial_transformers.wording import counted

if TYPE_CHECKING:
    from axial_transformers.data.grid import Grid
    from axial_transformers.data.value_range import ValueRange

MAXIMUM = 1 << 20
"""A damaged file must not allocate without limit."""
MAX_VALUES = 1 << 16
MAX_LEVELS = 1 << 12
MAX_AXES = 8
MAX_LAYERS = 1024
ORDERED = ("ordinal",)
"""Kinds of values with an order; `models.values` has all kinds."""
MAX_WINDOW = 4096
"""Positions in the window of a convolution."""
MAX_DEPTH = 8
"""Values of a position."""
SIZE = Bounds(least=1, most=MAXIMUM)
LAYERS = Bounds(least=0, most=MAX_LAYERS)


@dataclass(frozen=True, kw_only=True)
class AxialTransformerConfig:
    """An Axial Transformer over data x[B, *shape, channels] of `num_values` values per position.

    One transformer block over one axis is one layer, as in the paper.

    Raises:
        ValueError: a field is out of range, or fields contradict each other; the message names them.
    """

    shape: Annotated[tuple[int, ...], SIZE]
    """Sizes of the data's axes, outermost first: (height, width), (frames, height, width), (length,), ..."""
    channels: Annotated[int, SIZE] = 1
    """Channels of the data."""
    num_values: Annotated[int, Bounds(least=2, most=MAX_VALUES)] = 256
    """Number of values V that a position can take."""
    lowest: int = 0
    """The smallest value of the data; values are lowest .. lowest + V - 1."""
    levels: Annotated[tuple[int, ...] | None, Bounds(least=-(1 << 31), most=(1 << 31) - 1)] = None
    """The V values that occur, in ascending order, if these are few of a wide range: the model codes their ranks."""
    grid: tuple[float, float] | None = None
    """Step and offset of the floats that values are of: offset + step * value. None: values are those of the data."""
    num_classes: Annotated[int | None, SIZE] = None
    """Number of classes of a class-conditional model; None: no labels."""
    needs_label: bool = False
    """Refuse examples without a class. Training sets it: true if no label was hidden (training.label_dropout=0)."""
    known_channels: int = 0
    """Number of first channels (after the layout) that are given, not generated."""
    layout: Literal["channels", "rows", "columns", "axis", "frames", "raster", "pixels"] = "channels"
    """Arrangement of channels and frames in the model; see `layouts.py`."""
    values: Literal["categorical", "ordinal"] = "categorical"
    """Kind of the values: without an order, by a softmax of V logits (the paper); or with an order, by a mixture of
    logistic distributions, for images, scans and measurements.
    """
    mixtures: Annotated[int, Bounds(least=1, most=256)] = 10
    """Logistic distributions in the mixture of an ordinal value."""
    max_log_precision: Annotated[float, Bounds(least=-4, most=5)] = 2.5
    """Largest log precision of a logistic distribution. At 2.5, a bin holds 0.995 of it. Narrower ones gain little, and
    no gradient holds their means inside the bin.
    """
    centred: bool = False
    """Centre ordinal values on a linear prediction from earlier neighbours, fitted to the training data."""
    activity: bool = False
    """Count means and widths of every second component of the mixture in units of the size of differences that earlier
    neighbours lead to expect, fitted to the training data.
    """
    dim: Annotated[int, SIZE] = 128
    """Width D of the model."""
    heads: Annotated[int, SIZE] = 4
    """Attention heads, each D / heads wide."""
    mlp_ratio: Annotated[float, Bounds(above=0, most=64)] = 4.0
    """Hidden width of feedforward blocks and gated convolutions, divided by D."""
    gated_convolutions: Annotated[int, Bounds(least=0, most=8)] = 0
    """Gated convolutions that each layer of outer and inner decoders has in place of a feedforward block. 0, as in the
    paper: feedforward blocks.
    """
    encoder_layers: Annotated[int | None, LAYERS] = None
    """Layers of the channel encoder, a multiple of the number of axes; 0, for one channel only: no encoder. None: one
    round for several channels (after the layout), otherwise 0.
    """
    outer_layers: Annotated[int | tuple[int, ...] | None, LAYERS] = None
    """Layers of each outer decoder (one per axis but the last, outermost first), a multiple of the number of axes from
    its own inward. 0, as in the paper's row-wise model: nothing depends on earlier positions of its axis. None: two
    rounds each, 4 for images.
    """
    inner_layers: Annotated[int, Bounds(least=1, most=MAX_LAYERS)] = 4
    """Layers of the inner decoder."""
    inner: Literal["attention", "lstm"] = "attention"
    """Inner decoder: masked row attention, or one LSTM layer over the row."""
    channel_planes: Literal["one_hot", "index"] = "one_hot"
    """Planes that name the current channel c: one per channel (authors' code), or one of c/C (figure 3)."""
    input_divisor: Annotated[int | None, SIZE] = None
    """Divisor of earlier channels' values in the channel encoder; None: V - 1. The authors' code has 255 for any V."""
    dropout: Annotated[float, SHARE] = 0.0
    """Dropout probability on the residual branches."""
    rotary: Annotated[float | None, Bounds(above=1, most=MAXIMUM)] = None
    """Base of rotary positions (Su et al. 2021) beside the learned ones: angles at position p are p rotary^(-2j / K),
    for heads K wide. None, as in the paper: no rotary positions.
    """

    def __post_init__(self) -> None:
        check_settings(self, "model.")
        check_grid(self.grid, "model.")
        self._check_together()
        self._check_shape()

    def _check_together(self) -> None:
        """Raise ValueError for settings that contradict each other, with data of any shape."""
        width = self.dim // self.heads
        odd = self.dim // self.heads % 2
        ends = f"{self.lowest}..{self.highest}"
        if self.levels is not None:
            _require(len(self.levels) <= MAX_LEVELS, f"model.levels are {len(self.levels):,}, more than {MAX_LEVELS:,}")
            ascending = all(low < high for low, high in pairwise(self.levels))
            _require(
                len(self.levels) == self.num_values and self.levels[0] == self.lowest and ascending,
                "model.levels must be model.num_values values in ascending order, from model.lowest on",
            )
        _require(self.lowest >= -(1 << 31) and self.highest < 1 << 31, f"model.lowest: {ends} are beyond 32 bits")
        _require(self.dim % self.heads == 0, f"model.dim {self.dim} must be a multiple of model.heads {self.heads}")
        _require(self.dim * self.mlp_ratio >= 1, f"model.mlp_ratio {self.mlp_ratio} is below 1 / model.dim")
        _require(
            self.rotary is None or not odd,
            f"model.dim / model.heads is {width}, but model.rotary rotates pairs of numbers: make it even",
        )
        _require(self.layout in LAYOUTS, f"model.layout must be one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        _require(
            self.has_order or not self.centred,
            "model.centred needs values with an order: choose model.values=ordinal or model.centred=False",
        )
        _require(
            self.centred or not self.activity,
            "model.activity needs predictions: choose model.centred=True or model.activity=False",
        )
        _require(
            self.inner == "attention" or self.inner_layers == 1,
            "an lstm inner decoder is one layer: set model.inner_layers to 1",
        )

    def _check_shape(self) -> None:
        """Raise ValueError for a wrong shape, and for settings that do not fit it; replace None by numbers."""
        sizes = len(self.shape)
        layers = "model.encoder_layers, model.outer_layers and model.inner_layers"
        _require(1 <= sizes <= MAX_AXES, f"model.shape must have 1 to {MAX_AXES} axes, not {sizes}")
        layout = self.bijection
        axes = len(layout.shape)
        channels = layout.channels
        self._fill_in(layout)
        _require(
            not self.gated_convolutions or 2 * 3 ** (axes - 1) <= MAX_WINDOW,
            f"{axes} axes are too many for model.gated_convolutions: choose 0",
        )
        if self.layout == "pixels":
            self._check_pixels()
        _require(prod(self.shape) * self.channels <= 1 << 31, f"model.shape {self.shape} has too many positions")
        _require(channels <= MAXIMUM, f"{channels} channels are more than {MAXIMUM}")
        _require(
            0 <= self.known_channels < channels,
            f"model.known_channels must be in 0..{channels - 1} for model.layout={self.layout}, not "
            f"{self.known_channels}",
        )
        _check_round("model.encoder_layers", self.layers_of_encoder, axes)
        _require(
            self.layers_of_encoder > 0 or channels == 1,
            f"{channels} channels need a channel encoder: set model.encoder_layers to at least {axes}",
        )
        if isinstance(self.outer_layers, tuple):
            found = f"model.outer_layers has {len(self.outer_layers)} numbers; "
            _require(len(self.outer_layers) == axes - 1, f"{found}{axes} axes have {axes - 1} outer decoders")
        for level, number in enumerate(self.layers_of_outer_decoders):
            _check_round(f"model.outer_layers[{level}]", number, axes - level)
        _require(self.layers <= MAX_LAYERS, f"{layers} add up to {self.layers}, more than {MAX_LAYERS}")

    def _check_pixels(self) -> None:
        """Raise ValueError for what a model with one position a pixel does not have."""
        _require(
            self.has_order,
            "model.layout=pixels needs values with an order: choose model.values=ordinal or model.layout=columns",
        )
        _require(
            2 <= self.channels <= MAX_DEPTH,
            f"model.layout=pixels is for 2 to {MAX_DEPTH} channels, not {self.channels}: choose model.layout=columns",
        )
        _require(
            not self.layers_of_encoder,
            "model.layout=pixels has no channel encoder: set model.encoder_layers to 0, or choose model.layout=columns",
        )
        _require(
            not self.known_channels,
            "model.layout=pixels generates all channels: choose model.known_channels=0 or model.layout=channels",
        )

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
        return self.levels[-1] if self.levels else self.lowest + self.num_values - 1

    @property
    def range(self) -> "ValueRange":
        """Return the values that the model knows."""
        from axial_transformers.data.value_range import ValueRange  # numpy is slow to import

        return ValueRange(self.lowest, self.highest, self.floats)

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
        return self.input_divisor or self.num_values - 1

    def names_of_classes(self, known: Sequence[str] | None) -> tuple[str, ...]:
        """Return a name for each class: the known one, or else its number."""
        names = known or ()
        count = self.num_classes or 0
        return (*names[:count], *map(str, range(len(names), count)))

    @property
    def has_order(self) -> bool:
        """Return True if the values have an order."""
        return self.values in ORDERED

    @property
    def layers(self) -> int:
        """Return the layers of all stacks: at most 1,024."""
        return self.layers_of_encoder + sum(self.layers_of_outer_decoders) + self.inner_layers

    @property
    def hidden(self) -> int:
        return round(self.mlp_ratio * self.dim)

    def _describe_values(self) -> str:
        mixtures = f", mixtures of {self.mixtures}" if self.has_order else ""
        centred = ", centred on a linear prediction" if self.centred else ""
        activity = ", in units of an activity" if self.activity else ""
        return f"{self.values}{mixtures}{centred}{activity}"

    def describe(self) -> dict[str, str]:
        """Return rows (name, value)."""
        data = " x ".join(map(str, (*self.shape, self.channels)))
        known = f", the first {self.known_channels} channels given" if self.known_channels else ""
        needed = ", one of which is needed" if self.needs_label else ""
        classes = f", {self.num_classes} classes{needed}" if self.num_classes else ""
        few = f", {self.num_values:,} of which occur" if self.levels else ""
        inner = str(self.inner_layers) if self.inner == "attention" else "LSTM"
        outer = " + ".join(map(str, self.layers_of_outer_decoders)) or "none"
        return {
            "data": f"{data}, values {self.lowest}..{self.highest}{few}{known}{classes}",
            "width": f"{self.dim} in {counted(self.heads, 'head')} of {self.dim // self.heads}",
            "layers": f"encoder {self.encoder_layers}, outer {outer}, inner {inner}",
            "layout": self.layout,
            "values": self._describe_values(),
            "gated convolutions": f"{self.gated_convolutions} a layer" if self.gated_convolutions else "none",
            "positions": "learned" + (f", rotary of base {self.rotary:g}" if self.rotary else ""),
        }


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _check_round(name: str, layers: int, axes: int) -> None:
    one = f"one round over {axes} axes is {axes} layers: choose a multiple"
    _require(layers % axes == 0, f"{name} is {layers}, but {one}")
