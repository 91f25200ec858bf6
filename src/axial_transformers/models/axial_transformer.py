"""The Axial Transformer (Ho, Kalchbrenner, Weissenborn, Salimans 2019), for any number of axes.

e       = ChannelEncoder(x[channels < c], c, label)      unmasked attention over every axis
h       = embed_value(x[channel c])
context = position + e                                   grows inward
for outer in outer_decoders:                             one per axis but the last: outermost first
    context = context + shift(outer(h + context), axis)  depends on earlier positions of its axis only
logits  = head(inner(shift(h, last axis) + context))     masked over the last axis

Ordinal values: see `values`.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.blocks import ModuleListOf
from axial_transformers.layers.embeddings import Labels, Positions
from axial_transformers.models.arguments import Conditioning, labels_of
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.heads import ChainedHead, Head
from axial_transformers.models.hub_card import model_card
from axial_transformers.models.stacks import ChannelEncoder, InnerAttention, InnerLSTM, OuterDecoder, axis_attention
from axial_transformers.models.values import values_class
from axial_transformers.ops.elementwise import shift
from axial_transformers.ops.torch_private import COMPILED, is_shard, is_wrapper
from axial_transformers.storage import hub, model_folders
from axial_transformers.storage.typed_json import from_json, to_json

TENSORS_OF_A_LAYER = 12


def require_whole(name: str, weight: Tensor) -> None:
    """Raise ValueError if a weight is a shard."""
    if is_shard(weight):
        raise ValueError(
            f"the model's {name} is a shard (fully_shard): load full_tensor() of each weight into a new model"
        )


class AxialTransformer(nn.Module):
    """An exact-likelihood autoregressive model p(x) of integer tensors x[B, *A, C] of V values."""

    name = "axial_transformer"
    config_class = AxialTransformerConfig

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.config = config
        self.layout = config.bijection
        self.values = values_class(config)(config)
        self.encoder = ChannelEncoder(config, self.values) if config.encoder_layers else None
        self.labels = Labels(config.num_classes, config.dim) if config.num_classes else None
        self.embed_value = self.values.embedding(config.dim, self.layout.depth)
        self.position = Positions(self.layout.shape, config.dim)
        levels = range(len(self.layout.shape) - 1)
        self.outer_decoders = ModuleListOf(OuterDecoder(config, level) for level in levels)
        self.inner_decoder = self.build_inner(config)
        self.head: Head | ChainedHead = Head(config.dim, self.values.outputs)
        if self.layout.depth > 1:
            self.head = ChainedHead(config.dim, self.values.outputs, self.values.features, self.layout.depth)
        self.values.start_head(self.head.last_layers())

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention | InnerLSTM:
        """Return the inner decoder."""
        if config.inner == "lstm":
            return InnerLSTM(config)
        layers = range(config.inner_layers)
        return InnerAttention(config, (axis_attention(config, -2, causal=True) for _ in layers))

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        self.require_values()
        return self.position.tables[0].device

    def require_values(self) -> None:
        """Raise ValueError if the weights are on the meta device, or shards."""
        table = self.position.tables[0]
        if table.is_meta:
            raise ValueError("the model is on the meta device, without values: read it with from_pretrained")
        require_whole("position.tables.0", table)

    @property
    def slices(self) -> range:
        """Return the generated channels, after the layout."""
        return range(self.config.known_channels, self.layout.channels)

    @property
    def order(self) -> Integer[Tensor, "positions axes"]:
        """Return the generated positions (a1, .., ad, c) in data coordinates and generation order: int64 [P, d + 1]."""
        return self.layout.order[self.config.known_channels * torch.Size(self.layout.shape).numel() :]

    def forward(
        self,
        x: Integer[Tensor, "b *a c"],
        label: Integer[Tensor, " b"] | int | None = None,
        cond: Float[Tensor, "b *a d"] | None = None,
    ) -> Float[Tensor, "b *a c v"]:
        """Return the logits of every position, which depend only on positions before it in `order`.

        Args:
            x: [B, *A, C], any integer dtype, values lowest..lowest+V-1, on the CPU or the model's device like the
                other arguments.
            label: [B], classes 0..num_classes-1, or num_classes for unlabelled; one int for all. Default: unlabelled,
                which a model with `needs_label` refuses.
            cond: [B, *A, D], added to the channel encoder's input or, without one, to the positions.

        Returns:
            [B, *A, C, V] unnormalised log-probabilities; zeros for known channels.

        Raises:
            ValueError: a shape, dtype or value that the model does not take.
        """
        x = self.check(x)
        outputs = self.outputs(x, label, cond)
        centres = self.values.centres(self.values.codes(x))
        logits = self.layout.to_model(self.values.distribution(outputs, centres).log_probabilities())
        known = torch.arange(self.layout.channels, device=logits.device) < self.config.known_channels
        return self.layout.to_data(logits.masked_fill(known[:, None, None], 0.0))

    def outputs(
        self,
        x: Integer[Tensor, "b *a c"],
        label: Integer[Tensor, " b"] | int | None = None,
        cond: Float[Tensor, "b *a d"] | None = None,
    ) -> Float[Tensor, "b *a c o"]:
        """Return what the head gives for every position, from which `values` makes distributions; see `forward`.

        x is from `check`.
        """
        channels = (torch.full((len(x),), c, device=x.device) for c in self.slices)
        slices = [self.slice_and_outputs(x, channel, label, cond)[1] for channel in channels]
        known = [torch.zeros_like(slices[0])] * self.config.known_channels
        return self.layout.to_data(torch.stack(known + slices, dim=-3))

    def slice_and_outputs(
        self,
        x: Integer[Tensor, "b *a c"],
        channel: Integer[Tensor, " b"],
        label: Integer[Tensor, " b"] | int | None = None,
        cond: Float[Tensor, "b *a d"] | None = None,
    ) -> tuple[Integer[Tensor, "b *s p"], Float[Tensor, "b *s p o"]]:
        """Return the codes [B, *A', P] of one slice per example, and what the head gives for it [B, *A', P, O].

        x is from `check`. P is 1, but for layout `pixels` the number of channels.
        """
        conditioning = self.embed_conditioning(len(x), Conditioning(labels_of(label, len(x)), cond))
        if channel.shape != x.shape[:1]:
            raise ValueError(f"channel must be [{len(x)}], a slice for each example, not {list(channel.shape)}")
        channel = channel.to(x.device)
        y = self.layout.to_model(self.values.codes(x))
        context = self.context(y, channel, conditioning)
        codes = _slice(y, channel)
        h = self.embed_value(codes)
        for outer in self.outer_decoders:
            context = outer(h, context)
        state = self.inner_decoder(context + shift(h, -2))
        outputs = [self.read_out(state, codes[..., :p]) for p in range(self.layout.depth)]
        return codes, torch.stack(outputs, dim=-2)

    def read_out(self, state: Float[Tensor, "*s d"], before: Integer[Tensor, "*s p"]) -> Float[Tensor, "*s o"]:
        """Return what the head gives for value p of positions, by their last states and the codes before it.

        It is in the dtype of the head's weights, also under autocast.

        Logits of bfloat16 tie at the top: the most likely value would depend on the device. Steps of training leave
        some kinds of values to autocast.
        """
        learns = self.training and torch.is_grad_enabled()
        left = learns and self.values.trains_in_autocast
        if left or state.is_meta or not torch.is_autocast_enabled(state.device.type):  # on meta nothing is rounded
            return self.head.outputs(state, before)
        with torch.autocast(state.device.type, enabled=False):
            return self.head.outputs(state.to(next(self.head.parameters()).dtype), before)

    def fit_values(self, x: Integer[Tensor, "n *a c"]) -> None:
        """Fit what a new model needs to know of its ordinal values to examples: prediction and first distribution.

        A model whose values were fitted or trained keeps them.
        """
        self.values.fit(self.check(x), self.head.last_layers())

    def context(
        self,
        y: Integer[Tensor, "b *s c p"],
        channel: Integer[Tensor, " b"],
        conditioning: Float[Tensor, "b *g d"] | float,
    ) -> Float[Tensor, "..."]:
        e = self.encoder(y.squeeze(-1), channel, conditioning) if self.encoder else conditioning
        return self.position() + e

    def embed_conditioning(self, batch: int, conditioning: Conditioning) -> Float[Tensor, "b *g d"] | float:
        """Return the embedded conditioning, in model coordinates, or 0."""
        label, cond = conditioning
        embedded: Tensor | float = 0.0
        device = self.position.tables[0].device
        if self.labels:
            if label is not None:
                label = _check_label(label, batch, self.config).to(device)
            elif self.config.needs_label:
                advice = f"give classes in 0..{self.labels.classes - 1}"
                raise ValueError(f"label is missing, and the model was trained with labels only: {advice}")
            embedded = self.labels(label, batch).view(batch, *(1,) * len(self.layout.shape), self.config.dim)
        elif label is not None:
            raise ValueError("label is given, but the model has no model.num_classes")
        if cond is not None:
            if cond.shape != (batch, *self.config.shape, self.config.dim):
                raise ValueError(f"cond must be {[batch, *self.config.shape, self.config.dim]}, not {list(cond.shape)}")
            embedded = embedded + self.layout.expand_cond(cond.to(device))
        return embedded

    def check(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return values of the data from 0, int64 on the model's device: x - lowest, or ranks; checked on the CPU only.

        All that is inside counts values from 0; `to_data` returns those of the data.
        """
        config = self.config
        if not x.is_meta:
            self.require_values()
        if x.is_floating_point() or x.is_complex():
            raise ValueError(f"x must hold integers, not {x.dtype}")
        if tuple(x.shape[1:]) != (*config.shape, config.channels):
            raise ValueError(
                f"x must be [B, {', '.join(map(str, (*config.shape, config.channels)))}], not {list(x.shape)}"
            )
        values = x.long()
        device = self.position.tables[0].device
        if x.device.type == "cpu" and x.numel() and (values.min() < config.lowest or values.max() > config.highest):
            found = f"{values.min().item()}..{values.max().item()}"
            raise ValueError(f"x must be in {config.lowest}..{config.highest}; found {found}")
        if config.levels and not values.is_meta:
            values = ranks_among(config.levels, values)
            return values if values.device == device else values.to(device)
        values = values if values.device == device else x.to(device).long()
        return values - config.lowest if config.lowest else values

    def to_data(self, values: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return values that count from 0 as those of the data: the inverse of `check`."""
        if self.config.levels:
            return torch.tensor(self.config.levels, device=values.device)[values]
        return values + self.config.lowest

    def save_pretrained(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the model folder: config.json and model.safetensors.

        Args:
            overwrite: replace a folder that holds only these files.

        Raises:
            ValueError: the model is on the meta device, or its weights are not what `from_pretrained` reads.
            FileExistsError: `folder` is not empty or, with `overwrite`, no such folder.
        """
        self.require_values()
        with torch.device("meta"):
            expected = type(self)(self.config).state_dict()
        weights = {name.replace(COMPILED, ""): weight for name, weight in self.state_dict().items()}
        for name, weight in weights.items():
            require_whole(name, weight)
            if is_wrapper(weight):
                raise ValueError(f"{name} is a {type(weight).__name__}: save the model before it is quantised")
        model_folders.save(folder, self.name, to_json(self.config), weights, expected, overwrite)

    def push_to_hub(
        self, repository: str, *, private: bool | None = None, revision: str | None = None, card: str | None = None
    ) -> str:
        """Upload the model folder and a model card to the Hugging Face hub, as one commit.

        Args:
            repository: "owner/name"; created if missing.
            private: visibility of a new repository; default: the owner's. True refuses an existing public one.
            revision: the branch, created if missing; default: main.
            card: text of README.md; default: a description of the configuration.

        Returns:
            The address of the commit.

        Raises:
            ValueError: the model is on the meta device, or a wrong name.
            PermissionError: not logged in, or refused.
            OSError: another failure.
        """
        hub.require_repository(repository)
        with TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            self.save_pretrained(folder)
            text = model_card(self, self.config, repository) if card is None else card
            (folder / hub.CARD).write_text(text, encoding="utf-8")
            files = {file.name: file for file in folder.iterdir()}
            message = f"Upload {self.name} by axial-transformers"
            return hub.upload(repository, files, message=message, private=private, revision=revision)

    @classmethod
    def read_config(cls, folder: str | Path) -> AxialTransformerConfig:
        """Return the configuration of a folder or hub id; see `from_pretrained`."""
        folder = model_folders.locate(folder)
        return from_json(cls.config_class, model_folders.load_config(folder, cls.name), folder / model_folders.CONFIG)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, revision: str | None = None) -> Self:
        """Return the model of a folder, in evaluation mode on the CPU; 16-bit weights become float32.

        Args:
            folder: a model folder; a model in the package, such as "fashion_mnist", unless that is a folder; or a hub
                id, "owner/name" or "owner/name@revision".
            revision: branch, tag or commit on the hub; default: what the id names, or main.

        Raises:
            ValueError: damaged files; weights that do not fit, mix dtypes, or hold NaN or infinity; or a revision of a
                folder.
            FileNotFoundError: no such folder, hub id or revision, or no connection.
            OSError: another failure.
        """
        folder = model_folders.locate(folder, revision)
        config = cls.read_config(folder)
        # Building many layers takes seconds.
        if (found := model_folders.count_tensors(folder)) < (least := TENSORS_OF_A_LAYER * config.layers):
            raise ValueError(
                f"{folder / model_folders.WEIGHTS}: these are not the weights of this configuration: {config.layers} "
                f"layers have at least {least} tensors, not {found}"
            )
        with torch.device("meta"):
            model = cls(config)
        model.load_state_dict(model_folders.load_tensors(folder, model.state_dict()), assign=True)
        return model.requires_grad_().eval()


