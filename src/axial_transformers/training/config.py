"""The settings of a training run, which they, the model and the data determine."""

import os
import warnings
from dataclasses import dataclass, replace
from reprlib import repr as brief
from typing import ClassVar, Literal, get_args, get_origin, get_type_hints

import torch

from axial_transformers.ops.processor import multiplies_bfloat16, product_rates, why_not_compiled

AT_LEAST = dict.fromkeys(
    ("steps", "batch_size", "accumulate", "log_every", "evaluate_every", "sample_every", "save_every"), 1
) | {"workers": 0, "warmup_steps": 0, "longest_warmup": 0, "time_limit": 0}

MOST = 10**9
"""The largest of these numbers."""
MOST_WORKERS = 256


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training run.

    The defaults have the published numbers: Adam at 2e-4 with a linear warm-up, gradients clipped to norm 1, weights
    averaged with decay 0.99995, batches of 64 (Ho et al. 2019, section 4, and the released code). `as_released` says
    how these numbers are meant.
    """

    steps: int = 200_000
    """Updates of the weights. The cosine schedule ends here, or with the time limit if that is earlier."""
    batch_size: int = 64
    """Examples in one update, over all processes and accumulated parts."""
    accumulate: int = 1
    """Equal parts into which a batch is split, their gradients summed; saves memory. Must divide batch_size."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Optimizer: Adam, as in the paper; or Muon for the matrices of the transformer blocks, and Adam for the rest."""
    learning_rate: float = 2e-4
    """Adam's step size after the warm-up."""
    muon_learning_rate: float = 0.02
    """Muon's, which rises and falls with Adam's: about the spectral norm of its steps."""
    warmup_steps: int | None = None
    """Updates over which the learning rate rises linearly to its full value. None: longest_warmup, but at most an
    eighth of the run, which follows its steps or its time limit."""
    longest_warmup: int = 5_000
    """Updates of the warm-up of a long run, where warmup_steps is not set."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """The learning rate after the warm-up: constant, or falling to zero at the last step, along a half cosine or a
    line."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates of the first and the second moment."""
    clip_norm: float = 1.0
    """Gradients of the loss in nats/dim with a larger global norm are scaled down to it."""
    ema_decay: float = 0.99995
    """Decay of the running average of the weights, the ones that are evaluated and exported. It starts with the smaller
    decay (1 + step) / (10 + step), so that the initial weights leave the average soon."""
    as_released: bool = False
    """Clip, warm up and average as the authors' code does. The norm that is clipped and logged is that of the loss in
    bits/dim, 1 / ln 2 = 1.44 times as large. The first update has learning rate 0. The average has `ema_decay` from the
    start."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the forward and backward pass; auto: bfloat16 where the device multiplies it natively and clearly
    faster, otherwise float32. On CUDA, the float32 products of the steps are in TF32. Weights and Adam's moments are
    float32 always; evaluations and samples too."""
    compile: bool | Literal["auto", "bfloat16"] = "auto"
    """Compile the transformer blocks: seconds at the start, faster steps after; needs a C++ compiler on a CPU. auto: on
    CUDA only. bfloat16: on CUDA, and on a CPU if the steps are in bfloat16, since float32 steps gain nothing there."""
    deterministic: bool = False
    """Take only algorithms on CUDA that give the same bits again, and are slower, so that a resumed run continues
    bitwise as if it had never been interrupted. A CPU always does. The process must have been started with
    CUBLAS_WORKSPACE_CONFIG=:4096:8 in its environment."""
    horizontal_flip: bool = False
    """Mirror half of the examples along their last axis."""
    distribution_augmentation: float = 0.0
    """Share of the examples that are mirrored along each axis and transposed at random, which the model is told (Jun et
    al. 2020): against overfitting to few. The trained model is of the data as they are."""
    shift_augmentation: float = 0.0
    """Share of the examples that are moved by at most one site along each axis at random, around the ends, which the
    model is told too."""
    label_dropout: float = 0.0
    """Probability of hiding an example's label, so that a class-conditional model also learns unlabelled examples."""
    seed: int = 0
    """Determines the order of the examples and all random draws."""
    device: str = "auto"
    """Device to train on: cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    workers: int | None = None
    """Processes that prefetch examples; the examples do not depend on their number. None: 2 for examples in shards,
    otherwise 0."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int = 1_000
    """Steps between evaluations of the averaged weights."""
    sample_every: int = 5_000
    """Steps between sample grids; one is drawn at the end too."""
    save_every: int = 1_000
    """Steps between checkpoints; one is written before each evaluation too."""
    shard: bool = False
    """Shard the weights and Adam's moments over the processes (FSDP2), for models too large for one device; otherwise
    each process holds all of them (DDP)."""
    checkpoint_blocks: bool = False
    """Compute activations inside each transformer block again for its gradient, to save memory."""
    time_limit: float | None = None
    """Minutes of wall-clock time, over all resumes, after which training ends as if all steps were made; the schedule
    of the learning rate follows this time where it is ahead of the steps."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard also; needs the tensorboard extra."""

    OPEN: ClassVar[dict[str, tuple[str, ...]]] = {
        "precision": ("auto",),
        "compile": ("auto", "bfloat16"),
    }
    """The values that `resolve_auto` replaces."""

    def __post_init__(self) -> None:
        self._check_numbers()
        for name in ("learning_rate", "muon_learning_rate", "clip_norm", "time_limit"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        for name, shares in {
            "betas": self.betas,
            "ema_decay": [self.ema_decay],
            "label_dropout": [self.label_dropout],
            "distribution_augmentation": [self.distribution_augmentation],
            "shift_augmentation": [self.shift_augmentation],
        }.items():
            if not all(0 <= share < 1 for share in shares):
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate} does not divide batch_size={self.batch_size}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        self._check_choices()

    def _check_numbers(self) -> None:
        for name, least in AT_LEAST.items():
            value, most = getattr(self, name), MOST_WORKERS if name == "workers" else MOST
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
            if value is not None and value > most:
                raise ValueError(f"{name} must be at most {most:,}, not {brief(value)}")

    def _check_choices(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and (value := getattr(self, name)) not in get_args(hint):
                raise ValueError(f"{name} must be {' or '.join(map(str, get_args(hint)))}, not {value!r}")
        if self.compile not in (True, False, *self.OPEN["compile"]):
            raise ValueError(f"compile must be True, False, auto or bfloat16, not {self.compile!r}")
        if self.shard and self.optimizer == "muon":
            raise ValueError("optimizer='muon' needs whole matrices: take optimizer='adam', or leave out shard")

    @property
    def saves_memory(self) -> bool:
        """True if a step on a CPU returns freed memory to the system; otherwise it keeps it for the next step."""
        return self.accumulate > 1 or self.checkpoint_blocks

    def resolve_auto(self, begun: "TrainConfig | None" = None) -> "TrainConfig":
        """Return the settings without `auto`: as a run was begun, or as suits the device. Again, the same.

        Args:
            begun: the settings of the run that is resumed.

        Warns:
            UserWarning: bfloat16 is wanted, and slower than float32 on this processor; or compiled blocks, which
                cannot be had here.

        Raises:
            ValueError: `device` names none that this machine has, or `deterministic` lacks the environment it needs.
        """
        if begun is not None:
            begun_with = {name: getattr(begun, name) for name in self.OPEN if getattr(self, name) in self.OPEN[name]}
            return replace(self, **begun_with).resolve_auto()
        device, precision = self.torch_device(), self.precision
        on_cuda = device.type == "cuda"
        if self.deterministic and on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
            raise ValueError("deterministic=True needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment: set it")
        if precision == "auto":
            precision = "bfloat16" if multiplies_bfloat16(device) else "float32"
        if precision == "bfloat16":
            warn_if_slow("precision", device)
        compile = self.compile if isinstance(self.compile, bool) else on_cuda or self.compile == precision
        if compile and (reason := why_not_compiled(device)):
            warnings.warn(f"blocks are not compiled: {reason}", stacklevel=2)
            compile = False
        return replace(self, precision=precision, compile=compile)

    def torch_device(self) -> torch.device:
        """The device to train on.

        Raises:
            ValueError: `device` names none that this machine has.
        """
        return find_device(self.device)


def warn_if_slow(setting: str, device: torch.device) -> None:
    """Warns where products in bfloat16, which the setting wants, take longer on the device than in float32.

    Warns:
        UserWarning: they do; with the measured factor.
    """
    if device.type == "cpu" and (gain := product_rates().gain_of_bfloat16) < 1:
        warnings.warn(
            f"{setting}=bfloat16: on this processor its matrix products take {1 / gain:.2g} times as long as with "
            f"{setting}=float32",
            stacklevel=3,
        )


def find_device(name: str) -> torch.device:
    """Return the device called cuda, cuda:1, cpu, ...; auto is CUDA if there is any, otherwise the CPU.

    Each of several processes that torchrun starts gets the CUDA device of its local rank.

    Raises:
        ValueError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"device={name!r} is not on this machine: {str(error).splitlines()[0]}") from None
    if device.type == "meta":
        raise ValueError("device='meta' computes nothing: name cpu, cuda, ... or auto")
    return device
