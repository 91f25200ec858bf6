"""Settings: how a run trains, and the whole run, which a recipe or a command makes and `train.json` keeps."""

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from axial_transformers.data.config import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.settings import COUNT, MAX_NUMBER, POSITIVE, SHARE, Bounds, check_settings

if TYPE_CHECKING:  # settings are read and checked without torch
    import torch

RUN_RECORD = "train.json"
UPDATES = Bounds(least=0, most=MAX_NUMBER)
AUTO = ("precision", "compile")
"""Settings that the device or the run to resume decides, if they are `auto`."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training run, by default the published ones (Ho et al. 2019, section 4); see `as_released`."""

    steps: Annotated[int, COUNT] = 200_000
    """Updates of the weights. The schedule ends here, or with `minutes` if that is earlier."""
    batch_size: Annotated[int, COUNT] = 64
    """Examples in one update, over all processes and accumulated parts."""
    accumulate: Annotated[int, COUNT] = 1
    """Parts of a batch whose gradients are summed; saves memory. Must divide batch_size."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam, as in the paper; or muon for the matrices of the blocks, with Adam for the rest."""
    learning_rate: Annotated[float, POSITIVE] = 2e-4
    """Adam's step size after the warm-up."""
    head_learning_rate: Annotated[float | None, POSITIVE] = None
    """Adam's step size for the last layer of the head, or of each head. None: learning_rate."""
    muon_learning_rate: Annotated[float, POSITIVE] = 0.02
    """Muon's step size, about the spectral norm of a step."""
    muon_weight_decay: Annotated[float, SHARE] = 0.0
    """A step multiplies Muon's matrices by 1 - muon_learning_rate * this."""
    warmup_steps: Annotated[int, UPDATES] = 5_000
    """Updates in which the learning rate rises, at most an eighth of the run."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Learning rate after the warm-up: constant, or falling to zero along a half cosine or a line."""
    betas: Annotated[tuple[float, float], SHARE] = (0.9, 0.999)
    """Adam's decay rates of the first and the second moment."""
    vectors_only: bool = False
    """Train biases and gains only (BitFit: Ben Zaken et al. 2021). So a trained model changes by few numbers."""
    clip_norm: Annotated[float, POSITIVE] = 1.0
    """Largest global norm of the gradients of the loss in nats/dim."""
    ema_decay: Annotated[float, SHARE] = 0.99995
    """Decay of the EMA weights (averaged), which are evaluated and exported. Early steps use at most (1 + step) / (20 +
    step)."""
    as_released: bool = False
    """Clip, warm up and average as the authors' code does: norms of the loss in bits/dim, learning rate 0 in the first
    update, ema_decay from the start."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of training. auto: bfloat16 where the device has instructions for its products, otherwise float32
    (TF32 on CUDA). Weights, moments, evaluations and samples are float32."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the blocks: a slower start, faster steps; a CPU needs a C++ compiler. auto: on CUDA only."""
    cuda_graph: bool = False
    """Record a whole step on CUDA once, as a graph that later steps repeat: small models train faster, since nothing
    waits for Python. One process, without accumulate and checkpoint_blocks. No GPU has run it yet."""
    deterministic: bool = False
    """Use only deterministic, slower algorithms on CUDA, so that a resumed run continues bitwise; a CPU always does.
    Needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment."""
    horizontal_flip: bool = False
    """Mirror half of the examples along their last axis."""
    distribution_augmentation: Annotated[float, SHARE] = 0.0
    """Share of the examples that are mirrored and transposed at random, with the operation as conditioning (Jun et al.
    2020)."""
    shift_augmentation: Annotated[float, SHARE] = 0.0
    """Share of the examples that are moved cyclically by at most one position along each axis, with the move as
    conditioning."""
    label_dropout: Annotated[float, SHARE] = 0.0
    """Probability of hiding an example's label, to train an unconditional model too. 0: the model then needs labels."""
    seed: Annotated[int, Bounds(least=0, below=2**63)] = 0
    """Seed of the order of the examples and all random numbers."""
    device: str = "auto"
    """Device to train on: cuda, cuda:1, cpu, ...; auto: CUDA if there is any."""
    workers: Annotated[int | None, Bounds(least=0, most=256)] = None
    """Threads that prefetch examples. None: 2 where they are read from disk (data sets), otherwise 0."""
    log_every: Annotated[int, COUNT] = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: Annotated[int, COUNT] = 1_000
    """Steps between evaluations of the EMA weights."""
    sample_every: Annotated[int, COUNT] = 5_000
    """Steps between sample grids."""
    save_every: Annotated[int, COUNT] = 1_000
    """Steps between checkpoints."""
    shard: bool = False
    """Shard the weights and Adam's moments over the processes (FSDP2), for large models."""
    checkpoint_blocks: bool = False
    """Recompute the activations of each block for its gradient; saves memory."""
    minutes: Annotated[float | None, Bounds(above=0, most=MAX_NUMBER)] = None
    """Minutes of wall-clock time for the steps, over all resumes. Data are read before them; the last evaluation and
    samples come after. Time can move the learning rate ahead of the steps."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard; needs the tensorboard extra."""
    wandb: str | None = None
    """Project of Weights & Biases to which the metrics and samples go too; needs the package wandb."""

    def __post_init__(self) -> None:
        check_settings(self, "training.")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"training.accumulate={self.accumulate} does not divide training.batch_size={self.batch_size}"
            )
        if self.cuda_graph and (self.accumulate > 1 or self.checkpoint_blocks):
            raise ValueError(
                "training.cuda_graph records a step in one piece: leave out training.accumulate and "
                "training.checkpoint_blocks, or training.cuda_graph"
            )
        if self.shard and self.optimizer == "muon":
            raise ValueError(
                "training.optimizer=muon needs whole matrices: take training.optimizer=adam, or leave out "
                "training.shard"
            )

    def resolve_auto(self, begun: "TrainConfig | None" = None) -> "TrainConfig":
        """Return the settings without `auto`, as suits the device or the run to resume (`begun`).

        Raises:
            ValueError: this machine lacks `device`, or what `cuda_graph` or `deterministic` need.
        """
        from axial_transformers.machine import multiplies_bfloat16, why_not_compiled

        if begun is not None:
            decided = {name: getattr(begun, name) for name in AUTO if getattr(self, name) == "auto"}
            return replace(self, **decided).resolve_auto()
        device = self.torch_device()
        on_cuda = device.type == "cuda"
        if self.cuda_graph and not on_cuda:
            raise ValueError(f"training.cuda_graph=True needs a CUDA device, not {device}: leave it out")
        if self.deterministic and on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
            raise ValueError(
                "training.deterministic=True needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment: set it"
            )
        precision = self.precision
        if precision == "auto":
            precision = "bfloat16" if multiplies_bfloat16(device) else "float32"
        compile = on_cuda if self.compile == "auto" else self.compile
        reason = why_not_compiled(device) if compile else None
        if reason:
            warnings.warn(f"blocks are not compiled: {reason}", stacklevel=2)
            compile = False
        return replace(self, precision=precision, compile=compile)

    def torch_device(self) -> "torch.device":
        return find_device(self.device)

    def autocast(self, device: "torch.device") -> "torch.autocast":
        """Return the context of a forward pass."""
        import torch

        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run: its data, its model, how it trains, and where it goes.

    A setting is open until something decides it:

    1. A recipe returns a run, in which some settings are `open`.
    2. The command line changes settings, which closes them (`changed`).
    3. `recipes.tiled` and `recipes.suited` decide those that depend on the data.
    4. `training.train` writes it to train.json. Nothing is open any more.
    """

    recipe: str | None = None
    """Name of the recipe; None: begun from Python."""
    source: str | None = None
    """Source of the data, as `data.load` takes it; None: examples from Python, or a recipe without data of its own."""
    out: Path = Path("runs")
    """The run's folder."""
    validate_on: Annotated[int, COUNT] = 1000
    """Most validation examples that are evaluated during training."""
    samples: Annotated[int, Bounds(least=0, most=10_000)] = 36
    """Examples in a sample grid. 0: no grids."""
    start_from: str | None = None
    """Start from the weights of this model: a run, a folder, a hub id, or a model of the package. Its values, channels,
    layout and width stay; the shape and the classes are those of the data."""
    data: DataConfig = field(default_factory=DataConfig)
    model: AxialTransformerConfig
    training: TrainConfig = field(default_factory=TrainConfig)
    open: tuple[str, ...] = ()
    """Names of settings, such as model.shape, that the data still decide."""

    def __post_init__(self) -> None:
        check_settings(self)

    def closed(self, settings: Iterable[str]) -> Self:
        """Return the run with these settings open no more; their values stay."""
        decided = {*settings}
        return replace(self, open=tuple(name for name in self.open if name not in decided))

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """Return the run with new values for settings, by name, such as samples or model.dim; they are open no more."""
        groups: dict[str, dict[str, Any]] = {"": {}, "data": {}, "model": {}, "training": {}}
        for name, value in settings.items():
            group, _, setting = name.rpartition(".")
            groups[group][setting] = value
        own = groups.pop("")
        for group, values in groups.items():
            own[group] = replace(getattr(self, group), **values)
        return replace(self, **own).closed(settings)

    def decided(self, settings: Mapping[str, Any]) -> Self:
        """Return the run with new values for those of the settings that are open."""
        return self.changed({name: value for name, value in settings.items() if name in self.open})


def find_device(name: str) -> "torch.device":
    """Return the device called cuda, cuda:1, cpu, ... or auto; under torchrun, that of the local rank."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the device {name} is not on this machine: {reason}") from None
    if device.type == "meta":
        raise ValueError("the device meta computes nothing: name cpu, cuda, ... or auto")
    return device