def ranks_among(levels: Sequence[int], values: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
    """Return the ranks of values among ascending levels, int64; on the CPU, ValueError for one that is none of them."""
    known = torch.tensor(levels, device=values.device)
    ranks = torch.searchsorted(known, values.contiguous()).clamp_(max=len(levels) - 1)
    if values.device.type != "cpu":
        return ranks
    others = values[known[ranks] != values]
    if len(others):
        raise ValueError(f"x holds {others[0].item()}, which is none of the {len(levels):,} values in model.levels")
    return ranks


def _slice(y: Integer[Tensor, "b *s c p"], channel: Integer[Tensor, " b"]) -> Integer[Tensor, "b *s p"]:
    index = channel.view(-1, *(1,) * (y.ndim - 1)).expand(*y.shape[:-2], 1, y.shape[-1])
    return y.long().gather(-2, index).squeeze(-2)


def _check_label(label: Tensor, batch: int, config: AxialTransformerConfig) -> Tensor:
    classes = config.num_classes or 0
    highest = classes - 1 if config.needs_label else classes
    unlabelled = "" if config.needs_label else f", or {classes} for unlabelled"
    expected = f"label must be [{batch}] classes in 0..{classes - 1}{unlabelled}"
    if label.shape != (batch,) or label.is_floating_point() or label.is_complex():
        raise ValueError(f"{expected}, not {label.dtype} {list(label.shape)}")
    if batch and label.device.type == "cpu" and (label.min() < 0 or label.max() > highest):
        raise ValueError(f"{expected}; found {label.min().item()}..{label.max().item()}")
    return label.long()
